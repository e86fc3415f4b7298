//! The whole output of a run, kept compressed beside its record: exact bytes, the two streams apart and in the order in
//! which they were read. The readable end of it is `tail`'s; which logs are kept for how long is the store's.
//!
//! A log is a sequence of frames (a stream byte, a length of four bytes, lowest first, that many bytes) in one LZ4
//! frame file, named by the BLAKE3 digest of the frames. A frame is cut only where the stream changes or 64 KiB are
//! full, never by the size of a read, so the same output gives the same digest.
#![forbid(unsafe_code)]

mod folder;
mod reader;
mod tail;
mod writer;

pub use folder::{Inventory, LogFile, inventory, remove, sweep};
pub use reader::LogReader;
pub use tail::Tail;
pub use writer::{Kept, LogWriter};

use crate::model::event::Stream;
use std::io;
use std::path::PathBuf;

/// Most bytes in one frame.
const FRAME: usize = 64 << 10;

/// What goes wrong with kept output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// A file or folder cannot be used.
    #[error("cannot {what} {path}: {source}")]
    File {
        /// What was tried: `write`, `read`, `make`…
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file does not hold what its name says.
    #[error("the kept output {path} is damaged: {why}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Whoever the output was replayed to does not take it.
    #[error("cannot pass the output on: {0}")]
    Sink(io::Error),
}

impl LogError {
    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::File { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some("make room on that file system, or run `checkrun gc`".to_owned())
            }
            Self::Damaged { .. } => {
                Some("`--refresh` runs the check again and keeps its output anew".to_owned())
            }
            Self::File { .. } | Self::Sink(_) => None,
        }
    }
}

const fn byte_of(stream: Stream) -> u8 {
    match stream {
        Stream::Stdout => 1,
        Stream::Stderr => 2,
    }
}

const fn stream_of(byte: u8) -> Option<Stream> {
    match byte {
        1 => Some(Stream::Stdout),
        2 => Some(Stream::Stderr),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
