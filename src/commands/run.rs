//! Door 1: one check.
#![forbid(unsafe_code)]

use crate::cli::{CacheMode, CheckRequest, RunRequest, TreeChoice};
use crate::commands::session::{callers_value, from, output_place};
use crate::commands::{Failure, Session};
use crate::model::check::Guard;
use crate::model::evidence::CacheUse;
use crate::pipeline::{self, Answered, Caching, DEFAULT_POLICY, Prepared, Wish};
use crate::report::{self, Answer, Circumstances, write_atomically};
use crate::tree::Source;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Runs or answers one check and tells of it.
pub(super) fn run(request: RunRequest, session: &mut Session) -> Result<u8, Failure> {
    let caching = match request.cache {
        CacheMode::Use => Caching::Use,
        CacheMode::Refresh => Caching::Refresh,
        CacheMode::Off => Caching::Off,
        CacheMode::Only => Caching::Only,
    };
    let wish = wish(request.check, &session.start)?;
    let result = output_place(&session.start, request.output.result)?;
    let junit = output_place(&session.start, request.output.junit)?;
    let log = request.output.log.map(|path| from(&session.start, path));
    let (prepared, answered) = pipeline::check(&wish, caching, &session.around, log, &mut session.reporter)?;
    let answer = answer(&prepared, &answered);
    session.reporter.answer(&answer);
    if let Some(path) = result {
        write_atomically(&path, answer.to_json().as_bytes())?;
    }
    if let Some(path) = junit {
        write_atomically(&path, report::junit(&answer).as_bytes())?;
    }
    if let Some(path) = &session.step_summary {
        report::append(path, &report::summary(&answer))?;
    }
    let evidence = &answered.evidence;
    let status =
        pipeline::exit_status(evidence.outcome, evidence.exit, evidence.signal, evidence.reason.as_deref());
    // The process ends here: taking a repository and a tree apart piece by piece would only make every hit wait.
    std::mem::forget((prepared, answered));
    Ok(status)
}

/// The result object of an answer.
pub(super) fn answer(prepared: &Prepared, answered: &Answered) -> Answer {
    let action = &prepared.action;
    let mut evidence = answered.evidence.clone();
    if answered.cache == CacheUse::Hit || answered.cache == CacheUse::Joined {
        // The tree, or what of it counts, is the same; where it was taken from this time is the caller's own question.
        evidence.tree = action.tree.tree.hex();
        evidence.key = prepared.keyed.key.to_string();
        evidence.commit = action.tree.commit.as_ref().map(|commit| commit.hex());
        evidence.dirty = action.tree.dirty;
        evidence.policy.0.clone_from(&action.policy.name);
    }
    Answer::new(
        &evidence,
        &Circumstances {
            cache: answered.cache,
            guard: match (&answered.from, action.guard) {
                (Some(_), Guard::Exact) => Guard::Inputs,
                (_, guard) => guard,
            },
            from: answered.from.as_ref().map(|from| (from.record, from.tree.clone())),
            scope: action.scope.clone(),
            touches: action.touches.clone(),
            argv: action.command.argv.clone(),
            tally: answered.tally,
        },
    )
}

/// What was asked, in the flow's own terms.
pub(super) fn wish(request: CheckRequest, start: &Path) -> Result<Wish, Failure> {
    let mut env = BTreeMap::new();
    for passed in request.env {
        // A variable that the caller does not have is absent inside too, which is not the same as empty.
        let value = passed
            .value
            .or_else(|| callers_value(OsStr::from_bytes(&passed.name)).map(OsStringExt::into_vec));
        if let Some(value) = value {
            env.insert(passed.name, value);
        }
    }
    let source = match request.tree {
        TreeChoice::Working => Source::WorkingTree,
        TreeChoice::Staged => Source::Index,
        TreeChoice::Revision(revision) => Source::Revision(revision),
        TreeChoice::Folder(path, ignored) => Source::Folder { path, ignored },
    };
    let policy = match request.policy {
        None => DEFAULT_POLICY.to_owned(),
        // A file is looked for from where the call is about.
        Some(name) if name.contains('/') => {
            let path = start.join(&name);
            path.to_str()
                .map(str::to_owned)
                .ok_or_else(|| Failure::new(format!("the path of policy `{name}` is not UTF-8"), None))?
        }
        Some(name) => name,
    };
    Ok(Wish {
        cwd: request.cwd,
        filled: request.filled,
        deps: request.deps,
        scope: request.scope,
        touches: request.touches,
        guard: request.guard,
        inputs: request.inputs,
        policy,
        runner: request.runner,
        env,
        overrides: request.overrides,
        clock: request.clock,
        require_tests: request.require_tests,
        ..Wish::new(start.to_owned(), source, request.argv)
    })
}
