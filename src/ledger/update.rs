//! What is written back into a ledger after its steps were checked: the status that was found, what was run and seen,
//! and how often a step was tried. Finding it out is not done here, and the file is `file`'s.
#![forbid(unsafe_code)]

use crate::ledger::edit::{self, Change};
use crate::ledger::{Document, PastFailure, Shape, Step, names_tree, signature};
use serde_json::{Value, json};

/// Failures of one step that are kept, the newest.
const KEPT_FAILURES: usize = 5;
/// The most that is kept of a failing command's output, in bytes.
const TAIL_BYTES: usize = 2048;
/// Digits of a tree's id that are written. Of ten million objects, two share them once in thirty million times; a name
/// that fits two counts as no evidence, and what holds on a tree is never taken from a ledger.
const TREE_DIGITS: usize = 12;

/// One command of a step and what came of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Ran {
    /// The command, as the ledger has it.
    pub cmd: String,
    /// Its exit status, 128 and the signal where it died of one.
    pub exit: i64,
    /// How long it ran, in seconds.
    pub secs: f64,
    /// When, RFC 3339.
    pub at: String,
    /// The runner's line about it.
    pub summary: Option<String>,
    /// The end of its output.
    pub tail: String,
}

/// New values for the fields of one step.
#[derive(Clone, PartialEq, Debug)]
pub struct Update {
    place: usize,
    fields: Vec<(&'static str, Value)>,
}

impl Update {
    /// The step holds. Evidence that it has already, made for the same definition, stays: its tree is the state to go
    /// back to. `is_boundary` is false where the tree was changed beyond the step when this was seen.
    #[must_use]
    pub fn passed(step: &Step, of: &About<'_>, ran: &[Ran], is_boundary: bool) -> Self {
        let mut fields = vec![("status", json!(of.shape.done_word()))];
        let stands = step.evidence.is_some() && step.void_evidence(of.plan_version).is_none();
        if !stands || of.renew {
            fields.push(("evidence", evidence(step, of, ran, is_boundary)));
        }
        let before = step.evidence.as_ref().and_then(|evidence| evidence.tree.as_deref());
        let is_new = !before.is_some_and(|before| names_tree(before, of.tree));
        if of.counts && (is_new || !stands) {
            fields.push(("attempts", json!(step.attempts.saturating_add(1))));
        }
        Self { place: step.place, fields }
    }

    /// The step does not hold: this command of it failed. An attempt is counted once for each tree that it failed on.
    #[must_use]
    pub fn failed(step: &Step, of: &About<'_>, ran: &Ran, hypothesis: Option<&str>) -> Self {
        let mut fields = vec![("status", json!(not_done(step, of.shape)))];
        let is_known = is_known(step, of.tree, ran);
        if of.counts && !is_known {
            fields.push(("attempts", json!(step.attempts.saturating_add(1))));
        }
        if of.counts {
            let earlier =
                step.last_failure.as_ref().filter(|_| is_known).and_then(|last| last.hypothesis.clone());
            let hypothesis = hypothesis.map(str::to_owned).or(earlier);
            let mut last = json!({
                "at": ran.at, "cmd": ran.cmd, "exit": ran.exit, "tail": end_of(&ran.tail),
                "tree": short(of.tree),
            });
            if let Some(text) = &hypothesis {
                last["hypothesis"] = json!(text);
            }
            fields.push(("last_failure", last));
            let from = |all: &[PastFailure]| all.len().saturating_sub(KEPT_FAILURES);
            let all = failures_with(step, of.tree, ran, hypothesis);
            fields.push(("failures", all[from(&all)..].iter().map(shown).collect()));
        }
        Self { place: step.place, fields }
    }

    /// Whether the step holds is not known, or another one must hold first; a claim that it does is taken back.
    #[must_use]
    pub fn withdrawn(step: &Step, shape: Shape, word: &str) -> Option<Self> {
        if !step.claims_done() && shape == Shape::Progress {
            return None;
        }
        let word = if shape == Shape::Progress { "in_progress" } else { word };
        Some(Self { place: step.place, fields: vec![("status", json!(word))] })
    }

