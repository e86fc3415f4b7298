//! The index, and the tracked files of the working tree as they stand. What is tracked is decided by the index alone;
//! untracked files are found in `untracked`. Reads the index and the files, writes nothing.
#![forbid(unsafe_code)]

use crate::tree::descent::{Descent, is_gone, open_root, split};
use crate::tree::error::{TreeError, below, detail, show};
use crate::tree::kept::Keeper;
use crate::tree::patch::Differences;
use crate::tree::{EntryKind, untracked};
use gix::index::entry::{Flags, Mode, Stat, stat};
use rustix::fd::{AsFd as _, BorrowedFd};
use rustix::fs::{AtFlags, FileType, OFlags, openat, readlinkat, statat};
use rustix::io::Errno;
use std::fs::File;
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Index entries that one thread looks after at least; below that a thread costs more than it saves.
const SHARE: usize = 1000;

/// An index and what differs from it.
pub(super) type Differing = (gix::worktree::Index, Differences);

/// The index as `git write-tree` takes it: entries that were only announced (`git add -N`) are left out.
pub(super) fn index(repository: &gix::Repository) -> Result<Differing, TreeError> {
    if repository.workdir().is_none() {
        return Err(TreeError::Bare(repository.git_dir().to_owned()));
    }
    let index = read_index(repository)?;
    let announced = |entry: &&gix::index::Entry| entry.flags.contains(Flags::INTENT_TO_ADD);
    let left_out =
        index.entries().iter().filter(announced).map(|entry| (entry.path(&index).to_vec(), None)).collect();
    Ok((index, left_out))
}

