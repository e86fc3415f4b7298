//! Why a tree could not be laid out on disk.
#![forbid(unsafe_code)]

use crate::tree::{TreeError, show};
use std::io;
use std::path::PathBuf;

/// What went wrong while a tree was laid out on disk.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The tree itself cannot be listed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The content of one file cannot be read from the repository.
    #[error("cannot lay out `{path}`: {source}")]
    Content {
        /// Path in the tree.
        path: String,
        /// Why.
        source: TreeError,
    },
    /// The disk does not take an entry.
    #[error("cannot {action} `{path}` of the tree below `{}`: {source}", .root.display())]
    Entry {
        /// What was tried.
        action: &'static str,
        /// Path in the tree.
        path: String,
        /// The folder that the layer is made in.
        root: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The mark for what is gone cannot be made here.
    #[error("cannot mark `{path}` of the tree as gone below `{}`: {source}", .root.display())]
    Whiteout {
        /// Path in the tree.
        path: String,
        /// The folder that the layer is made in.
        root: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file or folder of the cache cannot be read or written.
    #[error("cannot {action} `{}`: {source}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl StageError {
    /// What to do about it, where there is something to do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Tree(source) | Self::Content { source, .. } => source.hint(),
            Self::Entry { source, .. } | Self::Whiteout { source, .. } | Self::Io { source, .. } => {
                match source.kind() {
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                        Some("make room with `checkrun gc`, or put the cache elsewhere".to_owned())
                    }
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                        Some("name a cache folder that you may write to".to_owned())
                    }
                    io::ErrorKind::InvalidFilename => {
                        Some("the cache's file system takes no name or link of that length".to_owned())
                    }
                    _ => None,
                }
            }
        }
    }

    /// What the system said of the folder that layers are made in, where that is what failed.
    #[must_use]
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            Self::Entry { source, .. } | Self::Whiteout { source, .. } | Self::Io { source, .. } => {
                Some(source)
            }
            Self::Tree(_) | Self::Content { .. } => None,
        }
    }

    pub(super) fn of_io(
        action: &'static str,
        path: impl Into<PathBuf>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::Io { action, path: path.into(), source: source.into() }
    }

    pub(super) fn entry(
        action: &'static str,
        path: &[u8],
        root: impl Into<PathBuf>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::Entry { action, path: show(path), root: root.into(), source: source.into() }
    }
}