    /// The step was gone back from, and its partial work is kept under that reference.
    #[must_use]
    pub fn rolled_back(step: &Step, shape: Shape, reference: &str) -> Self {
        let fields = vec![("status", json!(not_done(step, shape))), ("partial", json!(reference))];
        Self { place: step.place, fields }
    }
}

/// What an update is about, beside the step.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The ledger's shape.
    pub shape: Shape,
    /// The plan's version.
    pub plan_version: Option<&'a str>,
    /// The tree that was checked, its full id.
    pub tree: &'a str,
    /// Whether this was an attempt at the step, rather than a look at what is there.
    pub counts: bool,
    /// Whether new evidence takes the place of what is there.
    pub renew: bool,
}

/// How a file of that shape says that a step does not hold.
fn not_done(step: &Step, shape: Shape) -> String {
    match (shape, step.status.as_deref()) {
        // A progress file's own words; `blocked` is for people to lift.
        (Shape::Progress, Some(word @ ("todo" | "blocked"))) => word.to_owned(),
        (Shape::Progress, _) => "in_progress".to_owned(),
        (Shape::Task | Shape::Backlog | Shape::History, _) => "uncertified".to_owned(),
    }
}

/// Evidence as it is written: when, each command and how it ended, on which tree, and for which definition of the step
/// under which version of the plan. What the commands printed is on record under that tree and not written here: a
/// ledger is read whole at each start, and most of it is steps that hold.
fn evidence(step: &Step, of: &About<'_>, ran: &[Ran], is_boundary: bool) -> Value {
    let at = ran.iter().map(|ran| ran.at.as_str()).max().unwrap_or_default();
    let version = of.plan_version.map_or_else(String::new, |version| format!("/{version}"));
    let made_for = format!("{}{version}", step.definition());
    let commands: Vec<Value> = ran.iter().map(command).collect();
    let mut evidence =
        json!({"at": at, "commands": commands, "tree": short(of.tree), "definition": made_for});
    if !is_boundary {
        evidence["boundary"] = json!(false);
    }
    evidence
}

/// One command of evidence, its time in hundredths of a second.
fn command(ran: &Ran) -> Value {
    let mut command = json!({"cmd": ran.cmd, "exit": ran.exit, "secs": (ran.secs * 100.0).round() / 100.0});
    if let Some(summary) = &ran.summary {
        command["summary"] = json!(summary);
    }
    command
}

/// The name of a tree as it is written.
fn short(tree: &str) -> &str {
    tree.get(..TREE_DIGITS).unwrap_or(tree)
}

/// The failures of a step with this one: the newest of them in its place if it was of the same command on the same tree.
#[must_use]
pub fn failures_with(step: &Step, tree: &str, ran: &Ran, hypothesis: Option<String>) -> Vec<PastFailure> {
    let mut all = step.failures.clone();
    let before = if is_known(step, tree, ran) { all.pop() } else { None };
    let hypothesis = hypothesis.or(before.and_then(|before| before.hypothesis));
    all.push(PastFailure { signature: signature(&ran.cmd, ran.exit, &ran.tail), hypothesis });
    all
}

/// Whether the last failure on record is this one: the same command on the same tree.
fn is_known(step: &Step, tree: &str, ran: &Ran) -> bool {
    step.last_failure.as_ref().is_some_and(|last| {
        last.cmd == ran.cmd && last.tree.as_deref().is_some_and(|before| names_tree(before, tree))
    })
}

fn shown(failure: &PastFailure) -> Value {
    match &failure.hypothesis {
        None => json!({"signature": failure.signature}),
        Some(text) => json!({"signature": failure.signature, "hypothesis": text}),
    }
}

/// The end of a text, within bounds and in whole characters.
fn end_of(text: &str) -> &str {
    let mut from = text.len().saturating_sub(TAIL_BYTES);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

impl Document {
    /// The text of the file with these updates made. All else is as it was.
    #[must_use]
    pub fn with(&self, updates: &[Update]) -> String {
        let mut changes = Vec::new();
        for update in updates {
            let Some(object) = self.steps.get(&update.place) else { continue };
            for (key, value) in &update.fields {
                changes.push(Change { object, key, value: value.clone() });
            }
        }
        edit::apply(&self.text, &changes)
    }
}
