//! What is on record: the list of results, one of them in full, and why a check would or would not be answered.
#![forbid(unsafe_code)]

use crate::cache::{Lookup, MissReason};
use crate::cli::CheckRequest;
use crate::commands::run::wish;
use crate::commands::{Failure, Session};
use crate::key;
use crate::logs::LogReader;
use crate::model::check::Guard;
use crate::model::digest::Digest;
use crate::model::event::{Event, Sink};
use crate::model::evidence::CacheUse;
use crate::model::shell::shell_words;
use crate::model::units::show_instant;
use crate::pipeline::{self, Caching, Prepared};
use crate::report::{Answer, Circumstances, evidence_text};
use crate::store::{Listing, Reader, Record, Store};
use crate::tree::{self, Entry, Source, TreeError};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// How many records `log` lists.
const LISTED: u32 = 100;
/// What the object of `explain` is called and its version.
const EXPLAIN_SCHEMA: &str = "checkrun.explain/1";
/// How many changed paths `explain` names.
const PATHS: usize = 20;

/// One record as `log` and `show` give it.
#[derive(Serialize)]
struct Row<'a> {
    id: i64,
    key: &'a str,
    tree: &'a str,
    commit: Option<&'a str>,
    outcome: &'static str,
    exit: Option<i32>,
    signal: Option<i32>,
    at: &'a str,
    secs: f64,
    cmd: String,
}

fn command_of(record: &Record) -> String {
    key::argv_of(&record.preimage).map_or_else(|| "?".to_owned(), |argv| shell_words(&argv))
}

impl<'a> Row<'a> {
    fn new(record: &'a Record) -> Self {
        let evidence = &record.evidence;
        Self {
            id: record.id,
            key: &evidence.key,
            tree: &evidence.tree,
            commit: evidence.commit.as_deref(),
            outcome: evidence.outcome.name(),
            exit: evidence.exit,
            signal: evidence.signal,
            at: &evidence.at,
            secs: evidence.secs,
            cmd: command_of(record),
        }
    }

    /// A line without the tree and the seconds, so that some of the command is seen.
    fn narrow(&self) -> String {
        let key = self.key.get(3..11).unwrap_or(self.key);
        let at = self.at.get(..16).unwrap_or(self.at);
        format!("{:>4}  {at}  {key}  {:<10} {:>8.2}s  {}", self.id, self.outcome, self.secs, self.cmd)
    }
}

/// From how many columns on `log` has a line with everything.
const WIDE: u16 = 120;

