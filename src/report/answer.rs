//! The result object that users and programs get, in the order and the shapes that they rely on. How it came about is
//! not decided here.
#![forbid(unsafe_code)]

use crate::model::check::Guard;
use crate::model::evidence::{CacheUse, Deps, Evidence, Foreign, Tally, TestCounts};
use crate::model::layer::{Layer, LayerState};
use crate::model::outcome::{Outcome, Usage};
use crate::model::shell::shell_words;
use serde::Serialize;
use std::collections::BTreeMap;

/// What the result object is called and its version.
const RESULT_SCHEMA: &str = "checkrun.result/1";

/// What the evidence does not say: how it came to answer, and what was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Circumstances {
    /// How the answer came about.
    pub cache: CacheUse,
    /// What had to be unchanged.
    pub guard: Guard,
    /// Where a run on another tree answers, under guard `inputs` or `touches`: number of the record that answers, and the full id of its tree.
    pub from: Option<(i64, String)>,
    /// Pathspecs that cut the tree.
    pub scope: Vec<String>,
    /// Pathspecs that the caller vouches for.
    pub touches: Vec<String>,
    /// Program and arguments, bytes as given.
    pub argv: Vec<Vec<u8>>,
    /// How often this key was seen to pass and to fail.
    pub tally: Tally,
}

/// A name and a digest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct NamedDigest {
    name: String,
    digest: String,
}

/// A runner as the result names it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct RunnerName {
    name: String,
    digest: String,
    toolchain: String,
}

/// The record of another tree that answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct FromRecord {
    record: i64,
    pub(super) tree: String,
}

/// The clock as the result names it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct ClockName {
    mode: String,
    start: String,
}

/// The sandbox as the result names it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct SandboxState {
    level: String,
    layers: BTreeMap<Layer, String>,
}

/// The machine as the result names it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct HostName {
    os: String,
    arch: String,
}

/// One answer; serialised, it is the result object.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Answer {
    schema: &'static str,
    key: String,
    pub(super) cache: CacheUse,
    pub(super) guard: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<FromRecord>,
    pub(super) tree: String,
    commit: Option<String>,
    dirty: bool,
    pub(super) foreign: Foreign,
    scope: Vec<String>,
    touches: Vec<String>,
    cwd: String,
    argv: Vec<String>,
    cmd: String,
    deps: Vec<Deps>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unobserved: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    varied: BTreeMap<String, String>,
    pub(super) outcome: Outcome,
    pub(super) exit: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) reason: Option<String>,
    pub(super) flaky: Option<Tally>,
    at: String,
    pub(super) secs: f64,
    usage: Usage,
    pub(super) summary: Option<String>,
    tests: Option<TestCounts>,
    tail: String,
    tail_bytes: usize,
    output_bytes: u64,
    output_digest: String,
    pub(super) policy: NamedDigest,
    pub(super) runner: RunnerName,
    clock: ClockName,
    pub(super) sandbox: SandboxState,
    host: HostName,
}

impl Answer {
    /// Puts together what was recorded and how it came to answer.
    #[must_use]
    pub fn new(evidence: &Evidence, circumstances: &Circumstances) -> Self {
        let evidence = evidence.clone();
        let circumstances = circumstances.clone();
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        Self {
            schema: RESULT_SCHEMA,
            key: evidence.key,
            cache: circumstances.cache,
            guard: circumstances.guard.name(),
            from: circumstances.from.map(|(record, tree)| FromRecord { record, tree }),
            tree: evidence.tree,
            commit: evidence.commit,
            dirty: evidence.dirty,
            foreign: evidence.foreign,
            scope: circumstances.scope,
            touches: circumstances.touches,
            cwd: evidence.cwd,
            cmd: shell_words(&circumstances.argv),
            argv: circumstances.argv.iter().map(text).collect(),
            deps: evidence.deps,
            unobserved: evidence.unobserved,
            varied: evidence.varied,
            outcome: evidence.outcome,
            exit: evidence.exit,
            signal: evidence.signal,
            reason: evidence.reason,
            flaky: circumstances.tally.is_flaky().then_some(circumstances.tally),
            at: evidence.at,
            secs: evidence.secs,
            usage: evidence.usage,
            summary: evidence.summary,
            tests: evidence.tests,
            tail_bytes: evidence.tail.len(),
            tail: evidence.tail,
            output_bytes: evidence.output_bytes,
            output_digest: evidence.output_digest,
            policy: NamedDigest { name: evidence.policy.0, digest: evidence.policy.1 },
            runner: RunnerName {
                name: evidence.runner.0,
                digest: evidence.runner.1,
                toolchain: evidence.runner.2,
            },
            clock: ClockName { mode: evidence.clock.0, start: evidence.clock.1 },
            sandbox: SandboxState { level: evidence.level, layers: named(&evidence.layers) },
            host: HostName { os: evidence.host.0, arch: evidence.host.1 },
        }
    }

    /// The result object as JSON, one line with its newline.
    #[must_use]
    pub fn to_json(&self) -> String {
        crate::report::json::line(self)
    }

    /// The command as a shell would read it back.
    pub(super) fn command(&self) -> &str {
        &self.cmd
    }

    /// The last of what the check printed.
    pub(super) fn tail(&self) -> &str {
        &self.tail
    }

    /// When the run was that earned it.
    pub(super) fn at(&self) -> &str {
        &self.at
    }

    /// The full id of the key, `b3:…`.
    pub(super) fn key(&self) -> &str {
        &self.key
    }
}

impl NamedDigest {
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl RunnerName {
    /// The runner and, where it is known, its toolchain.
    pub(super) fn described(&self) -> String {
        if self.toolchain.is_empty() {
            self.name.clone()
        } else {
            format!("{} ({})", self.name, self.toolchain)
        }
    }
}

impl SandboxState {
    /// The level, and the layers that are not in force in full though they were wanted.
    pub(super) fn described(&self) -> String {
        let weak = self.layers.iter().filter(|(_, state)| *state != "enforced" && *state != "off");
        let weak: Vec<String> = weak.map(|(layer, state)| format!("{layer} {state}")).collect();
        if weak.is_empty() { self.level.clone() } else { format!("{} ({})", self.level, weak.join("; ")) }
    }
}

/// The layers by name, each with its state as a text.
fn named(layers: &BTreeMap<Layer, LayerState>) -> BTreeMap<Layer, String> {
    layers.iter().map(|(layer, state)| (*layer, state_text(state))).collect()
}

/// `enforced`, `partial: …`, `unavailable: …` or `off`.
pub(super) fn state_text(state: &LayerState) -> String {
    match state {
        LayerState::Enforced | LayerState::Off => state.word().to_owned(),
        LayerState::Partial(why) | LayerState::Unavailable(why) => format!("{}: {why}", state.word()),
    }
}
