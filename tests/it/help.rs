//! What the program says of itself: help that fits a screen, suggestions, the version, the manual page and completions, each
//! tried by the program that reads it.

use crate::support::{Env, run};
use std::collections::BTreeSet;
use std::process::Command;

/// Every command, its options and arguments behind it; the program itself has no word.
const COMMANDS: [&[&str]; 25] = [
    &[],
    &["run"],
    &["log"],
    &["show"],
    &["explain"],
    &["inputs"],
    &["policies"],
    &["runners"],
    &["doctor"],
    &["init"],
    &["prepare"],
    &["gc"],
    &["reconcile"],
    &["flake"],
    &["flakes"],
    &["certify"],
    &["rollback"],
    &["partials"],
    &["partials", "apply"],
    &["ledger"],
    &["ledger", "check"],
    &["completions"],
    &["man"],
    &["help-of-nothing"],
    &["ledger", "help-of-nothing"],
];

fn help(env: &Env, command: &[&str], columns: &str) -> String {
    run(env.command(command).arg("--help").env("COLUMNS", columns)).expect(0).out()
}

fn real() -> impl Iterator<Item = &'static [&'static str]> {
    COMMANDS.into_iter().filter(|command| command.last() != Some(&"help-of-nothing"))
}

#[test]
fn help_fits_a_screen_and_begins_with_examples() {
    let env = Env::new();
    for command in real() {
        let text = help(&env, command, "80");
        let lines: Vec<&str> = text.lines().collect();
        let most = match command {
            [] => 50,
            ["run"] => 60,
            // Beside their own options these take those of a check, which are shown with `run`.
            ["flake" | "reconcile" | "certify" | "rollback" | "prepare"] => 40,
            _ => 24,
        };
        assert!(lines.len() <= most, "{command:?}: {} lines\n{text}", lines.len());
        let widest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(widest <= 80, "{command:?}: {widest} columns\n{text}");
        // Words of two letters and more that the line above left no room for.
        let has_examples = command.len() < 2;
        assert_eq!(has_examples, lines[0] == "Examples:", "{command:?}\n{text}");
        if has_examples {
            assert!(lines[1].starts_with("  checkrun "), "{command:?}\n{text}");
        }
        assert!(text.contains("Usage: checkrun") && text.contains("\nEverywhere:\n"), "{command:?}\n{text}");
        assert_eq!(run(env.command(command).arg("-h").env("COLUMNS", "80")).expect(0).out(), text);
    }
    for nothing in COMMANDS.iter().filter(|command| command.last() == Some(&"help-of-nothing")) {
        assert_eq!(run(env.command(nothing).arg("--help")).status, 125, "{nothing:?}");
    }
    // None is left out of the list above.
    let top = help(&env, &[], "80");
    let (_, list) = top.split_once("\nCommands:\n").unwrap();
    let listed: BTreeSet<&str> = list
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(listed, real().filter_map(|command| command.first().copied()).collect());
}

/// What the examples show is taken: the words are those of the program.
#[test]
fn every_example_is_a_command_line_that_is_understood() {
    let env = Env::new();
    env.write("f", "").commit();
    let mut count = 0;
    for command in real().filter(|command| command.len() < 2) {
        let text = help(&env, command, "200");
        for line in text.lines().skip(1).take_while(|line| line.starts_with("  checkrun ")) {
            let words = line.trim().split("  ").next().unwrap();
            // Only whether it is understood, which is told before anything is done: there is no such folder.
            let line = words.split([' ']).skip(1).collect::<Vec<_>>().join(" ");
            if line.contains("--help") {
                continue;
            }
            let line = line.split(" > ").next().unwrap().split(" | ").next().unwrap();
            let script = format!("\"$0\" -C /no/such/folder {line}");
            let output = run(&mut env.wrapped(&["bash", "-c", &script], &[]));
            assert!(
                output.err().contains("`-C /no/such/folder`: no such folder"),
                "{line}: {}",
                output.err()
            );
            count += 1;
        }
    }
    assert!(count >= 35, "{count} examples");
}

