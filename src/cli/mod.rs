//! The command line: words to a request, and the texts that come from the same definitions (help, man page,
//! completions). Nothing is looked up or run here, and no environment variable is read.
#![forbid(unsafe_code)]

mod arguments;
mod choices;
mod flake;
mod help;
mod ledger;
mod man;
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

use clap::error::{ContextKind, ContextValue, ErrorKind};
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
    let args: Vec<OsString> = args.collect();
    if let Ok(plain) = arguments::Plain::try_parse_from(&args) {
        return request::invocation(plain.into());
    }
    let matches = help::brief().try_get_matches_from(args).map_err(|error| exit(&error))?;
    let cli = arguments::Cli::from_arg_matches(&matches).map_err(|error| exit(&error))?;
    if let Some((name, _)) = matches.subcommand() {
        refuse_stray_options(&matches, name)?;
    }
    request::invocation(cli)
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

fn exit(error: &clap::Error) -> Exit {
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit { status: 0, text, to_stdout: true },
        kind => {
            let text = format!("checkrun: {text}");
            // The most common slip: a command without the `--` that sets it apart.
            let hint = match kind {
                ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => {
                    let meant = match error.get(ContextKind::InvalidArg) {
                        Some(ContextValue::String(word)) => help::nearest_command(word),
                        _ => None,
                    };
                    match meant {
                        Some(meant) => format!(
                            "\nhint: there is a command `checkrun {meant}`; a command to check stands after `--`\n"
                        ),
                        None => {
                            "\nhint: the command to check stands after `--`: `checkrun -- go test ./...`\n"
                                .to_owned()
                        }
                    }
                }
                _ => String::new(),
            };
            Exit { status: UNDECIDED, text: format!("{text}{hint}"), to_stdout: false }
        }
    }
}

/// The completion script for a shell.
#[must_use]
pub fn completions(shell: clap_complete::Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut help::complete(), "checkrun", &mut script);
    script
}
