//! What is known to be flaky: keys on record that were seen to pass and to fail.
#![forbid(unsafe_code)]

use crate::commands::flake::told::percent_up;
use crate::commands::{Failure, Session};
use crate::key;
use crate::model::event::{Event, Sink};
use crate::model::shell::shell_words;
use crate::stats;
use crate::store::{Store, TestCount};
use serde::Serialize;

/// From how many columns on `flakes` has a line with everything.
const WIDE: u16 = 120;
/// How many are listed.
const LISTED: u32 = 1000;
/// How many of its tests are listed for people.
const TESTS: usize = 20;
/// How sure the bound is.
const CONFIDENCE: f64 = 0.95;

/// One flaky key.
#[derive(Serialize)]
struct Row<'a> {
    schema: &'static str,
    key: &'a str,
    tree: &'a str,
    commit: Option<&'a str>,
    cmd: &'a str,
    /// Runs on record, and those that failed.
    n: u64,
    k: u64,
    rate: f64,
    /// Upper bound on the rate that may be read at any time.
    bound: f64,
    confidence: f64,
    last_seen: &'a str,
    last_outcome: &'static str,
    last_id: i64,
    /// What was found to be the cause, if anything was.
    cause: Option<String>,
    /// Its tests that did not always pass, counted over all sessions.
    tests: Vec<TestRow>,
}

/// One test of a flaky key.
#[derive(Serialize)]
struct TestRow {
    test: String,
    n: u64,
    k: u64,
    /// Upper bound on the rate that may be read at any time.
    bound: f64,
    cause: Option<String>,
    last_seen: String,
}

impl TestRow {
    fn new(count: TestCount) -> Self {
        let (n, k) = (count.tally.passed + count.tally.failed, count.tally.failed);
        let bound = stats::anytime_upper_bound(n, k, CONFIDENCE);
        Self { test: count.test, n, k, bound, cause: count.cause, last_seen: count.at }
    }
}

/// Lists them, the one that was run last first.
pub(in crate::commands) fn flakes(session: &mut Session) -> Result<u8, Failure> {
    let Some(reader) = Store::open_reader(&session.around.store)? else { return Ok(0) };
    let listing = reader.flaky(LISTED)?;
    for damage in &listing.damage {
        session.reporter.event(Event::Warning(damage));
    }
    for record in listing.records.iter().filter(|record| record.tally.is_flaky()) {
        let (n, k) = (record.tally.passed + record.tally.failed, record.tally.failed);
        let cmd = key::argv_of(&record.preimage).map_or_else(|| "?".to_owned(), |argv| shell_words(&argv));
        let key = record.key.to_string();
        let counts = reader.test_counts(&record.key);
        let cause = counts.iter().find(|count| count.test.is_empty()).and_then(|count| count.cause.clone());
        let tests = counts.into_iter().filter(|count| !count.test.is_empty()).map(TestRow::new).collect();
        let row = Row {
            schema: "checkrun.flakes/1",
            key: &key,
            tree: &record.evidence.tree,
            commit: record.evidence.commit.as_deref(),
            cmd: &cmd,
            n,
            k,
            rate: stats::real(k) / stats::real(n),
            bound: stats::anytime_upper_bound(n, k, CONFIDENCE),
            confidence: CONFIDENCE,
            last_seen: &record.evidence.at,
            last_outcome: record.evidence.outcome.name(),
            last_id: record.id,
            cause,
            tests,
        };
        if session.reporter.is_json() {
            session.reporter.object(&row);
        } else {
            for line in lines(&row, session.reporter.columns().is_some_and(|columns| columns < WIDE)) {
                session.reporter.listed(&line);
            }
        }
    }
    Ok(0)
}

/// A flaky key for people: a line of its own, and one for each of its tests.
fn lines(row: &Row<'_>, is_narrow: bool) -> Vec<String> {
    let (key, cmd) = (row.key, row.cmd);
    let rate = format!("{} of {} failed, at most {}", row.k, row.n, percent_up(row.bound));
    let tree = row.tree.get(..12).unwrap_or(row.tree);
    let mut lines = vec![if is_narrow {
        // Without the tree and the time of day, so that some of the command is seen.
        let (key, day) = (key.get(3..11).unwrap_or(key), row.last_seen.get(..10).unwrap_or_default());
        format!("{key}  {rate}  {day}  {cmd}")
    } else {
        format!("{}  {tree}  {rate}  {}  {cmd}", key.get(3..15).unwrap_or(key), row.last_seen)
    }];
    lines.extend(row.cause.as_ref().map(|cause| format!("    cause: {cause}")));
    for test in row.tests.iter().take(TESTS) {
        let id: String = test.test.chars().filter(|letter| !letter.is_control()).collect();
        let cause = test.cause.as_ref().map_or_else(String::new, |cause| format!(", {cause}"));
        let at_most = percent_up(test.bound);
        lines.push(format!("    {id}: {} of {} failed, at most {at_most}{cause}", test.k, test.n));
    }
    lines
}
