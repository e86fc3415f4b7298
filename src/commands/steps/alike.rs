//! Failures of a step that are too much alike, the one of now among them. What makes two alike is `ledger`'s, and what is
//! written of them `ledger`'s too.
#![forbid(unsafe_code)]

use crate::commands::steps::told::plain;
use crate::commands::steps::{Finding, Status};
use crate::ledger::{PastFailure, Step, converges_not, failures_with};
use serde::Serialize;
use std::fmt::Write as _;

/// A failure that looks like those before and after it.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct Past {
    signature: String,
    hypothesis: Option<String>,
}

/// A step whose failure now counts as an attempt at it, and what somebody thinks of that.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Attempt<'a> {
    pub(in crate::commands) step: &'a str,
    pub(in crate::commands) hypothesis: Option<&'a str>,
}

/// The last failures of a step where they are too much alike, with the one of now if that counts as an attempt.
pub(in crate::commands) fn not_converging(
    step: &Step,
    finding: &Finding,
    attempt: Option<Attempt<'_>>,
    tree: &str,
) -> Option<Vec<Past>> {
    let with_this = match (finding.status, attempt, finding.checks.last()) {
        (Status::Certified, ..) => return None,
        (Status::Uncertified, Some(attempt), Some(last)) => {
            Some(failures_with(step, tree, &last.ran(), attempt.hypothesis.map(str::to_owned)))
        }
        _ => None,
    };
    let past = |failure: &PastFailure| Past {
        signature: failure.signature.clone(),
        hypothesis: failure.hypothesis.clone(),
    };
    let alike = converges_not(with_this.as_deref().unwrap_or(&step.failures))?;
    Some(alike.iter().map(past).collect())
}

/// That the last attempts failed alike, for people.
pub(in crate::commands) fn alike(past: &[Past], text: &mut String) {
    let signature = past.first().map(|past| plain(&past.signature)).unwrap_or_default();
    let _ = writeln!(text, "  not converging: the last {} attempts failed alike ({signature})", past.len());
    for hypothesis in past.iter().filter_map(|past| past.hypothesis.as_deref()) {
        let _ = writeln!(text, "    thought: {}", plain(hypothesis));
    }
}
