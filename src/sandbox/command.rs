//! The last steps before the check's own program: the inner user namespace, limits, no capabilities, Landlock, the
//! filter, and exec. The order matters; each step says why it is where it is.
#![forbid(unsafe_code)]

use crate::model::layer::{Layer, Level};
use crate::model::policy::Aslr;
use crate::sandbox::landlock_rules::{self, Grants};
use crate::sandbox::plan::{HOME_PLACE, Plan, TREE_PLACE};
use crate::sandbox::processors::Processors;
use crate::sandbox::seccomp::{self, Wanted};
use crate::sandbox::wire::{At, Failure, MESSAGE_MAX, Report, Step};
use crate::sandbox::{channel, supervisor, sys};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::process::{Resource, Rlimit};
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The check's three standard streams.
#[derive(Debug)]
pub(super) struct Streams {
    /// Read from: always empty.
    pub(super) null: OwnedFd,
    /// Written to.
    pub(super) stdout: OwnedFd,
    /// Written to.
    pub(super) stderr: OwnedFd,
    /// Where the listener of the system call filter goes, if there is one.
    pub(super) listener: Option<OwnedFd>,
    /// What it waits for, at the level that has a root of its own.
    pub(super) held: Option<Held>,
}

/// Holds the command's process until it is in its root.
#[derive(Debug)]
pub(super) struct Held {
    /// To and from the init process. A word goes when the root may be exchanged, and one comes when it is; its end means that
    /// there will be none.
    pub(super) gate: OwnedFd,
    /// Those that the check is to have.
    pub(super) processors: Processors,
}

/// Becomes the command, in a process just forked from the init process. What goes wrong is written to `errors`,
/// which closes by itself when the command is executed.
pub(super) fn run(plan: &Plan, streams: &Streams, errors: &OwnedFd) -> ! {
    let report = match become_command(plan, streams, errors) {
        Ok(error) => Report::NotExecuted(error.raw_os_error().unwrap_or(libc::ENOENT)),
        Err(failure) => Report::Failed(failure),
    };
    let _ = rustix::io::write(errors, &report.encode());
    sys::exit_now(127)
}

/// Waits until the command is executed (`None`) or its process reports why it is not.
pub(super) fn outcome(errors: OwnedFd) -> Option<Report> {
    let mut bytes = vec![0_u8; MESSAGE_MAX];
    // One write of at most PIPE_BUF bytes is one read (pipe(7)).
    let read = rustix::io::retry_on_intr(|| rustix::io::read(&errors, &mut bytes[..])).unwrap_or(0);
    Report::decode(bytes.get(..read)?)
}

/// Returns only where exec itself failed.
fn become_command(plan: &Plan, streams: &Streams, errors: &OwnedFd) -> Result<io::Error, Failure> {
    // Its own session: no terminal, and a process group that signals can be sent to as a whole.
    rustix::process::setsid().at(Step::Session, "")?;
    if plan.level == Level::Full {
        // A second user namespace. Its own mount namespace, made as soon as there is a root, has the mounts of the first
        // locked, so that no capability gained in here can remount, move or uncover them (mount_namespaces(7)).
        sys::prctl(libc::PR_SET_DUMPABLE, 1).at(Step::InnerUser, "dumpable")?;
        sys::unshare(libc::CLONE_NEWUSER).at(Step::InnerUser, "")?;
        let uid = plan.guise.uid;
        supervisor::map_user(uid, uid, uid)?;
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(plan.umask));
    limit(plan)?;
    sys::bound_capabilities();
    if let Some(held) = &streams.held {
        // What follows takes no namespace that asks for the old root, and the root is waited for by the init process.
        channel::send(&held.gate, &[1], None).at(Step::Channel, "init")?;
    }
    if plan.level == Level::Full && plan.uses(Layer::Cgroup) {
        // The group that we were forked in becomes the root of what the check sees (cgroup_namespaces(7)).
        sys::unshare(libc::CLONE_NEWCGROUP).at(Step::CgroupNamespace, "")?;
    }
    sys::default_signals();
    let listens = streams.listener.is_some();
    let filter = plan.uses(Layer::Seccomp).then(|| {
        seccomp::program(Wanted {
            level: plan.level,
            clock: listens && plan.uses(Layer::Clock),
            inputs: listens && plan.observe,
        })
    });
    if let Some(held) = &streams.held {
        wait_for_root(plan, held)?;
    }
    if let (Some(milli), true) = (plan.limits.cpus_milli, plan.uses(Layer::Cpus)) {
        affinity(milli)?;
    }
    if plan.aslr == Aslr::Off {
        sys::personality(0x004_0000).at(Step::Personality, "")?;
    }
    sys::drop_capabilities().at(Step::Capabilities, "")?;
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1).at(Step::NoNewPrivileges, "")?;
    if plan.uses(Layer::Landlock) {
        landlock_rules::apply(&grants(plan))?;
    }
    place_streams(streams, errors)?;
    sys::unblock_signals().at(Step::Descriptors, "signals")?;
    // Last: the filter refuses calls that the steps above need.
    if let Some(filter) = filter {
        let listener = install(&filter, listens).at(Step::Seccomp, "")?;
        if let (Some(listener), Some(socket)) = (listener, &streams.listener) {
            channel::send(socket, &[1], Some(listener.as_fd())).at(Step::Listener, "")?;
        }
    }
    Ok(execute(plan, &candidates(plan)))
}

