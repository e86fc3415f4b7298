//! The two standard streams, written without ever failing the check: a reader that has gone away is no error, other
//! trouble is kept for the end. What is written is decided elsewhere in `report`.
#![forbid(unsafe_code)]

use crate::model::event::Stream;
use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

/// How long to wait before writing again to a pipe that is full and was made non-blocking by whoever shares it.
const FULL_PIPE_PAUSE: Duration = Duration::from_millis(2);

/// One stream.
struct Out {
    writer: Box<dyn Write + Send>,
    /// Nobody reads it any more, or it cannot be written.
    closed: bool,
    /// The last byte written was a newline, or nothing was written.
    at_line_start: bool,
}

impl Out {
    fn new(writer: Box<dyn Write + Send>) -> Self {
        Self { writer, closed: false, at_line_start: true }
    }

    /// Writes all bytes at once; gives the error that is worth telling.
    fn put(&mut self, mut bytes: &[u8]) -> Option<io::Error> {
        if let Some(last) = bytes.last() {
            self.at_line_start = *last == b'\n';
        }
        while !self.closed && !bytes.is_empty() {
            match self.writer.write(bytes) {
                Ok(0) => return self.close(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) => {
                    if let Some(error) = self.setback(error) {
                        return Some(error);
                    }
                }
            }
        }
        while !self.closed {
            match self.writer.flush() {
                Ok(()) => break,
                Err(error) => {
                    if let Some(error) = self.setback(error) {
                        return Some(error);
                    }
                }
            }
        }
        None
    }

    /// Decides about one failed write: to try again, to be silent for good, or to tell.
    fn setback(&mut self, error: io::Error) -> Option<io::Error> {
        match error.kind() {
            io::ErrorKind::Interrupted => None,
            io::ErrorKind::WouldBlock => {
                std::thread::sleep(FULL_PIPE_PAUSE);
                None
            }
            _ => self.close(error),
        }
    }

    fn close(&mut self, error: io::Error) -> Option<io::Error> {
        self.closed = true;
        (error.kind() != io::ErrorKind::BrokenPipe).then_some(error)
    }
}

/// Where everything is printed.
pub struct Streams {
    stdout: Out,
    stderr: Out,
    trouble: Option<io::Error>,
    one_terminal: bool,
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams")
            .field("stdout_closed", &self.stdout.closed)
            .field("stderr_closed", &self.stderr.closed)
            .finish_non_exhaustive()
    }
}

impl Streams {
    /// The process's own.
    #[must_use]
    pub fn standard() -> Self {
        Self::new(Box::new(io::stdout()), Box::new(io::stderr()))
    }

    /// Any two.
    #[must_use]
    pub fn new(stdout: Box<dyn Write + Send>, stderr: Box<dyn Write + Send>) -> Self {
        Self { stdout: Out::new(stdout), stderr: Out::new(stderr), trouble: None, one_terminal: false }
    }

    /// Says that both end on one screen, so that either may leave the cursor within a line.
    pub(super) fn one_terminal(mut self, one_terminal: bool) -> Self {
        self.one_terminal = one_terminal;
        self
    }

    /// Takes the first error worth telling.
    pub(super) fn trouble(&mut self) -> Option<io::Error> {
        self.trouble.take()
    }

    /// Writes exact bytes.
    pub(super) fn put(&mut self, stream: Stream, bytes: &[u8]) {
        let trouble = match stream {
            Stream::Stdout => self.stdout.put(bytes),
            // stderr has nowhere to tell of its own trouble.
            Stream::Stderr => self.stderr.put(bytes).and(None),
        };
        self.trouble = self.trouble.take().or(trouble);
    }

    /// Writes lines of our own on stderr; where the check left a line unfinished, it is ended first.
    pub(super) fn message(&mut self, text: &str) {
        let unfinished = !self.stderr.at_line_start || (self.one_terminal && !self.stdout.at_line_start);
        let mut lines = String::with_capacity(text.len() + 2);
        if unfinished {
            lines.push('\n');
        }
        lines.push_str(text);
        if !text.ends_with('\n') {
            lines.push('\n');
        }
        self.put(Stream::Stderr, lines.as_bytes());
        if self.one_terminal {
            self.stdout.at_line_start = true;
        }
    }

    /// Writes lines of our own on stdout, where a line that the check left unfinished is ended first.
    pub(super) fn put_lines(&mut self, text: &str) {
        if !self.stdout.at_line_start {
            self.put(Stream::Stdout, b"\n");
        }
        self.put(Stream::Stdout, text.as_bytes());
    }

    /// Writes what will be erased again; it does not count as a line begun.
    pub(super) fn put_transient(&mut self, text: &str) {
        let before = self.stderr.at_line_start;
        self.put(Stream::Stderr, text.as_bytes());
        self.stderr.at_line_start = before;
    }
}
