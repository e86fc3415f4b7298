//! Level `landlock`: for places where namespaces are forbidden. The tree is copied to a folder of the run's own,
//! Landlock and the filter confine the command there, and this process, as the reaper of all that the command
//! starts, takes them down after it. Weaker than the full level in ways that the record names layer by layer.
#![forbid(unsafe_code)]

use crate::sandbox::channel::{self, Channels};
use crate::sandbox::command::{self, Streams};
use crate::sandbox::landlock_rules::Grants;
use crate::sandbox::plan::Plan;
use crate::sandbox::wire::{At, Failure, Order, Report, Step};
use crate::sandbox::{init, place, reports, sys};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The folders of a run below its scratch folder.
const FOLDERS: [&str; 3] = ["src", "home", "tmp"];

/// Rights by place at this level.
pub(super) fn grants(plan: &Plan) -> Grants {
    // What is there and cannot be reached is kept, so that applying the rules fails with its name: a ruleset that
    // quietly shrank would make checks fail for no reason that anybody sees.
    let exists =
        |path: &PathBuf| !std::fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let list = |paths: &[&str]| -> Vec<PathBuf> { paths.iter().map(PathBuf::from).filter(exists).collect() };
    let mut read: Vec<PathBuf> = plan.binds.iter().map(|bind| bind.host.clone()).filter(exists).collect();
    read.extend(list(&["/etc"]));
    Grants {
        read,
        write: FOLDERS.iter().map(|name| plan.scratch.join(name)).collect(),
        devices: list(&[
            "/dev/null",
            "/dev/zero",
            "/dev/full",
            "/dev/random",
            "/dev/urandom",
            "/dev/tty",
            "/dev/ptmx",
            "/dev/pts",
            "/proc",
        ]),
    }
}

/// Runs the supervisor of this level in a process just forked from the launcher; ends the process.
pub(super) fn run(plan: &Plan, tree: &[PathBuf], channels: Channels) -> ! {
    channels.close_all_else();
    let Channels { launcher: to_launcher, init, stdout, stderr, null } = channels;
    let done = prepare(plan, tree)
        .and_then(|scratch| {
            serve(plan, Streams { null, stdout, stderr, listener: None, held: None }, &init, &to_launcher)
                .map(|()| scratch)
        })
        .and_then(|scratch| reports::hand_over(plan, scratch.as_fd(), &to_launcher))
        .and_then(|()| tell_usage(&to_launcher));
    match done {
        Ok(()) => sys::exit_now(0),
        Err(failure) => {
            end_all();
            let _ = channel::send(&to_launcher, &Report::Failed(failure).encode(), None);
            sys::exit_now(1)
        }
    }
}

fn prepare(plan: &Plan, tree: &[PathBuf]) -> Result<OwnedFd, Failure> {
    rustix::process::setsid().at(Step::Session, "")?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let folder = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let scratch = rustix::fs::openat(CWD, &plan.scratch, folder, Mode::empty()).at(Step::Scratch, "")?;
    let open = |layer: &PathBuf| rustix::fs::openat(CWD, layer, folder, Mode::empty());
    let tree = tree.iter().chain(&plan.beneath).map(open);
    let tree = tree.collect::<Result<Vec<OwnedFd>, _>>().at(Step::Tree, "")?;
    let home = plan.home.iter().map(open).collect::<Result<Vec<OwnedFd>, _>>().at(Step::Tree, "")?;
    if plan.user.switch {
        rustix::fs::fchown(
            &scratch,
            Some(rustix::fs::Uid::from_raw(plan.user.uid)),
            Some(rustix::fs::Gid::from_raw(plan.user.gid)),
        )
        .at(Step::Scratch, "owner")?;
        sys::become_user(plan.user.uid, plan.user.gid).at(Step::SwitchUser, plan.user.uid.to_string())?;
    }
    // No death signal here: there is no PID namespace that would take the command's children along. This process
    // outlives a killed launcher for as long as it takes to end them, which it does when its channel closes.
    // Orphans of the command come to us and not to the machine's init, so that they can be ended.
    sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1).at(Step::Fork, "reaper")?;
    for name in FOLDERS {
        rustix::fs::mkdirat(&scratch, name, Mode::from_raw_mode(0o755)).at(Step::Scratch, name)?;
    }
    for (layers, to) in [(tree, "src"), (home, "home")] {
        let target = place::folder(scratch.as_fd(), Path::new(to), false).at(Step::Tree, to)?;
        for layer in layers.iter().rev() {
            place::copy_tree(layer.as_fd(), target.as_fd()).at(Step::Tree, "copy")?;
        }
    }
    Ok(scratch)
}

