//! The file of a ledger: how large it becomes, what is refused whoever reads it, and the states of a repository in which
//! it is not written.

use crate::reconcile::{done, findings, look, put, steps};
use crate::support::{EVERYBODY, Env, Who, is_root, program, run};
use serde_json::{Value, json};
use std::process::Command;

/// A plan of twelve steps as somebody would write it down; its checks are short commands.
fn plan() -> Value {
    let titles = [
        "copy the session types",
        "copy the token parser",
        "give auth its own errors",
        "register the middleware",
        "move the login handler",
        "move the logout handler",
        "migrate the callers of the parser",
        "drop the old parser",
        "drop the old session types",
        "move the tests",
        "write the package comment",
        "remove the forwarding names",
    ];
    let step = |(at, title): (usize, &&str)| {
        let number = at + 1;
        let mut step =
            json!({"id": format!("s{number:02}"), "title": title, "touches": [format!("auth/{number}/**")]});
        if number > 1 {
            step["depends_on"] = json!([format!("s{at:02}")]);
        }
        step["check"] =
            json!([format!("test -f auth/{number}/new.go"), format!("grep -q done auth/{number}/new.go")]);
        step["status"] = json!("pending");
        step
    };
    json!({"task": "extract auth", "plan_version": 3, "steps": titles.iter().enumerate().map(step).collect::<Vec<_>>()})
}

/// The text of a plan, a step a line, as machines write it.
fn by_lines(plan: &Value) -> String {
    let steps: Vec<String> = plan["steps"].as_array().unwrap().iter().map(Value::to_string).collect();
    let mut head = plan.clone();
    head["steps"] = json!([]);
    head.to_string().replace("[]", &format!("[\n{}\n]", steps.join(",\n"))) + "\n"
}

/// Near 2 KB is what a ledger of twelve steps should take. What the steps are takes that much already, so what writing
/// the findings adds is held to a bound of its own.
#[test]
fn a_ledger_of_twelve_steps_stays_small_when_it_is_written() {
    for (layout, per_step) in [("a step a line", 240), ("indented", 280)] {
        let before = match layout {
            "indented" => serde_json::to_string_pretty(&plan()).unwrap(),
            _ => by_lines(&plan()),
        };
        let env = Env::new();
        env.write("ledger.json", &before);
        for number in 1..=12 {
            env.write(&format!("auth/{number}/new.go"), "// done\n");
        }
        env.commit();
        drop(look(&env, &["ledger.json", "--write"]).expect(0));
        let written = std::fs::read_to_string(env.repo("ledger.json")).unwrap();
        let added = written.len() - before.len();
        assert!(added <= 12 * per_step, "{layout}: {added} bytes were added to {}:\n{written}", before.len());
        assert!(layout != "a step a line" || written.len() < 5000, "{} bytes:\n{written}", written.len());
        // It says enough to be held to later: the tree, and what of the step it was made for.
        let read: Value = serde_json::from_str(&written).unwrap();
        let evidence = read["steps"][3]["evidence"].as_object().unwrap();
        assert_eq!(evidence.keys().collect::<Vec<_>>(), ["at", "commands", "tree", "definition"]);
        let commands = &evidence["commands"];
        assert_eq!((&commands[0]["cmd"], &commands[1]["exit"]), (&json!("test -f auth/4/new.go"), &json!(0)));
        assert!(commands[1]["secs"].is_number(), "{commands}");
        // What each command gave is on record under that tree, although no object of the repository is it.
        let log = env.checkrun(&["log", "--tree", evidence["tree"].as_str().unwrap()]).expect(0).out();
        assert!(log.lines().count() == 24 && log.contains("  grep -q done auth/4/new.go"), "{log}");
        drop(env.checkrun(&["log", "--tree", "0123456789ab"]).refused(&["names no revision"]));
        // Once more, not a byte changes.
        drop(look(&env, &["ledger.json", "--write"]).expect(0));
        assert_eq!(std::fs::read_to_string(env.repo("ledger.json")).unwrap(), written);
        for (from, to, why) in [
            (
                "\"plan_version\": 3",
                "\"plan_version\": 4",
                "it was made under plan version 3, and the plan is at 4",
            ),
            ("auth/4/**", "auth/**", "its check, touches or dependencies have changed since"),
        ] {
            let from = if written.contains(from) { from.to_owned() } else { from.replace(": ", ":") };
            env.write("ledger.json", written.replacen(&from, to, 1));
            let report = look(&env, &["ledger.json"]).expect(0).json();
            assert!(report["steps"][3]["notes"].to_string().contains(why), "{report}");
        }
    }
}

