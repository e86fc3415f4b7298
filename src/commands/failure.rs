//! Why a command came to nothing, as it is told: one text, one hint, one status.
#![forbid(unsafe_code)]

use crate::catalogue::CatalogueError;
use crate::commands::UNDECIDED;
use crate::ledger::LedgerError;
use crate::model::outcome::Outcome;
use crate::pipeline::{PipelineError, exit_status};
use crate::report::ReportError;
use crate::sandbox::SandboxError;
use crate::store::StoreError;
use crate::tree::TreeError;

/// Something that could not be decided or done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// What is wrong and where.
    pub text: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The exit status.
    pub status: u8,
}

impl Failure {
    /// One with the status "could not decide".
    pub(super) fn new(text: impl Into<String>, hint: Option<&str>) -> Self {
        Self { text: text.into(), hint: hint.map(str::to_owned), status: UNDECIDED }
    }
}

/// The exit status of what was ended by a signal to us.
pub(super) fn interrupted(signal: i32) -> u8 {
    exit_status(Outcome::Interrupted, None, Some(signal), None)
}

impl From<PipelineError> for Failure {
    fn from(error: PipelineError) -> Self {
        let status = match &error {
            PipelineError::Interrupted(signal) => interrupted(*signal),
            _ => UNDECIDED,
        };
        Self { text: error.to_string(), hint: error.hint(), status }
    }
}

macro_rules! from_room {
    ($($error:ty),+) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self { text: error.to_string(), hint: error.hint(), status: UNDECIDED }
            }
        })+
    };
}

from_room!(CatalogueError, LedgerError, StoreError, TreeError, SandboxError, ReportError);
