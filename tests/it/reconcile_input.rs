//! What is no ledger is refused, and where the steps come from commits instead of a file.

use crate::reconcile::{done, findings, look, put, steps};
use crate::support::Env;
use serde_json::{Value, json};

#[test]
fn bad_ledgers_are_refused_with_line_and_column_and_left_alone() {
    let env = Env::new();
    env.write("f", "").commit();
    let step = |rest: &str| format!("{{\"steps\": [\n  {{\"id\": \"a\", {rest}}}\n]}}");
    let cases: Vec<(Vec<u8>, &[&str])> = vec![
        (b"".to_vec(), &["bad.json:1:1:", "cut short"]),
        (b"{\"steps\": [\n  {\"id\": \"a\", \"check\": [\"tr".to_vec(), &["bad.json:2:28:", "cut short"]),
        (b"{\"steps\": [],\n \"steps\": []}".to_vec(), &["bad.json:2:2:", "`steps` is there twice"]),
        (b"\xff{}".to_vec(), &["bad.json:1:1:", "0xff is not UTF-8"]),
        (b"{\"a\": \"\xc3\xa9\xe9\"}".to_vec(), &["bad.json:1:9:", "0xe9 is not UTF-8"]),
        ("[".repeat(100_000).into_bytes(), &["bad.json:1:66:", "within each other"]),
        (b"{}".to_vec(), &["bad.json:1:1:", "`steps`, `features` or `slices`"]),
        (b"{\"steps\": {}}".to_vec(), &["bad.json:1:11:", "`steps` is an object, not a list"]),
        (b"{\"steps\": [], \"features\": []}".to_vec(), &["both `steps` and `features`"]),
        (b"{\"steps\": []}".to_vec(), &["has no step to check"]),
        (b"{\"steps\": [3]}".to_vec(), &["bad.json:1:12:", "step 1 is a number, not an object"]),
        (b"{\"steps\": [{\"check\": \"true\"}]}".to_vec(), &["step 1 has no `id`"]),
        (
            step("\"check\": [\"true\"], \"attempts\": -1").into(),
            &["bad.json:2:46:", "`attempts` is -1, not a count"],
        ),
        (step("\"check\": 7").into(), &["bad.json:2:24:", "`check` is a number, not a list of texts"]),
        (step("\"title\": \"no check\"").into(), &["bad.json:2:3:", "`a` has no `check`"]),
        (step("\"check\": []").into(), &["`check` of `a` is an empty list"]),
        (
            step("\"check\": [\"true\", \" \"]").into(),
            &["bad.json:2:33:", "`check` of `a` has an empty command"],
        ),
        (
            step("\"check\": \"true\", \"touches\": [\"../x\"]").into(),
            &["bad.json:2:44:", "leads out of the tree"],
        ),
        (
            step("\"check\": \"true\", \"depends_on\": [\"b\"]").into(),
            &["bad.json:2:47:", "`a` depends on `b`, and there is no such step"],
        ),
        (step("\"check\": \"true\", \"depends_on\": [\"a\"]").into(), &["in a ring: `a` on `a`"]),
        (step("\"check\": \"true\", \"rollback_to\": \"z\"").into(), &["`a` rolls back to `z`"]),
        (
            step("\"check\": \"true\"}, {\"id\": \"a\", \"check\": \"true\"").into(),
            &["id `a` is there twice"],
        ),
        (step("\"check\": \"true\", \"evidence\": {\"commands\": [{}]}").into(), &["has no `cmd`"]),
    ];
    for (text, parts) in cases {
        env.write("bad.json", &text);
        for args in [&["ledger", "check", "bad.json"][..], &["reconcile", "bad.json", "--write"]] {
            // A ledger without steps is in order; there is only nothing to find out.
            if args[0] == "ledger" && parts[0].contains("no step") {
                continue;
            }
            drop(env.checkrun(args).refused(parts));
        }
        assert_eq!(std::fs::read(env.repo("bad.json")).unwrap(), text);
    }
    let large = std::fs::File::create(env.repo("bad.json")).unwrap();
    large.set_len(100 << 20).unwrap();
    drop(env.checkrun(&["reconcile", "bad.json"]).refused(&["larger than 8 MiB"]));
    drop(env.checkrun(&["reconcile", "none.json"]).refused(&["cannot read", "none.json"]));
    drop(env.checkrun(&["reconcile", "."]).refused(&["it is not a regular file"]));
    drop(env.checkrun(&["reconcile", "a.json", "b.json"]).refused(&["two ledgers, a.json and b.json"]));
    drop(env.checkrun(&["reconcile"]).expect(125));
}

