//! The commands beside the check itself: what is on record, why something would not answer, what there is, and making
//! room.

use crate::support::{EVERYBODY, Env, Output, Who};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The lines of a listing in JSON.
fn objects(output: &Output) -> Vec<Value> {
    output
        .out()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[test]
fn records_are_listed_and_shown() {
    for who in EVERYBODY {
        let env = Env::of(who);
        assert_eq!(env.checkrun(&["log"]).expect(0).out(), "");
        let commit = env.write("f", "x\n").commit();
        drop(env.checkrun(&["--", "cat", "f"]).expect(0));
        env.write("f", "y\n");
        drop(env.checkrun(&["--", "grep", "-q", "x y", "f"]).expect(1));
        let rows = env.logged();
        assert_eq!(rows.iter().map(|row| row["id"].clone()).collect::<Vec<_>>(), [2, 1], "newest first");
        let fields: Vec<&String> = rows[0].as_object().unwrap().keys().collect();
        assert_eq!(fields, ["id", "key", "tree", "commit", "outcome", "exit", "signal", "at", "secs", "cmd"]);
        assert_eq!(
            (rows[0]["cmd"].clone(), rows[0]["outcome"].clone()),
            ("grep -q 'x y' f".into(), "failed".into())
        );
        assert_eq!((rows[1]["commit"].clone(), rows[1]["exit"].clone()), (commit.into(), 0.into()));
        let of_head = env.checkrun(&["log", "--tree", "HEAD", "--format", "json"]).expect(0);
        assert_eq!(objects(&of_head), rows[1..]);
        let text = env.checkrun(&["log"]).expect(0).out();
        assert!(
            text.lines().count() == 2 && text.contains("failed") && text.contains("grep -q 'x y' f"),
            "{text}"
        );
        let key = rows[1]["key"].as_str().unwrap();
        for name in ["1", key, &key[..12], key.trim_start_matches("b3:")] {
            let shown = env.checkrun(&["show", name, "--format", "json"]).expect(0).json();
            assert_eq!(
                (shown["key"].clone(), shown["tail"].clone(), shown["guard"].clone()),
                (key.into(), "x\n".into(), "exact".into())
            );
            assert_eq!(env.checkrun(&["show", name, "--log"]).expect(0).out(), "x\n");
        }
        let text = env.checkrun(&["show", "2"]).expect(0).out();
        for part in [
            "id       2\n",
            "command  grep -q 'x y' f\n",
            "outcome  failed, exit 1\n",
            "policy   hermetic b3:",
        ] {
            assert!(text.contains(part), "`{part}` is not in:\n{text}");
        }
    }
}

// bazelbuild/bazel#3026, #4302, #13566, #18643, vercel/turborepo#3142, golang/go#35301: "a file changed", but not which.
#[test]
fn explain_names_what_differs() {
    let env = Env::new().var("SECRET", "s3cret");
    env.write("f", "x\n").write("sub/g", "g\n").write("gone", "").commit();
    let command = ["--", "cat", "f"];
    let explain =
        |options: &[&str]| env.checkrun(&[&["explain"], options, &command].concat()).expect(0).out();
    assert!(explain(&[]).starts_with("miss: no record under this key\n"), "{}", explain(&[]));
    assert!(explain(&[]).contains("no earlier record of this command"));
    drop(env.checkrun(&command).expect(0));
    assert!(explain(&[]).starts_with("hit under guard exact (record 1)\nkey b3:"), "{}", explain(&[]));
    env.write("f", "y\n").write("new", "").commit();
    std::fs::remove_file(env.repo("gone")).unwrap();
    let text = explain(&[]);
    for part in ["nearest is record 1", "    M f\n", "    A new\n", "    D gone\n", "tree: "] {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
    assert!(!text.contains("sub/g"), "{text}");
    let told = env.checkrun(&[&["explain", "--format", "json"], &command[..]].concat()).expect(0).json();
    assert_eq!(
        (told["hit"].clone(), told["nearest"].clone(), told["paths_total"].clone()),
        (false.into(), 1.into(), 3.into())
    );
    assert_eq!(told["paths"], json!([["M", "f"], ["D", "gone"], ["A", "new"]]));
    // Other than the tree: the limit, and a variable by its name only.
    let text = explain(&["--tree", "HEAD~1", "--timeout", "77s", "--env", "SECRET"]);
    assert!(text.contains("policy.timeout") && text.contains("SECRET") && !text.contains("s3cret"), "{text}");
    assert!(!text.contains("    M "), "{text}");
    let text = explain(&["--tree", "HEAD~1", "--policy", "landlock"]);
    assert!(text.contains("policy.level: full -> landlock"), "{text}");
    // Why what is on record does not answer.
    drop(env.checkrun(&["--timeout", "200ms", "--", "sleep", "9"]).expect(124));
    let text = env.checkrun(&["explain", "--timeout", "200ms", "--", "sleep", "9"]).expect(0).out();
    assert!(text.starts_with("miss: ") && text.contains("timed_out"), "{text}");
    let text = env.checkrun(&["explain", "--policy", "networked", "--", "cat", "f"]).expect(0).out();
    assert!(text.contains("never reused"), "{text}");
    assert_eq!(env.logged().len(), 2, "explaining runs nothing");
}

#[test]
fn policies_and_runners_say_what_there_is_and_what_it_comes_to() {
    let env = Env::new();
    let names = |output: Output| {
        objects(&output).iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        names(env.checkrun(&["policies", "--format", "json"]).expect(0)),
        ["hermetic", "strict", "landlock", "networked", "prepare", "nested"]
    );
    assert!(names(env.checkrun(&["runners", "--format", "json"]).expect(0)).contains(&"go".to_owned()));
    assert_eq!(env.checkrun(&["policies"]).expect(0).out().lines().count(), 6);
    env.commit();
    for name in ["hermetic", "strict", "landlock", "networked", "prepare", "nested"] {
        let text = env.checkrun(&["policies", name]).expect(0).out();
        let one = env.checkrun(&["policies", name, "--format", "json"]).expect(0).json();
        assert_eq!(one["expanded"], text.as_str());
        // What is printed is a policy file that means the same.
        std::fs::write(env.path("again.toml"), &text).unwrap();
        let again = env
            .checkrun(&["policies", env.path("again.toml").to_str().unwrap(), "--format", "json"])
            .expect(0)
            .json();
        assert_eq!(again["digest"], one["digest"], "{name}");
    }
    let digest =
        env.checkrun(&["policies", "hermetic", "--format", "json"]).expect(0).json()["digest"].clone();
    assert_eq!(env.sh("true").expect(0).json()["policy"]["digest"], digest);
    assert!(env.checkrun(&["runners", "go"]).expect(0).out().contains("GOPROXY"));
}

#[test]
fn doctor_tells_what_the_machine_offers() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let found = env.checkrun(&["doctor", "--format", "json"]).expect(0).json();
        assert_eq!(found["level"], "full");
        for layer in ["user", "mount", "pid", "net", "ipc", "uts", "cgroup", "landlock", "seccomp", "disk"] {
            assert_eq!(found["layers"][layer]["state"], "enforced", "{layer}");
        }
        assert_eq!(found["overlay"]["state"], "enforced");
        let text = env.checkrun(&["doctor"]).expect(0).out();
        let row = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_start).unwrap_or_default()
        };
        assert!(row("level ").starts_with("full: ") && row("ok ").contains("landlock (ABI "), "{text}");
        // It tried to get out, and could not.
        let tried = ["read_in", "reach_out", "see_processes", "write_out"].map(|what| (what, "ok"));
        assert_eq!(found["isolation"], json!(BTreeMap::from(tried)));
        assert!(row("isolation ").starts_with("a check tried: reaching out refused"), "{text}");
        // Where nothing is missing there is nothing to mend.
        let missing =
            found["layers"].as_object().unwrap().values().any(|layer| layer["state"] == "unavailable");
        assert_eq!(text.contains("\nmend "), missing, "{text}");
        assert_eq!(found["remedies"] == json!([]), !missing, "{found}");
        assert!(who == Who::User || !missing, "{text}");
        assert!(text.lines().count() <= 24 && text.lines().all(|line| line.len() <= 80), "{text}");
        // What a run then has is what doctor said.
        let had = env.sh("true").expect(0).json()["sandbox"]["layers"].clone();
        for (layer, state) in found["layers"].as_object().unwrap() {
            let said = state["state"].as_str().unwrap();
            let had = had[layer].as_str().unwrap();
            assert!(had == "off" || had.starts_with(said), "{layer}: doctor says {said}, the run had {had}");
        }
    }
}

