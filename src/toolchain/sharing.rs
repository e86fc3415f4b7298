//! Decides which folders of the host are shown for a program that lies outside what the policy shows, and what goes to
//! PATH. A folder that may hold something private is never shown whole. Nothing is mounted here.
#![forbid(unsafe_code)]

use crate::model::policy::Policy;
use crate::model::runner::Bind;
use crate::toolchain::STANDARD_PATH;
use crate::toolchain::program::is_executable;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders that are never shown whole, whatever lies in them: they belong to the system, to all users or to the sandbox.
const NEVER_WHOLE: [&str; 19] = [
    "/", "/boot", "/dev", "/etc", "/home", "/media", "/mnt", "/opt", "/proc", "/root", "/run", "/snap",
    "/src", "/srv", "/sys", "/tmp", "/var", "/var/lib", "/var/tmp",
];

/// Names that mark a folder as somebody's own: a checkout, keys, passwords.
const PRIVATE_MARKS: [&str; 9] = [
    ".git",
    ".ssh",
    ".gnupg",
    ".aws",
    ".netrc",
    ".env",
    "credentials",
    "credentials.toml",
    ".credentials.json",
];

/// What is shown so far.
pub(super) struct Sharing<'p> {
    visible: Vec<&'p Path>,
    home: Option<PathBuf>,
    binds: BTreeMap<PathBuf, PathBuf>,
    path: Vec<PathBuf>,
}

impl<'p> Sharing<'p> {
    /// Starts from what the policy shows; `home` is the caller's home folder.
    pub(super) fn new(policy: &'p Policy, home: Option<&Path>) -> Self {
        Self {
            visible: policy.visible.iter().map(|entry| entry.path.as_path()).collect(),
            home: home.map(|home| fs::canonicalize(home).unwrap_or_else(|_| home.to_owned())),
            binds: BTreeMap::new(),
            path: Vec::new(),
        }
    }

    /// Whether the policy shows this path already.
    pub(super) fn is_visible(&self, path: &Path) -> bool {
        self.visible.iter().any(|shown| path.starts_with(shown))
    }

    /// Shows a host path at `inside`; nothing where the host lacks it or the policy shows it there.
    pub(super) fn show(&mut self, host: &Path, inside: &Path) {
        let Ok(real) = fs::canonicalize(host) else { return };
        if host != inside || !self.is_visible(inside) {
            self.binds.insert(inside.to_owned(), real);
        }
    }

    /// Shows one step of a program's chain at its own path, by the folder that it needs. Gives the folders that are
    /// newly shown.
    pub(super) fn show_program(&mut self, step: &Path) -> Vec<PathBuf> {
        let mut shown = Vec::new();
        // A folder on the way may itself be a link: both the path as it is named and the real one must be there.
        let real = step
            .parent()
            .and_then(|folder| fs::canonicalize(folder).ok())
            .zip(step.file_name())
            .map(|(folder, name)| folder.join(name));
        for path in [Some(step.to_owned()), real].into_iter().flatten() {
            if self.is_visible(&path) || self.binds.keys().any(|inside| path.starts_with(inside)) {
                continue;
            }
            let needed = self.needed(&path);
            if let Ok(host) = fs::canonicalize(&needed) {
                if host.is_dir() {
                    shown.push(needed.clone());
                }
                self.binds.insert(needed, host);
            }
        }
        shown
    }

    /// The folder that a program needs: the one above its `bin`, else its own, else the file alone.
    fn needed(&self, program: &Path) -> PathBuf {
        let Some(folder) = program.parent() else { return program.to_owned() };
        let in_bin = folder.file_name().is_some_and(|name| name == "bin" || name == "sbin");
        let above = folder.parent().filter(|_| in_bin);
        let choices = [above, Some(folder)].into_iter().flatten();
        choices.into_iter().find(|choice| !self.is_private(choice)).unwrap_or(program).to_owned()
    }

    /// Whether a folder may hold what a check must not see.
    fn is_private(&self, folder: &Path) -> bool {
        let real = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        [folder, real.as_path()].into_iter().any(|folder| {
            NEVER_WHOLE.iter().any(|never| folder == Path::new(never))
                || PRIVATE_MARKS.iter().any(|mark| fs::symlink_metadata(folder.join(mark)).is_ok())
                || self
                    .home
                    .as_deref()
                    .is_some_and(|home| home.starts_with(folder) || is_tool_data(folder, home))
        })
    }

    /// Puts a folder in front of the standard PATH, behind those put there before.
    pub(super) fn put_on_path(&mut self, folder: PathBuf) {
        if !self.path.contains(&folder) {
            self.path.push(folder);
        }
    }

    /// Puts a program's folder on PATH, unless the standard PATH leads to the same program.
    pub(super) fn put_program_on_path(&mut self, chain: &[PathBuf]) {
        let Some((folder, name)) = chain.first().and_then(|path| path.parent().zip(path.file_name())) else {
            return;
        };
        let first = STANDARD_PATH.iter().map(Path::new).find(|standard| {
            let candidate = standard.join(name);
            self.is_visible(&candidate) && is_executable(&candidate)
        });
        // On systems with a merged /usr the same folder has two names.
        let same = |one: &Path, other: &Path| {
            one == other
                || fs::canonicalize(one).ok().is_some_and(|one| fs::canonicalize(other).ok() == Some(one))
        };
        if !first.is_some_and(|first| same(first, folder)) {
            self.put_on_path(folder.to_owned());
        }
    }

    /// The binds by place and the PATH.
    pub(super) fn finish(self) -> (Vec<Bind>, Vec<PathBuf>) {
        let mut binds: Vec<Bind> =
            self.binds.into_iter().map(|(inside, host)| Bind { host, inside }).collect();
        // Outer places come first, so that inner ones are laid on top of them.
        binds.sort_by(|one, other| one.inside.cmp(&other.inside));
        let path = self.path.into_iter().chain(STANDARD_PATH.iter().map(PathBuf::from)).collect();
        (binds, path)
    }
}

/// Whether a folder is a hidden one directly in the home folder (`~/.local`, `~/.cargo`, `~/.config`): beside programs
/// these hold tokens and settings. A Python environment is the exception, known by its mark.
fn is_tool_data(folder: &Path, home: &Path) -> bool {
    let hidden = folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    hidden && folder.parent() == Some(home) && !folder.join("pyvenv.cfg").exists()
}
