//! The flow, on one screen: resolve, key, look up, and on a miss lay out, run, judge, record. Every front door goes
//! through here; there is no second way to run a check.
#![forbid(unsafe_code)]

mod abilities;
mod advice;
mod bearings;
mod comparing;
mod contents;
mod digests;
mod fetch;
mod glances;
mod ground;
mod groups;
mod hosts;
mod inputs;
mod kept_set;
mod lacking;
mod lead;
mod leftovers;
mod links;
mod packages;
mod prepare;
mod recording;
mod repeat;
mod runs;
mod standing;
mod step_inputs;
mod verdict;

pub use bearings::Bearings;
pub use fetch::{Fetched, FetchedHow, fetch};
pub use groups::{HostInputs, InputGroups, TreeInputs};
pub use leftovers::sweep_leftovers;
pub use prepare::{DEFAULT_POLICY, Origin, Prepared, Wish, prepare, prepare_on};
pub(crate) use repeat::watch_signals;
pub use repeat::{Director, Execution, repeat};
pub use standing::{inputs_differ, inputs_that_hold};
pub use verdict::exit_status;

use crate::cache::{self, Lookup, MissReason};
use crate::catalogue::CatalogueError;
use crate::flight::FlightError;
use crate::model::event::{Event, Sink};
use crate::model::evidence::{CacheUse, Evidence, Found, Tally};
use crate::pipeline::ground::Ground;
use crate::pipeline::lead::{Lead, wait_for_lead};
use crate::pipeline::recording::replay;
use crate::pipeline::runs::Means;
use crate::pipeline::standing::{Standing, standing};
use crate::sandbox::SandboxError;
use crate::sandbox::probe::Abilities;
use crate::stage::StageError;
use crate::store::{Reader, Store, StoreError, StorePaths};
use crate::toolchain::{Lookup as ToolchainLookup, ToolchainError};
use crate::tree::TreeError;
use std::io;
use std::path::PathBuf;

/// What the flow needs to know of where it is; read from the environment by whoever calls it.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Where records are.
    pub store: StorePaths,
    /// The user's configuration folder, if there is one.
    pub config: Option<PathBuf>,
    /// Where toolchains are looked for.
    pub lookup: ToolchainLookup,
    /// The folder of temporary files, for runs that cannot or must not use the cache.
    pub temporary: PathBuf,
}

impl Surroundings {
    /// Where contents of a dirty working tree go that are too many for memory.
    #[must_use]
    pub fn scratch(&self) -> PathBuf {
        self.store.cache.join("scratch")
    }

    /// What this machine offers, tried anew.
    ///
    /// # Errors
    /// Where nothing can be tried at all.
    pub fn probe(&self) -> Result<Abilities, SandboxError> {
        abilities::Machine::new(&self.store).probe_again()
    }
}

/// What part the cache has in one check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caching {
    /// Look, run on a miss, store.
    Use,
    /// Run and store.
    Refresh,
    /// Run only.
    Off,
    /// Look only.
    Only,
}

/// An answer: the evidence, and how it came about.
#[derive(Clone, Debug)]
pub struct Answered {
    /// What a run showed.
    pub evidence: Evidence,
    /// Whether that run was now.
    pub cache: CacheUse,
    /// How often the key was seen to pass and to fail.
    pub tally: Tally,
    /// Which record of another tree answered, under guard `inputs` or `touches`.
    pub from: Option<Origin>,
}

