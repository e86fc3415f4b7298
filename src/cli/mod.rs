//! The command line: words to a request, and the texts that come from the same definitions (help, man page,
//! completions). Nothing is looked up or run here, and no environment variable is read.
#![forbid(unsafe_code)]

mod arguments;
mod choices;
mod flake;
mod help;
mod ledger;
mod man;
mod mistakes;
mod prepare;
mod process;
mod request;
mod version;
mod words;

#[cfg(test)]
mod tests;

pub use flake::{FlakeRequest, Goal};
pub use ledger::{CertifyRequest, ReconcileRequest, RollbackRequest, StepGuard, StepRequest};
pub use man::man;
pub use prepare::PrepareRequest;
pub use request::{
    CacheMode, CheckRequest, Gc, Global, Invocation, OutputRequest, PassedVariable, Request, RunRequest,
    TreeChoice,
};
pub use words::{Split, split};

use clap::{FromArgMatches, Parser};
use std::ffi::OsString;

/// Status of a command line that asks for nothing that can be done.
const UNDECIDED: u8 = 125;

/// What a command line that is not a request comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exit {
    /// 0 for help and version, 125 for a usage error.
    pub status: u8,
    /// What to print, lines with newlines.
    pub text: String,
    /// Whether it goes to stdout; else to stderr.
    pub to_stdout: bool,
}

/// Reads a command line, the program's name first.
///
/// # Errors
/// Help or a version was asked for, or the words make no request.
pub fn parse(args: impl Iterator<Item = OsString>) -> Result<Invocation, Exit> {
    let args = help_asked_by_word(args.collect());
    if let Ok(plain) = arguments::Plain::try_parse_from(&args) {
        return request::invocation(plain.into());
    }
    let matches = help::brief().try_get_matches_from(&args).map_err(|error| mistakes::exit(error, &args))?;
    let cli = arguments::Cli::from_arg_matches(&matches).map_err(|error| mistakes::exit(error, &args))?;
    if let Some((name, _)) = matches.subcommand() {
        refuse_stray_options(&matches, name)?;
    }
    request::invocation(cli)
}

/// `checkrun help` and `checkrun help COMMAND` are what other programs have, so they are `--help` here.
fn help_asked_by_word(mut args: Vec<OsString>) -> Vec<OsString> {
    let is_word = |arg: &OsString| !arg.as_encoded_bytes().starts_with(b"-");
    if args.get(1).is_some_and(|arg| arg == "help") && args.len() <= 4 && args.iter().skip(2).all(is_word) {
        args.remove(1);
        args.push("--help".into());
    }
    args
}

/// Options of a run have no effect before the word of another command, so they are refused there.
fn refuse_stray_options(matches: &clap::ArgMatches, command: &str) -> Result<(), Exit> {
    let global = ["directory", "format", "quiet", "verbose"];
    let given = |id: &&clap::Id| {
        matches.value_source(id.as_str()) == Some(clap::parser::ValueSource::CommandLine)
            && !global.contains(&id.as_str())
    };
    // Ids without an argument of their own are the groups that clap makes of each set of options.
    let definition = help::complete();
    let stray = matches.ids().filter(given).find_map(|id| {
        definition
            .get_arguments()
            .find(|argument| argument.get_id() == id)
            .map(|argument| argument.get_long().map_or_else(|| "-c".to_owned(), |long| format!("--{long}")))
    });
    match stray {
        None => Ok(()),
        Some(option) => Err(usage(
            &format!("`{option}` stands before `{command}`, where it has no effect"),
            Some(&format!(
                "put it after the word: `checkrun {command} {option} …`, where `{command}` has such an option"
            )),
        )),
    }
}

/// A usage error in the form of all errors.
fn usage(text: &str, hint: Option<&str>) -> Exit {
    let hint = hint.map_or_else(String::new, |hint| format!("\nhint: {hint}\n"));
    Exit { status: UNDECIDED, text: format!("checkrun: error: {text}\n{hint}"), to_stdout: false }
}

/// The completion script for a shell.
#[must_use]
pub fn completions(shell: clap_complete::Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut help::complete(), "checkrun", &mut script);
    script
}
