//! Owns the program's standard streams: stdout carries data, stderr all else. Turns events and answers into text or
//! JSON and decides how, once, from what it is told about the surroundings. It never asks the flow for anything.
#![forbid(unsafe_code)]

mod answer;
mod file;
mod github;
mod html;
mod human;
mod json;
mod junit;
mod progress;
mod streams;
mod width;

#[cfg(test)]
mod tests;

pub use answer::{Answer, Circumstances};
pub use file::{ReportError, append, check_writable, write_atomically};
pub use github::summary;
pub use html::{Bar, Cell, Page, Row};
pub use human::{evidence_text, percent, seconds, table, verdict_line};
pub use junit::{Finding, TestCase, junit, junit_suite};
pub use progress::Progress;
pub use streams::Streams;
pub use width::{cut, sets_order};

use crate::model::event::{Event, Format, Sink, Stream};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;
use std::io;
use std::time::Duration;

/// What the program was started in, as far as it decides the form of the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Surroundings {
    /// stderr is a terminal.
    pub stderr_terminal: bool,
    /// stdout is a terminal.
    pub stdout_terminal: bool,
    /// How many columns stdout has, if it is a terminal that says so.
    pub stdout_columns: Option<u16>,
    /// How many columns stderr has, if it is a terminal that says so.
    pub stderr_columns: Option<u16>,
    /// The variable `CI` is set and not empty.
    pub ci: bool,
    /// The variable `TERM` is `dumb` or not set.
    pub dumb_terminal: bool,
    /// The variable `NO_COLOR` is set and not empty (no-color.org).
    pub no_color: bool,
}

/// What the user asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wishes {
    /// `--format`.
    pub format: Format,
    /// How much is said on stderr.
    pub loudness: Loudness,
    /// `--show-output`.
    pub show_output: bool,
}

/// How much is said on stderr.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Loudness {
    /// Warnings and errors only.
    Quiet,
    /// The verdict too.
    #[default]
    Normal,
    /// What it was made of too.
    Verbose,
}

/// How it is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Manner {
    /// A progress line on stderr.
    pub progress: bool,
    /// Colour on stderr.
    pub colour: bool,
    /// The check's stdout goes to our stdout and its stderr to our stderr.
    pub passthrough: bool,
    /// The check's output, both streams, goes to our stderr.
    pub output_on_stderr: bool,
}

/// Decides how things are shown.
///
/// | | progress | colour | passthrough | output on stderr |
/// |---|---|---|---|---|
/// | human | on a capable terminal outside CI, unless quiet | on a capable terminal without `NO_COLOR` | yes | no |
/// | github | the same | the same | yes, both streams to our stdout | no |
/// | json, jsonl | no | on a capable terminal without `NO_COLOR` | no | on `--show-output` |
#[must_use]
pub fn manner(surroundings: Surroundings, wishes: Wishes) -> Manner {
    let human = wishes.format.is_for_people();
    let terminal = surroundings.stderr_terminal && !surroundings.dumb_terminal;
    Manner {
        progress: human && terminal && !surroundings.ci && wishes.loudness > Loudness::Quiet,
        colour: terminal && !surroundings.no_color,
        passthrough: human,
        output_on_stderr: !human && wishes.show_output,
    }
}

/// Time since some fixed moment, by a clock that only goes forward.
pub type Elapsed = Box<dyn Fn() -> Duration + Send>;

/// Tells the user what happens.
#[derive(Debug)]
pub struct Reporter {
    wishes: Wishes,
    manner: Manner,
    surroundings: Surroundings,
    streams: Streams,
    progress: Progress,
    lines: json::Lines,
    /// What makes GitHub's runner take commands again, while it does not.
    hush: Option<String>,
}

impl Reporter {
    /// Makes one for the given streams; `elapsed` times the progress line.
    #[must_use]
    pub fn new(surroundings: Surroundings, wishes: Wishes, streams: Streams, elapsed: Elapsed) -> Self {
        let manner = manner(surroundings, wishes);
        Self {
            wishes,
            manner,
            surroundings,
            streams: streams.one_terminal(surroundings.stdout_terminal && surroundings.stderr_terminal),
            progress: Progress::new(manner.progress, elapsed),
            lines: json::Lines::default(),
            hush: None,
        }
    }

    /// Whether objects are asked for instead of text for people.
    #[must_use]
    pub fn is_json(&self) -> bool {
        !self.wishes.format.is_for_people()
    }

    /// The first error other than a closed pipe that writing met, if any: a full disk behind stdout, for instance.
    pub fn trouble(&mut self) -> Option<io::Error> {
        self.streams.trouble()
    }

