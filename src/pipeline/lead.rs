//! Who runs a check that several processes want at the same time: one leads, the others wait and take its result. The
//! lock itself is `flight`'s.
#![forbid(unsafe_code)]

use crate::flight::{Attempt, Flight, Leader};
use crate::model::event::{Event, Sink};
use crate::model::evidence::{Found, Stored, Tally};
use crate::pipeline::runs::Means;
use crate::pipeline::{Caching, PipelineError, Prepared, look_up};
use std::time::{Duration, Instant};

/// How long one waits at a time for another run of the same check.
const WAIT_SLICE: Duration = Duration::from_millis(100);

/// What became of the wish to run a check.
pub(super) enum Lead {
    /// We run it.
    Ours(Leader),
    /// Another process ran it while we waited.
    Joined(Box<Stored>, Tally),
}

/// Takes the lead, or waits for whoever has it and takes their result. If they die, the lead is ours.
pub(super) fn wait_for_lead(
    prepared: &Prepared,
    before: &Found,
    means: Means<'_>,
    sink: &mut dyn Sink,
) -> Result<Lead, PipelineError> {
    let Means { caching, around, interrupts, .. } = means;
    let newest = before.latest.as_ref().map_or(0, |stored| stored.id);
    let flight = Flight::join(&around.store.locks(), prepared.keyed.key)?;
    let mut attempt = flight.try_lead()?;
    let began = Instant::now();
    loop {
        match attempt {
            // A new run is asked for, whatever is on record.
            Attempt::Leader(leader) if caching != Caching::Use => return Ok(Lead::Ours(leader)),
            Attempt::Leader(leader) => {
                // Whoever led before is done or dead, be it that they came and went since our look-up, without our ever
                // finding the lock taken. A record that was not there before is theirs.
                let found = look_up(prepared, around, before, sink)?;
                return Ok(match found.latest {
                    Some(stored) if stored.id > newest && !found.tally.is_flaky() => {
                        Lead::Joined(Box::new(stored), found.tally)
                    }
                    _ => Lead::Ours(leader),
                });
            }
            Attempt::Busy => {
                sink.event(Event::Waiting { waited: began.elapsed() });
                if let Some(signal) = interrupts.pending() {
                    return Err(PipelineError::Interrupted(signal));
                }
                attempt = flight.wait(WAIT_SLICE)?;
            }
        }
    }
}
