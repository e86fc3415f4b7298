//! Waits for an instant of a wall clock: each is carried out for the real instant at which the shown clock gets there.
//! How memory is lent for that is `lent`'s; which calls come here is decided in `seccomp`.
#![forbid(unsafe_code)]

use crate::sandbox::clock::lent::Pair;
use crate::sandbox::clock::target::{Memory, Target, tell_pair};
use crate::sandbox::clock::timeline::{Now, join, split};
use crate::sandbox::clock::{Clock, fault_unless, is_wall, real_now, steady_now};
use crate::sandbox::sys::{Notification, Verdict};
use rustix::time::{DynamicClockId, Itimerspec, TimerfdTimerFlags, Timespec, clock_gettime_dynamic};

/// A sleep that is shorter than this, in nanoseconds, is waited for here: memory that was lent to it might not be put
/// back before it is over.
const SHORT: i128 = 20_000_000;

/// A thread that sleeps until a real instant.
pub(super) struct Sleeper {
    pub(super) id: u64,
    pub(super) until: i128,
}

/// One wait, in real time.
struct Wait {
    memory: Memory,
    /// What is in the program's memory.
    current: Pair,
    /// What the program wrote there.
    original: Pair,
    /// The real instant, and what time it is.
    until: i128,
    now: i128,
}

impl Wait {
    fn is_over(&self) -> bool {
        self.until <= self.now
    }

    /// Whether the kernel finds a time in the past without a translation.
    fn is_over_as_written(&self) -> bool {
        join(self.current.0, self.current.1) <= self.now
    }
}

/// Steady readings that are further apart than this, in nanoseconds, had an interruption between them.
const CLOSE: i128 = 20_000;

/// The real clocks; the wall one is the TAI clock where that is waited on, whose distance from UTC is the machine's.
/// The wall clock is read last: what is then worked out may be late by what lies between, and never early.
fn now(clock: i32) -> Now {
    let wall = || {
        // A machine without that clock has no waits on it.
        let tai =
            (clock == libc::CLOCK_TAI).then(|| clock_gettime_dynamic(DynamicClockId::Tai).ok()).flatten();
        tai.map_or_else(real_now, |time| join(time.tv_sec, time.tv_nsec))
    };
    let mut now = Now { steady: steady_now(), wall: wall() };
    for _ in 0..8 {
        if steady_now() - now.steady < CLOSE {
            break;
        }
        now = Now { steady: steady_now(), wall: wall() };
    }
    now
}

/// The same as a program's own pointer to a time says: none is no time, a bad one is the kernel's to refuse.
fn sound(pair: Pair) -> bool {
    pair.0 >= 0 && (0..1_000_000_000).contains(&pair.1)
}

impl Clock {
    fn wait_at(&mut self, target: Target<'_>, at: u64, clock: i32) -> Option<Wait> {
        if at == 0 {
            return None;
        }
        let memory = target.memory().ok()?;
        let current = memory.pair(at).ok()?;
        if !sound(current) {
            return None;
        }
        let original = self.lent.original(at, current);
        let now = now(clock);
        let until = self.timeline.wait(join(original.0, original.1), now, target.pid);
        Some(Wait { memory, current, original, until, now: now.wall })
    }

    /// Lets the kernel carry the call out for the real instant.
    fn lend(&mut self, target: Target<'_>, at: u64, wait: Wait) -> Verdict {
        let times = (wait.original, split(wait.until));
        if let Err(error) = self.lent.lend(target, wait.memory, at, times) {
            self.escape(target, &format!("waits for a date that cannot be translated ({error})"));
        }
        Verdict::Continue
    }

    /// Any wait of which nothing more is known.
    pub(super) fn wait(&mut self, target: Target<'_>, at: u64) -> Verdict {
        match self.wait_at(target, at, libc::CLOCK_REALTIME) {
            None => Verdict::Continue,
            Some(wait) if wait.is_over() && wait.is_over_as_written() => Verdict::Continue,
            Some(wait) => self.lend(target, at, wait),
        }
    }

