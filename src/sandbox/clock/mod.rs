//! The fixed clock: answers to the calls that the filter sends to the supervisor.
//!
//! Programs read the wall clock through the vDSO, so each program's copy is rewritten when it starts, before `main`: at a
//! call that every libc and the Go runtime make then (`starts`). Raw calls are answered here. Absolute waits on a wall
//! clock are translated to the real one (`waits`). Where that fails for a program it has escaped, and the record says so.
//! No tracer is attached, so debuggers work inside. Which calls are sent here is `seccomp`'s.
//!
//! Calls are sent here only where they may be interrupted by a signal, or nothing depends on it, or where no handler can be
//! installed yet: one that waits for its answer can come back with EINTR. So the end of a program is not among them; a C library that sees its
//! exit interrupted crashes.
//!
//! What is shown is the boot clock and a constant, so that neither the machine's date nor a change of it matters.
#![forbid(unsafe_code)]

mod files;
mod lent;
mod target;
mod timeline;
mod vdso;
mod waits;

use crate::model::policy::ClockMode;
use crate::sandbox::starts;
use crate::sandbox::sys::{self, Notification, Verdict};
use files::FileTimes;
use lent::Lent;
use rustix::fd::BorrowedFd;
use rustix::time::ClockId;
use std::collections::HashMap;
use std::io;
use std::time::Duration;
use target::{Target, tell_pair};
use timeline::{Timeline, join, split};
use vdso::{Patch, Route};
use waits::Sleeper;

/// The error state of adjtimex(2) that says that no time service is there, which is so inside.
const TIME_ERROR: i64 = 5;
/// Processes whose vDSO's place is remembered; more are forgotten all at once.
const REMEMBERED: usize = 4_096;
/// The most bytes of a reason that go into a record, which has room for little.
const REASON_MAX: usize = 160;

/// The clock of one run.
pub(super) struct Clock {
    timeline: Timeline,
    patch: Patch,
    lent: Lent,
    sleepers: Vec<Sleeper>,
    files: FileTimes,
    /// By process: where the vDSO lay when it was rewritten.
    rewritten: HashMap<u32, u64>,
    /// How far behind the start of the vDSO programs say that they start, by the place within a page from which they say it:
    /// the loader, whose call it mostly is, lies at a fixed distance.
    distances: HashMap<u64, u64>,
    escaped: Option<String>,
    escapes: u32,
}

impl Clock {
    /// Starts the run's timeline now, for processes that see the boot clock `shift` seconds later than we do.
    /// `host_devices` are those of the host's files that the check sees.
    ///
    /// # Errors
    /// The vDSO cannot be rewritten. A clock for raw calls alone would be worse than none: a program would read one clock
    /// and wait on another.
    pub(super) fn start(start: i64, mode: ClockMode, shift: i64, host_devices: Vec<u64>) -> io::Result<Self> {
        // In this order: a file is never shown newer than the clock.
        let (steady, real) = (steady_now(), real_now());
        let timeline = Timeline::new(steady, start, mode);
        let files = FileTimes::new(split(real).0, start, split(join(start, 0) - real), host_devices);
        let unknown = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        let patch = vdso::patch(timeline.route(shift)).ok_or_else(unknown)?;
        Ok(Self {
            timeline,
            patch,
            lent: Lent::default(),
            sleepers: Vec::new(),
            files,
            rewritten: HashMap::new(),
            distances: HashMap::new(),
            escaped: None,
            escapes: 0,
        })
    }

    /// Which program may have seen another clock, and why; `None` where none may.
    pub(super) fn escaped(&self) -> Option<String> {
        let first = self.escaped.as_ref()?;
        Some(if self.escapes > 1 { format!("{first}; {} more", self.escapes - 1) } else { first.clone() })
    }

    fn escape(&mut self, target: Target<'_>, why: &str) {
        self.escapes = self.escapes.saturating_add(1);
        if self.escaped.is_none() {
            let reason = format!("`{}` {why}", target.name().escape_default());
            self.escaped = Some(reason.chars().take(REASON_MAX).collect());
        }
    }

