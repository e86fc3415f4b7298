//! Why a tree could not be resolved or read, in words that name what is wrong and where. No recovery and no printing.
#![forbid(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};

/// What went wrong while a tree was resolved or read.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// Neither the folder nor one above it belongs to a git repository.
    #[error("`{}` is not in a git repository", .0.display())]
    NotARepository(PathBuf),
    /// A repository is there but cannot be opened.
    #[error("the git repository around `{}` cannot be opened: {detail}", .start.display())]
    Open {
        /// Where the search began.
        start: PathBuf,
        /// What the git library says.
        detail: String,
    },
    /// The repository uses a feature that is not understood.
    #[error("the git repository `{}` uses {what}, which is not supported", .path.display())]
    Unsupported {
        /// The repository's git folder.
        path: PathBuf,
        /// The feature.
        what: &'static str,
    },
    /// No such revision.
    #[error("`{revision}` names no revision of this repository: {detail}")]
    UnknownRevision {
        /// The revision as given.
        revision: String,
        /// What the git library says.
        detail: String,
    },
    /// A short id that several objects begin with.
    #[error("`{revision}` is ambiguous; it may mean {}", .candidates.join(", "))]
    Ambiguous {
        /// The revision as given.
        revision: String,
        /// What it may mean: short id and kind of object.
        candidates: Vec<String>,
    },
    /// The revision names one file's content.
    #[error("`{revision}` is a file (blob {id}), not a tree")]
    NotATree {
        /// The revision as given.
        revision: String,
        /// Full id of the blob.
        id: String,
    },
    /// An object that should be there is not.
    #[error("object {id} ({what}) is missing from the repository")]
    Missing {
        /// Full id.
        id: String,
        /// What it is needed for.
        what: String,
    },
    /// An object cannot be read, or is not what its id says.
    #[error("object {id} ({what}) is damaged: {detail}")]
    Damaged {
        /// Full id.
        id: String,
        /// What it is needed for.
        what: String,
        /// What is wrong with it.
        detail: String,
    },
    /// An entry that must not be written to disk.
    #[error("the tree has an entry `{path}` that is refused: {why}")]
    Hostile {
        /// Path in the tree.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// More than can be handled.
    #[error("the tree is too large at `{path}`: {why}")]
    TooLarge {
        /// Path in the tree.
        path: String,
        /// Which bound it passes.
        why: &'static str,
    },
    /// A file is wanted and something else is there.
    #[error("`{path}` in the tree is {what}, not a file")]
    NotAFile {
        /// Path in the tree.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// A submodule's content is asked for and its commit is not here.
    #[error("submodule `{path}` is to be taken at commit {commit}, which no repository here has")]
    SubmoduleMissing {
        /// Path in the tree.
        path: String,
        /// Full id.
        commit: String,
    },
    /// The content of a file that LFS keeps elsewhere is asked for and is not here.
    #[error("the content of `{path}`, LFS object {oid}, is not here")]
    LfsMissing {
        /// Path in the tree.
        path: String,
        /// Its SHA-256.
        oid: String,
    },
    /// A working tree or an index is asked of a bare repository.
    #[error("`{}` is a bare repository: it has no working tree and no index", .0.display())]
    Bare(PathBuf),
    /// The index cannot be read.
    #[error("the index `{}` cannot be read: {detail}", .path.display())]
    Index {
        /// The index file.
        path: PathBuf,
        /// What the git library says.
        detail: String,
    },
    /// The index holds several versions of a file.
    #[error("the index has an unresolved conflict at `{0}`")]
    Conflict(String),
    /// A file that git cannot store.
    #[error("`{}` is {what}; only files, symbolic links and folders can be part of a tree", .path.display())]
    Special {
        /// Where it is.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// An untracked repository inside the working tree without a commit that could stand for it.
    #[error("`{}` is a git repository of its own without any commit, so nothing can stand for it in the tree", .0.display())]
    NestedWithoutCommit(PathBuf),
    /// Not a pathspec.
    #[error("`{pathspec}` is not a pathspec that can be used: {detail}")]
    Pathspec {
        /// As given.
        pathspec: String,
        /// What the git library says.
        detail: String,
    },
    /// A pathspec, or several together, that leave nothing.
    #[error("the pathspec `{pathspec}` matches nothing in the tree")]
    Unmatched {
        /// As given.
        pathspec: String,
    },
    /// A file or folder cannot be read or written.
    #[error("cannot {action} `{}`: {source}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// An object cannot be put into the repository.
    #[error("cannot write `{path}` to the repository's objects in `{}`: {detail}", .store.display())]
    Unwritable {
        /// Path in the tree; empty for its root.
        path: String,
        /// The folder of objects.
        store: PathBuf,
        /// What the git library says.
        detail: String,
    },
    /// Bytes that only look like other bytes of the same SHA-1: an attack.
    #[error("the content of `{path}` is part of a SHA-1 collision attack and has no trustworthy id")]
    Collision {
        /// Path in the tree.
        path: String,
    },
}

impl TreeError {
    /// What to do about it, where there is something to do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NotARepository(_) => "start in a git repository, or name a plain folder with `--dir`",
            Self::UnknownRevision { .. } => {
                "give a commit, tag, branch, `HEAD~2`, a tree id or `REV:sub/dir`"
            }
            Self::Ambiguous { .. } => "give more digits of the id",
            Self::NotATree { .. } => "name the folder around it, such as `HEAD:sub/dir`",
            Self::Missing { .. } => {
                "in a partial or shallow clone fetch it first: `git fetch --refetch`, `git fetch --unshallow`"
            }
            Self::SubmoduleMissing { .. } => {
                "`git submodule update --init --recursive` brings it; without `--submodules` the folder is empty"
            }
            Self::LfsMissing { .. } => "`git lfs fetch` brings it; without `--lfs` the file is its pointer",
            Self::Damaged { .. } => "run `git fsck` to see what else is damaged",
            Self::Bare(_) => "name a revision with `--tree`",
            Self::Conflict(_) => "resolve it and `git add` the file, or name a revision with `--tree`",
            Self::Special { .. } => "remove it or move it out of the folder",
            Self::NestedWithoutCommit(_) => "commit there, or add the folder to .gitignore",
            Self::Pathspec { .. } => {
                "git's own forms are accepted: `src`, `*.rs`, `:(glob)a/**/b`, `:!docs`, `:/top`"
            }
            Self::Unmatched { .. } => {
                "pathspecs are relative to the folder that checkrun is started in; `:/` in front starts at the root"
            }
            Self::Index { .. } => "`git reset` writes a new index and leaves the files alone",
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => {
                    "you have to be allowed to read it: run as its owner, or `chmod` it"
                }
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                    "relative names count from the folder that checkrun is started in, or from that of `-C`"
                }
                _ => return None,
            },
            _ => return None,
        };
        Some(hint.to_owned())
    }

    /// True where a disk has no room left, or does not read or write.
    #[must_use]
    pub fn is_of_the_disk(&self) -> bool {
        use rustix::io::Errno;
        let Self::Io { source, .. } = self else { return false };
        [Errno::NOSPC, Errno::DQUOT, Errno::IO]
            .iter()
            .any(|errno| source.raw_os_error() == Some(errno.raw_os_error()))
    }

    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>, source: impl Into<io::Error>) -> Self {
        Self::Io { action, path: path.into(), source: source.into() }
    }

    pub(super) fn hostile(path: &[u8], why: &'static str) -> Self {
        Self::Hostile { path: show(path), why }
    }
}

/// A path in a tree for people: control characters escaped, bytes that are not UTF-8 replaced.
pub(crate) fn show(path: &[u8]) -> String {
    let mut text = String::new();
    for character in String::from_utf8_lossy(path).chars() {
        if character.is_control() {
            text.extend(character.escape_default());
        } else {
            text.push(character);
        }
    }
    text
}

/// All that the git library has to say about an error, outermost first, on one line.
pub(super) fn detail(error: &gix::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.iter_errors() {
        let text = cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        if !text.is_empty() && !parts.contains(&text) {
            parts.push(text);
        }
    }
    parts.join(": ")
}

/// A path below a folder of the disk, for messages.
pub(super) fn below(root: &Path, path: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    if path.is_empty() { root.to_owned() } else { root.join(std::ffi::OsStr::from_bytes(path)) }
}
