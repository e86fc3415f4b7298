//! The course of a session: counts runs as they end and decides when there are enough. Decisions are taken in the order in
//! which runs were started, so that failures that take longer than passes, or shorter, do not tilt them.
#![forbid(unsafe_code)]

use crate::commands::flake::all;
use crate::commands::flake::cases::{CasesSeen, SHOWN};
use crate::commands::flake::quarantine::Quarantine;
use crate::model::event::{Event, RunsSoFar, Sink};
use crate::model::evidence::{Evidence, Tally};
use crate::model::outcome::Outcome;
use crate::pipeline::{Director, Execution};
use crate::stats::{self, Decision, SequentialTest};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Failures without a single pass after which a claim about a rate is given up.
const HOPELESS: u64 = 5;
/// Runs past their timeout without a single pass after which no further one is waited for.
pub(super) const TIMEOUTS: u64 = 2;
/// Kinds of failures that are told of.
const KINDS: usize = 10;

/// What ends a session.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Rule {
    /// A number of runs that is settled before the first.
    Runs(u64),
    /// A claim that is held or not.
    Certify { test: SequentialTest, cap: u64 },
    /// Time.
    For { span: Duration, cap: u64 },
    /// A failure.
    UntilFail { cap: u64 },
    /// Enough passes in a row to tell from an old rate.
    Fixed { needed: u64, least: f64, old: Tally, key: String, secs: f64, cap: u64 },
}

/// What ended it.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Stopped {
    /// The claim holds.
    Certified,
    /// The claim does not hold, or what had to pass has failed.
    Rejected,
    /// It failed, as was waited for.
    Failed,
    /// No run has passed and all ran past their timeout.
    Timeouts,
    /// The command cannot be executed.
    NotStarted(Box<Evidence>),
    /// Somebody stopped us by this signal.
    Interrupted(i32),
}

/// Failures that look alike.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct FailureKind {
    pub(super) count: u64,
    /// The first run that failed so, from 1.
    pub(super) first: u64,
    pub(super) evidence: Evidence,
}

/// All that a session showed.
pub(super) struct Seen {
    pub(super) rule: Rule,
    pub(super) confidence: f64,
    /// Runs of this session that passed, and that did not.
    pub(super) now: Tally,
    /// Runs of the same key on record before.
    pub(super) earlier: Tally,
    pub(super) outcomes: BTreeMap<&'static str, u64>,
    pub(super) failures: Vec<FailureKind>,
    pub(super) cases: CasesSeen,
    pub(super) quarantine: Quarantine,
    /// Failed runs of this session in which nothing but what is in quarantine went wrong.
    pub(super) excused: u64,
    /// Which of the first runs did not pass, from 0.
    pub(super) wrong: Vec<u64>,
    pub(super) stopped: Option<Stopped>,
    /// Unbroken stretches of one outcome.
    pub(super) stretches: u64,
    /// Time that all runs took, one after the other.
    pub(super) run_secs: f64,
    pub(super) warnings: Vec<String>,
}

/// A session in progress.
pub(super) struct Course<'a> {
    sink: &'a mut dyn Sink,
    began: Instant,
    started: u64,
    /// Runs that ended before one that was started earlier.
    ahead: BTreeMap<u64, Option<bool>>,
    next: u64,
    /// Verdicts in the order of starting.
    ordered: Tally,
    last: Option<bool>,
    told: BTreeSet<String>,
    seen: Seen,
}

impl<'a> Course<'a> {
    pub(super) fn new(rule: Rule, confidence: f64, earlier: Tally, sink: &'a mut dyn Sink) -> Self {
        Self {
            sink,
            began: Instant::now(),
            started: 0,
            ahead: BTreeMap::new(),
            next: 0,
            ordered: Tally::default(),
            last: None,
            told: BTreeSet::new(),
            seen: Seen {
                rule,
                confidence,
                now: Tally::default(),
                earlier,
                outcomes: BTreeMap::new(),
                failures: Vec::new(),
                cases: CasesSeen::default(),
                quarantine: Quarantine::default(),
                excused: 0,
                wrong: Vec::new(),
                stopped: None,
                stretches: 0,
                run_secs: 0.0,
                warnings: Vec::new(),
            },
        }
    }

    /// With what is known to be flaky and not to gate.
    pub(super) fn with(mut self, quarantine: Quarantine) -> Self {
        self.seen.quarantine = quarantine;
        self
    }

    pub(super) fn finish(mut self) -> Seen {
        // Runs end in another order than they begin.
        self.seen.wrong.sort_unstable();
        self.seen
    }

    /// The most runs.
    fn cap(&self) -> u64 {
        match &self.seen.rule {
            Rule::Runs(runs) => *runs,
            Rule::Certify { cap, .. } | Rule::For { cap, .. } | Rule::UntilFail { cap } => *cap,
            Rule::Fixed { needed, cap, .. } => (*needed).min(*cap),
        }
    }

    /// Takes the verdicts that are next in the order of starting, and decides after each.
    fn settle(&mut self) {
        while let Some(passed) = self.ahead.remove(&self.next) {
            self.next += 1;
            let Some(passed) = passed else { continue };
            let count = if passed { &mut self.ordered.passed } else { &mut self.ordered.failed };
            *count += 1;
            self.seen.stretches += u64::from(self.last != Some(passed));
            self.last = Some(passed);
            if self.seen.stopped.is_none() {
                self.seen.stopped = self.decision();
            }
        }
    }