// vercel/turborepo#863, #7029, simstudioai/sim#7214 (206 GB), uzh-bf/klicker-uzh#5775: no bound.
#[test]
fn room_is_made_by_size_age_and_number() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("f", "x\n").commit();
        assert_eq!(env.checkrun(&["gc"]).expect(0).err(), "");
        let loud = ["--", "sh", "-c", "head -c 1M /dev/urandom"];
        drop(env.checkrun(&loud).expect(0));
        drop(env.checkrun(&["--", "cat", "f"]).expect(0));
        let kept = env.checkrun(&["gc", "--format", "json"]).expect(0).json();
        assert_eq!(kept, json!({"records": 0, "logs": 0, "log_bytes": 0, "layers": 0, "leftovers": 0}));
        let swept = env.checkrun(&["gc", "--max-size", "100KiB", "--format", "json"]).expect(0).json();
        assert_eq!((swept["logs"].clone(), swept["records"].clone()), (1.into(), 0.into()));
        assert!(swept["log_bytes"].as_u64().unwrap() > 1_000_000);
        // Without its log a record still answers, and without its layer a tree is laid out again.
        assert!(env.checkrun(&["--cached-only", "--", "cat", "f"]).expect(0).out() == "x\n");
        drop(env.checkrun(&["--cached-only", "-q", "--", "sh", "-c", loud[3]]).expect(0));
        let swept = env.checkrun(&["gc", "--max-size", "0", "--format", "json"]).expect(0).json();
        assert_eq!(swept["layers"], 1);
        drop(env.checkrun(&["--refresh", "--", "cat", "f"]).expect(0));
        // By number: more than are kept, put there by hand, the oldest first.
        env.sql(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50100)
             INSERT INTO executions (key, weak, command, tree, outcome, log, at_secs, evidence, tag)
             SELECT zeroblob(32), zeroblob(32), zeroblob(32), 't', 'timed_out', NULL, 0, zeroblob(600), zeroblob(32) FROM n",
        );
        drop(env.checkrun(&["--refresh", "--", "cat", "f"]).expect(0));
        let swept = env.checkrun(&["gc", "--format", "json"]).expect(0).json();
        assert!(swept["records"].as_u64().unwrap() >= 100, "{swept}");
        assert_eq!(env.sql("SELECT count(*) FROM executions"), json!([[50_000]]));
        assert_eq!(env.checkrun(&["--cached-only", "--", "cat", "f"]).expect(0).out(), "x\n");
        // By age.
        std::thread::sleep(std::time::Duration::from_millis(2100));
        let swept = env.checkrun(&["gc", "--max-age", "1s", "--format", "json"]).expect(0).json();
        assert_eq!(swept["records"], 50_000);
        assert!(env.logged().is_empty());
        drop(env.checkrun(&["--cached-only", "--", "cat", "f"]).refused(&["no record under this key"]));
    }
}
