//! Checking the steps of a ledger on one tree: every command by the ordinary flow, the first that fails decides. What is
//! done with the findings (shown, written, committed) is up to the commands.
#![forbid(unsafe_code)]

mod ahead;
mod alike;
mod boundaries;
mod idle;
mod leftovers;
mod restore;
mod skeleton;
mod told;
mod unchanged;

pub(super) use ahead::run_ahead;
pub(super) use alike::{Attempt, Past, alike, not_converging};
pub(super) use boundaries::{Boundaries, Boundary};
pub(super) use idle::Idle;
pub(super) use leftovers::{Leftovers, left_behind};
pub(super) use restore::{moves, obstacles, put, remove_emptied};
pub(super) use skeleton::{Skeleton, skeleton};
pub(super) use told::{CheckRow, Found, PathRow, Report, check_rows, path_rows, shown_failure};

use crate::cli::{self, Split, StepRequest};
use crate::commands::session::now_secs;
use crate::commands::{Failure, run};
use crate::ledger::{Ran, Step};
use crate::model::event::{Event, Sink};
use crate::model::evidence::{CacheUse, Evidence, Tally};
use crate::model::outcome::Outcome;
use crate::model::units::show_instant;
use crate::pipeline::{self, Answered, Bearings, Caching, PipelineError, Surroundings, Wish};
use crate::store::Store;
use crate::tree::Snapshot;
use std::collections::BTreeSet;
use std::path::Path;

/// What was found out about a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Status {
    /// All its commands pass on the tree.
    Certified,
    /// One of them fails.
    Uncertified,
    /// A step that it depends on is not certified.
    Blocked,
    /// One of them was seen to pass and to fail on the same tree.
    Flaky,
    /// One of them came to no verdict.
    Undecided,
    /// Not looked at.
    NotReached,
}

impl Status {
    /// The word used in output.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Certified => "certified",
            Self::Uncertified => "uncertified",
            Self::Blocked => "blocked",
            Self::Flaky => "flaky",
            Self::Undecided => "undecided",
            Self::NotReached => "not_reached",
        }
    }
}

/// How an answer to a command is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    /// It ran now.
    Ran,
    /// An earlier run on the very same tree, or the same check that was running just now.
    Exact,
    /// An earlier run on another tree, all of whose observed inputs are as they were.
    Inputs,
    /// An earlier run on the tree of the step's evidence, from which nothing under its touches differs.
    Touches,
}

/// One command of a step and what came of it.
#[derive(Clone, Debug)]
pub(super) struct Checked {
    pub(super) cmd: String,
    pub(super) how: How,
    pub(super) evidence: Evidence,
    pub(super) tally: Tally,
}

impl Checked {
    /// As a ledger has it.
    pub(super) fn ran(&self) -> Ran {
        let evidence = &self.evidence;
        let status = pipeline::exit_status(
            evidence.outcome,
            evidence.exit,
            evidence.signal,
            evidence.reason.as_deref(),
        );
        Ran {
            cmd: self.cmd.clone(),
            exit: i64::from(status),
            secs: evidence.secs,
            at: evidence.at.clone(),
            summary: evidence.summary.clone(),
            tail: evidence.tail.clone(),
        }
    }
}

/// What was found out about a step, and by what.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) status: Status,
    pub(super) checks: Vec<Checked>,
    /// Why, where the last command does not say it.
    pub(super) reason: Option<String>,
    /// What else a person should know, a sentence each.
    pub(super) notes: Vec<String>,
    /// Whether the ledger itself is at fault, which then is not written.
    pub(super) is_idle: bool,
}

impl Finding {
    pub(super) fn without_check(status: Status, reason: Option<String>) -> Self {
        Self { status, checks: Vec::new(), reason, notes: Vec::new(), is_idle: false }
    }
}

/// Where checks are run: one tree, and what all of them have in common.
pub(super) struct Bench<'a> {
    pub(super) snapshot: Snapshot,
    pub(super) boundaries: Boundaries<'a>,
    /// Those of the paths that were cut off the tree which it had.
    pub(super) cut_away: Vec<Vec<u8>>,
    bearings: Bearings<'a>,
    around: &'a Surroundings,
    wish: Wish,
    request: &'a StepRequest,
    /// When this call began, and the steps that were run beside it since.
    began: String,
    ahead: BTreeSet<String>,
    /// Keys of what was told already.
    told: BTreeSet<String>,
}

