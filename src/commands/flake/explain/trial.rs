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
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Runs of each arm to choose suspects by.
const SCREEN: u64 = 8;
/// Runs of each arm of the clock, which has many, most of which differ in nothing.
const SCREEN_CLOCK: u64 = 3;
/// Runs of a suspect, and as many of the check as it is beside them, in up to three portions. The second is run where the
/// first leaves anything open, the third where both together are near to telling.
const CONFIRM: [u64; 3] = [10, 10, 20];
/// Looks at a suspect: chance has as many occasions.
const LOOKS: f64 = 3.0;
/// What is near to telling: as unlikely as this by chance alone, such as four failures of twenty beside none.
const NEAR: f64 = 0.15;
/// Most suspects of one axis that are run again.
const SUSPECTS: usize = 3;
/// What makes a suspect: as unlikely as this by chance alone, beside the check as it is or beside everything that was run with
/// other inputs turned, most of which make no difference. Of a check that fails half of the time, the few runs of it as it is
/// may look like nearly any rate; and of eight runs with too little memory for half of them, only one may fail.
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
        self.account(&taken, session);
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
            ended = self.run_beside(&prepared[*index], &mut tried[*index], suspects.len(), session);
            let Some((arm, beside)) = tried[*index].confirmed.filter(|_| ended.is_ok()) else { break };
            chances[at] = (LOOKS * chance(arm, beside)).min(1.0);
            judged += 1;
        }
        for (index, chance) in suspects.iter().zip(stats::holm(&chances)).take(judged) {
            tried[*index].chance = Some(chance);
        }
        ended
    }

    /// Runs a suspect, one of so many, and the check as it is, portion by portion until they tell, or are unlikely to.
    fn run_beside(
        &mut self,
        prepared: &Prepared,
        it: &mut Tried,
        suspects: usize,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let (mut arm, mut beside) = (Tally::default(), Tally::default());
        for (look, portion) in CONFIRM.into_iter().enumerate() {
            let taken = run_batch(&[prepared, &self.base], &[portion, portion], self.jobs, session)?;
            self.account(&taken, session);
            (arm, beside) = (sum(arm, taken.tallies[0]), sum(beside, taken.tallies[1]));
            it.confirmed = Some((arm, beside));
            self.go_on()?;
            if !leaves_open(look, suspects, arm, beside) {
                break;
            }
        }
        Ok(())
    }
}

/// Whether another portion is worth its runs, after portions up to that one of a suspect among so many.
fn leaves_open(look: usize, suspects: usize, arm: Tally, beside: Tally) -> bool {
    if look == 0 {
        return pure(arm).is_none_or(|passed| pure(beside) != Some(!passed));
    }
    let chance = chance(arm, beside);
    let all = f64::from(u32::try_from(suspects).unwrap_or(u32::MAX));
    chance < NEAR && LOOKS * all * chance >= SURE
}

/// What stands out among the screened, the likeliest first.
fn suspects(before: Tally, tried: &[Tried]) -> Vec<usize> {
    let all = tried.iter().fold(before, |all, it| sum(all, it.screened));
    let mut suspects: Vec<(usize, f64)> = Vec::new();
    for (index, it) in tried.iter().enumerate() {
        let of_axis = tried.iter().filter(|other| other.arm.axis == it.arm.axis);
        let of_axis = of_axis.fold(Tally::default(), |all, it| sum(all, it.screened));
        let rest = Tally { passed: all.passed - of_axis.passed, failed: all.failed - of_axis.failed };
        let (beside, among) = (chance(it.screened, before), chance(it.screened, rest));
        // Where other inputs decide, the rest is no measure of the check as it is: what goes as that does stands not out.
        let differs = sign(it.screened, rest) == sign(it.screened, before);
        if beside < SUSPICIOUS || (differs && among < SUSPICIOUS) {
            suspects.push((index, if differs { beside.min(among) } else { beside }));
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

/// Which of two conditions fails more, by its share of runs.
fn sign(one: Tally, other: Tally) -> Ordering {
    let share = |it: Tally, of: Tally| u128::from(it.failed) * u128::from(of.passed + of.failed);
    share(one, other).cmp(&share(other, one))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::flake::explain::axes::Turn;

    fn tally(passed: u64, failed: u64) -> Tally {
        Tally { passed, failed }
    }

    fn tried(axis: &'static str, screened: Tally) -> Tried {
        Tried { screened, ..Tried::new(Arm { axis, cause: axis, turn: Turn::Umask(0) }) }
    }

    #[test]
    fn what_always_fails_stands_out_of_a_check_that_fails_half_of_the_time_and_began_with_few_passes() {
        let mut all: Vec<Tried> = (0..12).map(|_| tried("terminal", tally(4, 4))).collect();
        all.push(tried("hash_seed", tally(0, 8)));
        assert_eq!(suspects(tally(6, 14), &all), [12]);
    }

    #[test]
    fn what_goes_as_the_check_does_stands_not_out_where_another_input_decides() {
        let mut all: Vec<Tried> = (0..25).map(|_| tried("clock", tally(0, 3))).collect();
        all.push(tried("umask", tally(8, 0)));
        assert!(!suspects(tally(20, 0), &all).contains(&25));
    }

    #[test]
    fn one_failure_where_all_else_passed_stands_out_even_of_a_short_session() {
        let mut all: Vec<Tried> = (0..8).map(|_| tried("umask", tally(8, 0))).collect();
        all.push(tried("memory", tally(7, 1)));
        assert_eq!(suspects(tally(20, 0), &all), [8]);
    }

    #[test]
    fn a_suspect_is_run_until_it_is_sure_or_far_from_it() {
        // Opposite without exception.
        assert!(!leaves_open(0, 3, tally(10, 0), tally(0, 10)));
        assert!(leaves_open(0, 3, tally(10, 0), tally(4, 6)));
        // Always and half of the time: near after 20 runs, sure after 40.
        assert!(leaves_open(1, 6, tally(0, 20), tally(8, 12)));
        assert!(!leaves_open(1, 6, tally(0, 20), tally(13, 7)));
        assert!(!leaves_open(1, 6, tally(10, 10), tally(9, 11)));
        assert!(leaves_open(1, 1, tally(16, 4), tally(20, 0)));
    }
}
