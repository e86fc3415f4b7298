//! The launcher's side of a run: starts the supervisor, makes the control group, takes the sandbox down, and says what was
//! seen. The only file that starts a sandbox; what happens while it runs is in `attend`.
#![forbid(unsafe_code)]

mod attend;

use crate::model::event::Sink;
use crate::model::layer::{Enforcement, Layer, LayerState, Level};
use crate::model::outcome::{Ending, LookedAt, Observation, Stop, Usage};
use crate::sandbox::Interrupts;
use crate::sandbox::cgroup::{Counted, Group};
use crate::sandbox::channel;
use crate::sandbox::plan::Plan;
use crate::sandbox::processors::Processors;
use crate::sandbox::proxy::Proxy;
use crate::sandbox::wire::{At, Failure, Order, Step};
use crate::sandbox::{SandboxError, bare, reports, supervisor, sys};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// One run in progress. Dropped early, it kills the sandbox and reaps the supervisor.
#[derive(Debug)]
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

/// A sandbox that is being built beside this process. Dropped, it is taken down.
#[derive(Debug)]
pub struct Begun<'a>(Run<'a>);

/// Begins to build what a plan says, with a tree whose layers are these folders of the host, uppermost first.
///
/// # Errors
/// Where that cannot be started; what goes wrong in it is told by [`Begun::run`].
pub fn begin<'a>(plan: &'a Plan, tree: &[PathBuf]) -> Result<Begun<'a>, SandboxError> {
    Run::start(plan, tree).map(Begun)
}

impl Begun<'_> {
    /// Lets the check start, now that the tree that was put in is known to be as it should, and runs it to its end. Its
    /// output goes to `sink` as it comes. The check's time counts from here.
    ///
    /// # Errors
    /// Where the sandbox could not be built as planned; never for what the check does.
    pub fn run(
        self,
        interrupts: &Interrupts,
        sink: &mut dyn Sink,
    ) -> Result<(Observation, Remains), SandboxError> {
        let Self(mut run) = self;
        run.started = Instant::now();
        if !run.plan.cgroup_is_unified() {
            run.let_start()?;
        }
        run.attend(interrupts, sink)?;
        run.finish()
    }
}

/// The supervisor of a run that is over, which has told all and takes its time to end: with it go the mounts. Dropped, it
/// is waited for.
#[derive(Debug)]
pub struct Remains(i32);

impl Drop for Remains {
    fn drop(&mut self) {
        drop(sys::wait(self.0, true));
    }
}

impl<'a> Run<'a> {
    fn start(plan: &'a Plan, tree: &[PathBuf]) -> Result<Self, SandboxError> {
        let (channels, ours) = channel::open_all()?;
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let proxy = plan.proxy.as_ref().map(|rules| Proxy::start(rules, plan.user)).transpose()?;
        let processors = Processors::own();
        let supervisor = match sys::fork().at(Step::Fork, "supervisor")? {
            sys::Forked::Child => match plan.level {
                Level::Full => supervisor::run(plan, tree, channels, own, processors),
                Level::Landlock => bare::run(plan, tree, channels),
            },
            sys::Forked::Parent(pid) => pid,
        };
        if plan.level == Level::Full {
            processors.part_from(supervisor);
        }
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
            started: Instant::now(),
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
            run.let_build()?;
        }
        Ok(run)
    }

    /// Lets the init process go on with what is counted, now that it is in the control group. At level `landlock` there is
    /// none.
    fn let_build(&self) -> Result<(), SandboxError> {
        if self.plan.level == Level::Full { self.order(Order::Go, None) } else { Ok(()) }
    }

    /// Lets the command start.
    fn let_start(&self) -> Result<(), SandboxError> {
        self.order(if self.plan.level == Level::Full { Order::Start } else { Order::Go }, None)
    }

    /// That the init process is gone, or never was, is no error here: the last word of who ended tells why.
    fn order(&self, order: Order, along: Option<BorrowedFd<'_>>) -> Result<(), SandboxError> {
        let Some(init) = &self.init else { return Ok(()) };
        match channel::send(init, &order.encode(), along) {
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            sent => sent.at(Step::Channel, "init").map_err(Into::into),
        }
    }

    /// What the control group has counted.
    fn counted(&self) -> Counted {
        self.counted.or_else(|| self.group.as_ref().map(Group::counted)).unwrap_or_default()
    }

    /// Kills the init process and with it every process of the namespace (pid_namespaces(7)).
    fn kill(&self) {
        match &self.init_pidfd {
            Some(pidfd) => drop(pidfd_send_signal(pidfd, Signal::KILL)),
            None => drop(sys::kill(self.supervisor, libc::SIGKILL)),
        }
    }

    fn finish(mut self) -> Result<(Observation, Remains), SandboxError> {
        // Where it was interrupted before its processes were ready, that may be all they tell.
        let is_interrupted = matches!(self.stop, Some(Stop::Interrupt(_)));
        if let Some(failure) = self.failure.take().filter(|_| !is_interrupted) {
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
        self.alive = false;
        let remains = Remains(self.supervisor);
        let observation = Observation {
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
        };
        Ok((observation, remains))
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
            drop(Remains(self.supervisor));
        }
    }
}

/// Why an observation that was to come did not.
const LOST: &str = "the supervisor ended before it could tell";
