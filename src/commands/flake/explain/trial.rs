//! What is tried: each arm is run a few times to choose suspects by, and suspects again, beside the check as it is. Only
//! those fresh runs make a cause, and only when all of them have ended. What an arm is lies in `axes`.
#![forbid(unsafe_code)]

use crate::commands::flake::explain::axes::Arm;
use crate::commands::flake::explain::order::Names;
use crate::commands::flake::explain::{Bench, run_batch};
use crate::commands::{Failure, Session};
use crate::model::evidence::Tally;
use crate::pipeline::Prepared;
use crate::stats;
use std::collections::BTreeMap;

/// Runs of each arm to choose suspects by.
const SCREEN: u64 = 8;
/// Runs of each arm of the clock, which has many, most of which differ in nothing.
const SCREEN_CLOCK: u64 = 3;
/// Most runs of a suspect, and as many of the check as it is beside them; half of them where those leave nothing open.
const CONFIRM: u64 = 20;
/// Most suspects of one axis that are run again.
const SUSPECTS: usize = 3;
/// What makes a suspect: as unlikely as this by chance alone.
const SUSPICIOUS: f64 = 0.1;
/// What makes a cause, after the correction for all suspects.
pub(super) const SURE: f64 = 0.01;

/// One arm and what came of it.
pub(super) struct Tried {
    pub(super) arm: Arm,
    pub(super) screened: Tally,
    /// Whether it stood out then.
    pub(super) suspect: bool,
    /// Fresh runs of the arm and of the check as it is.
    pub(super) confirmed: Option<(Tally, Tally)>,
    /// How unlikely the difference is by chance, among all suspects; only where all of these runs have ended.
    pub(super) chance: Option<f64>,
    /// Tests by name, where they could be read.
    pub(super) names: Names,
}

impl Tried {
    pub(super) fn new(arm: Arm) -> Self {
        let names = Names::default();
        Self { arm, screened: Tally::default(), suspect: false, confirmed: None, chance: None, names }
    }

    pub(super) fn is_cause(&self) -> bool {
        self.chance.is_some_and(|chance| chance < SURE)
    }
}

impl Bench<'_> {
    /// Runs each arm a few times and chooses the suspects, the likeliest first.
    pub(super) fn screen(
        &mut self,
        before: Tally,
        prepared: &[Prepared],
        tried: &mut [Tried],
        session: &mut Session,
    ) -> Result<Vec<usize>, Failure> {
        let times: Vec<u64> = tried
            .iter()
            .map(|it| if it.arm.clock_start().is_some() { SCREEN_CLOCK } else { SCREEN })
            .collect();
        let variants: Vec<&Prepared> = prepared.iter().collect();
        let taken = run_batch(&variants, &times, self.jobs, session)?;
        self.account(&taken);
        for ((it, tally), names) in tried.iter_mut().zip(taken.tallies).zip(taken.names) {
            it.screened = tally;
            it.names = names;
        }
        let suspects = suspects(before, tried);
        for index in &suspects {
            tried[*index].suspect = true;
        }
        self.go_on()?;
        Ok(suspects)
    }

    /// Runs the suspects again, each beside the check as it is, and says how likely the difference is by chance.
    pub(super) fn confirm(
        &mut self,
        suspects: &[usize],
        prepared: &[Prepared],
        tried: &mut [Tried],
        session: &mut Session,
    ) -> Result<(), Failure> {
        // For Holm's correction one that was not reached counts as chance, which is never in another's favour.
        let mut chances = vec![1.0; suspects.len()];
        let mut judged = 0;
        let mut ended = Ok(());
        for (at, index) in suspects.iter().enumerate() {
            ended = self.run_beside(&prepared[*index], &mut tried[*index], session);
            let Some((arm, beside)) = tried[*index].confirmed.filter(|_| ended.is_ok()) else { break };
            chances[at] = (2.0 * chance(arm, beside)).min(1.0);
            judged += 1;
        }
        for (index, chance) in suspects.iter().zip(stats::holm(&chances)).take(judged) {
            tried[*index].chance = Some(chance);
        }
        ended
    }

    /// Runs a suspect and the check as it is. Half of the runs are enough where they leave nothing open; for looking twice,
    /// chance counts double.
    fn run_beside(
        &mut self,
        prepared: &Prepared,
        it: &mut Tried,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let (mut arm, mut beside) = (Tally::default(), Tally::default());
        for _ in 0..2 {
            let both = [prepared, &self.base];
            let taken = run_batch(&both, &[CONFIRM / 2, CONFIRM / 2], self.jobs, session)?;
            self.account(&taken);
            (arm, beside) = (sum(arm, taken.tallies[0]), sum(beside, taken.tallies[1]));
            it.confirmed = Some((arm, beside));
            self.go_on()?;
            if pure(arm).is_some_and(|passed| pure(beside) == Some(!passed)) {
                break;
            }
        }
        Ok(())
    }
}

/// What stands out among the screened, the likeliest first.
fn suspects(before: Tally, tried: &[Tried]) -> Vec<usize> {
    let mut suspects: Vec<(usize, f64)> = Vec::new();
    for (index, it) in tried.iter().enumerate() {
        let chance = chance(it.screened, before);
        if chance < SUSPICIOUS {
            suspects.push((index, chance));
        }
    }
    suspects.sort_by(|one, other| one.1.total_cmp(&other.1));
    let mut of_axis = BTreeMap::new();
    suspects.retain(|(index, _)| {
        let count: &mut usize = of_axis.entry(tried[*index].arm.axis).or_default();
        *count += 1;
        *count <= SUSPECTS
    });
    suspects.into_iter().map(|(index, _)| index).collect()
}

pub(super) fn sum(one: Tally, other: Tally) -> Tally {
    Tally { passed: one.passed + other.passed, failed: one.failed + other.failed }
}

/// How likely two conditions differ so much by chance.
pub(super) fn chance(one: Tally, other: Tally) -> f64 {
    let counts = |tally: Tally| (tally.passed + tally.failed, tally.failed);
    stats::fisher(counts(one), counts(other))
}

/// The outcome, where all runs had the same.
pub(super) fn pure(tally: Tally) -> Option<bool> {
    match tally {
        Tally { passed: 0, failed: 0 } => None,
        Tally { failed: 0, .. } => Some(true),
        Tally { passed: 0, .. } => Some(false),
        _ => None,
    }
}
