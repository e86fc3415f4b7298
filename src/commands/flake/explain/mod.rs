//! Why is it flaky? An experiment: one input after the other is turned, the others stay, and what makes a difference is run
//! again to be sure. Screening chooses suspects; only fresh runs, beside fresh runs of the check as it is, count as evidence.
//! Every arm is a check that a user could ask for by the options that are told with it.
#![forbid(unsafe_code)]

mod axes;
mod batch;
mod page;
mod told;

use crate::cli::{CheckRequest, FlakeRequest, TreeChoice};
use crate::commands::flake::{jobs, page_at};
use crate::commands::run::wish;
use crate::commands::{Failure, Session};
use crate::model::evidence::Tally;
use crate::model::policy::Clock;
use crate::model::units::show_duration;
use crate::pipeline::{self, Bearings, Prepared, Wish};
use crate::report::write_atomically;
use crate::stats;
use axes::Arm;
use batch::Batch;
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;
use told::{ArmTold, Edge, Report};

/// Runs of the check as it is, before anything is turned.
const BASE: u64 = 20;
/// Runs of each arm to choose suspects by.
const SCREEN: u64 = 8;
/// Runs of each arm of the clock, which has many, most of which differ in nothing.
const SCREEN_CLOCK: u64 = 3;
/// Runs of a suspect, and as many of the check as it is beside them.
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
}

/// One arm and what came of it.
pub(super) struct Tried {
    arm: Arm,
    screened: Tally,
    /// Fresh runs of the arm and of the check as it is.
    confirmed: Option<(Tally, Tally)>,
    /// How unlikely the difference is by chance, among all suspects.
    chance: Option<f64>,
}

/// Finds out.
pub(super) fn explain(request: &FlakeRequest, session: &mut Session) -> Result<u8, Failure> {
    let began = Instant::now();
    let html = page_at(request.html.as_ref(), session)?;
    let wish = wish(request.check.clone(), &session.start)?;
    let mut base = pipeline::prepare(&wish, &session.around)?;
    base.close_store();
    let around = session.around.clone();
    let mut bench =
        Bench { wish, base, bearings: Bearings::new(&around), jobs: usize::from(jobs(request)), runs: 0 };
    let (arms, mut skipped) = arms(&mut bench);
    let mut prepared = Vec::with_capacity(arms.len());
    let mut tried = Vec::with_capacity(arms.len());
    for arm in arms {
        match bench.prepare(&arm) {
            Ok(ready) => {
                prepared.push(ready);
                tried.push(Tried { arm, screened: Tally::default(), confirmed: None, chance: None });
            }
            // A limit that this machine cannot keep, for instance.
            Err(failure) => skipped.push((arm.axis, failure.text)),
        }
    }
    let before = bench.run_base(BASE, session)?;
    bench.screen(&prepared, &mut tried, session)?;
    bench.confirm(before, &prepared, &mut tried, session)?;
    let edges = bench.edges(&tried, session)?;
    let base = tried.iter().filter_map(|it| it.confirmed).fold(before, |sum, (_, beside)| Tally {
        passed: sum.passed + beside.passed,
        failed: sum.failed + beside.failed,
    });
    let report = Report::new(told::Experiment {
        base,
        prepared: &bench.base,
        options: options(&request.check),
        arms: tried.iter().map(ArmTold::new).collect(),
        skipped,
        edges,
        runs: bench.runs,
        secs: began.elapsed().as_secs_f64(),
    });
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

/// The arms, and axes that cannot be turned with why.
fn arms(bench: &mut Bench<'_>) -> (Vec<Arm>, Vec<(&'static str, String)>) {
    let mut arms = axes::plain(&bench.wish);
    match bench.base.action.policy.clock {
        Clock::Fixed { start, .. } => arms.extend(axes::clock(start)),
        Clock::Commit { .. } | Clock::Host => {
            return (arms, vec![("clock", "the check has the host's clock".to_owned())]);
        }
    }
    (arms, Vec::new())
}

