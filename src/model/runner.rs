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
    /// How counts of tests are read from the output, if they are.
    pub summary: Option<Reading>,
    /// Where its commands leave files of test results (JUnit XML), patterns below the folder that they start in.
    pub results: Vec<String>,
    /// Folders of installed packages that a working tree may have, for `--deps found`.
    pub found: Vec<FoundRule>,
    /// What comes before each of the steps, for `sh -e`; empty: nothing.
    pub prelude: String,
    /// Steps that fetch packages, for `prepare`.
    pub prepare: Vec<PrepareRule>,
    /// How programs are installed that are not there, by name; the toolchain's program stands for all others.
    pub install: BTreeMap<String, String>,
    /// Texts of which one stands in the output of a command that misses packages; empty: any failure may be for that.
    pub lacks: Vec<String>,
    /// What is said of failures.
    pub advice: Vec<Advice>,
}

/// The forms in which a family of test runners prints its counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// `go test`, plain, `-v` and `-json`.
    Go,
    /// `cargo test` and `cargo nextest run`.
    Rust,
    /// pytest and unittest.
    Python,
    /// `node --test`, mocha, jest and vitest.
    Node,
    /// Maven's surefire and failsafe, Gradle.
    Java,
    /// ctest, meson, Automake's `make check`.
    Make,
    /// TAP, and `prove`.
    Tap,
}

impl Reading {
    /// Each with the word used for it in runners.
    pub const ALL: [(&'static str, Self); 7] = [
        ("go", Self::Go),
        ("rust", Self::Rust),
        ("python", Self::Python),
        ("node", Self::Node),
        ("java", Self::Java),
        ("make", Self::Make),
        ("tap", Self::Tap),
    ];

    /// The word used for it in runners.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, reading)| *reading == self).map_or("", |(name, _)| name)
    }
}

/// What is said beside a verdict where a failing command printed something that people cannot be expected to read rightly.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advice {
    /// Texts of which one stands in the end of the output.
    pub output: Vec<String>,
    /// What is said: a word, a colon and a sentence.
    pub say: String,
    /// Whether it is about packages that `checkrun prepare` fetches: a step of that is not told to prepare.
    pub prepare: bool,
}

/// A folder of installed packages that lies in a working tree and not in git.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundRule {
    /// The folder, below the folder that the command starts in.
    pub folder: PathBuf,
    /// Its programs, below it; goes to the front of PATH where it is there.
    pub bin: Option<PathBuf>,
}

/// A step that fetches packages with network, once for each content of its inputs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrepareRule {
    /// Files that must all be in the tree for the step to apply, below the folder that the command starts in.
    pub when: Vec<PathBuf>,
    /// Further files that the step sees and is keyed by, pathspecs below that folder.
    pub inputs: Vec<String>,
    /// Whether the step sees all of the tree, though it is keyed by its inputs only.
    pub whole_tree: bool,
    /// The step, for `sh -e`.
    pub run: String,
    /// What builds the packages that the step fetched, for `sh`; empty where they need none. It may fail: what it leaves
    /// is kept all the same, and what it could not build is built by each check.
    pub build: String,
    /// A file without which the step only makes checks faster: where the tree has none, no check fails for want of it.
    pub optional_without: Option<PathBuf>,
    /// What it leaves in the tree that checks are to have, below that folder.
    pub tree: Vec<PathBuf>,
    /// What it leaves in the home folder that checks are to have.
    pub home: Vec<PathBuf>,
    /// Folders of the home folder that go to the front of PATH.
    pub path: Vec<PathBuf>,
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
    /// How counts of tests are read from the output, if they are.
    pub summary: Option<Reading>,
    /// Where files of test results are left, patterns below the folder that the command starts in.
    pub results: Vec<String>,
    /// What it was identified by: host files and their content digests, sorted by path.
    pub identity: Vec<(PathBuf, Digest)>,
}
