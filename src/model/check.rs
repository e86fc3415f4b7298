//! One check: the command, where it starts, what it is given; and the action, everything that its result depends
//! on. Values only.
#![forbid(unsafe_code)]

use crate::model::digest::{Digest, ObjectFormat, ObjectId};
use crate::model::layer::{Layer, Level};
use crate::model::policy::Policy;
use crate::model::runner::ResolvedRunner;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What must be unchanged for an earlier result to answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guard {
    /// The whole tree.
    Exact,
    /// Every file the earlier run was seen to read, list or look for.
    Inputs,
    /// The paths that the caller vouches for.
    Touches,
}

impl Guard {
    /// The word used in options and records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Inputs => "inputs",
            Self::Touches => "touches",
        }
    }

    /// Reads what [`Guard::name`] prints.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Exact, Self::Inputs, Self::Touches].into_iter().find(|guard| guard.name() == word)
    }
}

/// Content that a tree only names, and that is put into it where the caller says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Filled {
    /// Submodules have the content of their pinned commits; else they are empty folders.
    pub submodules: bool,
    /// Files that LFS keeps elsewhere have their content; else they are the pointers that git stores.
    pub lfs: bool,
}

/// The command as it is executed, and its surroundings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    /// Program and arguments, bytes as given; never empty, no NUL.
    pub argv: Vec<Vec<u8>>,
    /// Folder of the tree it starts in, `/` between parts, empty for the root; no `..`.
    pub cwd: Vec<u8>,
    /// Variables that the caller passes in, beside those of the policy and the runner.
    pub env: BTreeMap<Vec<u8>, Vec<u8>>,
    /// A pass needs this many tests counted by the runner.
    pub require_tests: Option<u64>,
}

/// Which tree, as it is keyed and recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeIdentity {
    /// How the repository names objects.
    pub format: ObjectFormat,
    /// The id of the tree object that the check sees.
    pub tree: ObjectId,
    /// The commit it came from, if it came from one.
    pub commit: Option<ObjectId>,
    /// True for a working-tree state that no commit has.
    pub dirty: bool,
}

/// Where the installed packages of a check come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DepsChoice {
    /// From `prepare`, where that was done for this lock file.
    #[default]
    Prepared,
    /// From the folders that the caller's working tree has.
    Found,
    /// From nowhere.
    None,
}

impl DepsChoice {
    /// The word used in options and records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Prepared => "prepared",
            Self::Found => "found",
            Self::None => "none",
        }
    }
}

/// A layer of installed packages, never written to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DepsLayer {
    /// Where its content comes from.
    pub from: DepsChoice,
    /// What it is: the folders that were found, or the runner that prepared it.
    pub name: String,
    /// Digest of its content.
    pub digest: Digest,
    /// Where it lies on the host. What of it belongs to the tree is in its folder `tree`, what to the home in `home`.
    pub folder: PathBuf,
    /// Whether it has a folder `tree`.
    pub in_tree: bool,
    /// Whether it has a folder `home`.
    pub in_home: bool,
}

/// Everything that a result depends on; `key` turns it into the bytes that are hashed.
#[derive(Clone, Debug)]
pub struct Action {
    /// The tree.
    pub tree: TreeIdentity,
    /// What must be unchanged.
    pub guard: Guard,
    /// What was put into the tree; the tree id is that of the tree with it.
    pub filled: Filled,
    /// Pathspecs that cut the tree, as given; the tree id is that of the cut tree.
    pub scope: Vec<String>,
    /// Pathspecs that the caller vouches for, as given.
    pub touches: Vec<String>,
    /// For guard `touches`: the id of the tree that holds only the entries they match.
    pub touched: Option<ObjectId>,
    /// The command.
    pub command: Command,
    /// The policy, limits of the command line included.
    pub policy: Policy,
    /// The runner on this machine.
    pub runner: ResolvedRunner,
    /// The level that is to be in force.
    pub level: Level,
    /// Installed packages that are laid under the tree and the home folder.
    pub deps: Vec<DepsLayer>,
    /// State word of each layer that is to be in force.
    pub layers: BTreeMap<Layer, &'static str>,
}
