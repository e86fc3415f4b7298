//! What is known to be flaky: keys on record that were seen to pass and to fail.
#![forbid(unsafe_code)]

use crate::commands::flake::told::percent_up;
use crate::commands::{Failure, Session};
use crate::key;
use crate::model::event::{Event, Sink};
use crate::report::shell_words;
use crate::stats;
use crate::store::Store;
use serde::Serialize;

/// From how many columns on `flakes` has a line with everything.
const WIDE: u16 = 120;
/// How many are listed.
const LISTED: u32 = 1000;
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
        };
        if session.reporter.is_json() {
            session.reporter.object(&row);
        } else {
            let rate = format!("{k} of {n} failed, at most {}", percent_up(row.bound));
            if session.reporter.columns().is_some_and(|columns| columns < WIDE) {
                // Without the tree and the time of day, so that some of the command is seen.
                let (key, day) =
                    (key.get(3..11).unwrap_or(&key), row.last_seen.get(..10).unwrap_or_default());
                session.reporter.listed(&format!("{key}  {rate}  {day}  {cmd}"));
                continue;
            }
            let tree = row.tree.get(..12).unwrap_or(row.tree);
            let line =
                format!("{}  {tree}  {rate}  {}  {cmd}", key.get(3..15).unwrap_or(&key), row.last_seen);
            session.reporter.listed(&line);
        }
    }
    Ok(0)
}