/// Steps whose touches stand for nothing there ever was: their commands say nothing of them. A step that was not begun
/// has none of its files yet, and one that removes files has left none.
#[test]
fn a_step_whose_touches_match_nothing_is_refused_and_the_file_left_alone() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("old/a", "").write("kept", "").commit();
        std::fs::remove_dir_all(env.repo("old")).unwrap();
        let ledger = |touches: Value, check: &str| {
            let step = json!({"id": "b", "touches": touches, "check": check, "status": "pending"});
            let text =
                json!({"steps": [{"id": "a", "touches": ["kept"], "check": "true"}, step]}).to_string();
            env.write("ledger.json", &text);
            text
        };
        for touches in [json!(["nowhere/**"]), json!(["kep", "kept/x", "**/*.go"])] {
            let text = ledger(touches.clone(), "true");
            for args in [
                &["--write"][..],
                &["--write", "--jobs", "2"],
                &["--write", "--guard", "touches"],
                &["--tree", "HEAD"],
            ] {
                let report = look(&env, &[&["ledger.json"], args].concat()).expect(125).json();
                assert_eq!(findings(&report), ["certified", "undecided"]);
                let reason = report["steps"][1]["reason"].as_str().unwrap();
                for part in ["match nothing in this tree", "steps[1].touches", touches[0].as_str().unwrap()] {
                    assert!(reason.contains(part), "{reason}");
                }
                assert_eq!(std::fs::read_to_string(env.repo("ledger.json")).unwrap(), text);
            }
            let output = env.checkrun(&["certify", "b", "--ledger", "ledger.json", "--commit"]).expect(125);
            assert!(output.out().contains("its touches match nothing"), "{}", output.out());
            assert_eq!(std::fs::read_to_string(env.repo("ledger.json")).unwrap(), text);
        }
        drop(ledger(json!(["new/**"]), "test -e new"));
        drop(look(&env, &["ledger.json", "--write"]).expect(1));
        for touches in ["old/**", "o*/a", "**/a", "."] {
            drop(ledger(json!([touches, "new"]), "test ! -e old"));
            drop(look(&env, &["ledger.json", "--write"]).expect(0));
        }
    }
}

/// The long form, with each command and how it ended, is read as well and is left as it is.
#[test]
fn evidence_in_full_is_read_and_kept() {
    let env = Env::new();
    let mut ledger = steps(2);
    (1..=2).for_each(|number| done(&env, number));
    put(&env, &ledger);
    env.commit();
    let tree = look(&env, &["ledger.json"]).expect(0).json()["tree"].clone();
    let commands = json!([{"cmd": "test -f d1/a", "exit": 0, "secs": 9.1}, {"cmd": "grep -q done d1/b", "exit": 0,
        "secs": 22.6, "summary": "ok  internal/auth  41 tests"}]);
    for step in ledger["steps"].as_array_mut().unwrap() {
        step["status"] = json!("passed");
        step["evidence"] =
            json!({"at": "2026-03-11T09:14:22Z", "commands": commands, "tree": tree, "plan_version": 3});
    }
    put(&env, &ledger);
    env.commit();
    let before = std::fs::read(env.repo("ledger.json")).unwrap();
    drop(look(&env, &["ledger.json", "--write", "--guard", "touches"]).expect(0));
    assert_eq!(std::fs::read(env.repo("ledger.json")).unwrap(), before);
    ledger["plan_version"] = json!("4");
    put(&env, &ledger);
    let report = look(&env, &["ledger.json"]).expect(0).json();
    assert!(report["steps"][1]["notes"].to_string().contains("made under plan version 3"), "{report}");
}

