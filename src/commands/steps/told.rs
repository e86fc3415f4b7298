//! What was found, as it is told: an object for harnesses, a table for people. Nothing is looked up here.
#![forbid(unsafe_code)]

use crate::commands::steps::alike::{Attempt, Past, alike, not_converging};
use crate::commands::steps::{Checked, Finding, How, Leftovers, Status};
use crate::ledger::{Ledger, Step};
use crate::model::outcome::Outcome;
use crate::model::shell::shell_words;
use crate::report::{cut, sets_order};
use crate::tree::{Changed, show};
use serde::Serialize;
use std::fmt::Write as _;

/// What the object is called and its version.
const SCHEMA: &str = "checkrun.reconcile/1";
/// Lines of a failing command's output that people are shown.
const TAIL_LINES: usize = 12;
/// Paths that people are shown of each kind.
const PATHS: usize = 20;

/// All that was found.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct Report<'a> {
    schema: &'static str,
    ledger: Option<String>,
    format: &'static str,
    task: &'a str,
    plan_version: Option<&'a str>,
    tree: String,
    commit: Option<String>,
    dirty: bool,
    guard: &'static str,
    all_certified: bool,
    first_uncertified: Option<&'a str>,
    steps: Vec<Row<'a>>,
    proposed: &'a [String],
    leftovers: Option<Left>,
    commands: Vec<Command>,
    secs: f64,
    secs_saved: f64,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    id: &'a str,
    title: &'a str,
    finding: &'static str,
    recorded: Option<&'a str>,
    /// Whether the record says the same; nothing where the step was not looked at.
    agrees: Option<bool>,
    reason: Option<String>,
    checks: Vec<CheckRow<'a>>,
    attempts: u64,
    not_converging: Option<Vec<Past>>,
    notes: &'a [String],
}

/// One command and what came of it.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct CheckRow<'a> {
    cmd: &'a str,
    outcome: Outcome,
    exit: i64,
    known: &'static str,
    tree: &'a str,
    at: &'a str,
    secs: f64,
    summary: Option<&'a str>,
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tail: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Left {
    since_step: Option<String>,
    since_tree: String,
    under_touches: Vec<PathRow>,
    strangers: Vec<PathRow>,
}

/// A path that differs.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct PathRow {
    /// `A`, `D` or `M`.
    pub(in crate::commands) change: char,
    /// From the root, control characters escaped.
    pub(in crate::commands) path: String,
}

#[derive(Debug, Serialize)]
struct Command {
    what: &'static str,
    cmd: String,
}

/// What a report is made of.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Found<'a> {
    pub(in crate::commands) ledger: &'a Ledger,
    /// The ledger's file, as given.
    pub(in crate::commands) file: Option<&'a str>,
    pub(in crate::commands) findings: &'a [(&'a Step, Finding)],
    pub(in crate::commands) identity: &'a crate::model::check::TreeIdentity,
    pub(in crate::commands) guard: &'static str,
    pub(in crate::commands) leftovers: Option<&'a Leftovers>,
    pub(in crate::commands) attempt: Option<Attempt<'a>>,
    pub(in crate::commands) secs: f64,
    pub(in crate::commands) notes: &'a [String],
}

impl<'a> Report<'a> {
    pub(in crate::commands) fn new(found: Found<'a>) -> Self {
        let first = found.findings.iter().find(|(_, finding)| finding.status != Status::Certified);
        let saved: f64 = found
            .findings
            .iter()
            .flat_map(|(_, finding)| &finding.checks)
            .filter(|checked| checked.how != How::Ran)
            // An empty sum of floats is minus zero, which reads oddly.
            .fold(0.0, |sum, checked| sum + checked.evidence.secs);
        Self {
            schema: SCHEMA,
            ledger: found.file.map(str::to_owned),
            format: found.ledger.shape.name(),
            task: &found.ledger.task,
            plan_version: found.ledger.plan_version.as_deref(),
            tree: found.identity.tree.hex(),
            commit: found.identity.commit.as_ref().map(|commit| commit.hex()),
            dirty: found.identity.dirty,
            guard: found.guard,
            all_certified: first.is_none(),
            first_uncertified: first.map(|(step, _)| step.id.as_str()),
            steps: found.findings.iter().map(|(step, finding)| row(step, finding, &found)).collect(),
            proposed: &found.ledger.proposed,
            leftovers: found.leftovers.map(left),
            commands: first.map(|(step, _)| commands(step, found)).unwrap_or_default(),
            secs: (found.secs * 1e4).round() / 1e4,
            secs_saved: (saved * 1e4).round() / 1e4,
            notes: found.notes.to_vec(),
        }
    }
}

