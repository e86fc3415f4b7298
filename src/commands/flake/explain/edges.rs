//! Where the outcome turns with the clock: found by halving, to the second.
#![forbid(unsafe_code)]

use crate::commands::flake::explain::axes::Arm;
use crate::commands::flake::explain::told::Edge;
use crate::commands::flake::explain::{Bench, Tried, pure};
use crate::commands::{Failure, Session};
use crate::model::policy::Clock;

impl Bench<'_> {
    /// Where the outcome turns with the clock: the edges next to the check's own date, to the second.
    pub(super) fn edges(
        &mut self,
        tried: &[Tried],
        edges: &mut Vec<Edge>,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let Clock::Fixed { start, .. } = self.base.action.policy.clock else { return Ok(()) };
        let is_cause = |it: &&Tried| it.arm.clock_start().is_some() && it.is_cause();
        let Some((_, base)) = tried.iter().find(is_cause).and_then(|it| it.confirmed) else {
            return Ok(());
        };
        // Only where one run tells: an outcome that is chance itself has no edge.
        let Some(usual) = pure(base) else { return Ok(()) };
        let mut known: Vec<(i64, Option<bool>)> = tried
            .iter()
            .filter_map(|it| Some((it.arm.clock_start()?, pure(it.screened))))
            .chain([(start, Some(usual))])
            .collect();
        known.sort_unstable();
        for direction in [-1, 1] {
            let side = |at: i64| (at - start).signum() == direction;
            let mut others: Vec<i64> = known
                .iter()
                .filter(|(at, passed)| side(*at) && *passed == Some(!usual))
                .map(|it| it.0)
                .collect();
            others.sort_by_key(|at| (at - start).abs());
            for far in others {
                // What began just before a turn may have read the clock just after: where it stands still, the moment tells.
                if self.outcome_at(far, session)? != Some(!usual) {
                    continue;
                }
                let near = known
                    .iter()
                    .filter(|(at, passed)| {
                        side(*at) && *passed == Some(usual) && (at - start).abs() < (far - start).abs()
                    })
                    .map(|it| it.0)
                    .max_by_key(|at| (at - start).abs())
                    .unwrap_or(start);
                edges.extend(self.bisect(near, far, usual, session)?);
                break;
            }
        }
        Ok(())
    }

    /// The outcome of one run under a clock that stands still.
    fn outcome_at(&mut self, moment: i64, session: &mut Session) -> Result<Option<bool>, Failure> {
        let ready = self.prepare(&Arm::moment(moment))?;
        let (tallies, _) = self.run(&[&ready], &[1], session)?;
        Ok(tallies.first().copied().and_then(pure))
    }

    /// Halves the time between two dates, at the first of which the outcome is the usual one, until they are a second apart.
    fn bisect(
        &mut self,
        near: i64,
        far: i64,
        usual: bool,
        session: &mut Session,
    ) -> Result<Option<Edge>, Failure> {
        let (mut near, mut far) = (near, far);
        while (far - near).abs() > 1 {
            let middle = i64::midpoint(near, far);
            match self.outcome_at(middle, session)? {
                Some(passed) if passed == usual => near = middle,
                Some(_) => far = middle,
                None => return Ok(None),
            }
        }
        // Once more on each side, since one run each has led here.
        let both = [self.prepare(&Arm::moment(near))?, self.prepare(&Arm::moment(far))?];
        let (again, _) = self.run(&[&both[0], &both[1]], &[3, 3], session)?;
        if (pure(again[0]), pure(again[1])) != (Some(usual), Some(!usual)) {
            return Ok(None);
        }
        Ok(Some(Edge::new(near.min(far), near.max(far), if near < far { usual } else { !usual })))
    }
}
