//! What a user and a harness can rely on: the result object field by field, the exit statuses, and every option of a
//! run.

use crate::support::{EVERYBODY, Env, Who, run};
use serde_json::Value;

/// Checks an object's fields: names, order and types. `s` text, `s?` text or null, `i` a whole number, `i?`, `n` any
/// number, `b` truth, `a` a list of texts, `b3` a digest, `{…}` an object with fields of its own.
fn has_shape(object: &Value, shape: &[(&str, &str)], place: &str) {
    let fields = object.as_object().unwrap_or_else(|| panic!("{place}: {object}"));
    let names: Vec<&str> = fields.keys().map(String::as_str).collect();
    let expected: Vec<&str> = shape.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, expected, "{place}");
    for (name, kind) in shape {
        let value = &fields[*name];
        let optional = kind.ends_with('?');
        let holds = match kind.trim_end_matches('?') {
            "s" => value.is_string(),
            "i" => value.is_i64() || value.is_u64(),
            "n" => value.is_number(),
            "b" => value.is_boolean(),
            "a" => value.as_array().is_some_and(|list| list.iter().all(Value::is_string)),
            "b3" => value.as_str().is_some_and(is_digest),
            "{}" => value.is_object(),
            other => panic!("no such kind {other}"),
        };
        assert!(holds || (optional && value.is_null()), "{place}.{name} is {value}");
    }
}

fn is_digest(text: &str) -> bool {
    text.strip_prefix("b3:")
        .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|byte| b"0123456789abcdef".contains(&byte)))
}

/// Checks all of a result object.
fn is_result(answer: &Value) {
    let top = [
        ("schema", "s"),
        ("key", "b3"),
        ("cache", "s"),
        ("guard", "s"),
        ("tree", "s"),
        ("commit", "s?"),
        ("dirty", "b"),
        ("foreign", "{}"),
        ("scope", "a"),
        ("touches", "a"),
        ("cwd", "s"),
        ("argv", "a"),
        ("cmd", "s"),
        ("deps", "a"),
        ("outcome", "s"),
        ("exit", "i?"),
        ("signal", "i?"),
        ("reason", "s?"),
        ("flaky", "{}?"),
        ("at", "s"),
        ("secs", "n"),
        ("usage", "{}"),
        ("summary", "s?"),
        ("tests", "{}?"),
        ("tail", "s"),
        ("tail_bytes", "i"),
        ("output_bytes", "i"),
        ("output_digest", "b3"),
        ("policy", "{}"),
        ("runner", "{}"),
        ("clock", "{}"),
        ("sandbox", "{}"),
        ("host", "{}"),
    ];
    has_shape(answer, &top, "result");
    let usage = [("user_secs", "n"), ("sys_secs", "n"), ("max_rss_bytes", "i"), ("written_bytes", "i")];
    has_shape(&answer["usage"], &usage, "usage");
    let foreign = [("submodules", "b"), ("empty_submodules", "i"), ("lfs", "b"), ("lfs_pointers", "i")];
    has_shape(&answer["foreign"], &foreign, "foreign");
    has_shape(&answer["policy"], &[("name", "s"), ("digest", "b3")], "policy");
    has_shape(&answer["runner"], &[("name", "s"), ("digest", "b3"), ("toolchain", "s")], "runner");
    has_shape(&answer["clock"], &[("mode", "s"), ("start", "s")], "clock");
    has_shape(&answer["sandbox"], &[("level", "s"), ("layers", "{}")], "sandbox");
    let layers = [
        "user", "mount", "pid", "net", "ipc", "uts", "cgroup", "time", "landlock", "seccomp", "clock",
        "memory", "pids", "cpus", "disk",
    ];
    has_shape(&answer["sandbox"]["layers"], &layers.map(|layer| (layer, "s")), "layers");
    has_shape(&answer["host"], &[("os", "s"), ("arch", "s")], "host");
    if !answer["tests"].is_null() {
        has_shape(&answer["tests"], &[("passed", "i"), ("failed", "i"), ("skipped", "i")], "tests");
    }
    if !answer["flaky"].is_null() {
        has_shape(&answer["flaky"], &[("passed", "i"), ("failed", "i")], "flaky");
    }
    assert_eq!(answer["schema"], "checkrun.result/1");
    for (field, words) in [
        ("cache", &["hit", "miss", "refreshed", "off", "joined"][..]),
        ("guard", &["exact", "inputs", "touches"]),
        (
            "outcome",
            &[
                "passed",
                "failed",
                "timed_out",
                "out_of_memory",
                "pids_limit",
                "disk_full",
                "output_limit",
                "killed",
                "interrupted",
                "not_started",
            ],
        ),
    ] {
        assert!(words.contains(&answer[field].as_str().unwrap()), "{field}: {}", answer[field]);
    }
    assert_eq!(answer["tail_bytes"], answer["tail"].as_str().unwrap().len());
}

