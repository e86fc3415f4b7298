//! Which layers are in use, and removing those that are not. What a layer holds is of no interest here.
#![forbid(unsafe_code)]

use crate::stage::StageError;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Bytes of layers that are kept where nothing else is asked: 8 GiB.
pub const LAYER_BYTES: u64 = 8 << 30;

/// Keeps a layer from being removed while it lives.
#[derive(Debug)]
#[must_use = "the layer may be removed once this is dropped"]
pub struct InUse {
    /// Held for its shared lock.
    _folder: OwnedFd,
}

/// Says that the layer at `path` is in use; `None` where it has just been removed. A mark for other processes of this
/// machine: a lock that the kernel takes back when its holder dies (flock(2)).
///
/// # Errors
/// The folder cannot be opened or locked.
pub fn in_use(path: &Path) -> Result<Option<InUse>, StageError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let folder = match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
        Ok(folder) => folder,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(StageError::of_io("open", path, error)),
    };
    match flock(&folder, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {}
        // Whoever removes layers holds it alone.
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(StageError::of_io("lock", path, error)),
    }
    let (ours, there) = (rustix::fs::fstat(&folder), rustix::fs::lstat(path));
    let same = matches!((ours, there), (Ok(a), Ok(b)) if a.st_ino == b.st_ino && a.st_dev == b.st_dev);
    // The time of the last use, for `remove_unused`; a layer on a full disk keeps its old one.
    let now = rustix::fs::Timestamps {
        last_access: rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
        last_modification: rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
    };
    let _ = rustix::fs::utimensat(CWD, meta_of(path), &now, rustix::fs::AtFlags::empty());
    Ok(same.then_some(InUse { _folder: folder }))
}

fn meta_of(layer: &Path) -> PathBuf {
    let mut name = layer.as_os_str().to_owned();
    name.push(".meta");
    PathBuf::from(name)
}

/// Removes layers that nothing uses, the one longest unused first, until those that are left hold at most `keep` bytes
/// of file content. Says how many went.
///
/// # Errors
/// `root` is there and cannot be listed.
pub fn remove_unused(root: &Path, keep: u64) -> Result<u64, StageError> {
    let listing = match fs::read_dir(root) {
        Ok(listing) => listing,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(StageError::of_io("list", root, error)),
    };
    let mut layers: Vec<(SystemTime, PathBuf, u64)> = Vec::new();
    for entry in listing.flatten() {
        let path = entry.path();
        let (Ok(text), Ok(meta)) = (fs::read_to_string(meta_of(&path)), fs::metadata(meta_of(&path))) else { continue };
        let bytes = crate::stage::place::bytes_of(&text).unwrap_or(0);
        layers.push((meta.modified().unwrap_or(SystemTime::UNIX_EPOCH), path, bytes));
    }
    layers.sort();
    let mut total: u64 = layers.iter().map(|(_, _, bytes)| bytes).sum();
    let mut removed = 0;
    for (_, path, bytes) in layers {
        if total <= keep {
            break;
        }
        if remove(&path) {
            total = total.saturating_sub(bytes);
            removed += 1;
        }
    }
    Ok(removed)
}

/// Removes one layer unless it is in use.
fn remove(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let Ok(folder) = rustix::fs::openat(CWD, path, flags, Mode::empty()) else { return false };
    if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_err() {
        return false;
    }
    // Without its meta file a layer is none, so one that is only half removed is never taken for whole.
    fs::remove_file(meta_of(path)).is_ok() && fs::remove_dir_all(path).is_ok()
}
