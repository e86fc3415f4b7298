//! How a session is told: one object for programs (`docs/schemas/flake.json`), a few lines for people.
#![forbid(unsafe_code)]

use crate::commands::flake::all;
use crate::commands::flake::cases::CasesTold;
use crate::commands::flake::course::{FailureKind, Rule, Seen, Stopped, last_line};
use crate::commands::flake::quarantine::QuarantineTold;
use crate::commands::flake::verdict::{Bound, Verdict, Word};
use crate::model::evidence::Tally;
use crate::model::shell::shell_words;
use crate::pipeline::Prepared;
use crate::report::{percent, seconds};
use crate::stats;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// What the report is called and its version.
const SCHEMA: &str = "checkrun.flake/1";
/// Most tests that are listed for people.
const LISTED: usize = 20;

/// A session, told.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    schema: &'static str,
    pub(super) key: String,
    pub(super) tree: String,
    commit: Option<String>,
    dirty: bool,
    argv: Vec<String>,
    pub(super) cmd: String,
    pub(super) verdict: Word,
    pub(super) reason: Option<&'a str>,
    /// Runs of this session that ended with a verdict.
    pub(super) n: u64,
    /// Those that did not pass.
    pub(super) k: u64,
    outcomes: &'a BTreeMap<&'static str, u64>,
    rate: Option<f64>,
    /// Where the rate of this session's runs is, at this confidence.
    interval: Option<[f64; 2]>,
    pub(super) bound: Bound,
    rule: RuleTold<'a>,
    pub(super) earlier: Tally,
    /// As in the result object of a check: the key never answers again.
    flaky: Option<Tally>,
    pub(super) failures: Vec<FailureTold<'a>>,
    pub(super) tests: Option<CasesTold>,
    /// What the repository's quarantine file comes to; null where there is none.
    pub(super) quarantine: Option<QuarantineTold<'a>>,
    pub(super) notes: &'a [String],
    warnings: &'a [String],
    interrupted: Option<i32>,
    pub(super) jobs: u16,
    pub(super) secs: f64,
    /// Time of all runs, one after the other.
    pub(super) run_secs: f64,
}

#[derive(Serialize)]
#[serde(tag = "name", rename_all = "snake_case")]
enum RuleTold<'a> {
    Runs { runs: u64 },
    Certify { rate: f64, good_rate: f64, confidence: f64, max_runs: u64 },
    For { secs: f64 },
    UntilFail { max_runs: u64 },
    Fixed { needed: u64, old_key: &'a str, old: Tally, old_rate_at_least: f64, fixed: bool },
}

#[derive(Serialize)]
pub(super) struct FailureTold<'a> {
    count: u64,
    first: u64,
    pub(super) outcome: &'static str,
    exit: Option<i32>,
    signal: Option<i32>,
    reason: Option<&'a str>,
    at: &'a str,
    pub(super) tail: &'a str,
}

