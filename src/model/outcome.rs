//! What came of a run: how the command ended, what it used, what confined it. A failing check is a value here; an
//! error is only what could not be decided.
#![forbid(unsafe_code)]

use crate::model::digest::Digest;
use crate::model::hosts::Reached;
use crate::model::layer::Enforcement;
use serde::{Deserialize, Serialize};

/// The closed list of ways in which a run ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Exit status 0, and enough tests where that was asked.
    Passed,
    /// Any other ending of the command's own.
    Failed,
    /// Ran past its timeout.
    TimedOut,
    /// Ran out of the memory it was allowed.
    OutOfMemory,
    /// Failed having hit the limit on processes.
    PidsLimit,
    /// Failed having filled the space it was allowed.
    DiskFull,
    /// Printed more than it was allowed.
    OutputLimit,
    /// Killed by something that is neither the check nor checkrun.
    Killed,
    /// checkrun was told to stop.
    Interrupted,
    /// The command could not be executed.
    NotStarted,
}

impl Outcome {
    /// Whether such a result may answer a later question.
    #[must_use]
    pub fn is_answer(self) -> bool {
        matches!(self, Self::Passed | Self::Failed)
    }

    /// The word used in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::OutOfMemory => "out_of_memory",
            Self::PidsLimit => "pids_limit",
            Self::DiskFull => "disk_full",
            Self::OutputLimit => "output_limit",
            Self::Killed => "killed",
            Self::Interrupted => "interrupted",
            Self::NotStarted => "not_started",
        }
    }

    /// Reads what [`Outcome::name`] prints.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [
            Self::Passed,
            Self::Failed,
            Self::TimedOut,
            Self::OutOfMemory,
            Self::PidsLimit,
            Self::DiskFull,
            Self::OutputLimit,
            Self::Killed,
            Self::Interrupted,
            Self::NotStarted,
        ]
        .into_iter()
        .find(|outcome| outcome.name() == word)
    }
}

/// How the command's first process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It called exit with this status.
    Exited(i32),
    /// It died of this signal.
    Signalled(i32),
    /// It was never executed: the errno of execve(2).
    NotExecuted(i32),
}

/// Why checkrun itself stopped a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Its time was up.
    Timeout,
    /// It printed too much.
    Output,
    /// It ran out of memory.
    Memory,
    /// checkrun got this signal.
    Interrupt(i32),
}

/// What a run used.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time in user mode, all processes, in seconds.
    pub user_secs: f64,
    /// Processor time in the kernel, all processes, in seconds.
    pub sys_secs: f64,
    /// The most memory that it held at one time, in bytes: of the group where there is one, else of its largest process.
    pub max_rss_bytes: u64,
    /// Bytes left in the places it may write to when it ended.
    pub written_bytes: u64,
}

/// What the sandbox saw of one run.
#[derive(Clone, Debug)]
pub struct Observation {
    /// How the first process ended; `None` where we killed it before it did.
    pub ending: Option<Ending>,
    /// Why we stopped it, if we did.
    pub stop: Option<Stop>,
    /// The limit on processes was hit at least once.
    pub pids_hit: bool,
    /// One of the places that it may write to was full at its end.
    pub disk_hit: bool,
    /// The kernel killed one of its processes for want of memory within its own limit.
    pub oom_hit: bool,
    /// Processes that were still there when the first one ended.
    pub leftovers: u32,
    /// It failed, and something in it had looked for a name server or for another host, which it cannot have.
    pub network: bool,
    /// What it reached by way of the hosts that its policy names.
    pub reached: Reached,
    /// Wall time by the monotonic clock, in seconds.
    pub secs: f64,
    /// What it used.
    pub usage: Usage,
    /// What it looked at.
    pub looked_at: LookedAt,
    /// Files of test results that it left: paths below the tree, and bytes.
    pub results: Vec<(Vec<u8>, Vec<u8>)>,
    /// What was in force.
    pub enforcement: Enforcement,
}

/// What a check looked at, if that is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LookedAt {
    /// All paths, as the check sees them, each with how it was used (bits of `sandbox::observer`).
    Paths(Vec<(Vec<u8>, u8)>),
    /// Not known in full, and why; then everything counts as looked at.
    Unknown(String),
}

/// What was kept of the output.
#[derive(Clone, Debug)]
pub struct Output {
    /// The end of it, cleaned for reading; at most 2048 bytes of UTF-8.
    pub tail: String,
    /// All bytes that it printed, stdout and stderr together.
    pub bytes: u64,
    /// Digest over the stored log's frames.
    pub digest: Digest,
}