#[test]
fn a_misspelt_word_is_answered_with_the_nearest_one() {
    let env = Env::new();
    env.write("plan.json", r#"{"task":"t","steps":[{"id":"step-one","check":"true"}]}"#).commit();
    let mine = env.path("mine.toml");
    let good = include_str!("../../policies/hermetic.toml");
    std::fs::write(&mine, good.replacen("memory = ", "memroy = ", 1)).unwrap();
    let mine = mine.to_str().unwrap();
    for (args, nearest) in [
        (&["doctr"][..], "`checkrun doctor`"),
        (&["reconsile", "plan.json"], "`checkrun reconcile`"),
        (&["--polcy", "strict", "--", "true"], "'--policy'"),
        (&["flake", "--until-fial", "--", "true"], "'--until-fail'"),
        (&["explain", "--timout", "1s", "--", "true"], "'--timeout'"),
        (&["--format", "jsno", "--", "true"], "'json'"),
        (&["completions", "bsh"], "'bash'"),
        (&["--guard", "input", "--", "true"], "'inputs'"),
        (&["--policy", "hermetc", "--", "true"], "hermetic"),
        (&["--runner", "pyton", "--", "true"], "python"),
        (&["--policy", mine, "--", "true"], "memory"),
        (&["certify", "step-on", "--ledger", "plan.json"], "step-one"),
    ] {
        drop(env.checkrun(args).refused(&[nearest]));
    }
}

#[test]
fn the_version_is_a_line_and_the_long_form_says_what_this_build_is() {
    let env = Env::new();
    let short = env.checkrun(&["-V"]).expect(0).out();
    assert_eq!(short, format!("checkrun {}\n", env!("CARGO_PKG_VERSION")));
    let long = env.checkrun(&["--version"]).expect(0).out();
    assert!(long.starts_with(&short), "{long}");
    assert!(long.lines().count() <= 12 && long.lines().all(|line| line.len() <= 80), "{long}");
    let row = |name: &str| {
        let line = long.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no `{name}`:\n{long}")).trim_start().to_owned()
    };
    assert!(row("build ").starts_with(std::env::consts::ARCH) && row("build ").contains("debug"), "{long}");
    assert_eq!(row("commit "), option_env!("CHECKRUN_COMMIT").unwrap_or("not told"));
    assert!(
        row("features ").contains("clock fixed") && row("kernel ").starts_with("Landlock ABI 1 to "),
        "{long}"
    );
    // The layers are those of the record.
    let had = env.sh("true").expect(0).json()["sandbox"]["layers"].clone();
    for layer in had.as_object().unwrap().keys() {
        assert!(long.contains(layer), "{layer} is not in\n{long}");
    }
}

#[test]
fn the_manual_page_is_read_without_complaint_and_has_every_option() {
    let env = Env::new();
    let page = env.path("home/checkrun.1");
    std::fs::write(&page, env.checkrun(&["man"]).expect(0).stdout).unwrap();
    let mut groff = Command::new("groff");
    groff.args(["-man", "-ww", "-z", "-Tutf8"]).arg(&page);
    let output = run(&mut groff).expect(0);
    assert_eq!(output.err(), "", "groff, of Debian's groff-base");
    let mut man = Command::new("man");
    man.env("MANWIDTH", "80").env("MANROFFOPT", "-c").env("LC_ALL", "C.UTF-8").env("MANPAGER", "cat");
    let text = run(man.arg("-l").arg(&page)).expect(0).out();
    let plain = text.replace('\u{8}', "");
    for heading in ["NAME", "SYNOPSIS", "EXAMPLES", "SANDBOX", "CHECKRUN EXPLAIN", "CHECKRUN LEDGER", "FILES"]
    {
        assert!(plain.lines().any(|line| line == heading), "no {heading} in\n{plain}");
    }
    assert!(!plain.to_lowercase().contains("attempts-report"), "a hidden command is in the manual");
    let raw = std::fs::read_to_string(&page).unwrap().replace("\\-", "-");
    for command in real() {
        for option in help(&env, command, "200").lines().filter_map(|line| {
            let at = line.find("--")?;
            let start = line.trim_start();
            start.starts_with('-').then(|| line[at..].split([' ', '[', '=']).next().unwrap().to_owned())
        }) {
            assert!(raw.contains(&option), "{option} of {command:?} is not in the manual");
        }
    }
}

/// Where a shell would put the script, and what it then offers.
#[test]
fn completions_are_taken_by_each_shell_and_offer_what_there_is() {
    let env = Env::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = env.checkrun(&["completions", shell]).expect(0).out();
        assert!(text.contains("require-tests") && text.contains("max-age"), "{shell}");
        let json = env.checkrun(&["completions", shell, "--format", "json"]).expect(0).json();
        assert_eq!(json["text"], text.as_str());
    }
    let put = |shell: &str, name: &str| {
        let path = env.path(name);
        std::fs::write(&path, env.checkrun(&["completions", shell]).expect(0).stdout).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let shell = |program: &str, args: &[&str]| {
        let output = run(Command::new(program).args(args).env("HOME", env.path("home")).env("TERM", "dumb"));
        assert_eq!((output.status, output.err().as_str()), (0, ""), "{program} {args:?}");
        output.out()
    };
    let bash = put("bash", "checkrun.bash");
    shell("bash", &["-n", &bash]);
    let offered = |words: &str, at: u32, word: &str| {
        let script = format!(
            "set -u; . {bash}; complete -p checkrun >/dev/null; COMP_WORDS=({words}); COMP_CWORD={at}; \
             _checkrun checkrun '{word}' x; echo \"${{COMPREPLY[@]}}\""
        );
        shell("bash", &["--norc", "-c", &script])
    };
    assert_eq!(offered("checkrun --ref", 1, "--ref"), "--refresh\n");
    assert_eq!(offered("checkrun recon", 1, "recon"), "reconcile\n");
    assert_eq!(offered("checkrun explain --touc", 2, "--touc"), "--touches\n");
    assert_eq!(offered("checkrun completions zs", 2, "zs"), "zsh\n");
    let zsh = put("zsh", "_checkrun");
    shell("zsh", &["-n", &zsh]);
    let folder = env.path("");
    let load = format!(
        "fpath=({} $fpath); autoload -Uz compinit; compinit -u -D; echo ${{_comps[checkrun]}}",
        folder.display()
    );
    assert_eq!(shell("zsh", &["-f", "-c", &load]), "_checkrun\n");
    let fish = put("fish", "checkrun.fish");
    shell("fish", &["--no-execute", &fish]);
    let asked = |line: &str| shell("fish", &["-N", "-c", &format!("source {fish}; complete -C '{line}'")]);
    assert!(asked("checkrun recon").starts_with("reconcile\t"), "{}", asked("checkrun recon"));
    assert!(asked("checkrun run --guard ").contains("touches\t"), "{}", asked("checkrun run --guard "));
}
