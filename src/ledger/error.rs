//! What is wrong with a ledger, as the user is told.
#![forbid(unsafe_code)]

use std::io;
use std::path::PathBuf;

/// What is wrong with a ledger.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The text is not what a ledger may hold.
    #[error("{}:{line}:{column}: {problem}", path.display())]
    Document {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// From 1, in characters.
        column: usize,
        /// What is wrong.
        problem: String,
    },
    /// It is too large to be one.
    #[error("{} is larger than 8 MiB, and no ledger is", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody else is writing it.
    #[error("{} is held by {holder}", path.display())]
    Held {
        /// The file.
        path: PathBuf,
        /// Process number and command, as far as they are known.
        holder: String,
    },
    /// There is no step of that name.
    #[error("{} has no step `{id}`; there are {known}", path.display())]
    UnknownStep {
        /// The file.
        path: PathBuf,
        /// The name asked for.
        id: String,
        /// The names there are.
        known: String,
    },
}

impl LedgerError {
    /// What can be done about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Document { .. } => {
                "`checkrun ledger check FILE` says whether it is in order; the page on reconciling shows the shapes"
            }
            Self::TooLarge { .. } => "name the ledger itself; a whole transcript is none",
            Self::Held { .. } => "wait for it to end; one writer at a time keeps both records whole",
            Self::File { what: "read", source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "a ledger is a JSON file with a list of `steps`; without one, `reconcile --from-history HEAD` goes by commits"
            }
            Self::File { .. } | Self::UnknownStep { .. } => return None,
        };
        Some(hint.to_owned())
    }
}
