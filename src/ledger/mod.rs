//! Ledgers: files in which a harness writes what a run set out to do and what it believes came of it. Three shapes (a
//! task ledger with `steps`, a progress file with `features`, a backlog of `slices`) are read into one model and are
//! written back with everything else in them left as it was. All that a ledger says is a claim; what holds on a tree
//! is found out elsewhere.
#![forbid(unsafe_code)]

mod edit;
mod error;
mod file;
mod json;
mod order;
mod shape;
mod signature;
mod touches;
mod update;

pub use error::LedgerError;
pub use file::{Held, new_name};
pub use signature::{converges_not, signature};
pub use touches::{Pattern, any_covers};
pub use update::{About, Ran, Update, failures_with};

use crate::model::digest::Digest;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Digits of a step's definition: enough that no two definitions of one step are alike by chance.
const DEFINITION_DIGITS: usize = 8;
/// The fewest digits by which a tree is named.
const FEWEST_DIGITS: usize = 4;

/// Which of the shapes a ledger has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// A task with `steps`.
    Task,
    /// A goal with `features`.
    Progress,
    /// `slices`, or a bare list.
    Backlog,
    /// No file at all: rebuilt from the messages of commits.
    History,
}

impl Shape {
    /// The word used in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Progress => "progress",
            Self::Backlog => "backlog",
            Self::History => "history",
        }
    }

    /// The word by which such a file says that a step holds.
    #[must_use]
    pub fn done_word(self) -> &'static str {
        match self {
            Self::Progress => "done",
            Self::Task | Self::Backlog | Self::History => "passed",
        }
    }
}

/// What a ledger says.
#[derive(Clone, PartialEq, Debug)]
pub struct Ledger {
    /// Its shape.
    pub shape: Shape,
    /// What the task is called.
    pub task: String,
    /// Which version of the plan its steps are of.
    pub plan_version: Option<String>,
    /// The name of the run, if the file gives one.
    pub run: Option<String>,
    /// Its steps, those that others depend on first, else in the file's order. Names are unique.
    pub steps: Vec<Step>,
    /// Features that were proposed and not taken into the plan: their ids.
    pub proposed: Vec<String>,
}

/// One step, as the ledger has it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Step {
    /// What it is called by; unique, without control characters.
    pub id: String,
    /// What it is about.
    pub title: String,
    /// The paths that are its own; `None` where the file says nothing.
    pub touches: Option<Vec<Pattern>>,
    /// Ids of the steps that must hold before it.
    pub depends_on: Vec<String>,
    /// The commands that decide whether it holds; never empty.
    pub check: Vec<String>,
    /// The step to whose state one goes back from it.
    pub rollback_to: Option<String>,
    /// What the file claims.
    pub status: Option<String>,
    /// What it claims to have seen.
    pub evidence: Option<Evidence>,
    /// How often it was tried.
    pub attempts: u64,
    /// The last failure that was noted.
    pub last_failure: Option<Failure>,
    /// Failures before, oldest first.
    pub failures: Vec<PastFailure>,
    /// Its place in the file's list.
    pub place: usize,
}

/// What a ledger claims to have seen when a step passed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Evidence {
    /// When.
    pub at: Option<String>,
    /// The tree it names, as written.
    pub tree: Option<String>,
    /// The definition of the step it was made for, where it says so.
    pub definition: Option<String>,
    /// The version of the plan it was made for, where it says so.
    pub plan_version: Option<String>,
    /// False where it says that the tree was already changed by a later step.
    pub is_boundary: bool,
}

/// A failure as it is noted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Failure {
    /// The command that failed.
    pub cmd: String,
    /// The tree it failed on.
    pub tree: Option<String>,
    /// What somebody thinks it means.
    pub hypothesis: Option<String>,
}

/// An earlier failure: what it looked like and what was thought of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PastFailure {
    /// What tells it from other failures.
    pub signature: String,
    /// What somebody thought it meant.
    pub hypothesis: Option<String>,
}

impl Step {
    /// What evidence is made for: a digest over check, touches and dependencies, 8 hex digits.
    #[must_use]
    pub fn definition(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        let mut list = |name: &str, items: &mut dyn Iterator<Item = &str>| {
            hasher.update(name.as_bytes());
            for item in items {
                hasher.update(&item.len().to_le_bytes());
                hasher.update(item.as_bytes());
            }
            hasher.update(&usize::MAX.to_le_bytes());
        };
        list("check", &mut self.check.iter().map(String::as_str));
        list("touches", &mut self.touches.iter().flatten().map(Pattern::text));
        list("depends_on", &mut self.depends_on.iter().map(String::as_str));
        Digest(*hasher.finalize().as_bytes()).hex().chars().take(DEFINITION_DIGITS).collect()
    }

    /// Why its evidence does not count, if it does not: it was made for something else.
    #[must_use]
    pub fn void_evidence(&self, plan_version: Option<&str>) -> Option<String> {
        let evidence = self.evidence.as_ref()?;
        if evidence.definition.as_ref().is_some_and(|made_for| !made_for.starts_with(&self.definition())) {
            return Some("its check, touches or dependencies have changed since".to_owned());
        }
        let made_for = evidence.plan_version.as_deref()?;
        if Some(made_for) == plan_version {
            return None;
        }
        let now = plan_version.unwrap_or("none");
        Some(format!("it was made under plan version {made_for}, and the plan is at {now}"))
    }

    /// Whether the recorded status claims that the step holds.
    #[must_use]
    pub fn claims_done(&self) -> bool {
        matches!(self.status.as_deref(), Some("passed" | "done" | "certified" | "complete" | "completed"))
    }
}

/// Whether a name, in full or shortened as git does, stands for the tree of that full id.
fn names_tree(name: &str, tree: &str) -> bool {
    name.len() >= FEWEST_DIGITS && tree.starts_with(name)
}

impl Ledger {
    /// The step of that name.
    #[must_use]
    pub fn step(&self, id: &str) -> Option<&Step> {
        self.steps.iter().find(|step| step.id == id)
    }
}

/// A ledger, its text, and the file it is from.
#[derive(Clone, PartialEq, Debug)]
pub struct Document {
    /// The file, as given.
    pub path: PathBuf,
    /// What it says.
    pub ledger: Ledger,
    text: String,
    /// Where each step's object is, by its place in the list.
    steps: BTreeMap<usize, json::Node>,
}

impl Document {
    /// The step of that name.
    ///
    /// # Errors
    /// There is none; with the names that there are.
    pub fn step(&self, id: &str) -> Result<&Step, LedgerError> {
        self.ledger.step(id).ok_or_else(|| {
            let known: Vec<String> =
                self.ledger.steps.iter().take(50).map(|step| format!("`{}`", step.id)).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            LedgerError::UnknownStep { path: self.path.clone(), id: id.escape_debug().to_string(), known }
        })
    }
}

/// Reads a ledger without holding it.
///
/// # Errors
/// The file cannot be read, or is no ledger.
pub fn read(path: &Path) -> Result<Document, LedgerError> {
    shape::document(path, file::read(path)?)
}
