//! The clock of a policy: how the `[clock]` tables are read and how the command line changes it. When a commit was
//! made, and what a machine can fix, is not asked here.
#![forbid(unsafe_code)]

use crate::catalogue::CatalogueError;
use crate::catalogue::document::Section;
use crate::model::layer::{Layer, Need};
use crate::model::policy::{Clock, ClockMode, ClockStart, ClockWish, Policy};
use crate::model::units::parse_instant;

/// The words for what a fixed clock does.
pub(super) const MODES: [(&str, ClockMode); 2] =
    [("ticking", ClockMode::Ticking), ("frozen", ClockMode::Frozen)];

/// The key `start` of a `[clock]` table: an instant or `commit`.
pub(super) fn start(section: &Section<'_, '_>) -> Result<Option<ClockStart>, CatalogueError> {
    section.parsed("start", |text| match text {
        "commit" => Ok(ClockStart::Commit),
        _ => parse_instant(text)
            .map(ClockStart::At)
            .map_err(|problem| format!("{problem}; or write \"commit\"")),
    })
}

/// A clock with another start or another mode; `None` where there is a mode and nothing that it could be the mode of.
pub(super) fn changed(clock: Clock, wish: ClockWish) -> Option<Clock> {
    let old_mode = match clock {
        Clock::Fixed { mode, .. } | Clock::Commit { mode } => Some(mode),
        Clock::Host => None,
    };
    let mode = wish.mode.or(old_mode).unwrap_or(ClockMode::Ticking);
    match (wish.start, clock) {
        (Some(ClockStart::Host), _) => Some(Clock::Host),
        (Some(ClockStart::At(start)), _) => Some(Clock::Fixed { start, mode }),
        (Some(ClockStart::Commit), _) | (None, Clock::Commit { .. }) => Some(Clock::Commit { mode }),
        (None, Clock::Fixed { start, .. }) => Some(Clock::Fixed { start, mode }),
        (None, Clock::Host) => wish.mode.is_none().then_some(Clock::Host),
    }
}

/// Applies `--clock` and `--clock-mode`. A clock that is asked for there must be in force, so its layer becomes
/// required.
///
/// # Errors
/// A mode for the host's clock, which has none.
pub fn set_clock(policy: &Policy, wish: ClockWish) -> Result<Policy, CatalogueError> {
    let mut set = policy.clone();
    if wish == ClockWish::default() {
        return Ok(set);
    }
    set.clock = changed(policy.clock, wish)
        .ok_or_else(|| CatalogueError::HostClockMode { policy: policy.name.clone() })?;
    if set.clock != Clock::Host {
        set.layers.insert(Layer::Clock, Need::Require);
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_and_mode_change_apart_from_each_other() {
        let fixed = |start, mode| Clock::Fixed { start, mode };
        let (runs, stands) = (ClockMode::Ticking, ClockMode::Frozen);
        let at = |at| Some(ClockStart::At(at));
        for (clock, start, mode, expected) in [
            (fixed(1, stands), at(2), None, Some(fixed(2, stands))),
            (fixed(1, runs), None, Some(stands), Some(fixed(1, stands))),
            (fixed(1, runs), Some(ClockStart::Commit), None, Some(Clock::Commit { mode: runs })),
            (Clock::Commit { mode: runs }, None, Some(stands), Some(Clock::Commit { mode: stands })),
            (Clock::Commit { mode: stands }, at(3), None, Some(fixed(3, stands))),
            (fixed(1, stands), Some(ClockStart::Host), None, Some(Clock::Host)),
            (Clock::Host, at(4), None, Some(fixed(4, runs))),
            (Clock::Host, None, Some(stands), None),
        ] {
            assert_eq!(changed(clock, ClockWish { start, mode }), expected, "{clock:?} {start:?} {mode:?}");
        }
    }
}
