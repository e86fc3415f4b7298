//! What of a session's failures is in quarantine. A run is excused only where everything that went wrong in it is; what ended
//! in any other way than by tests that failed never is.
#![forbid(unsafe_code)]

use crate::catalogue::{self, QUARANTINE_FILE, QuarantineEntry, Quarantined};
use crate::commands::session::now_secs;
use crate::commands::{Failure, Session};
use crate::model::case::{Case, Fate};
use crate::model::evidence::Evidence;
use crate::model::outcome::Outcome;
use crate::model::shell::shell_words;
use crate::pipeline::{PipelineError, Prepared, Wish};
use crate::tree::{self, Source};
use serde::Serialize;
use std::collections::BTreeSet;

/// Most that the file may hold, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// Entries that hold, and those that did.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Quarantine {
    /// Whether the tree has the file at all.
    is_there: bool,
    tests: BTreeSet<String>,
    /// The command itself.
    command: bool,
    /// In words, those that are over.
    expired: Vec<String>,
    in_force: usize,
}

/// What a report says of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct QuarantineTold<'a> {
    /// Entries that hold today.
    in_force: usize,
    /// Those that are over, and gate again.
    expired: &'a [String],
    /// Failed runs in which nothing but what is in quarantine went wrong.
    pub(super) excused: u64,
    /// Whether the status is what it would be without.
    pub(super) gates: bool,
}

impl Quarantine {
    /// Reads the file of the tree, or of the revision `base`, so that a change cannot excuse itself.
    pub(super) fn read(
        wish: &Wish,
        prepared: &Prepared,
        base: Option<&str>,
        session: &Session,
    ) -> Result<Self, Failure> {
        let source = match base {
            Some(base) => Some(Source::Revision(base.to_owned())),
            // It counts also where it is out of scope.
            None => (!wish.scope.is_empty()).then(|| wish.source.clone()),
        };
        let other = source.map(|source| tree::resolve(&wish.start, &source, &session.around.scratch()));
        let other = other.transpose().map_err(PipelineError::from)?;
        let snapshot = other.as_ref().unwrap_or(&prepared.snapshot);
        let bytes = snapshot.read_file(QUARANTINE_FILE.as_bytes(), FILE_MAX).map_err(PipelineError::from)?;
        let Some(bytes) = bytes else { return Ok(Self::default()) };
        let entries = catalogue::quarantine(&bytes).map_err(PipelineError::from)?;
        Ok(Self::new(&entries, now_secs(), &prepared.action.command.argv))
    }

    fn new(entries: &[QuarantineEntry], now: i64, argv: &[Vec<u8>]) -> Self {
        let mut quarantine = Self { is_there: true, ..Self::default() };
        let words = shell_words(argv);
        for entry in entries {
            let name = match &entry.what {
                Quarantined::Test(name) | Quarantined::Command(name) => name,
            };
            if entry.ends <= now {
                quarantine.expired.push(format!("{name} ({}, until {})", entry.owner, entry.expires));
                continue;
            }
            quarantine.in_force += 1;
            match &entry.what {
                Quarantined::Test(name) => drop(quarantine.tests.insert(name.clone())),
                Quarantined::Command(command) => quarantine.command |= *command == words,
            }
        }
        quarantine
    }

    pub(super) fn holds(&self, test: &str) -> bool {
        self.tests.contains(test)
    }

    /// Whether nothing went wrong in a run but what is in quarantine.
    pub(super) fn excuses(&self, evidence: &Evidence, cases: &[Case]) -> bool {
        let mut wrong =
            cases.iter().filter(|case| matches!(case.fate(), Fate::Failed | Fate::Aborted)).peekable();
        // A program that died of a signal did not come to the end of its tests.
        evidence.outcome == Outcome::Failed
            && evidence.signal.is_none()
            && (self.command || (wrong.peek().is_some() && wrong.all(|case| self.holds(&case.id))))
    }

    /// What there is to tell; `None` where the tree has no such file. `failed` runs are to be excused.
    pub(super) fn told(&self, excused: u64, failed: u64, may_lift: bool) -> Option<QuarantineTold<'_>> {
        let lifts = may_lift && failed > 0 && excused == failed;
        self.is_there.then_some(QuarantineTold {
            in_force: self.in_force,
            expired: &self.expired,
            excused,
            gates: !lifts,
        })
    }
}

impl QuarantineTold<'_> {
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let line = |line: String| line.chars().filter(|letter| !letter.is_control()).collect::<String>();
        for expired in self.expired.iter().take(20) {
            text.push_str(&line(format!("  quarantine is over, it gates again: {expired}")));
            text.push('\n');
        }
        if !self.gates {
            text.push_str("  all of its failures are in quarantine, so the status is 0\n");
        } else if self.excused > 0 {
            text.push_str(&format!(
                "  failures that are in quarantine: {}, and others that are not\n",
                self.excused
            ));
        }
        text
    }
}
