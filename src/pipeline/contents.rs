//! Host files by sight and by content: what stat tells of one, and a digest of what is in it. Content is read once and
//! then known for as long as device, inode, size, mtime and ctime stay. Which files matter is not decided here.
#![forbid(unsafe_code)]

use crate::model::digest::Digest;
use crate::pipeline::hosts::Instant;
use crate::store::{FileStamp, Reader};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags};
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What opening one file counts for, in bytes of reading.
const OPENING: u64 = 32 << 10;
/// Longest extended attribute that is read, and longest list of their names.
const ATTRIBUTE_MAX: usize = 4096;

/// The time by which file systems stamp what happens now: that of the last tick.
pub(super) fn coarse_now() -> Instant {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec, now.tv_nsec)
}

/// What stat tells of a file or folder, links followed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    dev: u64,
    ino: u64,
    size: u64,
    mode: u16,
    owner: (u32, u32),
    links: u32,
    mtime: Instant,
    /// When content or inode last changed.
    pub(super) ctime: Instant,
    /// When it was made, where the file system knows.
    pub(super) born: Option<Instant>,
}

impl Look {
    /// Bytes of a stamp.
    pub(super) const STAMP: usize = 64;

    pub(super) fn is_folder(&self) -> bool {
        FileType::from_raw_mode(self.mode.into()) == FileType::Directory
    }

    /// Device, inode, size, mode, and the times of the last change of content and of inode.
    pub(super) fn stamp(&self) -> [u8; Self::STAMP] {
        let mut bytes = [0; Self::STAMP];
        let numbers = [self.dev, self.ino, self.size, u64::from(self.mode)].map(u64::to_le_bytes);
        let times = [self.mtime.0, self.mtime.1, self.ctime.0, self.ctime.1].map(i64::to_le_bytes);
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers.into_iter().chain(times)) {
            place.copy_from_slice(&number);
        }
        bytes
    }

    /// Whether all that a check is shown of a file but its content and its numbers is as in a stamp. A folder's size and
    /// times say nothing.
    pub(super) fn may_be_like(&self, stamp: &[u8], newest: Option<i64>) -> bool {
        let number = |index: usize| -> Option<i64> {
            stamp.get(index * 8..index * 8 + 8)?.try_into().ok().map(i64::from_le_bytes)
        };
        let instant = |index: usize| Some((number(index)?, number(index + 1)?));
        // Under a fixed clock all that is newer than the tree is shown as old as the tree.
        let shown = |time: Instant| match newest {
            Some(newest) if time.0 > newest => (newest, 0),
            _ => time,
        };
        let same = |now: Instant, before: Option<Instant>| before.map(shown) == Some(shown(now));
        if number(3) != Some(self.mode.into()) {
            return false;
        }
        self.is_folder()
            || (number(2) == i64::try_from(self.size).ok()
                && same(self.mtime, instant(4))
                && same(self.ctime, instant(6)))
    }

    /// What is at a path below an open folder. What a network file system has in memory does not do (`AT_STATX_DONT_SYNC`,
    /// statx(2)): it may be old.
    pub(super) fn from(above: BorrowedFd<'_>, path: &[u8]) -> rustix::io::Result<Self> {
        Ok(Self::of(&rustix::fs::statx(above, path, AtFlags::empty(), StatxFlags::BASIC_STATS)?))
    }

    /// What is to be told of something open.
    pub(super) fn of_open(file: &File) -> std::io::Result<Self> {
        let wanted = StatxFlags::BASIC_STATS;
        Ok(Self::of(&rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted)?))
    }

    /// What content is known by.
    pub(super) fn key(&self) -> FileStamp {
        let nanos = |time: Instant| time.0.saturating_mul(1_000_000_000).saturating_add(time.1);
        FileStamp {
            dev: self.dev,
            ino: self.ino,
            size: self.size,
            mtime_ns: nanos(self.mtime),
            ctime_ns: nanos(self.ctime),
        }
    }

    fn of(stat: &rustix::fs::Statx) -> Self {
        let instant = |time: rustix::fs::StatxTimestamp| (time.tv_sec, i64::from(time.tv_nsec));
        let knows_birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
        Self {
            dev: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            ino: stat.stx_ino,
            size: stat.stx_size,
            mode: stat.stx_mode,
            owner: (stat.stx_uid, stat.stx_gid),
            links: stat.stx_nlink,
            mtime: instant(stat.stx_mtime),
            ctime: instant(stat.stx_ctime),
            born: knows_birth.then(|| instant(stat.stx_btime)),
        }
    }
}

/// Looks at many paths; those beside each other, as sorted ones are, by way of the folder that they share.
#[derive(Default)]
pub(super) struct Looks {
    folder: Option<(PathBuf, Option<OwnedFd>)>,
}

impl Looks {
    /// What is at a path; `None` where nothing is, or it cannot be reached.
    pub(super) fn at(&mut self, path: &Path) -> Option<Look> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return rustix::fs::statx(CWD, path, AtFlags::empty(), wanted).ok().map(|stat| Look::of(&stat));
        };
        let (_, folder) = match self.folder.take() {
            Some(known) if known.0 == above => self.folder.insert(known),
            _ => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let opened = rustix::fs::open(above, flags, Mode::empty()).ok();
                self.folder.insert((above.to_owned(), opened))
            }
        };
        let stat = rustix::fs::statx(folder.as_ref()?, name, AtFlags::empty(), wanted);
        stat.ok().map(|stat| Look::of(&stat))
    }
}

