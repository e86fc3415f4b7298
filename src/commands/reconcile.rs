//! Door 2: which steps of a ledger hold on a tree. Each step's commands are answered by the ordinary flow; what the
//! ledger says of itself is shown beside it and never believed.
#![forbid(unsafe_code)]

use crate::cli::{ReconcileRequest, StepGuard};
use crate::commands::certify::refuse_half_done;
use crate::commands::session::from;
use crate::commands::steps::{
    Attempt, Bench, Finding, Found, Idle, Leftovers, Report, Skeleton, Status, is_working_tree, left_behind,
    run_ahead, skeleton,
};
use crate::commands::{Failure, Session, UNDECIDED};
use crate::ledger::{self, About, Document, Held, Ledger, Shape, Step, Update, new_name};
use crate::model::event::Sink;
use crate::tree;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Commits that are read for trailers.
const COMMITS: usize = 20_000;

/// What the steps are taken from.
enum Plan {
    /// A file that is only read.
    Read(Document),
    /// A file that will be written.
    Held(Held),
    /// Commits.
    History(Skeleton),
}

impl Plan {
    fn ledger(&self) -> &Ledger {
        match self {
            Self::Read(document) => &document.ledger,
            Self::Held(held) => &held.document.ledger,
            Self::History(skeleton) => &skeleton.ledger,
        }
    }
}

/// Says which steps hold.
pub(super) fn reconcile(request: ReconcileRequest, session: &mut Session) -> Result<u8, Failure> {
    let began = Instant::now();
    let mut notes = Vec::new();
    let (plan, cut) = plan(&request, session, &mut notes)?;
    let ledger = plan.ledger();
    if ledger.steps.is_empty() {
        let text = if ledger.shape == Shape::History {
            "no commit claims a step: none has an `Agent-Step` trailer"
        } else {
            "the ledger has no step to check"
        };
        return Err(Failure::new(text, None));
    }
    if is_working_tree(&request.steps)
        && let Ok(state) = tree::state(&session.start)
        && let Some(what) = state.in_progress
    {
        if request.write {
            refuse_half_done(&state, "a ledger can be written")?;
        }
        notes.push(format!("the repository is in the middle of {what}"));
    }
    let mut bench = Bench::new(&request.steps, &cut, &session.start, &session.around)?;
    let findings = findings(ledger, &request, &mut bench, &mut session.reporter)?;
    let leftovers = leftovers(ledger, &findings, &mut bench)?;
    let identity = bench.snapshot.identity().clone();
    drop(bench);
    let file = request.ledger.as_ref().map(|path| path.display().to_string());
    let attempt = attempt(&findings, leftovers.as_ref(), request.hypothesis.as_deref());
    let is_idle = findings.iter().any(|(_, finding)| finding.is_idle);
    if is_idle && request.write {
        notes.push("nothing is written while the ledger has a step whose touches match nothing".to_owned());
    }
    let report = Report::new(Found {
        ledger,
        file: file.as_deref(),
        findings: &findings,
        identity: &identity,
        guard: match request.steps.guard {
            Some(StepGuard::Exact) => "exact",
            None | Some(StepGuard::Inputs) => "inputs",
            Some(StepGuard::Touches) => "touches",
        },
        leftovers: leftovers.as_ref(),
        attempt,
        secs: began.elapsed().as_secs_f64(),
        notes: &notes,
    });
    if session.reporter.is_json() {
        session.reporter.object(&report);
    } else {
        let text = report.text(session.reporter.columns());
        session.reporter.data(text.as_bytes());
    }
    let status = status(&findings);
    if let Plan::Held(held) = &plan
        && !is_idle
    {
        // A tree in which a later step has begun is no state to go back to.
        let is_boundary = leftovers.as_ref().is_none_or(|left| left.own.is_empty());
        let updates = updates(held, &findings, is_boundary, &identity.tree.hex(), attempt);
        let text = held.document.with(&updates);
        write(plan, &text)?;
    }
    Ok(status)
}

fn write(plan: Plan, text: &str) -> Result<(), Failure> {
    match plan {
        Plan::Held(mut held) => Ok(held.replace(text)?),
        Plan::Read(_) | Plan::History(_) => Ok(()),
    }
}

