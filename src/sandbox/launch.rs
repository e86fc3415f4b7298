//! The launcher's side of a run: starts the supervisor, moves the init process into its control group, reads the
//! check's output, keeps the deadline, and says what was seen. The only file that starts a sandbox.
#![forbid(unsafe_code)]

use crate::model::event::{Event, Sink, Stream};
use crate::model::layer::{Enforcement, Layer, LayerState, Level};
use crate::model::outcome::{Ending, LookedAt, Observation, Stop, Usage};
use crate::sandbox::Interrupts;
use crate::sandbox::cgroup::{self, Counted, Group};
use crate::sandbox::channel::{self, Ready};
use crate::sandbox::observer::read_observation_file;
use crate::sandbox::plan::Plan;
use crate::sandbox::proxy::Proxy;
use crate::sandbox::wire::{At, Failure, Order, Report, Step};
use crate::sandbox::{SandboxError, bare, reports, supervisor, sys};
use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{Signal, pidfd_send_signal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a command that was told to end may take before it is killed, so that a limit's answer comes within two seconds.
const GRACE: Duration = Duration::from_millis(1500);
/// How long output is waited for once every process of the run is gone; there is normally nothing to wait for.
const DRAIN: Duration = Duration::from_secs(1);

/// One run in progress. Dropped early, it kills the sandbox and reaps the supervisor.
struct Run<'a> {
    plan: &'a Plan,
    supervisor: i32,
    alive: bool,
    from_supervisor: Option<OwnedFd>,
    init: Option<OwnedFd>,
    init_pidfd: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    proxy: Option<Proxy>,
    group: Option<Group>,
    counted: Option<Counted>,
    started: Instant,
    deadline: Option<Instant>,
    stop: Option<Stop>,
    ending: Option<Ending>,
    leftovers: u32,
    network: bool,
    usage: Option<Usage>,
    full: bool,
    printed: u64,
    failure: Option<Failure>,
    escaped: Option<String>,
    looked_at: LookedAt,
    results: Vec<reports::Left>,
}

/// Runs a plan to its end. The check's output goes to `sink` as it comes.
///
/// # Errors
/// Where the sandbox could not be built as planned; never for what the check does.
pub fn run(plan: &Plan, interrupts: &Interrupts, sink: &mut dyn Sink) -> Result<Observation, SandboxError> {
    let mut run = Run::start(plan)?;
    run.attend(interrupts, sink)?;
    run.finish()
}

impl<'a> Run<'a> {
    fn start(plan: &'a Plan) -> Result<Self, SandboxError> {
        let (channels, ours) = channel::open_all()?;
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let proxy = plan.proxy.as_ref().map(|rules| Proxy::start(rules, plan.user)).transpose()?;
        let started = Instant::now();
        let supervisor = match sys::fork().at(Step::Fork, "supervisor")? {
            sys::Forked::Child => match plan.level {
                Level::Full => supervisor::run(plan, channels, own),
                Level::Landlock => bare::run(plan, channels),
            },
            sys::Forked::Parent(pid) => pid,
        };
        let mut run = Self {
            plan,
            supervisor,
            alive: true,
            from_supervisor: Some(ours.launcher),
            init: Some(ours.init),
            init_pidfd: None,
            stdout: Some(ours.stdout),
            stderr: Some(ours.stderr),
            proxy,
            group: None,
            counted: None,
            started,
            deadline: None,
            stop: None,
            ending: None,
            leftovers: 0,
            network: false,
            usage: None,
            full: false,
            printed: 0,
            failure: None,
            escaped: None,
            looked_at: LookedAt::Unknown(if plan.observe { LOST } else { "not observed" }.to_owned()),
            results: Vec::new(),
        };
        // While the supervisor builds; the init process waits until it is in the group.
        // Distinguishes the runs of one process.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("checkrun-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        run.group = Group::create(&plan.cgroup, &plan.limits, &name).map_err(SandboxError::Cgroup)?;
        if !plan.cgroup_is_unified() {
            // Before there is an init process: to wait for word of it first would only cost time.
            let doors =
                run.group.as_ref().map_or(Ok(Vec::new()), Group::doors).map_err(SandboxError::Cgroup)?;
            doors.iter().try_for_each(|door| run.order(Order::Join, Some(door.as_fd())))?;
            run.order(Order::Go, None)?;
        }
        Ok(run)
    }

    fn order(&self, order: Order, along: Option<BorrowedFd<'_>>) -> Result<(), SandboxError> {
        let Some(init) = &self.init else { return Ok(()) };
        channel::send(init, &order.encode(), along).at(Step::Channel, "init").map_err(Into::into)
    }

