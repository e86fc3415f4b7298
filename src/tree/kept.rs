//! Bytes of files that are in no object store: hashed and kept once, when a snapshot is taken, so that later edits do not
//! matter. Small ones stay in memory up to a total, the rest goes to one unnamed file. Knows nothing of folders or modes.
#![forbid(unsafe_code)]

use crate::tree::error::{TreeError, show};
use gix::objs::Kind;
use rustix::fs::{Mode, OFlags};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Bytes kept in memory before further ones go to the file.
const MEMORY: u64 = 64 << 20;

/// Files larger than this go to the file at once.
const SMALL: u64 = 4 << 20;

/// What was kept, to be read by many.
#[derive(Debug, Default)]
pub(super) struct Kept {
    memory: HashMap<gix::ObjectId, Vec<u8>>,
    spans: HashMap<gix::ObjectId, (u64, u64)>,
    file: Option<File>,
    path: PathBuf,
}

impl Kept {
    /// Reads what was kept under `id`; `None` if nothing was.
    pub(super) fn read(&self, id: &gix::oid, buffer: &mut Vec<u8>) -> Option<Result<(), TreeError>> {
        if let Some(bytes) = self.memory.get(id) {
            buffer.clear();
            buffer.extend_from_slice(bytes);
            return Some(Ok(()));
        }
        let (start, length) = *self.spans.get(id)?;
        let file = self.file.as_ref()?;
        let Ok(length) = usize::try_from(length) else {
            return Some(Err(TreeError::TooLarge { path: id.to_string(), why: "larger than memory" }));
        };
        buffer.clear();
        buffer.resize(length, 0);
        let read = file.read_exact_at(buffer, start);
        Some(read.map_err(|error| TreeError::io("read what was kept in", &self.path, error)))
    }
}

/// Takes bytes in, from several threads.
#[derive(Debug)]
pub(super) struct Keeper<'a> {
    hash: gix::hash::Kind,
    scratch: &'a Path,
    memory_limit: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    kept: Kept,
    in_memory: u64,
    end: u64,
}

impl<'a> Keeper<'a> {
    /// `scratch` is the folder for the unnamed file; it is touched only once that is needed.
    pub(super) fn new(hash: gix::hash::Kind, scratch: &'a Path) -> Self {
        Self { hash, scratch, memory_limit: MEMORY, state: Mutex::default() }
    }

