//! Certifying steps, going back from them, and what was put away.

use crate::reconcile::{done, findings, look, put, steps};
use crate::support::{EVERYBODY, Env, Output};
use serde_json::{Value, json};

fn certify(env: &Env, step: &str, options: &[&str]) -> Output {
    let mut args = vec!["certify", step, "--ledger", "ledger.json", "--format", "json"];
    args.extend(options);
    env.checkrun(&args)
}

fn rollback(env: &Env, step: &str, options: &[&str]) -> Output {
    let mut args = vec!["rollback", step, "--ledger", "ledger.json", "--format", "json"];
    args.extend(options);
    env.checkrun(&args)
}

fn file(env: &Env) -> Value {
    serde_json::from_slice(&std::fs::read(env.repo("ledger.json")).unwrap()).unwrap()
}

/// A repository whose first `count` of four steps are certified and committed.
fn certified(env: &Env, count: usize) {
    put(env, &steps(4));
    env.write("README", "x\n").commit();
    for number in 1..=count {
        done(env, number);
        drop(certify(env, &format!("s{number:02}"), &["--commit"]).expect(0));
    }
}

#[test]
fn a_certified_step_is_a_commit_of_the_tree_that_was_checked() {
    for who in EVERYBODY {
        let env = Env::of(who);
        put(&env, &steps(2));
        env.write("README", "x\n").write(".gitignore", "ignored\n").commit();
        done(&env, 1);
        env.write("ignored", "").write("d1/run", "#!/bin/sh\n").executable("d1/run");
        std::os::unix::fs::symlink("a", env.repo("d1/link")).unwrap();
        let told = certify(&env, "s01", &["--commit", "--run", "r-1"]).expect(0).json();
        assert_eq!(told["finding"], "certified");
        let head = env.git(&["rev-parse", "HEAD"]);
        assert_eq!(told["commit"], json!(head));
        assert_eq!(told["commit_tree"], json!(env.git(&["rev-parse", "HEAD^{tree}"])));
        assert_eq!(env.git(&["status", "--porcelain"]), "");
        assert_eq!(env.git(&["symbolic-ref", "HEAD"]), "refs/heads/main");
        assert_eq!(env.git(&["log", "--format=%an %cn", "-1"]), "A C");
        // All but the ledger is the tree that was checked.
        let report = look(&env, &["ledger.json", "--tree", "HEAD"]).expect(1).json();
        assert_eq!(report["tree"], told["tree"]);
        assert_eq!((&report["first_uncertified"], findings(&report)[0]), (&json!("s02"), "certified"));
        let message = env.git(&["log", "--format=%B", "-1"]);
        for part in [
            "s01: step 1",
            "Agent-Run: r-1",
            "Agent-Step: s01",
            "Agent-Check: test -f d1/a exit=0 secs=",
            "Agent-Plan-Version: 3",
        ] {
            assert!(message.contains(part), "`{part}` is not in:\n{message}");
        }
        let written = file(&env);
        assert_eq!(written["steps"][0]["status"], "passed");
        let tree = written["steps"][0]["evidence"]["tree"].as_str().unwrap();
        assert!(tree.len() == 12 && told["tree"].as_str().unwrap().starts_with(tree), "{written}");
        assert_eq!(written["steps"][0]["attempts"], 1);
        assert_eq!(env.git(&["fsck", "--strict"]), "");
        // Once more changes nothing.
        let again = certify(&env, "s01", &["--commit", "--run", "r-1"]).expect(0).json();
        assert_eq!((&again["commit"], file(&env)), (&json!(head), written));
    }
}

#[test]
fn a_ledger_outside_of_the_repository_leaves_the_tree_exactly_as_checked() {
    let env = Env::new();
    env.write("README", "x\n").commit();
    let ledger = env.path("home").join("ledger.json");
    std::fs::write(&ledger, steps(1).to_string()).unwrap();
    if env.who() == crate::support::Who::User && crate::support::is_root() {
        std::os::unix::fs::chown(&ledger, Some(crate::support::USER), Some(crate::support::USER)).unwrap();
    }
    done(&env, 1);
    let told = env
        .checkrun(&["certify", "s01", "--ledger", ledger.to_str().unwrap(), "--commit", "--format", "json"])
        .expect(0)
        .json();
    assert_eq!(told["tree"], json!(env.git(&["rev-parse", "HEAD^{tree}"])));
    assert_eq!(told["tree"], told["commit_tree"]);
}