#[test]
fn the_result_object_is_as_promised() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let commit = env.write("f", "x\n").commit();
        let first = env.sh("echo out; echo err >&2; exit 3").expect(3);
        assert_eq!(
            (first.out().lines().count(), first.err()),
            (1, String::new()),
            "one object and nothing else"
        );
        let answer = first.json();
        is_result(&answer);
        let expected = [
            ("cache", "miss".into()),
            ("guard", "exact".into()),
            ("commit", commit.into()),
            ("dirty", false.into()),
            ("tree", env.git(&["rev-parse", "HEAD^{tree}"]).into()),
            ("cwd", ".".into()),
            ("outcome", "failed".into()),
            ("argv", serde_json::json!(["sh", "-c", "echo out; echo err >&2; exit 3"])),
            ("cmd", "sh -c 'echo out; echo err >&2; exit 3'".into()),
            ("exit", 3.into()),
            ("signal", Value::Null),
            ("reason", Value::Null),
            ("flaky", Value::Null),
            ("summary", Value::Null),
            ("tests", Value::Null),
            ("tail", "out\nerr\n".into()),
            ("output_bytes", 8.into()),
            ("scope", serde_json::json!([])),
        ];
        for (field, value) in expected {
            assert_eq!(answer[field], value, "{field}");
        }
        assert_eq!(answer["policy"]["name"], "hermetic");
        assert_eq!(answer["clock"], serde_json::json!({"mode": "ticking", "start": "2026-01-01T00:00:00Z"}));
        assert_eq!(
            (answer["sandbox"]["level"].clone(), answer["host"]["os"].clone()),
            ("full".into(), "linux".into())
        );
        // A hit says the same but for how it came about, the time of the run included.
        let mut hit = env.sh("echo out; echo err >&2; exit 3").expect(3).json();
        is_result(&hit);
        assert_eq!(hit["cache"], "hit");
        hit["cache"] = "miss".into();
        assert_eq!(hit, answer);
        // And so does the record.
        let mut shown = env.checkrun(&["show", "1", "--format", "json"]).expect(0).json();
        shown["cache"] = "miss".into();
        assert_eq!(shown, answer);
    }
}

#[test]
fn every_ending_has_its_status_and_its_outcome() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("folder/x", "").commit();
        let mut cases: Vec<(&[&str], i32, &str)> = vec![
            (&["--", "true"], 0, "passed"),
            (&["--", "sh", "-c", "exit 1"], 1, "failed"),
            (&["--", "sh", "-c", "exit 42"], 42, "failed"),
            (&["--", "sh", "-c", "exit 255"], 255, "failed"),
            (&["--timeout", "1s", "--", "sleep", "60"], 124, "timed_out"),
            (&["--", "./folder"], 126, "not_started"),
            (&["--", "no-such-tool"], 127, "not_started"),
            (&["--", "sh", "-c", "kill -TERM $$"], 143, "failed"),
            (&["--", "sh", "-c", "kill -KILL $$"], 137, "failed"),
            (&["--output-limit", "1KiB", "--", "yes"], 137, "output_limit"),
            (&["--disk", "64KiB", "--", "sh", "-c", "head -c 1M /dev/zero >f"], 1, "disk_full"),
        ];
        if who == Who::Root {
            // Only a control group counts them; to an ordinary user without one the limit shows as a plain failure.
            let many: &[&str] =
                &["--pids", "3", "--", "sh", "-c", "for n in 1 2 3 4 5; do sleep 1 & done; wait"];
            cases.push((many, 2, "pids_limit"));
            let hungry: &[&str] =
                &["--memory", "32MiB", "--", "/usr/bin/python3", "-c", "bytearray(1 << 30)"];
            cases.push((hungry, 137, "out_of_memory"));
        }
        for (args, status, outcome) in cases {
            let answer = env.checkrun(&[&["--format", "json"], args].concat()).expect(status).json();
            is_result(&answer);
            assert_eq!(answer["outcome"], outcome, "{args:?}");
        }
    }
}

