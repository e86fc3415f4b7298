//! What the project says of itself: README, change log and help agree with each other and with what is there.

use crate::support::{Env, Who, say};
use std::collections::BTreeSet;
use std::path::Path;

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The text of the README from one heading to the next.
fn section(heading: &str) -> String {
    let readme = read("README.md");
    let (_, after) =
        readme.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no `{heading}`"));
    after.split("\n## ").next().expect("a part").to_owned()
}

/// The options that a text names: `--word` and `-x`, at the start of a word or behind a quote or bracket.
fn options(text: &str) -> BTreeSet<String> {
    let word = |from: &str| -> String {
        from.chars().take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '-').collect()
    };
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices('-') {
        let starts = at == 0 || text[..at].ends_with(['\n', ' ', '`', '[', '(', '|', '\'']);
        let option = word(&text[at..]);
        let long = option.starts_with("--") && option.len() > 3;
        let short = option.len() == 2 && option.ends_with(|letter: char| letter.is_ascii_alphabetic());
        if starts && (long || short) {
            found.insert(option);
        }
    }
    found
}

/// Help of the program, or of one of its commands.
fn help(env: &Env, command: Option<&str>) -> String {
    let args: Vec<&str> = command.into_iter().chain(["--help"]).collect();
    env.checkrun(&args).expect(0).out()
}

/// The commands that the program's help lists.
fn commands(help: &str) -> Vec<String> {
    let (_, list) = help.split_once("\nCommands:\n").expect("a list of commands");
    // Deeper lines go on with the text of the one above.
    let lines = list.lines().take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn every_option_and_command_is_in_the_readme_and_every_one_there_is_real() {
    let env = Env::of(Who::User);
    let top = help(&env, None);
    let mut real = options(&top);
    let said = section("What you can ask");
    for command in commands(&top) {
        real.append(&mut options(&help(&env, Some(&command))));
        let named = said.contains(&format!("`checkrun {command}")) || command == "run";
        assert!(named, "README.md does not name `checkrun {command}`");
    }
    assert!(real.len() > 25, "the help was not read: {real:?}");
    // The short form of `--help` goes without saying, and so does that of `--version`.
    real.retain(|option| option != "-h" && option != "-V");
    let table: String =
        said.lines().filter(|line| line.starts_with('|')).map(|line| format!("{line}\n")).collect();
    let told = options(&table.replace("|---|---|---|", "").replace("|---|---|", "").replace(" `-- ", " "));
    let missing: Vec<_> = real.difference(&told).filter(|option| *option != "-c").collect();
    assert!(missing.is_empty(), "in the help and not in README.md: {missing:?}");
    assert!(said.contains("with `-c '"), "README.md does not tell of `-c`");
    let invented: Vec<_> = told.difference(&real).collect();
    assert!(invented.is_empty(), "in README.md and not in the help: {invented:?}");
}

#[test]
fn every_policy_and_runner_is_in_the_readme() {
    let said = section("What you can ask");
    for folder in ["policies", "runners"] {
        let mut count = 0;
        for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).expect(folder) {
            let path = entry.expect("an entry").path();
            let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name").to_owned();
            assert!(said.contains(&format!("`{name}`")), "README.md does not name `{name}` of {folder}/");
            count += 1;
        }
        assert!(count > 1, "nothing in {folder}/");
    }
}

#[test]
fn what_the_readme_points_to_is_there() {
    let readme = read("README.md");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let targets: Vec<&str> = readme
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|to| !to.contains("://"))
        .collect();
    assert!(targets.len() >= 3, "{targets:?}");
    for target in targets.into_iter().chain([".ci/run", ".ci/tools", "benches/run"]) {
        assert!(root.join(target).exists(), "README.md points to {target}, which is not there");
    }
    assert!(readme.contains("    bash .ci/run "), "README.md does not say how to run all tests");
}

/// Headings as on keepachangelog.com, the unreleased part first and each version once.
#[test]
fn the_change_log_keeps_its_form() {
    let log = read("CHANGELOG.md");
    let versions: Vec<&str> = log.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(versions.first(), Some(&"[Unreleased]"));
    for version in &versions[1..] {
        let (name, date) = version.split_once(" - ").unwrap_or_else(|| panic!("`{version}` has no date"));
        assert!(name.starts_with('[') && name.ends_with(']') && date.len() == 10, "`{version}`");
    }
    assert_eq!(versions.iter().collect::<BTreeSet<_>>().len(), versions.len(), "a version stands twice");
    let kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];
    for kind in log.lines().filter_map(|line| line.strip_prefix("### ")) {
        assert!(kinds.contains(&kind), "`### {kind}`; accepted are {kinds:?}");
    }
}

#[test]
fn every_promise_of_security_md_names_tests_that_exist() {
    let text = read("SECURITY.md");
    let (_, promises) = text.split_once("\n|---|---|\n").expect("a table of promises");
    let rows: Vec<&str> = promises.lines().take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() >= 15, "{rows:?}");
    let mut named = 0;
    for row in rows {
        let shown_by = row.trim_end_matches('|').rsplit('|').next().expect("a column");
        let tests: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "a promise that nothing shows: {row}");
        for test in tests {
            let (module, function) = test.split_once("::").unwrap_or_else(|| panic!("`{test}`"));
            let source = read(&format!("tests/it/{module}.rs"));
            assert!(source.contains(&format!("#[test]\nfn {function}()")), "there is no test `{test}`");
            named += 1;
        }
    }
    say(&format!("{named} tests named by SECURITY.md"));
}
