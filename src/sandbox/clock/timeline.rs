//! The arithmetic of the fixed clock: one timeline for a whole run. No process and no clock is touched here.
#![forbid(unsafe_code)]

use crate::model::policy::ClockMode;
use crate::sandbox::clock::vdso::Route;

const NANOS: i128 = 1_000_000_000;
/// What one reading moves a frozen clock by, at first.
const HAIR: i128 = 1_000;
/// After so many readings in a row each moves it twice as far, so that a loop that waits for a date ends.
const PATIENCE: u64 = 1_000;

/// One timeline: where the real clock stood when it started, and where the shown one did.
#[derive(Debug, Clone)]
pub(super) struct Timeline {
    real_start: i128,
    shown_start: i128,
    mode: ClockMode,
    readings: u64,
    frozen_at: i128,
}

impl Timeline {
    /// Starts one: `real` is the real clock's nanoseconds now, `start` the shown clock's seconds.
    pub(super) fn new(real: i128, start: i64, mode: ClockMode) -> Self {
        let shown_start = i128::from(start) * NANOS;
        Self { real_start: real, shown_start, mode, readings: 0, frozen_at: shown_start }
    }

    /// The way that the vDSO's functions take.
    pub(super) fn route(&self) -> Route {
        match self.mode {
            ClockMode::Frozen => Route::Syscall,
            ClockMode::Ticking => {
                let offset = self.shown_start - self.real_start;
                Route::Offset {
                    seconds: i64::try_from(offset.div_euclid(NANOS)).unwrap_or(0),
                    nanoseconds: u32::try_from(offset.rem_euclid(NANOS)).unwrap_or(0),
                }
            }
        }
    }

    /// What is shown when the real clock stands at `real`. A reading moves a frozen clock a hair, ever more where
    /// one follows the other without end.
    pub(super) fn read(&mut self, real: i128) -> i128 {
        match self.mode {
            ClockMode::Ticking => self.shown_start + (real - self.real_start),
            ClockMode::Frozen => {
                self.readings += 1;
                let doublings = u32::try_from(self.readings / PATIENCE).unwrap_or(u32::MAX).min(30);
                self.frozen_at += HAIR << doublings;
                self.frozen_at
            }
        }
    }

    /// The real instant at which a wait for the shown instant `shown` is over, when the real clock stands at `real`.
    /// A frozen clock would never get there, so the distance is waited for in real time.
    pub(super) fn real_instant(&self, shown: i128, real: i128) -> i128 {
        let instant = match self.mode {
            ClockMode::Ticking => shown - (self.shown_start - self.real_start),
            ClockMode::Frozen => real + (shown - self.frozen_at),
        };
        instant.max(0)
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
        let real = join(1_700_000_000, 250_000_000);
        let mut line = Timeline::new(real, 1_000_000_000, ClockMode::Ticking);
        assert_eq!(line.route(), Route::Offset { seconds: -700_000_001, nanoseconds: 750_000_000 });
        assert_eq!(split(line.read(real)), (1_000_000_000, 0));
        assert_eq!(split(line.read(real + 5)), (1_000_000_000, 5));
        assert_eq!(line.real_instant(join(1_000_000_010, 0), real), real + join(10, 0));
        assert_eq!(line.real_instant(0, real), join(700_000_000, 250_000_000));
        assert_eq!(line.real_instant(-join(800_000_000, 0), real), 0);
    }

    #[test]
    fn a_frozen_clock_lets_a_loop_that_waits_for_it_end() {
        let mut line = Timeline::new(0, 100, ClockMode::Frozen);
        assert_eq!(split(line.read(0)), (100, 1_000));
        let mut readings = 0;
        while split(line.read(0)).0 < 101 {
            readings += 1;
        }
        assert!(readings < 30_000, "{readings}");
        assert_eq!(line.route(), Route::Syscall);
    }
}
