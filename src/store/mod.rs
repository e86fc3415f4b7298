//! What is on record: executions, what they ran, how often they passed and failed, and digests of files of this
//! machine. The only room that names SQLite; whether a record may answer is not decided here.
//!
//! One database, `records/v1/checkrun.db` in the cache folder, in WAL mode (<https://sqlite.org/wal.html>). A reader
//! never writes a record and takes no lock of its own; a writer's transactions are short and wait for each other. Every
//! record carries a tag, a keyed BLAKE3 whose key only this user has, so that a torn or altered one counts as absent.
//! A file that is no database any more is renamed aside by the next writer, which begins a new one.
//!
//! Additions to the schema are migrations that older programs can live with; what they could not live with gets another
//! folder than `v1`.
#![forbid(unsafe_code)]

mod connection;
mod counts;
mod error;
mod gc;
mod inputs;
mod reader;
mod row;
mod secret;
mod writer;

pub use counts::TestCount;
pub use error::StoreError;
pub use gc::{Bounds, Swept};
pub use inputs::KeptInputs;
pub use reader::{Listing, Reader};
pub use writer::{NewRecord, Recorded, Writer};

use crate::model::digest::ActionKey;
use crate::model::evidence::{Evidence, Tally};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where a store lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StorePaths {
    /// The cache folder.
    pub cache: PathBuf,
    /// The file that holds this user's secret; best outside of the cache, so that a copied cache is not believed.
    pub secret: PathBuf,
}

impl StorePaths {
    /// The folder of kept output.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.cache.join("logs/v1")
    }

    /// The folder of lock files for single flight.
    #[must_use]
    pub fn locks(&self) -> PathBuf {
        self.cache.join("locks")
    }

    fn records(&self) -> PathBuf {
        self.cache.join("records/v1")
    }

    fn database(&self) -> PathBuf {
        self.records().join("checkrun.db")
    }
}

/// One execution on record, with what its key says.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    /// Goes up with every execution; the only order that counts.
    pub id: i64,
    /// The key it ran under.
    pub key: ActionKey,
    /// What the key is the digest of; empty where that is lost.
    pub preimage: Vec<u8>,
    /// Executions under that key.
    pub tally: Tally,
    /// What it showed.
    pub evidence: Evidence,
}

/// What tells that a file of this machine has not changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileStamp {
    /// Device.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of the content, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Time of the last change of content or inode, in nanoseconds since 1970; no ordinary user can set it.
    pub ctime_ns: i64,
}

/// The doors to the store.
#[derive(Debug)]
pub struct Store;

impl Store {
    /// Opens for reading; `None` where there is no store yet. Makes nothing.
    ///
    /// # Errors
    /// The cache folder is no folder or is another user's, or the secret cannot be trusted. What is wrong with the
    /// database itself comes later, as [`crate::model::evidence::Found::damage`].
    pub fn open_reader(paths: &StorePaths) -> Result<Option<Reader>, StoreError> {
        if !owned_folder(&paths.cache)? {
            return Ok(None);
        }
        Reader::open(paths)
    }

    /// Whether the cache folder is this user's own, or not there yet, so that what lies in it can be believed.
    #[must_use]
    pub fn is_own_or_absent(paths: &StorePaths) -> bool {
        owned_folder(&paths.cache).is_ok()
    }

    /// Opens for writing, and makes folders, secret and database where they are missing.
    ///
    /// # Errors
    /// As for reading; or something cannot be made.
    pub fn open_writer(paths: &StorePaths) -> Result<Writer, StoreError> {
        make_folder(&paths.cache)?;
        owned_folder(&paths.cache)?;
        make_folder(&paths.records())?;
        Writer::open(paths)
    }
}

/// Whether the folder is there; that it is a file or somebody else's is an error.
fn owned_folder(path: &Path) -> Result<bool, StoreError> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        // A part of the path before the last one is a file.
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            return Err(StoreError::NotAFolder { path: path.to_owned() });
        }
        Err(source) => return Err(StoreError::File { what: "look at", path: path.to_owned(), source }),
    };
    if !metadata.is_dir() {
        return Err(StoreError::NotAFolder { path: path.to_owned() });
    }
    let user = rustix::process::geteuid().as_raw();
    if metadata.uid() == user {
        return Ok(true);
    }
    Err(StoreError::OtherOwner { path: path.to_owned(), owner: metadata.uid(), user })
}

/// Makes a folder for this user alone, and those above it that are missing.
fn make_folder(path: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| match source.kind() {
        std::io::ErrorKind::AlreadyExists | std::io::ErrorKind::NotADirectory => {
            StoreError::NotAFolder { path: path.to_owned() }
        }
        _ => StoreError::File { what: "make", path: path.to_owned(), source },
    })
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_damage;