/// Whether a text can be the id of a tree or its beginning.
fn is_id(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Lists results, newest first. A tree that no object of the repository has, such as one without its ledger, is known
/// by its id as well, or the beginning of it.
pub(super) fn log(revision: Option<&str>, session: &mut Session) -> Result<u8, Failure> {
    let mut unknown = None;
    let tree = match revision {
        None => None,
        Some(revision) => {
            let source = Source::Revision(revision.to_owned());
            match tree::resolve(&session.start, &source, &session.around.scratch()) {
                Ok(snapshot) => Some(snapshot.identity().tree.hex()),
                Err(error @ TreeError::UnknownRevision { .. }) if is_id(revision) => {
                    unknown = Some(error);
                    Some(revision.to_owned())
                }
                Err(error) => return Err(error.into()),
            }
        }
    };
    let listing = match Store::open_reader(&session.around.store)? {
        Some(reader) => reader.recent(LISTED, tree.as_deref())?,
        None => Listing::default(),
    };
    if let Some(error) = unknown.filter(|_| listing.records.is_empty()) {
        return Err(error.into());
    }
    warn(session, &listing);
    for record in &listing.records {
        let row = Row::new(record);
        if session.reporter.is_json() {
            session.reporter.object(&row);
        } else {
            if session.reporter.columns().is_some_and(|columns| columns < WIDE) {
                session.reporter.listed(&row.narrow());
                continue;
            }
            let key = row.key.get(3..15).unwrap_or(row.key);
            let tree = row.tree.get(..12).unwrap_or(row.tree);
            let line = format!(
                "{:>5}  {}  {key}  {tree}  {:<13} {:>8.2}s  {}",
                row.id, row.at, row.outcome, row.secs, row.cmd
            );
            session.reporter.listed(&line);
        }
    }
    Ok(0)
}

fn warn(session: &mut Session, listing: &Listing) {
    for damage in &listing.damage {
        session.reporter.event(Event::Warning(damage));
    }
}

/// Shows one record, or its whole output.
pub(super) fn show(asked: &str, log: bool, session: &mut Session) -> Result<u8, Failure> {
    let record = find(asked, session)?.1;
    if log {
        return whole_output(&record, session);
    }
    if session.reporter.is_json() {
        session.reporter.object(&Answer::new(&record.evidence, &circumstances(&record)));
    } else {
        let mut text = format!("id       {}\n", record.id);
        text.push_str(&evidence_text(&record.evidence, &circumstances(&record)));
        session.reporter.data(text.as_bytes());
    }
    Ok(0)
}

/// The record that a key, the beginning of one, or a number names.
pub(super) fn find(asked: &str, session: &mut Session) -> Result<(Reader, Record), Failure> {
    let none = || Failure::new(format!("no record `{asked}`"), Some("`checkrun log` lists keys and numbers"));
    let reader = Store::open_reader(&session.around.store)?.ok_or_else(none)?;
    let listing = match asked.parse::<i64>() {
        // A key's first digits may look like a number; a number that is on record comes first.
        Ok(id) if asked.len() < 10 => {
            let by_id = reader.by_id(id)?;
            if by_id.records.is_empty() && asked.len() >= 6 { reader.by_key(asked)? } else { by_id }
        }
        _ => reader.by_key(asked)?,
    };
    warn(session, &listing);
    let record = listing.records.into_iter().next().ok_or_else(none)?;
    Ok((reader, record))
}

/// What was asked when the record was made, as far as its pre-image can be read.
fn circumstances(record: &Record) -> Circumstances {
    let asked = key::asked(&record.preimage);
    Circumstances {
        cache: CacheUse::Miss,
        guard: Guard::parse(&asked.guard).unwrap_or(Guard::Exact),
        scope: asked.scope,
        touches: asked.touches,
        from: None,
        argv: asked.argv,
        tally: record.tally,
    }
}

fn whole_output(record: &Record, session: &mut Session) -> Result<u8, Failure> {
    let gone = || {
        Failure::new(
            format!("the whole output of record {} is gone", record.id),
            Some("it was removed to make room, or never kept; `checkrun show` without `--log` has its end"),
        )
    };
    let digest = Digest::parse(&record.evidence.output_digest).ok_or_else(gone)?;
    let reader = LogReader::open(&session.around.store.logs(), &digest)
        .map_err(|error| Failure::new(error.to_string(), None))?
        .ok_or_else(gone)?;
    reader
        .replay(&mut |_, bytes| {
            session.reporter.data(bytes);
            Ok(())
        })
        .map_err(|error| Failure::new(error.to_string(), None))?;
    Ok(0)
}

/// What `explain` found.
#[derive(Serialize)]
struct Explanation {
    schema: &'static str,
    key: String,
    tree: String,
    hit: bool,
    guard: &'static str,
    /// Why nothing answers.
    reason: Option<String>,
    /// The record that it was compared with.
    nearest: Option<i64>,
    /// What differs from that record: name, before, after.
    differences: Vec<(String, String, String)>,
    /// Changed paths: a letter (A, D, M) and the path; cut after some.
    paths: Vec<(char, String)>,
    /// Changed paths in all.
    paths_total: usize,
}

/// Says whether a check would be answered, and if not, what differs from the nearest record.
pub(super) fn explain(request: CheckRequest, session: &mut Session) -> Result<u8, Failure> {
    let wish = wish(request, &session.start)?;
    let prepared = pipeline::prepare(&wish, &session.around)?;
    let found = pipeline::on_record(&prepared, &session.around)?;
    let lookup = pipeline::judge(&found, Caching::Use, &prepared);
    let mut told = Explanation {
        schema: EXPLAIN_SCHEMA,
        key: prepared.keyed.key.to_string(),
        tree: prepared.action.tree.tree.hex(),
        hit: matches!(lookup, Lookup::Hit(_)),
        guard: prepared.action.guard.name(),
        reason: None,
        nearest: None,
        differences: Vec::new(),
        paths: Vec::new(),
        paths_total: 0,
    };
    if let Lookup::Miss(reason) = &lookup {
        let by_inputs = wish.inputs && *reason == MissReason::NeverRun;
        let reason = pipeline::with_history(reason.clone(), &prepared);
        told.reason = Some(reason.to_string());
        match if by_inputs { pipeline::inputs_differ(&prepared)? } else { None } {
            Some(Ok(id)) => {
                told.hit = true;
                told.guard = Guard::Inputs.name();
                told.nearest = Some(id);
            }
            Some(Err(difference)) => told.reason = Some(format!("{reason}; {difference}")),
            None => {}
        }
    }
    if told.hit {
        told.nearest = told.nearest.or(found.latest.as_ref().map(|stored| stored.id));
    } else if let Some(reader) = Store::open_reader(&session.around.store)? {
        compare(&mut told, &reader, &prepared, &session.start)?;
    }
    if session.reporter.is_json() {
        session.reporter.object(&told);
    } else {
        let text = in_words(&told);
        session.reporter.data(text.as_bytes());
    }
    Ok(0)
}

fn compare(
    told: &mut Explanation,
    reader: &Reader,
    prepared: &Prepared,
    start: &Path,
) -> Result<(), Failure> {
    let (weak, command) = (key::weak_key(&prepared.action), key::command_key(&prepared.action));
    let Some(nearest) = reader.nearest(&weak, &command)? else { return Ok(()) };
    told.nearest = Some(nearest.id);
    told.differences = key::differences(&nearest.preimage, &prepared.keyed.preimage)
        .into_iter()
        .map(|it| (it.name, it.before, it.after))
        .collect();
    if nearest.evidence.tree == told.tree {
        return Ok(());
    }
    // The other tree may be one that was never committed, of which nothing is left to compare with.
    let source = Source::Revision(nearest.evidence.tree.clone());
    let Ok(other) = tree::resolve(start, &source, Path::new("")) else { return Ok(()) };
    let changed = changed_paths(&other.entries()?, &prepared.snapshot.entries()?);
    told.paths_total = changed.len();
    told.paths = changed.into_iter().take(PATHS).collect();
    Ok(())
}

/// Files and links that differ, by path.
fn changed_paths(before: &[Entry], after: &[Entry]) -> Vec<(char, String)> {
    let leaves = |entries: &[Entry]| -> BTreeMap<Vec<u8>, Entry> {
        let leaf = |entry: &&Entry| entry.kind != tree::EntryKind::Folder;
        entries.iter().filter(leaf).map(|entry| (entry.path.clone(), entry.clone())).collect()
    };
    let (before, after) = (leaves(before), leaves(after));
    let name = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    let gone = before.keys().filter(|path| !after.contains_key(*path)).map(|path| ('D', name(path)));
    let here = after.iter().filter_map(|(path, entry)| match before.get(path) {
        None => Some(('A', name(path))),
        Some(old) if old != entry => Some(('M', name(path))),
        Some(_) => None,
    });
    let mut all: Vec<(char, String)> = gone.chain(here).collect();
    all.sort_by(|a, b| a.1.cmp(&b.1));
    all
}

fn in_words(told: &Explanation) -> String {
    let key = &told.key;
    if told.hit {
        let id = told.nearest.map_or_else(String::new, |id| format!(" (record {id})"));
        return format!("hit under guard {}{id}\nkey {key}\n", told.guard);
    }
    let reason = told.reason.as_deref().unwrap_or("nothing is on record");
    let mut text = format!("miss: {reason}\nkey {key}\n");
    match told.nearest {
        None => text.push_str("no earlier record of this command\n"),
        Some(id) if told.differences.is_empty() => text.push_str(&format!("same key as record {id}\n")),
        Some(id) => text.push_str(&format!("nearest is record {id}, from which it differs in:\n")),
    }
    for (name, before, after) in &told.differences {
        let shown = |value: &String| match value.parse() {
            Ok(secs) if name == "policy.clock_start" => show_instant(secs),
            _ => value.clone(),
        };
        text.push_str(&format!("  {name}: {} -> {}\n", shown(before), shown(after)));
    }
    for (letter, path) in &told.paths {
        text.push_str(&format!("    {letter} {path}\n"));
    }
    if told.paths_total > told.paths.len() {
        text.push_str(&format!("    … and {} more\n", told.paths_total - told.paths.len()));
    }
    text
}
