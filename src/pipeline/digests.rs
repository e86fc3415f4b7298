//! Content digests of host files, read once and then trusted for as long as device, inode, size, mtime and ctime
//! stay. The database is `store`'s; which files matter is `toolchain`'s.
#![forbid(unsafe_code)]

use crate::model::digest::Digest;
use crate::pipeline::contents::{Look, coarse_now};
use crate::store::{FileStamp, Reader, Store, StorePaths};
use crate::toolchain::FileDigests;
use std::cell::OnceCell;
use std::fs::File;
use std::io;
use std::path::Path;

/// Up to here, in bytes, a file is read again in less time than a store is opened and asked.
const SMALL: u64 = 128 * 1024;

/// Answers from the store where it can, and remembers what it had to compute.
#[derive(Debug)]
pub(crate) struct KnownDigests {
    paths: StorePaths,
    /// The store, opened when it is first needed: a run that neither looks nor stores may do without.
    reader: OnceCell<Option<Reader>>,
    /// What was computed and is not in the store yet.
    pub(crate) new: Vec<(FileStamp, Digest)>,
}

impl KnownDigests {
    /// Uses the store if there is one; a store that cannot be read costs time here and nothing else.
    pub(crate) fn new(paths: &StorePaths) -> Self {
        Self { paths: paths.clone(), reader: OnceCell::new(), new: Vec::new() }
    }

    /// The same over a store that is open already.
    pub(crate) fn over(paths: &StorePaths, reader: Reader) -> Self {
        Self { reader: OnceCell::from(Some(reader)), ..Self::new(paths) }
    }

    /// The store; `None` where there is none, it cannot be read, or it was closed.
    pub(crate) fn reader(&self) -> Option<&Reader> {
        self.reader.get_or_init(|| Store::open_reader(&self.paths).ok().flatten()).as_ref()
    }

    fn known(&self, stamp: FileStamp) -> Option<Digest> {
        self.reader()?.file_digests(&[stamp]).first().copied().flatten()
    }

    /// Closes the store for good.
    pub(crate) fn close(&mut self) {
        self.reader = OnceCell::from(None);
    }

    /// The store, if it was opened.
    pub(crate) fn into_reader(self) -> Option<Reader> {
        self.reader.into_inner().flatten()
    }
}

impl FileDigests for KnownDigests {
    fn digest(&mut self, path: &Path) -> io::Result<Digest> {
        let file = File::open(path)?;
        let look = Look::of_open(&file)?;
        if look.size <= SMALL {
            return of_content(file);
        }
        let stamp = look.key();
        if let Some(digest) = self.known(stamp) {
            return Ok(digest);
        }
        let before = coarse_now();
        let digest = of_content(file)?;
        // A change within the same tick would leave no trace in its times.
        if look.ctime < before {
            self.new.push((stamp, digest));
        }
        Ok(digest)
    }
}

fn of_content(file: File) -> io::Result<Digest> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    Ok(Digest(*hasher.finalize().as_bytes()))
}