    /// Until the supervisor is gone and both streams are at their end.
    fn attend(&mut self, interrupts: &Interrupts, sink: &mut dyn Sink) -> Result<(), SandboxError> {
        let mut buffer = vec![0_u8; 64 * 1024];
        let timeout = self.started.checked_add(self.plan.limits.timeout);
        let mut drained_by = None;
        loop {
            let streams = self.stdout.is_some() || self.stderr.is_some();
            if self.from_supervisor.is_none() && !streams {
                return Ok(());
            }
            if self.from_supervisor.is_none() {
                let by = *drained_by.get_or_insert_with(|| Instant::now() + DRAIN);
                if Instant::now() >= by {
                    return Ok(());
                }
            }
            let next = [self.deadline, timeout.filter(|_| self.stop.is_none()), drained_by]
                .into_iter()
                .flatten()
                .min();
            let ready = self.wait_for_something(interrupts, next)?;
            if ready.signal
                && let Some(signal) = interrupts.pending()
            {
                self.interrupt(signal);
            }
            if ready.alarm {
                self.check_memory();
            }
            for (stream, is_ready) in [(Stream::Stdout, ready.stdout), (Stream::Stderr, ready.stderr)] {
                if is_ready {
                    self.read(stream, &mut buffer, sink);
                }
            }
            if ready.init {
                self.hear_init(sink)?;
            }
            if ready.supervisor {
                self.hear_supervisor()?;
            }
            self.keep_time(timeout);
        }
    }

