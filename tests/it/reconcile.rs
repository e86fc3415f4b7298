//! Which steps of a ledger hold: found out from the tree, whatever the ledger says.

use crate::support::{EVERYBODY, Env, Output, run};
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Steps that each want two files of their own, as a migration in small.
pub(crate) fn steps(count: usize) -> Value {
    let step = |number: usize| {
        let mut step = json!({
            "id": format!("s{number:02}"), "title": format!("step {number}"), "touches": [format!("d{number}/**")],
            "depends_on": [], "check": [format!("test -f d{number}/a"), format!("grep -q done d{number}/b")],
            "status": "pending", "evidence": null, "attempts": 0,
        });
        if number > 1 {
            let before = format!("s{:02}", number - 1);
            step["depends_on"] = json!([before]);
            step["rollback_to"] = json!(before);
        }
        step
    };
    json!({"task": "move it", "plan_version": 3, "steps": (1..=count).map(step).collect::<Vec<_>>()})
}

pub(crate) fn done(env: &Env, number: usize) {
    env.write(&format!("d{number}/a"), "x\n").write(&format!("d{number}/b"), "done\n");
}

pub(crate) fn put(env: &Env, ledger: &Value) {
    env.write("ledger.json", serde_json::to_string_pretty(ledger).unwrap() + "\n");
}

pub(crate) fn look(env: &Env, options: &[&str]) -> Output {
    let mut args = vec!["reconcile", "--format", "json"];
    args.extend(options);
    env.checkrun(&args)
}

pub(crate) fn findings(report: &Value) -> Vec<&str> {
    report["steps"].as_array().unwrap().iter().map(|step| step["finding"].as_str().unwrap()).collect()
}

fn known(report: &Value, step: usize) -> Vec<&str> {
    report["steps"][step]["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| check["known"].as_str().unwrap())
        .collect()
}

fn file(env: &Env) -> Value {
    serde_json::from_slice(&std::fs::read(env.repo("ledger.json")).unwrap()).unwrap()
}

/// The story of a run that was killed on its fourth step, which had written one of two files, while its ledger claims
/// that the fourth holds and knows nothing of the third.
#[test]
fn the_first_step_that_does_not_hold_is_found_whatever_the_ledger_claims() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let mut ledger = steps(6);
        ledger["steps"][0]["status"] = json!("passed");
        ledger["steps"][3]["status"] = json!("passed");
        put(&env, &ledger);
        (1..=3).for_each(|number| done(&env, number));
        env.commit();
        env.write("d4/a", "x\n").write("notes.txt", "mine\n");
        let report = look(&env, &["ledger.json"]).expect(1).json();
        assert_eq!(
            findings(&report),
            ["certified", "certified", "certified", "uncertified", "blocked", "blocked"]
        );
        assert_eq!(report["first_uncertified"], "s04");
        assert_eq!(report["steps"][2]["agrees"], false);
        assert_eq!(
            (&report["steps"][3]["recorded"], &report["steps"][3]["agrees"]),
            (&json!("passed"), &json!(false))
        );
        let failing = &report["steps"][3]["checks"][1];
        assert_eq!((&failing["cmd"], &failing["exit"]), (&json!("grep -q done d4/b"), &json!(2)));
        assert!(failing["tail"].as_str().unwrap().contains("No such file"), "{failing}");
        assert_eq!(report["leftovers"]["under_touches"], json!([{"change": "A", "path": "d4/a"}]));
        assert_eq!(report["leftovers"]["strangers"], json!([{"change": "A", "path": "notes.txt"}]));
        let text = env.checkrun(&["reconcile", "ledger.json"]).expect(1).out();
        for part in [
            "s04  uncertified",
            "[recorded: passed]",
            "first step that is not certified: s04",
            "A d4/a",
            "A notes.txt",
        ] {
            assert!(text.contains(part), "`{part}` is not in:\n{text}");
        }
        // Finished, all of it holds.
        (4..=6).for_each(|number| done(&env, number));
        let report = look(&env, &["ledger.json"]).expect(0).json();
        assert_eq!((&report["all_certified"], &report["first_uncertified"]), (&json!(true), &Value::Null));
        assert_eq!(report["leftovers"], Value::Null);
    }
}

