//! The fixed clock: answers to the calls that the filter sends to the supervisor.
//!
//! Programs read the wall clock through the vDSO, so each program's copy is rewritten when it starts: at the call by
//! which every libc and the Go runtime set the thread pointer (`arch_prctl` on x86-64), before `main`. Raw calls are
//! answered here. Absolute waits on a wall clock are translated to the real one. No tracer is attached, so debuggers
//! work inside. Which calls are sent here is `seccomp`'s.
#![forbid(unsafe_code)]

mod files;
mod target;
mod timeline;
mod vdso;

use crate::model::policy::ClockMode;
use crate::sandbox::sys::{self, Notification, Verdict};
use files::FileTimes;
use rustix::fd::BorrowedFd;
use rustix::time::{ClockId, Itimerspec, TimerfdTimerFlags, Timespec};
use std::io;
use std::time::{Duration, Instant};
use target::{Memory, Target};
use timeline::{Timeline, join, split};
use vdso::{Patch, Route};

/// A thread is given this long to fall asleep in a wait whose time was translated, before the memory is put back.
const SETTLE: Duration = Duration::from_millis(5);
/// How often one looks whether it has.
const LOOK: Duration = Duration::from_micros(200);
/// The error state of adjtimex(2) that says that no time service is there, which is so inside.
const TIME_ERROR: i64 = 5;

/// A wait's time in the memory of a process, translated for the moment.
struct Borrowed {
    pid: u32,
    memory: Memory,
    at: u64,
    original: (i64, i64),
    written: (i64, i64),
    until: Instant,
}

/// A thread that sleeps until a real instant.
struct Sleeper {
    id: u64,
    until: i128,
}

/// The clock of one run.
pub(super) struct Clock {
    timeline: Timeline,
    patch: Option<Patch>,
    borrowed: Vec<Borrowed>,
    sleepers: Vec<Sleeper>,
    /// Why some program may have seen another clock, if one may have.
    pub(super) escaped: Option<String>,
    files: FileTimes,
}

impl Clock {
    /// Starts the run's timeline now. `host_devices` are those of the host's files that the check sees.
    pub(super) fn start(start: i64, mode: ClockMode, host_devices: Vec<u64>) -> Self {
        let real = real_now();
        let timeline = Timeline::new(real, start, mode);
        let (real_start, _) = split(real);
        let files = FileTimes::new(real_start, start, split(join(start, 0) - real), host_devices);
        let patch = vdso::patch(timeline.route());
        let escaped = patch.is_none().then(|| "the kernel's vDSO cannot be rewritten".to_owned());
        Self { timeline, patch, borrowed: Vec::new(), sleepers: Vec::new(), escaped, files }
    }

