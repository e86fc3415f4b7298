//! Certifying a step: its commands on the working tree as it stands, then what came of them into the ledger and, if
//! asked for, a commit of exactly the tree that was checked. How steps are checked is `steps`'s, how files of ledgers
//! are written `ledger`'s.
//!
//! The order is: check, ledger, objects, commit, branch, index. Whoever is killed in between does the same again and is
//! answered from the record; each part that is done already is left as it is.
#![forbid(unsafe_code)]

use crate::cli::CertifyRequest;
use crate::commands::git::{Author, Git};
use crate::commands::reconcile::own_files;
use crate::commands::session::from;
use crate::commands::steps::{
    Attempt, Bench, CheckRow, Checked, Finding, Idle, Past, Status, alike, check_rows, not_converging,
    shown_failure,
};
use crate::commands::{Failure, Session, UNDECIDED};
use crate::ledger::{About, Held, Ran, Step, Update};
use crate::trailers::{self, Claim, ClaimedCheck};
use crate::tree::{self, EntryKind, Snapshot, State};
use serde::Serialize;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// What the object is called and its version.
const SCHEMA: &str = "checkrun.certify/1";

/// What came of it, as it is told.
#[derive(Debug, Serialize)]
struct Certified<'a> {
    schema: &'static str,
    ledger: String,
    step: &'a str,
    title: &'a str,
    finding: &'static str,
    reason: Option<&'a str>,
    /// The last failures, where they are too much alike.
    not_converging: Option<Vec<Past>>,
    /// The tree that was checked, without the ledger.
    tree: String,
    checks: Vec<CheckRow<'a>>,
    commit: Option<String>,
    /// The tree of the commit: the one that was checked, and the ledger where that is part of the repository.
    commit_tree: Option<String>,
    notes: Vec<String>,
}

/// Certifies one step.
pub(super) fn certify(request: CertifyRequest, session: &mut Session) -> Result<u8, Failure> {
    let path = from(&session.start, request.ledger.clone());
    let state = tree::state(&session.start)?;
    refuse_half_done(&state, "a step is certified")?;
    if request.commit && state.branch.is_none() {
        return Err(Failure::new(
            "HEAD is detached, so a commit would be on no branch and get lost",
            Some("`git switch -c NAME` makes a branch here; without `--commit` only the ledger is written"),
        ));
    }
    let cut = own_files(&path, &session.start);
    let mut held = Held::open(&path)?;
    let step = held.document.step(&request.step)?.clone();
    let plan_version = held.document.ledger.plan_version.clone();
    let run = request.run.clone().or_else(|| held.document.ledger.run.clone());
    let mut notes = waits_for(&step, &held);
    let mut bench = Bench::new(&request.steps, &cut, &session.start, &session.around)?;
    let mut finding = bench.check(&step, plan_version.as_deref(), &mut session.reporter)?;
    let snapshot = bench.snapshot.clone();
    Idle::new(&snapshot).judge(&step, &mut finding, &mut bench.boundaries)?;
    let ledger_is_part = bench.cut_away.first().filter(|path| cut.first() == Some(path)).cloned();
    drop(bench);
    notes.extend(finding.notes.iter().filter(|note| !note.contains("evidence is void")).cloned());

    let tree = snapshot.identity().tree.hex();
    let hypothesis = request.hypothesis.as_deref();
    let update = update(&held, &step, &finding, &tree, hypothesis);
    let text = held.document.with(update.as_slice());
    if !finding.is_idle {
        held.replace(&text)?;
    }
    let committed = if request.commit && finding.status == Status::Certified {
        let whole = match &ledger_is_part {
            Some(place) => snapshot.plus(place, kind_of(&path), text.as_bytes())?,
            None => snapshot,
        };
        let claim = claim(&step, run, plan_version, &finding.checks);
        Some((commit(&claim, &whole, &state)?, whole.identity().tree.hex()))
    } else {
        None
    };
    let (commit, commit_tree) = committed.unzip();
    tell(
        &Certified {
            schema: SCHEMA,
            ledger: request.ledger.display().to_string(),
            step: &step.id,
            title: &step.title,
            finding: finding.status.name(),
            reason: finding.reason.as_deref(),
            not_converging: not_converging(
                &step,
                &finding,
                Some(Attempt { step: &step.id, hypothesis }),
                &tree,
            ),
            tree,
            checks: check_rows(&finding),
            commit,
            commit_tree,
            notes,
        },
        &finding,
        session,
    );
    Ok(match finding.status {
        Status::Certified => 0,
        Status::Uncertified | Status::Flaky => 1,
        Status::Blocked | Status::Undecided | Status::NotReached => UNDECIDED,
    })
}

