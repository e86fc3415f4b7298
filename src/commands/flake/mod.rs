//! Door 3: how flaky a check is. It is run many times under one key; each run is an execution like any other, on record,
//! and none is answered from there. When to stop is `course`'s, what it means `verdict`'s, how it is told `told`'s.
#![forbid(unsafe_code)]

mod cases;
mod course;
mod explain;
mod known;
mod page;
mod quarantine;
mod told;
mod verdict;

pub(super) use known::flakes;

use crate::cli::{FlakeRequest, Goal};
use crate::commands::failure::interrupted;
use crate::commands::run::wish;
use crate::commands::session::{now_secs, output_place};
use crate::commands::{Failure, Session};
use crate::key;
use crate::model::evidence::{Evidence, Tally};
use crate::model::units::show_instant;
use crate::pipeline::{self, Prepared, Wish};
use crate::report::{percent, seconds, write_atomically};
use crate::stats;
use crate::store::{Record, Store, TestCount};
use crate::tree::Source;
use course::{Course, Rule, Seen, Stopped};
use quarantine::Quarantine;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use told::Report;

/// How sure the lower bound on the old rate is where it is asked whether something was fixed.
const OLD_RATE_CONFIDENCE: f64 = 0.9;
/// A good rate is this part of the one that is not to be accepted.
const GOOD_PART: f64 = 0.1;
/// The fewest runs after which a claim is given up.
const CAP_AT_LEAST: u64 = 100;
/// The most runs where nothing else ends them.
const CAP: u64 = 1_000_000;

/// Runs a check many times and says how flaky it is.
pub(super) fn flake(request: FlakeRequest, session: &mut Session) -> Result<u8, Failure> {
    if request.explain {
        return explain::explain(&request, session);
    }
    let began = Instant::now();
    let at = now();
    let html = output_place(&session.start, request.html.clone())?;
    let junit = output_place(&session.start, request.junit.clone())?;
    let wish = wish(request.check.clone(), &session.start)?;
    let mut prepared = pipeline::prepare(&wish, &session.around)?;
    let found = pipeline::on_record(&prepared, &session.around)?;
    let confidence = request.confidence.value();
    let jobs = jobs(&request);
    let rule = rule(&request, &wish, &prepared, session)?;
    if let Rule::Fixed { needed, old, secs, .. } = &rule {
        let took = Duration::from_secs_f64((secs * stats::real(*needed) / f64::from(jobs)).clamp(0.0, 1e9));
        session.reporter.note(&format!(
            "it failed {} of {} times before; to call that fixed takes {needed} runs without a failure, about {}",
            old.failed,
            old.failed + old.passed,
            seconds(took.as_secs_f64())
        ));
    }
    let quarantine = Quarantine::read(&wish, &prepared, request.base.as_deref(), session)?;
    prepared.close_store();
    let course = Course::new(rule, confidence, found.tally, &mut session.reporter);
    let mut course = course.with(quarantine);
    pipeline::repeat(&[&prepared], usize::from(jobs), &session.around, &mut course)?;
    let seen = course.finish();
    if let Some(Stopped::NotStarted(evidence)) = &seen.stopped {
        return Err(not_started(evidence));
    }
    remember(&seen, &prepared, session);
    let verdict = verdict::judge(&seen);
    let report = Report::new(&seen, &verdict, &prepared, began.elapsed(), jobs);
    if session.reporter.is_json() {
        session.reporter.object(&report);
    } else {
        session.reporter.data(report.text().as_bytes());
    }
    if let Some(path) = html {
        write_atomically(&path, page::html(&report, &seen.wrong).as_bytes())?;
    }
    if let Some(path) = junit {
        write_atomically(&path, page::junit(&report, &at).as_bytes())?;
    }
    Ok(match seen.stopped {
        Some(Stopped::Interrupted(signal)) => interrupted(signal),
        _ if report.quarantine.as_ref().is_some_and(|quarantine| !quarantine.gates) => 0,
        _ => verdict.word.status(),
    })
}

/// Puts the counts of single tests on record. That it cannot is said, and keeps nothing from being told.
fn remember(seen: &Seen, prepared: &Prepared, session: &mut Session) {
    let paths = &session.around.store;
    let done = Store::open_reader(paths).and_then(|reader| {
        let known = reader.map(|reader| reader.test_counts(&prepared.keyed.key)).unwrap_or_default();
        let known: BTreeSet<String> = known.into_iter().map(|count| count.test).collect();
        let at = now();
        let count = |(test, tally)| TestCount { test, tally, cause: None, at: at.clone() };
        let counts: Vec<TestCount> = seen.cases.tallies(&known).into_iter().map(count).collect();
        if counts.is_empty() {
            return Ok(());
        }
        Store::open_writer(paths)?.count_tests(&prepared.keyed.key, &counts)
    });
    if let Err(error) = done {
        session.reporter.note(&format!("the counts of single tests are not recorded: {error}"));
    }
}