fn serve(plan: &Plan, streams: Streams, orders: &OwnedFd, to_launcher: &OwnedFd) -> Result<(), Failure> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).at(Step::Fork, "pipe")?;
    let signals = sys::signal_descriptor(&[libc::SIGCHLD]).at(Step::Fork, "signals")?;
    let pid = match sys::fork().at(Step::Fork, "command")? {
        sys::Forked::Child => {
            drop(read);
            become_command(plan, &streams, orders, &write)
        }
        sys::Forked::Parent(pid) => pid,
    };
    drop((write, streams));
    let raw =
        Pid::from_raw(pid).ok_or_else(|| Failure::new(Step::Fork, "", &rustix::io::Errno::SRCH.into()))?;
    let pidfd = pidfd_open(raw, PidfdFlags::empty()).at(Step::Fork, "pidfd")?;
    channel::send(to_launcher, &Report::Init(pid).encode(), Some(pidfd.as_fd())).at(Step::Channel, "init")?;
    let tell = |report: &Report| channel::send(orders, &report.encode(), None).at(Step::Channel, "init");
    match command::outcome(read) {
        None => tell(&Report::Started)?,
        Some(report) => return tell(&report),
    }
    let ending = init::watch(pid, orders, &signals).at(Step::Channel, "watch")?;
    let leftovers = end_all();
    tell(&Report::Ended { ending, leftovers, network: false })
}

/// The command's own process: waits until it is in its control group, then enters the tree.
fn become_command(plan: &Plan, streams: &Streams, orders: &OwnedFd, errors: &OwnedFd) -> ! {
    let mut plan = plan.clone();
    let place = |name: &str, folder: &str| {
        let path = plan.scratch.join(folder);
        CString::new([name.as_bytes(), b"=", path.as_os_str().as_bytes()].concat()).unwrap_or_default()
    };
    let own = [place("HOME", "home"), place("TMPDIR", "tmp")];
    plan.env.extend(own);
    let start = plan.scratch.join("src").join(&plan.cwd);
    let entered = init::wait_for(Order::Go, orders)
        .and_then(|()| rustix::process::chdir(start).at(Step::Cwd, plan.cwd.to_string_lossy()));
    let ready = entered.and_then(|()| {
        let signal = libc::c_ulong::from(libc::SIGKILL.unsigned_abs());
        sys::prctl(libc::PR_SET_PDEATHSIG, signal).at(Step::Fork, "death signal").map(drop)
    });
    match ready {
        Ok(()) => command::run(&plan, streams, errors),
        Err(failure) => {
            let _ = rustix::io::write(errors, &Report::Failed(failure).encode());
            sys::exit_now(127)
        }
    }
}

/// Kills our children until none is left; a killed child's own children become ours (PR_SET_CHILD_SUBREAPER). The
/// list comes from proc(5), /proc/pid/task/tid/children.
fn end_all() -> u32 {
    let mut ended = 0;
    let own = std::process::id();
    loop {
        let children = std::fs::read_to_string(format!("/proc/self/task/{own}/children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            drop(sys::kill(child, libc::SIGKILL));
        }
        match sys::wait(-1, true) {
            Ok(_) => ended += 1,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return ended,
        }
    }
}

fn tell_usage(to_launcher: &OwnedFd) -> Result<(), Failure> {
    let usage = sys::children_usage().at(Step::Channel, "usage")?;
    let report = Report::Usage {
        user_us: usage.user_us,
        sys_us: usage.sys_us,
        max_rss_kib: usage.max_rss_kib,
        written_bytes: 0,
        full: false,
    };
    channel::send(to_launcher, &report.encode(), None).at(Step::Channel, "usage")
}
