//! What many checks of one call have in common, looked up once: policies, runners, the toolchain behind a word, and
//! what the machine offers. What a check is and whether an earlier result answers it is not decided here.
#![forbid(unsafe_code)]

use crate::catalogue::{self, RepositorySettings, SETTINGS_FILE};
use crate::model::digest::{Digest, ObjectId};
use crate::model::evidence::CacheUse;
use crate::model::layer::{Layer, LayerState};
use crate::model::policy::{Clock, Policy};
use crate::model::runner::{ResolvedRunner, Runner};
use crate::model::units::INSTANT_MAX;
use crate::pipeline::abilities::Machine;
use crate::pipeline::digests::KnownDigests;
use crate::pipeline::{PipelineError, Prepared, Surroundings, Wish};
use crate::sandbox::SandboxError;
use crate::sandbox::plan::planned_layers;
use crate::sandbox::probe::Abilities;
use crate::store::{FileStamp, Reader};
use crate::toolchain::{self, Lookup};
use crate::tree::Snapshot;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The state of each layer.
type Layers = BTreeMap<Layer, LayerState>;

/// The largest `.checkrun.toml` that is read, in bytes.
const SETTINGS_MAX: u64 = 1 << 20;

/// Remembers what was looked up, for one call of the program. Files of the machine that change meanwhile are seen by
/// the next call.
#[derive(Debug)]
pub struct Bearings<'a> {
    pub(super) around: &'a Surroundings,
    runners: Vec<KnownRunner>,
    abilities: Option<Abilities>,
    reader: Option<Reader>,
    policies: Vec<KnownPolicy>,
    tools: Vec<KnownTool>,
}

/// A policy as it is on a tree, before the limits of the command line.
#[derive(Debug)]
struct KnownPolicy {
    name: String,
    tree: ObjectId,
    policy: Policy,
}

/// The runner that serves a word, or the one that was asked for instead.
#[derive(Debug)]
struct KnownRunner {
    word: Vec<u8>,
    asked: Option<String>,
    runner: Runner,
}

/// The toolchain that a runner finds for a word under a policy.
#[derive(Debug)]
struct KnownTool {
    runner: String,
    word: Vec<u8>,
    policy: Policy,
    also: Vec<PathBuf>,
    rust: Option<String>,
    resolved: ResolvedRunner,
    new: Vec<(FileStamp, Digest)>,
}

impl<'a> Bearings<'a> {
    /// Nothing is looked up yet.
    #[must_use]
    pub fn new(around: &'a Surroundings) -> Self {
        Self {
            around,
            runners: Vec::new(),
            abilities: None,
            reader: None,
            policies: Vec::new(),
            tools: Vec::new(),
        }
    }

    /// The policy asked for, tightened by the repository, then with the limits of the command line.
    pub(super) fn policy(&mut self, wish: &Wish, snapshot: &Snapshot) -> Result<Policy, PipelineError> {
        let tree = &snapshot.identity().tree;
        let known = self.policies.iter().find(|known| known.name == wish.policy && known.tree == *tree);
        if let Some(known) = known {
            return with_wishes(&known.policy, wish, snapshot);
        }
        let named = catalogue::policy(&wish.policy, self.around.config.as_deref())?;
        for shown in &named.policy.visible {
            if !shown.optional && std::fs::symlink_metadata(&shown.path).is_err() {
                return Err(PipelineError::NotVisible {
                    policy: named.policy.name.clone(),
                    path: shown.path.clone(),
                });
            }
        }
        let policy = match snapshot.read_file(SETTINGS_FILE.as_bytes(), SETTINGS_MAX)? {
            Some(bytes) => catalogue::tighten(&named.policy, &RepositorySettings::parse(&bytes)?)?,
            None => named.policy,
        };
        let applied = with_wishes(&policy, wish, snapshot)?;
        self.policies.push(KnownPolicy { name: wish.policy.clone(), tree: tree.clone(), policy });
        Ok(applied)
    }

    /// Lets go of the store, which no two processes may share a view of.
    pub fn let_go(&mut self) {
        self.reader = None;
    }

    /// Takes a check's view of the store for the next one, unless it ran: then the store has changed.
    pub fn take_back(&mut self, prepared: Prepared, cache: CacheUse) {
        self.reader = prepared.digests.reader.filter(|_| cache == CacheUse::Hit);
    }

