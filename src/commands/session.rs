//! What one call of the program has: the surroundings, read from the environment once, and the reporter. Every
//! environment variable that checkrun reads is named here.
#![forbid(unsafe_code)]

use crate::cli::{Invocation, Request};
use crate::commands::{Failure, UNDECIDED};
use crate::model::event::Format;
use crate::pipeline::Surroundings;
use crate::report::{self, Loudness, Reporter, Streams, Wishes, check_writable};
use crate::store::StorePaths;
use crate::toolchain::{Lookup, TOOL_VARIABLES};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The folder of temporary files.
const TEMPORARY_DIR: &str = "TMPDIR";

/// The folder of all that checkrun keeps.
const CACHE_DIR: &str = "CHECKRUN_CACHE_DIR";

/// The file of a step's summary (GitHub Actions, "Adding a job summary").
const STEP_SUMMARY: &str = "GITHUB_STEP_SUMMARY";

/// One call of the program.
#[derive(Debug)]
pub struct Session {
    /// Tells the user.
    pub reporter: Reporter,
    /// Where things are.
    pub around: Surroundings,
    /// The folder that the call is about: the current one, or that of `-C`.
    pub start: PathBuf,
    /// Where GitHub's runner wants a summary in Markdown, if one is asked for.
    pub step_summary: Option<PathBuf>,
}

impl Session {
    /// Reads the environment.
    ///
    /// # Errors
    /// No folder to keep things in, or `-C` names none; with the reporter to say so.
    pub fn new(invocation: &Invocation) -> Result<Self, (Box<Reporter>, Failure)> {
        let reporter = reporter(invocation);
        let start = match std::env::current_dir() {
            Ok(current) => {
                invocation.global.directory.as_ref().map_or_else(|| current.clone(), |to| current.join(to))
            }
            Err(error) => {
                let failure = Failure::new(format!("cannot tell the current folder: {error}"), None);
                return Err((Box::new(reporter), failure));
            }
        };
        if !start.is_dir() {
            let hint = Some("`-C` takes a folder, and all other names count from there");
            let failure = Failure::new(format!("`-C {}`: no such folder", start.display()), hint);
            return Err((Box::new(reporter), failure));
        }
        match around() {
            Ok(around) => {
                let github = invocation.global.format == Format::Github;
                let step_summary = folder(STEP_SUMMARY).filter(|_| github);
                Ok(Self { reporter, around, start, step_summary })
            }
            Err(failure) => Err((Box::new(reporter), failure)),
        }
    }

    /// The status to end with: a report that could not be written is no success.
    pub(super) fn checked(&mut self, status: u8) -> u8 {
        match self.reporter.trouble() {
            None => status,
            Some(error) => {
                self.reporter.failure(&format!("cannot write to standard output: {error}"), None);
                UNDECIDED
            }
        }
    }
}

/// A variable that is set and not empty.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// A folder that a variable names; relative ones count for nothing, as the XDG base directory specification says.
fn folder(name: &str) -> Option<PathBuf> {
    variable(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn around() -> Result<Surroundings, Failure> {
    let home = folder("HOME");
    let below_home = |path: &str| home.as_ref().map(|home| home.join(path));
    let own = variable(CACHE_DIR).map(PathBuf::from);
    if own.as_ref().is_some_and(|own| own.is_relative()) {
        let hint = format!("`{CACHE_DIR}=\"$PWD/…\"` makes one of it");
        return Err(Failure::new(format!("{CACHE_DIR} must be an absolute path"), Some(&hint)));
    }
    let cache = own
        .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("checkrun")))
        .or_else(|| below_home(".cache/checkrun"))
        .ok_or_else(|| {
            Failure::new(
                "no folder to keep results in: HOME is not set to an absolute path",
                Some("set HOME or CHECKRUN_CACHE_DIR"),
            )
        })?;
    let state = folder("XDG_STATE_HOME").or_else(|| below_home(".local/state"));
    // Beside the records only where there is no other place: a copied cache should not bring its own seal along.
    let secret = state.map_or_else(|| cache.join("secret"), |state| state.join("checkrun/secret"));
    let config =
        folder("XDG_CONFIG_HOME").or_else(|| below_home(".config")).map(|config| config.join("checkrun"));
    let tools = TOOL_VARIABLES.iter().filter_map(|name| Some(((*name).to_owned(), folder(name)?))).collect();
    let lookup = Lookup { path: variable("PATH"), home, tools, rust: None };
    let temporary = folder(TEMPORARY_DIR).unwrap_or_else(|| PathBuf::from("/tmp"));
    Ok(Surroundings { store: StorePaths { cache, secret }, config, lookup, temporary })
}

fn reporter(invocation: &Invocation) -> Reporter {
    let global = &invocation.global;
    let loudness = match (global.quiet, global.verbose) {
        (true, _) => Loudness::Quiet,
        (false, true) => Loudness::Verbose,
        (false, false) => Loudness::Normal,
    };
    let show_output = matches!(&invocation.request, Request::Run(request) if request.output.show);
    let surroundings = report::Surroundings {
        stderr_terminal: std::io::stderr().is_terminal(),
        stdout_terminal: std::io::stdout().is_terminal(),
        stdout_columns: columns(std::io::stdout()),
        stderr_columns: columns(std::io::stderr()),
        ci: variable("CI").is_some(),
        dumb_terminal: variable("TERM").is_none_or(|term| term == "dumb"),
        no_color: variable("NO_COLOR").is_some(),
    };
    let wishes = Wishes { format: global.format, loudness, show_output };
    let began = Instant::now();
    Reporter::new(surroundings, wishes, Streams::standard(), Box::new(move || began.elapsed()))
}

/// How wide a terminal is; nothing for what is none.
fn columns(stream: impl AsFd) -> Option<u16> {
    rustix::termios::tcgetwinsize(stream).ok().map(|size| size.ws_col).filter(|columns| *columns > 0)
}

/// A path as given, from where the call is about.
pub(super) fn from(start: &Path, given: PathBuf) -> PathBuf {
    start.join(given)
}

/// Where an output goes that is wanted at `given`. That it cannot is said before the work, and not after it.
pub(super) fn output_place(start: &Path, given: Option<PathBuf>) -> Result<Option<PathBuf>, Failure> {
    let place = given.map(|given| from(start, given));
    if let Some(place) = &place {
        check_writable(place)?;
    }
    Ok(place)
}

/// Real time, in seconds since 1970.
pub(super) fn now_secs() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

/// The value that a variable has for the caller.
pub(super) fn callers_value(name: &std::ffi::OsStr) -> Option<OsString> {
    std::env::var_os(name)
}
