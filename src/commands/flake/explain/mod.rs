//! Why is it flaky? An experiment: one input after the other is turned, the others stay, and what makes a difference is run
//! again to be sure. Screening chooses suspects; only fresh runs, beside fresh runs of the check as it is, count as evidence.
//! Every arm is a check that a user could ask for by the options that are told with it.
#![forbid(unsafe_code)]

mod asked;
mod axes;
mod batch;
mod edges;
mod order;
mod page;
mod suite;
mod told;

use crate::cli::FlakeRequest;
use crate::commands::flake::{jobs, remember_cause};
use crate::commands::run::wish;
use crate::commands::session::output_place;
use crate::commands::{Failure, Session};
use crate::model::evidence::Tally;
use crate::model::policy::Clock;
use crate::pipeline::{self, Bearings, Prepared, Wish};
use crate::report::write_atomically;
use crate::stats;
use asked::Asked;
use axes::{Arm, Usual};
use batch::Batch;
use order::Names;
use std::time::Instant;
use suite::Suite;
use told::{ArmTold, Report};

/// Runs of the check as it is, before anything is turned.
const BASE: u64 = 20;
/// Runs of each arm to choose suspects by.
const SCREEN: u64 = 8;
/// Runs of each arm of the clock, which has many, most of which differ in nothing.
const SCREEN_CLOCK: u64 = 3;
/// Runs of a suite with each test told by name, for what its tests come to.
const NAMED: u64 = 3;
/// Most runs of a suspect, and as many of the check as it is beside them; half of them where those leave nothing open.
const CONFIRM: u64 = 20;
/// Most suspects of one axis that are run again.
const SUSPECTS: usize = 3;
/// What makes a suspect: as unlikely as this by chance alone.
const SUSPICIOUS: f64 = 0.1;
/// What makes a cause, after the correction for all suspects.
const SURE: f64 = 0.01;

/// What an experiment has to work with.
struct Bench<'a> {
    wish: Wish,
    base: Prepared,
    bearings: Bearings<'a>,
    jobs: usize,
    runs: u64,
    /// What was asked besides the command.
    asked: Asked,
    /// The only inputs that are to be turned; all where none is named.
    axes: Vec<String>,
}

/// One arm and what came of it.
pub(super) struct Tried {
    arm: Arm,
    screened: Tally,
    /// Fresh runs of the arm and of the check as it is.
    confirmed: Option<(Tally, Tally)>,
    /// How unlikely the difference is by chance, among all suspects.
    chance: Option<f64>,
    /// Tests by name, where they could be read.
    names: Names,
}

/// Finds out.
pub(super) fn explain(request: &FlakeRequest, session: &mut Session) -> Result<u8, Failure> {
    let began = Instant::now();
    let html = output_place(&session.start, request.html.clone())?;
    let wish = wish(request.check.clone(), &session.start)?;
    let mut base = pipeline::prepare(&wish, &session.around)?;
    base.close_store();
    let around = session.around.clone();
    let mut bench = Bench {
        wish,
        base,
        bearings: Bearings::new(&around),
        jobs: usize::from(jobs(request)),
        runs: 0,
        asked: Asked::new(&request.check),
        axes: request.axes.clone(),
    };
    let (before, usual) = bench.run_base(BASE, session)?;
    let mut skipped = Vec::new();
    let suite = bench.suite(&mut skipped, session)?;
    let mut prepared = Vec::new();
    let mut tried = Vec::new();
    for arm in bench.arms(suite.as_ref(), usual, &mut skipped) {
        match bench.prepare(&arm) {
            Ok(ready) => {
                prepared.push(ready);
                tried.push(Tried::new(arm));
            }
            // A limit that this machine cannot keep, for instance.
            Err(failure) => skipped.push((arm.axis, failure.text)),
        }
    }
    bench.screen(&prepared, &mut tried, session)?;
    bench.confirm(before, &prepared, &mut tried, session)?;
    let edges = bench.edges(&tried, session)?;
    let tests = match &suite {
        Some((suite, own)) => order::dependents(&mut bench, suite, &tried, own, session)?,
        None => Vec::new(),
    };
    let base = tried.iter().filter_map(|it| it.confirmed).fold(before, |all, (_, beside)| sum(all, beside));
    let report = Report::new(told::Experiment {
        base,
        prepared: &bench.base,
        asked: bench.asked,
        arms: tried.iter().map(ArmTold::new).collect(),
        skipped,
        edges,
        tests,
        runs: bench.runs,
        secs: began.elapsed().as_secs_f64(),
    });
    if let Some(cause) = report.cause {
        let tests: Vec<_> = report.tests.iter().map(|it| (it.test.clone(), it.kind)).collect();
        remember_cause(cause, &tests, &bench.base, session);
    }
    if session.reporter.is_json() {
        session.reporter.object(&report);
    } else {
        session.reporter.data(report.text().as_bytes());
    }
    if let Some(path) = html {
        write_atomically(&path, page::html(&report).as_bytes())?;
    }
    Ok(match base {
        Tally { failed: 0, .. } => 0,
        Tally { passed: 0, .. } => 1,
        _ => 3,
    })
}