    /// Deals with one waiting call; `None` where the answer comes later.
    pub(super) fn judge(&mut self, call: &Notification, proc: BorrowedFd<'_>) -> Option<Verdict> {
        if let Some(verdict) = self.files.judge(call, proc) {
            return Some(verdict);
        }
        let target = Target { proc, pid: call.pid };
        let [first, second, third, fourth, fifth, _] = call.arguments;
        let number = libc::c_long::from(call.number);
        match number {
            libc::SYS_clock_nanosleep => return self.sleep(call, target, third),
            libc::SYS_clock_adjtime => return Some(self.adjustment(target, second)),
            libc::SYS_adjtimex => return Some(self.adjustment(target, first)),
            libc::SYS_clock_gettime => return Some(self.reading(call, target, second, 1)),
            libc::SYS_gettimeofday => return Some(self.time_of_day(call, target, first, second)),
            libc::SYS_timerfd_settime => return Some(self.timer_descriptor(target, call.arguments)),
            libc::SYS_timer_settime => {
                if target.timer_clock(first).is_some_and(is_wall) {
                    // struct itimerspec: the interval comes first.
                    self.lend_translated(target, third + 16);
                }
            }
            libc::SYS_futex => {
                if let Some(verdict) = self.overdue(target, call.arguments) {
                    return Some(verdict);
                }
                self.lend_translated(target, fourth);
            }
            SYS_FUTEX_WAIT | libc::SYS_mq_timedsend | libc::SYS_mq_timedreceive => self.lend_translated(target, fifth),
            libc::SYS_futex_waitv => self.lend_translated(target, fourth),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_arch_prctl => {
                self.files.program_start(call, proc);
                self.program_start(target);
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_time => return Some(self.seconds(call, target, first)),
            _ => {}
        }
        Some(Verdict::Continue)
    }

    /// A program has just begun: its vDSO is rewritten.
    fn program_start(&mut self, target: Target<'_>) {
        let Some(patch) = &self.patch else { return };
        let written = target.vdso().and_then(|base| {
            // A program may be started without a vDSO; then it makes system calls, which are answered.
            base.map_or(Ok(()), |base| target.memory()?.write(base + patch.at, &patch.bytes))
        });
        if let Err(error) = written
            // A process that was killed meanwhile sees no clock at all.
            && error.raw_os_error() != Some(libc::ESRCH)
            && error.kind() != io::ErrorKind::NotFound
        {
            self.escaped.get_or_insert_with(|| format!("a program's vDSO could not be rewritten: {error}"));
        }
    }

    /// The instant to be written for a call; the vDSO's own code, where it falls back to a system call, adds the
    /// offset itself.
    fn instant(&mut self, call: &Notification, target: Target<'_>) -> i128 {
        let real = real_now();
        let by_offset = self.patch.as_ref().filter(|patch| matches!(patch.route, Route::Offset { .. }));
        if let Some(patch) = by_offset
            && let Ok(Some(base)) = target.vdso()
            && (base..base + patch.length).contains(&call.instruction)
        {
            return real;
        }
        self.timeline.read(real)
    }

    fn reading(&mut self, call: &Notification, target: Target<'_>, at: u64, unit: i64) -> Verdict {
        let (seconds, nanoseconds) = split(self.instant(call, target));
        fault_unless(target.memory().and_then(|memory| memory.write_pair(at, (seconds, nanoseconds / unit))))
    }

    fn time_of_day(&mut self, call: &Notification, target: Target<'_>, at: u64, zone: u64) -> Verdict {
        let zone_written = if zone == 0 { Ok(()) } else { target.memory().and_then(|it| it.write(zone, &[0; 8])) };
        if at == 0 || zone_written.is_err() {
            return fault_unless(zone_written);
        }
        self.reading(call, target, at, 1000)
    }

    #[cfg(target_arch = "x86_64")]
    fn seconds(&mut self, call: &Notification, target: Target<'_>, at: u64) -> Verdict {
        let (seconds, _) = split(self.instant(call, target));
        if at != 0 && target.memory().and_then(|memory| memory.write(at, &seconds.to_ne_bytes())).is_err() {
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
        let (seconds, nanoseconds) = split(self.timeline.read(real_now()));
        let mut state = [0_u8; 208];
        let mut put = |at: usize, value: i64| state[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        put(40, 0x40); // STA_UNSYNC
        put(72, seconds);
        put(80, nanoseconds / 1000);
        put(88, 10_000); // microseconds per tick
        match memory.write(at, &state) {
            Ok(()) => Verdict::Return(TIME_ERROR),
            Err(_) => Verdict::Fail(libc::EFAULT),
        }
    }

    /// clock_nanosleep to an instant: the answer is what is waited for.
    fn sleep(&mut self, call: &Notification, target: Target<'_>, at: u64) -> Option<Verdict> {
        let Ok((seconds, nanoseconds)) = target.memory().and_then(|memory| memory.pair(at)) else {
            return Some(Verdict::Fail(libc::EFAULT));
        };
        if seconds < 0 || !(0..1_000_000_000).contains(&nanoseconds) {
            return Some(Verdict::Fail(libc::EINVAL));
        }
        let real = real_now();
        let until = self.timeline.real_instant(join(seconds, nanoseconds), real);
        if until <= real {
            return Some(Verdict::Return(0));
        }
        self.sleepers.push(Sleeper { id: call.id, until });
        None
    }

    /// timerfd_settime to an instant, carried out here on a copy of the descriptor: the timer is the same.
    fn timer_descriptor(&self, target: Target<'_>, arguments: [u64; 6]) -> Verdict {
        let [number, flags, new, old, ..] = arguments;
        let Ok(number) = i32::try_from(number & 0xffff_ffff) else { return Verdict::Continue };
        let Ok(fd) = target.descriptor(number) else { return Verdict::Continue };
        if !target.descriptor_clock(number).is_some_and(is_wall) {
            return Verdict::Continue;
        }
        let Ok(memory) = target.memory() else { return Verdict::Continue };
        let (Ok(interval), Ok(value)) = (memory.pair(new), memory.pair(new + 16)) else {
            return Verdict::Fail(libc::EFAULT);
        };
        let disarmed = value == (0, 0);
        let value = if disarmed { value } else { self.translate(value) };
        let spec = |pair: (i64, i64)| Timespec { tv_sec: pair.0, tv_nsec: pair.1 };
        let flags = TimerfdTimerFlags::from_bits_truncate(u32::try_from(flags & 0xffff_ffff).unwrap_or(0));
        let setting = Itimerspec { it_interval: spec(interval), it_value: spec(value) };
        match rustix::time::timerfd_settime(&fd, flags, &setting) {
            Ok(before) if old != 0 => {
                let pair = |spec: Timespec| (spec.tv_sec, spec.tv_nsec);
                let told = memory
                    .write_pair(old, pair(before.it_interval))
                    .and_then(|()| memory.write_pair(old + 16, pair(before.it_value)));
                fault_unless(told)
            }
            Ok(_) => Verdict::Return(0),
            Err(error) => Verdict::Fail(error.raw_os_error()),
        }
    }

    fn translate(&self, shown: (i64, i64)) -> (i64, i64) {
        split(self.timeline.real_instant(join(shown.0, shown.1), real_now()))
    }

    /// A futex wait whose time is past already, judged as the kernel would: first the word, then the time (futex(2)).
    /// Such a wait never sleeps, so its memory could not be put back in time.
    fn overdue(&self, target: Target<'_>, arguments: [u64; 6]) -> Option<Verdict> {
        let [word, operation, expected, at, ..] = arguments;
        // FUTEX_WAIT_BITSET is 9; the mask leaves out the private and clock flags.
        if operation & 0x7f != 9 || at == 0 {
            return None;
        }
        let memory = target.memory().ok()?;
        let (seconds, nanoseconds) = memory.pair(at).ok()?;
        let sound = seconds >= 0 && (0..1_000_000_000).contains(&nanoseconds);
        let real = real_now();
        if !sound || self.timeline.real_instant(join(seconds, nanoseconds), real) > real {
            return None;
        }
        let current = memory.word(word).ok()?;
        let same = u64::from(current) == expected & 0xffff_ffff;
        Some(Verdict::Fail(if same { libc::ETIMEDOUT } else { libc::EAGAIN }))
    }

    /// Writes a wait's time over with the real one, lets the kernel carry out the call, and puts it back when the
    /// thread sleeps. The kernel reads it once, at the start of the call.
    fn lend_translated(&mut self, target: Target<'_>, at: u64) {
        if at == 0 {
            return;
        }
        let Ok(memory) = target.memory() else { return };
        let Ok(current) = memory.pair(at) else { return };
        if current.0 < 0 || !(0..1_000_000_000).contains(&current.1) {
            return; // The kernel says EINVAL.
        }
        // Another thread may be waiting with the very same memory, still lent.
        let lent = self.borrowed.iter().find(|it| it.at == at && it.written == current);
        let original = lent.map_or(current, |it| it.original);
        let written = self.translate(original);
        if memory.write_pair(at, written).is_ok() {
            self.borrowed.push(Borrowed { pid: target.pid, memory, at, original, written, until: Instant::now() + SETTLE });
        }
    }

    /// Puts lent memory back and wakes sleepers whose time has come.
    pub(super) fn tick(&mut self, listener: BorrowedFd<'_>, proc: BorrowedFd<'_>) {
        let now = Instant::now();
        self.borrowed.retain(|it| {
            let waits = now < it.until && !(Target { proc, pid: it.pid }).is_asleep();
            if !waits && it.memory.pair(it.at).is_ok_and(|current| current == it.written) {
                // Where this fails the process is gone.
                drop(it.memory.write_pair(it.at, it.original));
            }
            waits
        });
        let real = real_now();
        self.sleepers.retain(|sleeper| {
            let sleeps = real < sleeper.until && sys::is_waiting(listener, sleeper.id);
            if !sleeps {
                drop(sys::answer_notification(listener, sleeper.id, Verdict::Return(0)));
            }
            sleeps
        });
    }

    /// How long one may sleep until the next [`Clock::tick`].
    pub(super) fn next_tick(&self) -> Option<Duration> {
        if !self.borrowed.is_empty() {
            return Some(LOOK);
        }
        let first = self.sleepers.iter().map(|sleeper| sleeper.until).min()?;
        let left = u64::try_from(first - real_now()).unwrap_or(0);
        // A second at most: a sleeper that was interrupted is forgotten then.
        Some(Duration::from_nanos(left).min(Duration::from_secs(1)))
    }
}

/// futex_wait(2), Linux 6.7.
const SYS_FUTEX_WAIT: libc::c_long = 455;

/// CLOCK_REALTIME, CLOCK_REALTIME_ALARM and CLOCK_TAI.
fn is_wall(clock: i32) -> bool {
    matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_ALARM | libc::CLOCK_TAI)
}

fn fault_unless(done: io::Result<()>) -> Verdict {
    if done.is_ok() { Verdict::Return(0) } else { Verdict::Fail(libc::EFAULT) }
}

fn real_now() -> i128 {
    let now = rustix::time::clock_gettime(ClockId::Realtime);
    join(now.tv_sec, now.tv_nsec)
}
