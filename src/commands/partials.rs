//! Partial work that was put away: kept as a commit under a reference of its own, listed, and put back. Nothing of it
//! is on a branch. `git show` of such a commit shows the work, since its parent is the state that was gone back to.
#![forbid(unsafe_code)]

use crate::commands::certify::refuse_half_done;
use crate::commands::git::{Author, Git};
use crate::commands::steps::{PathRow, moves, obstacles, path_rows, put};
use crate::commands::{Failure, Session};
use crate::ledger::{Ledger, Pattern, Step, any_covers};
use crate::model::digest::ObjectId;
use crate::model::units::show_instant;
use crate::tree::{self, Changed, Commit, EntryKind, Snapshot, Source, State, TreeError, show};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// What the references begin with.
pub(super) const PREFIX: &str = "refs/checkrun/partial/";
/// What the objects are called and their version.
const SCHEMA: &str = "checkrun.partials/1";
/// Partial states of one step.
const MAX_KEPT: usize = 10_000;
/// Names that a hint lists.
const NAMES_SHOWN: usize = 10;

/// Work that is to be kept.
pub(super) struct Work<'a> {
    pub(super) step: &'a Step,
    pub(super) ledger: &'a Ledger,
    /// The state that is gone back to.
    pub(super) before: &'a Snapshot,
    /// The state with the work.
    pub(super) now: &'a Snapshot,
}

/// Keeps it; the full name of the reference. The same work is kept once, and earlier work is never written over.
pub(super) fn keep(
    work: &Work<'_>,
    goal: Option<&str>,
    touches: &[Pattern],
    state: &State,
) -> Result<String, Failure> {
    let git = Git::at(&state.root);
    let run = work.ledger.run.as_deref().unwrap_or("run");
    let first = name_for(work.step, work.ledger);
    let there = git.references(PREFIX)?;
    let tree = work.now.identity().tree.hex();
    let mut free = None;
    for number in 1..MAX_KEPT {
        let name = numbered(&first, number);
        let Some((_, id)) = there.iter().find(|(known, _)| *known == name) else {
            free = free.or(Some(name));
            break;
        };
        if commit_of(&state.root, id)?.tree.hex() == tree {
            return Ok(name);
        }
    }
    let name = free.ok_or_else(|| {
        Failure::new(
            format!("{MAX_KEPT} partial states of `{}` are kept already", work.step.id),
            Some("`git update-ref -d NAME` lets go of one"),
        )
    })?;
    work.before.store()?;
    work.now.store()?;
    let head = state.head.as_ref().map(|head| head.hex());
    let goal = goal.unwrap_or("HEAD");
    let before = work.before.identity().tree.hex();
    let text = format!("The state that `{}` goes back to: {goal}\n", work.step.id);
    let before = git.commit(&before, head.as_deref(), &text, Author::Ours)?;
    let id = git.commit(&tree, Some(&before), &message(work, goal, run, touches), Author::Ours)?;
    git.point(&name, &id, None, "checkrun rollback")?;
    Ok(name)
}

/// Work that was kept already.
pub(super) struct Kept {
    /// The full name of the reference.
    pub(super) name: String,
    /// The files of the state with the work.
    files: BTreeMap<Vec<u8>, (EntryKind, ObjectId)>,
    touches: Vec<Pattern>,
}

impl Kept {
    /// Whether all that has been changed now is in it as it is now: then there is nothing more to keep.
    pub(super) fn has(&self, changed: &[Changed], now: &BTreeMap<Vec<u8>, (EntryKind, ObjectId)>) -> bool {
        changed.iter().all(|changed| now.get(&changed.path) == self.files.get(&changed.path))
    }

    /// Paths of the step's own that the work had and a state does not.
    pub(super) fn beyond(&self, before: &BTreeMap<Vec<u8>, (EntryKind, ObjectId)>) -> Vec<&[u8]> {
        let is_new = |path: &&Vec<u8>| !before.contains_key(*path) && any_covers(&self.touches, path);
        self.files.keys().filter(is_new).map(Vec::as_slice).collect()
    }
}

