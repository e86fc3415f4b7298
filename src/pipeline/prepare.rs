//! From what is asked to what is keyed: tree, policy, runner and machine are looked up and put together into an
//! action. Nothing is run and nothing is stored here.
#![forbid(unsafe_code)]

use crate::key::{self, Keyed};
use crate::model::check::{Action, Command, DepsChoice, Filled, Guard};
use crate::model::evidence::Stored;
use crate::model::hosts::HostRule;
use crate::model::layer::Layer;
use crate::model::policy::{ClockWish, Overrides};
use crate::model::runner::Runner;
use crate::pipeline::digests::KnownDigests;
use crate::pipeline::packages::{self, Packages};
use crate::pipeline::{Bearings, PipelineError, Surroundings};
use crate::sandbox::probe::Abilities;
use crate::tree::{self, Snapshot, Source};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// One check as asked for.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The folder that it is asked in.
    pub start: PathBuf,
    /// Which tree.
    pub source: Source,
    /// Folder of the tree to start in, as given.
    pub cwd: Option<PathBuf>,
    /// What is put into the tree besides its own content.
    pub filled: Filled,
    /// Where installed packages come from.
    pub deps: DepsChoice,
    /// Pathspecs that cut the tree.
    pub scope: Vec<String>,
    /// Pathspecs that the caller vouches for, under guard `touches`.
    pub touches: Vec<String>,
    /// What must be unchanged.
    pub guard: Guard,
    /// Whether a run on another tree may answer whose observed inputs are all as they were.
    pub inputs: bool,
    /// Name or file of the policy.
    pub policy: String,
    /// Name of the runner, if one is asked for.
    pub runner: Option<String>,
    /// Variables passed in.
    pub env: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Hosts that it may reach besides those that the policy names.
    pub hosts: Vec<HostRule>,
    /// Limits given.
    pub overrides: Overrides,
    /// The clock asked for.
    pub clock: ClockWish,
    /// Tests that a pass needs.
    pub require_tests: Option<u64>,
    /// Program and arguments.
    pub argv: Vec<Vec<u8>>,
}

/// The policy where none is asked for.
pub const DEFAULT_POLICY: &str = "hermetic";

impl Wish {
    /// A check of a program and its arguments on a tree, as seen from the folder `start`, with everything else as it is by
    /// default; every field may be changed afterwards.
    #[must_use]
    pub fn new(start: PathBuf, source: Source, argv: Vec<Vec<u8>>) -> Self {
        Self {
            start,
            source,
            argv,
            cwd: None,
            filled: Filled::default(),
            deps: DepsChoice::default(),
            scope: Vec::new(),
            touches: Vec::new(),
            guard: Guard::Exact,
            inputs: true,
            policy: DEFAULT_POLICY.to_owned(),
            runner: None,
            env: BTreeMap::new(),
            hosts: Vec::new(),
            overrides: Overrides::default(),
            clock: ClockWish::default(),
            require_tests: None,
        }
    }
}

/// A check that is ready to be looked up or run.
#[derive(Debug)]
pub struct Prepared {
    /// The tree, readable.
    pub snapshot: Snapshot,
    /// All that the result depends on.
    pub action: Action,
    /// Its key.
    pub keyed: Keyed,
    /// What the machine offers.
    pub(crate) abilities: Abilities,
    /// What was not prepared, for when the check fails.
    pub(crate) unprepared: Option<String>,
    /// The runner as its file has it, for what it says of failures.
    pub(crate) rule: Runner,
    /// Digests of host files that were computed on the way and are worth remembering.
    pub(crate) digests: KnownDigests,
}

/// A record of another tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// Its number.
    pub record: i64,
    /// Full id of its tree.
    pub tree: String,
}

impl Prepared {
    /// Whether a virtual environment of prepared or found packages comes first on the check's PATH.
    pub(crate) fn has_environment(&self) -> bool {
        self.action.runner.env.contains_key("VIRTUAL_ENV")
    }

    /// Lets go of the records: a connection to a database must not be carried over a fork (sqlite.org/howtocorrupt.html).
    pub fn close_store(&mut self) {
        self.digests.reader = None;
    }

