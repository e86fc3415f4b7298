//! Going back from a step: its partial work is kept first, then the paths of its touches become what they were in the
//! state that it goes back to. Where it cannot be sure what that is, or what belongs to whom, it refuses and changes
//! nothing. How work is kept is `partials`', how files are moved `steps::restore`'s.
#![forbid(unsafe_code)]

use crate::cli::RollbackRequest;
use crate::commands::certify::refuse_half_done;
use crate::commands::partials::{Work, keep, kept_last};
use crate::commands::reconcile::own_files;
use crate::commands::session::from;
use crate::commands::steps::{Bench, PathRow, Status, moves, obstacles, path_rows, put, remove_emptied};
use crate::commands::{Failure, Session};
use crate::ledger::{self, Held, Ledger, Pattern, Step, Update, any_covers};
use crate::model::event::Sink;
use crate::tree::{self, Changed, Snapshot, show};
use serde::Serialize;
use std::collections::BTreeSet;

/// What the object is called and its version.
const SCHEMA: &str = "checkrun.rollback/1";
/// Paths that a refusal names.
const NAMED: usize = 10;

/// What was done, as it is told.
#[derive(Debug, Serialize)]
struct Told<'a> {
    schema: &'static str,
    ledger: String,
    step: &'a str,
    dry_run: bool,
    /// The step whose state it is; nothing for HEAD's.
    to_step: Option<&'a str>,
    to_tree: String,
    /// The reference under which the work is kept; nothing where there was none, or with `--dry-run`.
    partial: Option<&'a str>,
    put_back: Vec<PathRow>,
    strangers: Vec<Stranger>,
    notes: Vec<String>,
}

/// A path that differs and is not the step's own.
#[derive(Debug, Serialize)]
struct Stranger {
    #[serde(flatten)]
    row: PathRow,
    /// Whether the step's commands were seen to look at it; nothing where that is not on record.
    needed: Option<bool>,
}

/// The state that is gone back to.
struct Goal {
    step: Option<String>,
    tree: Snapshot,
}

/// Rolls one step back.
pub(super) fn rollback(request: RollbackRequest, session: &mut Session) -> Result<u8, Failure> {
    let path = from(&session.start, request.ledger.clone());
    let state = tree::state(&session.start)?;
    refuse_half_done(&state, "a step is gone back from")?;
    let cut = own_files(&path, &session.start);
    let mut held = if request.dry_run { None } else { Some(Held::open(&path)?) };
    let document = match &held {
        Some(held) => held.document.clone(),
        None => ledger::read(&path)?,
    };
    let step = document.step(&request.step)?.clone();
    let touches = step.touches.clone().filter(|touches| !touches.is_empty()).ok_or_else(|| {
        Failure::new(
            format!("`{}` names no touches, so which files are its own cannot be told", step.id),
            Some("give it `touches` in the ledger; `checkrun reconcile` lists what has changed"),
        )
    })?;
    let mut bench = Bench::new(&request.steps, &cut, &session.start, &session.around)?;
    let now = bench.snapshot.clone();
    let looked_at = bench.looked_at(&step)?;
    let goal = goal(&step, &document.ledger, &mut bench, &mut session.reporter)?;
    drop(bench);
    let (files, wanted) = (now.leaves()?, goal.tree.leaves()?);
    let (own, strangers): (Vec<Changed>, Vec<Changed>) =
        tree::changes(&wanted, &files).into_iter().partition(|changed| any_covers(&touches, &changed.path));
    refuse_others_work(&step, goal.step.as_deref(), &document.ledger, &own)?;
    let moves = moves(&own, &wanted);
    let in_the_way = obstacles(&state.root, &moves, &files);
    if !in_the_way.is_empty() {
        return Err(Failure::new(
            format!("cannot go back without losing something: {}", listed(&in_the_way)),
            Some("move these away first; nothing was changed"),
        ));
    }
    let mut kept = None;
    if let Some(held) = held.as_mut() {
        let last = kept_last(&step, &document.ledger, &goal.tree, &state)?;
        // Whoever went back and was killed before the end has kept the work already, all of it.
        let last = last.filter(|last| last.has(&own, &files));
        kept = match &last {
            Some(last) => Some(last.name.clone()),
            None if own.is_empty() => None,
            None => {
                let work = Work { step: &step, ledger: &document.ledger, before: &goal.tree, now: &now };
                Some(keep(&work, goal.step.as_deref(), &touches, &state)?)
            }
        };
        if let Some(name) = &kept {
            unchanged(&now, &cut, session)?;
            put(&state.root, &state.git_dir, &moves, &goal.tree)?;
            for path in last.iter().flat_map(|last| last.beyond(&wanted)) {
                remove_emptied(&state.root, path);
            }
            held.replace(&document.with(&[Update::rolled_back(&step, document.ledger.shape, name)]))?;
        }
    }
    let notes = notes(&step, &own, &strangers, looked_at.as_ref());
    let told = Told {
        schema: SCHEMA,
        ledger: request.ledger.display().to_string(),
        step: &step.id,
        dry_run: request.dry_run,
        to_step: goal.step.as_deref(),
        to_tree: goal.tree.identity().tree.hex(),
        partial: kept.as_deref(),
        put_back: path_rows(&own),
        strangers: strangers
            .iter()
            .zip(path_rows(&strangers))
            .map(|(changed, row)| Stranger {
                row,
                needed: looked_at.as_ref().map(|paths| paths.contains(&changed.path)),
            })
            .collect(),
        notes,
    };
    if session.reporter.is_json() {
        session.reporter.object(&told);
    } else {
        session.reporter.data(told.text().as_bytes());
    }
    Ok(0)
}

