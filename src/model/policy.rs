//! A policy in its parsed form: what a check may see and use, and how much checkrun insists on each layer. Reading
//! TOML is `catalogue`'s; kernel constants are `sandbox`'s.
#![forbid(unsafe_code)]

use crate::model::guise::{Guise, Variation};
use crate::model::hosts::NamedHost;
use crate::model::layer::{Layer, Level, Need};
use crate::model::units::Bytes;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// What a check may see, use and reach. Made by `catalogue`, changed only by the command line and `.checkrun.toml`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// The word it is asked for by.
    pub name: String,
    /// One sentence for people.
    pub description: String,
    /// How the check is kept apart.
    pub level: Level,
    /// What of the network it has.
    pub network: Network,
    /// The hosts that it may reach, where these are named.
    pub hosts: Vec<NamedHost>,
    /// How much each layer is insisted on; a layer that is missing here is off.
    pub layers: BTreeMap<Layer, Need>,
    /// What it may use up.
    pub limits: Limits,
    /// Whether addresses are randomised, as the kernel does by default.
    pub aslr: Aslr,
    /// Which permissions files that the check makes do not get (umask(2)).
    pub umask: u32,
    /// What it takes its surroundings for.
    pub guise: Guise,
    /// What wall clock it sees.
    pub clock: Clock,
    /// What of git it sees in its tree.
    pub git: GitView,
    /// Host paths that are shown read-only at the same place.
    pub visible: Vec<Visible>,
}

/// What of the network a check has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Network {
    /// A loopback of its own, v4 and v6, and nothing else.
    Loopback,
    /// A loopback of its own, and a proxy there to the hosts that the policy names. Never cached.
    Hosts,
    /// The host's network. Never cached.
    Host,
}

impl Network {
    /// The word used in policies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Hosts => "hosts",
            Self::Host => "host",
        }
    }
}

/// Whether the kernel randomises addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aslr {
    /// As the kernel does by default.
    On,
    /// Switched off for the check and its children (personality(2), `ADDR_NO_RANDOMIZE`).
    Off,
}

impl Aslr {
    /// The word used in options and policies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// What umask(2) is where nothing else is asked: everybody may read, and the owner alone may write.
pub const UMASK: u32 = 0o022;

/// What of git a check sees in its tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GitView {
    /// No `.git` at all.
    None,
    /// A one-commit repository at that tree.
    Synthetic,
}

/// The wall clock that a check sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// Starts at `start` (seconds since 1970) and goes on from there.
    Fixed {
        /// Seconds since 1970.
        start: i64,
        /// Whether it runs.
        mode: ClockMode,
    },
    /// Starts at the committer date of the commit that is checked; a check is keyed once that is known, as `Fixed`.
    Commit {
        /// Whether it runs.
        mode: ClockMode,
    },
    /// The machine's own. Never cached.
    Host,
}

/// Whether a fixed clock runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockMode {
    /// Runs as real time does.
    Ticking,
    /// Stands still, but for a hair per reading.
    Frozen,
}

impl ClockMode {
    /// The word used in options, policies and records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ticking => "ticking",
            Self::Frozen => "frozen",
        }
    }
}

/// When a fixed clock starts, as the command line asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockStart {
    /// At this instant, in seconds since 1970.
    At(i64),
    /// At the committer date of the commit that is checked.
    Commit,
    /// The clock is not fixed.
    Host,
}

/// What the command line asks of the clock; what is `None` stays as policy and repository have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClockWish {
    /// When it starts.
    pub start: Option<ClockStart>,
    /// Whether it runs.
    pub mode: Option<ClockMode>,
}

/// How long before the clock's start the files of a tree were last changed, in seconds: more than the two that Go's
/// test cache and a minute's rounding ask for.
pub const TREE_MARGIN: i64 = 3600;

/// What a check may use up. A limit that is `None` is not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Wall time, by the monotonic clock.
    pub timeout: Duration,
    /// Memory of all its processes together, files in temporary folders included.
    pub memory: Option<Bytes>,
    /// Processes and threads at one time.
    pub pids: Option<u64>,
    /// Thousandths of a processor: 1500 is one and a half.
    pub cpus_milli: Option<u32>,
    /// Bytes that may be written to the tree, the home and the temporary folders together.
    pub disk: Bytes,
    /// Bytes of output, stdout and stderr together.
    pub output: Bytes,
}

/// A host path that a check sees, read-only, at the same place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Visible {
    /// An absolute path without `..`.
    pub path: PathBuf,
    /// Whether it is no error that the host lacks it.
    pub optional: bool,
    /// Why it is allowed.
    pub why: String,
}

/// Limits and the like given on the command line, in place of the policy's own; they may widen as well as tighten.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Overrides {
    /// Wall time.
    pub timeout: Option<Duration>,
    /// Memory of all processes together; given, it must be enforced.
    pub memory: Option<Bytes>,
    /// Processes and threads; given, it must be enforced.
    pub pids: Option<u64>,
    /// Thousandths of a processor; given, it must be enforced.
    pub cpus_milli: Option<u32>,
    /// Bytes that may be written to each writable place.
    pub disk: Option<Bytes>,
    /// Bytes of output.
    pub output: Option<Bytes>,
    /// Whether addresses are randomised.
    pub aslr: Option<Aslr>,
    /// Permissions that new files do not get.
    pub umask: Option<u32>,
    /// Inputs with another value; the last of one input counts.
    pub varied: Vec<Variation>,
}