/// Refuses to write while git is in the middle of something: the tree is then neither one state nor the other.
pub(super) fn refuse_half_done(state: &State, what: &str) -> Result<(), Failure> {
    match state.in_progress {
        None => Ok(()),
        Some(doing) => Err(Failure::new(
            format!("the repository is in the middle of {doing}; no state of it is one that {what} for"),
            Some("finish it or give it up first (`git status` names the command), then do the same again"),
        )),
    }
}

/// Steps that must hold before this one and do not even claim to.
fn waits_for(step: &Step, held: &Held) -> Vec<String> {
    let ledger = &held.document.ledger;
    let open = |id: &&String| ledger.step(id).is_some_and(|other| !other.claims_done());
    let note = |id: &String| format!("`{id}`, which it depends on, is not recorded as done");
    step.depends_on.iter().filter(open).map(note).collect()
}

fn update(
    held: &Held,
    step: &Step,
    finding: &Finding,
    tree: &str,
    hypothesis: Option<&str>,
) -> Option<Update> {
    let ledger = &held.document.ledger;
    let about = About {
        shape: ledger.shape,
        plan_version: ledger.plan_version.as_deref(),
        tree,
        counts: true,
        renew: true,
    };
    let ran: Vec<Ran> = finding.checks.iter().map(Checked::ran).collect();
    match (finding.status, ran.last()) {
        (Status::Certified, _) => Some(Update::passed(step, &about, &ran, true)),
        (Status::Uncertified, Some(last)) => Some(Update::failed(step, &about, last, hypothesis)),
        (status, _) => Update::withdrawn(step, ledger.shape, status.name()),
    }
}

fn claim(step: &Step, run: Option<String>, plan_version: Option<String>, checks: &[Checked]) -> Claim {
    let checks = checks.iter().map(|checked| {
        let ran = checked.ran();
        ClaimedCheck { cmd: ran.cmd, exit: Some(ran.exit), secs: Some(ran.secs) }
    });
    Claim { step: step.id.clone(), title: step.title.clone(), run, plan_version, checks: checks.collect() }
}

/// Whether the ledger's file may be executed; a commit says so.
fn kind_of(ledger: &Path) -> EntryKind {
    let executable = std::fs::metadata(ledger).is_ok_and(|meta| meta.permissions().mode() & 0o100 != 0);
    if executable { EntryKind::Executable } else { EntryKind::File }
}

/// Makes the commit and moves the branch and the index there; the commit's id. Where HEAD is that commit already, only
/// the index is brought in line.
fn commit(claim: &Claim, whole: &Snapshot, state: &State) -> Result<String, Failure> {
    let git = Git::at(&state.root);
    let tree = whole.identity().tree.hex();
    let head = match &state.head {
        Some(head) => tree::history(&state.root, &head.hex(), 1)?.commits.into_iter().next(),
        None => None,
    };
    let is_there = head.as_ref().filter(|head| {
        let claims = trailers::read(&head.message).claims;
        head.tree.hex() == tree && claims.iter().any(|made| made.step == claim.step)
    });
    let id = match is_there {
        Some(head) => head.id.hex(),
        None => {
            whole.store()?;
            let parent = state.head.as_ref().map(|head| head.hex());
            let id = git.commit(&tree, parent.as_deref(), &trailers::write(claim), Author::User)?;
            let why = format!("checkrun certify: {}", claim.step);
            git.point("HEAD", &id, parent.as_deref(), &why)?;
            id
        }
    };
    git.index_of(&tree).map_err(|failure| Failure {
        text: format!("commit {id} is made, and the index is not brought in line with it: {}", failure.text),
        ..failure
    })?;
    Ok(id)
}

fn tell(certified: &Certified<'_>, finding: &Finding, session: &mut Session) {
    if session.reporter.is_json() {
        session.reporter.object(certified);
        return;
    }
    let mut text = format!("{}: {}", certified.step, certified.finding);
    if let Some(commit) = &certified.commit {
        text.push_str(&format!(", committed as {}", commit.get(..12).unwrap_or(commit)));
    }
    text.push_str(&format!(", tree {}\n", certified.tree.get(..12).unwrap_or(&certified.tree)));
    if finding.status != Status::Certified {
        text.push_str(&shown_failure(finding));
    }
    if let Some(past) = &certified.not_converging {
        alike(past, &mut text);
    }
    for note in &certified.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    session.reporter.data(text.as_bytes());
}
