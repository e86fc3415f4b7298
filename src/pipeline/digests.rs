//! Content digests of host files, read once and then trusted for as long as device, inode, size, mtime and ctime
//! stay. The database is `store`'s; which files matter is `toolchain`'s.
#![forbid(unsafe_code)]

use crate::model::digest::Digest;
use crate::pipeline::contents::{Look, coarse_now};
use crate::store::{FileStamp, Reader, Store, StorePaths};
use crate::toolchain::FileDigests;
use std::io;
use std::path::Path;

/// Answers from the store where it can, and remembers what it had to compute.
#[derive(Debug)]
pub(crate) struct KnownDigests {
    /// The store, opened once for a look-up.
    pub(crate) reader: Option<Reader>,
    /// What was computed and is not in the store yet.
    pub(crate) new: Vec<(FileStamp, Digest)>,
}

impl KnownDigests {
    /// Uses the store if there is one; a store that cannot be read costs time here and nothing else.
    pub(crate) fn new(paths: &StorePaths) -> Self {
        Self { reader: Store::open_reader(paths).ok().flatten(), new: Vec::new() }
    }
}

impl FileDigests for KnownDigests {
    fn digest(&mut self, path: &Path) -> io::Result<Digest> {
        let file = std::fs::File::open(path)?;
        let look = Look::of_open(&file)?;
        let stamp = look.key();
        let known =
            self.reader.as_ref().and_then(|reader| reader.file_digests(&[stamp]).first().copied().flatten());
        if let Some(digest) = known {
            return Ok(digest);
        }
        let before = coarse_now();
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(file)?;
        let digest = Digest(*hasher.finalize().as_bytes());
        // A change within the same tick would leave no trace in its times.
        if look.ctime < before {
            self.new.push((stamp, digest));
        }
        Ok(digest)
    }
}