/// What was kept last of a step when it went back to that very state, if anything.
pub(super) fn kept_last(
    step: &Step,
    ledger: &Ledger,
    goal: &Snapshot,
    state: &State,
) -> Result<Option<Kept>, Failure> {
    let there = Git::at(&state.root).references(PREFIX)?;
    let first = name_for(step, ledger);
    let known = |number: usize| there.iter().find(|(known, _)| *known == numbered(&first, number));
    let Some((name, id)) = (1..MAX_KEPT).map_while(known).last() else { return Ok(None) };
    let partial = partial(name, &commit_of(&state.root, id)?);
    let Some(parent) = &partial.parent else { return Ok(None) };
    if commit_of(&state.root, parent)?.tree != goal.identity().tree {
        return Ok(None);
    }
    let files = tree::resolve(&state.root, &Source::Revision(partial.commit), Path::new(""))?.leaves()?;
    Ok(Some(Kept { name: name.clone(), files, touches: partial.touches }))
}

/// The name for a step's first partial state.
fn name_for(step: &Step, ledger: &Ledger) -> String {
    format!("{PREFIX}{}/{}", word(ledger.run.as_deref().unwrap_or("run")), word(&step.id))
}

fn numbered(first: &str, number: usize) -> String {
    if number == 1 { first.to_owned() } else { format!("{first}.{number}") }
}

/// A part of a reference's name: git-check-ref-format(1) forbids more than this leaves.
fn word(text: &str) -> String {
    let plain: String = text
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || "-_".contains(letter) { letter } else { '-' })
        .take(100)
        .collect();
    if plain.is_empty() { "-".to_owned() } else { plain }
}

fn message(work: &Work<'_>, goal: &str, run: &str, touches: &[Pattern]) -> String {
    let line = |text: &str| -> String {
        text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
    };
    let touches: Vec<&str> = touches.iter().map(Pattern::text).collect();
    format!(
        "{step}, partial: {title}\n\nWork that was put away by `checkrun rollback`, for `checkrun partials apply`.\n\n\
         Checkrun-Partial: {step}\nCheckrun-Run: {run}\nCheckrun-Boundary: {goal}\nCheckrun-Touches: {touches}\n",
        step = work.step.id,
        title = line(&work.step.title),
        run = line(run),
        touches = serde_json::Value::from(touches),
    )
}

/// One partial state.
#[derive(Debug, Serialize)]
struct Partial {
    /// What `apply` takes.
    name: String,
    #[serde(rename = "ref")]
    reference: String,
    commit: String,
    tree: String,
    step: String,
    run: String,
    /// The step whose state was gone back to, or HEAD.
    boundary: String,
    at: String,
    message: String,
    #[serde(skip)]
    touches: Vec<Pattern>,
    #[serde(skip)]
    parent: Option<String>,
}

fn partial(reference: &str, commit: &Commit) -> Partial {
    let value = |key: &str| {
        let line = commit.message.lines().rev().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        line.unwrap_or_default().to_owned()
    };
    let touches: Vec<String> = serde_json::from_str(&value("Checkrun-Touches")).unwrap_or_default();
    Partial {
        name: reference.strip_prefix(PREFIX).unwrap_or(reference).to_owned(),
        reference: reference.to_owned(),
        commit: commit.id.hex(),
        tree: commit.tree.hex(),
        step: value("Checkrun-Partial"),
        run: value("Checkrun-Run"),
        boundary: value("Checkrun-Boundary"),
        at: show_instant(commit.time),
        message: commit.message.lines().next().unwrap_or_default().to_owned(),
        touches: touches.iter().filter_map(|text| Pattern::parse(text).ok()).collect(),
        parent: commit.parents.first().map(|parent| parent.hex()),
    }
}

fn commit_of(root: &Path, id: &str) -> Result<Commit, Failure> {
    let found = tree::history(root, id, 1)?.commits.into_iter().next();
    found.ok_or_else(|| Failure::new(format!("commit {id} cannot be read"), None))
}

/// Lists what was put away.
pub(super) fn list(session: &mut Session) -> Result<u8, Failure> {
    let state = tree::state(&session.start)?;
    let mut partials = Vec::new();
    for (name, id) in Git::at(&state.root).references(PREFIX)? {
        partials.push(partial(&name, &commit_of(&state.root, &id)?));
    }
    if session.reporter.is_json() {
        session.reporter.object(&serde_json::json!({"schema": SCHEMA, "partials": partials}));
        return Ok(0);
    }
    let width = partials.iter().map(|partial| partial.name.chars().count()).max().unwrap_or(0);
    let text: String =
        partials.iter().map(|one| format!("{}  {:width$}  {}\n", one.at, one.name, one.message)).collect();
    session.reporter.data(text.as_bytes());
    Ok(0)
}