/// Where the steps are taken from, and which files are no part of the tree.
fn plan(
    request: &ReconcileRequest,
    session: &Session,
    notes: &mut Vec<String>,
) -> Result<(Plan, Vec<Vec<u8>>), Failure> {
    let claimed = match &request.from_history {
        None => None,
        Some(revision) => {
            let found = skeleton(&tree::history(&session.start, revision, COMMITS)?);
            notes.extend(found.notes.iter().cloned());
            Some(found)
        }
    };
    let Some(path) = &request.ledger else {
        let found = claimed.ok_or_else(|| Failure::new("no ledger is named", None))?;
        return Ok((Plan::History(found), Vec::new()));
    };
    let path = from(&session.start, path.clone());
    let cut = own_files(&path, &session.start);
    let plan = if request.write { Plan::Held(Held::open(&path)?) } else { Plan::Read(ledger::read(&path)?) };
    if let Some(claimed) = claimed {
        notes.extend(differences(plan.ledger(), &claimed));
    }
    Ok((plan, cut))
}

/// The ledger and what a writer may have left beside it, as paths of the tree; none where it lies outside of the
/// repository.
pub(super) fn own_files(ledger: &Path, start: &Path) -> Vec<Vec<u8>> {
    let inside = || -> Option<PathBuf> {
        let root = std::fs::canonicalize(tree::state(start).ok()?.root).ok()?;
        let real = std::fs::canonicalize(ledger).ok()?;
        Some(real.strip_prefix(root).ok()?.to_owned())
    };
    let Some(path) = inside() else { return Vec::new() };
    let new = path.with_file_name(new_name(path.file_name().unwrap_or_default()));
    [path, new].iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect()
}

/// Where a ledger and a history say different things.
fn differences(ledger: &Ledger, claimed: &Skeleton) -> Vec<String> {
    let mut notes = Vec::new();
    for step in &ledger.steps {
        match claimed.ledger.step(&step.id) {
            None if step.claims_done() => {
                notes.push(format!(
                    "the ledger says that `{}` is {}, and no commit claims it",
                    step.id,
                    step.status.as_deref().unwrap_or_default()
                ));
            }
            Some(claim) if !step.claims_done() && claim.claims_done() => {
                notes.push(format!(
                    "a commit claims `{}`, and the ledger says {}",
                    step.id,
                    step.status.as_deref().unwrap_or("nothing")
                ));
            }
            _ => {}
        }
        if let Some(claim) = claimed.ledger.step(&step.id)
            && !claim.check.is_empty()
            && claim.check != step.check
        {
            notes.push(format!("the commit of `{}` ran other checks than the ledger names", step.id));
        }
    }
    for claim in claimed.ledger.steps.iter().filter(|claim| ledger.step(&claim.id).is_none()) {
        notes.push(format!("a commit claims `{}`, which the ledger does not have", claim.id));
    }
    notes
}

/// Checks the steps in their order.
fn findings<'l>(
    ledger: &'l Ledger,
    request: &ReconcileRequest,
    bench: &mut Bench<'_>,
    sink: &mut dyn Sink,
) -> Result<Vec<(&'l Step, Finding)>, Failure> {
    let all = request.all;
    let mut known = match request.jobs {
        1 => BTreeMap::new(),
        jobs => run_ahead(ledger, all, jobs, bench)?,
    };
    let mut found: Vec<(&Step, Finding)> = Vec::with_capacity(ledger.steps.len());
    let mut certified: BTreeSet<&str> = BTreeSet::new();
    let mut blocked: BTreeMap<&str, &str> = BTreeMap::new();
    let mut stopped = false;
    let snapshot = bench.snapshot.clone();
    let mut idle = Idle::new(&snapshot);
    for step in &ledger.steps {
        // What a step waits for is either not certified itself or not looked at because of that.
        let waits_for = step.depends_on.iter().find(|need| {
            !certified.contains(need.as_str()) && (!stopped || all || blocked.contains_key(need.as_str()))
        });
        let mut finding = if let Some(need) = waits_for {
            blocked.insert(&step.id, need);
            Finding::without_check(Status::Blocked, Some(format!("`{need}` is not certified")))
        } else if stopped && !all {
            Finding::without_check(Status::NotReached, None)
        } else if let Some(finding) = known.remove(&step.id) {
            finding
        } else {
            bench.check(step, ledger.plan_version.as_deref(), sink)?
        };
        idle.judge(step, &mut finding, &mut bench.boundaries)?;
        match finding.status {
            Status::Certified => drop(certified.insert(&step.id)),
            Status::Uncertified | Status::Flaky | Status::Undecided => {
                blocked.insert(&step.id, &step.id);
                stopped = true;
            }
            Status::Blocked | Status::NotReached => {}
        }
        found.push((step, finding));
    }
    Ok(found)
}