    /// Deals with one waiting call; `None` where the answer comes later.
    pub(super) fn judge(&mut self, call: &Notification, proc: BorrowedFd<'_>) -> Option<Verdict> {
        if let Some(verdict) = self.files.judge(call, proc) {
            return Some(verdict);
        }
        let target = Target { proc, pid: call.pid };
        self.lent.next_call(call.pid);
        if starts::is_one(call) {
            self.program_start(call, target);
            return Some(Verdict::Continue);
        }
        let [first, second, third, fourth, fifth, _] = call.arguments;
        Some(match libc::c_long::from(call.number) {
            libc::SYS_clock_nanosleep => return self.sleep(call, target),
            libc::SYS_clock_adjtime => self.adjustment(target, second),
            libc::SYS_adjtimex => self.adjustment(target, first),
            libc::SYS_clock_gettime => self.reading(target, second, 1),
            libc::SYS_gettimeofday => self.time_of_day(target, first, second),
            libc::SYS_timerfd_settime => self.timer_descriptor(target, call.arguments),
            libc::SYS_timer_settime => self.timer(target, first, third),
            libc::SYS_futex => self.futex(target, call.arguments),
            SYS_FUTEX_WAIT | libc::SYS_mq_timedsend | libc::SYS_mq_timedreceive => self.wait(target, fifth),
            libc::SYS_futex_waitv => self.wait(target, fourth),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_time => self.seconds(target, first),
            _ => Verdict::Continue,
        })
    }

    /// A program has just begun, or says so once more: its vDSO is rewritten.
    fn program_start(&mut self, call: &Notification, target: Target<'_>) {
        if self.is_rewritten(target.pid) {
            return;
        }
        self.files.program_start(call, target.proc);
        match self.rewrite(call, target) {
            Ok(Some(base)) => {
                if self.rewritten.len() >= REMEMBERED {
                    self.rewritten.clear();
                }
                self.rewritten.insert(target.pid, base);
            }
            Err(error) if !is_gone(&error) => {
                self.escape(target, &format!("has a vDSO that could not be rewritten: {error}"));
            }
            _ => {}
        }
    }

    /// Writes over the vDSO of a program that starts; where that lies. A program may be started without one; then it makes
    /// system calls, which are answered.
    fn rewrite(&mut self, call: &Notification, target: Target<'_>) -> io::Result<Option<u64>> {
        let memory = target.memory()?;
        let within_page = call.instruction & 0xfff;
        let likely =
            self.distances.get(&within_page).map(|distance| call.instruction.wrapping_sub(*distance));
        let is_there = |base: &u64| memory.holds(base.wrapping_add(self.patch.at), &self.patch.original);
        let base = match likely.filter(is_there) {
            Some(base) => base,
            // To ask the kernel takes as long as all else here together.
            None => match target.vdso()? {
                Some(base) => {
                    self.distances.insert(within_page, call.instruction.wrapping_sub(base));
                    base
                }
                None => return Ok(None),
            },
        };
        memory.write(base.wrapping_add(self.patch.at), &self.patch.bytes)?;
        Ok(Some(base))
    }

    /// Whether what this process runs was dealt with: another program that it has become since has its vDSO as the kernel
    /// made it, whose first bytes are others.
    fn is_rewritten(&self, pid: u32) -> bool {
        let Some(base) = self.rewritten.get(&pid) else { return false };
        let mut head = [0; 8];
        let read = sys::read_memory(pid, base + self.patch.at, &mut head);
        read.is_ok_and(|read| read == head.len()) && self.patch.bytes.starts_with(&head)
    }

    fn reading(&mut self, target: Target<'_>, at: u64, unit: i64) -> Verdict {
        let (seconds, nanoseconds) = split(self.timeline.read(steady_now(), target.pid));
        fault_unless(tell_pair(target.pid, at, (seconds, nanoseconds / unit)))
    }

    fn time_of_day(&mut self, target: Target<'_>, at: u64, zone: u64) -> Verdict {
        let zone_written = if zone == 0 { Ok(()) } else { sys::write_memory(target.pid, zone, &[0; 8]) };
        if at == 0 || zone_written.is_err() {
            return fault_unless(zone_written);
        }
        self.reading(target, at, 1000)
    }

    #[cfg(target_arch = "x86_64")]
    fn seconds(&mut self, target: Target<'_>, at: u64) -> Verdict {
        let (seconds, _) = split(self.timeline.read(steady_now(), target.pid));
        if at != 0 && sys::write_memory(target.pid, at, &seconds.to_ne_bytes()).is_err() {
            return Verdict::Fail(libc::EFAULT);
        }
        Verdict::Return(seconds)
    }