    /// Gives the answer in the form asked for: the verdict line, or the result object.
    pub fn answer(&mut self, answer: &Answer) {
        self.clear_progress();
        if self.wishes.format == Format::Github {
            self.resume();
            self.streams.put_lines(&github::annotation(answer));
        }
        match self.wishes.format {
            Format::Human | Format::Github if self.wishes.loudness == Loudness::Quiet => {}
            Format::Human | Format::Github => {
                if self.wishes.loudness == Loudness::Verbose {
                    self.message(&human::particulars(answer));
                }
                self.message(&verdict_line(answer, self.manner.colour));
            }
            Format::Json => self.object(answer),
            Format::Jsonl => {
                let line = self.lines.result(answer);
                self.streams.put(Stream::Stdout, line.as_bytes());
            }
        }
    }

    /// Prints data that is text already, on stdout.
    pub fn data(&mut self, bytes: &[u8]) {
        self.clear_progress();
        self.streams.put(Stream::Stdout, bytes);
    }

    /// Prints one line of a list on stdout, cut where a terminal would break it.
    pub fn listed(&mut self, line: &str) {
        let line = format!("{}\n", cut(line, self.columns()));
        self.data(line.as_bytes());
    }

    /// How many columns there are for what is printed on stdout, where that is known.
    #[must_use]
    pub fn columns(&self) -> Option<u16> {
        self.surroundings.stdout_columns
    }

    /// Prints one JSON object on a line of its own, on stdout.
    pub fn object(&mut self, object: &impl Serialize) {
        let line = json::line(object);
        self.data(line.as_bytes());
    }

    /// Prints rows of a name and a text, the names in one column, on stdout.
    pub fn rows(&mut self, rows: &[(String, String)]) {
        self.data(table(rows).as_bytes());
    }

    /// Says why no answer can be given, with a hint where there is one.
    pub fn failure(&mut self, text: &str, hint: Option<&str>) {
        self.clear_progress();
        self.resume();
        self.message(&human::failure(text, hint, self.manner.colour));
    }

    /// Says on stderr what a person may want to know beforehand, unless less is wanted.
    pub fn note(&mut self, text: &str) {
        if self.wishes.loudness > Loudness::Quiet {
            self.clear_progress();
            self.message(&format!("checkrun: {text}"));
        }
    }

    /// Lets GitHub's runner take commands again, where it was told not to.
    fn resume(&mut self) {
        if let Some(token) = self.hush.take() {
            self.streams.put_lines(&github::resume(&token));
        }
    }

    /// Prints lines on stderr, starting on a fresh line.
    fn message(&mut self, text: &str) {
        self.streams.message(text);
    }

    fn clear_progress(&mut self) {
        if let Some(erase) = self.progress.erase() {
            self.streams.put_transient(erase);
        }
    }

    fn show_progress(&mut self, text: impl FnOnce() -> String) {
        // The line is erased as one; a part of it that was broken off would stay. Terminals differ in the last column.
        let columns = self.surroundings.stderr_columns.map(|columns| columns.saturating_sub(1));
        if let Some(line) = self.progress.line(|| cut(&text(), columns).into_owned()) {
            self.streams.put_transient(&line);
        }
    }

    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        self.clear_progress();
        if self.wishes.format == Format::Github {
            if self.hush.is_none() {
                let token = token();
                self.streams.put(Stream::Stdout, github::stop(&token).as_bytes());
                self.hush = Some(token);
            }
            // The runner reads both streams, and only within one is the order certain.
            self.streams.put(Stream::Stdout, bytes);
        } else if self.manner.passthrough {
            self.streams.put(stream, bytes);
        }
        if self.manner.output_on_stderr {
            self.streams.put(Stream::Stderr, bytes);
        }
    }

    /// Prints an event as a line of JSON, where these are asked for.
    fn event_line(&mut self, event: &Event<'_>) {
        if self.wishes.format != Format::Jsonl {
            return;
        }
        if let Some(line) = self.lines.event(event, self.wishes.show_output) {
            self.streams.put(Stream::Stdout, line.as_bytes());
        }
    }
}

/// A word that no check can know.
fn token() -> String {
    let mut bytes = [0_u8; 16];
    // Linux 3.17 has it, and every sandbox needs a newer one; a signal is no reason to give up.
    while rustix::io::retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty())).is_err() {}
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Sink for Reporter {
    fn event(&mut self, event: Event<'_>) {
        self.event_line(&event);
        match event {
            Event::Resolved { tree, key } => {
                if self.wishes.loudness == Loudness::Verbose {
                    self.clear_progress();
                    self.message(&human::resolved(tree, key));
                }
            }
            Event::Waiting { waited } => self.show_progress(|| human::waiting(waited)),
            Event::Staging { done, total } => self.show_progress(|| human::staging(done, total)),
            Event::Runs(so_far) => self.show_progress(|| human::runs(so_far)),
            Event::Started => self.clear_progress(),
            Event::Output(stream, bytes) => self.output(stream, bytes),
            Event::Results(_) | Event::Reached(_) => {}
            Event::Warning(text) => {
                self.clear_progress();
                self.message(&human::warning(text, self.manner.colour));
            }
        }
    }
}