/// Runs checks as often as it is said for each, in turns, so that what the machine does meanwhile meets all alike.
fn run_batch(
    variants: &[&Prepared],
    times: &[u64],
    jobs: usize,
    session: &mut Session,
) -> Result<(Vec<Tally>, Vec<Names>), Failure> {
    let mut batch = Batch::new(times, &mut session.reporter);
    pipeline::repeat(variants, jobs, &session.around, &mut batch)?;
    batch.finish()
}

impl Bench<'_> {
    /// Whether an input is to be turned.
    fn wants(&self, axis: &str) -> bool {
        self.axes.is_empty() || self.axes.iter().any(|wanted| wanted == axis)
    }

    /// The arms; axes that cannot be turned go to `skipped`, with why.
    fn arms(
        &self,
        suite: Option<&(Suite, Names)>,
        usual: Usual,
        skipped: &mut Vec<(&'static str, String)>,
    ) -> Vec<Arm> {
        let policy = &self.base.action.policy;
        let mut arms = axes::plain(&self.wish, policy.aslr);
        arms.extend(axes::memory(&self.wish, usual, policy.limits.memory));
        arms.extend(axes::guises(&self.wish, usual, policy.limits.timeout));
        if let Some((suite, own)) = suite {
            arms.extend(suite.arms(&own.order));
        }
        match policy.clock {
            Clock::Fixed { start, .. } => arms.extend(axes::clock(start)),
            Clock::Commit { .. } | Clock::Host => {
                skipped.push((axes::CLOCK, "the check has the host's clock".to_owned()));
            }
        }
        arms.retain(|arm| self.wants(arm.axis));
        arms
    }

    /// The suite that the command runs, where its words are those of a runner that is known, and what its tests come to in
    /// their own order. That naming them one by one comes to the same is tried, not assumed.
    fn suite(
        &mut self,
        skipped: &mut Vec<(&'static str, String)>,
        session: &mut Session,
    ) -> Result<Option<(Suite, Names)>, Failure> {
        if !self.wants("order") && !self.wants("repetition") {
            return Ok(None);
        }
        let command = &self.base.action.command;
        let is_there = |name: &[u8]| {
            let path = if command.cwd.is_empty() { name.to_vec() } else { [&command.cwd, name].join(&b'/') };
            let snapshot = &self.base.snapshot;
            let path = path.strip_suffix(b"/").unwrap_or(&path);
            // What is too large to be read is there all the same.
            snapshot.folder_exists(path) || !matches!(snapshot.read_file(path, 1 << 20), Ok(None))
        };
        let Some(suite) = Suite::of(&command.argv, &is_there) else { return Ok(None) };
        let own = self.run_command(suite.told(), NAMED, session)?;
        let mut skip = |why: &str| skipped.push(("order", why.to_owned()));
        if own.order.len() < 2 {
            skip("fewer than two tests could be read from its output");
            return Ok(None);
        }
        if suite.keeps_order() {
            let Some(argv) = suite.only(&own.order) else {
                skip("there are too many tests to name them all on one command line");
                return Ok(None);
            };
            let named = self.run_command(argv, NAMED, session)?;
            if named.order != own.order || own.order.iter().any(|test| own.failed(test) != named.failed(test))
            {
                skip("its tests, named one by one, do not come to what they come to without");
                return Ok(None);
            }
        }
        Ok(Some((suite, own)))
    }

    fn prepare(&mut self, arm: &Arm) -> Result<Prepared, Failure> {
        let wish = arm.apply(&self.wish);
        let mut ready = pipeline::prepare_on(&wish, self.base.snapshot.clone(), &mut self.bearings)?;
        ready.close_store();
        Ok(ready)
    }

    fn run(
        &mut self,
        variants: &[&Prepared],
        times: &[u64],
        session: &mut Session,
    ) -> Result<(Vec<Tally>, Vec<Names>), Failure> {
        self.runs += times.iter().sum::<u64>();
        run_batch(variants, times, self.jobs, session)
    }

    fn run_base(&mut self, times: u64, session: &mut Session) -> Result<(Tally, Usual), Failure> {
        self.runs += times;
        let (tallies, names) = run_batch(&[&self.base], &[times], self.jobs, session)?;
        let mut used = names.into_iter().next().unwrap_or_default().used;
        used.sort_unstable();
        let usual = Usual {
            memory: used.get(used.len() / 4).map_or(0, |(memory, _)| *memory),
            longest: used.iter().map(|(_, took)| *took).max().unwrap_or_default(),
        };
        Ok((tallies.first().copied().unwrap_or_default(), usual))
    }

    fn screen(
        &mut self,
        prepared: &[Prepared],
        tried: &mut [Tried],
        session: &mut Session,
    ) -> Result<(), Failure> {
        let times: Vec<u64> = tried
            .iter()
            .map(|it| if it.arm.clock_start().is_some() { SCREEN_CLOCK } else { SCREEN })
            .collect();
        let variants: Vec<&Prepared> = prepared.iter().collect();
        let (tallies, names) = self.run(&variants, &times, session)?;
        for ((it, tally), names) in tried.iter_mut().zip(tallies).zip(names) {
            it.screened = tally;
            it.names = names;
        }
        Ok(())
    }

    /// Runs the suspects again, each beside the check as it is, and says how likely the difference is by chance.
    fn confirm(
        &mut self,
        before: Tally,
        prepared: &[Prepared],
        tried: &mut [Tried],
        session: &mut Session,
    ) -> Result<(), Failure> {
        let mut suspects: Vec<(usize, f64)> = Vec::new();
        for (index, it) in tried.iter().enumerate() {
            let chance = chance(it.screened, before);
            if chance < SUSPICIOUS {
                suspects.push((index, chance));
            }
        }
        suspects.sort_by(|one, other| one.1.total_cmp(&other.1));
        let mut of_axis = std::collections::BTreeMap::new();
        suspects.retain(|(index, _)| {
            let count: &mut usize = of_axis.entry(tried[*index].arm.axis).or_default();
            *count += 1;
            *count <= SUSPECTS
        });
        let mut chances = Vec::with_capacity(suspects.len());
        for (index, _) in &suspects {
            let (mut arm, mut beside) = (Tally::default(), Tally::default());
            // Half of the runs are enough where they leave nothing open; for looking twice, chance counts double.
            for _ in 0..2 {
                self.runs += CONFIRM;
                let both = [&prepared[*index], &self.base];
                let (tallies, _) = run_batch(&both, &[CONFIRM / 2, CONFIRM / 2], self.jobs, session)?;
                (arm, beside) = (sum(arm, tallies[0]), sum(beside, tallies[1]));
                if pure(arm).is_some_and(|passed| pure(beside) == Some(!passed)) {
                    break;
                }
            }
            tried[*index].confirmed = Some((arm, beside));
            chances.push((2.0 * chance(arm, beside)).min(1.0));
        }
        for ((index, _), chance) in suspects.iter().zip(stats::holm(&chances)) {
            tried[*index].chance = Some(chance);
        }
        Ok(())
    }
}

impl Tried {
    fn new(arm: Arm) -> Self {
        Self { arm, screened: Tally::default(), confirmed: None, chance: None, names: Names::default() }
    }

    pub(super) fn is_cause(&self) -> bool {
        self.chance.is_some_and(|chance| chance < SURE)
    }
}

fn sum(one: Tally, other: Tally) -> Tally {
    Tally { passed: one.passed + other.passed, failed: one.failed + other.failed }
}

/// How likely two conditions differ so much by chance.
fn chance(one: Tally, other: Tally) -> f64 {
    let counts = |tally: Tally| (tally.passed + tally.failed, tally.failed);
    stats::fisher(counts(one), counts(other))
}

/// The outcome, where all runs had the same.
fn pure(tally: Tally) -> Option<bool> {
    match tally {
        Tally { passed: 0, failed: 0 } => None,
        Tally { failed: 0, .. } => Some(true),
        Tally { passed: 0, .. } => Some(false),
        _ => None,
    }
}