    fn wait_for_something(
        &self,
        interrupts: &Interrupts,
        until: Option<Instant>,
    ) -> Result<Ready, SandboxError> {
        let alarm = self.group.as_ref().and_then(|group| group.alarm.as_ref());
        // A regular file is always readable, so only the urgent flag says anything of the events file of a control group
        // (cgroups(7)); an eventfd signals by POLLIN.
        let unified = self.plan.cgroup_is_unified();
        let urgent = if unified { PollFlags::PRI } else { PollFlags::IN | PollFlags::PRI };
        let sources: [(Option<BorrowedFd<'_>>, PollFlags); 6] = [
            (Some(interrupts.descriptor()), PollFlags::IN),
            (alarm.map(AsFd::as_fd), urgent),
            (self.stdout.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (self.stderr.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (self.init.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (self.from_supervisor.as_ref().map(AsFd::as_fd), PollFlags::IN),
        ];
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let [signal, alarm, stdout, stderr, init, supervisor] =
            channel::wait(&sources, left).at(Step::Channel, "poll")?;
        Ok(Ready { signal, alarm, stdout, stderr, init, supervisor })
    }

    fn read(&mut self, stream: Stream, buffer: &mut [u8], sink: &mut dyn Sink) {
        let slot = if stream == Stream::Stdout { &mut self.stdout } else { &mut self.stderr };
        let Some(fd) = slot else { return };
        let Ok(read @ 1..) = rustix::io::read(&*fd, &mut *buffer) else {
            *slot = None;
            return;
        };
        let room = self.plan.limits.output.0.saturating_sub(self.printed);
        let kept = usize::try_from(room).map_or(read, |room| room.min(read));
        self.printed += u64::try_from(kept).unwrap_or(0);
        if kept > 0 {
            sink.event(Event::Output(stream, &buffer[..kept]));
        }
        if kept < read && self.stop.is_none() {
            self.stop = Some(Stop::Output);
            self.kill();
        }
    }

    fn hear_init(&mut self, sink: &mut dyn Sink) -> Result<(), SandboxError> {
        let Some(socket) = &self.init else { return Ok(()) };
        let message = channel::receive(socket.as_fd()).at(Step::Channel, "init")?;
        let (bytes, along) = message.unzip();
        match bytes.and_then(|bytes| Report::decode(&bytes)) {
            Some(Report::Listening) => {
                if let (Some(proxy), Some(socket)) = (&self.proxy, along.flatten()) {
                    proxy.listen(socket.as_fd())?;
                }
            }
            Some(Report::Started) => sink.event(Event::Started),
            Some(Report::NotExecuted(errno)) => self.ending = Some(Ending::NotExecuted(errno)),
            Some(Report::Ended { ending, leftovers, network }) => {
                self.ending = Some(ending.map_or_else(Ending::Signalled, Ending::Exited));
                (self.leftovers, self.network) = (leftovers, network);
                // Nothing is left that could count further; the supervisor is still at its own end.
                self.counted = self.group.as_ref().map(Group::counted);
            }
            Some(Report::Failed(failure)) => self.failure = Some(failure),
            Some(_) => {}
            None => self.init = None,
        }
        Ok(())
    }

    fn hear_supervisor(&mut self) -> Result<(), SandboxError> {
        let Some(socket) = &self.from_supervisor else { return Ok(()) };
        let Some((bytes, along)) = channel::receive(socket.as_fd()).at(Step::Channel, "supervisor")? else {
            self.from_supervisor = None;
            return Ok(());
        };
        match Report::decode(&bytes) {
            Some(Report::Init(pid)) => {
                self.init_pidfd = along;
                if let Some(group) = self.group.as_ref().filter(|_| self.plan.cgroup_is_unified()) {
                    group.add(pid).map_err(SandboxError::Cgroup)?;
                    self.order(Order::Go, None)?;
                }
                // While the check starts.
                cgroup::sweep(&self.plan.cgroup);
            }
            Some(Report::Failed(failure)) => {
                self.failure = Some(failure);
                // An init process that waits for its order ends when this closes.
                self.init = None;
            }
            Some(Report::Escaped(why)) => self.escaped = Some(why),
            Some(Report::Observed) => {
                self.looked_at = along
                    .and_then(read_observation_file)
                    .map_or_else(|| LookedAt::Unknown(LOST.to_owned()), LookedAt::Paths)
            }
            Some(Report::Left) => self.results = along.map(reports::read).unwrap_or_default(),
            Some(Report::Unobserved(why)) => self.looked_at = LookedAt::Unknown(why),
            Some(Report::Usage { user_us, sys_us, max_rss_kib, written_bytes, full }) => {
                let secs = |us: u64| Duration::from_micros(us).as_secs_f64();
                let rss = max_rss_kib.saturating_mul(1024);
                self.full = full;
                self.usage = Some(Usage {
                    user_secs: secs(user_us),
                    sys_secs: secs(sys_us),
                    max_rss_bytes: self.counted().peak_memory.unwrap_or(rss),
                    written_bytes,
                });
                if self.plan.level == Level::Full {
                    // Nobody is left in it, and the supervisor takes its time to end.
                    self.counted = Some(self.counted());
                    self.group = None;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// What the control group has counted.
    fn counted(&self) -> Counted {
        self.counted.or_else(|| self.group.as_ref().map(Group::counted)).unwrap_or_default()
    }

    fn interrupt(&mut self, signal: i32) {
        if matches!(self.stop, Some(Stop::Interrupt(_))) {
            // Asked twice: no more grace.
            self.kill();
        } else {
            self.stop = Some(Stop::Interrupt(signal));
            self.ask_to_end(signal);
        }
    }

    fn check_memory(&mut self) {
        if self.stop.is_none() && self.group.as_ref().is_some_and(Group::is_out_of_memory) {
            self.stop = Some(Stop::Memory);
            self.kill();
        }
    }

    fn keep_time(&mut self, timeout: Option<Instant>) {
        let now = Instant::now();
        if self.deadline.is_some_and(|at| now >= at) {
            self.deadline = None;
            self.kill();
        }
        if self.stop.is_none() && self.ending.is_none() && timeout.is_some_and(|at| now >= at) {
            self.stop = Some(Stop::Timeout);
            self.ask_to_end(libc::SIGTERM);
        }
    }

    /// Passes a signal on to the command's process group and sets the time of the kill.
    fn ask_to_end(&mut self, signal: i32) {
        drop(self.order(Order::Signal(signal), None));
        self.deadline = Instant::now().checked_add(GRACE);
    }

    /// Kills the init process and with it every process of the namespace (pid_namespaces(7)).
    fn kill(&self) {
        match &self.init_pidfd {
            Some(pidfd) => drop(pidfd_send_signal(pidfd, Signal::KILL)),
            None => drop(sys::kill(self.supervisor, libc::SIGKILL)),
        }
    }

    fn finish(mut self) -> Result<Observation, SandboxError> {
        self.reap();
        if let Some(failure) = self.failure.take() {
            return Err(failure.into());
        }
        let reached = self.proxy.take().map(Proxy::finish).transpose()?.unwrap_or_default();
        let counted = self.counted();
        // The usage is the supervisor's last word. Without it, whatever ending was told is not the check's own: as the
        // supervisor dies, calls that wait for its answer fail with ENOSYS (seccomp_unotify(2)), execve(2) among them.
        if self.stop.is_none() && self.usage.is_none() {
            return Err(SandboxError::Lost);
        }
        let mut layers = self.plan.layers.clone();
        // Where nothing was executed, the only program was ours.
        let executed = !matches!(self.ending, Some(Ending::NotExecuted(_)));
        if let Some(why) = self.escaped.take().filter(|_| executed) {
            layers.insert(Layer::Clock, LayerState::Partial(why));
        }
        Ok(Observation {
            ending: self.ending,
            stop: self.stop,
            pids_hit: counted.ran_out_of_pids,
            disk_hit: self.full,
            oom_hit: counted.ran_out_of_memory,
            leftovers: self.leftovers,
            network: self.network,
            reached,
            secs: self.started.elapsed().as_secs_f64(),
            usage: self.usage.unwrap_or_default(),
            results: std::mem::take(&mut self.results),
            looked_at: std::mem::replace(&mut self.looked_at, LookedAt::Unknown(String::new())),
            enforcement: Enforcement { level: self.plan.level, layers },
        })
    }

    fn reap(&mut self) {
        if std::mem::take(&mut self.alive) {
            drop(sys::wait(self.supervisor, true));
        }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if self.alive {
            self.kill();
            if self.plan.level == Level::Full {
                // The supervisor may not have come as far as an init process; its death takes that one along.
                drop(sys::kill(self.supervisor, libc::SIGKILL));
            }
            // At the other level it ends what is left of the check when these close.
            drop((self.init.take(), self.from_supervisor.take()));
            self.reap();
        }
    }
}

/// Why an observation that was to come did not.
const LOST: &str = "the supervisor ended before it could tell";
