//! Quarantine: what is known to be flaky still runs and is told, and does not gate for a while; and counts of tests on record.

use crate::support::{EVERYBODY, Env, Output};
use serde_json::{Value, json};

const FILE: &str = ".checkrun-quarantine.toml";

/// An entry for the test `sometimes` that ends on that day.
fn entry(expires: &str) -> String {
    format!(
        "format = 1\n[[quarantine]]\ntest = \"sometimes\"\nowner = \"a team\"\nreason = \"a race\"\nfailed = 3\nruns = 50\n\
         expires = \"{expires}\"\n"
    )
}

/// A suite in which one test fails half of the time, with a line of shell before its end.
fn suite(also: &str) -> String {
    format!(
        "good=$(( $(od -An -N1 -tu1 /dev/urandom) < 128 )); echo 1..2; \
         if [ $good = 1 ]; then echo 'ok 1 - sometimes'; else echo 'not ok 1 - sometimes'; fi; {also}; [ $good = 1 ]"
    )
}

fn flake(env: &Env, options: &[&str], script: &str) -> Output {
    let start = ["flake", "--format", "json", "--runs", "24"];
    env.checkrun(&[&start[..], options, &["--", "sh", "-c", script]].concat())
}

fn always() -> String {
    suite("echo 'ok 2 - always'")
}

#[test]
fn what_is_in_quarantine_is_told_and_does_not_gate() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write(FILE, entry("2100-12-31"));
        let told = flake(&env, &[], &always()).expect(0).json();
        let k = &told["k"];
        assert_eq!(told["verdict"], "flaky");
        assert_eq!(told["quarantine"], json!({"in_force": 1, "expired": [], "excused": k, "gates": false}));
        assert_eq!(
            (&told["tests"]["list"][0]["quarantined"], &told["tests"]["list"][0]["failed"]),
            (&true.into(), k)
        );
        // The exit status of a check itself is never made better.
        let script = "echo 1..1; echo 'not ok 1 - sometimes'; exit 1";
        assert_eq!(env.sh(script).expect(1).json()["outcome"], "failed");
        // For people too.
        let script = always();
        let out = env.checkrun(&["flake", "--runs", "24", "--", "sh", "-c", &script]).expect(0).out();
        assert!(
            out.contains("flaky, in quarantine: sometimes") && out.contains("so the status is 0"),
            "{out}"
        );
    }
}

#[test]
fn entries_that_are_over_gate_again() {
    let env = Env::new();
    env.write(FILE, entry("2020-12-31"));
    let told = flake(&env, &[], &always()).expect(3).json();
    assert_eq!(told["quarantine"]["expired"], json!(["sometimes (a team, until 2020-12-31)"]));
    assert_eq!(
        (&told["quarantine"]["gates"], &told["tests"]["list"][0]["quarantined"]),
        (&true.into(), &false.into())
    );
}

#[test]
fn only_flaky_tests_and_failures_with_a_name_are_excused() {
    let env = Env::new();
    env.write(FILE, entry("2100-12-31"));
    // Another test fails too, in some runs.
    let also = "echo 'not ok 2 - other'; [ $(( $(od -An -N1 -tu1 /dev/urandom) < 128 )) = 1 ] || exit 1";
    let told = flake(&env, &[], &suite(also)).expect(3).json();
    assert!(told["quarantine"]["excused"].as_u64() < told["k"].as_u64(), "{told}");
    // It ends in another way than by a test that failed.
    let told = flake(&env, &[], &suite("echo 'ok 2 - b'; [ $good = 1 ] || kill -SEGV $$")).expect(3).json();
    assert_eq!(told["quarantine"]["gates"], true, "{told}");
    let told = flake(&env, &[], "[ $(( $(od -An -N1 -tu1 /dev/urandom) < 128 )) = 1 ]").expect(3).json();
    assert_eq!(told["quarantine"]["excused"], 0, "{told}");
    // What never passed is broken.
    let script = "echo 1..1; echo 'not ok 1 - sometimes'; exit 1";
    let told = flake(&env, &[], script).expect(1).json();
    assert_eq!((&told["verdict"], &told["quarantine"]["gates"]), (&"failing".into(), &true.into()));
    let coin = "echo 1..1; echo 'not ok 1 - sometimes'; [ $(( $(od -An -N1 -tu1 /dev/urandom) < 128 )) = 1 ]";
    let told = flake(&env, &[], coin).expect(3).json();
    assert_eq!(
        told["quarantine"]["gates"], true,
        "it failed each time, whatever the command's status: {told}"
    );
}

