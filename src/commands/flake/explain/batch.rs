//! A number of runs of each of several checks, taken in turns.
#![forbid(unsafe_code)]

use crate::commands::Failure;
use crate::commands::flake::course::TIMEOUTS;
use crate::commands::flake::explain::order::Names;
use crate::commands::flake::not_started;
use crate::model::case::{Case, Fate};
use crate::model::event::{Event, RunsSoFar, Sink};
use crate::model::evidence::{Evidence, Tally};
use crate::model::outcome::Outcome;
use crate::pipeline::{Director, Execution};
use std::collections::VecDeque;
use std::time::Duration;

/// Most tests of a check that are counted by name.
const NAMES_MAX: usize = 2000;

pub(super) struct Batch<'a> {
    sink: &'a mut dyn Sink,
    todo: VecDeque<usize>,
    of: u64,
    done: u64,
    tallies: Vec<Tally>,
    names: Vec<Names>,
    signal: Option<i32>,
    broken: Option<Box<Evidence>>,
    warnings: Vec<String>,
    /// Runs past their timeout.
    late: u64,
    /// Whether to stop where the first runs are all past their timeout.
    gives_up: bool,
}

/// What a batch came to, check by check.
pub(super) struct Taken {
    pub(super) tallies: Vec<Tally>,
    pub(super) names: Vec<Names>,
    /// Runs that ended by themselves.
    pub(super) runs: u64,
    /// The signal by which somebody ended it early.
    pub(super) signal: Option<i32>,
    /// What a person should know of single runs.
    pub(super) warnings: Vec<String>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(times: &[u64], sink: &'a mut dyn Sink) -> Self {
        let most = times.iter().copied().max().unwrap_or(0);
        let turn = |turn: u64| {
            times.iter().enumerate().filter(move |(_, times)| turn < **times).map(|(index, _)| index)
        };
        let todo: VecDeque<usize> = (0..most).flat_map(turn).collect();
        let of = times.iter().sum();
        Self {
            sink,
            todo,
            of,
            done: 0,
            tallies: vec![Tally::default(); times.len()],
            names: vec![Names::default(); times.len()],
            signal: None,
            broken: None,
            warnings: Vec::new(),
            late: 0,
            gives_up: false,
        }
    }

    /// The same, ended as soon as two runs went past their timeout and none ended in time.
    pub(super) fn giving_up(self) -> Self {
        Self { gives_up: true, ..self }
    }

    fn is_late(&self) -> bool {
        self.gives_up && self.done >= TIMEOUTS && self.late == self.done
    }

    /// What came of it, also where somebody ended it before all had run.
    pub(super) fn finish(self) -> Result<Taken, Failure> {
        let is_late = self.is_late();
        match (self.signal, self.broken) {
            (None, Some(evidence)) => Err(not_started(&evidence)),
            (None, None) if is_late => Err(Failure::new(
                format!(
                    "the check cannot be explained: each of its first {} runs went past its timeout",
                    self.done
                ),
                Some(
                    "each run would take that long; give it more with `--timeout`, or less to see what makes it end in time",
                ),
            )),
            (signal, _) => Ok(Taken {
                tallies: self.tallies,
                names: self.names,
                runs: self.done,
                signal,
                warnings: self.warnings,
            }),
        }
    }
}

impl Director for Batch<'_> {
    fn next(&mut self) -> Option<usize> {
        self.todo.pop_front()
    }

    fn ran(&mut self, execution: Execution) {
        self.warnings.extend(execution.warnings);
        if execution.evidence.outcome == Outcome::Interrupted {
            // We ended it ourselves: it is not on record and says nothing.
            return;
        }
        let names = &mut self.names[execution.variant];
        count(names, &execution.cases);
        let Evidence { usage, secs, .. } = &execution.evidence;
        names.used.push((usage.max_rss_bytes, Duration::try_from_secs_f64(*secs).unwrap_or_default()));
        let tally = &mut self.tallies[execution.variant];
        self.done += 1;
        match execution.evidence.outcome {
            Outcome::Passed => tally.passed += 1,
            Outcome::Killed | Outcome::Interrupted => {}
            Outcome::NotStarted => self.broken = Some(Box::new(execution.evidence)),
            outcome => {
                tally.failed += 1;
                self.late += u64::from(outcome == Outcome::TimedOut);
            }
        }
        let failed = self.tallies.iter().map(|tally| tally.failed).sum();
        let so_far = RunsSoFar { runs: self.done, failed, of: Some(self.of), bound: None, left: None };
        self.sink.event(Event::Runs(so_far));
    }

    fn interrupted(&mut self, signal: i32) {
        self.signal.get_or_insert(signal);
    }

    fn is_done(&self) -> bool {
        self.broken.is_some() || self.is_late()
    }
}

/// Counts tests by name; the first run's order is kept.
fn count(names: &mut Names, cases: &[Case]) {
    if names.order.is_empty() {
        names.order = cases.iter().take(NAMES_MAX).map(|case| case.id.clone()).collect();
    }
    for case in cases {
        if names.tallies.len() >= NAMES_MAX && !names.tallies.contains_key(&case.id) {
            continue;
        }
        let tally = names.tallies.entry(case.id.clone()).or_default();
        match case.fate() {
            Fate::Passed => tally.passed += 1,
            Fate::Failed | Fate::Aborted => tally.failed += 1,
            Fate::Skipped => {}
        }
    }
}
