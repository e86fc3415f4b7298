//! Memory that is lent to a wait: its time, translated to the real clock for the moment in which the kernel reads it, and
//! then put back. What is translated, and to what, is `waits`'s.
//!
//! The kernel reads the time at the start of the call, after the supervisor has let it go on. Nothing tells when that
//! is, so it is inferred: a thread that sleeps interruptibly, has stopped or ended, or makes another call, has read it.
//! So has one that has been on a processor for longer than a call takes to begin, which is measured on the thread's own
//! clock: on a busy machine it may be kept from running for as long as it likes. A virtual machine's
//! processor may be taken away, too, and the time until it comes back is then counted as the thread's, in one piece; so its
//! clock has to have gone on twice.
#![forbid(unsafe_code)]

use crate::sandbox::clock::target::{Memory, Target};
use rustix::fd::BorrowedFd;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// How soon one looks whether a thread has read its time; the pauses grow.
const LOOK: Duration = Duration::from_micros(20);
/// The longest pause is the first one doubled so many times.
const DOUBLINGS: u32 = 8;
/// Nanoseconds on a processor after which a thread has begun its call; it takes about two thousand.
const BEGUN: u64 = 1_000_000;
/// How often at least its time on a processor was seen to have grown by then.
const STEPS: u32 = 2;
/// Times lent before that are remembered: a copy of lent memory (a fork at the wrong moment) is known by them.
const REMEMBERED: usize = 4_096;

/// A wait's time: seconds and nanoseconds.
pub(super) type Pair = (i64, i64);

/// One wait's time, translated.
struct Loan {
    pid: u32,
    /// Its process: threads of another have other memory at the same address.
    process: Option<i32>,
    memory: Memory,
    at: u64,
    original: Pair,
    written: Pair,
    since: Progress,
}

/// What a thread was seen to do since it was let go on.
#[derive(Debug)]
struct Progress {
    /// Its time on a processor then, and when last looked at, in nanoseconds.
    spent: u64,
    last: u64,
    /// How often that was seen to have grown.
    steps: u32,
}

/// All that is lent.
#[derive(Default)]
pub(super) struct Lent {
    loans: Vec<Loan>,
    /// What was written for what, and in which order.
    past: HashMap<Pair, Pair>,
    order: VecDeque<Pair>,
    looks: u32,
}

impl Lent {
    /// What a program wrote at a place, where `current` is what is there now: it may be lent, or the copy of something
    /// lent.
    pub(super) fn original(&self, at: u64, current: Pair) -> Pair {
        let lent =
            self.loans.iter().find(|loan| loan.at == at && loan.written == current).map(|loan| loan.original);
        lent.or_else(|| self.past.get(&current).copied()).unwrap_or(current)
    }

    /// Writes a time over with another until its thread has read it.
    ///
    /// # Errors
    /// The memory cannot be written to.
    pub(super) fn lend(
        &mut self,
        target: Target<'_>,
        memory: Memory,
        at: u64,
        times: (Pair, Pair),
    ) -> std::io::Result<()> {
        let (original, written) = times;
        memory.write_pair(at, written)?;
        if self.order.len() >= REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.past.remove(&oldest);
        }
        if self.past.insert(written, original).is_none() {
            self.order.push_back(written);
        }
        let loan = Loan {
            pid: target.pid,
            process: target.process().ok().map(|pid| pid.as_raw_nonzero().get()),
            memory,
            at,
            original,
            written,
            since: Progress::new(target.processor_time()),
        };
        for other in self.loans.iter_mut().filter(|other| other.shares(&loan)) {
            other.written = written;
        }
        self.loans.push(loan);
        self.looks = 0;
        Ok(())
    }

    /// Puts back what was lent to a thread that makes another call.
    pub(super) fn next_call(&mut self, pid: u32) {
        self.settle(|loan| loan.pid == pid);
    }

    /// Puts back what has been read.
    pub(super) fn tick(&mut self, proc: BorrowedFd<'_>) {
        if self.loans.is_empty() {
            return;
        }
        self.looks = self.looks.saturating_add(1);
        self.settle(|loan| loan.is_read(proc));
    }

    /// How long one may sleep until the next [`Lent::tick`].
    pub(super) fn next_tick(&self) -> Option<Duration> {
        (!self.loans.is_empty()).then(|| LOOK * (1 << self.looks.min(DOUBLINGS)))
    }

    fn settle(&mut self, is_over: impl Fn(&mut Loan) -> bool) {
        let (mut over, mut open) = (Vec::new(), Vec::new());
        for mut loan in std::mem::take(&mut self.loans) {
            if is_over(&mut loan) { over.push(loan) } else { open.push(loan) }
        }
        for loan in over {
            // Another thread may be about to read the very same memory; then it is that one's to put back.
            if !open.iter().any(|other| other.shares(&loan)) {
                loan.put_back();
            }
        }
        self.loans = open;
    }
}

impl Progress {
    fn new(spent: u64) -> Self {
        Self { spent, last: spent, steps: 0 }
    }

    /// Whether a thread whose time on a processor is this by now has begun its call.
    fn has_begun(&mut self, now: u64) -> bool {
        if now > self.last {
            self.last = now;
            self.steps = self.steps.saturating_add(1);
        }
        self.steps >= STEPS && now.saturating_sub(self.spent) >= BEGUN
    }
}

impl Loan {
    fn shares(&self, other: &Self) -> bool {
        (self.at, self.original, self.process) == (other.at, other.original, other.process)
    }

    fn is_read(&mut self, proc: BorrowedFd<'_>) -> bool {
        let target = Target { proc, pid: self.pid };
        match target.state() {
            // Running, or waiting for a lock of the kernel's or for a page: that may be before it has read the time.
            Some('R' | 'D') => self.since.has_begun(target.processor_time()),
            _ => true,
        }
    }

    fn put_back(&self) {
        // What the program has written there since is the program's; where this fails the process is gone.
        if self.memory.pair(self.at).is_ok_and(|current| current == self.written) {
            drop(self.memory.write_pair(self.at, self.original));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_comes_in_one_piece_does_not_show_that_a_thread_ran() {
        let mut since = Progress::new(5_000_000);
        assert!(!since.has_begun(5_000_000), "not on a processor yet");
        assert!(!since.has_begun(29_000_000), "its processor may have been taken away");
        assert!(!since.has_begun(29_000_000));
        assert!(since.has_begun(33_000_000), "and it has gone on since");

        let mut since = Progress::new(0);
        assert!(!since.has_begun(400_000) && !since.has_begun(800_000), "both together too short");
        assert!(since.has_begun(1_200_000));
    }
}
