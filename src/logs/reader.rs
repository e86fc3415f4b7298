//! Reads a kept log back, frame by frame.
#![forbid(unsafe_code)]

use crate::logs::{FRAME, LogError, folder, stream_of};
use crate::model::digest::Digest;
use crate::model::event::Stream;
use lz4_flex::frame::FrameDecoder;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

/// An open log.
#[derive(Debug)]
pub struct LogReader {
    path: PathBuf,
    digest: Digest,
    decoder: FrameDecoder<BufReader<File>>,
}

impl LogReader {
    /// Opens the log of that digest in `dir`; `None` where there is none, which is no fault: logs are removed to make
    /// room while their records still answer.
    ///
    /// # Errors
    /// It is there and cannot be opened.
    pub fn open(dir: &Path, digest: &Digest) -> Result<Option<Self>, LogError> {
        let path = folder::place(dir, digest);
        match File::open(&path) {
            Ok(file) => {
                Ok(Some(Self { path, digest: *digest, decoder: FrameDecoder::new(BufReader::new(file)) }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(LogError::File { what: "read", path, source }),
        }
    }

    /// Passes every frame on, in order, and gives the number of bytes passed on. Whether they are the right ones is
    /// known only at the end, since nothing larger than a frame is held.
    ///
    /// # Errors
    /// The file is damaged (then some of it may have been passed on already), cannot be read, or `take` failed.
    pub fn replay(mut self, take: &mut dyn FnMut(Stream, &[u8]) -> io::Result<()>) -> Result<u64, LogError> {
        let mut hasher = blake3::Hasher::new();
        let mut frame = vec![0_u8; FRAME];
        let mut bytes = 0_u64;
        loop {
            let mut head = [0_u8; 5];
            let read = self.fill(&mut head)?;
            if read == 0 {
                break;
            }
            let [byte, length @ ..] = head;
            let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
            let (Some(stream), true) = (stream_of(byte), read == head.len() && (1..=FRAME).contains(&length))
            else {
                return Err(self.damaged("a frame has no proper head"));
            };
            let body = &mut frame[..length];
            if self.fill(body)? != length {
                return Err(self.damaged("it ends within a frame"));
            }
            hasher.update(&head);
            hasher.update(body);
            bytes = bytes.saturating_add(length as u64);
            take(stream, body).map_err(LogError::Sink)?;
        }
        if Digest(*hasher.finalize().as_bytes()) == self.digest {
            return Ok(bytes);
        }
        Err(self.damaged("its content does not match its name"))
    }

    /// Reads until the buffer is full or the log ends.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, LogError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.decoder.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Errors of the kernel have a number; all others are the decoder's own.
                Err(source) if source.raw_os_error().is_some() => {
                    return Err(LogError::File { what: "read", path: self.path.clone(), source });
                }
                Err(error) => return Err(self.damaged(&error.to_string())),
            }
        }
        Ok(filled)
    }

    fn damaged(&self, why: &str) -> LogError {
        LogError::Damaged { path: self.path.clone(), why: why.to_owned() }
    }
}
