//! Writes the entries of a tree into an empty folder: bytes, modes, links, owner and times. Folders are made first, then
//! files by several threads, then the times of folders, since each new entry changes them. Nothing here knows where the
//! folder goes afterwards.
#![forbid(unsafe_code)]

use crate::model::event::{Event, Sink};
use crate::stage::error::StageError;
use crate::tree::{BlobReader, Changes, Descent, Entry, EntryKind, Snapshot, show, split};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, chownat, fchmod, fchown, fstat,
    futimens, mkdirat, mknodat, openat, symlinkat, unlinkat, utimensat,
};
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

/// The fewest and the most entries that a thread takes at a time. In a pack, an object is often told by how it differs from
/// that of the entry before, up to fifty times over; who begins in the middle has to read all of these first.
const BATCH: (usize, usize) = (64, 1024);

const FILE: Mode = Mode::from_raw_mode(0o644);
const EXECUTABLE: Mode = Mode::from_raw_mode(0o755);

/// The folder to write into and how everything in it is to look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work<'a> {
    pub(super) root: BorrowedFd<'a>,
    pub(super) path: &'a Path,
    pub(super) mtime: i64,
    pub(super) owner: Option<(u32, u32)>,
}

/// What a layer holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Size {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

impl Size {
    fn add(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

/// Writes all entries of `changes` and a whiteout for all that is gone.
pub(super) fn write(
    snapshot: &Snapshot,
    changes: &Changes,
    work: &Work<'_>,
    sink: &mut dyn Sink,
) -> Result<Size, StageError> {
    let is_folder = |entry: &&Entry| matches!(entry.kind, EntryKind::Folder | EntryKind::Submodule);
    let entries = &changes.entries;
    let folders: Vec<&Entry> = entries.iter().filter(is_folder).collect();
    let files: Vec<&Entry> = entries.iter().filter(|entry| !is_folder(entry)).collect();
    let mut writer = Writer::new(work, snapshot.reader())?;
    for folder in &folders {
        writer.folder(folder)?;
    }
    for path in &changes.gone {
        writer.whiteout(path)?;
    }
    let size = write_files(snapshot, &files, &mut writer, sink)?;
    for folder in &folders {
        writer.finish_folder(&folder.path)?;
    }
    writer.finish_folder(b"")?;
    Ok(size)
}

fn write_files(
    snapshot: &Snapshot,
    files: &[&Entry],
    writer: &mut Writer<'_>,
    sink: &mut dyn Sink,
) -> Result<Size, StageError> {
    let total = u64::try_from(files.len()).unwrap_or(u64::MAX);
    if files.len() <= BATCH.0 {
        let size = writer.files(files)?;
        sink.event(Event::Staging { done: size.files, total });
        return Ok(size);
    }
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(4);
    // Several for each thread, so that none waits long for the others at the end.
    let batch = (files.len() / (threads * 8)).clamp(BATCH.0, BATCH.1);
    let next = AtomicUsize::new(0);
    let stopped = AtomicBool::new(false);
    let writers: Vec<Writer<'_>> = (0..threads).map(|_| writer.again(snapshot.reader())).collect();
    std::thread::scope(|scope| {
        let (done, finished) = mpsc::channel();
        let running: Vec<_> = writers
            .into_iter()
            .map(|mut writer| {
                let done = done.clone();
                let (next, stopped) = (&next, &stopped);
                scope.spawn(move || {
                    let result = share(&mut writer, files.chunks(batch), (next, stopped), &done);
                    if result.is_err() {
                        stopped.store(true, Ordering::Relaxed);
                    }
                    result
                })
            })
            .collect();
        drop(done);
        let size = gather(&finished, total, sink);
        let mut failure = None;
        // Joined one by one: the end of a scope waits for the work of its threads, not for the threads themselves.
        for thread in running {
            match thread.join() {
                Ok(result) => failure = failure.or(result.err()),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        failure.map_or(Ok(size), Err)
    })
}

/// One thread's part: batches until none is left.
fn share(
    writer: &mut Writer<'_>,
    batches: std::slice::Chunks<'_, &Entry>,
    (next, stopped): (&AtomicUsize, &AtomicBool),
    done: &mpsc::Sender<Size>,
) -> Result<(), StageError> {
    while !stopped.load(Ordering::Relaxed) {
        let Some(batch) = batches.clone().nth(next.fetch_add(1, Ordering::Relaxed)) else { break };
        let size = writer.files(batch)?;
        // The receiver lives until all threads are joined.
        let _ = done.send(size);
    }
    Ok(())
}

/// Adds up what the threads have done until the last one has ended, and tells of it.
fn gather(finished: &mpsc::Receiver<Size>, total: u64, sink: &mut dyn Sink) -> Size {
    let mut size = Size::default();
    while let Ok(first) = finished.recv() {
        size.add(first);
        finished.try_iter().for_each(|more| size.add(more));
        sink.event(Event::Staging { done: size.files, total });
    }
    size
}

/// Writes entries below one folder.
struct Writer<'a> {
    work: Work<'a>,
    descent: Descent<'a>,
    reader: BlobReader,
    buffer: Vec<u8>,
    times: Timestamps,
    /// Whether the mode asked for at creation is not what files get: umask(2), or a default access list (acl(5)).
    sets_modes: bool,
}

impl<'a> Writer<'a> {
    fn new(work: &Work<'a>, reader: BlobReader) -> Result<Self, StageError> {
        let time = Timespec { tv_sec: work.mtime, tv_nsec: 0 };
        let mut writer = Self {
            work: *work,
            descent: Descent::new(work.root),
            reader,
            buffer: Vec::new(),
            times: Timestamps { last_access: time, last_modification: time },
            sets_modes: true,
        };
        fchmod(work.root, EXECUTABLE).map_err(|error| writer.failed("set the mode of", b"", error))?;
        writer.sets_modes = writer.finds_modes_changed()?;
        Ok(writer)
    }

    fn again(&self, reader: BlobReader) -> Self {
        Self {
            work: self.work,
            descent: Descent::new(self.work.root),
            reader,
            buffer: Vec::new(),
            times: self.times.clone(),
            sets_modes: self.sets_modes,
        }
    }

    fn failed(&self, action: &'static str, path: &[u8], error: impl Into<std::io::Error>) -> StageError {
        StageError::entry(action, path, self.work.path, error)
    }

    fn finds_modes_changed(&self) -> Result<bool, StageError> {
        let name = c"probe";
        let failed = |error| self.failed("write", b"", error);
        let file = create(self.work.root, name.to_bytes(), EXECUTABLE).map_err(failed)?;
        let mode = fstat(&file).map_err(failed)?.st_mode;
        unlinkat(self.work.root, name, AtFlags::empty()).map_err(failed)?;
        Ok(Mode::from_raw_mode(mode) != EXECUTABLE)
    }

    fn folder(&mut self, entry: &Entry) -> Result<(), StageError> {
        let (parent, name) = split(&entry.path);
        let made = self.descent.folder(parent).and_then(|parent| mkdirat(parent, name, EXECUTABLE));
        made.map_err(|error| self.failed("make the folder", &entry.path, error))
    }

    /// Says that nothing is at `path`, whatever the layers below have there.
    fn whiteout(&mut self, path: &[u8]) -> Result<(), StageError> {
        let (parent, name) = split(path);
        let root = self.work.path;
        let made = self
            .descent
            .folder(parent)
            .and_then(|parent| mknodat(parent, name, FileType::CharacterDevice, Mode::empty(), 0));
        made.map_err(|error| StageError::Whiteout {
            path: show(path),
            root: root.to_owned(),
            source: error.into(),
        })
    }

    fn finish_folder(&mut self, path: &[u8]) -> Result<(), StageError> {
        let (sets_modes, owner, times) = (self.sets_modes, self.work.owner, self.times.clone());
        let finished = self.descent.folder(path).and_then(|folder| {
            if let Some((uid, gid)) = owner {
                fchown(folder, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
            }
            if sets_modes {
                fchmod(folder, EXECUTABLE)?;
            }
            futimens(folder, &times)
        });
        finished.map_err(|error| self.failed("finish the folder", path, error))
    }

    fn files(&mut self, entries: &[&Entry]) -> Result<Size, StageError> {
        let mut size = Size::default();
        for entry in entries {
            let mut buffer = std::mem::take(&mut self.buffer);
            self.reader
                .read(&entry.id, &mut buffer)
                .map_err(|source| StageError::Content { path: show(&entry.path), source })?;
            match entry.kind {
                EntryKind::Symlink => self.link(entry, &buffer),
                EntryKind::Executable => self.file(entry, &buffer, EXECUTABLE),
                EntryKind::File | EntryKind::Folder | EntryKind::Submodule => self.file(entry, &buffer, FILE),
            }?;
            let length = if entry.kind == EntryKind::Symlink { 0 } else { buffer.len() };
            size.add(Size { files: 1, bytes: u64::try_from(length).unwrap_or(u64::MAX) });
            self.buffer = buffer;
        }
        Ok(size)
    }

    fn file(&mut self, entry: &Entry, bytes: &[u8], mode: Mode) -> Result<(), StageError> {
        let (parent, name) = split(&entry.path);
        let (sets_modes, owner, times) = (self.sets_modes, self.work.owner, self.times.clone());
        let written = self.descent.folder(parent).and_then(|parent| {
            let file = create(parent, name, mode)?;
            write_all(&file, bytes)?;
            if let Some((uid, gid)) = owner {
                fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
            }
            if sets_modes {
                fchmod(&file, mode)?;
            }
            futimens(&file, &times)
        });
        written.map_err(|error| self.failed("write", &entry.path, error))
    }

    fn link(&mut self, entry: &Entry, target: &[u8]) -> Result<(), StageError> {
        let (parent, name) = split(&entry.path);
        let (owner, times) = (self.work.owner, self.times.clone());
        let made = self.descent.folder(parent).and_then(|parent| {
            symlinkat(target, parent, name)?;
            if let Some((uid, gid)) = owner {
                let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
                chownat(parent, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)
        });
        made.map_err(|error| self.failed("make the link", &entry.path, error))
    }
}

/// Makes a file that is not there yet; what is there, a link above all, is never followed or overwritten.
fn create(folder: BorrowedFd<'_>, name: &[u8], mode: Mode) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(folder, name, flags, mode)
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(file.as_fd(), bytes))?;
        bytes = &bytes[written..];
    }
    Ok(())
}
