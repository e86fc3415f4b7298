//! Writes a log while the check runs. Memory is flat whatever the check prints; a full disk ends the keeping, never the
//! run.
#![forbid(unsafe_code)]

use crate::logs::folder::{self, TEMPORARY};
use crate::logs::{FRAME, LogError, byte_of};
use crate::model::digest::Digest;
use crate::model::event::Stream;
use lz4_flex::frame::{BlockSize, FrameEncoder, FrameInfo};
use rustix::fs::{FlockOperation, flock};
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A log in the making. Dropped before [`LogWriter::finish`], it leaves nothing behind.
#[derive(Debug)]
pub struct LogWriter {
    dir: PathBuf,
    hasher: blake3::Hasher,
    bytes: u64,
    stream: Stream,
    pending: Vec<u8>,
    /// `None` once writing has failed; `failure` then says why.
    encoder: Option<FrameEncoder<Temporary>>,
    failure: Option<LogError>,
}

/// What became of a log.
#[derive(Debug)]
#[must_use]
pub struct Kept {
    /// Digest of its frames; the name under which it is kept. Right also where nothing was kept.
    pub digest: Digest,
    /// Bytes that the check printed, both streams together.
    pub bytes: u64,
    /// Why it was not kept, if it was not.
    pub failure: Option<LogError>,
}

impl LogWriter {
    /// Starts a log in `dir`, the folder of all logs, which is made if it is missing. Where that fails the writer
    /// still counts and digests; [`Kept::failure`] tells.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        let (encoder, failure) = match Temporary::new(dir) {
            Ok(file) => {
                let shape = FrameInfo::new().block_size(BlockSize::Max64KB);
                (Some(FrameEncoder::with_frame_info(shape, file)), None)
            }
            Err(error) => (None, Some(error)),
        };
        Self {
            dir: dir.to_owned(),
            hasher: blake3::Hasher::new(),
            bytes: 0,
            stream: Stream::Stdout,
            pending: Vec::with_capacity(FRAME),
            encoder,
            failure,
        }
    }

    /// A log that counts and digests, and keeps nothing.
    #[must_use]
    pub fn digest_only() -> Self {
        Self {
            dir: PathBuf::new(),
            hasher: blake3::Hasher::new(),
            bytes: 0,
            stream: Stream::Stdout,
            pending: Vec::with_capacity(FRAME),
            encoder: None,
            failure: None,
        }
    }

    /// Adds what was read from one of the check's streams.
    pub fn push(&mut self, stream: Stream, mut bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if stream != self.stream {
            self.cut();
            self.stream = stream;
        }
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(FRAME - self.pending.len()));
            self.pending.extend_from_slice(now);
            bytes = later;
            if self.pending.len() == FRAME {
                self.cut();
            }
        }
    }

    /// Ends the log and publishes it under its digest.
    pub fn finish(mut self) -> Kept {
        self.cut();
        let digest = Digest(*self.hasher.finalize().as_bytes());
        let failure = match self.encoder.take() {
            Some(encoder) => publish(encoder, &self.dir, &digest).err(),
            None => self.failure.take(),
        };
        Kept { digest, bytes: self.bytes, failure }
    }

    /// Makes a frame of what is pending.
    fn cut(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let mut head = [byte_of(self.stream), 0, 0, 0, 0];
        let length = u32::try_from(self.pending.len()).unwrap_or(u32::MAX);
        head[1..].copy_from_slice(&length.to_le_bytes());
        self.hasher.update(&head);
        self.hasher.update(&self.pending);
        if let Some(encoder) = &mut self.encoder {
            let written = encoder.write_all(&head).and_then(|()| encoder.write_all(&self.pending));
            if let Err(source) = written {
                let path = encoder.get_ref().path.clone();
                self.failure = Some(LogError::File { what: "write", path, source });
                // Dropping it removes the file, which gives the space back at once.
                self.encoder = None;
            }
        }
        self.pending.clear();
    }
}

fn publish(mut encoder: FrameEncoder<Temporary>, dir: &Path, digest: &Digest) -> Result<(), LogError> {
    let path = encoder.get_ref().path.clone();
    encoder.try_finish().map_err(|error| LogError::File {
        what: "write",
        path: path.clone(),
        source: error.into(),
    })?;
    let target = folder::place(dir, digest);
    if let Some(parent) = target.parent() {
        folder::make(parent)?;
    }
    // No fsync: after a crash the record answers without its log, and a torn log does not match its name.
    std::fs::rename(&path, &target).map_err(|source| LogError::File {
        what: "write",
        path: target,
        source,
    })?;
    encoder.get_mut().published = true;
    Ok(())
}

/// A file that is removed unless it was published. It is locked while it lives, so that a sweep can tell it from one
/// whose writer was killed.
#[derive(Debug)]
struct Temporary {
    file: File,
    path: PathBuf,
    published: bool,
}

impl Temporary {
    fn new(dir: &Path) -> Result<Self, LogError> {
        folder::make(dir)?;
        loop {
            let mut word = [0_u8; 8];
            let failed = |source: io::Error| LogError::File { what: "make", path: dir.to_owned(), source };
            getrandom(&mut word, GetRandomFlags::empty()).map_err(|errno| failed(errno.into()))?;
            let path = dir.join(format!("{TEMPORARY}{:016x}", u64::from_le_bytes(word)));
            let failed = |source| LogError::File { what: "make", path: path.clone(), source };
            let file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
            // A sweep may come between making and locking and take the file for a dead one: then make another. Where
            // there are no locks a sweep cannot lock either, and leaves it alone.
            let swept = matches!(flock(&file, FlockOperation::NonBlockingLockExclusive), Err(error) if error == rustix::io::Errno::WOULDBLOCK)
                || file.metadata().map_err(failed)?.nlink() == 0;
            if !swept {
                return Ok(Self { file, path, published: false });
            }
        }
    }
}

impl Write for Temporary {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.published {
            // What cannot be removed now is removed by the next sweep.
            std::fs::remove_file(&self.path).unwrap_or_default();
        }
    }
}