/// Why no answer can be given.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant is the error of the room it is named for, whose text it shows")]
pub enum PipelineError {
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    #[error(transparent)]
    Toolchain(#[from] ToolchainError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Stage(#[from] StageError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Flight(#[from] FlightError),
    /// A path that the policy shows without `optional` is not there.
    #[error("policy `{policy}` shows {path}, which this machine lacks")]
    NotVisible { policy: String, path: PathBuf },
    /// `--cwd` names no folder of the tree.
    #[error("tree {tree} has no folder `{cwd}`", cwd = cwd.display())]
    CwdMissing { cwd: PathBuf, tree: String },
    /// `--cwd` leads out of the tree.
    #[error("`--cwd {cwd}` leads out of the tree; it is a path below the tree's root", cwd = cwd.display())]
    CwdOutside { cwd: PathBuf },
    /// `--deps found`, and the working tree has none of the folders.
    #[error("`--deps found`: {}", nothing_found(runner, names, top))]
    NothingFound { runner: String, names: String, top: PathBuf },
    /// Packages were installed while they were looked at.
    #[error("{path} changed while it was read")]
    FoundChanged { path: PathBuf },
    /// No runner has a step for the tree.
    #[error("nothing to prepare: the tree has none of {}", if looked_for.is_empty() { "what a step is for; this runner has none".to_owned() } else { looked_for.join(", ") })]
    NothingToPrepare { looked_for: Vec<String> },
    /// A step can only be run where there are namespaces.
    #[error("`prepare` needs the level `full`; the policy is for the level `landlock`")]
    PrepareLevel,
    /// A layer of packages was removed between look-up and run.
    #[error("the packages at {path} were removed a moment ago")]
    PackagesGone { path: PathBuf },
    /// A layer of packages is not as it was made.
    #[error("the packages at {path} were altered since they were put there, and are taken away")]
    PackagesAltered { path: PathBuf },
    /// The clock is to start at a commit's date, and there is none.
    #[error("the clock cannot start at the commit's date: {why}")]
    NoCommitDate { why: &'static str },
    /// `--cached-only`, and nothing answers.
    #[error("no earlier result answers: {0}")]
    NotCached(MissReason),
    /// A folder of checkrun's own cannot be used.
    #[error("cannot {what} {path}: {source}", path = path.display())]
    Folder { what: &'static str, path: PathBuf, source: io::Error },
    /// A signal came before the check was started.
    #[error("interrupted by signal {0} before the check was started")]
    Interrupted(i32),
    /// The whole output was asked for and cannot be written.
    #[error("cannot write the output to {path}: {source}", path = path.display())]
    Output { path: PathBuf, source: io::Error },
    /// One of several processes that run a check says so.
    #[error("{text}")]
    Worker { text: String, hint: Option<String> },
}

impl PipelineError {
    /// What can be done about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Tree(error) => error.hint(),
            Self::Catalogue(error) => error.hint(),
            Self::Toolchain(error) => error.hint(),
            Self::Sandbox(error) => error.hint(),
            Self::Stage(error) => error.hint(),
            Self::Store(error) => error.hint(),
            Self::Flight(error) => error.hint(),
            Self::NotVisible { .. } => Some("mark it `optional = true` in the policy, install what it holds, or make it as an empty folder".to_owned()),
            Self::CwdMissing { .. } | Self::CwdOutside { .. } => {
                Some("`git ls-tree -d --name-only -r REV` lists the folders of a tree".to_owned())
            }
            Self::NoCommitDate { .. } => Some(
                "commit the changes, name a commit with `--tree`, or give `--clock` an instant such as `2026-01-01T00:00:00Z`"
                    .to_owned(),
            ),
            Self::NothingFound { .. } => Some("install the packages as usual, or let `checkrun prepare` fetch them; `checkrun runners NAME` shows what a runner looks for".to_owned()),
            Self::FoundChanged { .. } | Self::PackagesGone { .. } => Some("run it again".to_owned()),
            Self::PackagesAltered { .. } => Some("`checkrun prepare` fetches them again; with `--deps found` they are copied again".to_owned()),
            Self::NothingToPrepare { .. } => Some("`--cwd DIR` prepares a folder of the tree; docs/runners.md says how to write a step".to_owned()),
            Self::PrepareLevel => Some("leave `--policy` out, or name one of the level `full`".to_owned()),
            Self::NotCached(_) => Some("`checkrun explain` says what differs; without `--cached-only` it is run".to_owned()),
            Self::Folder { .. } => Some("set CHECKRUN_CACHE_DIR to a folder that this user can write to".to_owned()),
            Self::Worker { hint, .. } => hint.clone(),
            Self::Interrupted(_) | Self::Output { .. } => None,
        }
    }
}

fn nothing_found(runner: &str, names: &str, top: &std::path::Path) -> String {
    if names.is_empty() {
        return format!("the runner `{runner}` names no folders of installed packages");
    }
    format!("{} has none of the folders that the runner `{runner}` looks for: {names}", top.display())
}

/// One check, from the question to the answer.
///
/// # Errors
/// Whatever keeps it from being decided; a check that fails is an answer.
pub fn check(
    wish: &Wish,
    caching: Caching,
    around: &Surroundings,
    log: Option<PathBuf>,
    sink: &mut dyn Sink,
) -> Result<(Prepared, Answered), PipelineError> {
    let prepared = prepare(wish, around)?;
    let answered = answer(&prepared, wish.inputs, caching, around, log, sink)?;
    Ok((prepared, answered))
}

/// The answer to a prepared check: an earlier result where one may answer, else that of a run.
///
/// # Errors
/// As [`check`].
pub fn answer(
    prepared: &Prepared,
    inputs: bool,
    caching: Caching,
    around: &Surroundings,
    log: Option<PathBuf>,
    sink: &mut dyn Sink,
) -> Result<Answered, PipelineError> {
    sink.event(Event::Resolved {
        tree: &prepared.action.tree.tree.hex(),
        key: &prepared.keyed.key.to_string(),
    });
    let found = match caching {
        Caching::Off => Found::default(),
        _ => match &prepared.digests.reader {
            Some(reader) => found_by(reader, prepared, &Found::default(), sink),
            // There is no store yet, or something is wrong with it, which is told now.
            None => look_up(prepared, around, &Found::default(), sink)?,
        },
    };
    match judge(&found, caching, prepared) {
        Lookup::Hit(evidence) => {
            replay(&evidence, around, log, sink)?;
            let from = found.latest.as_ref().and_then(|stored| prepared.elsewhere(stored));
            return Ok(Answered { evidence: *evidence, cache: CacheUse::Hit, tally: found.tally, from });
        }
        Lookup::Miss(MissReason::NeverRun) if inputs => {
            if let Some(answered) = by_inputs(prepared, around, sink)? {
                replay(&answered.evidence, around, log, sink)?;
                return Ok(answered);
            }
            if caching == Caching::Only {
                return Err(PipelineError::NotCached(with_history(MissReason::NeverRun, prepared)));
            }
        }
        Lookup::Miss(reason) if caching == Caching::Only => {
            return Err(PipelineError::NotCached(with_history(reason, prepared)));
        }
        Lookup::Miss(_) => {}
    }
    let interrupts = watch_signals(around)?;
    let ground = Ground::usual(around, caching)?;
    let means = Means { caching, around, ground: &ground, interrupts: &interrupts, again: false };
    let answered = match join_or_run(prepared, &found, means, log.clone(), sink) {
        Err(error) if Ground::is_to_blame(&error, caching) => {
            // Said once: the look-up may have met the same.
            if caching != Caching::Off && !found.damage.contains(&error.to_string()) {
                sink.event(Event::Warning(&format!("the result is not recorded: {error}")));
            }
            let ground = Ground::spare(around)?;
            runs::run(prepared, Means { ground: &ground, ..means }, log, sink)?
        }
        other => other?,
    };
    Ok(answered)
}

/// Runs a check that nothing answers, or takes the result of whoever runs the same one at this time.
fn join_or_run(
    prepared: &Prepared,
    found: &Found,
    means: Means<'_>,
    log: Option<PathBuf>,
    sink: &mut dyn Sink,
) -> Result<Answered, PipelineError> {
    let lead = match means.caching {
        Caching::Off | Caching::Only => None,
        Caching::Use | Caching::Refresh => match wait_for_lead(prepared, found, means, sink)? {
            Lead::Ours(leader) => Some(leader),
            Lead::Joined(stored, tally) => {
                replay(&stored.evidence, means.around, log, sink)?;
                let from = prepared.elsewhere(&stored);
                return Ok(Answered { evidence: stored.evidence, cache: CacheUse::Joined, tally, from });
            }
        },
    };
    let ran = runs::run(prepared, means, log, sink)?;
    drop(lead);
    Ok(ran)
}

/// What is on record, and what was broken on the way, save what an earlier look-up told already.
fn look_up(
    prepared: &Prepared,
    around: &Surroundings,
    told: &Found,
    sink: &mut dyn Sink,
) -> Result<Found, PipelineError> {
    let reader = Store::open_reader(&around.store)?;
    Ok(reader.map_or_else(Found::default, |reader| found_by(&reader, prepared, told, sink)))
}

fn found_by(reader: &Reader, prepared: &Prepared, told: &Found, sink: &mut dyn Sink) -> Found {
    let found = reader.lookup(prepared.keyed.key, &prepared.keyed.preimage);
    for damage in found.damage.iter().filter(|damage| !told.damage.contains(damage)) {
        sink.event(Event::Warning(damage));
    }
    found
}

/// Whether what is on record answers.
#[must_use]
pub fn judge(found: &Found, caching: Caching, prepared: &Prepared) -> Lookup {
    let request = cache::Request {
        no_cache: caching == Caching::Off,
        refresh: caching == Caching::Refresh,
        policy: &prepared.action.policy,
        level: prepared.action.level,
        layers: &prepared.action.layers,
    };
    cache::judge(found, request)
}

/// Why nothing answers, told from all that is on record: a look-up goes past runs that ended without a verdict.
#[must_use]
pub fn with_history(reason: MissReason, prepared: &Prepared) -> MissReason {
    let (MissReason::NeverRun, Some(reader)) = (&reason, &prepared.digests.reader) else { return reason };
    let newest = reader
        .by_key(&prepared.keyed.key.to_string())
        .ok()
        .and_then(|found| found.records.into_iter().next());
    match newest.map(|record| record.evidence.outcome) {
        Some(outcome) if !outcome.is_answer() => MissReason::NoAnswer(outcome),
        _ => reason,
    }
}

/// An earlier run of the same command whose observed inputs are all as they were.
fn by_inputs(
    prepared: &Prepared,
    around: &Surroundings,
    sink: &mut dyn Sink,
) -> Result<Option<Answered>, PipelineError> {
    let Some(reader) = &prepared.digests.reader else { return Ok(None) };
    let (found, damage) = standing(prepared, reader)?;
    for damage in &damage {
        sink.event(Event::Warning(damage));
    }
    let Standing::Answers(record, renewal) = found else { return Ok(None) };
    if let Some(renewal) = renewal {
        // A cache that cannot be written to answers all the same, only later each time.
        renewal.keep(prepared, &around.store).unwrap_or_default();
    }
    let from = Origin { record: record.id, tree: record.evidence.tree.clone() };
    Ok(Some(Answered {
        evidence: record.evidence,
        cache: CacheUse::Hit,
        tally: record.tally,
        from: Some(from),
    }))
}

/// What is on record under the key of a prepared check, for `explain`.
///
/// # Errors
/// The store cannot be used.
pub fn on_record(prepared: &Prepared, around: &Surroundings) -> Result<Found, PipelineError> {
    let reader = Store::open_reader(&around.store)?;
    Ok(reader.map(|reader| reader.lookup(prepared.keyed.key, &prepared.keyed.preimage)).unwrap_or_default())
}