/// The working tree as `git add -A` would take it.
pub(super) fn working_tree(
    repository: &gix::Repository,
    keeper: &Keeper<'_>,
) -> Result<Differing, TreeError> {
    let Some(workdir) = repository.workdir() else {
        return Err(TreeError::Bare(repository.git_dir().to_owned()));
    };
    let index = read_index(repository)?;
    let root = open_root(workdir).map_err(|error| TreeError::io("open", workdir, error))?;
    let rules = Rules::new(repository)?;
    let scan = Scan { root: root.as_fd(), workdir, index: &index, keeper, rules };
    let new = || untracked::leaves(repository, root.as_fd(), workdir, &index, keeper);
    let (mut differences, new) = if index.entries().len() <= SHARE {
        (scan.part(index.entries())?, new()?)
    } else {
        // The folders are walked on this thread while others look at the files.
        std::thread::scope(|scope| {
            let tracked = scope.spawn(|| scan.tracked());
            let new = new();
            match tracked.join() {
                Ok(tracked) => Ok((tracked?, new?)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })?
    };
    for leaf in new {
        // What is new where a tracked thing of another kind was comes on top of its being gone.
        if let Some(Some(_)) = differences.insert(leaf.path.clone(), Some((leaf.kind, leaf.id))) {
            return Err(TreeError::hostile(&leaf.path, "it is there twice"));
        }
    }
    Ok((index, differences))
}

fn read_index(repository: &gix::Repository) -> Result<gix::worktree::Index, TreeError> {
    let index = repository
        .index_or_empty()
        .map_err(|error| TreeError::Index { path: repository.index_path(), detail: detail(&error) })?;
    match index.entries().iter().find(|entry| entry.stage_raw() != 0) {
        Some(entry) => Err(TreeError::Conflict(show(entry.path(&index)))),
        None => Ok(index),
    }
}

/// What an entry of the index is.
pub(super) fn indexed_kind(entry: &gix::index::Entry) -> EntryKind {
    match entry.mode {
        Mode::FILE_EXECUTABLE => EntryKind::Executable,
        Mode::SYMLINK => EntryKind::Symlink,
        Mode::COMMIT => EntryKind::Submodule,
        _ => EntryKind::File,
    }
}

/// How the repository's configuration wants files compared with the index.
struct Rules {
    stat: stat::Options,
    trusts_executable_bit: bool,
    has_symlinks: bool,
    /// In a sparse checkout, a file that is there although its entry says it is not counts as any other.
    sparse: bool,
}

impl Rules {
    fn new(repository: &gix::Repository) -> Result<Self, TreeError> {
        let failed = |error: gix::Error| TreeError::Open {
            start: repository.git_dir().to_owned(),
            detail: detail(&error),
        };
        let files = repository.filesystem_options().map_err(failed)?;
        let config = repository.config_snapshot();
        Ok(Self {
            stat: repository.stat_options().map_err(failed)?,
            trusts_executable_bit: files.executable_bit,
            has_symlinks: files.symlink,
            sparse: config.boolean("core.sparseCheckout").unwrap_or(false)
                && !config.boolean("sparse.expectFilesOutsideOfPatterns").unwrap_or(false),
        })
    }
}

/// What a tracked file is found to be.
enum Stands {
    AsIndexed,
    Gone,
    Otherwise(EntryKind, gix::ObjectId),
}

impl Stands {
    fn of(entry: &gix::index::Entry, kind: EntryKind, id: gix::ObjectId) -> Self {
        let announced = entry.flags.contains(Flags::INTENT_TO_ADD);
        if kind == indexed_kind(entry) && id == entry.id && !announced {
            Self::AsIndexed
        } else {
            Self::Otherwise(kind, id)
        }
    }
}

/// One look at all tracked files.
struct Scan<'a> {
    root: BorrowedFd<'a>,
    workdir: &'a Path,
    index: &'a gix::index::State,
    keeper: &'a Keeper<'a>,
    rules: Rules,
}

impl Scan<'_> {
    /// Looks at the files in parts, each taken by the next thread that is free.
    fn tracked(&self) -> Result<Differences, TreeError> {
        let entries = self.index.entries();
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(4);
        let next = AtomicUsize::new(0);
        let share = || {
            let mut differences = Differences::new();
            loop {
                let start = next.fetch_add(SHARE, Ordering::Relaxed);
                let Some(rest) = entries.get(start..).filter(|rest| !rest.is_empty()) else { break };
                differences.append(&mut self.part(&rest[..rest.len().min(SHARE)])?);
            }
            Ok(differences)
        };
        std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(share)).collect();
            let mut differences = Differences::new();
            let mut failure = None;
            // Every thread is joined, also after a failure: the caller may fork later.
            for thread in running {
                match thread.join() {
                    Ok(Ok(mut part)) => differences.append(&mut part),
                    Ok(Err(error)) => failure = failure.or(Some(error)),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            failure.map_or(Ok(differences), Err)
        })
    }

    fn part(&self, entries: &[gix::index::Entry]) -> Result<Differences, TreeError> {
        let mut descent = Descent::new(self.root);
        let mut differences = Differences::new();
        for entry in entries.iter().filter(|entry| entry.mode != Mode::DIR) {
            match self.entry(&mut descent, entry)? {
                Stands::AsIndexed => {}
                Stands::Gone => differences.extend([(entry.path(self.index).to_vec(), None)]),
                Stands::Otherwise(kind, id) => {
                    differences.extend([(entry.path(self.index).to_vec(), Some((kind, id)))]);
                }
            }
        }
        Ok(differences)
    }

    /// How the entry stands on disk.
    fn entry(&self, descent: &mut Descent<'_>, entry: &gix::index::Entry) -> Result<Stands, TreeError> {
        let path: &[u8] = entry.path(self.index);
        let stands = entry.flags.contains(Flags::ASSUME_VALID);
        let skipped = entry.flags.contains(Flags::SKIP_WORKTREE);
        if stands || (skipped && !self.rules.sparse) {
            return Ok(Stands::AsIndexed);
        }
        let (folder, name) = split(path);
        let found = descent
            .folder(folder)
            .and_then(|folder| Ok((folder, statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?)));
        let (folder, found) = match found {
            Ok(found) => found,
            Err(error) if is_gone(error) => {
                return Ok(if skipped { Stands::AsIndexed } else { Stands::Gone });
            }
            Err(error) => return Err(TreeError::io("look at", below(self.workdir, path), error)),
        };
        let kind = match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory if entry.mode == Mode::COMMIT => return Ok(Stands::AsIndexed),
            // The files of a folder that took a file's place are found as untracked ones.
            FileType::Directory => return Ok(Stands::Gone),
            FileType::RegularFile => self.kind(entry, found.st_mode),
            FileType::Symlink => EntryKind::Symlink,
            other => return Err(special(below(self.workdir, path), other)),
        };
        if entry.mode != Mode::COMMIT && self.is_unchanged(entry, kind, &found) {
            return Ok(Stands::of(entry, kind, entry.id));
        }
        let place = below(self.workdir, path);
        let is_link = FileType::from_raw_mode(found.st_mode) == FileType::Symlink;
        // An announced entry carries the id of the empty blob without vouching that it exists.
        let known = (!entry.flags.contains(Flags::INTENT_TO_ADD)).then_some(&*entry.id);
        let id = take(folder, name, is_link, self.keeper, &Taken { known, path, place: &place })?;
        Ok(id.map_or(Stands::Gone, |id| Stands::of(entry, kind, id)))
    }

    fn kind(&self, entry: &gix::index::Entry, mode: u32) -> EntryKind {
        match entry.mode {
            Mode::SYMLINK if !self.rules.has_symlinks => EntryKind::Symlink,
            Mode::FILE | Mode::FILE_EXECUTABLE if !self.rules.trusts_executable_bit => indexed_kind(entry),
            _ if self.rules.trusts_executable_bit => file_kind(mode),
            _ => EntryKind::File,
        }
    }

    /// Whether the index vouches that the file has not changed since its id was made, by git's own rules: the recorded
    /// state of the inode is the same and older than the index itself, so that no edit can hide in its time stamp.
    fn is_unchanged(&self, entry: &gix::index::Entry, kind: EntryKind, found: &rustix::fs::Stat) -> bool {
        let is_link = kind == EntryKind::Symlink;
        if entry.flags.contains(Flags::INTENT_TO_ADD) || is_link != (entry.mode == Mode::SYMLINK) {
            return false;
        }
        // git marks entries that it is unsure of by a size of zero.
        let is_unsure =
            entry.stat.size == 0 && entry.id != gix::ObjectId::empty_blob(self.index.object_hash());
        !is_unsure
            && entry.stat.matches(&stat_of(found), self.rules.stat)
            && !entry.stat.is_racy(self.index.timestamp(), self.rules.stat)
    }
}

