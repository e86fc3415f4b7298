//! What the flow tells the world while it goes on. Formatting is `report`'s.
#![forbid(unsafe_code)]

use crate::model::hosts::Reached;
use std::time::Duration;

/// In what form answers are given on stdout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// For people: the check's own output as it comes, one line of verdict on stderr.
    #[default]
    Human,
    /// One result object.
    Json,
    /// Events, one a line, then the result.
    Jsonl,
    /// For people who look at GitHub's pages: as `Human`, with annotations.
    Github,
}

impl Format {
    /// Whether people are to read it.
    #[must_use]
    pub fn is_for_people(self) -> bool {
        matches!(self, Self::Human | Self::Github)
    }
}

/// Which of the check's two streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Something worth telling.
#[derive(Debug)]
pub enum Event<'a> {
    /// The tree is known.
    Resolved {
        /// Full id of the tree.
        tree: &'a str,
        /// The key.
        key: &'a str,
    },
    /// Another process runs the same check; we wait for it.
    Waiting {
        /// Time waited so far.
        waited: Duration,
    },
    /// Files of the tree are being laid out.
    Staging {
        /// Files done.
        done: u64,
        /// Files in all.
        total: u64,
    },
    /// A check is run many times.
    Runs(RunsSoFar),
    /// The check's command is about to be executed.
    Started,
    /// The check printed something.
    Output(Stream, &'a [u8]),
    /// The check left a file of test results, with these bytes.
    Results(&'a [u8]),
    /// What the check reached by way of the hosts that its policy names.
    Reached(&'a Reached),
    /// Something a person should know, said once.
    Warning(&'a str),
}

/// How far many runs of a check have come.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RunsSoFar {
    /// Runs that ended with a verdict.
    pub runs: u64,
    /// Those of them that did not pass.
    pub failed: u64,
    /// How many it will be, if that is known.
    pub of: Option<u64>,
    /// Upper bound on the rate of failures so far, where the runs are of one and the same check.
    pub bound: Option<f64>,
    /// What is left, if that can be told.
    pub left: Option<Duration>,
}

/// Takes events as they come; given from above to whoever has something to tell.
pub trait Sink {
    /// Takes one event. Must not block for long: the check's pipes are read by the same thread.
    fn event(&mut self, event: Event<'_>);

    /// Whether output is of any use to it. Where it is not, that of an earlier run need not be given again.
    fn wants_output(&self) -> bool {
        true
    }
}