impl Bench<'_> {
    fn prepare(&mut self, arm: &Arm) -> Result<Prepared, Failure> {
        let wish = arm.apply(&self.wish);
        let mut ready = pipeline::prepare_on(&wish, self.base.snapshot.clone(), &mut self.bearings)?;
        ready.close_store();
        Ok(ready)
    }

    /// Runs checks as often as it is said for each, in turns, so that what the machine does meanwhile meets all alike.
    fn run(
        &mut self,
        variants: &[&Prepared],
        times: &[u64],
        session: &mut Session,
    ) -> Result<Vec<Tally>, Failure> {
        let mut batch = Batch::new(times, &mut session.reporter);
        pipeline::repeat(variants, self.jobs, &session.around, &mut batch)?;
        let tallies = batch.finish()?;
        self.runs += times.iter().sum::<u64>();
        Ok(tallies)
    }

    fn run_base(&mut self, times: u64, session: &mut Session) -> Result<Tally, Failure> {
        let mut batch = Batch::new(&[times], &mut session.reporter);
        pipeline::repeat(&[&self.base], self.jobs, &session.around, &mut batch)?;
        self.runs += times;
        Ok(batch.finish()?.first().copied().unwrap_or_default())
    }

    fn screen(
        &mut self,
        prepared: &[Prepared],
        tried: &mut [Tried],
        session: &mut Session,
    ) -> Result<(), Failure> {
        let times: Vec<u64> =
            tried.iter().map(|it| if it.arm.is_clock() { SCREEN_CLOCK } else { SCREEN }).collect();
        let variants: Vec<&Prepared> = prepared.iter().collect();
        for (it, tally) in tried.iter_mut().zip(self.run(&variants, &times, session)?) {
            it.screened = tally;
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
            let mut batch = Batch::new(&[CONFIRM, CONFIRM], &mut session.reporter);
            pipeline::repeat(&[&prepared[*index], &self.base], self.jobs, &session.around, &mut batch)?;
            self.runs += 2 * CONFIRM;
            let tallies = batch.finish()?;
            let (arm, beside) = (tallies[0], tallies[1]);
            tried[*index].confirmed = Some((arm, beside));
            chances.push(chance(arm, beside));
        }
        for ((index, _), chance) in suspects.iter().zip(stats::holm(&chances)) {
            tried[*index].chance = Some(chance);
        }
        Ok(())
    }

    /// Where the outcome turns with the clock: the edges next to the check's own date, to the second.
    fn edges(&mut self, tried: &[Tried], session: &mut Session) -> Result<Vec<Edge>, Failure> {
        let Clock::Fixed { start, .. } = self.base.action.policy.clock else { return Ok(Vec::new()) };
        let is_cause = |it: &&Tried| it.arm.is_clock() && it.is_cause();
        let Some((_, base)) = tried.iter().find(is_cause).and_then(|it| it.confirmed) else {
            return Ok(Vec::new());
        };
        // Only where one run tells: an outcome that is chance itself has no edge.
        let Some(usual) = pure(base) else { return Ok(Vec::new()) };
        let mut known: Vec<(i64, Option<bool>)> = tried
            .iter()
            .filter_map(|it| Some((it.arm.clock?, pure(it.screened))))
            .chain([(start, Some(usual))])
            .collect();
        known.sort_unstable();
        let mut edges = Vec::new();
        for direction in [-1, 1] {
            let side = |at: i64| (at - start).signum() == direction;
            let mut others: Vec<i64> = known
                .iter()
                .filter(|(at, passed)| side(*at) && *passed == Some(!usual))
                .map(|it| it.0)
                .collect();
            others.sort_by_key(|at| (at - start).abs());
            let Some(far) = others.first().copied() else { continue };
            let near = known
                .iter()
                .filter(|(at, passed)| {
                    side(*at) && *passed == Some(usual) && (at - start).abs() < (far - start).abs()
                })
                .map(|it| it.0)
                .max_by_key(|at| (at - start).abs())
                .unwrap_or(start);
            edges.extend(self.bisect(near, far, usual, session)?);
        }
        Ok(edges)
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
            let ready = self.prepare(&Arm::moment(middle))?;
            let Some(tally) = self.run(&[&ready], &[1], session)?.first().copied() else { return Ok(None) };
            match pure(tally) {
                Some(passed) if passed == usual => near = middle,
                Some(_) => far = middle,
                None => return Ok(None),
            }
        }
        // Once more on each side, since one run each has led here.
        let both = [self.prepare(&Arm::moment(near))?, self.prepare(&Arm::moment(far))?];
        let again = self.run(&[&both[0], &both[1]], &[3, 3], session)?;
        if (pure(again[0]), pure(again[1])) != (Some(usual), Some(!usual)) {
            return Ok(None);
        }
        Ok(Some(Edge::new(near.min(far), near.max(far), if near < far { usual } else { !usual })))
    }
}

impl Tried {
    pub(super) fn is_cause(&self) -> bool {
        self.chance.is_some_and(|chance| chance < SURE)
    }
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

/// What the caller asked besides the command, as words of a command line; without the clock, which an arm may set.
fn options(request: &CheckRequest) -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = Vec::new();
    let mut say = |option: &str, value: &[u8]| words.extend([option.as_bytes().to_vec(), value.to_vec()]);
    match &request.tree {
        TreeChoice::Revision(revision) => say("--tree", revision.as_bytes()),
        TreeChoice::Folder(folder) => say("--dir", folder.as_os_str().as_bytes()),
        TreeChoice::Working | TreeChoice::Staged => {}
    }
    for (option, value) in [("--policy", &request.policy), ("--runner", &request.runner)] {
        if let Some(value) = value {
            say(option, value.as_bytes());
        }
    }
    if let Some(cwd) = &request.cwd {
        say("--cwd", cwd.as_os_str().as_bytes());
    }
    for pathspec in &request.scope {
        say("--scope", pathspec.as_bytes());
    }
    for passed in &request.env {
        let value = passed.value.as_ref().map(|value| [&passed.name[..], b"=", value].concat());
        say("--env", value.as_deref().unwrap_or(&passed.name));
    }
    if let Some(timeout) = request.overrides.timeout {
        say("--timeout", show_duration(timeout).replace(' ', "").as_bytes());
    }
    if request.tree == TreeChoice::Staged {
        words.push(b"--staged".to_vec());
    }
    words
}