#[test]
fn what_is_written_into_the_ledger_changes_no_answer() {
    for tracked in [true, false] {
        let env = Env::new();
        put(&env, &steps(3));
        (1..=3).for_each(|number| done(&env, number));
        if tracked {
            env.commit();
        }
        let first = look(&env, &["ledger.json", "--write"]).expect(0).json();
        assert_eq!(known(&first, 0), ["ran", "ran"]);
        assert_eq!(file(&env)["steps"][0]["status"], "passed");
        let second = look(&env, &["ledger.json", "--write"]).expect(0).json();
        assert_eq!(first["tree"], second["tree"]);
        for step in 0..3 {
            assert_eq!(known(&second, step), ["exact", "exact"]);
        }
        assert!(second["secs_saved"].as_f64().unwrap() > 0.0);
        if tracked {
            assert_eq!(second["dirty"], false, "an edit of the ledger is no edit of the tree");
        }
    }
}

#[test]
fn writing_keeps_what_it_does_not_know_and_says_what_it_found() {
    let env = Env::new();
    let text = "{ \"task\": \"t\",   \"z\": 1e400, \"steps\": [\n\
        {\"x-first\": [1,  2], \"id\": \"a\", \"check\": [\"true\"], \"x-last\": {\"b\": 1, \"a\": 2}},\n\
        {\"id\": \"b\", \"touches\": [\"b\"], \"check\": [\"sh -c 'echo no; exit 3'\"], \"status\": \"passed\", \"attempts\": 4}]}\n";
    env.write("ledger.json", text).write("f", "").commit();
    env.write("b", "half\n");
    drop(look(&env, &["ledger.json", "--write", "--hypothesis", "it is the quoting"]).expect(1));
    let written = std::fs::read_to_string(env.repo("ledger.json")).unwrap();
    for part in [
        "{ \"task\": \"t\",   \"z\": 1e400, \"steps\": [\n",
        "{\"x-first\": [1,  2], \"id\": \"a\"",
        "\"x-last\": {\"b\": 1, \"a\": 2}, \"status\": \"passed\"",
    ] {
        assert!(written.contains(part), "`{part}` is not in:\n{written}");
    }
    // Only what the numbers of the original allow a lenient reader to read.
    let read: Value = serde_json::from_str(&written.replace("1e400", "1")).unwrap();
    let step = &read["steps"][1];
    assert_eq!((&step["status"], &step["attempts"]), (&json!("uncertified"), &json!(5)));
    assert_eq!((&step["last_failure"]["exit"], &step["last_failure"]["tail"]), (&json!(3), &json!("no\n")));
    assert_eq!(step["last_failure"]["hypothesis"], "it is the quoting");
    // Nothing new: not a byte changes, and the attempt is not counted twice.
    drop(look(&env, &["ledger.json", "--write"]).expect(1));
    assert_eq!(std::fs::read_to_string(env.repo("ledger.json")).unwrap(), written);
}

#[test]
fn a_second_writer_is_refused_and_told_who_holds_the_ledger() {
    let env = Env::new();
    put(&env, &steps(1));
    let holder = "import fcntl,sys,time; f=open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); time.sleep(600)";
    let mut python = env.as_who("/usr/bin/python3");
    python.args(["-c", holder]).arg(env.repo("ledger.json")).stdout(Stdio::piped());
    let mut child = python.spawn().expect("python");
    let mut line = [0; 5];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).expect("held");
    let before = std::fs::read(env.repo("ledger.json")).unwrap();
    let refused = look(&env, &["ledger.json", "--write"]);
    let reading = look(&env, &["ledger.json"]);
    child.kill().and_then(|()| child.wait()).expect("kill");
    drop(refused.refused(&["ledger.json is held by process", &child.id().to_string(), "python3"]));
    drop(reading.expect(1));
    assert_eq!(std::fs::read(env.repo("ledger.json")).unwrap(), before);
    // Whoever died holds nothing.
    drop(look(&env, &["ledger.json", "--write"]).expect(1));
}

#[test]
fn what_a_killed_writer_left_is_no_part_of_the_tree_and_goes() {
    let env = Env::new();
    put(&env, &steps(1));
    done(&env, 1);
    let before = look(&env, &["ledger.json"]).expect(0).json();
    env.write(".ledger.json.checkrun-new", "{\"steps\": [");
    let after = look(&env, &["ledger.json", "--write"]).expect(0).json();
    assert_eq!(before["tree"], after["tree"]);
    assert!(!env.repo(".ledger.json.checkrun-new").exists());
}