/// Digests of what is in host files.
pub(super) struct Contents<'r> {
    reader: Option<&'r Reader>,
    known: HashMap<FileStamp, Digest>,
    /// Bytes that may still be read.
    left: u64,
    /// What was computed and is not in the store yet.
    pub(super) new: Vec<(FileStamp, Digest)>,
}

impl<'r> Contents<'r> {
    /// Reads at most so many bytes; what is known already costs nothing.
    pub(super) fn new(reader: Option<&'r Reader>, bytes: u64) -> Self {
        Self { reader, known: HashMap::new(), left: bytes, new: Vec::new() }
    }

    /// Asks the store for all of these in one go.
    pub(super) fn recall(&mut self, looks: &[Look]) {
        let Some(reader) = self.reader else { return };
        let files = looks.iter().filter(|look| !look.is_folder()).map(Look::key);
        let stamps: Vec<FileStamp> = files.filter(|stamp| !self.known.contains_key(stamp)).collect();
        for (stamp, digest) in stamps.iter().zip(reader.file_digests(&stamps)) {
            if let Some(digest) = digest {
                self.known.insert(*stamp, digest);
            }
        }
    }

    /// A digest of all that a check can see of a file but its numbers and times, or of the names in a folder; `None` where
    /// it is neither, cannot be read, changes meanwhile, or enough was read already.
    pub(super) fn likeness(&mut self, path: &Path, look: &Look) -> Option<Digest> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&look.mode.to_le_bytes());
        hasher.update(&look.owner.0.to_le_bytes());
        hasher.update(&look.owner.1.to_le_bytes());
        hasher.update(&attributes(path)?.0);
        match FileType::from_raw_mode(look.mode.into()) {
            FileType::Directory => hasher.update(&names(path)?.0),
            FileType::RegularFile => {
                hasher.update(&look.links.to_le_bytes());
                hasher.update(&self.content(path, look)?.0)
            }
            _ => return None,
        };
        Some(Digest(*hasher.finalize().as_bytes()))
    }

    fn content(&mut self, path: &Path, look: &Look) -> Option<Digest> {
        let key = look.key();
        if let Some(known) = self.known.get(&key) {
            return Some(*known);
        }
        let stored = self.reader.and_then(|reader| reader.file_digests(&[key]).first().copied().flatten());
        if let Some(stored) = stored {
            self.known.insert(key, stored);
            return Some(stored);
        }
        let cost = look.size.saturating_add(OPENING);
        self.left = self.left.checked_sub(cost)?;
        let before = coarse_now();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
        let is_it = |file: &File| Look::of_open(file).is_ok_and(|look| look.key() == key);
        if !is_it(&file) {
            return None;
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(&file).ok()?;
        // A change within the same tick would leave no trace in its times.
        if !is_it(&file) || look.ctime >= before {
            return None;
        }
        let digest = Digest(*hasher.finalize().as_bytes());
        self.known.insert(key, digest);
        self.new.push((key, digest));
        Some(digest)
    }
}

/// A digest of the names and kinds in a folder.
fn names(path: &Path) -> Option<Digest> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).ok()? {
        let entry = entry.ok()?;
        let kind = entry.file_type().ok()?;
        let letter = if kind.is_dir() {
            b'd'
        } else if kind.is_symlink() {
            b'l'
        } else if kind.is_file() {
            b'f'
        } else {
            b'o'
        };
        names.push((entry.file_name(), letter));
    }
    names.sort();
    let mut hasher = blake3::Hasher::new();
    for (name, letter) in names {
        hasher.update(&[letter]);
        hasher.update(name.as_bytes());
        hasher.update(&[0]);
    }
    Some(Digest(*hasher.finalize().as_bytes()))
}

/// A digest of the extended attributes of a file; `None` where they cannot be told.
fn attributes(path: &Path) -> Option<Digest> {
    let mut list = [0_u8; ATTRIBUTE_MAX];
    let length = match rustix::fs::listxattr(path, &mut list) {
        Ok(length) => length,
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(_) => return None,
    };
    let mut hasher = blake3::Hasher::new();
    for name in list.get(..length)?.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = [0_u8; ATTRIBUTE_MAX];
        let length = rustix::fs::getxattr(path, name, &mut value).ok()?;
        hasher.update(name);
        hasher.update(&[0]);
        hasher.update(&u64::try_from(length).ok()?.to_le_bytes());
        hasher.update(value.get(..length)?);
    }
    Some(Digest(*hasher.finalize().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_as_they_are_shown() {
        let look = |mtime, ctime| Look {
            dev: 1,
            ino: 2,
            size: 3,
            mode: 0o100_755,
            owner: (0, 0),
            links: 1,
            mtime: (mtime, 5),
            ctime: (ctime, 6),
            born: None,
        };
        let stamp = look(100, 200).stamp();
        assert_eq!(stamp.len(), Look::STAMP);
        assert!(look(100, 200).may_be_like(&stamp, None));
        assert!(!look(100, 201).may_be_like(&stamp, None));
        assert!(look(100, 201).may_be_like(&stamp, Some(150)));
        assert!(!look(120, 201).may_be_like(&stamp, Some(150)));
        assert!(look(120, 201).may_be_like(&stamp, Some(90)));
        assert!(!Look { size: 4, ..look(100, 200) }.may_be_like(&stamp, Some(0)));
        assert!(!Look { mode: 0o100_644, ..look(100, 200) }.may_be_like(&stamp, Some(0)));
    }
}