    /// A reading of the kernel's time-keeping state: an undisciplined clock at the shown time. Setting is refused,
    /// as it is to every ordinary user. Layout of struct timex on 64-bit machines (adjtimex(2)).
    fn adjustment(&mut self, target: Target<'_>, at: u64) -> Verdict {
        let Ok(memory) = target.memory() else { return Verdict::Fail(libc::EFAULT) };
        match memory.pair(at) {
            Ok((modes, _)) if modes & 0xffff_ffff != 0 => return Verdict::Fail(libc::EPERM),
            Ok(_) => {}
            Err(_) => return Verdict::Fail(libc::EFAULT),
        }
        let (seconds, nanoseconds) = split(self.timeline.read(steady_now(), target.pid));
        let mut state = [0_u8; 208];
        let mut put = |at: usize, value: i64| state[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        put(40, 0x40); // STA_UNSYNC
        put(72, seconds);
        put(80, nanoseconds / 1000);
        put(88, 10_000); // microseconds per tick
        match sys::write_memory(target.pid, at, &state) {
            Ok(()) => Verdict::Return(TIME_ERROR),
            Err(_) => Verdict::Fail(libc::EFAULT),
        }
    }

    /// Puts lent memory back and wakes sleepers whose time has come.
    pub(super) fn tick(&mut self, listener: BorrowedFd<'_>, proc: BorrowedFd<'_>) {
        self.lent.tick(proc);
        if self.sleepers.is_empty() {
            return;
        }
        let real = real_now();
        self.sleepers.retain(|sleeper| {
            let sleeps = real < sleeper.until && sys::is_waiting(listener, sleeper.id);
            if !sleeps {
                // Where this fails, a signal has interrupted it.
                drop(sys::answer_notification(listener, sleeper.id, Verdict::Return(0)));
            }
            sleeps
        });
    }

    /// How long one may sleep until the next [`Clock::tick`].
    pub(super) fn next_tick(&self) -> Option<Duration> {
        let first = self.sleepers.iter().map(|sleeper| sleeper.until).min();
        let left = first.map(|first| Duration::from_nanos(u64::try_from(first - real_now()).unwrap_or(0)));
        [left, self.lent.next_tick()].into_iter().flatten().min()
    }
}

/// Whether the vDSO of a program can be rewritten here; else why not, and the remedy. Tried on a process of our own,
/// in which it changes nothing.
///
/// # Errors
/// Says what stands in the way.
pub(super) fn possible() -> Result<(), String> {
    let patch =
        vdso::patch(Route::Syscall).ok_or("this kernel's vDSO has no room or no functions that are known")?;
    let pid = match sys::fork().map_err(|error| error.to_string())? {
        sys::Forked::Child => {
            // Nothing must be left of it if we are killed before we kill it.
            let signal = libc::c_ulong::from(libc::SIGKILL.unsigned_abs());
            drop(sys::prctl(libc::PR_SET_PDEATHSIG, signal));
            let _ = rustix::event::poll(&mut [], None);
            sys::exit_now(0)
        }
        sys::Forked::Parent(pid) => pid,
    };
    let tried = rewrite_as_it_is(pid, &patch);
    drop(sys::kill(pid, libc::SIGKILL));
    drop(sys::wait(pid, true));
    tried.map_err(|error| {
        format!(
            "the vDSO of another process cannot be written to ({error}); kernel.yama.ptrace_scope=3 and the boot \
             parameter proc_mem.force_override forbid it"
        )
    })
}

/// Writes over the vDSO of a process what is there already.
fn rewrite_as_it_is(pid: i32, patch: &Patch) -> io::Result<()> {
    let folder = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let proc = rustix::fs::open("/proc", folder, rustix::fs::Mode::empty())?;
    let target = Target { proc: rustix::fd::AsFd::as_fd(&proc), pid: u32::try_from(pid).unwrap_or(0) };
    let Some(base) = target.vdso()? else { return Ok(()) };
    let memory = target.memory()?;
    let mut bytes = vec![0; patch.bytes.len()];
    memory.read(base + patch.at, &mut bytes)?;
    memory.write(base + patch.at, &bytes)
}

/// futex_wait(2), Linux 6.7.
const SYS_FUTEX_WAIT: libc::c_long = 455;

/// CLOCK_REALTIME, CLOCK_REALTIME_ALARM and CLOCK_TAI.
fn is_wall(clock: i32) -> bool {
    matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_ALARM | libc::CLOCK_TAI)
}

/// A process that was killed meanwhile sees no clock at all.
fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
        || matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof)
}

fn fault_unless(done: io::Result<()>) -> Verdict {
    if done.is_ok() { Verdict::Return(0) } else { Verdict::Fail(libc::EFAULT) }
}

fn real_now() -> i128 {
    let now = rustix::time::clock_gettime(ClockId::Realtime);
    join(now.tv_sec, now.tv_nsec)
}

fn steady_now() -> i128 {
    let now = rustix::time::clock_gettime(ClockId::Boottime);
    join(now.tv_sec, now.tv_nsec)
}
