//! The process between launcher and sandbox: it makes the outer namespaces and the check's file system, starts the
//! init process, and outlives it to tell what was used. It is in the sandbox's user and mount namespace but not in
//! its PID namespace, so the check cannot see, signal or trace it. No decision is made here; the plan has them all.
#![forbid(unsafe_code)]

use crate::model::layer::{Layer, Level};
use crate::model::policy::Clock::Fixed;
use crate::sandbox::channel::{self, Channels};
use crate::sandbox::clock::Clock;
use crate::sandbox::observer::Observer;
use crate::sandbox::plan::Plan;
use crate::sandbox::processors::Processors;
use crate::sandbox::sources::{self, Sources};
use crate::sandbox::wire::{At, Failure, Report, Step};
use crate::sandbox::{init, mounts, reports, sys};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::{self, Write};
use std::path::PathBuf;

/// Where CLOCK_MONOTONIC and CLOCK_BOOTTIME start inside, in seconds: small, so that uptimes repeat, and more than a
/// minute, since some programs treat a machine that has only just started differently.
const UPTIME_AT_START: i64 = 100;

/// capabilities(7), linux/capability.h.
const CAP_SYS_PTRACE: u32 = 19;

/// Runs the supervisor in a process just forked from the launcher; ends the process.
pub(super) fn run(
    plan: &Plan,
    tree: &[PathBuf],
    channels: Channels,
    launcher: i32,
    processors: Processors,
) -> ! {
    channels.close_all_else();
    let Channels { launcher: to_launcher, init: to_init, stdout, stderr, null } = channels;
    let ended = enter(plan, tree, launcher).and_then(|entered| {
        let (listener, from_command) = if fixes_clock(plan) || plan.observe {
            let (ours, theirs) = channel::pair().at(Step::Channel, "listener")?;
            (Some(ours), Some(theirs))
        } else {
            (None, None)
        };
        let (to_child, root) = channel::pair().at(Step::Channel, "root")?;
        let inside =
            init::Inside { channel: to_init, stdout, stderr, null, root, listener: from_command, processors };
        let pid = match sys::fork().at(Step::Fork, "init")? {
            sys::Forked::Child => init::run(plan, inside),
            sys::Forked::Parent(pid) => pid,
        };
        processors.part_from(pid);
        // Our copies of the check's streams go, so that their end is seen when the check's are gone.
        drop(inside);
        let pidfd = pidfd_of(pid)?;
        // Where the launcher moves it into its control group, it waits for that; elsewhere the launcher would wake up only to
        // be in the way.
        let is_moved = plan.cgroup_is_unified();
        if is_moved {
            introduce(pid, &pidfd, &to_launcher)?;
        }
        // While the init process makes its network.
        let sources = entered.sources.map_or_else(|| sources::open_sources(plan, tree), Ok)?;
        let clock = start_clock(plan, entered.shift, &sources)?;
        let served = Served { clock, observer: plan.observe.then(Observer::default) };
        let built = mounts::build(plan, sources)?;
        match channel::send(&to_child, &[1], Some(built.fd.as_fd())) {
            // It is gone and has said why.
            Err(Errno::PIPE | Errno::CONNRESET) => {}
            sent => sent.at(Step::Channel, "root")?,
        }
        if !is_moved {
            introduce(pid, &pidfd, &to_launcher)?;
        }
        let watched = Watched { pid, pidfd, scratch: built.scratch, proc: entered.proc, served, listener };
        drop((to_child, built.fd));
        attend(watched, plan, &to_launcher)
    });
    match ended {
        Ok(()) => sys::exit_now(0),
        Err(failure) => {
            let _ = channel::send(&to_launcher, &Report::Failed(failure).encode(), None);
            sys::exit_now(1)
        }
    }
}

/// What is known once the namespaces are entered.
struct Entered {
    /// What had to be opened before.
    sources: Option<Sources>,
    /// By how many seconds the boot clock inside differs from ours.
    shift: i64,
    /// The /proc of the machine, which is out of sight once the root is entered.
    proc: OwnedFd,
}

/// What the listener is there for.
struct Served {
    clock: Option<Clock>,
    observer: Option<Observer>,
}