/// The state that a step goes back to: that of `rollback_to`, else of the one step that it depends on, else HEAD's. What
/// evidence or a commit says of it is held against the step's own commands on that very tree.
fn goal(step: &Step, ledger: &Ledger, bench: &mut Bench<'_>, sink: &mut dyn Sink) -> Result<Goal, Failure> {
    let before = match (&step.rollback_to, step.depends_on.as_slice()) {
        (Some(id), _) => ledger.step(id),
        (None, [one]) => ledger.step(one),
        (None, []) => None,
        (None, several) => {
            return Err(Failure::new(
                format!(
                    "`{}` depends on {} steps and has no `rollback_to`, so where it goes back to cannot be told",
                    step.id,
                    several.len()
                ),
                Some("name one of them as its `rollback_to` in the ledger"),
            ));
        }
    };
    let Some(before) = before else {
        if bench.boundaries.history()?.ledger.step(&step.id).is_some() {
            return Err(Failure::new(
                format!(
                    "a commit claims `{}`, and no state before it is known: it has no `rollback_to`",
                    step.id
                ),
                Some("`git log` shows the commit; name the step before it as `rollback_to`"),
            ));
        }
        let head = bench.boundaries.head()?;
        let tree = head.ok_or_else(|| {
            Failure::new(format!("there is no commit and no step to go back to from `{}`", step.id), None)
        })?;
        return Ok(Goal { step: None, tree });
    };
    let boundary = bench.boundaries.of(before, ledger)?.ok_or_else(|| {
        Failure::new(
            format!(
                "the state in which `{}` was certified is not known: no commit claims it, and its evidence names no \
                 tree that this repository has",
                before.id
            ),
            Some("`checkrun certify STEP --ledger FILE --commit` makes such a state; nothing was changed"),
        )
    })?;
    bench.snapshot = boundary.tree.clone();
    let finding = bench.check(before, ledger.plan_version.as_deref(), sink)?;
    if finding.status != Status::Certified {
        return Err(Failure::new(
            format!(
                "`{}` does not hold on tree {}, where it is said to have been certified: it is {} there",
                before.id,
                boundary.tree.identity().tree.short(),
                finding.status.name()
            ),
            Some("nothing was changed; `checkrun reconcile LEDGER --tree TREE` shows why"),
        ));
    }
    Ok(Goal { step: Some(boundary.step), tree: boundary.tree })
}