/// Each command that takes a ledger, and what is no ledger.
#[test]
fn whoever_reads_it_a_field_of_a_wrong_type_is_refused_and_the_file_left_alone() {
    let env = Env::new();
    env.write("f", "").commit();
    let cases = [
        ("\"id\": 7", "`id` is a number, not a text"),
        ("\"id\": \"a\", \"title\": []", "`title` is a list, not a text"),
        ("\"id\": \"a\", \"touches\": {}", "`touches` is an object, not a list of texts"),
        ("\"id\": \"a\", \"touches\": [1]", "`touches` is a number, not a text"),
        ("\"id\": \"a\", \"depends_on\": true", "`depends_on` is true or false, not a list of texts"),
        ("\"id\": \"a\", \"status\": 1", "`status` is a number, not a text"),
        ("\"id\": \"a\", \"rollback_to\": []", "`rollback_to` is a list, not a text"),
        ("\"id\": \"a\", \"attempts\": \"2\"", "`attempts` is a text, not a count"),
        ("\"id\": \"a\", \"evidence\": \"ok\"", "`evidence` is a text, not an object"),
        ("\"id\": \"a\", \"evidence\": {\"tree\": 8}", "`tree` is a number, not a text"),
        ("\"id\": \"a\", \"evidence\": {\"commands\": {}}", "`commands` is an object, not a list"),
        ("\"id\": \"a\", \"last_failure\": []", "`last_failure` is a list, not an object"),
        ("\"id\": \"a\", \"failures\": {}", "`failures` is an object, not a list"),
    ];
    for (fields, problem) in cases {
        let text = format!("{{\"plan_version\": 1, \"steps\": [{{\"check\": [\"true\"], {fields}}}]}}");
        env.write("bad.json", &text);
        for args in [
            &["ledger", "check", "bad.json"][..],
            &["reconcile", "bad.json", "--write"],
            &["certify", "a", "--ledger", "bad.json", "--commit"],
            &["rollback", "a", "--ledger", "bad.json"],
        ] {
            drop(env.checkrun(args).refused(&["bad.json:1:", problem]));
            assert_eq!(std::fs::read_to_string(env.repo("bad.json")).unwrap(), text);
        }
    }
    assert_eq!(env.git(&["log", "--format=%s"]), "a commit");
}

/// 100 MB in truth, not a hole; a pipe that nobody writes to; two files for one task.
#[test]
fn files_that_are_no_ledgers_are_refused_at_once() {
    let env = Env::new();
    env.write("f", "").commit();
    let step = b"{\"id\": \"a\", \"check\": \"true\"},\n";
    let mut large = b"{\"steps\": [\n".to_vec();
    large.extend(step.iter().cycle().take(100 << 20));
    env.write("large.json", &large);
    let status = Command::new("mkfifo").arg(env.repo("pipe.json")).status().expect("mkfifo");
    assert!(status.success());
    if env.who() == Who::User && is_root() {
        std::os::unix::fs::chown(
            env.repo("pipe.json"),
            Some(crate::support::USER),
            Some(crate::support::USER),
        )
        .unwrap();
    }
    put(&env, &steps(1));
    env.write("other.json", std::fs::read(env.repo("ledger.json")).unwrap());
    for args in [
        &["ledger", "check"][..],
        &["reconcile", "--write"],
        &["certify", "a", "--ledger"],
        &["rollback", "a", "--ledger"],
    ] {
        // Bounded from outside: whoever read all of it would need more than this.
        let mut command = env.as_who("/bin/sh");
        command.arg("-c").arg("ulimit -v 4000000; exec timeout 60 \"$@\"").arg("sh").arg(program());
        command.args(args).arg("large.json").current_dir(env.path("repo"));
        command.env("CHECKRUN_CACHE_DIR", env.path("cache"));
        drop(run(&mut command).refused(&["larger than 8 MiB"]));
        drop(env.checkrun(&[args, &["pipe.json"]].concat()).refused(&["it is not a regular file"]));
    }
    assert_eq!(std::fs::metadata(env.repo("large.json")).unwrap().len(), large.len() as u64);
    drop(env.checkrun(&["reconcile", "ledger.json", "other.json"]).refused(&["two ledgers"]));
    for command in ["certify", "rollback"] {
        let two = [command, "s01", "--ledger", "ledger.json", "--ledger", "other.json"];
        drop(env.checkrun(&two).refused(&["--ledger"]));
    }
}