/// The init process and what the supervisor needs while it runs.
struct Watched {
    pid: i32,
    pidfd: OwnedFd,
    scratch: OwnedFd,
    proc: OwnedFd,
    served: Served,
    /// Where the listener of the system call filter comes from, if there is to be one.
    listener: Option<OwnedFd>,
}

fn enter(plan: &Plan, tree: &[PathBuf], launcher: i32) -> Result<Entered, Failure> {
    drop(sys::set_name(c"checkrun-super"));
    // A session of its own: a signal typed at the terminal reaches the launcher alone, which decides.
    rustix::process::setsid().at(Step::Session, "")?;
    // Host paths that only root can reach must be opened before root is given up.
    let sources = plan.user.switch.then(|| sources::open_sources(plan, tree)).transpose()?;
    if plan.user.switch {
        sys::become_user(plan.user.uid, plan.user.gid).at(Step::SwitchUser, plan.user.uid.to_string())?;
    }
    // A change of user makes /proc/self root's own and clears the death signal (prctl(2)), so both come after it.
    sys::prctl(libc::PR_SET_DUMPABLE, 1).at(Step::SwitchUser, "dumpable")?;
    die_with_parent(launcher)?;
    let shift = enter_namespaces(plan)?;
    // What is made in the sandbox's file systems gets the modes we say, whatever the caller's umask.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    rustix::system::sethostname(plan.guise.host_name.as_bytes()).at(Step::HostName, "")?;
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = rustix::fs::openat(CWD, "/proc", folder, Mode::empty()).at(Step::Proc, "outside")?;
    // From here on nobody but the machine's root may look into this process and the init process made from it.
    sys::prctl(libc::PR_SET_DUMPABLE, 0).at(Step::Namespaces, "dumpable")?;
    Ok(Entered { sources, shift, proc })
}

fn fixes_clock(plan: &Plan) -> bool {
    matches!(plan.clock, Fixed { .. }) && plan.uses(Layer::Clock)
}

/// Starts the clock, if it is to be a fixed one. Before anything is made that the check sees the times of.
fn start_clock(plan: &Plan, shift: i64, sources: &Sources) -> Result<Option<Clock>, Failure> {
    match plan.clock {
        Fixed { start, mode } if fixes_clock(plan) => {
            let clock = Clock::start(start, mode, shift, sources.devices_shown.clone());
            clock.map(Some).at(Step::Clock, "the vDSO of programs")
        }
        _ => Ok(None),
    }
}

/// Asks to be killed when the launcher dies, and makes sure that it has not died before we asked.
fn die_with_parent(parent: i32) -> Result<(), Failure> {
    let signal = libc::c_ulong::from(libc::SIGKILL.unsigned_abs());
    sys::prctl(libc::PR_SET_PDEATHSIG, signal).at(Step::Fork, "death signal")?;
    let now = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    if now == parent { Ok(()) } else { Err(Failure::new(Step::Fork, "the launcher is gone", &orphaned())) }
}

fn orphaned() -> io::Error {
    Errno::SRCH.into()
}

/// Enters all namespaces but that of the network, which takes the kernel longest and which the init process makes for
/// itself meanwhile. Returns by how many seconds the boot clock inside differs from ours.
fn enter_namespaces(plan: &Plan) -> Result<i64, Failure> {
    debug_assert_eq!(plan.level, Level::Full, "the other level has no namespaces");
    let mut flags = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    if plan.uses(Layer::Time) {
        flags |= libc::CLONE_NEWTIME;
    }
    sys::unshare(flags).at(Step::Namespaces, "")?;
    map_user(plan.guise.uid, plan.user.uid, plan.user.gid)?;
    if plan.uses(Layer::Time) {
        return set_time_origin().at(Step::TimeOffsets, "/proc/self/timens_offsets");
    }
    Ok(0)
}

