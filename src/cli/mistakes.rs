//! What is said of a command line that makes no request: what is wrong in clap's words, and a hint made of the very words
//! that were given. Command lines that do make one are read elsewhere.
#![forbid(unsafe_code)]

use crate::cli::{Exit, UNDECIDED, help};
use crate::model::shell::shell_words;
use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// A hint that is longer is no longer read, and shows nothing that a general one does not.
const MAX_LINE: usize = 120;

/// What clap's answer to a command line, the program's name first, comes to.
pub(super) fn exit(mut error: clap::Error, args: &[OsString]) -> Exit {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Exit { status: 0, text: error.render().to_string(), to_stdout: true };
    }
    // A group of commands without one of them: its help is all that clap says.
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let text =
            format!("checkrun: error: a word is missing; what may follow is this:\n\n{}", error.render());
        return Exit { status: UNDECIDED, text, to_stdout: false };
    }
    drop_misleading_tips(&mut error);
    let word = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) => word.clone(),
        _ => String::new(),
    };
    let hint = match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => {
            let has_tip = error.get(ContextKind::SuggestedArg).is_some();
            hint(&word, args, has_tip)
        }
        _ => None,
    };
    let hint = hint.map_or_else(String::new, |hint| format!("\nhint: {hint}\n"));
    Exit { status: UNDECIDED, text: format!("checkrun: {}{hint}", error.render()), to_stdout: false }
}

/// clap offers to pass an unknown option on by a `--` before it. That would make the option the command to check.
fn drop_misleading_tips(error: &mut clap::Error) {
    if let Some(ContextValue::StyledStrs(tips)) = error.remove(ContextKind::Suggested) {
        let kept: Vec<_> =
            tips.into_iter().filter(|tip| !tip.to_string().contains("as a value, use")).collect();
        if !kept.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(kept));
        }
    }
}

/// What `word`, which has no place where it stands, was most likely meant for.
fn hint(word: &str, args: &[OsString], has_tip: bool) -> Option<String> {
    let owners = owners(word);
    if !owners.is_empty() {
        return Some(format!("it is an option of {}", owners.join(", ")));
    }
    if let Some(meant) = help::nearest_command(word) {
        return Some(format!("there is a command `checkrun {meant}`; a command to check stands after `--`"));
    }
    if word.starts_with('-') {
        return (!has_tip).then(|| {
            "`checkrun run --help` lists the options of a check; those of its command stand behind it, after `--`"
                .to_owned()
        });
    }
    if let Some(command) = command_without_words(args) {
        return Some(format!("`checkrun {command} --help` shows what it takes"));
    }
    if args.iter().any(|arg| arg == "--") {
        return Some(
            "before `--` there are only options and a command of checkrun; `checkrun --help` lists them"
                .to_owned(),
        );
    }
    let line = with_dashes(word, args).filter(|line| line.chars().count() <= MAX_LINE);
    let line = line.unwrap_or_else(|| "checkrun -- go test ./...".to_owned());
    Some(format!("the command to check stands after `--`: `{line}`"))
}

/// The commands that have an option of this name.
fn owners(word: &str) -> Vec<String> {
    let Some(name) = word.strip_prefix("--").and_then(|rest| rest.split('=').next()) else {
        return Vec::new();
    };
    let has = |command: &&Command| command.get_arguments().any(|argument| argument.get_long() == Some(name));
    let definition = help::complete();
    let shown = definition.get_subcommands().filter(|command| !command.is_hide_set());
    shown.filter(has).map(|command| format!("`checkrun {}`", command.get_name())).collect()
}

/// The command of checkrun that a line begins with, if it is one that checks nothing.
fn command_without_words(args: &[OsString]) -> Option<String> {
    let definition = help::complete();
    let command = definition.find_subcommand(args.get(1)?)?;
    let checks = command.get_arguments().any(|argument| argument.get_id() == "command_words");
    (!checks).then(|| command.get_name().to_owned())
}

/// The line with a `--` before `word`, or with `-c` where the whole command is one word, so that it is understood.
fn with_dashes(word: &str, args: &[OsString]) -> Option<String> {
    // The word may stand there as an option's value, too.
    let places =
        (1..args.len()).filter(|place| args.get(*place).is_some_and(|arg| arg.to_string_lossy() == word));
    for place in places {
        let (before, after) = args.split_at(place);
        let dash = match after {
            [only] if only.as_bytes().contains(&b' ') => "-c",
            _ => "--",
        };
        let fixed: Vec<OsString> =
            before.iter().cloned().chain([OsString::from(dash)]).chain(after.iter().cloned()).collect();
        if help::brief().try_get_matches_from(&fixed).is_ok() {
            // However the program was called, it is known by its name.
            let words = fixed.iter().skip(1).map(|arg| arg.as_bytes().to_vec());
            let words: Vec<Vec<u8>> = std::iter::once(b"checkrun".to_vec()).chain(words).collect();
            return Some(shell_words(&words));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_is_the_line_that_was_meant() {
        for (words, meant) in [
            (&["npm", "test"][..], Some("checkrun -- npm test")),
            (&["--tree", "npm", "npm", "test"], Some("checkrun --tree npm -- npm test")),
            (&["go test ./..."], Some("checkrun -c 'go test ./...'")),
            (&["flake", "--runs", "3", "pytest", "-x"], Some("checkrun flake --runs 3 -- pytest -x")),
            (&["run", "a b", "c"], Some("checkrun run -- 'a b' c")),
            (&["--tree"], None),
        ] {
            let args: Vec<OsString> =
                std::iter::once("/x/checkrun").chain(words.iter().copied()).map(OsString::from).collect();
            let word = words.iter().find(|word| ["npm", "go test ./...", "pytest", "a b"].contains(word));
            let word = word.copied().unwrap_or("nothing of it");
            assert_eq!(with_dashes(word, &args).as_deref(), meant, "{words:?}");
        }
    }

    #[test]
    fn options_are_told_by_who_has_them() {
        assert_eq!(owners("--ledger"), ["`checkrun certify`", "`checkrun rollback`"]);
        assert!(owners("--nothing").is_empty() && owners("-x").is_empty());
    }
}
