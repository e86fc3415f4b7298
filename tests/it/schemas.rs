//! The JSON that harnesses read, held against the schemas in docs/schemas by a validator that is not ours: what the built
//! program prints is what is described there, field by field.

use crate::reconcile::{done, put, steps};
use crate::support::probe::{container_filter, worse};
use crate::support::{EVERYBODY, Env, Output, run};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Reads a schema's path, then documents, one a line, on stdin; prints what is wrong with each. Schemas may point to
/// their neighbours.
const VALIDATE: &str = r#"
import json, pathlib, sys
import jsonschema
path = pathlib.Path(sys.argv[1])
schema = json.loads(path.read_text())
jsonschema.Draft202012Validator.check_schema(schema)
resolver = jsonschema.RefResolver(base_uri=path.as_uri(), referrer=schema)
validator = jsonschema.Draft202012Validator(schema, resolver=resolver)
for line in sys.stdin:
    for error in validator.iter_errors(json.loads(line)):
        print(f"{error.json_path}: {error.message[:300]}")
"#;

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/schemas"))
}

/// What a validator finds wrong with documents; empty where nothing is.
fn faults(schema: &str, documents: &[Value]) -> String {
    use std::io::Write;
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-W", "ignore", "-c", VALIDATE]).arg(folder().join(format!("{schema}.json")));
    let mut child =
        python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("python3");
    let text: String = documents.iter().map(|document| format!("{document}\n")).collect();
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("write");
    let output = child.wait_with_output().expect("python3");
    let trouble = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "python3-jsonschema, which .ci/tools installs: {trouble}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Insists on documents that are as a schema says.
#[track_caller]
pub(crate) fn holds(schema: &str, documents: &[Value]) {
    assert!(!documents.is_empty(), "nothing to hold against {schema}");
    let faults = faults(schema, documents);
    assert!(faults.is_empty(), "{schema}: {faults}\n{documents:#?}");
}

fn lines(output: &Output) -> Vec<Value> {
    output.out().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A check, in JSON, with options.
fn check(env: &Env, options: &[&str], command: &[&str]) -> Value {
    env.checkrun(&[&["--format", "json"], options, &["--"], command].concat()).json()
}

#[test]
fn results_are_as_their_schema_says_however_they_came_about() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("f", "x\n").write("g", "y\n").commit();
        let cat = ["cat", "f"];
        let mut seen = vec![
            check(&env, &[], &cat),
            check(&env, &[], &cat),
            check(&env, &["--refresh"], &cat),
            check(&env, &["--no-cache"], &cat),
            check(&env, &["--scope", "f"], &cat),
            check(&env, &["--touches", "f"], &cat),
            check(&env, &["--clock", "host", "--no-cache"], &cat),
            check(&env, &["--clock-mode", "frozen"], &cat),
            check(&env, &["--policy", "landlock"], &cat),
            check(&env, &["--timeout", "200ms"], &["sleep", "9"]),
            check(&env, &[], &["no-such-program"]),
            check(&env, &[], &["sh", "-c", "kill -9 $$"]),
            check(&env, &["--output-limit", "1KiB"], &["head", "-c", "1M", "/dev/zero"]),
            check(&env, &["--require-tests=3"], &["python3", "-m", "unittest"]),
        ];
        // From another tree, by what was read; and a key that was seen to pass and to fail.
        env.write("g", "another\n");
        seen.push(check(&env, &[], &cat));
        let chance = ["sh", "-c", "exit $(( $(od -An -N1 -tu1 /dev/urandom) < 128 ))"];
        for _ in 0..24 {
            seen.push(check(&env, &["--refresh"], &chance));
        }
        seen.push(env.checkrun(&["show", "1", "--format", "json"]).expect(0).json());
        for (field, values) in [
            ("cache", &["hit", "miss", "refreshed", "off"][..]),
            ("guard", &["exact", "inputs", "touches"]),
            ("outcome", &["passed", "failed", "timed_out", "output_limit", "not_started"]),
        ] {
            for value in values {
                assert!(seen.iter().any(|one| one[field] == *value), "no result with {field} {value}");
            }
        }
        assert!(
            seen.iter().any(|one| one["from"].is_object()) && seen.iter().any(|one| one["flaky"].is_object())
        );
        holds("result", &seen);
    }
}

