//! Where a run finds room on disk: in the cache, or, where that is of no use and the check can do without it, in a folder
//! of its own that is gone afterwards. What is put there is `runs`' business.
#![forbid(unsafe_code)]

use crate::pipeline::leftovers::sweep_spare;
use crate::pipeline::{Caching, PipelineError, Surroundings};
use crate::stage::remove_folder;
use crate::store::Store;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
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
        sweep_spare(&around.temporary);
        let failed = |source| PipelineError::Folder { what: "make", path: root.clone(), source };
        made.map_err(failed)?;
        let ground = Self { root: root.clone(), spare: true };
        // Passed through by whoever a check is run as, where root started it, and listed by nobody else.
        for (folder, mode) in [(root.clone(), 0o711), (ground.runs(), 0o711), (ground.trees(), 0o700)] {
            DirBuilder::new().mode(mode).create(folder).map_err(failed)?;
        }
        Ok(ground)
    }

    /// Whether any user can reach what lies below by its name; what is in a home folder cannot be, as a rule.
    pub(super) fn is_open_to_others(&self) -> bool {
        // What is not there yet is made for all to pass through.
        let nearest = self.root.ancestors().find_map(|folder| std::fs::canonicalize(folder).ok());
        let Some(nearest) = nearest else { return false };
        nearest.ancestors().all(|folder| std::fs::metadata(folder).is_ok_and(|meta| meta.mode() & 0o001 != 0))
    }

    /// Whether a run that came to nothing should be tried again on spare ground: a cache whose disk is full, or does not
    /// read or write, costs the record, never the verdict, and a check that neither looks nor stores does not need the
    /// cache at all.
    pub(super) fn is_to_blame(error: &PipelineError, caching: Caching) -> bool {
        let io = match error {
            PipelineError::Store(error) => return error.is_of_the_disk() && caching != Caching::Off,
            PipelineError::Flight(error) => error.io(),
            PipelineError::Stage(error) => error.io(),
            PipelineError::Folder { source, .. } => Some(source),
            _ => None,
        };
        let of_the_disk = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
                || error.raw_os_error() == Some(Errno::IO.raw_os_error())
        };
        io.is_some_and(|error| caching == Caching::Off || of_the_disk(error))
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
            drop(remove_folder(&self.root));
        }
    }
}
