//! Finds and reads policies, runners and a repository's own settings. What is read comes out parsed and cannot be
//! wrong in form; deciding what a machine can enforce, or looking for programs on it, is not done here.
#![forbid(unsafe_code)]

mod clock;
mod document;
mod expand;
mod hosts;
mod policy;
mod quarantine;
mod runner;
mod settings;
mod strictness;

pub use clock::set_clock;
pub use expand::{expand, expand_runner};
pub use hosts::allow_hosts;
pub use policy::{NamedPolicy, Reasons, policies, policy};
pub use quarantine::{QUARANTINE_FILE, QuarantineEntry, Quarantined, quarantine};
pub(crate) use runner::bare;
pub use runner::{choose_runner, first_word, runner_for, runners};
pub use settings::{RepositorySettings, SETTINGS_FILE, apply, tighten};

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The most that a policy, runner or settings file may hold, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// What is wrong with a policy, a runner or a settings file, or with the choice of one.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// The text is not what such a file may hold.
    #[error("{file}:{line}:{column}: {problem}")]
    Document {
        /// The file, as the user knows it.
        file: String,
        /// From 1.
        line: usize,
        /// From 1, in characters.
        column: usize,
        /// The key and what is wrong with it.
        problem: String,
    },
    /// No file and no built-in of that name.
    #[error("no {kind} is named `{name}`; there are {known}")]
    Unknown {
        /// `policy` or `runner`.
        kind: &'static str,
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
        /// The name that was perhaps meant, and other advice.
        advice: Option<String>,
    },
    /// A file of the user's has the name of something that is built in.
    #[error("{path}: a {kind} named `{name}` is built in")]
    Reserved {
        /// `policy` or `runner`.
        kind: &'static str,
        /// The name.
        name: String,
        /// The user's file.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Two runners want the same command.
    #[error("the runners `{first}` ({first_at}) and `{second}` ({second_at}) both serve `{word}`")]
    TwoRunners {
        /// The command's first word.
        word: String,
        /// One.
        first: String,
        /// The other.
        second: String,
        /// Where the one comes from.
        first_at: String,
        /// Where the other comes from.
        second_at: String,
    },
    /// The command line asks for a clock mode, and the clock is not fixed.
    #[error("`--clock-mode` has no effect on the host's clock, which policy `{policy}` shows")]
    HostClockMode {
        /// The policy.
        policy: String,
    },
    /// The command line names hosts, and the policy does not go by hosts.
    #[error("`--allow-host` has no effect under policy `{policy}`, whose network is `{network}`")]
    HostsHaveNoEffect {
        /// The policy.
        policy: String,
        /// The word for its network.
        network: &'static str,
    },
    /// A repository's settings ask for more than the policy allows.
    #[error("{file}: key `{key}`: {problem}")]
    Widens {
        /// The settings file.
        file: String,
        /// The key.
        key: String,
        /// What it would widen.
        problem: String,
    },
}

impl CatalogueError {
    /// What can be done about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown { advice, .. } => advice.clone(),
            Self::Reserved { .. } => Some("give the file another name".to_owned()),
            Self::TwoRunners { first, second, .. } => {
                Some(format!("say which one: `--runner {first}` or `--runner {second}`; or take the word out of `serves` in a file of yours"))
            }
            Self::Widens { .. } => Some(
                "a repository may only tighten; what widens comes from the command line or from your own policies"
                    .to_owned(),
            ),
            Self::HostClockMode { .. } => Some("name an instant too: `--clock 2026-01-01T00:00:00Z`".to_owned()),
            Self::HostsHaveNoEffect { .. } => Some(
                "it adds to the hosts that a policy with `mode = \"hosts\"` names, such as `prepare`"
                    .to_owned(),
            ),
            Self::Unreadable { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => Some(
                    "what is yours is looked for below HOME, or XDG_CONFIG_HOME: is it the home of whoever runs this?"
                        .to_owned(),
                ),
                io::ErrorKind::NotFound => Some(
                    "a word with a slash or a dot in it is a file; `checkrun policies` shows what is known by its name"
                        .to_owned(),
                ),
                _ => None,
            },
            Self::Document { .. } => None,
        }
    }
}

/// Reads a file of the catalogue, which must be a regular file of UTF-8 and modest size.
fn read(path: &Path) -> Result<String, CatalogueError> {
    let unreadable = |source| CatalogueError::Unreadable { path: path.to_owned(), source };
    // Opening a pipe or a device could wait for ever, so the kind is looked at first.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(unreadable(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")));
    }
    let file = File::open(path).map_err(unreadable)?;
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(unreadable(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 1 MiB")));
    }
    Ok(text)
}

/// Names of the `*.toml` files of a folder of the user's, sorted; empty where the folder is not there.
fn names_in(folder: &Path) -> Result<Vec<String>, CatalogueError> {
    let unreadable = |source| CatalogueError::Unreadable { path: folder.to_owned(), source };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(unreadable)?.file_name();
        if let Some(stem) = name.to_str().and_then(|name| name.strip_suffix(".toml")) {
            names.push(stem.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Builds the error for a name that nothing has.
fn unknown(kind: &'static str, name: &str, known: &[String]) -> CatalogueError {
    let words: Vec<&str> = known.iter().map(String::as_str).collect();
    let near = document::accepted_words(name, &words);
    let guess =
        near.split_once("did you mean ").and_then(|(_, rest)| rest.split_once('?')).map(|(word, _)| word);
    let plural = if kind == "policy" { "policies" } else { "runners" };
    let advice = match guess {
        Some(word) => format!("did you mean {word}? `checkrun {plural}` shows what there is"),
        None => format!("`checkrun {plural}` shows what there is; a path to a .toml file is accepted too"),
    };
    CatalogueError::Unknown { kind, name: name.to_owned(), known: words.join(", "), advice: Some(advice) }
}
