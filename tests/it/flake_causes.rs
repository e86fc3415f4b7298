//! Why a check is flaky: experiments on checks whose cause is known.

use crate::support::{Env, Who};
use serde_json::Value;

/// The experiment on a check; json.
fn explain(env: &Env, script: &str) -> Value {
    explain_with(env, &[], &["sh", "-c", script])
}

/// The same, with options and any command.
pub fn explain_with(env: &Env, options: &[&str], command: &[&str]) -> Value {
    let start = ["flake", "--explain", "--format", "json"];
    let output = env.checkrun(&[&start[..], options, &["--"], command].concat());
    assert!([0, 1, 3].contains(&output.status), "{output:?}");
    let told = output.json();
    crate::schemas::holds("flake_explained", std::slice::from_ref(&told));
    told
}

// dateformat 1.0.12 (felixge/node-dateformat#41) failed in other time zones.
#[test]
fn a_time_zone_is_named_as_the_cause() {
    let env = Env::new();
    let told = explain(&env, "test \"$(date +%Z)\" = UTC");
    assert_eq!((&told["cause"], &told["edges"]), (&"timezone".into(), &serde_json::json!([])), "{told}");
    assert!(told["fails"][0].as_str().unwrap().contains("--env TZ="), "{told}");
    assert!(told["passes"][0].as_str().unwrap().starts_with("checkrun --refresh -- sh"), "{told}");
}

// rustls-platform-verifier 0.1.0 passed in a window of dates only.
#[test]
fn a_window_of_dates_is_found_to_the_second_on_both_sides() {
    let env = Env::new();
    let script = "now=$(date +%s); test $now -ge 1696809600 && test $now -lt 1782864000";
    let page = env.path("home/why.html");
    let told = explain_with(&env, &["--html", page.to_str().unwrap()], &["sh", "-c", script]);
    assert_eq!(told["cause"], "date", "{told}");
    let edges = told["edges"].as_array().unwrap();
    assert_eq!(edges.len(), 2, "{told}");
    for (edge, date) in edges.iter().zip(["2023-10-09T00:00:00Z", "2026-07-01T00:00:00Z"]) {
        assert_eq!(edge["after"], date, "{edge}");
    }
    assert_eq!((&edges[0]["passes_before"], &edges[1]["passes_before"]), (&false.into(), &true.into()));
    crate::flake_pages::shows_its_calendar(&page);
}

// vacanza/holidays#234, on a slow machine: what started two seconds before the year's end read the clock after it.
#[test]
fn an_edge_is_found_though_a_run_that_began_before_it_ended_after_it() {
    let env = Env::new();
    let script = "test $(date +%m%d%H%M) != 12312359 || sleep 3; test $(date +%Y) -lt 2027";
    let told = explain_with(&env, &["--axis", "clock"], &["sh", "-c", script]);
    assert_eq!(told["cause"], "date", "{told}");
    let edge = serde_json::json!({"before": "2026-12-31T23:59:59Z", "after": "2027-01-01T00:00:00Z", "passes_before": true});
    assert_eq!(told["edges"], serde_json::json!([edge]), "{told}");
}

#[test]
fn a_seed_is_named_as_the_cause() {
    let env = Env::new();
    // Python's own runner fixes the seed; this one leaves it as it is. Three seeds of four fail, so that eight runs under
    // one that does not stand out; both letters have odd hashes under the seeds that are tried.
    let args =
        ["flake", "--explain", "--format", "json", "--runner", "generic", "--", "/usr/bin/python3", "-c"];
    let told =
        env.checkrun(&[&args[..], &["assert hash('a') % 2 and hash('h') % 2"]].concat()).expect(3).json();
    assert_eq!(told["cause"], "unordered-collection", "{told}");
}

#[test]
fn a_seed_that_the_runner_fixes_is_turned_all_the_same() {
    let env = Env::new();
    // Under seed 0, which the runner sets, it passes each time.
    let seeded = "print(hash('a') % 10000)";
    let hash = env.python(&["--format", "json", "--env", "PYTHONHASHSEED=0"], seeded).expect(0).json();
    let script = format!("assert hash('a') % 10000 == {}", hash["tail"].as_str().unwrap().trim());
    let told = explain_with(&env, &["--axis", "hash_seed"], &["/usr/bin/python3", "-c", &script]);
    assert_eq!(
        (&told["cause"], told["base"]["failed"].as_u64()),
        (&"unordered-collection".into(), Some(0)),
        "{told}"
    );
}

#[test]
fn what_a_process_starts_with_is_named_as_the_cause() {
    let env = Env::new();
    let told = explain_with(&env, &["--axis", "umask"], &["sh", "-c", "test $(umask) = 0022"]);
    assert_eq!(told["cause"], "umask", "{told}");
    assert!(told["fails"][0].as_str().unwrap().starts_with("checkrun --refresh --umask 0"), "{told}");
    let told = explain_with(&env, &["--axis", "terminal"], &["sh", "-c", "test $TERM = dumb"]);
    assert_eq!(told["cause"], "terminal", "{told}");
    // The text segment of a program that is linked to run anywhere.
    let where_ = "import ctypes; a = ctypes.addressof(ctypes.c_int()); assert (a >> 14) % 4 != 1, hex(a)";
    let told = explain_with(&env, &["--axis", "aslr"], &["/usr/bin/python3", "-c", where_]);
    assert!(told["base"]["failed"].as_u64() > Some(0), "{told}");
    assert_eq!(told["arms"][0]["options"], "--aslr off");
    let arm = &told["arms"][0]["screened"];
    assert!(arm["passed"] == 8 || arm["failed"] == 8, "without it, each run is as the other: {told}");
}