fn row<'a>(step: &'a Step, finding: &'a Finding, found: &Found<'_>) -> Row<'a> {
    let holds = finding.status == Status::Certified;
    let attempt = found.attempt.filter(|attempt| attempt.step == step.id);
    Row {
        id: &step.id,
        title: &step.title,
        finding: finding.status.name(),
        recorded: step.status.as_deref(),
        agrees: (finding.status != Status::NotReached && step.status.is_some())
            .then(|| step.claims_done() == holds),
        reason: finding.reason.clone(),
        checks: check_rows(finding),
        attempts: step.attempts,
        not_converging: not_converging(step, finding, attempt, &found.identity.tree.hex()),
        notes: &finding.notes,
    }
}

/// The commands of a step, as objects.
pub(in crate::commands) fn check_rows(finding: &Finding) -> Vec<CheckRow<'_>> {
    finding.checks.iter().map(check_row).collect()
}

/// Why a step does not hold, for people.
pub(in crate::commands) fn shown_failure(finding: &Finding) -> String {
    let mut text =
        finding.reason.as_ref().map_or_else(String::new, |reason| format!("  {}\n", plain(reason)));
    if let Some(check) = check_rows(finding).last() {
        failing(check, &mut text);
    }
    text
}

/// Changed paths, as objects.
pub(in crate::commands) fn path_rows(changed: &[Changed]) -> Vec<PathRow> {
    let row = |changed: &Changed| PathRow { change: changed.change.letter(), path: show(&changed.path) };
    changed.iter().map(row).collect()
}

fn check_row(checked: &Checked) -> CheckRow<'_> {
    let evidence = &checked.evidence;
    CheckRow {
        cmd: &checked.cmd,
        outcome: evidence.outcome,
        exit: checked.ran().exit,
        known: match checked.how {
            How::Ran => "ran",
            How::Exact => "exact",
            How::Inputs => "inputs",
            How::Touches => "touches",
        },
        tree: &evidence.tree,
        at: &evidence.at,
        secs: evidence.secs,
        summary: evidence.summary.as_deref(),
        key: &evidence.key,
        tail: (evidence.outcome != Outcome::Passed).then_some(evidence.tail.as_str()),
    }
}

fn left(leftovers: &Leftovers) -> Left {
    Left {
        since_step: leftovers.since.clone(),
        since_tree: leftovers.tree.clone(),
        under_touches: path_rows(&leftovers.own),
        strangers: path_rows(&leftovers.strangers),
    }
}

fn commands(step: &Step, found: Found<'_>) -> Vec<Command> {
    let Some(file) = found.file else { return Vec::new() };
    let words =
        |words: &[&str]| shell_words(&words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>());
    let mut commands = vec![
        Command {
            what: "look again when it is done, and write it down",
            cmd: words(&["checkrun", "reconcile", file, "--write"]),
        },
        Command {
            what: "certify it when it is done, and commit the tree that was checked",
            cmd: words(&["checkrun", "certify", &step.id, "--ledger", file, "--commit"]),
        },
    ];
    let Some(left) = found.leftovers.filter(|left| !left.own.is_empty()) else { return commands };
    if step.touches.as_ref().is_some_and(|touches| !touches.is_empty()) {
        commands.push(Command {
            what: "keep the partial work and go back",
            cmd: words(&["checkrun", "rollback", &step.id, "--ledger", file]),
        });
        return commands;
    }
    // Paths that a shell and UTF-8 can carry; git's own words keep the work before they put anything back.
    let paths: Vec<&str> =
        left.own.iter().filter_map(|changed| std::str::from_utf8(&changed.path).ok()).collect();
    if left.since.is_none() && paths.len() == left.own.len() && paths.len() <= PATHS {
        let message = format!("{} partial", step.id);
        let mut stash = vec!["git", "stash", "push", "--include-untracked", "-m", &message, "--"];
        stash.extend(paths);
        commands.push(Command {
            what: "keep the partial work in a stash and go back to HEAD",
            cmd: words(&stash),
        });
    }
    commands
}