impl<'a> Report<'a> {
    pub(super) fn new(
        seen: &'a Seen,
        verdict: &'a Verdict,
        prepared: &Prepared,
        took: Duration,
        jobs: u16,
    ) -> Self {
        let (n, k) = (all(seen.now), seen.now.failed);
        let action = &prepared.action;
        let words =
            |argv: &[Vec<u8>]| argv.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let whole = Tally {
            passed: seen.now.passed + seen.earlier.passed,
            failed: seen.now.failed + seen.earlier.failed,
        };
        let (low, high) = stats::interval(n, k, seen.confidence);
        let tests = seen.cases.told(&seen.quarantine);
        // What was never seen to pass is broken and not flaky, whatever the file says.
        let broken =
            |tests: &CasesTold| tests.list.iter().any(|test| test.quarantined && test.verdict != "flaky");
        let may_lift =
            verdict.word == Word::Flaky && seen.now.passed > 0 && !tests.as_ref().is_some_and(broken);
        let quarantine = seen.quarantine.told(seen.excused, k, may_lift);
        Self {
            schema: SCHEMA,
            key: prepared.keyed.key.to_string(),
            tree: action.tree.tree.hex(),
            commit: action.tree.commit.as_ref().map(|commit| commit.hex()),
            dirty: action.tree.dirty,
            argv: words(&action.command.argv),
            cmd: shell_words(&action.command.argv),
            verdict: verdict.word,
            reason: verdict.reason.as_deref(),
            n,
            k,
            outcomes: &seen.outcomes,
            rate: (n > 0).then(|| stats::real(k) / stats::real(n)),
            interval: (n > 0).then_some([low, high]),
            bound: verdict.bound,
            rule: rule(seen, verdict),
            earlier: seen.earlier,
            flaky: whole.is_flaky().then_some(whole),
            failures: seen.failures.iter().map(failure).collect(),
            tests,
            quarantine,
            notes: &verdict.notes,
            warnings: &seen.warnings,
            interrupted: match seen.stopped {
                Some(Stopped::Interrupted(signal)) => Some(signal),
                _ => None,
            },
            jobs,
            secs: took.as_secs_f64(),
            run_secs: seen.run_secs,
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = self.headline();
        if let Some(reason) = self.reason {
            let _ = writeln!(text, "  {}", reason.split_once(": ").map_or(reason, |(_, sentence)| sentence));
        }
        if all(self.earlier) > 0 {
            let Tally { passed, failed } = self.earlier;
            let _ = writeln!(text, "  earlier runs of the same key: {passed} passed, {failed} failed");
        }
        if self.flaky.is_some() {
            text.push_str("  it was seen to pass and to fail, so no result of it answers again\n");
        }
        for note in self.notes {
            let _ = writeln!(text, "  note: {note}");
        }
        for failure in &self.failures {
            let _ = writeln!(text, "  {}", failure.text());
        }
        if let Some(tests) = &self.tests {
            text.push_str(&tests_text(tests));
        }
        if let Some(quarantine) = &self.quarantine {
            text.push_str(&quarantine.text());
        }
        let tree: String = self.tree.chars().take(12).collect();
        let key = self.key.get(3..15).unwrap_or(&self.key);
        let jobs = if self.jobs == 1 { "one".to_owned() } else { self.jobs.to_string() };
        let _ = writeln!(
            text,
            "  {} tree {tree} key {key} in {}, {jobs} at a time",
            self.cmd,
            seconds(self.secs)
        );
        text
    }

    pub(super) fn headline(&self) -> String {
        let (n, k, word) = (self.n, self.k, self.verdict.name());
        let sure = percent(self.bound.confidence);
        let at_most = percent_up(self.bound.rate);
        let runs = if n == 1 { "run" } else { "runs" };
        match (&self.rule, self.verdict) {
            (RuleTold::Fixed { needed, old, fixed: true, .. }, _) => format!(
                "fixed: {needed} {runs} passed in a row; had nothing changed since it failed {} of {} times, that would have \
                 been less likely than {}\n",
                old.failed,
                all(*old),
                percent(1.0 - self.bound.confidence)
            ),
            (_, Word::Stable) => {
                format!(
                    "{word}: {k} of {n} {runs} failed; it fails less often than {at_most} of the time, at {sure} confidence\n"
                )
            }
            (_, Word::Flaky) => {
                let [low, high] = self.interval.unwrap_or([0.0, 1.0]);
                format!(
                    "{word}: {k} of {n} {runs} failed ({}), between {} and {} at {sure} confidence\n",
                    percent(self.rate.unwrap_or(0.0)),
                    percent_down(low),
                    percent_up(high)
                )
            }
            (_, Word::Failing) => {
                let least = stats::lower_bound(n, k, self.bound.confidence);
                format!(
                    "{word}: {k} of {n} {runs} failed; it fails at least {} of the time, at {sure} confidence\n",
                    percent_down(least)
                )
            }
            (_, Word::Undecided) => {
                format!("{word}: {k} of {n} {runs} failed; rate at most {at_most}, at {sure} confidence\n")
            }
        }
    }
}

fn rule<'a>(seen: &'a Seen, verdict: &Verdict) -> RuleTold<'a> {
    match &seen.rule {
        Rule::Runs(runs) => RuleTold::Runs { runs: *runs },
        Rule::Certify { test, cap } => RuleTold::Certify {
            rate: test.bad,
            good_rate: test.good,
            confidence: seen.confidence,
            max_runs: *cap,
        },
        Rule::For { span, .. } => RuleTold::For { secs: span.as_secs_f64() },
        Rule::UntilFail { cap } => RuleTold::UntilFail { max_runs: *cap },
        Rule::Fixed { needed, least, old, key, .. } => RuleTold::Fixed {
            needed: *needed,
            old_key: key,
            old: *old,
            old_rate_at_least: *least,
            fixed: verdict.fixed,
        },
    }
}

fn failure(kind: &FailureKind) -> FailureTold<'_> {
    let evidence = &kind.evidence;
    FailureTold {
        count: kind.count,
        first: kind.first,
        outcome: evidence.outcome.name(),
        exit: evidence.exit,
        signal: evidence.signal,
        reason: evidence.reason.as_deref(),
        at: &evidence.at,
        tail: &evidence.tail,
    }
}

impl FailureTold<'_> {
    pub(super) fn text(&self) -> String {
        let ending = match (self.exit, self.signal) {
            (Some(exit), _) => format!(", exit {exit}"),
            (None, Some(signal)) => format!(", signal {signal}"),
            (None, None) => String::new(),
        };
        let line: String =
            last_line(self.tail).chars().filter(|letter| !letter.is_control()).take(160).collect();
        let line = if line.is_empty() { line } else { format!(": {line}") };
        format!(
            "{} × {}{ending}, first in run {}{line}",
            self.count,
            self.outcome.replace('_', " "),
            self.first
        )
    }
}

fn tests_text(tests: &CasesTold) -> String {
    let mut text = format!("  tests: {} seen, {} passed each time\n", tests.seen, tests.stable);
    for test in tests.list.iter().take(LISTED) {
        let runs = test.passed + test.failed + test.aborted;
        let id: String = test.id.chars().filter(|letter| !letter.is_control()).collect();
        let aborted =
            if test.aborted > 0 { format!(", {} of these never ended", test.aborted) } else { String::new() };
        let _ = writeln!(
            text,
            "    {}{}: {id}: {} of {runs} failed{aborted}",
            test.verdict,
            if test.quarantined { ", in quarantine" } else { "" },
            test.failed + test.aborted
        );
    }
    if tests.list.len() > LISTED {
        let _ = writeln!(text, "    … and {} more", tests.list.len() - LISTED);
    }
    for pattern in &tests.unstable_names {
        let _ = writeln!(text, "    names change from run to run, so counts cannot be told: {pattern}");
    }
    text
}

/// A bound as people read it: rounded up, so that it is never told lower than it is.
pub(super) fn percent_up(share: f64) -> String {
    // A hair less, so that what is exact in decimals stays as it is.
    percent((share / step(share) - 1e-6).ceil() * step(share))
}

/// A lower bound: rounded down.
pub(super) fn percent_down(share: f64) -> String {
    percent((share / step(share) + 1e-6).floor() * step(share))
}

/// What the last digit of a share stands for, as it is shown.
fn step(share: f64) -> f64 {
    match share {
        share if share >= 0.1 => 0.01,
        share if share >= 0.01 => 0.001,
        share if share >= 0.001 => 0.0001,
        _ => 0.000_001,
    }
}