#[test]
fn what_fails_is_written_down_and_the_tree_is_left_alone() {
    let env = Env::new();
    certified(&env, 1);
    env.write("d2/a", "half\n");
    let head = env.git(&["rev-parse", "HEAD"]);
    let told = certify(&env, "s02", &["--commit", "--hypothesis", "b is missing"]).expect(1).json();
    assert_eq!((&told["finding"], &told["commit"]), (&json!("uncertified"), &Value::Null));
    assert_eq!(env.git(&["rev-parse", "HEAD"]), head);
    assert_eq!(env.git(&["status", "--porcelain"]), "M ledger.json\n?? d2/");
    let step = &file(&env)["steps"][1];
    assert_eq!((&step["status"], &step["attempts"]), (&json!("uncertified"), &json!(1)));
    assert_eq!(step["last_failure"]["hypothesis"], "b is missing");
    let text = env.checkrun(&["certify", "s02", "--ledger", "ledger.json"]).expect(1).out();
    assert!(text.contains("s02: uncertified") && text.contains("`grep -q done d2/b` exit 2"), "{text}");
}

#[test]
fn nothing_is_certified_or_put_back_where_no_state_is_one() {
    let env = Env::new();
    certified(&env, 2);
    let before = std::fs::read(env.repo("ledger.json")).unwrap();
    drop(certify(&env, "s09", &[]).refused(&["has no step `s09`", "`s01`"]));
    env.git(&["checkout", "-q", "--detach"]);
    drop(certify(&env, "s02", &["--commit"]).refused(&["HEAD is detached", "git switch -c"]));
    drop(certify(&env, "s02", &[]).expect(0));
    env.git(&["checkout", "-q", "main"]);
    env.git(&["checkout", "-q", "-b", "side", "HEAD~1"]);
    env.write("README", "y\n").commit();
    env.git(&["merge", "-q", "--no-commit", "--no-ff", "main"]);
    let here = std::fs::read(env.repo("ledger.json")).unwrap();
    for refused in [
        certify(&env, "s01", &["--commit"]),
        rollback(&env, "s02", &[]),
        look(&env, &["ledger.json", "--write"]),
    ] {
        drop(refused.refused(&["in the middle of a merge", "git status"]));
    }
    assert_eq!(std::fs::read(env.repo("ledger.json")).unwrap(), here);
    let report = look(&env, &["ledger.json"]).expect(1).json();
    assert!(report["notes"].to_string().contains("in the middle of a merge"), "{report}");
    env.git(&["merge", "--abort"]);
    env.git(&["checkout", "-q", "main"]);
    assert_eq!(std::fs::read(env.repo("ledger.json")).unwrap(), before);
}

