//! What a check depends on, as it was observed: of a record, or of a check that is run for the purpose.
#![forbid(unsafe_code)]

use crate::cli::CheckRequest;
use crate::commands::run::wish;
use crate::commands::{Failure, Session, records};
use crate::pipeline::{self, Caching, InputGroups};
use crate::store::Store;
use serde::Serialize;

/// The observed inputs, grouped.
#[derive(Serialize)]
struct Told<'a> {
    record: i64,
    /// Paths of the tree that hold all that was read, listed or looked for: to be given to `--scope`.
    scope: &'a [String],
    tree: &'a pipeline::TreeInputs,
    host: &'a pipeline::HostInputs,
}

/// Tells what a record depended on.
pub(super) fn show(asked: &str, session: &mut Session) -> Result<u8, Failure> {
    let (reader, record) = records::find(asked, session)?;
    match reader.inputs_of(record.id).as_deref().and_then(InputGroups::read) {
        Some(groups) => tell(record.id, &groups, session),
        None => Err(Failure::new(
            format!("what record {} depended on is not known", record.id),
            Some("it was not observed in full, or made room for newer ones; then the whole tree counts"),
        )),
    }
}

/// Runs or answers a check and tells what it depends on.
pub(super) fn inputs(request: CheckRequest, session: &mut Session) -> Result<u8, Failure> {
    let mut wish = wish(request, &session.start)?;
    wish.inputs = true;
    let mut silent = Silent;
    let (prepared, answered) = pipeline::check(&wish, Caching::Use, &session.around, None, &mut silent)?;
    let unknown = || {
        Failure::new(
            format!(
                "what the check depends on is not known in full (it ended as `{}`)",
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
    tell(id, &groups, session)
}

/// Takes events and says nothing: the check's output is not what is asked for.
struct Silent;

impl crate::model::event::Sink for Silent {
    fn event(&mut self, _: crate::model::event::Event<'_>) {}
}

fn tell(record: i64, groups: &InputGroups, session: &mut Session) -> Result<u8, Failure> {
    if session.reporter.is_json() {
        session.reporter.object(&Told {
            record,
            scope: &groups.scope,
            tree: &groups.tree,
            host: &groups.host,
        });
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
