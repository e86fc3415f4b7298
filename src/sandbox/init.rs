//! PID 1 of the sandbox: enters the root, starts the command, reaps, forwards signals, and takes everything down
//! with it when the command's first process has ended. One thread, no long-lived state beside its descriptors.
#![forbid(unsafe_code)]

use crate::model::guise::Shape;
use crate::model::policy::Network;
use crate::sandbox::plan::Plan;
use crate::sandbox::processors::Processors;
use crate::sandbox::wire::{At, Failure, Order, Report, Step};
use crate::sandbox::{cgroup, channel, command, mounts, network, proxy, sys};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;

/// What the init process is started with.
#[derive(Debug)]
pub(super) struct Inside {
    /// To the launcher.
    pub(super) channel: OwnedFd,
    /// The check's standard output.
    pub(super) stdout: OwnedFd,
    /// The check's standard error.
    pub(super) stderr: OwnedFd,
    /// The check's standard input.
    pub(super) null: OwnedFd,
    /// Where the root that is built for it comes from.
    pub(super) root: OwnedFd,
    /// Where the listener of the system call filter goes, if there is to be one.
    pub(super) listener: Option<OwnedFd>,
    /// Those that the check is to have.
    pub(super) processors: Processors,
}

/// Runs the init process in a process just forked from the supervisor; ends the process and with it the sandbox.
pub(super) fn run(plan: &Plan, inside: Inside) -> ! {
    // Whatever else the supervisor had open is its own: a copy of its channel here would hide its end from the
    // launcher, which would wait for it while we wait for the launcher.
    let own = [&inside.channel, &inside.stdout, &inside.stderr, &inside.null, &inside.root];
    let kept: Vec<i32> = own.into_iter().chain(&inside.listener).map(AsRawFd::as_raw_fd).collect();
    if let Err(error) = sys::keep_only(&kept) {
        let failure = Failure::new(Step::Descriptors, "init", &error);
        let _ = channel::send(&inside.channel, &Report::Failed(failure).encode(), None);
        sys::exit_now(1);
    }
    match serve(plan, inside) {
        Ok(()) => sys::exit_now(0),
        Err(()) => sys::exit_now(1),
    }
}

/// An error has been sent to the launcher already where that was possible.
fn serve(plan: &Plan, inside: Inside) -> Result<(), ()> {
    let Inside { channel, stdout, stderr, null, root, listener, processors } = inside;
    let tell = |report: &Report| channel::send(&channel, &report.encode(), None).map_err(drop);
    let child = prepare(plan, &channel).and_then(|()| {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).at(Step::Fork, "pipe")?;
        let (gate, held) = channel::pair().at(Step::Channel, "command")?;
        let signals = sys::signal_descriptor(&[libc::SIGCHLD]).at(Step::Fork, "signals")?;
        // The command's process comes as far as it can while the supervisor still builds the root.
        match sys::fork().at(Step::Fork, "command")? {
            sys::Forked::Child => {
                drop((read, gate, root));
                let held = Some(command::Held { gate: held, processors });
                command::run(plan, &command::Streams { null, stdout, stderr, listener, held }, &write)
            }
            sys::Forked::Parent(pid) => {
                // So that its end is seen here.
                drop(held);
                hide_command_line();
                let proc = mounts::new_proc().at(Step::Proc, "")?.0;
                // Not before it has its user namespace, which the kernel refuses to whoever has another root than the mount
                // namespace, as it has for a moment while ours is exchanged (user_namespaces(7)). Where it is gone, it has said
                // why.
                let is_held = channel::receive(gate.as_fd()).at(Step::Channel, "command")?.is_some();
                enter(root, proc.as_fd())?;
                wait_for(Order::Start, &channel)?;
                if is_held {
                    let _ = channel::send(&gate, &[1], None);
                }
                Ok((pid, read, signals))
            }
        }
    });
    // Whatever became of the child, our copies of its streams are closed from here on, so that their end is seen.
    let (pid, read, signals) = match child {
        Ok(child) => child,
        Err(failure) => return tell(&Report::Failed(failure)).and(Err(())),
    };
    sys::bound_capabilities();
    drop(sys::drop_capabilities());
    match command::outcome(read) {
        None => tell(&Report::Started)?,
        Some(report) => return tell(&report).and(Err(())),
    }
    let ending = watch(pid, &channel, &signals).map_err(drop)?;
    // Nothing survives the command: its children are killed and reaped here, before we answer.
    let mut leftovers = 0;
    if sys::kill(-1, libc::SIGKILL).is_ok() {
        while let Ok(Some(_)) = sys::wait(-1, true) {
            leftovers += 1;
        }
    }
    // A check that passes did without.
    let usual = plan.network != Network::Host && plan.guise.network == Shape::Loopback;
    let network = usual && ending != Ok(0) && looked_for_network();
    tell(&Report::Ended { ending, leftovers, network })
}