fn leftovers(
    ledger: &Ledger,
    findings: &[(&Step, Finding)],
    bench: &mut Bench<'_>,
) -> Result<Option<Leftovers>, Failure> {
    let Some((first, _)) = findings.iter().find(|(_, finding)| finding.status != Status::Certified) else {
        return Ok(None);
    };
    let certified: Vec<&Step> = findings
        .iter()
        .filter(|(_, finding)| finding.status == Status::Certified)
        .map(|(step, _)| *step)
        .collect();
    let now = bench.snapshot.clone();
    left_behind(first, &certified, ledger, &now, &mut bench.boundaries)
}

/// 0 all certified, 1 some step is not, 125 where that cannot be told.
fn status(findings: &[(&Step, Finding)]) -> u8 {
    let any = |status: Status| findings.iter().any(|(_, finding)| finding.status == status);
    if any(Status::Uncertified) || any(Status::Flaky) {
        1
    } else if findings.iter().all(|(_, finding)| finding.status == Status::Certified) {
        0
    } else {
        UNDECIDED
    }
}

/// The step whose failure counts as an attempt: the first that does not hold, if there is work on it. A step that nobody
/// has begun has not failed.
fn attempt<'a>(
    findings: &[(&'a Step, Finding)],
    leftovers: Option<&Leftovers>,
    hypothesis: Option<&'a str>,
) -> Option<Attempt<'a>> {
    let is_open = |status: Status| !matches!(status, Status::Certified | Status::Blocked);
    let (step, finding) = findings.iter().find(|(_, finding)| is_open(finding.status))?;
    let begun = leftovers.is_some_and(|left| !left.own.is_empty()) || hypothesis.is_some();
    (finding.status == Status::Uncertified && begun).then_some(Attempt { step: &step.id, hypothesis })
}

/// What is written back.
fn updates(
    held: &Held,
    findings: &[(&Step, Finding)],
    is_boundary: bool,
    tree: &str,
    attempt: Option<Attempt<'_>>,
) -> Vec<Update> {
    let ledger = &held.document.ledger;
    let about = About {
        shape: ledger.shape,
        plan_version: ledger.plan_version.as_deref(),
        tree,
        counts: false,
        renew: false,
    };
    let mut updates = Vec::new();
    for (step, finding) in findings {
        let ran: Vec<_> = finding.checks.iter().map(super::steps::Checked::ran).collect();
        match (finding.status, ran.last()) {
            (Status::Certified, _) => updates.push(Update::passed(step, &about, &ran, is_boundary)),
            (Status::Uncertified, Some(last)) => {
                let attempt = attempt.filter(|attempt| attempt.step == step.id);
                let about = About { counts: attempt.is_some(), ..about };
                let hypothesis = attempt.and_then(|attempt| attempt.hypothesis);
                updates.push(Update::failed(step, &about, last, hypothesis));
            }
            (Status::Uncertified | Status::Blocked | Status::Flaky | Status::Undecided, _) => {
                updates.extend(Update::withdrawn(step, ledger.shape, finding.status.name()));
            }
            (Status::NotReached, _) => {}
        }
    }
    updates
}

/// Whether a file is a ledger in order.
pub(super) fn check_ledger(file: &Path, session: &mut Session) -> Result<u8, Failure> {
    let document = ledger::read(&from(&session.start, file.to_owned()))?;
    let ledger = &document.ledger;
    if session.reporter.is_json() {
        session.reporter.object(&serde_json::json!({
            "schema": "checkrun.ledger/1", "ledger": file.display().to_string(), "format": ledger.shape.name(),
            "task": ledger.task, "plan_version": ledger.plan_version,
            "steps": ledger.steps.iter().map(|step| &step.id).collect::<Vec<_>>(), "proposed": ledger.proposed,
        }));
    } else {
        let text = format!(
            "{}: in order, {} with {} steps\n",
            file.display(),
            ledger.shape.name(),
            ledger.steps.len()
        );
        session.reporter.data(text.as_bytes());
    }
    Ok(0)
}
