//! Each test of a flaky check by name, from what real runners print.

use crate::support::{Env, Output};
use serde_json::Value;

/// Runs a command of the repository many times; the tests that did not always pass.
fn flake(env: &Env, runs: &str, command: &[&str]) -> (Output, Value) {
    let mut args = vec!["flake", "--format", "json", "--runs", runs, "--"];
    args.extend(command);
    let output = env.checkrun(&args);
    let tests = output.json()["tests"].clone();
    (output, tests)
}

fn ids(tests: &Value) -> Vec<String> {
    let list = tests["list"].as_array().unwrap_or_else(|| panic!("{tests}"));
    list.iter()
        .map(|test| format!("{} {}", test["verdict"].as_str().unwrap(), test["id"].as_str().unwrap()))
        .collect()
}

const UNITTEST: &str = "import random, sys\n\
    good = random.SystemRandom().random() < 0.5\n\
    print('TAP version 13\\n1..3\\nok 1 - always')\n\
    print('ok 2 - sometimes' if good else 'not ok 2 - sometimes')\n\
    print('not ok 3 - never')\n\
    sys.exit(1)\n";

#[test]
fn each_test_has_counts_of_its_own() {
    let env = Env::new();
    env.write("suite.py", UNITTEST);
    let (_, tests) = flake(&env, "24", &["/usr/bin/python3", "suite.py"]);
    assert_eq!(ids(&tests), ["failing never", "flaky sometimes"]);
    assert_eq!((tests["seen"].as_u64(), tests["stable"].as_u64()), (Some(3), Some(1)));
    let sometimes = &tests["list"][1];
    assert_eq!(sometimes["passed"].as_u64().unwrap() + sometimes["failed"].as_u64().unwrap(), 24);
}

// golang/go#38382: a test that was started and never ended is not a pass.
#[test]
fn a_test_that_never_ended_is_aborted() {
    let env = Env::new();
    let script = "echo '=== RUN   TestA'; echo '--- PASS: TestA (0.00s)'; echo '=== RUN   TestB'; exit 2";
    let (_, tests) = flake(&env, "3", &["sh", "-c", script]);
    assert_eq!(ids(&tests), ["failing TestB"]);
    assert_eq!(tests["list"][0]["aborted"].as_u64(), Some(3));
}

// pytest-rerunfailures and nextest try again within one run: one test, which is flaky though the run passed.
#[test]
fn attempts_under_one_name_are_one_test() {
    let env = Env::new();
    let script = "echo '  TRY 1 FAIL [   0.004s] krate a::two'; echo '  TRY 2 PASS [   0.004s] krate a::two'";
    let (output, tests) = flake(&env, "3", &["sh", "-c", script]);
    assert_eq!(output.status, 0);
    assert_eq!(ids(&tests), ["flaky krate a::two"]);
    assert_eq!((tests["seen"].as_u64(), tests["list"][0]["retried"].as_u64()), (Some(1), Some(3)));
}

// pytest-dev/pytest#1075
#[test]
fn names_that_change_each_run_are_told() {
    let env = Env::new();
    let script = "echo \"test_a.py::test_x[$(od -An -N4 -tx4 /dev/urandom | tr -d ' ')0] PASSED [100%]\"";
    let (_, tests) = flake(&env, "6", &["sh", "-c", script]);
    assert_eq!(tests["unstable_names"], serde_json::json!(["test_a.py::test_x[#]"]));
}
