//! The progress line: when it is shown and how it is erased. What it says comes from `human`.
#![forbid(unsafe_code)]

use crate::report::Elapsed;
use std::fmt;
use std::time::Duration;

/// Nothing is shown for work that is done sooner.
const SILENCE: Duration = Duration::from_millis(250);

/// At most twenty times a second.
const INTERVAL: Duration = Duration::from_millis(50);

/// To the line's start, then erase to its end (ECMA-48, EL).
const ERASE: &str = "\r\x1b[K";

/// A pause between two events that is longer than this begins a new piece of work.
const NEW_WORK: Duration = Duration::from_secs(2);

/// Decides when the line is drawn.
pub struct Progress {
    wanted: bool,
    elapsed: Elapsed,
    /// When the work began and when it was last heard of.
    work: Option<(Duration, Duration)>,
    /// When the line was last drawn.
    drawn: Option<Duration>,
    on_screen: bool,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

impl Progress {
    /// Makes one; `wanted` is false where there must never be a line.
    #[must_use]
    pub fn new(wanted: bool, elapsed: Elapsed) -> Self {
        Self { wanted, elapsed, work: None, drawn: None, on_screen: false }
    }

    /// The bytes that draw the line now, if it is time to draw it.
    pub(super) fn line(&mut self, text: impl FnOnce() -> String) -> Option<String> {
        if !self.wanted {
            return None;
        }
        let now = (self.elapsed)();
        let began = match self.work {
            Some((began, last)) if now.saturating_sub(last) <= NEW_WORK => began,
            _ => now,
        };
        self.work = Some((began, now));
        let too_soon = self.drawn.is_some_and(|drawn| now.saturating_sub(drawn) < INTERVAL);
        if now.saturating_sub(began) < SILENCE || too_soon {
            return None;
        }
        self.drawn = Some(now);
        self.on_screen = true;
        Some(format!("{ERASE}{}", text()))
    }

    /// The bytes that erase the line, if one is on the screen. Ends the piece of work.
    pub(super) fn erase(&mut self) -> Option<&'static str> {
        self.work = None;
        std::mem::take(&mut self.on_screen).then_some(ERASE)
    }
}
