//! Why a check is flaky: experiments on checks whose cause is known.

use crate::support::Env;
use serde_json::Value;

/// The experiment on a check; json.
fn explain(env: &Env, script: &str) -> Value {
    let output = env.checkrun(&["flake", "--explain", "--format", "json", "--", "sh", "-c", script]);
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
    let told = explain(&env, script);
    assert_eq!(told["cause"], "date", "{told}");
    let edges = told["edges"].as_array().unwrap();
    assert_eq!(edges.len(), 2, "{told}");
    for (edge, date) in edges.iter().zip(["2023-10-09T00:00:00Z", "2026-07-01T00:00:00Z"]) {
        assert_eq!(edge["after"], date, "{edge}");
    }
    assert_eq!((&edges[0]["passes_before"], &edges[1]["passes_before"]), (&false.into(), &true.into()));
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
fn pure_chance_and_a_sound_check_have_no_cause() {
    let env = Env::new();
    for script in ["exit $(( $(od -An -N1 -tu1 /dev/urandom) < 77 ))", "exit 0"] {
        let told = explain(&env, script);
        assert!(told["cause"].is_null() && told["fails"].is_null(), "{told}");
    }
}
