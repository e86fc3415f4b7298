//! The sandbox: a plan goes in, an observation comes out.
//!
//! Three processes beside the launcher, each forked while its parent has one thread:
//!
//! 1. the *supervisor* (`supervisor`) makes the outer user namespace and with it mount, PID, IPC, UTS, network and
//!    time namespaces, builds the file system by descriptor (`sources`, `mounts`, `place`, `etc`), and outlives the rest;
//! 2. the *init* process (`init`), PID 1 inside, mounts /proc, enters the root, reaps, forwards, and kills what is
//!    left when the command's first process ends;
//! 3. the *command* (`command`) makes an inner user and mount namespace so that all mounts are locked, drops every
//!    capability, applies limits, the one Landlock ruleset (`landlock_rules`) and the filter (`seccomp`), and execs.
//!
//! The host's uid 0 is never mapped: a privileged caller becomes another user first (`probe::host_user`). `plan`
//! decides what is to be built, `probe` finds out what can be, `launch` starts and watches, `cgroup` limits, `bare`
//! is the level without namespaces, `proxy` is the way to hosts that a policy names,
//! `crew` runs one check several times at once, `beside` several checks, `wire` and `channel`
//! are how the processes talk, `sys` holds all unsafe code.
//!
//! Much of this is done side by side, on another processor where there is one (`processors`): the layers of a tree that is
//! there are put in while the caller still looks through them, and the command's process comes as far as its inner user
//! namespace while the supervisor still builds the root. It starts when the launcher is told that the tree is as it should be.

pub mod beside;
pub mod observer;
pub mod plan;
pub mod probe;
pub mod readings;
pub mod wire;

mod bare;
mod cgroup;
mod channel;
mod clock;
mod command;
mod crew;
mod etc;
mod filter;
mod init;
mod interrupts;
mod landlock_rules;
mod launch;
mod layered;
mod listing;
mod memory;
mod mounts;
mod network;
mod path_calls;
mod place;
mod processors;
mod proxy;
mod reports;
mod seccomp;
mod sources;
mod starts;
mod supervisor;
mod sys;
mod trials;
mod ways;

pub use cgroup::CgroupKind;
pub use crew::{Crew, Heard};
pub use interrupts::Interrupts;
pub use launch::{Begun, Remains, begin};

use crate::model::layer::Layer;
use crate::sandbox::wire::{Failure, Step};
use std::io;

/// Why no sandbox could be had. The check itself never causes one of these.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The policy requires what this machine lacks.
    #[error("the policy `{policy}` requires what this machine does not offer: {}", list(missing))]
    Missing {
        /// Name of the policy.
        policy: String,
        /// Each missing layer and what stopped it.
        missing: Vec<(Layer, String)>,
    },
    /// What the check is to take its surroundings for cannot be had at this level.
    #[error("`{input}` cannot be varied: {why}")]
    Guise {
        /// The word for it.
        input: String,
        /// Why not.
        why: &'static str,
    },
    /// /proc is not there, or not of this process's own PID namespace.
    #[error("/proc {why}, so that no process of a sandbox can be looked after")]
    Proc {
        /// What is wrong with it.
        why: &'static str,
    },
    /// A step of building it failed.
    #[error("failed to {}{}: {}", .0.step, about(.0), io::Error::from_raw_os_error(.0.errno))]
    Step(Failure),
    /// A control group could not be made.
    #[error("failed to limit the run by a control group: {0}")]
    Cgroup(io::Error),
    /// A text that a program start takes has a NUL byte in it.
    #[error("{what} has a NUL byte in it, which no program can be given")]
    Nul {
        /// Which.
        what: String,
    },
    /// The proxy that the caller names is none that can be gone through.
    #[error("the proxy that `--env {name}` names {problem}")]
    Upstream {
        /// The variable.
        name: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Somebody else killed the sandbox's own processes.
    #[error("the sandbox's own processes were killed from outside")]
    Lost,
}

impl From<Failure> for SandboxError {
    fn from(failure: Failure) -> Self {
        Self::Step(failure)
    }
}

impl SandboxError {
    /// What to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Missing { missing, .. } if missing.iter().all(|(layer, _)| layer.is_limit()) => Some(
                "leave that limit out, or run where control groups can be made; `checkrun doctor` tells what can be limited here"
                    .to_owned(),
            ),
            Self::Missing { .. } => Some(
                "`checkrun doctor` tells what is missing and how to get it; `--policy landlock` needs no namespaces"
                    .to_owned(),
            ),
            Self::Step(failure) => hint_for(failure.step).map(str::to_owned),
            Self::Cgroup(_) => Some("`checkrun doctor` tells which limits can be enforced here".to_owned()),
            Self::Proc { .. } => Some(
                "mount it for this PID namespace: `mount -t proc proc /proc`, `unshare --mount-proc`, bwrap's `--proc /proc`"
                    .to_owned(),
            ),
            Self::Guise { .. } => Some("leave `--vary` out, or take `--policy hermetic`".to_owned()),
            Self::Upstream { .. } => Some(
                "accepted is http://[USER:PASSWORD@]HOST:PORT, a proxy that takes CONNECT; `--policy networked` leaves all of it to the step"
                    .to_owned(),
            ),
            Self::Nul { .. } => None,
            Self::Lost => Some("was it out of memory? run it again, or set a lower --memory".to_owned()),
        }
    }
}

fn hint_for(step: Step) -> Option<&'static str> {
    match step {
        Step::Fork => Some("the machine has no room for another process, or the caller runs several threads"),
        Step::Namespaces | Step::IdMap | Step::Root | Step::Proc => Some(
            "namespaces are restricted here after all; `checkrun doctor` tries each and names the remedy, `--policy landlock` does without",
        ),
        Step::Source | Step::Show => {
            Some("a path that the policy or the runner shows cannot be opened by this user")
        }
        Step::Proxy => {
            Some("`--policy networked` does without, and lets the step reach whatever the host does")
        }
        Step::Rlimits => {
            Some("`--pids` asks for fewer processes; `ulimit -Hu` tells how many this user may have")
        }
        Step::Tree | Step::Scratch => Some("is the tree larger than --disk allows?"),
        _ => None,
    }
}

fn about(failure: &Failure) -> String {
    if failure.detail.is_empty() { String::new() } else { format!(" ({})", failure.detail) }
}

fn list(missing: &[(Layer, String)]) -> String {
    let each: Vec<String> = missing.iter().map(|(layer, why)| format!("{layer} ({why})")).collect();
    each.join(", ")
}