    /// Says so where a run was on another tree than is asked about: under guard `touches` the rest of it may differ.
    pub(crate) fn elsewhere(&self, stored: &Stored) -> Option<Origin> {
        let tree = stored.evidence.tree.clone();
        (tree != self.action.tree.tree.hex()).then_some(Origin { record: stored.id, tree })
    }
}

/// Looks everything up.
///
/// # Errors
/// Whatever is wrong with what was asked: revision, policy, runner, folder, limits that cannot be kept.
pub fn prepare(wish: &Wish, around: &Surroundings) -> Result<Prepared, PipelineError> {
    let snapshot = match tree::resolve(&wish.start, &wish.source, &around.scratch()) {
        // What is too much for memory has no room in the cache.
        Err(error) if error.is_of_the_disk() => tree::resolve(&wish.start, &wish.source, &around.temporary)?,
        other => other?,
    };
    prepare_on(wish, snapshot, &mut Bearings::new(around))
}

/// Looks everything up for a tree that is resolved already, whatever the wish names as its source.
///
/// # Errors
/// As [`prepare`].
pub fn prepare_on(
    wish: &Wish,
    snapshot: Snapshot,
    known: &mut Bearings<'_>,
) -> Result<Prepared, PipelineError> {
    // The repository's own settings count also where they are out of scope.
    let policy = known.policy(wish, &snapshot)?;
    let snapshot = snapshot.cut(&wish.scope)?;
    let touched = if wish.guard == Guard::Touches { Some(snapshot.part(&wish.touches)?) } else { None };
    // Pathspecs choose among what the tree itself has, as git's do, and what is out of scope need not be here.
    let snapshot = snapshot.fill(wish.filled, &known.around.scratch())?;
    let cwd = folder(wish, &snapshot)?;
    let (abilities, layers) = known.machine(&policy)?;
    let (around, options) = (known.around, packages::options(known.around, &abilities));
    let rule = known.rule(wish)?;
    let place = (&snapshot, cwd.as_slice());
    let mut packages = match wish.deps {
        DepsChoice::Found => packages::found(&rule, wish, place, (around, &options))?,
        DepsChoice::None => Packages::default(),
        DepsChoice::Prepared => {
            let digests = &mut known.files();
            packages::prepared(&rule, place, &policy, (around, &options), digests)?
        }
    };
    let (mut runner, digests) =
        known.toolchain(wish, &policy, &packages.also, packages::rust(&rule, &snapshot, &cwd)?)?;
    packages.put_into(&mut runner);
    let words: BTreeMap<Layer, &'static str> =
        layers.iter().map(|(layer, state)| (*layer, state.word())).collect();
    let action = Action {
        tree: snapshot.identity().clone(),
        guard: wish.guard,
        filled: wish.filled,
        scope: wish.scope.clone(),
        touches: wish.touches.clone(),
        touched,
        command: Command {
            argv: wish.argv.clone(),
            cwd,
            env: wish.env.clone(),
            require_tests: wish.require_tests,
        },
        level: policy.level,
        deps: std::mem::take(&mut packages.layers),
        policy,
        runner,
        layers: words,
    };
    let keyed = key::key_of(&action);
    Ok(Prepared { snapshot, action, keyed, abilities, unprepared: packages.missing, rule, digests })
}

/// `--cwd` as a path in the tree: no root, no way out, and there.
pub(super) fn folder(wish: &Wish, snapshot: &Snapshot) -> Result<Vec<u8>, PipelineError> {
    let Some(given) = &wish.cwd else { return Ok(Vec::new()) };
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in given.components() {
        match part {
            Component::Normal(name) => parts.push(name.as_bytes()),
            Component::CurDir => {}
            Component::ParentDir if !parts.is_empty() => drop(parts.pop()),
            _ => return Err(PipelineError::CwdOutside { cwd: given.clone() }),
        }
    }
    let path = parts.join(&b'/');
    if snapshot.folder_exists(&path) {
        Ok(path)
    } else {
        Err(PipelineError::CwdMissing { cwd: given.clone(), tree: snapshot.identity().tree.short() })
    }
}

/// A path of the tree as records print it.
pub(crate) fn shown_folder(cwd: &[u8]) -> String {
    if cwd.is_empty() {
        ".".to_owned()
    } else {
        Path::new(std::ffi::OsStr::from_bytes(cwd)).display().to_string()
    }
}
