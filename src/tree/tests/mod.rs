//! What `git` itself says of real repositories is what this room must say. Every repository is made by the `git` program.
#![forbid(unsafe_code)]

mod revisions;
mod worktrees;

use crate::tree::{EntryKind, Snapshot, Source, TreeError, resolve};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A repository in a folder that vanishes.
pub(crate) struct Repo {
    pub(crate) folder: tempfile::TempDir,
}

/// Runs git in `folder`, apart from all configuration of the machine and the user.
pub(crate) fn git_in(folder: &Path, args: &[&str], input: &[u8]) -> String {
    let mut command = Command::new("git");
    command.args(args).current_dir(folder).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "a").env(format!("GIT_{who}_EMAIL"), "a@b");
        command.env(format!("GIT_{who}_DATE"), "2020-01-01T00:00:00Z");
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

impl Repo {
    pub(crate) fn new(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        git_in(folder.path(), &[&["init", "-q", "-b", "main"], options].concat(), b"");
        Self { folder }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn git(&self, args: &[&str]) -> String {
        git_in(self.path(), args, b"")
    }

    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) fn commit(&self) -> String {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", "x"]);
        self.git(&["rev-parse", "HEAD"])
    }

    pub(crate) fn resolve(&self, source: &Source) -> Result<Snapshot, TreeError> {
        resolve(self.path(), source, &self.path().join(".git/never-made"))
    }

    fn revision(&self, revision: &str) -> Result<Snapshot, TreeError> {
        self.resolve(&Source::Revision(revision.to_owned()))
    }

    /// What `git add -A && git write-tree` gives, on a copy.
    fn added(&self) -> String {
        let copy = tempfile::tempdir().unwrap();
        let status =
            Command::new("cp").arg("-a").arg(self.path().join(".")).arg(copy.path()).status().unwrap();
        assert!(status.success());
        git_in(copy.path(), &["add", "-A"], b"");
        git_in(copy.path(), &["write-tree"], b"")
    }
}

fn tree(snapshot: &Snapshot) -> String {
    snapshot.identity().tree.hex()
}

/// A tree as `git ls-tree -rtz` prints it.
fn listing(snapshot: &Snapshot) -> Vec<(String, Vec<u8>)> {
    let mut lines: Vec<_> = snapshot
        .entries()
        .unwrap()
        .into_iter()
        .map(|entry| (format!("{:?} {}", entry.kind, entry.id.hex()), entry.path))
        .collect();
    lines.sort();
    lines
}

fn ls_tree(folder: &Path, tree: &str) -> Vec<(String, Vec<u8>)> {
    let mut lines: Vec<_> = git_in(folder, &["ls-tree", "-rtz", tree], b"")
        .split_terminator('\0')
        .map(|line| {
            let (head, path) = line.split_once('\t').unwrap();
            let words: Vec<_> = head.split(' ').collect();
            let kind = match words[0] {
                "100644" => EntryKind::File,
                "100755" => EntryKind::Executable,
                "120000" => EntryKind::Symlink,
                "040000" => EntryKind::Folder,
                _ => EntryKind::Submodule,
            };
            (format!("{kind:?} {}", words[2]), path.as_bytes().to_vec())
        })
        .collect();
    lines.sort();
    lines
}

/// Everything below `.git` with its size and time, to see that nothing was written.
fn git_state(folder: &Path) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
    let mut state = Vec::new();
    let mut waiting = vec![folder.join(".git")];
    while let Some(path) = waiting.pop() {
        for entry in std::fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap();
            let found = entry.metadata().unwrap();
            if found.is_dir() {
                waiting.push(entry.path());
            }
            state.push((entry.path(), found.len(), found.modified().unwrap()));
        }
    }
    state.sort();
    state
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}