#[test]
fn one_core_is_named_as_the_cause() {
    let env = Env::of(Who::Root);
    let one = "import os; assert len(os.sched_getaffinity(0)) > 1";
    let told = explain_with(&env, &["--axis", "cores", "--axis", "cpu"], &["/usr/bin/python3", "-c", one]);
    assert_eq!(
        (&told["cause"], &told["causes"]),
        (&"concurrency".into(), &serde_json::json!(["concurrency"])),
        "{told}"
    );
}

const DEPENDENT: &str = "state = {}
def test_1(): pass
def test_victim(): assert 'dirt' not in state
def test_setter(): state['set'] = 1
def test_2(): pass
def test_brittle(): assert 'set' in state
def test_polluter(): state['dirt'] = 1
";

// logzero 1.5.0 and lithoxyl 21.0.0 have tests that pass in the order of the file only.
#[test]
fn victim_brittle_and_polluter_are_named() {
    let env = Env::new();
    env.write("test_a.py", DEPENDENT);
    let command = ["/usr/bin/python3", "-m", "pytest", "-p", "no:cacheprovider", "test_a.py"];
    let told = explain_with(&env, &["--axis", "order"], &command);
    assert_eq!(told["cause"], "test-order", "{told}");
    let mut tests: Vec<String> = told["tests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| format!("{} {} {}", it["kind"], it["test"], it["other"]).replace("test_a.py::", ""))
        .collect();
    tests.sort();
    assert_eq!(
        tests,
        [r#""brittle" "test_brittle" "test_setter""#, r#""victim" "test_victim" "test_polluter""#],
        "{told}"
    );
    for it in told["tests"].as_array().unwrap() {
        assert_eq!((it["fails"][1].as_f64(), it["passes"][1].as_f64()), (Some(1.0), Some(0.0)), "{it}");
    }
    // What is told can be run.
    let passes = told["passes"][0].as_str().unwrap();
    let words: Vec<&str> = passes.split(' ').skip(1).collect();
    env.checkrun(&words).expect(0);
}

// freezegun 0.3.12 (spulec/freezegun#407): a test that passes once in a process.
#[test]
fn a_test_that_passes_once_in_a_process_is_named() {
    let env = Env::new();
    env.write(
        "test_b.py",
        "seen = []\ndef test_once():\n    seen.append(1)\n    assert len(seen) == 1\ndef test_2(): pass\n",
    );
    let command = ["/usr/bin/python3", "-m", "pytest", "-p", "no:cacheprovider", "test_b.py"];
    let told = explain_with(&env, &["--axis", "repetition"], &command);
    assert_eq!(told["cause"], "non-idempotent", "{told}");
}

// What runs out by and by: files that are opened and never closed, ports, handles.
#[test]
fn a_test_that_leaks_until_the_fiftieth_time_in_a_process_is_named() {
    let env = Env::new();
    env.write(
        "test_c.py",
        "held = []\ndef test_leak():\n    held.append(1)\n    assert len(held) < 50\ndef test_2(): pass\n",
    );
    let command = ["/usr/bin/python3", "-m", "pytest", "-p", "no:cacheprovider", "test_c.py"];
    let told = explain_with(&env, &["--axis", "repetition"], &command);
    assert_eq!(
        (&told["cause"], &told["arms"][0]["screened"]["failed"]),
        (&"non-idempotent".into(), &0.into()),
        "{told}"
    );
}

#[test]
fn a_check_that_is_never_done_in_time_is_not_run_some_hundred_times() {
    let env = Env::new();
    let args = ["flake", "--explain", "--timeout", "1s", "--", "sleep", "60"];
    env.checkrun(&args).refused(&["cannot be explained", "past its timeout", "`--timeout`"]);
    let runs = env.checkrun(&["log", "--format", "jsonl"]).expect(0).out().lines().count();
    assert!((2..=6).contains(&runs), "{runs} runs");
}

#[test]
fn pure_chance_and_a_sound_check_have_no_cause() {
    let env = Env::new();
    for script in ["exit $(( $(od -An -N1 -tu1 /dev/urandom) < 77 ))", "exit 0"] {
        let none = |told: &Value| told["cause"].is_null() && told["fails"].is_null();
        let told = explain(&env, script);
        if !none(&told) {
            // Chance looks like a cause once in a hundred sessions, and hardly twice in three.
            let [one, other] = [explain(&env, script), explain(&env, script)];
            assert!(none(&one) && none(&other), "{told} {one} {other}");
        }
    }
}
