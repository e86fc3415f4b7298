//! What the launcher does while a run goes on: it hears the sandbox's processes, passes output on, and keeps time. Nothing
//! is started here.
#![forbid(unsafe_code)]

use crate::model::event::{Event, Sink, Stream};
use crate::model::layer::Level;
use crate::model::outcome::{Ending, LookedAt, Stop, Usage};
use crate::sandbox::cgroup::{self, Group};
use crate::sandbox::channel::{self, Ready};
use crate::sandbox::launch::{LOST, Run};
use crate::sandbox::observer::read_observation_file;
use crate::sandbox::wire::{At, Order, Report, Step};
use crate::sandbox::{Interrupts, SandboxError, reports};
use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a command that was told to end may take before it is killed, so that a limit's answer comes within two seconds.
const GRACE: Duration = Duration::from_millis(1500);
/// How long output is waited for once every process of the run is gone; there is normally nothing to wait for.
const DRAIN: Duration = Duration::from_secs(1);

impl Run<'_> {
    /// Until the supervisor is gone and both streams are at their end.
    pub(super) fn attend(
        &mut self,
        interrupts: &Interrupts,
        sink: &mut dyn Sink,
    ) -> Result<(), SandboxError> {
        let mut buffer = vec![0_u8; 64 * 1024];
        let timeout = self.started.checked_add(self.plan.limits.timeout);
        let mut drained_by = None;
        loop {
            let streams = self.stdout.is_some() || self.stderr.is_some();
            let over = self.from_supervisor.is_none() || self.is_told();
            if over && !streams {
                return Ok(());
            }
            if over {
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

    /// Whether everybody has said all. At level `landlock` the supervisor has still to end, since what it leaves behind is in
    /// the control group.
    fn is_told(&self) -> bool {
        self.plan.level == Level::Full && self.usage.is_some() && self.init.is_none()
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
                let is_over = self.init_pidfd.as_ref().is_none_or(is_over);
                let group = self.group.as_ref().filter(|_| self.plan.cgroup_is_unified());
                // One that has ended meanwhile has said why, and its number may be another's.
                if let Some(group) = group.filter(|_| !is_over) {
                    group.add(pid).map_err(SandboxError::Cgroup)?;
                    self.let_build()?;
                    self.let_start()?;
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
}

/// Whether the process of a pidfd has ended: it is readable then (pidfd_open(2)).
fn is_over(pidfd: &OwnedFd) -> bool {
    matches!(channel::wait(&[(Some(pidfd.as_fd()), PollFlags::IN)], Some(Duration::ZERO)), Ok([true]))
}
