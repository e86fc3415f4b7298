//! Which layers are in use, and removing those that are not, as well as the remains of dead builders. What a layer holds is of no interest here.
#![forbid(unsafe_code)]

use crate::stage::StageError;
use crate::stage::place::{
    META_SUFFIX, NEW, base_of, beside, bytes_of, grave, is_at, lock_all, remove, remove_beside,
};
use crate::stage::removal::remove_folder;
use crate::tree::open_root;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, fstat};
use std::collections::{BTreeMap, BTreeSet, HashMap};
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
    folder: OwnedFd,
}

impl InUse {
    /// Whether it is of the very folder that is open here.
    #[must_use]
    pub fn is_of(&self, open: &impl AsFd) -> bool {
        matches!((fstat(&self.folder), fstat(open)), (Ok(a), Ok(b)) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
    }
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
    let (ours, there) = (fstat(&folder), rustix::fs::lstat(path));
    let same = matches!((ours, there), (Ok(a), Ok(b)) if a.st_ino == b.st_ino && a.st_dev == b.st_dev);
    // The time of the last use, for `remove_unused`; a layer on a full disk keeps its old one.
    let now = rustix::fs::Timestamps {
        last_access: rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
        last_modification: rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
    };
    let _ = rustix::fs::utimensat(CWD, meta_of(path), &now, rustix::fs::AtFlags::empty());
    Ok(same.then_some(InUse { folder }))
}

fn meta_of(layer: &Path) -> PathBuf {
    beside(layer, META_SUFFIX)
}

/// One layer as it is weighed for removal.
struct Weighed {
    used: SystemTime,
    bytes: u64,
    base: Option<PathBuf>,
}

/// Removes layers that nothing uses and nothing lies over, the one longest unused first, until those that are left hold
/// at most `keep` bytes of file content. Says how many went.
///
/// # Errors
/// `root` is there and cannot be listed or locked.
pub fn remove_unused(root: &Path, keep: u64) -> Result<u64, StageError> {
    if !root.exists() {
        return Ok(0);
    }
    // Nothing is published meanwhile, so nothing new comes to lie over what is removed. Deleting files takes long and
    // is done after the lock is gone.
    let all = lock_all(root)?;
    let layers = weigh(root)?;
    let mut carried: HashMap<&Path, u64> = HashMap::new();
    for base in layers.values().filter_map(|layer| layer.base.as_deref()) {
        *carried.entry(base).or_default() += 1;
    }
    let is_free = |path: &&PathBuf| !carried.contains_key(path.as_path());
    let mut free: BTreeSet<(SystemTime, &Path)> =
        layers.keys().filter(is_free).map(|path| (layers[path].used, path.as_path())).collect();
    let mut total: u64 = layers.values().map(|layer| layer.bytes).sum();
    let mut graves = Vec::new();
    while total > keep {
        let Some((_, path)) = free.pop_first() else { break };
        let Some(grave) = bury(root, path)? else { continue };
        graves.push(grave);
        let Some(layer) = layers.get(path) else { continue };
        total = total.saturating_sub(layer.bytes);
        let Some(base) = layer.base.as_deref() else { continue };
        let left = carried.entry(base).or_default();
        *left = left.saturating_sub(1);
        if let (0, Some(below)) = (*left, layers.get(base)) {
            free.insert((below.used, base));
        }
    }
    drop(all);
    let removed = graves.len();
    for (path, _lock) in graves {
        // What stays is found by a sweep.
        let _ = remove_folder(&path).is_ok();
    }
    Ok(u64::try_from(removed).unwrap_or(u64::MAX))
}

fn weigh(root: &Path) -> Result<BTreeMap<PathBuf, Weighed>, StageError> {
    let listing = fs::read_dir(root).map_err(|error| StageError::of_io("list", root, error))?;
    let mut layers = BTreeMap::new();
    for entry in listing.flatten() {
        let path = entry.path();
        let (Ok(text), Ok(meta)) = (fs::read_to_string(meta_of(&path)), fs::metadata(meta_of(&path))) else {
            continue;
        };
        let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let base = base_of(&text).map(|name| root.join(name));
        layers.insert(path, Weighed { used, bytes: bytes_of(&text).unwrap_or(0), base });
    }
    Ok(layers)
}

/// Takes one layer out of its place unless it is in use; gives where it is now, and the lock on it.
fn bury(root: &Path, path: &Path) -> Result<Option<(PathBuf, OwnedFd)>, StageError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let Ok(folder) = rustix::fs::openat(CWD, path, flags, Mode::empty()) else { return Ok(None) };
    if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    let grave = grave(root)?;
    // A rename replaces an empty folder, and the lock goes along with ours.
    if fs::rename(path, &grave).is_err() {
        let _ = fs::remove_dir(&grave).is_ok();
        return Ok(None);
    }
    remove_beside(path);
    Ok(Some((grave, folder)))
}

/// Removes what dead builders left behind in `root`, and says how many folders that were. Never waits: what a living
/// builder works on is passed over.
///
/// # Errors
/// `root` is there and cannot be listed.
pub fn sweep_stale(root: &Path) -> Result<u64, StageError> {
    let listing = match std::fs::read_dir(root) {
        Ok(listing) => listing,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(StageError::of_io("list", root, error)),
    };
    let mut swept = 0;
    for entry in listing {
        let entry = entry.map_err(|error| StageError::of_io("list", root, error))?;
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_folder || !entry.file_name().as_encoded_bytes().starts_with(NEW.as_bytes()) {
            continue;
        }
        let path = entry.path();
        let Ok(fd) = open_root(&path) else { continue };
        if flock(&fd, FlockOperation::NonBlockingLockExclusive).is_ok() && is_at(&fd, &path) {
            remove(&path);
            swept += 1;
        }
    }
    Ok(swept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::place::Builder;

    #[test]
    fn only_what_nobody_works_on_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("trees");
        assert_eq!(sweep_stale(&root).unwrap(), 0);
        let living = Builder::start(&root).unwrap();
        std::fs::create_dir_all(root.join(".new-1-0/a/b")).unwrap();
        std::fs::create_dir(root.join("layer")).unwrap();
        assert_eq!(sweep_stale(&root).unwrap(), 1);
        assert!(living.path().is_dir());
        assert!(root.join("layer").is_dir());
        drop(living);
        // A program that another test starts at this moment holds a copy of the lock until it is executed.
        let swept = (0..500).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            Some(sweep_stale(&root).unwrap()).filter(|swept| *swept > 0)
        });
        assert_eq!(swept, Some(1));
    }
}
