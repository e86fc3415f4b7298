//! Published packages whose tests are known to be flaky, and whether the cause is found: one each time, all with
//! `CHECKRUN_LONG=1`. Where they come from is in `.ci/tools`; what was found for these and others is in `docs/flakes.md`.

use crate::flake_causes::explain_with;
use crate::real::{plant, tool};
use crate::support::{Env, Who, say};

const PYTEST: [&str; 5] = ["/usr/bin/python3", "-m", "pytest", "-p", "no:cacheprovider"];

struct Package {
    name: &'static str,
    options: &'static [&'static str],
    /// Words after pytest's.
    tests: &'static [&'static str],
    cause: &'static str,
    /// A word of what is told.
    told: &'static str,
}

// spulec/freezegun#407: passes once in a process.
const BASE: [Package; 1] = [Package {
    name: "freezegun",
    options: &["--axis", "repetition"],
    tests: &["tests/test_class_import.py"],
    cause: "non-idempotent",
    told: "--keep-duplicates",
}];
// From the dataset of flaky tests IDoFT: tests that depend on those before them.
const LONG: [Package; 1] = [Package {
    name: "logzero",
    options: &["--axis", "order"],
    tests: &["tests/test_logzero.py"],
    cause: "test-order",
    told: "test_default_logger_stderr_output",
}];

#[test]
fn the_cause_of_flaky_tests_of_published_packages_is_found() {
    let is_long = std::env::var_os("CHECKRUN_LONG").is_some();
    let also: &[Package] = if is_long { &LONG } else { &[] };
    for package in BASE.iter().chain(also) {
        let env = Env::of(Who::User);
        plant(&env, &tool(package.name));
        let options = [package.options, &["--env", "PYTHONPATH=/src"]].concat();
        let told = explain_with(&env, &options, &[&PYTEST[..], package.tests].concat());
        assert_eq!(told["cause"], package.cause, "{}: {told}", package.name);
        assert!(told.to_string().contains(package.told), "{}: {told}", package.name);
        say(&format!("{}: {} runs", package.name, told["runs"]));
    }
}
