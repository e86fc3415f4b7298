//! The layers a sandbox is made of, how much a policy insists on each, and what a run was found to have. Deciding
//! and enforcing happen in `sandbox`.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The newest Landlock ABI whose rights are all asked for; a kernel with a later one is used as if it had this.
pub const LANDLOCK_ABI: u32 = 7;

/// One mechanism that confines a check.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// User namespaces: an outer one that owns the mounts, an inner one that the check lives in.
    User,
    /// Mount namespace with a root of its own.
    Mount,
    /// PID namespace with an init of its own.
    Pid,
    /// Network namespace with loopback only.
    Net,
    /// System V IPC and POSIX queues of its own.
    Ipc,
    /// Host name of its own.
    Uts,
    /// Cgroup namespace: the check does not see where on the host its group lies.
    Cgroup,
    /// Time namespace: monotonic and boot time start near zero.
    Time,
    /// Landlock file, device and scope rules.
    Landlock,
    /// The system call filter.
    Seccomp,
    /// The wall clock fixed at a stated instant.
    Clock,
    /// Memory limit over all processes of the run together.
    Memory,
    /// Limit on the number of processes and threads.
    Pids,
    /// Limit on processor time per second of wall time.
    Cpus,
    /// Limit on what may be written to the tree, home and temporary folders.
    Disk,
}

impl Layer {
    /// All of them, in the order in which they are reported.
    pub const ALL: [Self; 15] = [
        Self::User,
        Self::Mount,
        Self::Pid,
        Self::Net,
        Self::Ipc,
        Self::Uts,
        Self::Cgroup,
        Self::Time,
        Self::Landlock,
        Self::Seccomp,
        Self::Clock,
        Self::Memory,
        Self::Pids,
        Self::Cpus,
        Self::Disk,
    ];

    /// The word used for it in policies, records and `doctor`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Mount => "mount",
            Self::Pid => "pid",
            Self::Net => "net",
            Self::Ipc => "ipc",
            Self::Uts => "uts",
            Self::Cgroup => "cgroup",
            Self::Time => "time",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
            Self::Clock => "clock",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpus => "cpus",
            Self::Disk => "disk",
        }
    }

    /// Whether it bounds what a check may use up, and not what it may see or reach.
    #[must_use]
    pub fn is_limit(self) -> bool {
        matches!(self, Self::Memory | Self::Pids | Self::Cpus | Self::Disk)
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How much a policy insists on a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Need {
    /// Without it nothing runs.
    Require,
    /// Used where the machine has it; the record says which it was.
    Prefer,
    /// Not used.
    Off,
}

/// What a run was found to have of one layer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "state", content = "why")]
pub enum LayerState {
    /// In force in full.
    Enforced,
    /// In force by a weaker means, or in part; the text says how.
    Partial(String),
    /// Wanted, not to be had here; the text says what stopped it.
    Unavailable(String),
    /// Not wanted.
    Off,
}

impl LayerState {
    /// The word that goes into keys and one-line reports; the reason is left out, since it is prose.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Partial(_) => "partial",
            Self::Unavailable(_) => "unavailable",
            Self::Off => "off",
        }
    }

    /// True where the layer is in force in full.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        matches!(self, Self::Enforced)
    }
}

/// How the check is kept apart from the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Landlock and seccomp only, for places where namespaces are forbidden.
    Landlock,
    /// Namespaces, Landlock, seccomp and limits.
    Full,
}

impl Level {
    /// The word used in policies and records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Landlock => "landlock",
            Self::Full => "full",
        }
    }
}

/// What was in force: the level and the state of each layer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Enforcement {
    /// The level.
    pub level: Level,
    /// Every layer, by name order of the enum.
    pub layers: BTreeMap<Layer, LayerState>,
}
