//! One test of a test suite, as a runner tells of it in one run. Reading what runners print is `results`'.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

/// What became of one attempt at a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It passed.
    Passed,
    /// It failed.
    Failed,
    /// It was left out.
    Skipped,
    /// It was started and nothing was heard of its end.
    Aborted,
}

/// A test in one run. Attempts under one name are one test.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Case {
    /// Its name, unique within the run.
    pub id: String,
    /// Attempts that passed.
    pub passed: u32,
    /// Attempts that failed.
    pub failed: u32,
    /// Attempts that were left out.
    pub skipped: u32,
    /// Attempts that were started and never ended.
    pub aborted: u32,
}

impl Case {
    /// What the run says of the test: an attempt that went wrong weighs more than one that did not, and a test that passed
    /// in the end did not pass each time.
    #[must_use]
    pub fn fate(&self) -> Fate {
        match self {
            _ if self.failed > 0 => Fate::Failed,
            _ if self.aborted > 0 => Fate::Aborted,
            _ if self.passed > 0 => Fate::Passed,
            _ => Fate::Skipped,
        }
    }
}
