//! Finds the toolchain of a command on this machine: which files of the host are shown to the check, where, what goes
//! to its PATH, and what identifies them. A few stats and small reads; nothing is started, since a cache hit passes
//! through here. What a runner is comes from `catalogue`; showing the files is `sandbox`'s.
//!
//! Not followed: a rustup directory override, a `.python-version` file, and wrapper
//! scripts other than the entry points that Python's installers write. Libraries that a program finds by itself
//! outside what the policy shows are not found either.
#![forbid(unsafe_code)]

mod identity;
mod program;
mod sharing;
mod shim;

#[cfg(test)]
mod tests;

pub use crate::toolchain::identity::is_of_the_system;
pub use crate::toolchain::shim::channel;

use crate::model::digest::Digest;
use crate::model::layer::Level;
use crate::model::policy::Policy;
use crate::model::runner::{ResolvedRunner, Runner, ToolchainRule};
use crate::toolchain::program::Found;
use crate::toolchain::sharing::Sharing;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where a check's programs are looked for when no toolchain comes first.
pub const STANDARD_PATH: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Variables of the caller that say where a tool keeps its things; the caller of [`resolve`] reads them.
pub const TOOL_VARIABLES: [&str; 4] = ["CARGO_HOME", "PYENV_ROOT", "RUSTUP_HOME", "VOLTA_HOME"];

/// What of the caller's surroundings is needed to find programs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lookup {
    /// The caller's PATH.
    pub path: Option<OsString>,
    /// The caller's home folder.
    pub home: Option<PathBuf>,
    /// Those of [`TOOL_VARIABLES`] that are set and not empty.
    pub tools: BTreeMap<String, PathBuf>,
    /// The toolchain that the tree's `rust-toolchain` file asks rustup for, if it has one.
    pub rust: Option<String>,
}

impl Lookup {
    /// A tool's own folder: what its variable says, else `folder` in the home folder. Absolute.
    fn tool_folder(&self, variable: &str, folder: &Path) -> Option<PathBuf> {
        let said = self.tools.get(variable).cloned();
        said.or_else(|| Some(self.home.as_ref()?.join(folder))).filter(|folder| folder.is_absolute())
    }
}

/// Digests of host files; an implementation may remember them by device, inode, size, mtime and ctime.
pub trait FileDigests {
    /// The digest of the file's content.
    ///
    /// # Errors
    /// The file cannot be read.
    fn digest(&mut self, path: &Path) -> io::Result<Digest>;
}

/// Why a toolchain could not be resolved.
#[derive(Debug, thiserror::Error)]
pub enum ToolchainError {
    /// A file that identifies the toolchain cannot be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The tree asks rustup for a toolchain that is not there.
    #[error(
        "the tree's rust-toolchain file asks for `{channel}`, which is not among rustup's toolchains in {folder}"
    )]
    NotInstalled {
        /// What it asks for.
        channel: String,
        /// Where toolchains are.
        folder: PathBuf,
    },
    /// A shim does not say what it runs.
    #[error("`{program}` is a shim of {kind}, and {problem}")]
    Shim {
        /// The program that was found.
        program: PathBuf,
        /// `rustup` or `pyenv`.
        kind: &'static str,
        /// What is missing.
        problem: String,
    },
}

impl ToolchainError {
    /// What can be done about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Shim { kind: "rustup", .. } => {
                Some("choose a toolchain, which installs it where it is not there: `rustup default stable`; single programs come by `rustup component add`".to_owned())
            }
            Self::Shim { kind: "volta", .. } => Some("choose a version: `volta install node`".to_owned()),
            Self::Shim { .. } => Some("choose a version that is there, `pyenv global VERSION`, or `pyenv install VERSION`".to_owned()),
            Self::NotInstalled { channel, .. } => Some(format!("`rustup toolchain install {channel}`")),
            Self::Unreadable { .. } => None,
        }
    }
}

