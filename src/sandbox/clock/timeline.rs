//! The arithmetic of the fixed clock: one timeline for a whole run. No process and no clock is touched here.
#![forbid(unsafe_code)]

use crate::model::policy::ClockMode;
use crate::sandbox::clock::vdso::Route;
use std::collections::BTreeMap;

const NANOS: i128 = 1_000_000_000;
/// What one reading moves a frozen clock by.
const HAIR: i128 = 1_000;
/// After so many readings in a row a frozen clock runs as real time does, so that a loop that waits for a date ends.
const PATIENCE: u32 = 1_000;
/// Readings that are further apart than this are not in a row.
const GAP: i128 = 20_000_000;
/// Threads whose waits for a date are remembered; more are forgotten all at once.
const WAITERS: usize = 4_096;

/// What the machine's clocks show, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// CLOCK_BOOTTIME: nobody can set it, and it runs on while the machine sleeps.
    pub(super) steady: i128,
    /// The real wall clock: CLOCK_REALTIME, or CLOCK_TAI where that is waited on.
    pub(super) wall: i128,
}

/// One timeline: where the steady clock stood when it started, and where the shown one did.
#[derive(Debug, Clone)]
pub(super) struct Timeline {
    began: i128,
    shown_start: i128,
    mode: ClockMode,
    frozen: Frozen,
}

/// What a frozen clock remembers.
#[derive(Debug, Clone)]
struct Frozen {
    at: i128,
    streak: u32,
    last: i128,
    /// By thread: the steady instant at which its wait for a date is over, and the date.
    waits: BTreeMap<u32, (i128, i128)>,
}

impl Timeline {
    /// Starts one: `steady` is the steady clock's nanoseconds now, `start` the shown clock's seconds.
    pub(super) fn new(steady: i128, start: i64, mode: ClockMode) -> Self {
        let shown_start = i128::from(start) * NANOS;
        let frozen = Frozen { at: shown_start, streak: 0, last: steady, waits: BTreeMap::new() };
        Self { began: steady, shown_start, mode, frozen }
    }

    /// The way that the vDSO's functions take where the steady clock is shown `shift` seconds later than it is.
    pub(super) fn route(&self, shift: i64) -> Route {
        match self.mode {
            ClockMode::Frozen => Route::Syscall,
            ClockMode::Ticking => {
                let offset = self.shown_start - (self.began + i128::from(shift) * NANOS);
                let (seconds, nanoseconds) = split(offset);
                Route::Offset { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap_or(0) }
            }
        }
    }

    /// What is shown to a thread. A reading moves a frozen clock a hair; where one follows the other without end it runs,
    /// and a thread that has waited for a date finds that it has come.
    pub(super) fn read(&mut self, steady: i128, thread: u32) -> i128 {
        if self.mode == ClockMode::Ticking {
            return self.shown_start + (steady - self.began);
        }
        self.arrive(steady, thread);
        let frozen = &mut self.frozen;
        let gap = steady - frozen.last;
        frozen.last = steady;
        frozen.streak = if gap < GAP { frozen.streak.saturating_add(1) } else { 0 };
        frozen.at += if frozen.streak > PATIENCE { gap.max(HAIR) } else { HAIR };
        frozen.at
    }

    /// The real instant at which a wait of a thread for the shown instant `shown` is over. A frozen clock would never get
    /// there, so the distance is waited for in real time.
    pub(super) fn wait(&mut self, shown: i128, now: Now, thread: u32) -> i128 {
        let distance = match self.mode {
            ClockMode::Ticking => shown - (self.shown_start + (now.steady - self.began)),
            ClockMode::Frozen => {
                self.arrive(now.steady, thread);
                let distance = shown - self.frozen.at;
                if self.frozen.waits.len() >= WAITERS {
                    self.frozen.waits.clear();
                }
                self.frozen.waits.insert(thread, (now.steady + distance, shown));
                distance
            }
        };
        (now.wall + distance).max(0)
    }

    /// A thread whose wait took its full time moves the frozen clock to the date it waited for.
    fn arrive(&mut self, steady: i128, thread: u32) {
        if let Some((over, shown)) = self.frozen.waits.remove(&thread)
            && steady >= over
        {
            self.frozen.at = self.frozen.at.max(shown);
        }
    }
}

/// Nanoseconds of a seconds and nanoseconds pair.
pub(super) fn join(seconds: i64, nanoseconds: i64) -> i128 {
    i128::from(seconds) * NANOS + i128::from(nanoseconds)
}

/// Seconds and nanoseconds; what lies beyond the range of seconds becomes its end.
pub(super) fn split(nanoseconds: i128) -> (i64, i64) {
    let seconds = i64::try_from(nanoseconds.div_euclid(NANOS)).unwrap_or(i64::MAX);
    (seconds, i64::try_from(nanoseconds.rem_euclid(NANOS)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticking_clock_runs_from_its_start_and_waits_translate_both_ways() {
        let steady = join(5_000, 250_000_000);
        let wall = join(1_700_000_000, 0);
        let mut line = Timeline::new(steady, 1_000_000_000, ClockMode::Ticking);
        assert_eq!(line.route(-4_900), Route::Offset { seconds: 999_999_899, nanoseconds: 750_000_000 });
        assert_eq!(split(line.read(steady, 1)), (1_000_000_000, 0));
        assert_eq!(split(line.read(steady + 5, 1)), (1_000_000_000, 5));
        let now = Now { steady: steady + join(2, 0), wall };
        assert_eq!(line.wait(join(1_000_000_010, 0), now, 1), wall + join(8, 0));
        assert_eq!(line.wait(join(1_000_000_001, 0), now, 1), wall - join(1, 0));
        assert_eq!(line.wait(-join(800_000_000, 0), now, 1), 0);
    }

    #[test]
    fn a_frozen_clock_stands_and_lets_a_loop_that_waits_for_it_end() {
        let mut line = Timeline::new(0, 100, ClockMode::Frozen);
        assert_eq!(line.route(0), Route::Syscall);
        assert_eq!(split(line.read(0, 1)), (100, 1_000));
        // An hour of readings now and then leaves it where it was.
        for second in 1..3_600 {
            let _ = line.read(join(second, 0), 1);
        }
        assert_eq!(split(line.read(join(3_600, 0), 1)).0, 100);
        // A loop sees it run as real time does.
        let mut steady = join(3_600, 0);
        while split(line.read(steady, 1)).0 < 101 {
            steady += 10_000;
        }
        assert!(steady < join(3_602, 0), "{steady}");
    }

    #[test]
    fn who_waited_for_a_date_finds_that_it_has_come() {
        let mut line = Timeline::new(0, 100, ClockMode::Frozen);
        let now = Now { steady: 0, wall: join(7_000, 0) };
        assert_eq!(line.wait(join(130, 0), now, 1), join(7_030, 0));
        assert_eq!(line.wait(join(160, 0), now, 2), join(7_060, 0));
        // Woken early: nothing has come.
        assert_eq!(split(line.read(join(10, 0), 2)).0, 100);
        assert_eq!(split(line.read(join(31, 0), 1)).0, 130);
        assert_eq!(split(line.read(join(90, 0), 2)).0, 130);
    }
}