/// Maps the check's user, whose group has the same number, to one host user and nothing else (user_namespaces(7)): `setgroups` must be given up first.
pub(super) fn map_user(inside: u32, uid: u32, gid: u32) -> Result<(), Failure> {
    let write = |file: &str, text: &str| std::fs::write(file, text).at(Step::IdMap, file);
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/gid_map", &format!("{inside} {gid} 1"))?;
    write("/proc/self/uid_map", &format!("{inside} {uid} 1"))
}

/// Offsets are in force for processes forked from now on (time_namespaces(7), Linux 5.6).
fn set_time_origin() -> io::Result<i64> {
    let offset = |clock| UPTIME_AT_START - rustix::time::clock_gettime(clock).tv_sec;
    let monotonic = offset(rustix::time::ClockId::Monotonic);
    let boot = offset(rustix::time::ClockId::Boottime);
    std::fs::write("/proc/self/timens_offsets", format!("monotonic {monotonic} 0\nboottime {boot} 0\n"))?;
    Ok(boot)
}

/// A descriptor of a child that is not waited for yet, so that the number is still its own.
fn pidfd_of(child: i32) -> Result<OwnedFd, Failure> {
    let pid = Pid::from_raw(child).ok_or_else(|| Failure::new(Step::Fork, "init", &orphaned()))?;
    pidfd_open(pid, PidfdFlags::empty()).at(Step::Fork, "pidfd")
}

/// Tells the launcher of the init process.
fn introduce(number: i32, pidfd: &OwnedFd, to_launcher: &OwnedFd) -> Result<(), Failure> {
    let report = Report::Init(number).encode();
    channel::send(to_launcher, &report, Some(pidfd.as_fd())).at(Step::Channel, "init")
}

/// Serves the clock until the init process ends, and tells what was used.
fn attend(watched: Watched, plan: &Plan, to_launcher: &OwnedFd) -> Result<(), Failure> {
    let Served { clock, observer } = match &watched.listener {
        Some(socket) => serve(watched.served, &watched.pidfd, socket, watched.proc.as_fd())?,
        None => watched.served,
    };
    if let Some(why) = clock.and_then(|clock| clock.escaped()) {
        channel::send(to_launcher, &Report::Escaped(why).encode(), None).at(Step::Channel, "clock")?;
    }
    if let Some(observer) = observer {
        hand_over(observer, to_launcher)?;
    }
    let waited = loop {
        match sys::wait(watched.pid, true) {
            Ok(Some(waited)) => break waited,
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Failure::new(Step::Channel, "wait for init", &error)),
        }
    };
    reports::hand_over(plan, watched.scratch.as_fd(), to_launcher)?;
    let (written_bytes, full) = space_used(&watched.scratch).at(Step::Scratch, "statfs")?;
    let usage = Report::Usage {
        user_us: waited.user_us,
        sys_us: waited.sys_us,
        max_rss_kib: waited.max_rss_kib,
        written_bytes,
        full,
    };
    channel::send(to_launcher, &usage.encode(), None).at(Step::Channel, "usage")
}

/// Answers the filter's questions until the init process is gone.
fn serve(
    mut served: Served,
    init: &OwnedFd,
    socket: &OwnedFd,
    proc: BorrowedFd<'_>,
) -> Result<Served, Failure> {
    // A question may be withdrawn between poll and receive, which then blocks on kernels before 6.11 even when all
    // that could ask are gone; the end of our child interrupts it.
    sys::let_children_interrupt().at(Step::Clock, "signals")?;
    // To look into the check's processes is all that is needed from here on. Without the rest our own look-ups of paths
    // are refused what the check's would be.
    sys::keep_capabilities(1 << CAP_SYS_PTRACE).at(Step::Capabilities, "supervisor")?;
    let mut listener: Option<OwnedFd> = None;
    let ends_by_itself = tells_of_the_end(&rustix::system::uname().release().to_string_lossy());
    loop {
        if ends_by_itself
            && let Some(listener) = &listener
            && served.clock.as_ref().and_then(Clock::next_tick).is_none()
            && answer(&mut served, listener.as_fd(), proc).is_ok()
        {
            continue;
        }
        let source = listener.as_ref().unwrap_or(socket);
        let mut fds = [PollFd::new(init, PollFlags::IN), PollFd::new(source, PollFlags::IN)];
        let timeout = served.clock.as_ref().and_then(Clock::next_tick).map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Failure::new(Step::Clock, "poll", &error.into())),
        }
        let (ended, asked) = (!fds[0].revents().is_empty(), fds[1].revents());
        if ended {
            return Ok(served);
        }
        let Some(from) = listener.as_ref().map(AsFd::as_fd) else {
            if asked.is_empty() {
                continue;
            }
            match channel::receive(socket.as_fd()).at(Step::Listener, "")? {
                Some((_, Some(fd))) => {
                    // A gain in speed where the kernel knows it, and nothing else.
                    drop(sys::wake_in_step(fd.as_fd()));
                    listener = Some(fd);
                }
                // The command was not executed; the init process ends by itself.
                _ => return Ok(served),
            }
            continue;
        };
        if asked.contains(PollFlags::IN) {
            // Withdrawn questions need no answer: the thread is dead, or asks again.
            drop(answer(&mut served, from, proc));
        }
        if let Some(clock) = &mut served.clock {
            clock.tick(from, proc);
        }
        if asked.contains(PollFlags::HUP) {
            // Nobody is left who could ask.
            return Ok(served);
        }
    }
}

