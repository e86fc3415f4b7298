//! Where a run finds room on disk: in the cache, or, where that is of no use and the check can do without it, in a folder
//! of its own that is gone afterwards. What is put there is `runs`' business.
#![forbid(unsafe_code)]

use crate::pipeline::{Caching, PipelineError, Surroundings};
use crate::store::Store;
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// A folder to lay trees out in and to run in.
#[derive(Debug)]
pub(super) struct Ground {
    root: PathBuf,
    spare: bool,
}

impl Ground {
    /// The cache; for a check that has nothing to do with it, a spare folder where the cache is somebody else's.
    pub(super) fn usual(around: &Surroundings, caching: Caching) -> Result<Self, PipelineError> {
        if caching == Caching::Off && !Store::is_own_or_absent(&around.store) {
            return Self::spare(around);
        }
        Ok(Self { root: around.store.cache.clone(), spare: false })
    }

    /// A new folder for this user alone among the temporary files, removed when this is dropped.
    pub(super) fn spare(around: &Surroundings) -> Result<Self, PipelineError> {
        let mut word = [0_u8; 8];
        let name =
            |word: [u8; 8]| format!("checkrun-{}-{:016x}", std::process::id(), u64::from_le_bytes(word));
        let made = getrandom(&mut word, GetRandomFlags::empty()).map_err(io::Error::from);
        let root = around.temporary.join(name(word));
        made.and_then(|_| DirBuilder::new().mode(0o700).create(&root))
            .map_err(|source| PipelineError::Folder { what: "make", path: root.clone(), source })?;
        Ok(Self { root, spare: true })
    }

    /// Whether a run that came to nothing should be tried again on spare ground: a full cache costs the record, never
    /// the verdict, and a check that neither looks nor stores does not need the cache at all.
    pub(super) fn is_to_blame(error: &PipelineError, caching: Caching) -> bool {
        let io = match error {
            PipelineError::Store(error) => return error.is_full() && caching != Caching::Off,
            PipelineError::Flight(error) => error.io(),
            PipelineError::Stage(error) => error.io(),
            PipelineError::Folder { source, .. } => Some(source),
            _ => None,
        };
        let full = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        };
        io.is_some_and(|error| caching == Caching::Off || full(error))
    }

    /// Whether results of a run here can be stored.
    pub(super) fn is_cache(&self) -> bool {
        !self.spare
    }

    pub(super) fn trees(&self) -> PathBuf {
        self.root.join("trees")
    }

    pub(super) fn runs(&self) -> PathBuf {
        self.root.join("runs")
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if self.spare {
            // What cannot be removed is for whoever cleans up temporary files.
            drop(std::fs::remove_dir_all(&self.root));
        }
    }
}