#[test]
fn the_cache_is_used_as_asked() {
    let env = Env::new();
    env.commit();
    let check = |options: &[&str]| {
        let args =
            [&["--format", "json"], options, &["--", "sh", "-c", "head -c 8 /dev/urandom | od -An -tx1"]]
                .concat();
        env.checkrun(&args)
    };
    let tail = |answer: &Value| answer["tail"].clone();
    drop(
        check(&["--cached-only"]).refused(&["no earlier result answers: no record under this key", "hint:"]),
    );
    let off = check(&["--no-cache"]).expect(0).json();
    is_result(&off);
    assert_eq!(off["cache"], "off");
    assert!(env.logged().is_empty());
    let first = check(&[]).expect(0).json();
    assert_eq!(first["cache"], "miss");
    let hit = check(&["--cached-only"]).expect(0).json();
    assert_eq!((hit["cache"].clone(), tail(&hit)), ("hit".into(), tail(&first)));
    assert_ne!(tail(&check(&["--no-cache"]).expect(0).json()), tail(&first));
    assert_eq!(tail(&check(&[]).expect(0).json()), tail(&first));
    let refreshed = check(&["--refresh"]).expect(0).json();
    assert_eq!(refreshed["cache"], "refreshed");
    assert_ne!(tail(&refreshed), tail(&first));
    assert_eq!(tail(&check(&[]).expect(0).json()), tail(&refreshed));
    assert_eq!(env.logged().len(), 2);
}

#[test]
fn a_key_that_passed_and_failed_is_flaky_and_runs_each_time() {
    let env = Env::new();
    env.commit();
    let script = "test $(head -c 1 /dev/urandom | od -An -tu1) -lt 128";
    let mut seen = [0_u64; 2];
    while seen.contains(&0) {
        let output = env.checkrun(&["--refresh", "--", "sh", "-c", script]);
        seen[usize::try_from(output.status).unwrap()] += 1;
        assert!(seen[0] + seen[1] < 100);
    }
    for _ in 0..2 {
        let output = env.sh(script);
        let answer = output.json();
        is_result(&answer);
        seen[usize::try_from(output.status).unwrap()] += 1;
        assert_eq!(answer["cache"], "miss");
        assert_eq!(answer["flaky"], serde_json::json!({"passed": seen[0], "failed": seen[1]}));
    }
    drop(env.checkrun(&["--cached-only", "--", "sh", "-c", script]).refused(&["flaky: passed"]));
}