/// Waits until this process is in the sandbox's root, and makes the inner mount namespace of it.
fn wait_for_root(plan: &Plan, held: &Held) -> Result<(), Failure> {
    if channel::receive(held.gate.as_fd()).at(Step::Channel, "init")?.is_none() {
        return Err(Failure::new(Step::Channel, "init", &rustix::io::Errno::PIPE.into()));
    }
    // Whoever moved our parent to another processor has done so before it sent the root.
    held.processors.restore().at(Step::Affinity, "")?;
    sys::unshare(libc::CLONE_NEWNS).at(Step::InnerUser, "mounts")?;
    rustix::process::chdir(Path::new(TREE_PLACE).join(&plan.cwd)).at(Step::Cwd, plan.cwd.to_string_lossy())
}

/// With a listener, a call that is being answered is interrupted by deadly signals only (Linux 5.19); before that any
/// signal can make it return EINTR.
fn install(program: &[sys::Instruction], listens: bool) -> io::Result<Option<OwnedFd>> {
    const WAIT_KILLABLE: libc::c_ulong = 1 << 5;
    if !listens {
        return sys::install_filter(program, 0);
    }
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    match sys::install_filter(program, listener | WAIT_KILLABLE) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => sys::install_filter(program, listener),
        installed => installed,
    }
}

/// Rights by place (see `landlock_rules`); the level without namespaces has other places.
fn grants(plan: &Plan) -> Grants {
    let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect();
    match plan.level {
        Level::Full => Grants {
            read: paths(&["/"]),
            write: paths(&[TREE_PLACE, HOME_PLACE, "/tmp", "/dev/shm", "/dev/mqueue"]),
            devices: paths(&["/dev", "/proc"]),
        },
        Level::Landlock => crate::sandbox::bare::grants(plan),
    }
}