    /// The runner for a command.
    pub(super) fn rule(&mut self, wish: &Wish) -> Result<Runner, PipelineError> {
        let word = catalogue::first_word(&wish.argv);
        let known = self.runners.iter().find(|known| known.word == word && known.asked == wish.runner);
        if let Some(known) = known {
            return Ok(known.runner.clone());
        }
        let runner = catalogue::runner_for(self.around.config.as_deref(), &word, wish.runner.as_deref())?;
        self.runners.push(KnownRunner { word, asked: wish.runner.clone(), runner: runner.clone() });
        Ok(runner)
    }

    /// The runner of that name, else all of them.
    pub(super) fn rules(&self, name: Option<&str>) -> Result<Vec<Runner>, PipelineError> {
        let config = self.around.config.as_deref();
        Ok(match name {
            Some(_) => vec![catalogue::runner_for(config, b"", name)?],
            None => catalogue::runners(config)?,
        })
    }

    /// Digests of host files, as far as they are known.
    pub(super) fn files(&mut self) -> KnownDigests {
        KnownDigests::new(&self.around.store)
    }

    /// The runner for a command and the toolchain that it finds, with the digests of host files that had to be made.
    pub(super) fn toolchain(
        &mut self,
        wish: &Wish,
        policy: &Policy,
        also: &[PathBuf],
        rust: Option<String>,
    ) -> Result<(ResolvedRunner, KnownDigests), PipelineError> {
        let word = catalogue::first_word(&wish.argv);
        let runner = &self.rule(wish)?;
        let known = self.tools.iter().find(|known| {
            known.runner == runner.name
                && known.word == word
                && known.policy == *policy
                && known.also == also
                && known.rust == rust
        });
        if let Some(known) = known {
            let digests = KnownDigests { new: known.new.clone(), ..view(&mut self.reader, self.around) };
            return Ok((known.resolved.clone(), digests));
        }
        let mut digests = view(&mut self.reader, self.around);
        let lookup = Lookup { rust: rust.clone(), ..self.around.lookup.clone() };
        let resolved = toolchain::resolve(runner, (&word, also), policy, &lookup, &mut digests)?;
        self.tools.push(KnownTool {
            runner: runner.name.clone(),
            word,
            policy: policy.clone(),
            also: also.to_vec(),
            rust,
            resolved: resolved.clone(),
            new: digests.new.clone(),
        });
        Ok((resolved, digests))
    }

    /// What the machine offers, and of it what the policy asks for.
    pub(super) fn machine(&mut self, policy: &Policy) -> Result<(Abilities, Layers), PipelineError> {
        let machine = Machine::new(&self.around.store);
        let mut abilities = match self.abilities.take() {
            Some(known) => known,
            None => machine.abilities()?,
        };
        let layers = match planned_layers(policy, &abilities) {
            // What was missing when the kept answer was made may be there by now: whoever follows a hint tries again.
            Err(SandboxError::Missing { .. }) => {
                abilities = machine.probe_again()?;
                planned_layers(policy, &abilities)?
            }
            planned => planned?,
        };
        Ok((self.abilities.insert(abilities).clone(), layers))
    }
}

/// The view of the store that an earlier look-up had, else a new one.
fn view(reader: &mut Option<Reader>, around: &Surroundings) -> KnownDigests {
    match reader.take() {
        Some(reader) => KnownDigests { reader: Some(reader), new: Vec::new() },
        None => KnownDigests::new(&around.store),
    }
}

/// A policy with the limits and the clock of the command line.
fn with_wishes(policy: &Policy, wish: &Wish, snapshot: &Snapshot) -> Result<Policy, PipelineError> {
    let limited = catalogue::allow_hosts(&catalogue::apply(policy, &wish.overrides), &wish.hosts)?;
    let mut policy = catalogue::set_clock(&limited, wish.clock)?;
    if let Clock::Commit { mode } = policy.clock {
        policy.clock = Clock::Fixed { start: committed(snapshot)?, mode };
    }
    Ok(policy)
}

/// The date of the commit that is checked, for a clock that is to start there.
fn committed(snapshot: &Snapshot) -> Result<i64, PipelineError> {
    let identity = snapshot.identity();
    let why = match (snapshot.committed(), &identity.commit) {
        (Some(date), _) if (0..=INSTANT_MAX).contains(&date) => return Ok(date),
        (Some(_), _) => "its committer date lies outside the years 1970 to 2262",
        (None, Some(_)) => "its committer date cannot be read",
        (None, None) if snapshot.repository_root().is_none() => "a plain folder has no commit",
        (None, None) if identity.dirty => "the files are in a state that no commit has",
        (None, None) => "a tree that is named without its commit has no date",
    };
    Err(PipelineError::NoCommitDate { why })
}