#[test]
fn evidence_for_another_definition_is_void_and_says_so() {
    let env = Env::new();
    put(&env, &steps(2));
    (1..=2).for_each(|number| done(&env, number));
    env.commit();
    drop(look(&env, &["ledger.json", "--write"]).expect(0));
    let mut ledger = file(&env);
    ledger["steps"][0]["check"] = json!(["test -f d1/a"]);
    put(&env, &ledger);
    let report = look(&env, &["ledger.json"]).expect(0).json();
    let notes = |report: &Value, step: usize| report["steps"][step]["notes"].to_string();
    assert!(notes(&report, 0).contains("void: its check, touches or dependencies have changed"), "{report}");
    assert_eq!(notes(&report, 1), "[]");
    ledger["plan_version"] = json!(4);
    put(&env, &ledger);
    let report = look(&env, &["ledger.json"]).expect(0).json();
    assert!(notes(&report, 1).contains("under plan version 3, and the plan is at 4"), "{report}");
}

#[test]
fn under_guard_touches_only_what_is_the_steps_own_must_be_unchanged() {
    let env = Env::new();
    put(&env, &steps(2));
    (1..=2).for_each(|number| done(&env, number));
    env.write("other", "1\n").commit();
    drop(look(&env, &["ledger.json", "--write"]).expect(0));
    env.write("other", "2\n").write("d2/c", "new\n");
    let touched = ["ledger.json", "--guard", "touches"];
    let report = look(&env, &touched).expect(0).json();
    // What is not answered by touches may still be by what the run was seen to look at.
    assert_eq!(
        (known(&report, 0), known(&report, 1)),
        (vec!["touches", "touches"], vec!["inputs", "inputs"])
    );
    let exact = look(&env, &["ledger.json", "--guard", "exact", "--tree", "HEAD"]).expect(0).json();
    assert_eq!(known(&exact, 1), ["exact", "exact"]);
    let evidence = file(&env)["steps"][0]["evidence"]["tree"].clone();
    let checked = report["steps"][0]["checks"][0]["tree"].as_str().unwrap();
    assert!(checked.starts_with(evidence.as_str().unwrap()), "{report}");
    // What the ledger names is only a tree to compare with: that it passed there must be on record here.
    let mut elsewhere = env.command(&["reconcile", "--format", "json", "--guard", "touches", "ledger.json"]);
    elsewhere.env("CHECKRUN_CACHE_DIR", env.path("home").join("another-cache"));
    let report = run(&mut elsewhere).expect(0).json();
    assert_eq!(known(&report, 0), ["ran", "ran"]);
    // A tree that is gone counts as none.
    let mut ledger = file(&env);
    ledger["steps"][0]["evidence"]["tree"] = json!("1234567890123456789012345678901234567890");
    put(&env, &ledger);
    env.write("other", "3\n");
    let report = look(&env, &touched).expect(0).json();
    assert_eq!((known(&report, 0), known(&report, 1)), (vec!["inputs", "inputs"], vec!["inputs", "inputs"]));
    assert!(
        report["steps"][0]["notes"].to_string().contains("is not in this repository; it counts as none"),
        "{report}"
    );
}

#[test]
fn only_steps_whose_inputs_are_disturbed_run_again() {
    let env = Env::new();
    put(&env, &steps(4));
    (1..=4).for_each(|number| done(&env, number));
    env.commit();
    drop(look(&env, &["ledger.json"]).expect(0));
    env.write("d3/b", "done, but otherwise\n").write("d9/new", "");
    let report = look(&env, &["ledger.json"]).expect(0).json();
    assert_eq!(
        [0, 1, 2, 3].map(|step| known(&report, step)),
        [["inputs", "inputs"], ["inputs", "inputs"], ["inputs", "ran"], ["inputs", "inputs"]]
    );
    let exact = look(&env, &["ledger.json", "--guard", "exact", "--refresh"]).expect(0).json();
    assert_eq!(known(&exact, 0), ["ran", "ran"]);
}