/// What may be done for an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ask {
    /// Only look on record.
    Look,
    /// Run what nothing answers.
    Run,
    /// The same, for what was run in this call already.
    RunBefore,
}

impl<'a> Bench<'a> {
    /// Resolves the tree. What lies at `cut` is no part of it: the ledger is a claim about the tree, and what it says
    /// must not change what is found.
    pub(super) fn new(
        request: &'a StepRequest,
        cut: &'a [Vec<u8>],
        start: &Path,
        around: &'a Surroundings,
    ) -> Result<Self, Failure> {
        let wish = run::wish(request.check.clone(), start)?;
        let whole = crate::tree::resolve(&wish.start, &wish.source, &around.scratch())?;
        let mut cut_away = Vec::new();
        for path in cut {
            if whole.has(path)? {
                cut_away.push(path.clone());
            }
        }
        let snapshot = whole.without(cut)?;
        let boundaries = Boundaries::new(start, cut);
        let began = show_instant(now_secs());
        Ok(Self {
            snapshot,
            boundaries,
            cut_away,
            bearings: Bearings::new(around),
            around,
            wish,
            request,
            began,
            ahead: BTreeSet::new(),
            told: BTreeSet::new(),
        })
    }

    /// Runs or answers the commands of a step up to the first that does not pass.
    pub(super) fn check(
        &mut self,
        step: &Step,
        plan_version: Option<&str>,
        sink: &mut dyn Sink,
    ) -> Result<Finding, Failure> {
        let ask = if self.ahead.contains(&step.id) { Ask::RunBefore } else { Ask::Run };
        let found = self.decide(step, plan_version, ask, sink)?;
        Ok(found.unwrap_or_else(|| Finding::without_check(Status::Undecided, None)))
    }

    /// What is on record of a step; `None` where one of its commands would have to be run.
    pub(super) fn look(
        &mut self,
        step: &Step,
        plan_version: Option<&str>,
    ) -> Result<Option<Finding>, Failure> {
        if self.request.refresh {
            return Ok(None);
        }
        self.decide(step, plan_version, Ask::Look, &mut Nobody)
    }

    /// Notes that a step is run beside this process.
    pub(super) fn ran_ahead(&mut self, step: &Step) {
        self.ahead.insert(step.id.clone());
    }

    /// Lets go of all that another process must not share.
    pub(super) fn let_go(&mut self) {
        self.bearings.let_go();
    }