/// The reference, and the commit that it names, of a name in the list; of a step alone where that leaves but one.
fn meant<'k>(name: &str, known: &'k [(String, String)]) -> Result<(&'k str, &'k str), Failure> {
    let full = format!("{PREFIX}{name}");
    if let Some((reference, id)) = known.iter().find(|(reference, _)| *reference == full) {
        return Ok((reference, id));
    }
    let (run, step) = name.rsplit_once('/').map_or((None, name), |(run, step)| (Some(run), step));
    let plain = word(step);
    let is_of_step = |(reference, _): &&(String, String)| {
        let last = reference.rsplit('/').next().unwrap_or(reference);
        // Of a step's own name no dot is left, so what follows one is the number.
        last == step || last.split('.').next() == Some(&plain)
    };
    let alike: Vec<&(String, String)> = known.iter().filter(is_of_step).collect();
    if let (None, [(reference, id)]) = (run, &alike[..]) {
        return Ok((reference, id));
    }
    let names: Vec<&str> = alike.iter().filter_map(|(reference, _)| reference.strip_prefix(PREFIX)).collect();
    let shown = names.iter().take(NAMES_SHOWN).copied().collect::<Vec<_>>().join(", ");
    let more = if names.len() > NAMES_SHOWN { ", and more in `checkrun partials`" } else { "" };
    let (text, hint) = match (run, names.len()) {
        (None, 2..) => (
            format!("`{}` may be any of {} partial states", name.escape_debug(), names.len()),
            format!("name one of these: {shown}{more}"),
        ),
        (_, 1..) => (
            format!("nothing was put away as `{}`", name.escape_debug()),
            format!("of that step there is: {shown}{more}"),
        ),
        (_, 0) => (
            format!("nothing was put away as `{}`", name.escape_debug()),
            "`checkrun partials` lists what there is".to_owned(),
        ),
    };
    Err(Failure::new(text, Some(&hint)))
}

/// What was put back, as it is told.
#[derive(Debug, Serialize)]
struct Applied<'a> {
    schema: &'static str,
    name: &'a str,
    step: &'a str,
    commit: &'a str,
    put_back: Vec<PathRow>,
}

/// Puts one back into the working tree, where nothing else has changed the same paths since.
pub(super) fn apply(name: &str, session: &mut Session) -> Result<u8, Failure> {
    let state = tree::state(&session.start)?;
    refuse_half_done(&state, "partial work is put back")?;
    let known = Git::at(&state.root).references(PREFIX)?;
    let (reference, id) = meant(name.strip_prefix(PREFIX).unwrap_or(name), &known)?;
    let name = reference.strip_prefix(PREFIX).unwrap_or(reference);
    let partial = partial(reference, &commit_of(&state.root, id)?);
    let resolve = |id: &str| -> Result<Snapshot, TreeError> {
        tree::resolve(&session.start, &Source::Revision(id.to_owned()), Path::new(""))
    };
    let goal = resolve(&partial.commit)?;
    let before = match &partial.parent {
        Some(parent) => resolve(parent)?.leaves()?,
        None => Default::default(),
    };
    let wanted = goal.leaves()?;
    let now = tree::resolve(&session.start, &Source::WorkingTree, &session.around.scratch())?.leaves()?;
    let mut changed = tree::changes(&before, &wanted);
    changed.retain(|changed| any_covers(&partial.touches, &changed.path));
    changed.retain(|changed| now.get(&changed.path) != wanted.get(&changed.path));
    let conflicts: Vec<String> = changed
        .iter()
        .filter(|changed| now.get(&changed.path) != before.get(&changed.path))
        .map(|changed| format!("`{}` has changed since", show(&changed.path)))
        .collect();
    let moves = moves(&changed, &wanted);
    let in_the_way = [conflicts, obstacles(&state.root, &moves, &now)].concat();
    if !in_the_way.is_empty() {
        let shown = in_the_way.iter().take(10).cloned().collect::<Vec<_>>().join(", ");
        return Err(Failure::new(
            format!("cannot put `{name}` back without losing something: {shown}"),
            Some("nothing was changed; `git show` of its commit shows the work, to be taken over by hand"),
        ));
    }
    put(&state.root, &state.git_dir, &moves, &goal)?;
    let told = Applied {
        schema: SCHEMA,
        name,
        step: &partial.step,
        commit: &partial.commit,
        put_back: path_rows(&changed),
    };
    if session.reporter.is_json() {
        session.reporter.object(&told);
    } else {
        let mut text = format!("{}: put back what was kept as {name}\n", partial.step);
        for row in &told.put_back {
            text.push_str(&format!("  {} {}\n", row.change, row.path));
        }
        session.reporter.data(text.as_bytes());
    }
    Ok(0)
}