#[test]
fn a_pass_without_the_tests_asked_for_is_a_failure() {
    let env = Env::new();
    env.commit();
    let two =
        "echo '--- PASS: TestA (0.00s)'; echo '--- PASS: TestB (0.00s)'; echo 'ok  \texample.org/m\t0.01s'";
    let check = |options: &[&str], script: &str| {
        env.checkrun(
            &[&["--format", "json", "--runner", "go"], options, &["--", "sh", "-c", script]].concat(),
        )
    };
    for options in [&[][..], &["--require-tests"], &["--require-tests=2"]] {
        let answer = check(options, two).expect(0).json();
        is_result(&answer);
        assert_eq!(
            answer["tests"],
            serde_json::json!({"passed": 2, "failed": 0, "skipped": 0}),
            "{options:?}"
        );
        assert!(answer["summary"].as_str().unwrap().contains("example.org/m"), "{}", answer["summary"]);
    }
    for round in ["miss", "hit"] {
        let answer = check(&["--require-tests=3"], two).expect(1).json();
        assert_eq!((answer["cache"].clone(), answer["outcome"].clone()), (round.into(), "failed".into()));
        assert!(answer["reason"].as_str().unwrap().starts_with("no_tests: "), "{}", answer["reason"]);
    }
    let none = check(&["--require-tests"], "true").expect(1).json();
    assert!(none["reason"].as_str().unwrap().starts_with("no_tests: "), "{}", none["reason"]);
    let plain = env.checkrun(&["--require-tests", "--", "true"]).expect(1);
    assert!(plain.err().contains("no_tests"), "{}", plain.err());
}

#[test]
fn formats_and_files() {
    let env = Env::new();
    env.commit();
    let (result, log) = (env.path("home/result.json"), env.path("home/log"));
    let files = ["--output", result.to_str().unwrap(), "--log", log.to_str().unwrap()];
    let command = ["--", "sh", "-c", "echo out; sleep 0.2; echo err >&2; exit 3"];
    for round in ["miss", "hit", "off"] {
        let options: &[&str] = if round == "off" { &["--no-cache"] } else { &[] };
        drop(std::fs::remove_file(&result));
        drop(std::fs::remove_file(&log));
        let output = env.checkrun(&[&["--format", "json"], options, &files, &command].concat()).expect(3);
        assert_eq!(output.json()["cache"], round);
        assert_eq!((std::fs::read(&result).unwrap(), output.err()), (output.stdout, String::new()));
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "out\nerr\n", "{round}");
    }
    // Relative to where the call is about, and whatever the format.
    drop(
        run(env
            .command(&[&["-C", "../repo", "--output", "../home/r2"], &command[..]].concat())
            .current_dir(env.path("home")))
        .expect(3),
    );
    is_result(&serde_json::from_slice(&std::fs::read(env.path("home/r2")).unwrap()).unwrap());
    let shown = env.checkrun(&[&["--format", "json", "--show-output"], &command[..]].concat()).expect(3);
    assert_eq!(shown.err(), "out\nerr\n");
    is_result(&shown.json());
    let events = env.checkrun(&[&["--format", "jsonl", "--no-cache"], &command[..]].concat()).expect(3);
    let lines: Vec<Value> = events.out().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["schema"], "checkrun.events/1");
    assert_eq!(
        lines.iter().map(|line| line["event"].as_str().unwrap()).collect::<Vec<_>>(),
        ["resolved", "started", "result"]
    );
    is_result(&lines[2]["result"]);
    assert_eq!(
        (lines[0]["tree"].clone(), lines[0]["key"].clone()),
        (lines[2]["result"]["tree"].clone(), lines[2]["result"]["key"].clone())
    );
    // The human form.
    let quiet = env.checkrun(&[&["-q"], &command[..]].concat()).expect(3);
    assert_eq!((quiet.out(), quiet.err()), ("out\n".to_owned(), "err\n".to_owned()));
    let plain = env.checkrun(&command).expect(3);
    let tree = env.git(&["rev-parse", "HEAD^{tree}"]);
    let line = format!("err\ncheckrun: failed, exit 3 (cached, exact) tree {} in 0.", &tree[..12]);
    assert!(plain.err().starts_with(&line) && plain.err().ends_with("s\n"), "{}", plain.err());
    let verbose = env.checkrun(&[&["-v"], &command[..]].concat()).expect(3);
    let key = lines[0]["key"].as_str().unwrap();
    assert!(
        verbose.err().contains(key)
            && verbose.err().contains("policy hermetic, runner generic, sandbox full"),
        "{}",
        verbose.err()
    );
    assert_eq!(env.checkrun(&[&["run"], &command[..]].concat()).expect(3).err(), plain.err());
}
