//! The folder of logs: where each lies, what there is, removing. Which ones to remove is not decided here.
#![forbid(unsafe_code)]

use crate::logs::LogError;
use crate::model::digest::Digest;
use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How the names of unfinished logs begin.
pub(super) const TEMPORARY: &str = "tmp-";

/// A log on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogFile {
    /// What it is named by.
    pub digest: Digest,
    /// Space that it takes on disk, in bytes.
    pub bytes: u64,
    /// When it was written, in seconds since 1970.
    pub modified: i64,
}

/// All logs of a folder, in no order.
pub type Inventory = Vec<LogFile>;

/// Where the log of that digest lies.
pub(super) fn place(dir: &Path, digest: &Digest) -> PathBuf {
    let hex = digest.hex();
    dir.join(&hex[..2]).join(format!("{hex}.lz4"))
}

/// Makes a folder for this user alone, and those above it that are missing.
pub(super) fn make(dir: &Path) -> Result<(), LogError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|source| LogError::File {
        what: "make",
        path: dir.to_owned(),
        source,
    })
}

/// Lists the logs in `dir`.
///
/// # Errors
/// A folder cannot be read; that `dir` does not exist is no error.
pub fn inventory(dir: &Path) -> Result<Inventory, LogError> {
    let mut logs = Vec::new();
    for (path, metadata) in list(dir)? {
        if !metadata.is_dir() {
            continue;
        }
        for (path, metadata) in list(&path)? {
            let digest =
                path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".lz4"));
            if let Some(digest) = digest.and_then(Digest::parse) {
                // st_blocks counts units of 512 bytes (stat(2)).
                let bytes = metadata.blocks().saturating_mul(512);
                logs.push(LogFile { digest, bytes, modified: metadata.mtime() });
            }
        }
    }
    Ok(logs)
}

/// Removes a log; that it is gone already is no error.
///
/// # Errors
/// It cannot be removed.
pub fn remove(dir: &Path, digest: &Digest) -> Result<(), LogError> {
    let path = place(dir, digest);
    match std::fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(LogError::File { what: "remove", path, source })
        }
        _ => Ok(()),
    }
}

/// Removes unfinished logs whose writers were killed, and says how many.
///
/// # Errors
/// The folder cannot be read.
pub fn sweep(dir: &Path) -> Result<u64, LogError> {
    let mut removed = 0;
    for (path, _) in list(dir)? {
        let is_temporary =
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(TEMPORARY.as_bytes()));
        // Its writer holds a lock on it; one that can be locked has none any more.
        let dead = is_temporary
            && File::open(&path).is_ok_and(|file| {
                flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
                    && std::fs::remove_file(&path).is_ok()
            });
        removed += u64::from(dead);
    }
    Ok(removed)
}

fn list(dir: &Path) -> Result<Vec<(PathBuf, Metadata)>, LogError> {
    let failed = |source| LogError::File { what: "read", path: dir.to_owned(), source };
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        // Gone between the two calls is gone.
        if let Ok(metadata) = entry.metadata() {
            found.push((entry.path(), metadata));
        }
    }
    Ok(found)
}