/// Resolves a runner for a command on this machine.
///
/// `word` is the command's first word, bytes as given. One with a slash in it is not looked up on PATH; a relative one
/// lies in the tree and needs nothing of the host. A program that is not found is no error: the tree or the sandbox
/// may have it, and its absence is part of the identity. Programs of `also`, absolute paths, are shown too.
///
/// # Errors
/// A file that identifies the toolchain cannot be read, or a shim does not say what it runs.
pub fn resolve(
    runner: &Runner,
    (word, also): (&[u8], &[PathBuf]),
    policy: &Policy,
    lookup: &Lookup,
    digests: &mut dyn FileDigests,
) -> Result<ResolvedRunner, ToolchainError> {
    let mut resolution = Resolution {
        lookup,
        rule: &runner.toolchain,
        level: policy.level,
        sharing: Sharing::new(policy, lookup.home.as_deref()),
        identity: BTreeMap::new(),
        version: String::new(),
        stays: false,
        bin: None,
        digests,
    };
    resolution.declared(runner);
    let word = OsStr::from_bytes(word);
    let wanted = runner.toolchain.program.as_deref().map_or(word, OsStr::new);
    // A path given by the caller says which toolchain is meant, where the runner serves it.
    let bare = Path::new(word).file_name().unwrap_or(word);
    let serves = runner.serves.iter().any(|served| OsStr::new(served) == bare);
    let given = word.as_bytes().contains(&b'/') && serves;
    resolution.stays = given;
    let complete = resolution.program(if given { word } else { wanted })?;
    // A toolchain has its own programs; of what else the runner serves (Maven beside a JDK) it may have none.
    let has_it = complete && serves && resolution.bin.as_ref().is_none_or(|bin| bin.join(bare).exists());
    if wanted != word && !has_it {
        resolution.plain(word)?;
    }
    for program in also {
        resolution.plain(program.as_os_str())?;
    }
    for path in identity::system_files() {
        if path.exists() {
            resolution.identify(path.to_owned(), path)?;
        }
    }
    for (place, digest) in identity::local_listings() {
        resolution.identity.insert(place, digest);
    }
    let (binds, path) = resolution.sharing.finish();
    Ok(ResolvedRunner {
        name: runner.name.clone(),
        digest: identity::description(runner),
        toolchain: resolution.version,
        binds,
        path,
        env: runner.env.clone(),
        summary: runner.summary,
        results: runner.results.clone(),
        identity: resolution.identity.into_iter().collect(),
    })
}

/// What has been found so far.
struct Resolution<'r> {
    lookup: &'r Lookup,
    rule: &'r ToolchainRule,
    level: Level,
    sharing: Sharing<'r>,
    identity: BTreeMap<PathBuf, Digest>,
    version: String,
    /// The command names its program by a path, so it has to be found there inside too.
    stays: bool,
    /// The toolchain's programs on the host.
    bin: Option<PathBuf>,
    digests: &'r mut dyn FileDigests,
}

