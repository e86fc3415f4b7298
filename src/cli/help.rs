//! What the help says around the options: examples, which come first since they are what people look for, and what is
//! left out so that it fits a screen. The options' own texts are with them, in `arguments` and its siblings.
#![forbid(unsafe_code)]

use crate::cli::arguments::Cli;
use crate::model::nearest::nearest;
use clap::{Args, Command, CommandFactory};

/// Commands with examples of their use, each a line with what it is for.
const EXAMPLES: [(&str, &[(&str, &str)]); 20] = [
    (
        "run",
        &[
            ("checkrun --tree HEAD~2 -- make check", "an earlier commit"),
            ("checkrun --format json --cached-only -- go test", "answer or exit 125"),
            ("checkrun --clock 2024-02-29T12:00:00Z -- go test", "on another day"),
        ],
    ),
    ("log", &[("checkrun log", "the newest hundred"), ("checkrun log --tree HEAD", "of this commit's tree")]),
    (
        "show",
        &[
            ("checkrun show 12", "a record by its number"),
            ("checkrun show 2dd498d0 --log", "its whole output, by its key"),
        ],
    ),
    (
        "explain",
        &[
            ("checkrun explain -- go test ./...", "of the working tree"),
            ("checkrun explain --tree HEAD -- go test ./...", "of a commit"),
        ],
    ),
    (
        "inputs",
        &[
            ("checkrun inputs -- go test ./...", "a list"),
            ("checkrun inputs --trace in.json -- go test", "into a file, output as usual"),
        ],
    ),
    (
        "policies",
        &[("checkrun policies", "by name"), ("checkrun policies hermetic", "one in full, as a file")],
    ),
    ("runners", &[("checkrun runners", "by name"), ("checkrun runners go", "one in full, as it is here")]),
    ("doctor", &[("checkrun doctor", "status 1 where checks cannot be confined in full")]),
    ("init", &[("checkrun init", "then look at it, and commit it")]),
    (
        "prepare",
        &[
            ("checkrun prepare", "whatever lock files the tree has"),
            ("checkrun prepare --runner node --cwd web", "one of them, in a folder"),
            ("checkrun prepare --allow-host github.com", "from there as well as from the registries"),
        ],
    ),
    (
        "gc",
        &[
            ("checkrun gc", "what is past the usual bounds"),
            ("checkrun gc --max-size 2GiB --max-age 30d", "tighter ones"),
        ],
    ),
    (
        "reconcile",
        &[
            ("checkrun reconcile plan.json", "up to the first that fails"),
            ("checkrun reconcile plan.json --all --jobs 4", "all of them"),
            ("checkrun reconcile --from-history HEAD", "from commit trailers, no ledger"),
        ],
    ),
    (
        "flake",
        &[
            ("checkrun flake -- npm test", "below 5% or not"),
            ("checkrun flake --certify 'p<1%' -- npm test", "surer"),
            ("checkrun flake --explain -- npm test", "why"),
        ],
    ),
    ("flakes", &[("checkrun flakes", "with how often each passed and failed")]),
    (
        "certify",
        &[
            ("checkrun certify s03 --ledger plan.json", "check and write down"),
            ("checkrun certify s03 --ledger plan.json --commit", "and commit on green"),
        ],
    ),
    (
        "rollback",
        &[
            ("checkrun rollback s03 --ledger plan.json --dry-run", "look first"),
            ("checkrun rollback s03 --ledger plan.json", "then do it"),
        ],
    ),
    ("partials", &[("checkrun partials", "the list"), ("checkrun partials apply NAME", "put one back")]),
    ("ledger", &[("checkrun ledger check plan.json", "status 1 with line and column if not")]),
    (
        "completions",
        &[
            ("checkrun completions bash > ~/.local/share/bash-completion/completions/checkrun", ""),
            ("checkrun completions zsh > ~/.zfunc/_checkrun", ""),
            ("checkrun completions fish > ~/.config/fish/completions/checkrun.fish", ""),
        ],
    ),
    ("man", &[("checkrun man > checkrun.1 && man ./checkrun.1", "read it")]),
];

/// Where the rest is, in commands that take the options of a check beside their own.
const SHARED: &str =
    "Which tree, which sandbox, which limits: options as in `checkrun run --help`, all of which work here.";

/// Everything, as the man page and the completions have it.
pub(super) fn complete() -> Command {
    let mut command = Cli::command();
    for (name, examples) in EXAMPLES {
        command = command.mut_subcommand(name, |it| it.before_help(block(examples)));
    }
    command
}

/// What is parsed, and what `--help` shows of it: a screen for each command. The options of a check are shown where
/// they are at home, with `run`, and words that an option takes by its own text only.
pub(super) fn brief() -> Command {
    let run = ids(crate::cli::arguments::RunArgs::augment_args(Command::new("")));
    let check = ids(crate::cli::arguments::CheckArgs::augment_args(Command::new("")));
    let confine = ids(crate::cli::arguments::ConfineArgs::augment_args(Command::new("")));
    let mut command =
        hidden(complete(), &run).mut_subcommand("run", |it| hidden(it, &["command_words".to_owned()]));
    for (name, shared) in [
        ("explain", &check),
        ("inputs", &check),
        ("flake", &check),
        ("prepare", &confine),
        ("reconcile", &confine),
        ("certify", &confine),
        ("rollback", &confine),
    ] {
        command = command.mut_subcommand(name, |it| {
            let status = it.get_after_help().map_or_else(String::new, |text| format!("\n\n{text}"));
            hidden(it, shared).after_help(format!("{SHARED}{status}"))
        });
    }
    command
}

fn ids(command: Command) -> Vec<String> {
    command.get_arguments().map(|it| it.get_id().to_string()).collect()
}

fn hidden(command: Command, ids: &[String]) -> Command {
    command.mut_args(|argument| {
        let hide = ids.iter().any(|id| argument.get_id() == id.as_str());
        let takes_words = argument.get_action().takes_values();
        if hide { argument.hide(true) } else { argument.hide_possible_values(takes_words) }
    })
}

/// Examples in two columns.
fn block(examples: &[(&str, &str)]) -> String {
    let width = examples.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0);
    let lines: Vec<String> = examples
        .iter()
        .map(|(line, what)| format!("  {line:width$}  {what}").trim_end().to_owned())
        .collect();
    format!("Examples:\n{}", lines.join("\n"))
}

/// The command that a misspelt word most likely means. Short words are more often programs that lack their `--`.
pub(super) fn nearest_command(word: &str) -> Option<String> {
    let definition = Cli::command();
    let names: Vec<&str> =
        definition.get_subcommands().filter(|it| !it.is_hide_set()).map(Command::get_name).collect();
    let word = word.trim_start_matches('-');
    let long = word.chars().count() > 3;
    nearest(word, &names).filter(|_| long).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_commands_are_known_and_other_words_are_not() {
        for (word, meant) in [
            ("doctr", Some("doctor")),
            ("reconsile", Some("reconcile")),
            ("flak", Some("flake")),
            ("explian", Some("explain")),
            ("--doctor", Some("doctor")),
            ("go", None),
            ("npm", None),
            ("make", None),
            ("cargo", None),
            ("pytest", None),
            ("", None),
        ] {
            assert_eq!(nearest_command(word).as_deref(), meant, "{word}");
        }
    }
}