#[test]
fn in_the_middle_of_a_rebase_nothing_is_written_and_all_can_be_looked_at() {
    for who in EVERYBODY {
        let env = Env::of(who);
        put(&env, &steps(2));
        env.write("README", "x\n").commit();
        done(&env, 1);
        env.write("README", "main\n").commit();
        env.git(&["checkout", "-q", "-b", "side", "HEAD~1"]);
        env.write("README", "side\n").commit();
        let mut rebase = env.as_who("git");
        let output = run(rebase.args(["rebase", "main"]).current_dir(env.path("repo")));
        assert_eq!(output.status, 1, "a conflict: {}", output.err());
        let before = (std::fs::read(env.repo("ledger.json")).unwrap(), env.git(&["rev-parse", "HEAD"]));
        for args in [
            &["reconcile", "ledger.json", "--write"][..],
            &["certify", "s01", "--ledger", "ledger.json"],
            &["certify", "s01", "--ledger", "ledger.json", "--commit"],
            &["rollback", "s02", "--ledger", "ledger.json"],
        ] {
            drop(env.checkrun(args).refused(&["in the middle of a rebase", "git status"]));
        }
        drop(look(&env, &["ledger.json"]).refused(&["unresolved conflict at `README`", "--tree"]));
        drop(look(&env, &["ledger.json", "--tree", "HEAD"]).expect(1));
        env.git(&["add", "README"]);
        let report = look(&env, &["ledger.json"]).expect(1).json();
        assert_eq!((findings(&report)[0], &report["first_uncertified"]), ("certified", &json!("s02")));
        assert!(report["notes"].to_string().contains("in the middle of a rebase"), "{report}");
        assert_eq!(
            (std::fs::read(env.repo("ledger.json")).unwrap(), env.git(&["rev-parse", "HEAD"])),
            before
        );
        env.git(&["rebase", "--abort"]);
        drop(look(&env, &["ledger.json", "--write"]).expect(1));
    }
}

/// On a detached HEAD a commit would be on no branch; all but committing works.
#[test]
fn on_a_detached_head_all_but_committing_works() {
    let env = Env::new();
    put(&env, &steps(2));
    env.write("README", "x\n").commit();
    done(&env, 1);
    drop(env.checkrun(&["certify", "s01", "--ledger", "ledger.json", "--commit"]).expect(0));
    env.git(&["checkout", "-q", "--detach"]);
    env.write("d2/a", "half\n");
    let head = env.git(&["rev-parse", "HEAD"]);
    drop(look(&env, &["ledger.json", "--write"]).expect(1));
    let text = std::fs::read(env.repo("ledger.json")).unwrap();
    done(&env, 2);
    let refused = env.checkrun(&["certify", "s02", "--ledger", "ledger.json", "--commit"]);
    drop(refused.refused(&["HEAD is detached", "git switch -c"]));
    assert_eq!(std::fs::read(env.repo("ledger.json")).unwrap(), text);
    drop(env.checkrun(&["rollback", "s02", "--ledger", "ledger.json"]).expect(0));
    assert!(!env.repo("d2").exists());
    assert_eq!(env.git(&["rev-parse", "HEAD"]), head);
    let listed = env.checkrun(&["partials", "--format", "json"]).expect(0).json();
    assert_eq!(listed["partials"][0]["step"], "s02");
}