    /// futex(2): of the operations that the filter sends here, those that take an instant. A wait that would not sleep is
    /// judged here as the kernel would, first the word, then the time: its memory might not be put back in time.
    pub(super) fn futex(&mut self, target: Target<'_>, arguments: [u64; 6]) -> Verdict {
        let [word, operation, expected, at, ..] = arguments;
        // Without the private and clock flags: LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2. With WAIT it is a span.
        let operation = operation & 0x7f;
        if !matches!(operation, 6 | 9 | 11 | 13) {
            return Verdict::Continue;
        }
        let Some(wait) = self.wait_at(target, at, libc::CLOCK_REALTIME) else { return Verdict::Continue };
        if operation == 9 {
            match wait.memory.word(word) {
                Err(_) => return Verdict::Continue,
                Ok(found) if u64::from(found) != expected & 0xffff_ffff => {
                    return Verdict::Fail(libc::EAGAIN);
                }
                Ok(_) if wait.is_over() => return Verdict::Fail(libc::ETIMEDOUT),
                Ok(_) => {}
            }
        } else if wait.is_over() && wait.is_over_as_written() {
            return Verdict::Continue;
        }
        self.lend(target, at, wait)
    }

    /// clock_nanosleep to an instant. `None`: the answer comes when it is there.
    pub(super) fn sleep(&mut self, call: &Notification, target: Target<'_>) -> Option<Verdict> {
        let [clock, _, at, ..] = call.arguments;
        let clock = i32::try_from(clock & 0xffff_ffff).unwrap_or(0);
        let Some(wait) = self.wait_at(target, at, clock) else { return Some(Verdict::Continue) };
        if wait.is_over() {
            return Some(Verdict::Return(0));
        }
        let left = wait.until - wait.now;
        let times = (wait.original, split(wait.until));
        if left >= SHORT && self.lent.lend(target, wait.memory, at, times).is_ok() {
            return Some(Verdict::Continue);
        }
        self.sleepers.push(Sleeper { id: call.id, until: real_now() + left });
        None
    }

    /// timer_settime to an instant, where the timer is on a wall clock.
    pub(super) fn timer(&mut self, target: Target<'_>, timer: u64, new: u64) -> Verdict {
        let Some(clock) = target.timer_clock(timer).filter(|clock| is_wall(*clock)) else {
            return Verdict::Continue;
        };
        // struct itimerspec: the interval comes first; a time of zero disarms.
        let at = new.wrapping_add(16);
        match self.wait_at(target, at, clock) {
            Some(wait) if wait.original != (0, 0) && !(wait.is_over() && wait.is_over_as_written()) => {
                self.lend(target, at, wait)
            }
            _ => Verdict::Continue,
        }
    }

    /// timerfd_settime to an instant, carried out here on a copy of the descriptor: the timer is the same.
    pub(super) fn timer_descriptor(&mut self, target: Target<'_>, arguments: [u64; 6]) -> Verdict {
        let [number, flags, new, old, ..] = arguments;
        let Ok(number) = i32::try_from(number & 0xffff_ffff) else { return Verdict::Continue };
        let Some(clock) = target.descriptor_clock(number).filter(|clock| is_wall(*clock)) else {
            return Verdict::Continue;
        };
        let (Ok(memory), Ok(fd)) = (target.memory(), target.descriptor(number)) else {
            self.escape(target, "sets a timer descriptor that cannot be reached");
            return Verdict::Continue;
        };
        let (Ok(interval), Ok(value)) = (memory.pair(new), memory.pair(new.wrapping_add(16))) else {
            return Verdict::Fail(libc::EFAULT);
        };
        // The kernel says EINVAL of what is unsound, also to us.
        let value = if value == (0, 0) || !sound(value) {
            value
        } else {
            split(self.timeline.wait(join(value.0, value.1), now(clock), target.pid))
        };
        let spec = |pair: Pair| Timespec { tv_sec: pair.0, tv_nsec: pair.1 };
        let flags = TimerfdTimerFlags::from_bits_retain(u32::try_from(flags & 0xffff_ffff).unwrap_or(0));
        let setting = Itimerspec { it_interval: spec(interval), it_value: spec(value) };
        match rustix::time::timerfd_settime(&fd, flags, &setting) {
            Ok(before) if old != 0 => {
                let pair = |spec: Timespec| (spec.tv_sec, spec.tv_nsec);
                let told = tell_pair(target.pid, old, pair(before.it_interval))
                    .and_then(|()| tell_pair(target.pid, old.wrapping_add(16), pair(before.it_value)));
                fault_unless(told)
            }
            Ok(_) => Verdict::Return(0),
            Err(error) => Verdict::Fail(error.raw_os_error()),
        }
    }
}