#[test]
fn going_back_keeps_the_work_and_touches_nothing_else() {
    for who in EVERYBODY {
        let env = Env::of(who);
        certified(&env, 2);
        // Half of the third step: a new file, a change to a stranger, a note of somebody's.
        env.write("d3/a", "half\n")
            .write("d3/deep/er", "more\n")
            .write("README", "y\n")
            .write("notes", "mine\n");
        let before = env.git(&["status", "--porcelain", "-uall"]);
        let planned = rollback(&env, "s03", &["--dry-run"]).expect(0).json();
        assert_eq!(env.git(&["status", "--porcelain", "-uall"]), before);
        assert_eq!((&planned["partial"], &planned["to_step"]), (&Value::Null, &json!("s02")));
        let told = rollback(&env, "s03", &[]).expect(0).json();
        assert_eq!(
            told["put_back"],
            json!([{"change": "A", "path": "d3/a"}, {"change": "A", "path": "d3/deep/er"}])
        );
        assert_eq!(planned["put_back"], told["put_back"]);
        let strangers: Vec<&Value> =
            told["strangers"].as_array().unwrap().iter().map(|stranger| &stranger["path"]).collect();
        assert_eq!(strangers, ["README", "notes"]);
        assert!(!env.repo("d3").exists());
        assert_eq!(std::fs::read_to_string(env.repo("README")).unwrap(), "y\n");
        assert_eq!(file(&env)["steps"][2]["partial"], told["partial"]);
        let listed = env.checkrun(&["partials", "--format", "json"]).expect(0).json();
        let partial = &listed["partials"][0];
        assert_eq!((&partial["step"], &partial["boundary"]), (&json!("s03"), &json!("s02")));
        let reference = told["partial"].as_str().unwrap();
        assert_eq!(env.git(&["show", &format!("{reference}:notes")]), "mine");
        let name = partial["name"].as_str().unwrap();
        assert!(env.checkrun(&["partials"]).expect(0).out().contains(name));
        // Work on top of it is not written over; without, it is put back.
        env.write("d3/a", "other\n");
        drop(env.checkrun(&["partials", "apply", name]).refused(&["`d3/a` has changed since"]));
        std::fs::remove_file(env.repo("d3/a")).unwrap();
        // Its step is enough of a name as long as there is one of it only.
        let back = env.checkrun(&["partials", "apply", "s03", "--format", "json"]).expect(0).json();
        assert_eq!(back["name"], name);
        assert_eq!(std::fs::read_to_string(env.repo("d3/a")).unwrap(), "half\n");
        assert_eq!(std::fs::read_to_string(env.repo("d3/deep/er")).unwrap(), "more\n");
        // The same work is kept once, other work beside it.
        assert_eq!(rollback(&env, "s03", &[]).expect(0).json()["partial"], told["partial"]);
        env.write("d3/a", "again\n");
        let second = rollback(&env, "s03", &[]).expect(0).json();
        assert_eq!(second["partial"], json!(format!("{reference}.2")));
        let there = std::fs::read_dir(env.repo("")).unwrap().count();
        let refused = |other: &str, parts: &[&str]| {
            drop(env.checkrun(&["partials", "apply", other]).refused(parts));
            assert_eq!(std::fs::read_dir(env.repo("")).unwrap().count(), there, "nothing is put back");
        };
        refused("s03", &["`s03` may be any of 2 partial states", &format!("{name}, {name}.2")]);
        refused(
            "other/s03",
            &["nothing was put away as `other/s03`", &format!("there is: {name}, {name}.2")],
        );
        refused("nothing", &["nothing was put away as `nothing`", "`checkrun partials` lists"]);
        drop(env.checkrun(&["partials", "apply", "s03.2"]).expect(0));
        assert_eq!(std::fs::read_to_string(env.repo("d3/a")).unwrap(), "again\n");
    }
}

#[test]
fn what_a_step_changed_and_deleted_comes_back_with_its_modes() {
    let env = Env::new();
    let mut ledger = steps(2);
    ledger["steps"][1]["touches"] = json!(["d1", "d2/**"]);
    ledger["steps"][1]["rollback_to"] = Value::Null;
    put(&env, &ledger);
    env.write("README", "x\n").commit();
    done(&env, 1);
    env.write("d1/run", "#!/bin/sh\n").executable("d1/run");
    std::os::unix::fs::symlink("a", env.repo("d1/link")).unwrap();
    drop(certify(&env, "s01", &["--commit"]).expect(0));
    for path in ["d1/run", "d1/link", "d1/b"] {
        std::fs::remove_file(env.repo(path)).unwrap();
    }
    // A folder where a file was.
    env.write("d1/a2", "new\n").write("d1/b/inside", "x\n");
    drop(rollback(&env, "s02", &[]).expect(0));
    assert_eq!(env.git(&["status", "--porcelain", "-uall"]), "M ledger.json");
    assert_eq!(std::fs::read_link(env.repo("d1/link")).unwrap().to_str(), Some("a"));
}

