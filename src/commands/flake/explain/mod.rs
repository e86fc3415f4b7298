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
mod trial;

use crate::cli::FlakeRequest;
use crate::commands::failure::interrupted;
use crate::commands::flake::{jobs, remember_cause};
use crate::commands::run::wish;
use crate::commands::session::output_place;
use crate::commands::{Failure, Session};
use crate::model::event::{Event, Sink as _};
use crate::model::evidence::Tally;
use crate::model::path::below;
use crate::model::policy::Clock;
use crate::pipeline::{self, Bearings, PipelineError, Prepared, Wish};
use crate::report::write_atomically;
use crate::sandbox::Interrupts;
use asked::Asked;
use axes::{Arm, Usual};
use batch::{Batch, Taken};
use order::{Dependent, Names};
use std::collections::BTreeSet;
use std::time::Instant;
use suite::Suite;
use told::{ArmTold, Edge, Report, Stage};
use trial::{SURE, Tried, chance, pure, sum};

/// Runs of the check as it is, before anything is turned.
const BASE: u64 = 20;
/// Runs of a suite with each test told by name, for what its tests come to.
const NAMED: u64 = 3;

/// Most warnings that are told.
const WARNINGS: usize = 5;

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
    interrupts: Interrupts,
    /// The signal by which somebody ended the experiment.
    stopped: Option<i32>,
    /// Warnings that were told.
    warned: BTreeSet<String>,
}

/// What is known so far. It is filled in as runs end, so that it can be told at any time.
#[derive(Default)]
struct Found {
    stage: Stage,
    /// The check as it is, before anything is turned.
    before: Tally,
    tried: Vec<Tried>,
    skipped: Vec<(&'static str, String)>,
    edges: Vec<Edge>,
    tests: Vec<Dependent>,
}

/// Finds out.
pub(super) fn explain(request: &FlakeRequest, session: &mut Session) -> Result<u8, Failure> {
    let began = Instant::now();
    let html = output_place(&session.start, request.html.clone())?;
    let wish = wish(request.check.clone(), &session.start)?;
    let mut base = pipeline::prepare(&wish, &session.around)?;
    base.close_store();
    let around = session.around.clone();
    let interrupts = pipeline::watch_signals(&around)?;
    let mut bench = Bench {
        wish,
        base,
        bearings: Bearings::new(&around),
        jobs: usize::from(jobs(request)),
        runs: 0,
        asked: Asked::new(&request.check),
        axes: request.axes.clone(),
        interrupts,
        stopped: None,
        warned: BTreeSet::new(),
    };
    let mut found = Found::default();
    if let Err(failure) = bench.find_out(&mut found, session)
        && bench.stopped.is_none()
    {
        return Err(failure);
    }
    let beside = found.tried.iter().filter_map(|it| it.confirmed);
    let base = beside.fold(found.before, |all, (_, beside)| sum(all, beside));
    let report = Report::new(told::Experiment {
        base,
        prepared: &bench.base,
        asked: bench.asked,
        arms: found.tried.iter().map(ArmTold::new).collect(),
        skipped: found.skipped,
        edges: found.edges,
        tests: found.tests,
        runs: bench.runs,
        secs: began.elapsed().as_secs_f64(),
        interrupted: bench.stopped.map(|signal| (signal, found.stage)),
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
    Ok(match (bench.stopped, base) {
        (Some(signal), _) => interrupted(signal),
        (None, Tally { failed: 0, .. }) => 0,
        (None, Tally { passed: 0, .. }) => 1,
        (None, _) => 3,
    })
}

/// Runs checks as often as it is said for each, in turns, so that what the machine does meanwhile meets all alike.
fn run_batch(
    variants: &[&Prepared],
    times: &[u64],
    jobs: usize,
    session: &mut Session,
) -> Result<Taken, Failure> {
    let mut batch = Batch::new(times, &mut session.reporter);
    pipeline::repeat(variants, jobs, &session.around, &mut batch)?;
    batch.finish()
}

impl Bench<'_> {
    /// The experiment. Where it ends early, what was found by then is in `found`.
    fn find_out(&mut self, found: &mut Found, session: &mut Session) -> Result<(), Failure> {
        let usual = self.run_base(found, session)?;
        found.stage = Stage::Suite;
        let suite = self.suite(&mut found.skipped, session)?;
        found.stage = Stage::Screen;
        let mut prepared = Vec::new();
        for arm in self.arms(suite.as_ref(), usual, &mut found.skipped) {
            // To lay out dozens of trees takes a while.
            self.go_on()?;
            match self.prepare(&arm) {
                Ok(ready) => {
                    prepared.push(ready);
                    found.tried.push(Tried::new(arm));
                }
                // A limit that this machine cannot keep, for instance.
                Err(failure) => found.skipped.push((arm.axis, failure.text)),
            }
        }
        let suspects = self.screen(found.before, &prepared, &mut found.tried, session)?;
        found.stage = Stage::Confirm;
        self.confirm(&suspects, &prepared, &mut found.tried, session)?;
        found.stage = Stage::Edges;
        self.edges(&found.tried, &mut found.edges, session)?;
        found.stage = Stage::Tests;
        if let Some((suite, own)) = &suite {
            order::dependents(self, (suite, own), &found.tried, &mut found.tests, session)?;
        }
        Ok(())
    }

    /// Fails where somebody has ended the experiment.
    fn go_on(&mut self) -> Result<(), Failure> {
        if self.stopped.is_none() {
            self.stopped = self.interrupts.pending();
        }
        self.stopped.map_or(Ok(()), |signal| Err(PipelineError::Interrupted(signal).into()))
    }

    /// Counts what was run, tells what is to be known of single runs, and remembers that it was ended early.
    fn account(&mut self, taken: &Taken, session: &mut Session) {
        self.runs += taken.runs;
        for warning in &taken.warnings {
            // What is said of one run is said of all.
            if self.warned.len() < WARNINGS && self.warned.insert(warning.clone()) {
                session.reporter.event(Event::Warning(warning));
            }
        }
        self.stopped = self.stopped.or(taken.signal);
    }

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
            arms.extend(suite.arms(&own.order, usual.shortest));
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
            let path = below(&command.cwd, name);
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

    /// Runs all of them, or fails.
    fn run(
        &mut self,
        variants: &[&Prepared],
        times: &[u64],
        session: &mut Session,
    ) -> Result<(Vec<Tally>, Vec<Names>), Failure> {
        let taken = run_batch(variants, times, self.jobs, session)?;
        self.account(&taken, session);
        self.go_on()?;
        Ok((taken.tallies, taken.names))
    }

    fn run_base(&mut self, found: &mut Found, session: &mut Session) -> Result<Usual, Failure> {
        let mut batch = Batch::new(&[BASE], &mut session.reporter).giving_up();
        pipeline::repeat(&[&self.base], self.jobs, &session.around, &mut batch)?;
        let taken = batch.finish()?;
        self.account(&taken, session);
        found.before = taken.tallies.first().copied().unwrap_or_default();
        self.go_on()?;
        let mut used = taken.names.into_iter().next().unwrap_or_default().used;
        used.sort_unstable();
        Ok(Usual {
            memory: used.get(used.len() / 4).map_or(0, |(memory, _)| *memory),
            shortest: used.iter().map(|(_, took)| *took).min().unwrap_or_default(),
            longest: used.iter().map(|(_, took)| *took).max().unwrap_or_default(),
        })
    }
}