/// Refuses where the paths may hold the work of a step that is done and that the goal does not have.
fn refuse_others_work(
    step: &Step,
    goal: Option<&str>,
    ledger: &Ledger,
    own: &[Changed],
) -> Result<(), Failure> {
    let mut had: BTreeSet<&str> = BTreeSet::new();
    let mut open: Vec<&str> = goal.into_iter().collect();
    while let Some(id) = open.pop() {
        if had.insert(id) {
            open.extend(ledger.step(id).into_iter().flat_map(|step| &step.depends_on).map(String::as_str));
        }
    }
    let others = ledger
        .steps
        .iter()
        .filter(|other| other.id != step.id && other.claims_done() && !had.contains(&*other.id));
    for other in others {
        let touches: &[Pattern] = other.touches.as_deref().unwrap_or_default();
        let shared: Vec<String> = own
            .iter()
            .filter(|changed| any_covers(touches, &changed.path))
            .map(|changed| format!("`{}`", show(&changed.path)))
            .collect();
        if !shared.is_empty() {
            return Err(Failure::new(
                format!(
                    "`{}` is recorded as done, and its touches cover {} as well: going back would take its work too",
                    other.id,
                    listed(&shared)
                ),
                Some(
                    "go back from that step first, or `checkrun reconcile LEDGER --write` if it does not hold",
                ),
            ));
        }
        if other.depends_on.contains(&step.id) {
            return Err(Failure::new(
                format!("`{}` builds on `{}` and is recorded as done", other.id, step.id),
                Some(
                    "go back from that step first, or `checkrun reconcile LEDGER --write` if it does not hold",
                ),
            ));
        }
    }
    Ok(())
}

/// Looks again: what was changed since would be in no tree.
fn unchanged(now: &Snapshot, cut: &[Vec<u8>], session: &Session) -> Result<(), Failure> {
    let scratch = session.around.scratch();
    let again = tree::resolve(&session.start, &tree::Source::WorkingTree, &scratch)?.without(cut)?;
    if again.identity().tree == now.identity().tree {
        return Ok(());
    }
    Err(Failure::new(
        "the working tree is being changed by somebody else; nothing was put back",
        Some("stop whoever writes there and do the same again"),
    ))
}

fn listed(items: &[String]) -> String {
    let more = items.len().saturating_sub(NAMED);
    let shown = items[..items.len() - more].join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

fn notes(
    step: &Step,
    own: &[Changed],
    strangers: &[Changed],
    looked_at: Option<&BTreeSet<Vec<u8>>>,
) -> Vec<String> {
    let mut notes = Vec::new();
    if own.is_empty() {
        notes.push(format!(
            "nothing under the touches of `{}` differs; there is nothing to put back",
            step.id
        ));
    }
    let needed: Vec<String> = strangers
        .iter()
        .filter(|changed| looked_at.is_some_and(|paths| paths.contains(&changed.path)))
        .map(|changed| format!("`{}`", show(&changed.path)))
        .collect();
    if !needed.is_empty() {
        notes.push(format!(
            "the check of `{}` looks at {}, which is not among its touches and is left as it is",
            step.id,
            listed(&needed)
        ));
    } else if !strangers.is_empty() && looked_at.is_none() {
        notes.push(format!(
            "whether the check of `{}` needs what differs outside of its touches is not on record",
            step.id
        ));
    }
    notes
}

impl Told<'_> {
    fn text(&self) -> String {
        let tree = self.to_tree.get(..12).unwrap_or(&self.to_tree);
        let state = match self.to_step {
            Some(step) => format!("the state in which `{step}` was certified, tree {tree}"),
            None => format!("HEAD, tree {tree}"),
        };
        let will = if self.dry_run { "would go back" } else { "back" };
        let mut text = format!("{}: {will} to {state}\n", self.step);
        let mut section = |heading: &str, rows: &[(char, &str, &str)]| {
            if !rows.is_empty() {
                text.push_str(&format!("\n{heading}:\n"));
            }
            for (letter, path, more) in rows {
                text.push_str(&format!("  {letter} {path}{more}\n"));
            }
        };
        let put = if self.dry_run { "changed since then, to be put back" } else { "put back" };
        let own: Vec<_> = self.put_back.iter().map(|row| (row.change, row.path.as_str(), "")).collect();
        section(put, &own);
        let needed = |stranger: &Stranger| {
            if stranger.needed == Some(true) { "  (its check looks at it)" } else { "" }
        };
        let strangers: Vec<_> = self
            .strangers
            .iter()
            .map(|stranger| (stranger.row.change, stranger.row.path.as_str(), needed(stranger)))
            .collect();
        section("changed too, and left as it is", &strangers);
        if let Some(name) = self.partial {
            let short = name.strip_prefix(super::partials::PREFIX).unwrap_or(name);
            text.push_str(&format!(
                "\nthe work is kept as {name}; to have it back:\n  checkrun partials apply {short}\n"
            ));
        }
        for note in &self.notes {
            text.push_str(&format!("\nnote: {note}\n"));
        }
        text
    }
}