/// Whether a kernel of this release ends a wait for questions when nobody is left to ask, which spares a call of poll(2)
/// before each: Linux 6.11. Elsewhere the end of the last process might come just before the wait.
fn tells_of_the_end(release: &str) -> bool {
    let mut numbers = release.split(['.', '-', '+']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(11))
}

/// Waits for a question and answers it.
///
/// # Errors
/// There was none: it was withdrawn, nobody is left to ask, or a signal came.
fn answer(served: &mut Served, listener: BorrowedFd<'_>, proc: BorrowedFd<'_>) -> io::Result<()> {
    let call = sys::receive_notification(listener)?;
    if let Some(observer) = &mut served.observer {
        observer.see(&call, proc);
    }
    let verdict = match &mut served.clock {
        Some(clock) => clock.judge(&call, proc),
        None => Some(sys::Verdict::Continue),
    };
    if let Some(observer) = &mut served.observer {
        observer.look_again(&call, || sys::is_waiting(listener, call.id));
    }
    if let Some(verdict) = verdict {
        drop(sys::answer_notification(listener, call.id, verdict));
    }
    Ok(())
}

/// Sends what was seen to the launcher, in a file without a name since it may be large.
fn hand_over(observer: Observer, to_launcher: &OwnedFd) -> Result<(), Failure> {
    let bytes = match observer.finish() {
        Ok(bytes) => bytes,
        Err(why) => {
            let report = Report::Unobserved(why).encode();
            return channel::send(to_launcher, &report, None).at(Step::Channel, "observation");
        }
    };
    let file =
        rustix::fs::memfd_create("observation", MemfdFlags::CLOEXEC).at(Step::Channel, "observation")?;
    let mut file = std::fs::File::from(file);
    file.write_all(&bytes).at(Step::Channel, "observation")?;
    channel::send(to_launcher, &Report::Observed.encode(), Some(file.as_fd()))
        .at(Step::Channel, "observation")
}

/// Bytes in use on the writable file system, and whether it, or the room for names on it, is full but for a sliver.
pub(super) fn space_used(scratch: &OwnedFd) -> rustix::io::Result<(u64, bool)> {
    let stat = rustix::fs::fstatvfs(scratch)?;
    let used = stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(stat.f_frsize);
    // A program that finds the disk full often frees a little before it ends.
    let is_full = |free: u64, all: u64| free.saturating_mul(64) < all;
    Ok((used, is_full(stat.f_bfree, stat.f_blocks) || is_full(stat.f_ffree, stat.f_files)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_told_apart_by_their_release() {
        for (release, expected) in [
            ("6.11.0", true),
            ("6.18.44-fc", true),
            ("7.0-rc1", true),
            ("6.10.9-200.fc40", false),
            ("5.14.0-427.el9", false),
            ("2.6.78", false),
            ("", false),
            ("unknown", false),
        ] {
            assert_eq!(tells_of_the_end(release), expected, "{release}");
        }
    }
}