impl Report<'_> {
    /// For people.
    pub(in crate::commands) fn text(&self, columns: Option<u16>) -> String {
        let mut text = String::new();
        let task = if self.task.is_empty() { "steps" } else { self.task };
        let plan = self
            .plan_version
            .map_or_else(String::new, |version| format!(", plan version {}", plain(version)));
        let state = if self.dirty { " (uncommitted)" } else { "" };
        let _ = writeln!(text, "{}{plan}: tree {}{state}\n", plain(task), short(&self.tree));
        self.table(columns, &mut text);
        if let Some(row) = self.steps.iter().find(|row| Some(row.id) == self.first_uncertified) {
            first(row, &mut text);
        } else {
            text.push_str("\nall steps are certified\n");
        }
        if let Some(left) = &self.leftovers {
            let since = left
                .since_step
                .as_deref()
                .map_or_else(|| "HEAD".to_owned(), |step| format!("`{step}` was certified"));
            let id = self.first_uncertified.unwrap_or_default();
            paths(
                &format!("changed since {since}, under the touches of `{id}`"),
                &left.under_touches,
                &mut text,
            );
            paths(&format!("changed since {since}, strangers to it"), &left.strangers, &mut text);
        }
        for command in &self.commands {
            let _ = writeln!(text, "\n{}:\n  {}", command.what, command.cmd);
        }
        for note in &self.notes {
            let _ = writeln!(text, "\nnote: {}", plain(note));
        }
        let _ = writeln!(text, "\ntook {:.2}s; earlier results saved {:.2}s", self.secs, self.secs_saved);
        text
    }

    fn table(&self, columns: Option<u16>, text: &mut String) {
        let id_width = self.steps.iter().map(|row| row.id.chars().count()).max().unwrap_or(0);
        for row in &self.steps {
            let known = row.known();
            let secs: f64 = row.checks.iter().map(|check| check.secs).sum();
            let secs = if row.checks.is_empty() { String::new() } else { format!("{secs:.2}s") };
            let finding = row.finding.replace('_', " ");
            let mut line = format!(
                "  {:id_width$}  {finding:<11}  {known:<28}  {secs:>8}  {}",
                row.id,
                plain(row.title)
            );
            if row.agrees == Some(false) {
                let _ = write!(line, "  [recorded: {}]", plain(row.recorded.unwrap_or_default()));
            }
            text.push_str(&cut(line.trim_end(), columns));
            text.push('\n');
            for note in row.notes {
                let _ = writeln!(text, "  {:id_width$}  {}", "", plain(note));
            }
        }
        for id in self.proposed {
            let _ = writeln!(text, "  {id:id_width$}  proposed, not part of the plan");
        }
    }
}

impl Row<'_> {
    fn known(&self) -> String {
        let Some(last) = self.checks.last() else { return String::new() };
        if self.checks.iter().any(|check| check.known == "ran") {
            return "ran".to_owned();
        }
        let of = |word: &str| self.checks.iter().find(|check| check.known == word);
        let weakest = of("touches").or_else(|| of("inputs")).unwrap_or(last);
        format!("cached, {}, {}", weakest.known, short(weakest.tree))
    }
}

fn first(row: &Row<'_>, text: &mut String) {
    let named = format!("{} {}", row.id, plain(row.title));
    let _ = writeln!(text, "\nfirst step that is not certified: {}", named.trim_end());
    if let Some(reason) = &row.reason {
        let _ = writeln!(text, "  {}", plain(reason));
    }
    if let Some(check) = row.checks.last() {
        failing(check, text);
    }
    if let Some(past) = &row.not_converging {
        alike(past, text);
    }
}

/// A command that did not pass, and the end of its output.
fn failing(check: &CheckRow<'_>, text: &mut String) {
    let Some(tail) = check.tail else { return };
    let _ = writeln!(text, "  `{}` exit {}", plain(check.cmd), check.exit);
    let lines: Vec<&str> = tail.lines().collect();
    for line in &lines[lines.len().saturating_sub(TAIL_LINES)..] {
        let _ = writeln!(text, "  | {}", plain(line));
    }
}

fn paths(heading: &str, rows: &[PathRow], text: &mut String) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{heading}:");
    for row in rows.iter().take(PATHS) {
        let _ = writeln!(text, "  {} {}", row.change, row.path);
    }
    if rows.len() > PATHS {
        let _ = writeln!(text, "  … and {} more", rows.len() - PATHS);
    }
}

fn short(tree: &str) -> &str {
    tree.get(..12).unwrap_or(tree)
}

/// A text without line breaks and other control characters, so that it cannot pass for a line of ours.
pub(super) fn plain(text: &str) -> String {
    text.trim_end()
        .chars()
        .map(
            |letter| if (letter.is_control() && letter != '\t') || sets_order(letter) { ' ' } else { letter },
        )
        .collect()
}