/// Puts a cause on record.
fn remember_cause(cause: &str, tests: &[(String, &'static str)], prepared: &Prepared, session: &mut Session) {
    let at = now();
    let count = |test: &str, cause: &str| TestCount {
        test: test.to_owned(),
        tally: Tally::default(),
        cause: Some(cause.to_owned()),
        at: at.clone(),
    };
    let mut counts = vec![count("", cause)];
    counts.extend(tests.iter().map(|(test, kind)| count(test, kind)));
    let done = Store::open_writer(&session.around.store)
        .and_then(|mut writer| writer.count_tests(&prepared.keyed.key, &counts));
    if let Err(error) = done {
        session.reporter.note(&format!("the cause is not recorded: {error}"));
    }
}

/// Real time, as records have it.
fn now() -> String {
    show_instant(now_secs())
}

/// Runs at one time: as asked, else one for each processor, and no more than there will be runs.
fn jobs(request: &FlakeRequest) -> u16 {
    let processors =
        || std::thread::available_parallelism().map_or(1, |count| u16::try_from(count.get()).unwrap_or(256));
    let jobs = request.jobs.unwrap_or_else(|| processors().min(256));
    let most = match request.goal {
        Goal::Runs(runs) => runs,
        _ => request.max_runs.unwrap_or(u64::MAX),
    };
    jobs.min(u16::try_from(most).unwrap_or(u16::MAX)).max(1)
}

fn rule(
    request: &FlakeRequest,
    wish: &Wish,
    prepared: &Prepared,
    session: &mut Session,
) -> Result<Rule, Failure> {
    let confidence = request.confidence.value();
    let cap = request.max_runs;
    Ok(match &request.goal {
        Goal::Runs(runs) => Rule::Runs(*runs),
        Goal::Certify(rate) => {
            let bad = rate.value();
            let test = stats::SequentialTest { good: bad * GOOD_PART, bad, error: 1.0 - confidence };
            let usual = test.shortest().saturating_mul(4).clamp(CAP_AT_LEAST, CAP);
            Rule::Certify { test, cap: cap.unwrap_or(usual) }
        }
        Goal::For(span) => Rule::For { span: *span, cap: cap.unwrap_or(CAP) },
        Goal::UntilFail => Rule::UntilFail { cap: cap.unwrap_or(CAP) },
        Goal::Fixed(name) => {
            let old = old_record(name, wish, prepared, session)?;
            let least = stats::lower_bound(
                old.tally.passed + old.tally.failed,
                old.tally.failed,
                OLD_RATE_CONFIDENCE,
            );
            let needed = stats::clean_runs_needed(least, confidence).ok_or_else(|| {
                Failure::new(
                    format!("it failed so rarely before ({}) that no number of runs tells", percent(least)),
                    None,
                )
            })?;
            Rule::Fixed {
                needed,
                least,
                old: old.tally,
                key: old.key.to_string(),
                secs: old.evidence.secs,
                cap: cap.unwrap_or(u64::MAX),
            }
        }
    })
}

/// The newest record under the key, or of this very command on the revision, that is to have been fixed.
fn old_record(name: &str, wish: &Wish, now: &Prepared, session: &mut Session) -> Result<Record, Failure> {
    let hint = Some("`checkrun flakes` lists what is known to be flaky");
    let reader = Store::open_reader(&session.around.store)?
        .ok_or_else(|| Failure::new("nothing is on record yet, so nothing can have been fixed", None))?;
    let digits = name.strip_prefix("b3:").unwrap_or(name);
    let may_be_key = digits.len() >= 6 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let by_key = if may_be_key { reader.by_key(name)?.records.into_iter().next() } else { None };
    let record = match by_key {
        Some(record) => record,
        None => {
            let then = Wish { source: Source::Revision(name.to_owned()), ..wish.clone() };
            let then = pipeline::prepare(&then, &session.around)?;
            let listing = reader.by_key(&then.keyed.key.to_string())?;
            listing
                .records
                .into_iter()
                .next()
                .ok_or_else(|| Failure::new(format!("this check is not on record for `{name}`"), hint))?
        }
    };
    if key::argv_of(&record.preimage).is_none_or(|argv| argv != now.action.command.argv) {
        return Err(Failure::new(format!("`{name}` is a record of another command"), hint));
    }
    if record.key == now.keyed.key {
        return Err(Failure::new(
            format!(
                "`{name}` is this very check on this very tree: nothing was changed that could have fixed it"
            ),
            Some("name the key or the revision from before the change"),
        ));
    }
    if record.tally.failed == 0 {
        return Err(Failure::new(
            format!("`{name}` never failed on record, so there is nothing to fix"),
            hint,
        ));
    }
    Ok(record)
}

/// A command that cannot be started is no check at all.
fn not_started(evidence: &Evidence) -> Failure {
    let why = evidence.reason.as_deref().unwrap_or("it could not be executed");
    let why = why.split_once(": ").map_or(why, |(_, sentence)| sentence);
    Failure::new(
        format!("the command cannot be started: {why}"),
        Some("`checkrun run` with the same words shows the same; `--runner` shows it another toolchain"),
    )
}

/// Passes and failures together.
fn all(tally: Tally) -> u64 {
    tally.passed.saturating_add(tally.failed)
}
