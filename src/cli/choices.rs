//! Options that take one word of a few, and values that are read by rules of our own.
#![forbid(unsafe_code)]

use crate::model::check::DepsChoice;
use crate::model::event::Format;
use crate::model::policy::{ClockMode, ClockStart};
use crate::model::units::{Bytes, parse_instant};
use clap::ValueEnum;

/// `--format`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum FormatName {
    /// For people
    Human,
    /// One JSON object
    Json,
    /// JSON events, one a line, then the result
    Jsonl,
    /// For people, with annotations and a step summary for GitHub Actions
    Github,
}

impl From<FormatName> for Format {
    fn from(name: FormatName) -> Self {
        match name {
            FormatName::Human => Self::Human,
            FormatName::Json => Self::Json,
            FormatName::Jsonl => Self::Jsonl,
            FormatName::Github => Self::Github,
        }
    }
}

/// `--deps`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum DepsName {
    /// What `checkrun prepare` fetched for this lock file, if it did (the default)
    Prepared,
    /// The folders that the working tree has: node_modules, .venv, vendor
    Found,
    /// Nothing
    None,
}

impl From<DepsName> for DepsChoice {
    fn from(name: DepsName) -> Self {
        match name {
            DepsName::Prepared => Self::Prepared,
            DepsName::Found => Self::Found,
            DepsName::None => Self::None,
        }
    }
}

/// `--guard`, as far as it can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum GuardName {
    /// The whole tree
    Exact,
    /// The whole tree, or all that an earlier run was seen to read, list or look for
    Inputs,
    /// What `--touches` matches
    Touches,
}

/// `--clock-mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum ClockModeName {
    /// Runs as real time does
    Ticking,
    /// Stands still, but for a hair per reading
    Frozen,
}

impl From<ClockModeName> for ClockMode {
    fn from(name: ClockModeName) -> Self {
        match name {
            ClockModeName::Ticking => Self::Ticking,
            ClockModeName::Frozen => Self::Frozen,
        }
    }
}

/// `--clock`: a word or an instant.
pub(super) fn clock_start(text: &str) -> Result<ClockStart, String> {
    match text {
        "commit" => Ok(ClockStart::Commit),
        "host" => Ok(ClockStart::Host),
        _ => parse_instant(text)
            .map(ClockStart::At)
            .map_err(|problem| format!("{problem}; or write `commit` or `host`")),
    }
}

/// A whole number from 1 to `MOST`, of a type that has room for that.
pub(super) fn count<T: TryFrom<u64>, const MOST: u64>(text: &str) -> Result<T, String> {
    let accepted = if MOST == u64::MAX { "1 or more".to_owned() } else { format!("from 1 to {MOST}") };
    let number = text.parse().ok().filter(|number| (1..=MOST).contains(number));
    number
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("`{text}` is not a whole number, {accepted}"))
}

/// A size that is not zero.
pub(super) fn size(text: &str) -> Result<Bytes, String> {
    match Bytes::parse(text)? {
        Bytes(0) => Err(format!("`{text}` is nothing at all; a limit is at least one byte")),
        size => Ok(size),
    }
}