    /// Ends the taking in.
    pub(super) fn finish(self) -> Kept {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).kept
    }

    /// Keeps `bytes` as a blob and gives its id. What turns out to be `known` is in the object store and not kept.
    pub(super) fn keep(
        &self,
        bytes: Vec<u8>,
        known: Option<&gix::oid>,
        path: &[u8],
    ) -> Result<gix::ObjectId, TreeError> {
        let id = gix::objs::compute_hash(self.hash, Kind::Blob, &bytes)
            .map_err(|_| TreeError::Collision { path: show(path) })?;
        if known == Some(&*id) {
            return Ok(id);
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.kept.memory.contains_key(&id) || state.kept.spans.contains_key(&id) {
            return Ok(id);
        }
        let length = size(bytes.len());
        if state.in_memory + length <= self.memory_limit {
            state.in_memory += length;
            state.kept.memory.insert(id, bytes);
        } else {
            let start = state.end;
            self.write(&mut state, &bytes)?;
            state.kept.spans.insert(id, (start, length));
        }
        Ok(id)
    }

    /// Keeps what `file` holds from here to its end, as [`Keeper::keep`] does; `place` is where it is on disk.
    pub(super) fn keep_file(
        &self,
        file: &mut File,
        known: Option<&gix::oid>,
        path: &[u8],
        place: &Path,
    ) -> Result<gix::ObjectId, TreeError> {
        let failed = |error| TreeError::io("read", place, error);
        let mut bytes = Vec::new();
        let length = file.metadata().map_err(failed)?.len();
        bytes.reserve_exact(usize::try_from(length.min(SMALL)).unwrap_or(0) + 1);
        file.take(SMALL + 1).read_to_end(&mut bytes).map_err(failed)?;
        if size(bytes.len()) <= SMALL {
            bytes.shrink_to_fit();
            return self.keep(bytes, known, path);
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let start = state.end;
        while !bytes.is_empty() {
            self.write(&mut state, &bytes)?;
            bytes.clear();
            file.take(SMALL).read_to_end(&mut bytes).map_err(failed)?;
        }
        // The length is part of what is hashed and only now known for sure, so it is hashed from the copy.
        let length = state.end - start;
        let id = self.hash_span(&state, start, length, path)?;
        if known == Some(&*id) || state.kept.spans.contains_key(&id) {
            state.end = start;
        } else {
            state.kept.spans.insert(id, (start, length));
        }
        Ok(id)
    }

    fn write(&self, state: &mut State, bytes: &[u8]) -> Result<(), TreeError> {
        if state.kept.file.is_none() {
            state.kept.file = Some(unnamed_file(self.scratch)?);
            self.scratch.clone_into(&mut state.kept.path);
        }
        if let Some(file) = &state.kept.file {
            file.write_all_at(bytes, state.end)
                .map_err(|error| TreeError::io("keep file content in", self.scratch, error))?;
        }
        state.end += size(bytes.len());
        Ok(())
    }

    fn hash_span(
        &self,
        state: &State,
        start: u64,
        length: u64,
        path: &[u8],
    ) -> Result<gix::ObjectId, TreeError> {
        let mut hasher = gix::hash::hasher(self.hash);
        hasher.update(&gix::objs::encode::loose_header(Kind::Blob, length));
        let mut buffer = vec![0; usize::try_from(SMALL.min(length)).unwrap_or(0)];
        let mut done = 0;
        while done < length {
            let now = usize::try_from((length - done).min(size(buffer.len()))).unwrap_or(buffer.len());
            if let Some(file) = &state.kept.file {
                file.read_exact_at(&mut buffer[..now], start + done)
                    .map_err(|error| TreeError::io("read what was kept in", self.scratch, error))?;
            }
            hasher.update(&buffer[..now]);
            done += size(now);
        }
        hasher.try_finalize().map_err(|_| TreeError::Collision { path: show(path) })
    }
}

fn size(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// A file without a name in `folder`: it vanishes with its last descriptor, however the process ends.
fn unnamed_file(folder: &Path) -> Result<File, TreeError> {
    let failed = |error| TreeError::io("make a temporary file in", folder, error);
    std::fs::create_dir_all(folder).map_err(failed)?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR) {
        Ok(fd) => Ok(File::from(fd)),
        // Some file systems have no unnamed files (open(2), O_TMPFILE): take a name and give it up at once.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR | rustix::io::Errno::INVAL) => {
            let path = folder.join(format!(".kept-{}", std::process::id()));
            let file = File::options().read(true).write(true).create_new(true).open(&path).map_err(failed)?;
            std::fs::remove_file(&path).map_err(failed)?;
            Ok(file)
        }
        Err(error) => Err(failed(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_into_memory_is_read_back_from_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = dir.path().join("scratch");
        let mut keeper = Keeper::new(gix::hash::Kind::Sha1, &scratch);
        keeper.memory_limit = 10;
        let first = keeper.keep(b"12345678".to_vec(), None, b"a").unwrap();
        assert!(!scratch.exists());
        let second = keeper.keep(b"abcdefgh".to_vec(), None, b"b").unwrap();
        let large: Vec<u8> = (0..=u8::MAX).cycle().take(usize::try_from(2 * SMALL + 17).unwrap()).collect();
        let place = dir.path().join("large");
        std::fs::write(&place, &large).unwrap();
        let third = keeper.keep_file(&mut File::open(&place).unwrap(), None, b"c", &place).unwrap();
        assert_eq!(third, gix::objs::compute_hash(gix::hash::Kind::Sha1, Kind::Blob, &large).unwrap());
        assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0, "the file has no name");
        let kept = keeper.finish();
        let mut buffer = Vec::new();
        for (id, bytes) in [(first, &b"12345678"[..]), (second, b"abcdefgh"), (third, &large)] {
            kept.read(&id, &mut buffer).unwrap().unwrap();
            assert!(buffer == bytes, "{id}");
        }
        assert!(kept.read(&gix::hash::Kind::Sha1.null(), &mut buffer).is_none());
    }

    #[test]
    fn what_the_repository_has_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let keeper = Keeper::new(gix::hash::Kind::Sha1, dir.path());
        let id = gix::objs::compute_hash(gix::hash::Kind::Sha1, Kind::Blob, b"x").unwrap();
        assert_eq!(keeper.keep(b"x".to_vec(), Some(&id), b"a").unwrap(), id);
        assert!(keeper.finish().read(&id, &mut Vec::new()).is_none());
    }
}