    fn decision(&self) -> Option<Stopped> {
        let (now, seen) = (self.ordered, &self.seen);
        let timeouts = seen.outcomes.get(Outcome::TimedOut.name()).copied().unwrap_or(0);
        if seen.now.passed == 0 && timeouts >= TIMEOUTS && timeouts == seen.now.failed {
            return Some(Stopped::Timeouts);
        }
        match &seen.rule {
            Rule::Runs(_) | Rule::For { .. } => None,
            Rule::UntilFail { .. } => (now.failed > 0).then_some(Stopped::Failed),
            Rule::Fixed { .. } => (now.failed > 0).then_some(Stopped::Rejected),
            Rule::Certify { test, .. } => {
                let (passed, failed) = (now.passed + seen.earlier.passed, now.failed + seen.earlier.failed);
                match test.decide(passed + failed, failed) {
                    Some(Decision::Good) => Some(Stopped::Certified),
                    // A few more runs tell a flaky check from one that always fails.
                    Some(Decision::Bad) if passed > 0 || failed >= HOPELESS => Some(Stopped::Rejected),
                    _ => None,
                }
            }
        }
    }

    fn note_failure(&mut self, number: u64, evidence: Evidence) {
        let alike = |kind: &FailureKind| {
            let other = &kind.evidence;
            (other.outcome, other.exit, other.signal) == (evidence.outcome, evidence.exit, evidence.signal)
                && last_line(&other.tail) == last_line(&evidence.tail)
        };
        if let Some(kind) = self.seen.failures.iter_mut().find(|kind| alike(kind)) {
            kind.count += 1;
            kind.first = kind.first.min(number + 1);
        } else if self.seen.failures.len() < KINDS {
            self.seen.failures.push(FailureKind { count: 1, first: number + 1, evidence });
        }
    }

    fn show(&mut self) {
        let seen = &self.seen;
        let runs = all(seen.now);
        let (passed, failed) = (seen.now.passed + seen.earlier.passed, seen.now.failed + seen.earlier.failed);
        let of = match &seen.rule {
            Rule::Runs(_) | Rule::Fixed { .. } => Some(self.cap()),
            _ => None,
        };
        let passing = match &seen.rule {
            Rule::Certify { test, .. } if seen.now.failed == 0 => {
                Some(test.shortest().saturating_sub(all(seen.earlier)))
            }
            _ => of,
        };
        let spent = self.began.elapsed();
        let left = match (&seen.rule, passing) {
            (Rule::For { span, .. }, _) => Some(span.saturating_sub(spent)),
            (_, Some(of)) if runs > 0 => {
                let each = spent.as_secs_f64() / stats::real(runs);
                Duration::try_from_secs_f64(each * stats::real(of.saturating_sub(runs))).ok()
            }
            _ => None,
        };
        let bound = Some(stats::anytime_upper_bound(passed + failed, failed, seen.confidence));
        self.sink.event(Event::Runs(RunsSoFar { runs, failed: seen.now.failed, of, bound, left }));
    }
}

impl Director for Course<'_> {
    fn next(&mut self) -> Option<usize> {
        let over = match &self.seen.rule {
            // At least one run, however short the time.
            Rule::For { span, .. } => self.started > 0 && self.began.elapsed() >= *span,
            _ => false,
        };
        if over || self.seen.stopped.is_some() || self.started >= self.cap() {
            return None;
        }
        self.started += 1;
        Some(0)
    }

    fn ran(&mut self, execution: Execution) {
        let Execution { number, evidence, cases, warnings, .. } = execution;
        for warning in warnings {
            // What is said of one run is said of all.
            if self.told.len() < 20 && self.told.insert(warning.clone()) {
                self.sink.event(Event::Warning(&warning));
                self.seen.warnings.push(warning);
            }
        }
        if evidence.outcome == Outcome::Interrupted {
            // We ended it ourselves, and it is not on record.
            return;
        }
        let passed = match evidence.outcome {
            Outcome::Passed => Some(true),
            Outcome::Failed
            | Outcome::TimedOut
            | Outcome::OutOfMemory
            | Outcome::PidsLimit
            | Outcome::DiskFull
            | Outcome::OutputLimit => Some(false),
            // Somebody else ended it, which says nothing of the check.
            Outcome::Killed | Outcome::Interrupted => None,
            Outcome::NotStarted => {
                self.seen.stopped.get_or_insert_with(|| Stopped::NotStarted(Box::new(evidence.clone())));
                None
            }
        };
        *self.seen.outcomes.entry(evidence.outcome.name()).or_default() += 1;
        if let Some(passed) = passed {
            let count = if passed { &mut self.seen.now.passed } else { &mut self.seen.now.failed };
            *count += 1;
            self.seen.run_secs += evidence.secs;
            self.seen.cases.add(number, &cases);
            if !passed {
                self.seen.excused += u64::from(self.seen.quarantine.excuses(&evidence, &cases));
                if number < SHOWN {
                    self.seen.wrong.push(number);
                }
                self.note_failure(number, evidence);
            }
        }
        self.ahead.insert(number, passed);
        self.settle();
        self.show();
    }

    fn tick(&mut self) {
        self.show();
    }

    fn interrupted(&mut self, signal: i32) {
        self.seen.stopped.get_or_insert(Stopped::Interrupted(signal));
    }

    fn is_done(&self) -> bool {
        // What is still running was started after the deciding run and takes no part in the decision.
        !matches!(self.seen.stopped, None | Some(Stopped::Interrupted(_)))
    }
}

/// The last line that is not empty.
pub(super) fn last_line(tail: &str) -> &str {
    tail.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default()
}