#[test]
fn events_and_explanations_are_as_their_schemas_say() {
    let env = Env::new();
    env.write("f", "x\n").commit();
    let check = ["--", "sh", "-c", "echo out; echo err >&2; printf 'a\\377b'"];
    let mut events = Vec::new();
    for options in [&["--show-output"][..], &["--show-output"], &["--no-cache"]] {
        events.extend(lines(&env.checkrun(&[&["--format", "jsonl"], options, &check].concat()).expect(0)));
    }
    for event in ["resolved", "started", "output", "result"] {
        assert!(events.iter().any(|line| line["event"] == event), "no event `{event}`");
    }
    holds("events", &events);
    let explain = |options: &[&str]| {
        env.checkrun(&[&["explain", "--format", "json"], options, &check].concat()).expect(0).json()
    };
    let told = [explain(&[]), explain(&["--timeout", "9s", "--env", "A=b"]), {
        env.write("f", "y\n").write("new", "").commit();
        explain(&["--guard", "exact"])
    }];
    assert!(told[0]["hit"] == true && told[1]["differences"].as_array().unwrap().len() == 2, "{told:?}");
    assert_eq!(told[2]["paths_total"], 2, "{told:?}");
    holds("explain", &told);
}

#[test]
fn what_doctor_finds_is_as_its_schema_says_on_good_machines_and_poor_ones() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let args = ["doctor", "--format", "json"];
        let nothing = [(libc::SYS_landlock_create_ruleset, libc::EOPNOTSUPP, 0)];
        let found = [
            env.checkrun(&args).expect(0).json(),
            worse(&env, &container_filter(), &args).json(),
            worse(&env, &nothing, &args).expect(1).json(),
        ];
        let levels: Vec<&Value> = found.iter().map(|one| &one["level"]).collect();
        assert_eq!(levels, [&json!("full"), &json!("landlock"), &Value::Null]);
        holds("doctor", &found);
    }
}

#[test]
fn reports_on_steps_and_flakes_and_ledgers_are_as_their_schemas_say() {
    let env = Env::new();
    put(&env, &steps(3));
    done(&env, 1);
    env.commit();
    env.write("d2/a", "half\n").write("stranger", "");
    let look = |options: &[&str]| {
        run(env.command(&["reconcile", "ledger.json", "--format", "json"]).args(options)).json()
    };
    let reports = [look(&[]), look(&["--all"]), look(&["--write"]), look(&["--tree", "HEAD"])];
    assert!(reports[0]["leftovers"].is_object() && reports[0]["first_uncertified"] == "s02");
    holds("reconcile", &reports);
    let ledger: Value = serde_json::from_slice(&std::fs::read(env.repo("ledger.json")).unwrap()).unwrap();
    holds("ledger", &[steps(3), ledger]);
    let flake = |options: &[&str], script: &str| {
        let args = [&["flake", "--format", "json"], options, &["--", "sh", "-c", script]].concat();
        env.checkrun(&args).json()
    };
    let told = [
        flake(&["--runs", "6"], "echo 'test a ... ok'; exit 1"),
        flake(&["--runs", "3"], "exit 0"),
        flake(&["--certify", "p<50%"], "exit 0"),
        flake(&["--until-fail", "--max-runs", "200"], "exit $(( $(od -An -N1 -tu1 /dev/urandom) < 128 ))"),
    ];
    assert_eq!((&told[0]["verdict"], &told[2]["verdict"]), (&json!("failing"), &json!("stable")));
    holds("flake", &told);
}

/// A validator that finds nothing in anything would make all of the above pass.
#[test]
fn what_is_not_as_its_schema_says_is_found() {
    let env = Env::new();
    env.commit();
    let good = env.sh("true").expect(0).json();
    assert_eq!(faults("result", std::slice::from_ref(&good)), "");
    for (field, value) in [
        ("key", json!("b3:12")),
        ("outcome", json!("fine")),
        ("secs", json!("0.1")),
        ("exit", json!(0.5)),
        ("invented", json!(1)),
    ] {
        let mut bad = good.clone();
        bad[field] = value;
        assert!(faults("result", &[bad.clone()]).contains(field), "{field}");
        // Inside an event too, where one schema points to the other.
        assert!(!faults("events", &[json!({"event": "result", "result": bad})]).is_empty(), "{field}");
    }
    let mut less = good.clone();
    less.as_object_mut().unwrap().remove("tail");
    assert!(faults("result", &[less]).contains("'tail' is a required property"));
    assert_eq!(faults("events", &[json!({"event": "result", "result": good})]), "");
}

/// None of the files is left out of this module.
#[test]
fn every_schema_is_held_against_something() {
    let source = [include_str!("schemas.rs"), include_str!("flake_causes.rs")].concat();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        assert!(source.contains(&format!("holds(\"{name}\", ")), "nothing is held against {name}.json");
    }
}
