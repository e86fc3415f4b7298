//! Published packages whose tests are known to be flaky, and whether the cause is found: one as a rule, the
//! others are ignored (`cargo nextest run --run-ignored all`). Where they come from is in `.ci/tools`; what was found for
//! these and others is in `docs/flakes.md`.

use crate::flake_causes::explain_with;
use crate::real::{open_tool, plant, tool};
use crate::support::{Env, Who, program, run, say};

/// One package and what is to be found out about it.
struct Package {
    /// Where it lies among the tools; nothing where the test has made its own.
    from: Option<&'static str>,
    options: &'static [&'static str],
    command: &'static [&'static str],
    cause: &'static str,
    /// Where the outcome turns with the date, and whether it passes before.
    edges: &'static [(&'static str, bool)],
    /// What is told besides.
    told: &'static [&'static str],
}

/// Has the cause found, and runs the two commands that are told with it.
fn is_explained(env: &Env, package: &Package) {
    if let Some(from) = package.from {
        plant(env, &tool(from));
    }
    let told = explain_with(env, package.options, package.command);
    assert_eq!(told["cause"], package.cause, "{told}");
    let edges: Vec<(&str, bool)> = told["edges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|edge| (edge["after"].as_str().unwrap(), edge["passes_before"].as_bool().unwrap()))
        .collect();
    assert_eq!(edges, package.edges, "{told}");
    let text = told.to_string();
    for part in package.told {
        assert!(text.contains(part), "`{part}` is not in {told}");
    }
    let status = |which: &str| {
        let command = told[which][0].as_str().unwrap();
        let words = command.strip_prefix("checkrun ").unwrap();
        let mut sh = env.as_who("sh");
        sh.args(["-c", &format!("exec {} {words}", program().display())]).current_dir(env.repo(""));
        run(sh.env("CHECKRUN_CACHE_DIR", env.path("cache"))).status
    };
    assert_eq!(status("passes"), 0, "{told}");
    assert!((1..=123).contains(&status("fails")), "{told}");
    say(&format!("{} runs, {} s, causes {}", told["runs"], told["secs"], told["causes"]));
}

// felixge/node-dateformat#41: what is expected was written down in one zone.
#[test]
fn dateformat_depends_on_the_time_zone() {
    let package = Package {
        from: Some("flaky/dateformat"),
        options: &["--axis", "timezone", "--deps", "found"],
        command: &["node", "node_modules/mocha/bin/_mocha", "test/test_formats.js"],
        cause: "timezone",
        edges: &[],
        told: &["TZ=Pacific/Kiritimati"],
    };
    is_explained(&Env::of(Who::User), &package);
}

// spulec/freezegun#407: the module that a test imports stays imported.
#[test]
#[ignore = "takes minutes"]
fn freezegun_has_a_test_that_passes_once_in_a_process() {
    let package = Package {
        from: Some("flaky/freezegun"),
        options: &["--axis", "repetition"],
        command: &[
            "/usr/bin/python3",
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "tests/test_class_import.py",
        ],
        cause: "non-idempotent",
        edges: &[],
        told: &["--keep-duplicates"],
    };
    is_explained(&Env::of(Who::User), &package);
}

// From the dataset of flaky tests IDoFT: what its logger was set to stays set.
#[test]
#[ignore = "takes minutes"]
fn logzero_has_a_test_that_depends_on_those_before_it() {
    let package = Package {
        from: Some("flaky/logzero"),
        options: &["--axis", "order"],
        command: &["/usr/bin/python3", "-m", "pytest", "-p", "no:cacheprovider", "tests/test_logzero.py"],
        cause: "test-order",
        edges: &[],
        told: &[
            r#""kind":"victim","test":"tests/test_logzero.py::test_write_to_logfile_and_stderr""#,
            r#""kind":"brittle","test":"tests/test_logzero.py::test_default_logger_stderr_output""#,
        ],
    };
    is_explained(&Env::of(Who::User), &package);
}

// vacanza/holidays#234: tests that count on the current year.
#[test]
#[ignore = "takes minutes"]
fn holidays_depends_on_the_year() {
    let package = Package {
        from: Some("holidays"),
        options: &["--axis", "clock", "--clock", "2019-06-01T00:00:00Z"],
        command: &["/usr/bin/python3", "-m", "unittest", "tests.TestIceland"],
        cause: "date",
        edges: &[("2019-01-01T00:00:00Z", false), ("2020-01-01T00:00:00Z", true)],
        told: &[],
    };
    is_explained(&Env::of(Who::User), &package);
}

// arthurdejong/python-stdnum#431: who was not born yet is born.
#[test]
#[ignore = "takes minutes"]
fn python_stdnum_depends_on_the_date() {
    let package = Package {
        from: Some("python-stdnum"),
        options: &["--axis", "clock"],
        command: &[
            "/usr/bin/python3",
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-o",
            "addopts=",
            "--doctest-glob=*.doctest",
            "tests/test_no_fodselsnummer.doctest",
        ],
        cause: "date",
        edges: &[("2015-11-26T00:00:00Z", false), ("2039-10-18T00:00:00Z", true)],
        told: &[],
    };
    is_explained(&Env::of(Who::User), &package);
}

// jaraco/tempora#7: a year and some hours later is another year at the end of one. The time zone moves that end, but it is
// the date that decides.
#[test]
#[ignore = "takes minutes"]
fn tempora_depends_on_the_date_before_it_depends_on_the_time_zone() {
    let package = Package {
        from: Some("flaky/tempora"),
        options: &["--axis", "clock", "--axis", "timezone"],
        command: &["/usr/bin/python3", "-m", "doctest", "tempora/__init__.py"],
        cause: "date",
        edges: &[("2024-02-29T18:11:00Z", false), ("2026-12-31T18:11:00Z", true)],
        told: &[r#""causes":["date","timezone"]"#],
    };
    is_explained(&Env::of(Who::User), &package);
}

// golang/go#71089: a chain of certificates ended on the first day of 2025. The program is static.
#[test]
#[ignore = "takes minutes"]
fn gos_own_tests_of_tls_depend_on_the_date() {
    let env = Env::of(Who::User);
    let go = open_tool("go");
    let mut build = env.as_who(go.join("bin/go"));
    build.args(["test", "-c", "-o", env.repo("tls.test").to_str().unwrap(), "crypto/tls"]);
    for (name, value) in [("GOTOOLCHAIN", "local"), ("CGO_ENABLED", "0"), ("GO111MODULE", "off")] {
        build.env(name, value);
    }
    drop(run(&mut build).expect(0));
    env.commit();
    let package = Package {
        from: None,
        options: &["--axis", "clock", "--clock", "2024-11-30T00:00:00Z"],
        command: &["./tls.test", "-test.run=^TestVerifyConnection$"],
        cause: "date",
        edges: &[("2016-01-01T00:00:00Z", false), ("2025-01-01T00:00:00Z", true)],
        told: &[],
    };
    is_explained(&env, &package);
}