/// The inode's state as an index records it: the low 32 bits of everything (gitformat-index(5)).
fn stat_of(found: &rustix::fs::Stat) -> Stat {
    let time = |secs: i64, nanos: i64| stat::Time { secs: low(secs), nsecs: low(nanos) };
    Stat {
        mtime: time(found.st_mtime, nanos(found.st_mtime_nsec)),
        ctime: time(found.st_ctime, nanos(found.st_ctime_nsec)),
        dev: low_unsigned(found.st_dev),
        ino: low_unsigned(found.st_ino),
        uid: found.st_uid,
        gid: found.st_gid,
        size: low(found.st_size),
    }
}

/// Nanoseconds are signed or not depending on the architecture, and always below a thousand million.
fn nanos(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(0)
}

fn low(value: i64) -> u32 {
    u32::try_from(value & 0xffff_ffff).unwrap_or(0)
}

fn low_unsigned(value: u64) -> u32 {
    u32::try_from(value & 0xffff_ffff).unwrap_or(0)
}

/// git looks at the owner's permission only.
pub(super) fn file_kind(mode: u32) -> EntryKind {
    if mode & 0o100 == 0 { EntryKind::File } else { EntryKind::Executable }
}

pub(super) fn special(path: std::path::PathBuf, kind: FileType) -> TreeError {
    let what = match kind {
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::BlockDevice => "a block device",
        FileType::CharacterDevice => "a character device",
        _ => "a special file",
    };
    TreeError::Special { path, what }
}

/// What is known of a file whose content is taken.
pub(super) struct Taken<'a> {
    pub(super) known: Option<&'a gix::oid>,
    pub(super) path: &'a [u8],
    pub(super) place: &'a Path,
}

/// Takes the content of a file, or the target of a link, and gives its id; `None` if it vanished a moment ago.
pub(super) fn take(
    folder: BorrowedFd<'_>,
    name: &[u8],
    is_link: bool,
    keeper: &Keeper<'_>,
    taken: &Taken<'_>,
) -> Result<Option<gix::ObjectId>, TreeError> {
    let failed = |error: Errno| TreeError::io("read", taken.place, error);
    if is_link {
        return match readlinkat(folder, name, Vec::new()) {
            Ok(target) => keeper.keep(target.into_bytes(), taken.known, taken.path).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(failed(error)),
        };
    }
    // Without waiting, so that a pipe that took the file's place a moment ago does not hold us up.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match openat(folder, name, flags, rustix::fs::Mode::empty()) {
        Ok(fd) => keeper.keep_file(&mut File::from(fd), taken.known, taken.path, taken.place).map(Some),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}
