//! What a check depends on, as it was observed: of a record, or of a check that is run for the purpose.
#![forbid(unsafe_code)]

use crate::cli::CheckRequest;
use crate::commands::run::{answer, wish};
use crate::commands::session::output_place;
use crate::commands::{Failure, Session, records};
use crate::model::event::{Event, Sink};
use crate::model::evidence::Evidence;
use crate::pipeline::{self, Caching, InputGroups};
use crate::report::write_atomically;
use crate::store::Store;
use serde::Serialize;
use std::path::PathBuf;

/// The observed inputs, grouped.
#[derive(Serialize)]
struct Told<'a> {
    record: i64,
    /// Paths of the tree that hold all that was read, listed or looked for: to be given to `--scope`.
    scope: &'a [String],
    tree: &'a pipeline::TreeInputs,
    host: &'a pipeline::HostInputs,
}

impl<'a> Told<'a> {
    fn of(record: i64, groups: &'a InputGroups) -> Self {
        Self { record, scope: &groups.scope, tree: &groups.tree, host: &groups.host }
    }
}

/// Tells what a record depended on.
pub(super) fn show(asked: &str, session: &mut Session) -> Result<u8, Failure> {
    let (reader, record) = records::find(asked, session)?;
    match reader.inputs_of(record.id).as_deref().and_then(InputGroups::read) {
        Some(groups) => tell(record.id, &groups, session),
        None => Err(Failure::new(
            format!("what record {} depended on is not known{}", record.id, because(&record.evidence)),
            Some("it was not observed in full, or made room for newer ones; then the whole tree counts"),
        )),
    }
}

/// The reason that was recorded, if one was.
fn because(evidence: &Evidence) -> String {
    evidence.unobserved.as_ref().map_or_else(String::new, |why| format!(": {why}"))
}

/// Runs or answers a check and tells what it depends on; with a file to write that to, the check's own output and exit
/// status are as ever.
pub(super) fn inputs(
    request: CheckRequest,
    trace: Option<PathBuf>,
    session: &mut Session,
) -> Result<u8, Failure> {
    let mut wish = wish(request, &session.start)?;
    wish.inputs = true;
    let trace = output_place(&session.start, trace)?;
    let mut silent = Silent;
    let sink: &mut dyn Sink = if trace.is_some() { &mut session.reporter } else { &mut silent };
    let (prepared, answered) = pipeline::check(&wish, Caching::Use, &session.around, None, sink)?;
    if trace.is_some() {
        session.reporter.answer(&answer(&prepared, &answered));
    }
    let unknown = || {
        Failure::new(
            format!(
                "what the check depends on is not known in full{} (it ended as `{}`)",
                because(&answered.evidence),
                answered.evidence.outcome.name()
            ),
            Some(
                "a program that makes namespaces of its own, or more than 100,000 paths, ends the observation",
            ),
        )
    };
    // What has just been recorded is newer than what was open before.
    let reader = Store::open_reader(&session.around.store)?.ok_or_else(unknown)?;
    let (id, groups) = pipeline::inputs_that_hold(&prepared, &reader)?.ok_or_else(unknown)?;
    let Some(path) = trace else { return tell(id, &groups, session) };
    let mut text = serde_json::to_vec_pretty(&Told::of(id, &groups))
        .map_err(|error| Failure::new(format!("cannot write what was observed as JSON: {error}"), None))?;
    text.push(b'\n');
    write_atomically(&path, &text)?;
    let evidence = &answered.evidence;
    Ok(pipeline::exit_status(evidence.outcome, evidence.exit, evidence.signal, evidence.reason.as_deref()))
}

/// Takes events and says nothing: the check's output is not what is asked for.
struct Silent;

impl Sink for Silent {
    fn event(&mut self, _: Event<'_>) {}
}

fn tell(record: i64, groups: &InputGroups, session: &mut Session) -> Result<u8, Failure> {
    if session.reporter.is_json() {
        session.reporter.object(&Told::of(record, groups));
        return Ok(0);
    }
    let mut text = String::new();
    for (title, paths) in [
        ("tree: read", &groups.tree.read),
        ("tree: listed", &groups.tree.listed),
        ("tree: there", &groups.tree.there),
        ("tree: looked for, not there", &groups.tree.absent),
        ("host: used", &groups.host.used),
        ("host: looked for, not there", &groups.host.absent),
    ] {
        if !paths.is_empty() {
            text.push_str(&format!("{title} ({})\n", paths.len()));
            for path in paths {
                text.push_str(&format!("  {path}\n"));
            }
        }
    }
    session.reporter.data(text.as_bytes());
    Ok(0)
}