#[test]
fn going_back_is_refused_where_it_cannot_be_sure() {
    let env = Env::new();
    certified(&env, 2);
    env.write("d3/a", "half\n");
    let before = std::fs::read(env.repo("ledger.json")).unwrap();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut ledger: Value = serde_json::from_slice(&before).unwrap();
        change(&mut ledger["steps"]);
        put(&env, &ledger);
    };
    with(&|steps| steps[2]["touches"] = json!([]));
    drop(rollback(&env, "s03", &[]).refused(&["`s03` names no touches"]));
    with(&|steps| {
        steps[2]["depends_on"] = json!(["s01", "s02"]);
        steps[2]["rollback_to"] = Value::Null;
    });
    drop(rollback(&env, "s03", &[]).refused(&["depends on 2 steps and has no `rollback_to`"]));
    with(&|steps| {
        steps[2]["touches"] = json!(["d3/**", "d4/**"]);
        steps[3]["status"] = json!("passed");
    });
    drop(rollback(&env, "s03", &[]).refused(&["`s04` builds on `s03` and is recorded as done"]));
    env.write("d4/a", "");
    drop(rollback(&env, "s03", &[]).refused(&["`s04` is recorded as done", "d4/a"]));
    // A state that its own check does not confirm is none, whatever commit and evidence say.
    with(&|steps| steps[1]["check"] = json!("test -f nowhere"));
    drop(rollback(&env, "s03", &[]).refused(&["`s02` does not hold on tree", "it is uncertified there"]));
    // A file that git ignores is in no tree, so nothing would keep it.
    with(&|steps| steps[2]["touches"] = json!(["d2/**"]));
    std::fs::remove_file(env.repo("d2/a")).unwrap();
    env.git(&["rm", "-q", "--cached", "d2/a"]);
    env.write(".git/info/exclude", "/d2/a\n").write("d2/a", "precious\n");
    drop(rollback(&env, "s03", &[]).refused(&["`d2/a` is there and is ignored by git"]));
    assert_eq!(std::fs::read_to_string(env.repo("d2/a")).unwrap(), "precious\n");
    assert_eq!(std::fs::read_to_string(env.repo("d3/a")).unwrap(), "half\n");
    assert_eq!(env.git(&["for-each-ref", "refs/checkrun"]), "");
}

/// What differs from one call to another and says nothing of what was found.
fn without_times(mut report: Value) -> Value {
    report["secs"] = Value::Null;
    report["secs_saved"] = Value::Null;
    for step in report["steps"].as_array_mut().unwrap() {
        for check in step["checks"].as_array_mut().unwrap() {
            check["secs"] = Value::Null;
            check["at"] = Value::Null;
        }
    }
    report
}

#[test]
fn several_jobs_come_to_the_same_answer() {
    let plan = |fails: &[usize]| -> Value {
        let step = |number: usize| {
            // Three chains that do not depend on each other, and one step that needs all of them.
            let needs: Vec<String> = match number {
                1..=3 => Vec::new(),
                7 => vec!["s4".into(), "s5".into(), "s6".into()],
                _ => vec![format!("s{}", number - 3)],
            };
            let check = if fails.contains(&number) { "false".into() } else { format!("test -f d{number}/a") };
            json!({"id": format!("s{number}"), "depends_on": needs, "check": ["true", check]})
        };
        json!({"steps": (1..=7).map(step).collect::<Vec<_>>()})
    };
    for (fails, options, status) in [(&[][..], &[][..], 0), (&[5], &[], 1), (&[5, 3], &["--all"], 1)] {
        let reports = ["1", "3"].map(|jobs| {
            let env = Env::new();
            put(&env, &plan(fails));
            (1..=7).for_each(|number| done(&env, number));
            env.commit();
            let options = [&["ledger.json", "--jobs", jobs][..], options].concat();
            let first = without_times(look(&env, &options).expect(status).json());
            assert_eq!(first["steps"][0]["checks"][1]["known"], "ran");
            let refreshed = look(&env, &[&options[..], &["--refresh"]].concat()).expect(status).json();
            assert_eq!(without_times(refreshed)["steps"][0]["checks"][1]["known"], "ran");
            let second = look(&env, &options).expect(status).json();
            assert_eq!(second["steps"][0]["checks"][1]["known"], "exact");
            first
        });
        assert_eq!(reports[0], reports[1]);
    }
    drop(Env::new().checkrun(&["reconcile", "x", "--jobs", "0"]).expect(125));
}