/// Whether anything here asked for a name server, or for a way to another host: the counters of our own network namespace
/// tell (RFC 4293 by way of proc(5), /proc/net/snmp and snmp6). A connection to a closed port of loopback is not counted.
fn looked_for_network() -> bool {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/self/net/{name}")).unwrap_or_default();
    let (four, six) = (read("snmp"), read("snmp6"));
    let counter = |family: &str, name: &str| {
        let mut lines = four.lines().filter_map(|line| line.strip_prefix(family)?.strip_prefix(": "));
        let at = lines.next()?.split(' ').position(|word| word == name)?;
        lines.next()?.split(' ').nth(at)?.parse::<u64>().ok()
    };
    let six = |name: &str| {
        six.lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
            .filter(|count| *count > 0)
    };
    counter("Udp", "NoPorts").is_some_and(|count| count > 0)
        || counter("Ip", "OutNoRoutes").is_some_and(|count| count > 0)
        || six("Udp6NoPorts").or_else(|| six("Ip6OutNoRoutes")).is_some()
}

/// What does not depend on the root.
fn prepare(plan: &Plan, channel: &OwnedFd) -> Result<(), Failure> {
    let signal = libc::c_ulong::from(libc::SIGKILL.unsigned_abs());
    sys::prctl(libc::PR_SET_PDEATHSIG, signal).at(Step::Fork, "death signal")?;
    drop(sys::set_name(c"init"));
    if plan.network != Network::Host {
        sys::unshare(libc::CLONE_NEWNET).at(Step::Namespaces, "network")?;
        network::shape(plan.guise.network).at(Step::Loopback, "")?;
    }
    if plan.proxy.is_some() {
        let socket = proxy::socket().at(Step::Proxy, "socket")?;
        let report = Report::Listening.encode();
        // Ours is closed at once: whoever has it could take the check's connections.
        channel::send(channel, &report, Some(socket.as_fd())).at(Step::Proxy, "hand over")?;
    }
    wait_for(Order::Go, channel)
}

/// Enters the root as soon as it is built, and with it the command's process, whose root is the same so far (pivot_root(2)).
fn enter(supervisor: OwnedFd, proc: BorrowedFd<'_>) -> Result<(), Failure> {
    let Some((_, Some(root))) = channel::receive(supervisor.as_fd()).at(Step::Channel, "root")? else {
        // What went wrong is told by the supervisor itself.
        return Err(Failure::new(Step::Channel, "root", &io::Error::from(rustix::io::Errno::PIPE)));
    };
    mounts::show_proc(root.as_fd(), proc).at(Step::Proc, "")?;
    mounts::enter(root.as_fd())
}

/// Overwrites the copy of the launcher's command line and environment that /proc/1/cmdline would show to the check:
/// host paths are none of its business and differ between machines (proc(5): arg_start, arg_end, fields 48 and 49).
fn hide_command_line() {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return };
    let Some((_, fields)) = stat.rsplit_once(") ") else { return };
    // Field 3 comes first here.
    let field = |number: usize| fields.split(' ').nth(number - 3)?.parse::<u64>().ok();
    for (start, end) in [(48, 49), (50, 51)] {
        if let (Some(start), Some(end)) = (field(start), field(end))
            && let Ok(length) = usize::try_from(end.saturating_sub(start))
        {
            let mut blank = vec![0_u8; length];
            if length > 5 {
                blank[..4].copy_from_slice(b"init");
            }
            drop(sys::write_memory(std::process::id(), start, &blank));
        }
    }
}

/// Waits for one of the launcher's orders: to go on, which comes when the control group is ready and we are in it, so that all
/// that follows is counted, or to let the command start. If the launcher is gone, or changes its mind, its end of the socket
/// closes.
pub(super) fn wait_for(wanted: Order, channel: &OwnedFd) -> Result<(), Failure> {
    loop {
        let order = channel::receive(channel.as_fd()).at(Step::Channel, "wait for the launcher")?;
        match order.and_then(|(bytes, along)| Some((Order::decode(&bytes)?, along))) {
            Some((Order::Join, Some(door))) => cgroup::enter(&door).at(Step::JoinCgroup, "enter")?,
            Some((order, _)) if order == wanted => return Ok(()),
            _ => {
                let gone = io::Error::from(rustix::io::Errno::PIPE);
                return Err(Failure::new(Step::Channel, "launcher gone", &gone));
            }
        }
    }
}

/// Reaps whatever ends and forwards what the launcher orders, until the command's first process ends.
pub(super) fn watch(command: i32, channel: &OwnedFd, signals: &OwnedFd) -> io::Result<Result<i32, i32>> {
    loop {
        while let Some(waited) = sys::wait(-1, false)? {
            if waited.pid == command {
                return Ok(waited.ending);
            }
        }
        let mut fds = [PollFd::new(signals, PollFlags::IN), PollFd::new(channel, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let (child, order) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
        if child {
            while sys::take_signal(signals.as_fd())?.is_some() {}
        }
        if order {
            match channel::receive(channel.as_fd())? {
                Some((bytes, _)) => {
                    if let Some(Order::Signal(signal)) = Order::decode(&bytes) {
                        // The command leads its own session and group, which bear its number.
                        drop(sys::kill(-command, signal));
                    }
                }
                // The launcher is gone: so are we, and with us the namespace.
                None => return Err(rustix::io::Errno::PIPE.into()),
            }
        }
    }
}
