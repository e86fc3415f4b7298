//! The record of one execution and the answer given to a user. Storing is `store`'s, printing is `report`'s.
#![forbid(unsafe_code)]

use crate::model::layer::{Layer, LayerState};
use crate::model::outcome::{Outcome, Usage};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Layout of [`Evidence`] as stored. 1: first.
pub const EVIDENCE_VERSION: u32 = 1;

/// What one execution showed; small, self-contained, never changed once stored. What the key already says (command,
/// environment, policy in full) is in the pre-image beside it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// [`EVIDENCE_VERSION`] of the writer.
    pub version: u32,
    /// The key it was made under, `b3:…`.
    pub key: String,
    /// Full id of the tree.
    pub tree: String,
    /// Full id of the commit, if the tree came from one.
    pub commit: Option<String>,
    /// True for a working-tree state that no commit has.
    pub dirty: bool,
    /// The folder it started in, `.` for the root.
    pub cwd: String,
    /// What of the content that the tree only names was there.
    #[serde(default, skip_serializing_if = "Foreign::is_nothing")]
    pub foreign: Foreign,
    /// Layers of installed packages that it was given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deps: Vec<Deps>,
    /// Why what it depended on is not known in full, where that was to be observed and is not; then the whole tree counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unobserved: Option<String>,
    /// What it took its surroundings for, where that was not the usual: values by input.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub varied: BTreeMap<String, String>,
    /// How it ended.
    pub outcome: Outcome,
    /// Exit status, if it exited.
    pub exit: Option<i32>,
    /// The signal it died of, if it did.
    pub signal: Option<i32>,
    /// A word, a colon and a sentence where the outcome alone does not say it.
    pub reason: Option<String>,
    /// Real time at which it started, RFC 3339.
    pub at: String,
    /// Wall time in seconds.
    pub secs: f64,
    /// What it used.
    pub usage: Usage,
    /// The runner's one-line summary.
    pub summary: Option<String>,
    /// Counts of tests.
    pub tests: Option<TestCounts>,
    /// End of the output.
    pub tail: String,
    /// Bytes of output.
    pub output_bytes: u64,
    /// Digest of the kept log, `b3:…`.
    pub output_digest: String,
    /// Name and digest of the policy.
    pub policy: (String, String),
    /// Name, digest and toolchain of the runner.
    pub runner: (String, String, String),
    /// Mode and start of the clock.
    pub clock: (String, String),
    /// The level in force.
    pub level: String,
    /// The state of each layer.
    pub layers: BTreeMap<Layer, LayerState>,
    /// Operating system and architecture.
    pub host: (String, String),
}

/// A layer of installed packages, as it is recorded.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deps {
    /// `prepared` or `found`.
    pub from: String,
    /// The runner that prepared it, or the folders that were found.
    pub name: String,
    /// Digest of its content, `b3:…`.
    pub digest: String,
}

/// Content that a tree only names: what was put into it, and how much was left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Foreign {
    /// Whether submodules had the content of their commits.
    pub submodules: bool,
    /// Submodules that were empty folders.
    pub empty_submodules: u64,
    /// Whether files that LFS keeps elsewhere had their content.
    pub lfs: bool,
    /// Files that were pointers of LFS.
    pub lfs_pointers: u64,
}

impl Foreign {
    /// True where the tree names nothing, and nothing was asked for.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Tests as the runner counted them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TestCounts {
    /// Passed.
    pub passed: u64,
    /// Failed.
    pub failed: u64,
    /// Skipped or ignored.
    pub skipped: u64,
}

/// How often a key was seen to pass and to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Executions that passed.
    pub passed: u64,
    /// Executions that failed.
    pub failed: u64,
}

impl Tally {
    /// True where both were seen: the check is flaky and its record never answers.
    #[must_use]
    pub fn is_flaky(self) -> bool {
        self.passed > 0 && self.failed > 0
    }
}

/// What the store has under one key.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Found {
    /// Executions on record that passed and that failed.
    pub tally: Tally,
    /// The newest sound record of an execution that passed or failed.
    pub latest: Option<Stored>,
    /// What was found broken on the way and counts as absent, a sentence each.
    pub damage: Vec<String>,
}

/// A record and its number.
#[derive(Clone, PartialEq, Debug)]
pub struct Stored {
    /// Goes up with every execution on record; the only order that counts.
    pub id: i64,
    /// The record.
    pub evidence: Evidence,
}

/// How an answer came about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheUse {
    /// An earlier result answered.
    Hit,
    /// Nothing answered, so it ran.
    Miss,
    /// It was run on request although something answered.
    Refreshed,
    /// Neither looked nor stored.
    Off,
    /// Waited for the same check that was already running.
    Joined,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A record with something in every field, for the tests of the rooms that pass records on.
    pub(crate) fn evidence() -> Evidence {
        Evidence {
            version: EVIDENCE_VERSION,
            key: format!("b3:{}", "0".repeat(64)),
            tree: "4b825dc642cb6eb9a060e54bf8d69288fbee4904".to_owned(),
            commit: None,
            dirty: false,
            foreign: Foreign { empty_submodules: 2, ..Foreign::default() },
            cwd: ".".to_owned(),
            deps: vec![Deps {
                from: "found".to_owned(),
                name: "node_modules".to_owned(),
                digest: format!("b3:{}", "4".repeat(64)),
            }],
            unobserved: Some("a program made a namespace or a root of its own".to_owned()),
            varied: BTreeMap::from([("user".to_owned(), "0".to_owned())]),
            outcome: Outcome::Passed,
            exit: Some(0),
            signal: None,
            reason: None,
            at: "2026-03-11T09:14:22Z".to_owned(),
            secs: 22.6,
            usage: Usage::default(),
            summary: Some("ok  internal/auth  41 tests".to_owned()),
            tests: Some(TestCounts { passed: 41, failed: 0, skipped: 0 }),
            tail: "ok\n".to_owned(),
            output_bytes: 3,
            output_digest: format!("b3:{}", "1".repeat(64)),
            policy: ("hermetic".to_owned(), format!("b3:{}", "2".repeat(64))),
            runner: ("go".to_owned(), format!("b3:{}", "3".repeat(64)), "go1.27.3 linux/amd64".to_owned()),
            clock: ("ticking".to_owned(), "2026-01-01T00:00:00Z".to_owned()),
            level: "full".to_owned(),
            layers: BTreeMap::from([
                (Layer::User, LayerState::Enforced),
                (Layer::Time, LayerState::Unavailable("no time namespaces".to_owned())),
            ]),
            host: ("linux".to_owned(), "x86_64".to_owned()),
        }
    }

    #[test]
    fn a_record_reads_back_and_refuses_what_it_does_not_know() {
        let text = serde_json::to_string(&evidence()).unwrap();
        assert_eq!(serde_json::from_str::<Evidence>(&text).unwrap(), evidence());
        let more = text.replacen('{', "{\"verdict\":true,", 1);
        assert!(serde_json::from_str::<Evidence>(&more).is_err());
    }
}