impl Resolution<'_> {
    /// Shows what the runner's own file names.
    fn declared(&mut self, runner: &Runner) {
        for visible in &runner.visible {
            self.sharing.show(&visible.path, &visible.path);
        }
        if self.level == Level::Landlock {
            // Without mounts nothing can be shown at another place than its own.
            return;
        }
        for cache in &runner.caches {
            if let Some(folder) = self.lookup.tool_folder(&cache.variable, &cache.folder) {
                self.sharing.show(&folder.join(&cache.below), &cache.inside);
            }
        }
    }

    /// Records the digest of `host` under the path by which the check sees it.
    fn identify(&mut self, place: PathBuf, host: &Path) -> Result<(), ToolchainError> {
        let digest = self
            .digests
            .digest(host)
            .map_err(|source| ToolchainError::Unreadable { path: host.to_owned(), source })?;
        self.identity.insert(place, digest);
        Ok(())
    }

    /// Records that the host has no such program.
    fn absent(&mut self, word: &OsStr) {
        self.identity.insert(PathBuf::from(word), Digest::of(b"absent"));
    }

    /// Finds the runner's program and shows its toolchain; true where that has a root of its own.
    fn program(&mut self, word: &OsStr) -> Result<bool, ToolchainError> {
        let Some(found) = program::find(word, self.lookup.path.as_deref(), &BTreeSet::new()) else {
            if !program::is_in_tree(word) {
                self.absent(word);
            }
            return Ok(false);
        };
        let Some(found) = shim::look_behind(found, self.rule.shim.as_deref(), self.lookup)? else {
            self.absent(word);
            return Ok(false);
        };
        match self.root_of(&found) {
            Some(root) => self.toolchain(&root, &found).map(|()| true),
            None => self.show_program(&found).map(|()| false),
        }
    }

    /// Finds a program that is no part of the toolchain and shows it.
    fn plain(&mut self, word: &OsStr) -> Result<(), ToolchainError> {
        let found = match program::find(word, self.lookup.path.as_deref(), &BTreeSet::new()) {
            Some(found) => shim::look_behind(found, self.rule.shim.as_deref(), self.lookup)?,
            None => None,
        };
        match found {
            Some(found) => self.show_program(&found),
            None if program::is_in_tree(word) => Ok(()),
            None => {
                self.absent(word);
                Ok(())
            }
        }
    }

    /// The nearest folder above the program that holds what the rule asks for, also behind a Python entry point.
    fn root_of(&self, found: &Found) -> Option<PathBuf> {
        if self.rule.root_holds.is_empty() {
            return None;
        }
        let holds = |root: &Path| self.rule.root_holds.iter().all(|below| root.join(below).exists());
        let above = found.real.ancestors().skip(1).find(|folder| holds(folder));
        above
            .map(Path::to_owned)
            .or_else(|| program::python_packages(&found.real).into_iter().find(|root| holds(root)))
    }

    /// Shows a toolchain's root and identifies it by its own files.
    fn toolchain(&mut self, root: &Path, found: &Found) -> Result<(), ToolchainError> {
        // One that the policy shows anyway stays where it is: distributions link its parts to each other by
        // relative paths, which would break elsewhere. At level `landlock` there are no mounts to move it with.
        let place = match &self.rule.inside {
            Some(inside) if self.level == Level::Full && !self.stays && !self.sharing.is_visible(root) => {
                inside.clone()
            }
            _ => root.to_owned(),
        };
        self.sharing.show(root, &place);
        let bin = self.rule.bin.as_deref().unwrap_or(Path::new("bin"));
        self.sharing.put_on_path(place.join(bin));
        self.bin = Some(root.join(bin));
        for below in &self.rule.identified_by {
            for below in identity::spelled_out(root, below) {
                self.identify(place.join(&below), &root.join(&below))?;
            }
        }
        if let Some(inner) = found.real.strip_prefix(root).ok().filter(|inner| root.join(inner).is_file()) {
            self.identify(place.join(inner), &found.real)?;
        }
        self.version = identity::version(root, self.rule);
        if self.version.is_empty() {
            self.version = shim::version(root, self.rule.shim.as_deref());
        }
        Ok(())
    }

    /// Shows a program and what its links and its `#!` lines lead to, and identifies it by these files.
    fn show_program(&mut self, found: &Found) -> Result<(), ToolchainError> {
        let mut next = Some(found.clone());
        // An interpreter may be a script in turn; the kernel follows four of them (Linux `BINPRM_MAX_RECURSION`).
        for _ in 0..=4 {
            let Some(found) = next.take() else { break };
            for step in &found.chain {
                for folder in self.sharing.show_program(step) {
                    self.identity.extend(identity::shown_listings(&folder));
                }
            }
            self.sharing.put_program_on_path(&found.chain);
            self.identify(found.real.clone(), &found.real)?;
            let Some(interpreter) = program::interpreter(&found.real) else { break };
            next = program::find(&interpreter.program, self.lookup.path.as_deref(), &BTreeSet::new());
            if let Some(by_env) = interpreter.by_env {
                if let Some(env) = next.take() {
                    self.identify(env.real.clone(), &env.real)?;
                }
                next = program::find(&by_env, self.lookup.path.as_deref(), &BTreeSet::new());
                next = match next {
                    Some(found) => shim::look_behind(found, Some("pyenv"), self.lookup)?,
                    None => None,
                };
            }
        }
        Ok(())
    }
}