fn limit(plan: &Plan) -> Result<(), Failure> {
    // No core files: where they go is the host's business (core(5)).
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(Resource::Core, none).at(Step::Rlimits, "core")?;
    // The same number of descriptors on every machine; the hard limit is raised no further than it is.
    let files = rustix::process::getrlimit(Resource::Nofile);
    let current = files.maximum.map_or(1024, |maximum| maximum.min(1024));
    let soft = Rlimit { current: Some(current), maximum: files.maximum };
    rustix::process::setrlimit(Resource::Nofile, soft).at(Step::Rlimits, "nofile")?;
    // The caller's own soft limits are none of the check's business: it gets as much as the hard ones allow.
    for resource in [
        Resource::Cpu,
        Resource::Fsize,
        Resource::Data,
        Resource::As,
        Resource::Nproc,
        Resource::Sigpending,
        Resource::Msgqueue,
    ] {
        let maximum = rustix::process::getrlimit(resource).maximum;
        rustix::process::setrlimit(resource, Rlimit { current: maximum, maximum })
            .at(Step::Rlimits, "soft limits")?;
    }
    let stack = rustix::process::getrlimit(Resource::Stack);
    let size = stack.maximum.map_or(8 << 20, |maximum| maximum.min(8 << 20));
    let soft = Rlimit { current: Some(size), maximum: stack.maximum };
    rustix::process::setrlimit(Resource::Stack, soft).at(Step::Rlimits, "stack")?;
    if let (Some(pids), true, false) = (plan.limits.pids, plan.uses(Layer::Pids), plan.cgroup.has("pids")) {
        // Counted per user namespace since Linux 5.14, so that the user's other processes do not count here. Fewer than
        // asked for is no answer: a check that fails for want of processes would be on record as failed.
        if let Some(own) = rustix::process::getrlimit(Resource::Nproc).maximum.filter(|own| *own < pids) {
            let why = format!("{pids} processes are asked for, and the caller's own hard limit is {own}");
            return Err(Failure::new(Step::Rlimits, why, &rustix::io::Errno::PERM.into()));
        }
        let most = Rlimit { current: Some(pids), maximum: Some(pids) };
        rustix::process::setrlimit(Resource::Nproc, most).at(Step::Rlimits, "nproc")?;
    }
    Ok(())
}

/// Restricts the processors that are seen, so that programs start as many workers as they may use; the first ones
/// of those allowed.
fn affinity(milli: u32) -> Result<(), Failure> {
    let allowed = rustix::thread::sched_getaffinity(None).at(Step::Affinity, "")?;
    let mut wanted = rustix::thread::CpuSet::new();
    let mut left = milli.div_ceil(1000).max(1);
    for cpu in 0..rustix::thread::CpuSet::MAX_CPU {
        if left > 0 && allowed.is_set(cpu) {
            wanted.set(cpu);
            left -= 1;
        }
    }
    rustix::thread::sched_setaffinity(None, &wanted).at(Step::Affinity, "")
}

fn place_streams(streams: &Streams, errors: &OwnedFd) -> Result<(), Failure> {
    for (fd, number) in [(&streams.null, 0), (&streams.stdout, 1), (&streams.stderr, 2)] {
        sys::place_descriptor(fd.as_fd(), number).at(Step::Descriptors, number.to_string())?;
    }
    let kept: Vec<i32> =
        [Some(errors), streams.listener.as_ref()].into_iter().flatten().map(AsRawFd::as_raw_fd).collect();
    sys::keep_only(&kept).at(Step::Descriptors, "close")
}

/// Full paths that the command's first word may mean, in the order of the search (execvp(3)).
fn candidates(plan: &Plan) -> Vec<CString> {
    let Some(word) = plan.argv.first() else { return Vec::new() };
    if word.to_bytes().contains(&b'/') || word.is_empty() {
        return vec![word.clone()];
    }
    plan.path
        .iter()
        .filter_map(|folder| {
            let path = folder.join(std::ffi::OsStr::from_bytes(word.to_bytes()));
            CString::new(path.as_os_str().as_bytes()).ok()
        })
        .collect()
}

fn execute(plan: &Plan, programs: &[CString]) -> io::Error {
    let mut last = io::Error::from_raw_os_error(libc::ENOENT);
    for program in programs {
        let error = sys::execute(program, &plan.argv, &plan.env);
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => {}
            // As every shell and execvp(3) do for a script without a first line that names its interpreter.
            Some(libc::ENOEXEC) => return execute_by_shell(plan, program),
            // Found but not to be executed: the search goes on, and this is what is told if nothing better comes.
            Some(libc::EACCES) => last = error,
            _ => return error,
        }
    }
    last
}

fn execute_by_shell(plan: &Plan, script: &CStr) -> io::Error {
    let mut argv = vec![c"sh".to_owned(), script.to_owned()];
    argv.extend(plan.argv.iter().skip(1).cloned());
    sys::execute(c"/bin/sh", &argv, &plan.env)
}
