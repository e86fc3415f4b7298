//! A runner, parsed and then resolved on this machine: which commands it serves, where their toolchain is and how
//! it is shown to a check. Reading TOML and looking at the machine are `catalogue`'s and `toolchain`'s.
#![forbid(unsafe_code)]

use crate::model::digest::Digest;
use crate::model::policy::Visible;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A runner as its file describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Runner {
    /// The word it is asked for by.
    pub name: String,
    /// One sentence for people.
    pub description: String,
    /// First words of commands that it is chosen for.
    pub serves: Vec<String>,
    /// How its toolchain is found.
    pub toolchain: ToolchainRule,
    /// Variables that its commands need, set unless the caller passes them.
    pub env: BTreeMap<String, String>,
    /// Further host paths that its commands need.
    pub visible: Vec<Visible>,
    /// Downloaded packages of the caller that are shown read-only where they exist.
    pub caches: Vec<SharedCache>,
}

/// A folder of downloaded packages in the caller's home, shown read-only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedCache {
    /// The variable that says where the tool's folder is, such as `CARGO_HOME`.
    pub variable: String,
    /// The tool's folder below the caller's home where the variable is not set.
    pub folder: PathBuf,
    /// What of the tool's folder is shown.
    pub below: PathBuf,
    /// Where it is shown.
    pub inside: PathBuf,
    /// Why it is allowed.
    pub why: String,
}

/// How a runner finds its toolchain on this machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ToolchainRule {
    /// The program looked for on the caller's PATH; empty: the command's first word.
    pub program: Option<String>,
    /// The toolchain's root is the nearest folder above the program that holds all of these.
    pub root_holds: Vec<String>,
    /// Where the root is shown inside; empty: at its own path.
    pub inside: Option<PathBuf>,
    /// Folder below the root that goes to the front of PATH.
    pub bin: Option<PathBuf>,
    /// A file below the root whose first line says the version.
    pub version_file: Option<PathBuf>,
    /// Files below the root whose contents identify the toolchain; `*` stands for one folder's name.
    pub identified_by: Vec<PathBuf>,
    /// A folder below the root that holds one folder named for the platform, such as `linux_amd64`.
    pub platform_folder: Option<PathBuf>,
    /// The kind of shim that the program may be (`rustup`, `pyenv`), resolved to what it would run.
    pub shim: Option<String>,
}

/// A folder or file of the host shown read-only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Bind {
    /// Where it is on the host: absolute, symbolic links resolved.
    pub host: PathBuf,
    /// Where it is inside: absolute.
    pub inside: PathBuf,
}

/// A runner resolved for one command on this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolvedRunner {
    /// The runner's name.
    pub name: String,
    /// Digest of its description: everything that its file says.
    pub digest: Digest,
    /// Version in words, as the toolchain's own files say it; empty where none does.
    pub toolchain: String,
    /// What of the host is shown for it, sorted by place.
    pub binds: Vec<Bind>,
    /// Folders inside that make up PATH, first one first.
    pub path: Vec<PathBuf>,
    /// Variables it sets.
    pub env: BTreeMap<String, String>,
    /// What it was identified by: host files and their content digests, sorted by path.
    pub identity: Vec<(PathBuf, Digest)>,
}