#[test]
fn a_command_may_be_in_quarantine() {
    let env = Env::new();
    env.write("check", "[ $(( $(od -An -N1 -tu1 /dev/urandom) < 128 )) = 1 ]\n");
    env.write(FILE, entry("2100-12-31").replace("test = \"sometimes\"", "command = \"sh check\""));
    env.checkrun(&["flake", "--runs", "24", "--", "sh", "check"]).expect(0);
    env.checkrun(&["flake", "--runs", "24", "--", "sh", "./check"]).expect(3);
}

#[test]
fn a_change_cannot_excuse_itself() {
    let env = Env::new();
    env.write("other", "");
    env.commit();
    env.write(FILE, entry("2100-12-31"));
    env.commit();
    let told = flake(&env, &["--base", "HEAD~1"], &always()).expect(3).json();
    assert_eq!(told["quarantine"], Value::Null);
    flake(&env, &["--base", "HEAD"], &always()).expect(0);
    // Out of scope it counts all the same.
    flake(&env, &["--scope", ":!*.toml"], &always()).expect(0);
    flake(&env, &["--base", "nosuch"], &always()).refused(&["nosuch"]);
}

#[test]
fn a_file_that_is_not_in_order_is_refused_before_anything_runs() {
    let env = Env::new();
    for (from, to, part) in [
        ("owner = \"a team\"\n", "", "key `quarantine[0].owner`: is missing"),
        ("expires = \"2100-12-31\"\n", "", "key `quarantine[0].expires`: is missing"),
        ("owner", "onwer", ":4:1: key `quarantine[0].onwer`: no such key"),
        ("failed = 3", "failed = 50", "not flaky but broken"),
        ("format = 1\n", "", "key `format`"),
        ("[[", "[", "is not TOML"),
    ] {
        env.write(FILE, entry("2100-12-31").replacen(from, to, 1));
        flake(&env, &[], "exit 0").refused(&[FILE, part]);
    }
    env.write(FILE, [0xff, 0xfe]);
    flake(&env, &[], "exit 0").refused(&[FILE, "UTF-8"]);
    assert!(env.checkrun(&["log", "--format", "json"]).expect(0).stdout.is_empty());
}

#[test]
fn counts_of_single_tests_go_on_over_sessions() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let one = flake(&env, &[], &always()).expect(3).json();
        let two = flake(&env, &[], &always()).json();
        let failed = |told: &Value| told["k"].as_u64().unwrap();
        let listed = env.checkrun(&["flakes", "--format", "json"]).expect(0).json();
        let tests = listed["tests"].as_array().unwrap();
        assert_eq!(tests.len(), 1, "one that passed each time is not kept: {listed}");
        let test = &tests[0];
        assert_eq!((&test["test"], test["n"].as_u64()), (&"sometimes".into(), Some(48)), "{listed}");
        assert_eq!(test["k"].as_u64(), Some(failed(&one) + failed(&two)), "{listed}");
        assert!(test["bound"].as_f64().unwrap() < 1.0 && test["last_seen"].as_str().unwrap().ends_with('Z'));
        let human = env.checkrun(&["flakes"]).expect(0).out();
        assert!(human.contains(&format!("    sometimes: {} of 48 failed", test["k"])), "{human}");
    }
}

#[test]
fn a_cause_that_was_found_is_on_record() {
    let env = Env::new();
    // Fails under some seeds each time, and with the random one of the program itself now and then.
    let script = "import sys; sys.exit(hash('a') % 64 < 32)";
    let python = ["--runner", "generic", "--", "/usr/bin/python3", "-c", script];
    let told = env.checkrun(
        &[&["flake", "--explain", "--axis", "hash_seed", "--format", "json"][..], &python].concat(),
    );
    let told = told.expect(3).json();
    let listed = env.checkrun(&["flakes", "--format", "json"]).expect(0).out();
    let of_key = listed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|row| row["key"] == told["key"]);
    assert_eq!(of_key.unwrap()["cause"], told["cause"], "{listed}");
}