    fn decide(
        &mut self,
        step: &Step,
        plan_version: Option<&str>,
        ask: Ask,
        sink: &mut dyn Sink,
    ) -> Result<Option<Finding>, Failure> {
        let mut finding = Finding::without_check(Status::Certified, None);
        if step.check.is_empty() {
            finding.status = Status::Undecided;
            finding.reason = Some("no command is known that could decide it".to_owned());
            return Ok(Some(finding));
        }
        let since = self.unchanged_since(step, plan_version, &mut finding.notes)?;
        let commands: Vec<&String> = self.request.also.iter().chain(&step.check).collect();
        for cmd in commands {
            let checked = match self.command(cmd, since.as_ref(), ask, sink) {
                Ok(checked) => checked,
                // A program that this machine lacks says nothing about the tree.
                Err(error @ PipelineError::Toolchain(_)) => {
                    finding.status = Status::Undecided;
                    finding.reason = Some(format!("`{cmd}`: {error}"));
                    return Ok(Some(finding));
                }
                Err(PipelineError::NotCached(_)) if ask == Ask::Look => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            let (outcome, tally) = (checked.evidence.outcome, checked.tally);
            if outcome == Outcome::Interrupted {
                let signal = checked.evidence.signal.unwrap_or(2);
                return Err(PipelineError::Interrupted(signal).into());
            }
            let reason = checked.evidence.reason.clone();
            finding.checks.push(checked);
            finding.status = match outcome {
                _ if tally.is_flaky() => {
                    finding.reason = Some(format!(
                        "`{cmd}` passed {} times and failed {} on this very tree",
                        tally.passed, tally.failed
                    ));
                    Status::Flaky
                }
                Outcome::Passed => continue,
                Outcome::Failed => Status::Uncertified,
                other => {
                    let why = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
                    finding.reason =
                        Some(format!("`{cmd}` ended as `{}`{why}, which decides nothing", other.name()));
                    Status::Undecided
                }
            };
            return Ok(Some(finding));
        }
        Ok(Some(finding))
    }

    /// Paths of the tree that the commands of a step were seen to read, list or look for on this tree; `None` where that
    /// is not on record for each of them.
    pub(super) fn looked_at(&mut self, step: &Step) -> Result<Option<BTreeSet<Vec<u8>>>, Failure> {
        let Some(reader) = Store::open_reader(&self.around.store)? else { return Ok(None) };
        let mut paths = BTreeSet::new();
        for cmd in self.request.also.iter().chain(&step.check) {
            self.wish.argv = argv(cmd);
            let prepared = pipeline::prepare_on(&self.wish, self.snapshot.clone(), &mut self.bearings)?;
            let Some((_, groups)) = pipeline::inputs_that_hold(&prepared, &reader)? else { return Ok(None) };
            let tree = groups.tree;
            for path in [tree.read, tree.listed, tree.there, tree.absent].into_iter().flatten() {
                paths.insert(path.into_bytes());
            }
        }
        Ok(Some(paths))
    }

    fn command(
        &mut self,
        cmd: &str,
        since: Option<&Snapshot>,
        ask: Ask,
        sink: &mut dyn Sink,
    ) -> Result<Checked, PipelineError> {
        self.wish.argv = argv(cmd);
        let prepared = pipeline::prepare_on(&self.wish, self.snapshot.clone(), &mut self.bearings)?;
        if let Some(before) = since
            && !self.request.refresh
            && let Some((evidence, tally)) = self.since(before, &prepared)?
        {
            return Ok(Checked { cmd: cmd.to_owned(), how: How::Touches, evidence, tally });
        }
        let caching = match ask {
            Ask::Look => Caching::Only,
            Ask::Run if self.request.refresh => Caching::Refresh,
            Ask::Run | Ask::RunBefore => Caching::Use,
        };
        let Answered { evidence, cache, tally, from } =
            pipeline::answer(&prepared, self.wish.inputs, caching, self.around, None, &mut Silent(sink))?;
        self.bearings.take_back(prepared, cache);
        // What was run beside this process counts as run once, as it would be in one process.
        let is_new = ask != Ask::Look && self.told.insert(evidence.key.clone()) || self.request.refresh;
        let how = match cache {
            CacheUse::Hit if from.is_some() => How::Inputs,
            CacheUse::Hit if ask == Ask::RunBefore && is_new && evidence.at >= self.began => How::Ran,
            CacheUse::Hit | CacheUse::Joined => How::Exact,
            CacheUse::Miss | CacheUse::Refreshed | CacheUse::Off => How::Ran,
        };
        Ok(Checked { cmd: cmd.to_owned(), how, evidence, tally })
    }
}

/// A command of a ledger as an argument list: split where it is only words and quotes, else for the shell.
fn argv(cmd: &str) -> Vec<Vec<u8>> {
    match cli::split(cmd.as_bytes()) {
        Split::Words(words) => words,
        Split::Shell | Split::Nothing => vec![b"sh".to_vec(), b"-c".to_vec(), cmd.as_bytes().to_vec()],
    }
}

/// Passes on what a person must know and keeps the checks' own output to itself.
struct Silent<'a>(&'a mut dyn Sink);

impl Sink for Silent<'_> {
    fn event(&mut self, event: Event<'_>) {
        if matches!(event, Event::Warning(_) | Event::Waiting { .. } | Event::Staging { .. }) {
            self.0.event(event);
        }
    }

    fn wants_output(&self) -> bool {
        false
    }
}

/// Nobody is told.
struct Nobody;

impl Sink for Nobody {
    fn event(&mut self, _: Event<'_>) {}

    fn wants_output(&self) -> bool {
        false
    }
}

/// The tree that a request is about, in words.
pub(super) fn is_working_tree(request: &StepRequest) -> bool {
    matches!(request.check.tree, cli::TreeChoice::Working)
}