#[test]
fn progress_files_and_backlogs_are_ledgers_too() {
    let env = Env::new();
    let progress = json!({"goal": "late fees", "log": [], "features": [
        {"id": "F1", "title": "fee", "status": "done", "verify": "test -f d1/a", "notes": ""},
        {"id": "F2", "title": "reminder", "status": "todo", "verify": "test -f d2/a", "notes": ""},
        {"id": "Q3", "title": "found on the way", "status": "proposed", "verify": "", "notes": "found during F1"}]});
    env.write("d1/a", "")
        .write("p.json", progress.to_string())
        .write("b.json", "[{\"id\": \"x\", \"check\": \"test -f d1/a\"}]")
        .commit();
    let report = look(&env, &["p.json", "--write", "--also", "test ! -f broken"]).expect(1).json();
    assert_eq!(
        (&report["format"], &report["task"], &report["proposed"]),
        (&json!("progress"), &json!("late fees"), &json!(["Q3"]))
    );
    assert_eq!(findings(&report), ["certified", "uncertified"]);
    assert_eq!(report["steps"][0]["checks"][0]["cmd"], "test ! -f broken");
    let written: Value = serde_json::from_slice(&std::fs::read(env.repo("p.json")).unwrap()).unwrap();
    let status: Vec<&Value> =
        written["features"].as_array().unwrap().iter().map(|feature| &feature["status"]).collect();
    assert_eq!(status, ["done", "todo", "proposed"]);
    env.write("broken", "");
    let report = look(&env, &["p.json", "--also", "test ! -f broken"]).expect(1).json();
    assert_eq!(report["first_uncertified"], "F1");
    let report = look(&env, &["b.json"]).expect(0).json();
    assert_eq!((&report["format"], findings(&report)), (&json!("backlog"), vec!["certified"]));
}

#[test]
fn with_all_independent_steps_are_looked_at_and_others_wait() {
    let env = Env::new();
    let step = |id: &str, needs: &[&str], check: &str| json!({"id": id, "depends_on": needs, "check": check});
    let ledger = json!({"steps": [
        step("late", &["bad"], "true"), step("bad", &[], "false"), step("later", &["late"], "true"),
        step("good", &[], "true"), step("lost", &["good"], "no-such-program-anywhere")]});
    env.write("ledger.json", ledger.to_string()).commit();
    let report = look(&env, &["ledger.json", "--all"]).expect(1).json();
    let by_id = |report: &Value| -> Vec<(String, String)> {
        let steps = report["steps"].as_array().unwrap();
        steps
            .iter()
            .map(|step| {
                (step["id"].as_str().unwrap().to_owned(), step["finding"].as_str().unwrap().to_owned())
            })
            .collect()
    };
    let expected = [
        ("bad", "uncertified"),
        ("late", "blocked"),
        ("later", "blocked"),
        ("good", "certified"),
        ("lost", "undecided"),
    ];
    assert_eq!(by_id(&report), expected.map(|(id, finding)| (id.to_owned(), finding.to_owned())));
    let report = look(&env, &["ledger.json"]).expect(1).json();
    let expected = [
        ("bad", "uncertified"),
        ("late", "blocked"),
        ("later", "blocked"),
        ("good", "not_reached"),
        ("lost", "not_reached"),
    ];
    assert_eq!(by_id(&report), expected.map(|(id, finding)| (id.to_owned(), finding.to_owned())));
}

#[test]
fn what_came_to_no_verdict_is_undecided_and_nothing_is_certified_by_it() {
    let env = Env::new();
    env.write(
        "ledger.json",
        json!({"steps": [{"id": "a", "check": "sleep 600", "status": "passed"}]}).to_string(),
    )
    .commit();
    let report = look(&env, &["ledger.json", "--timeout", "1s", "--write"]).expect(125).json();
    assert_eq!(findings(&report), ["undecided"]);
    assert!(report["steps"][0]["reason"].as_str().unwrap().contains("timed_out"), "{report}");
    assert_eq!(file(&env)["steps"][0]["status"], "undecided");
}

#[test]
fn a_check_that_passes_and_fails_on_one_tree_makes_its_step_flaky() {
    let env = Env::new();
    let check = "grep -q '^[0-7]' /proc/sys/kernel/random/uuid";
    env.write("ledger.json", json!({"steps": [{"id": "a", "check": check}]}).to_string()).commit();
    let began = Instant::now();
    loop {
        let output = look(&env, &["ledger.json", "--refresh"]);
        let report = output.json();
        if findings(&report) == ["flaky"] {
            assert_eq!(output.status, 1);
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(300), "never both: {report}");
    }
}

#[test]
fn ledgers_outside_of_the_repository_and_other_trees_are_looked_at() {
    let env = Env::new();
    let outside = env.path("home").join("ledger.json");
    std::fs::write(&outside, steps(2).to_string()).unwrap();
    done(&env, 1);
    env.commit();
    done(&env, 2);
    env.commit();
    let outside = outside.to_str().unwrap();
    drop(look(&env, &[outside]).expect(0));
    let report = look(&env, &[outside, "--tree", "HEAD~1"]).expect(1).json();
    assert_eq!(report["first_uncertified"], "s02");
    env.git(&["checkout", "-q", "--detach"]);
    drop(look(&env, &[outside]).expect(0));
    drop(look(&env, &[outside, "--tree", "nothing"]).refused(&["names no revision"]));
}
