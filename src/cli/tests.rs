//! Command lines and what they come to.
#![forbid(unsafe_code)]

use super::*;
use crate::model::check::Guard;
use crate::model::event::Format;
use crate::model::guise::Variation;
use crate::model::policy::{Aslr, ClockMode, ClockStart, ClockWish, Overrides};
use crate::model::units::Bytes;
use std::path::PathBuf;
use std::time::Duration;

fn read(line: &str) -> Result<Invocation, Exit> {
    parse(std::iter::once("checkrun").chain(line.split_whitespace()).map(OsString::from))
}

fn run(line: &str) -> RunRequest {
    match read(line).map(|invocation| invocation.request) {
        Ok(Request::Run(run)) => *run,
        other => panic!("{line}: {other:?}"),
    }
}

fn argv(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

#[test]
fn definitions_are_sound() {
    help::complete().debug_assert();
    help::brief().debug_assert();
}

#[test]
fn the_word_run_may_be_left_out() {
    let expected = run("run --tree HEAD~2 --timeout 90s -- go test -v ./...");
    assert_eq!(run("--tree HEAD~2 --timeout 90s -- go test -v ./..."), expected);
    assert_eq!(expected.check.argv, argv(&["go", "test", "-v", "./..."]));
    assert_eq!(expected.check.tree, TreeChoice::Revision("HEAD~2".to_owned()));
    assert_eq!(run("-- log").check.argv, argv(&["log"]));
    assert_eq!(run("--tree log -- x").check.tree, TreeChoice::Revision("log".to_owned()));
    assert_eq!(run("-- x -- y").check.argv, argv(&["x", "--", "y"]));
}

#[test]
fn a_string_and_a_list_are_the_same_command() {
    let string = |string: &str| {
        let words = ["checkrun", "-c", string].map(OsString::from);
        match parse(words.into_iter()).map(|invocation| invocation.request) {
            Ok(Request::Run(run)) => Ok(run.check.argv),
            Err(exit) => Err(exit.status),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(string("go test './...'"), Ok(argv(&["go", "test", "./..."])));
    assert_eq!(string("a && b"), Ok(argv(&["sh", "-c", "a && b"])));
    assert_eq!(string(" "), Err(125));
}

#[test]
fn every_option_arrives() {
    let line = "-C there --format json -v --staged --cwd sub --guard touches --policy strict --runner go --env A=b=c \
                --env HOMEY --clock 2020-02-02T00:00:00Z --clock-mode frozen --timeout 10m --memory 4GiB --cpus 1.5 --pids 9 --disk 1GiB --output-limit 1MiB --aslr off --umask 027 --vary user=0 --vary hostname=b \
                --scope a --scope :!b --touches c --require-tests --refresh --show-output --output o.json --log l.txt -- x";
    let invocation = read(line).unwrap();
    assert_eq!(
        invocation.global,
        Global { directory: Some(PathBuf::from("there")), format: Format::Json, quiet: false, verbose: true }
    );
    let run = run(line);
    assert_eq!(run.check.tree, TreeChoice::Staged);
    assert_eq!(
        (run.check.scope.as_slice(), run.check.guard),
        (["a", ":!b"].map(str::to_owned).as_slice(), Guard::Touches)
    );
    assert_eq!(run.check.touches, ["c"]);
    assert_eq!(run.check.cwd, Some(PathBuf::from("sub")));
    assert_eq!((run.check.policy.as_deref(), run.check.runner.as_deref()), (Some("strict"), Some("go")));
    let variable = |name: &str, value: Option<&str>| PassedVariable {
        name: name.into(),
        value: value.map(|value| value.as_bytes().to_vec()),
    };
    assert_eq!(run.check.env, [variable("A", Some("b=c")), variable("HOMEY", None)]);
    let expected = Overrides {
        timeout: Some(Duration::from_secs(600)),
        memory: Some(Bytes(4 << 30)),
        pids: Some(9),
        cpus_milli: Some(1500),
        disk: Some(Bytes(1 << 30)),
        output: Some(Bytes(1 << 20)),
        aslr: Some(Aslr::Off),
        umask: Some(0o027),
        varied: vec![Variation::User(0), Variation::HostName("b".to_owned())],
    };
    assert_eq!(run.check.overrides, expected);
    let clock = ClockWish { start: Some(ClockStart::At(1_580_601_600)), mode: Some(ClockMode::Frozen) };
    assert_eq!(run.check.clock, clock);
    assert_eq!(run.check.require_tests, Some(1));
    assert_eq!(run.cache, CacheMode::Refresh);
    let output = OutputRequest {
        result: Some(PathBuf::from("o.json")),
        log: Some(PathBuf::from("l.txt")),
        junit: None,
        show: true,
    };
    assert_eq!(run.output, output);
}

#[test]
fn commands_take_the_options_of_all() {
    for (line, request) in [
        ("log --tree HEAD", Request::Log { tree: Some("HEAD".to_owned()) }),
        ("-C x log", Request::Log { tree: None }),
        ("show b3:12 --log", Request::Show { record: "b3:12".to_owned(), log: true, inputs: false }),
        ("policies strict --format json", Request::Policies { name: Some("strict".to_owned()) }),
        ("--format json runners", Request::Runners { name: None }),
        ("doctor -v", Request::Doctor),
        ("init", Request::Init),
        ("gc --max-size 2GiB", Request::Gc(Gc { max_size: Some(Bytes(2 << 30)), max_age: None })),
    ] {
        assert_eq!(read(line).unwrap().request, request, "{line}");
    }
    assert!(matches!(read("explain --tree HEAD -- go test").unwrap().request, Request::Explain(_)));
    assert_eq!(read("-C x log").unwrap().global.directory, Some(PathBuf::from("x")));
    assert_eq!(read("log -C x").unwrap().global.directory, Some(PathBuf::from("x")));
}

#[test]
fn slips_are_status_125_on_stderr_and_say_what_is_wrong() {
    for (line, expected) in [
        ("", "no command to check"),
        ("run", "no command to check"),
        ("explain", "no command to check"),
        ("go test ./...", "after `--`"),
        ("--treee HEAD -- x", "--tree"),
        ("--tree HEAD --staged -- x", "cannot be used with"),
        ("--refresh --no-cache -- x", "cannot be used with"),
        ("-q -v -- x", "cannot be used with"),
        ("--memory bananas -- x", "`bananas` is not a size"),
        ("--memory 0 -- x", "nothing at all"),
        ("--timeout soon -- x", "`soon` is not a duration"),
        ("--cpus none -- x", "`none` is not a number of processors"),
        ("--pids 0 -- x", "--pids"),
        ("--guard touches -- x", "add `--touches PATHSPEC`"),
        ("--guard exact --touches a -- x", "no effect"),
        ("--clock tomorrow -- x", "`tomorrow` is not an instant"),
        ("--clock 2026-01-01 -- x", "write it as RFC 3339"),
        ("--clock 1969-12-31T23:59:59Z -- x", "outside the years 1970 to 2262"),
        ("--clock 2263-01-01T00:00:00Z -- x", "outside the years 1970 to 2262"),
        ("--clock 2026-01-01T00:00:00.5Z -- x", "whole seconds"),
        ("--clock host --clock-mode frozen -- x", "no effect on the host's clock"),
        ("--clock-mode sideways -- x", "sideways"),
        ("--env =x -- x", "--env"),
        ("--format yaml -- x", "yaml"),
        ("--show-output -- x", "no effect"),
        ("--tree HEAD log", "`--tree` stands before `log`"),
        ("--refresh explain -- x", "`--refresh` stands before `explain`"),
        ("explain --refresh -- x", "--refresh"),
        ("-c true -- x", "cannot be used with"),
        ("completions cobol", "cobol"),
        ("show", "KEY|ID"),
    ] {
        let exit = read(line).unwrap_err();
        assert_eq!((exit.status, exit.to_stdout), (125, false), "{line}");
        assert!(exit.text.starts_with("checkrun: ") && exit.text.contains(expected), "{line}: {}", exit.text);
    }
}

#[test]
fn help_and_version_are_no_errors() {
    for line in ["--help", "-h", "--version", "run --help", "gc --help"] {
        let exit = read(line).unwrap_err();
        assert_eq!((exit.status, exit.to_stdout), (0, true), "{line}");
    }
    let help = read("run --help").unwrap_err().text;
    let at = |word: &str| help.find(word).unwrap_or_else(|| panic!("{word} is not in {help}"));
    assert!(at("Examples:") < at("Usage:") && at("Usage:") < at("Limits:"));
}

#[test]
fn completions_and_the_manual_know_every_option() {
    for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
        assert!(String::from_utf8(completions(shell)).unwrap().contains("output-limit"), "{shell}");
    }
    let page = String::from_utf8(man().unwrap()).unwrap();
    assert!(page.contains(".SH \"CHECKRUN GC\"") && page.contains("max\\-size"), "{page}");
}