#[test]
fn a_clone_alone_knows_its_steps_from_its_commits() {
    let env = Env::new();
    env.write("f", "").commit();
    // As `git commit` writes it with an `-m` for each trailer, which git itself does not take for trailers.
    done(&env, 1);
    env.git(&["add", "-A"]);
    env.git(&[
        "commit",
        "-qm",
        "s01: first",
        "-m",
        "Agent-Run: r-1",
        "-m",
        "Agent-Step: s01",
        "-m",
        "Agent-Check: test -f d1/a exit=0 secs=0.1",
        "-m",
        "Agent-Plan-Version: 3",
    ]);
    done(&env, 3);
    env.git(&["add", "-A"]);
    // A squash of two, one of which claims what the tree does not hold.
    env.git(&[
        "commit",
        "-qm",
        "squashed\n\n* s03: third\n\nAgent-Step: s03\nAgent-Check: test -f d3/a exit=0 secs=0.1\n\n\
        * s04: fourth\n\nAgent-Step: s04\nAgent-Check: test -f d4/a exit=0 secs=0.1\nAgent-Check:",
    ]);
    let clone = env.path("home").join("clone");
    env.git(&["clone", "-q", ".", clone.to_str().unwrap()]);
    std::fs::write(clone.join("d3/b"), "half\n").unwrap();
    let report = env.checkrun(&[
        "-C",
        clone.to_str().unwrap(),
        "--format",
        "json",
        "reconcile",
        "--from-history",
        "HEAD",
    ]);
    let report = report.expect(1).json();
    assert_eq!(findings(&report), ["certified", "certified", "uncertified"]);
    assert_eq!(
        (&report["first_uncertified"], &report["steps"][0]["title"]),
        (&json!("s04"), &json!("first"))
    );
    assert_eq!((&report["format"], &report["ledger"]), (&json!("history"), &Value::Null));
    let notes = report["notes"].to_string();
    for part in ["no commit claims `s02`", "names no command"] {
        assert!(notes.contains(part), "{notes}");
    }
    let none = Env::new();
    none.write("f", "").commit();
    drop(none.checkrun(&["reconcile", "--from-history", "HEAD"]).refused(&["no commit claims a step"]));
}

#[test]
fn a_ledger_and_a_history_are_held_against_each_other() {
    let env = Env::new();
    let mut ledger = steps(3);
    ledger["steps"][0]["status"] = json!("passed");
    put(&env, &ledger);
    (1..=3).for_each(|number| done(&env, number));
    env.git(&["add", "-A"]);
    env.git(&["commit", "-qm", "s02: x\n\nAgent-Step: s02\nAgent-Check: true exit=0 secs=0\n\nAgent-Step: s09\nAgent-Check: true exit=0"]);
    let report = look(&env, &["ledger.json", "--from-history", "HEAD"]).expect(0).json();
    let notes = report["notes"].to_string();
    for part in [
        "the ledger says that `s01` is passed, and no commit claims it",
        "a commit claims `s02`, and the ledger says pending",
        "the commit of `s02` ran other checks",
        "a commit claims `s09`, which the ledger does not have",
    ] {
        assert!(notes.contains(part), "`{part}` is not in {notes}");
    }
}

/// What a harness is promised and what it gets are the same fields.
#[test]
fn the_report_has_the_fields_of_its_schema() {
    let env = Env::new();
    put(&env, &steps(2));
    done(&env, 1);
    env.commit();
    env.write("d2/a", "half\n");
    let report = look(&env, &["ledger.json"]).expect(1).json();
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/schemas/reconcile.json")).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    let same = |schema: &Value, found: &Value| {
        let promised: Vec<&str> =
            schema["required"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        let found: Vec<&str> = found.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(promised, found);
    };
    same(&schema, &report);
    let step = &schema["properties"]["steps"]["items"];
    same(step, &report["steps"][0]);
    same(&step["properties"]["checks"]["items"], &report["steps"][0]["checks"][0]);
    same(&schema["properties"]["leftovers"]["oneOf"][0], &report["leftovers"]);
}
