//! What is kept of the check's output while it runs: the tail, the whole log, and a copy in a file of the user's.
//! Where it is shown is the sink's business.
#![forbid(unsafe_code)]

use crate::logs::{Kept, LogWriter, Tail};
use crate::model::event::{Event, Sink, Stream};
use crate::pipeline::PipelineError;
use crate::summary::Summary;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

/// Passes events on and keeps the output.
pub(super) struct Recording<'a> {
    sink: &'a mut dyn Sink,
    log: LogWriter,
    copy: LogCopy,
    tail: Tail,
    summary: Summary,
}

/// What was kept.
pub(super) struct Recorded {
    pub(super) tail: String,
    pub(super) kept: Kept,
    pub(super) summary: Summary,
}

impl<'a> Recording<'a> {
    pub(super) fn new(sink: &'a mut dyn Sink, log: LogWriter, copy: LogCopy, summary: Summary) -> Self {
        Self { sink, log, copy, tail: Tail::new(), summary }
    }

    pub(super) fn finish(self) -> Result<Recorded, PipelineError> {
        self.copy.finish()?;
        Ok(Recorded { tail: self.tail.text(), kept: self.log.finish(), summary: self.summary })
    }
}

impl Sink for Recording<'_> {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Output(stream, bytes) = &event {
            self.tail.push(bytes);
            self.summary.push(*stream == Stream::Stderr, bytes);
            self.copy.write(bytes);
            self.log.push(*stream, bytes);
        }
        self.sink.event(event);
    }
}

/// A file of the user's that gets the whole output.
pub(super) struct LogCopy {
    file: Option<(PathBuf, File)>,
    failure: Option<io::Error>,
}

impl LogCopy {
    pub(super) fn create(path: Option<PathBuf>) -> Result<Self, PipelineError> {
        let file = match path {
            None => None,
            Some(path) => match File::create(&path) {
                Ok(file) => Some((path, file)),
                Err(source) => return Err(PipelineError::Output { path, source }),
            },
        };
        Ok(Self { file, failure: None })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        if let (Some((_, file)), None) = (&mut self.file, &self.failure) {
            self.failure = file.write_all(bytes).err();
        }
    }

    pub(super) fn finish(self) -> Result<(), PipelineError> {
        match (self.file, self.failure) {
            (Some((path, _)), Some(source)) => Err(PipelineError::Output { path, source }),
            _ => Ok(()),
        }
    }
}
