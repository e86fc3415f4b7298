//! What a session means: one of four words, and the claim behind it. Never more than the runs show.
#![forbid(unsafe_code)]

use crate::commands::flake::all;
use crate::commands::flake::course::{Rule, Seen, Stopped};
use crate::model::evidence::Tally;
use crate::stats;
use serde::Serialize;

/// Failures in a row that are called failing.
const FAILING: u64 = 3;
/// How improbable clustered failures must be in independent runs before that is said.
const CLUSTERED: f64 = 0.01;

/// The verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    /// The rate is below what is claimed.
    Stable,
    /// Seen to pass and not to pass.
    Flaky,
    /// Never seen to pass.
    Failing,
    /// Neither can be said.
    Undecided,
}

impl Word {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::Flaky => "flaky",
            Self::Failing => "failing",
            Self::Undecided => "undecided",
        }
    }

    pub(super) fn status(self) -> u8 {
        match self {
            Self::Stable => 0,
            Self::Failing => 1,
            Self::Flaky => 3,
            Self::Undecided => 4,
        }
    }
}

/// An upper bound on the rate.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Bound {
    pub(super) rate: f64,
    pub(super) confidence: f64,
    /// `exact`: of a number of runs settled before; `sequential`: by the test of the claim; `anytime`: by a bound that may
    /// be read at any time, over all runs on record.
    pub(super) method: &'static str,
    pub(super) runs: u64,
    pub(super) failed: u64,
}

/// What is said.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Verdict {
    pub(super) word: Word,
    /// A word, a colon and a sentence, where the verdict alone does not say it.
    pub(super) reason: Option<String>,
    pub(super) bound: Bound,
    /// The old failures are gone: only where that was asked, and enough runs passed.
    pub(super) fixed: bool,
    pub(super) notes: Vec<String>,
}

/// Decides. The first line that applies decides:
///
/// | seen | verdict |
/// |---|---|
/// | all runs past their timeout, twice | undecided |
/// | the claim was shown | stable, whatever few failures it allows |
/// | passes and failures under the key, earlier runs counted | flaky |
/// | failures only, three or more | failing |
/// | a failure, or no run at all | undecided |
/// | interrupted, or a claim that the cap left open | undecided |
/// | no failure | stable, with the bound that so many runs allow |
pub(super) fn judge(seen: &Seen) -> Verdict {
    let (now, earlier) = (seen.now, seen.earlier);
    let both = Tally { passed: now.passed + earlier.passed, failed: now.failed + earlier.failed };
    let mut reason = None;
    let mut say = |text: &str| reason = Some(text.to_owned());
    let interrupted = matches!(seen.stopped, Some(Stopped::Interrupted(_)));
    if interrupted {
        say("interrupted: it was stopped before the end; the runs so far are on record");
    }
    let word = match (&seen.stopped, &seen.rule) {
        (Some(Stopped::Timeouts), _) => {
            say("timed_out: each run so far went past its timeout; give it more with `--timeout`");
            Word::Undecided
        }
        (Some(Stopped::Certified), _) => Word::Stable,
        _ if both.passed > 0 && both.failed > 0 => Word::Flaky,
        _ if both.passed == 0 && both.failed >= FAILING => Word::Failing,
        _ if both.failed > 0 => {
            say("few_runs: it failed each time so far, too few times to say that it always does");
            Word::Undecided
        }
        _ if all(now) == 0 => {
            reason.get_or_insert_with(|| "no_runs: no run came to an end".to_owned());
            Word::Undecided
        }
        _ if interrupted => Word::Undecided,
        (_, Rule::Certify { cap, .. }) => {
            say(&format!("cap: {cap} runs do not show it; allow more with `--max-runs`"));
            Word::Undecided
        }
        (_, Rule::Fixed { needed, .. }) if now.passed < *needed => {
            say(&format!("cap: it takes {needed} runs; allow that many with `--max-runs`"));
            Word::Undecided
        }
        _ => Word::Stable,
    };
    let fixed =
        matches!(&seen.rule, Rule::Fixed { needed, .. } if now.passed >= *needed) && word == Word::Stable;
    Verdict { word, reason, bound: bound(seen, both), fixed, notes: notes(seen) }
}

fn bound(seen: &Seen, both: Tally) -> Bound {
    let confidence = seen.confidence;
    let of = |tally: Tally, rate, method| Bound {
        rate,
        confidence,
        method,
        runs: all(tally),
        failed: tally.failed,
    };
    match (&seen.rule, &seen.stopped) {
        (Rule::Certify { test, .. }, Some(Stopped::Certified)) => of(both, test.bad, "sequential"),
        (Rule::Runs(runs), _) if all(seen.now) == *runs => {
            of(seen.now, stats::upper_bound(*runs, seen.now.failed, confidence), "exact")
        }
        (Rule::Fixed { needed, .. }, _) if seen.now.failed == 0 && all(seen.now) == *needed => {
            of(seen.now, stats::upper_bound(*needed, 0, confidence), "exact")
        }
        _ => of(both, stats::anytime_upper_bound(all(both), both.failed, confidence), "anytime"),
    }
}

fn notes(seen: &Seen) -> Vec<String> {
    let mut notes = Vec::new();
    let clustering = stats::clustering(seen.now.passed, seen.now.failed, seen.stretches);
    if clustering.is_some_and(|probability| probability < CLUSTERED) {
        notes.push(
            "failures cluster in time, so runs are not independent of the machine's state and the bounds are too narrow"
                .to_owned(),
        );
    }
    if let Some(count) = seen.outcomes.get("killed") {
        notes.push(format!("runs that were killed from outside and do not count: {count}"));
    }
    notes
}
