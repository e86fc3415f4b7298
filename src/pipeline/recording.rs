//! What is kept of the check's output while it runs, the tail, the whole log, and a copy in a file of the user's; and
//! how it is given again. Where it is shown is the sink's business.
#![forbid(unsafe_code)]

use crate::logs::{Kept, LogReader, LogWriter, Tail};
use crate::model::digest::Digest;
use crate::model::event::{Event, Sink, Stream};
use crate::model::evidence::Evidence;
use crate::pipeline::lacking::Lacking;
use crate::pipeline::{PipelineError, Surroundings};
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
    lacking: Lacking,
}

/// What was kept.
pub(super) struct Recorded {
    pub(super) tail: String,
    pub(super) kept: Kept,
    pub(super) summary: Summary,
    /// Whether it said that packages are missing, by the words of its runner.
    pub(super) lacks: bool,
}

impl<'a> Recording<'a> {
    pub(super) fn new(
        sink: &'a mut dyn Sink,
        (log, copy): (LogWriter, LogCopy),
        summary: Summary,
        lacking: Lacking,
    ) -> Self {
        Self { sink, log, copy, tail: Tail::new(), summary, lacking }
    }

    pub(super) fn finish(self) -> Result<Recorded, PipelineError> {
        self.copy.finish()?;
        let (kept, lacks) = (self.log.finish(), self.lacking.finish());
        Ok(Recorded { tail: self.tail.text(), kept, summary: self.summary, lacks })
    }
}

impl Sink for Recording<'_> {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Output(stream, bytes) = &event {
            self.tail.push(bytes);
            self.summary.push(*stream == Stream::Stderr, bytes);
            self.lacking.push(*stream == Stream::Stderr, bytes);
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

/// Gives the output of an earlier run again: the whole of it where it is kept, else its end.
pub(super) fn replay(
    evidence: &Evidence,
    around: &Surroundings,
    log: Option<PathBuf>,
    sink: &mut dyn Sink,
) -> Result<(), PipelineError> {
    let mut copy = LogCopy::create(log)?;
    // Of nothing there is nothing to read back.
    let digest = Digest::parse(&evidence.output_digest).filter(|_| evidence.output_bytes > 0);
    let reader = digest.and_then(|digest| LogReader::open(&around.store.logs(), &digest).transpose());
    let mut given = false;
    match reader {
        Some(Ok(reader)) => {
            let done = reader.replay(&mut |stream, bytes| {
                given = true;
                sink.event(Event::Output(stream, bytes));
                copy.write(bytes);
                Ok(())
            });
            if let Err(error) = done {
                sink.event(Event::Warning(&format!("the kept output is damaged: {error}")));
            }
        }
        Some(Err(error)) => sink.event(Event::Warning(&format!("the kept output cannot be read: {error}"))),
        None if evidence.output_bytes > 0 => {
            let text = "the kept output is gone; this is its end as recorded";
            sink.event(Event::Warning(text));
        }
        None => {}
    }
    if !given && evidence.output_bytes > 0 {
        sink.event(Event::Output(Stream::Stdout, evidence.tail.as_bytes()));
        copy.write(evidence.tail.as_bytes());
    }
    copy.finish()
}