/// The tree that evidence names was in a commit that is gone, and git has collected its objects.
#[test]
fn evidence_for_a_tree_that_git_has_collected_counts_as_none() {
    let env = Env::new();
    let mut ledger = steps(2);
    ledger["steps"][0]["touches"] = json!(["d1/**"]);
    env.write("README", "x\n").commit();
    let first = env.git(&["rev-parse", "HEAD"]);
    done(&env, 1);
    let gone = env.commit();
    let tree = env.git(&["rev-parse", "HEAD^{tree}"]);
    env.git(&["reset", "-q", "--soft", &first]);
    env.git(&["reset", "-q"]);
    env.git(&["reflog", "expire", "--expire=now", "--all"]);
    env.git(&["gc", "-q", "--prune=now"]);
    let mut there = env.as_who("git");
    assert_ne!(run(there.args(["cat-file", "-e", &gone]).current_dir(env.path("repo"))).status, 0);
    ledger["steps"][0]["status"] = json!("passed");
    ledger["steps"][0]["evidence"] = json!({"at": "2026-03-11T09:14:22Z", "tree": tree});
    put(&env, &ledger);
    env.write("d2/a", "half\n");
    let report = look(&env, &["ledger.json", "--guard", "touches"]).expect(1).json();
    assert_eq!((findings(&report)[0], &report["first_uncertified"]), ("certified", &json!("s02")));
    let notes = report["steps"][0]["notes"].to_string();
    assert!(notes.contains("is not in this repository; it counts as none"), "{report}");
    // There is no state to go back to then, and nothing is changed.
    let refused = env.checkrun(&["rollback", "s02", "--ledger", "ledger.json"]);
    drop(refused.refused(&["s01"]));
    assert_eq!(std::fs::read_to_string(env.repo("d2/a")).unwrap(), "half\n");
}

#[test]
fn three_failures_alike_are_flagged_with_what_was_thought() {
    let env = Env::new();
    let check = "echo '--- FAIL: TestToken (0.00s)'; cat b; exit 1";
    env.write("ledger.json", json!({"steps": [{"id": "a", "touches": ["b"], "check": check}]}).to_string())
        .write("b", "")
        .commit();
    let flagged = |report: &Value| {
        let past = report["not_converging"].as_array().expect("flagged");
        assert_eq!(past.len(), 3, "{report}");
        assert_eq!((&past[0]["signature"], &past[2]["hypothesis"]), (&json!("TestToken"), &json!("guess 3")));
    };
    for attempt in 1..=3 {
        env.write("b", format!("try {attempt}\n"));
        let thought = format!("guess {attempt}");
        let before = std::fs::read(env.repo("ledger.json")).unwrap();
        let report = look(&env, &["ledger.json", "--write", "--hypothesis", &thought]).expect(1).json();
        // In the third itself, not only from the look after it on.
        match attempt {
            3 => {
                flagged(&report["steps"][0]);
                let after = std::fs::read(env.repo("ledger.json")).unwrap();
                env.write("ledger.json", before);
                let certify = ["certify", "a", "--ledger", "ledger.json", "--hypothesis", &thought];
                let text = env.checkrun(&certify).expect(1).out();
                assert!(
                    text.contains("not converging: the last 3 attempts failed alike (TestToken)"),
                    "{text}"
                );
                assert!(text.contains("thought: guess 1"), "{text}");
                env.write("ledger.json", after);
            }
            _ => assert_eq!(report["steps"][0]["not_converging"], Value::Null, "{report}"),
        }
    }
    let report = look(&env, &["ledger.json"]).expect(1).json();
    flagged(&report["steps"][0]);
    assert_eq!(report["steps"][0]["attempts"], 3);
    // Another failure is another thing.
    env.write("b", "--- FAIL: TestOther (0.00s)\n");
    let report = look(&env, &["ledger.json"]).expect(1).json();
    assert_eq!(report["steps"][0]["not_converging"], Value::Null, "{report}");
}
