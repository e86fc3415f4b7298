//! How flaky a check is: rules, verdicts, statuses, and what is on record afterwards.

use crate::support::{EVERYBODY, Env, Output, run};
use serde_json::Value;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A check that fails so many times in 256.
fn coin(of_256: u32) -> String {
    format!("exit $(( $(od -An -N1 -tu1 /dev/urandom) < {of_256} ))")
}

/// `checkrun flake` with options, on a shell script; json.
fn flake(env: &Env, options: &[&str], script: &str) -> Output {
    let mut args = vec!["flake", "--format", "json"];
    args.extend(options);
    args.extend(["--", "sh", "-c", script]);
    env.checkrun(&args)
}

/// How many results are on record; the newest hundred at most.
pub fn records(env: &Env) -> usize {
    env.checkrun(&["log", "--format", "json"]).expect(0).out().lines().count()
}

#[test]
fn a_check_that_never_fails_is_stable_with_the_bound_that_its_runs_allow() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let told = flake(&env, &["--runs", "20", "--jobs", "2"], "exit 0").expect(0).json();
        assert_eq!((&told["schema"], &told["verdict"]), (&"checkrun.flake/1".into(), &"stable".into()));
        assert_eq!((told["n"].as_u64(), told["k"].as_u64()), (Some(20), Some(0)));
        // 1 - 0.05^(1/20).
        let bound = told["bound"]["rate"].as_f64().unwrap();
        assert!((bound - 0.139_108).abs() < 1e-5 && told["bound"]["method"] == "exact", "{bound}");
        assert!(told["flaky"].is_null() && told["failures"].as_array().unwrap().is_empty());
        assert_eq!(records(&env), 20, "each run is on record");
        // Its last result answers as usual.
        let hit = env.sh("exit 0").expect(0).json();
        assert_eq!(hit["cache"], "hit");
    }
}

#[test]
fn a_check_that_passes_and_fails_is_flaky_for_every_door() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let script = coin(128);
        let told = flake(&env, &["--runs", "24", "--jobs", "2"], &script).expect(3).json();
        assert_eq!(told["verdict"], "flaky");
        let k = told["k"].as_u64().unwrap();
        let rate = f64::from(u32::try_from(k).unwrap());
        let [low, high] = [0, 1].map(|at| told["interval"][at].as_f64().unwrap());
        assert!((1..24).contains(&k) && low * 24.0 < rate && rate < high * 24.0, "{told}");
        assert_eq!(told["flaky"]["failed"].as_u64(), Some(k));
        assert_eq!(told["failures"][0]["exit"], 1);
        // Never answered again, though the record has results.
        let again = env.sh(&script).json();
        assert_eq!(again["cache"], "miss");
        assert!(
            again["flaky"]["passed"].as_u64().unwrap() + again["flaky"]["failed"].as_u64().unwrap() == 25
        );
        // Listed.
        let listed = env.checkrun(&["flakes", "--format", "json"]).expect(0).json();
        assert_eq!((&listed["key"], listed["n"].as_u64()), (&told["key"], Some(25)));
        // A ledger's step is flaky, which is no attempt that failed.
        let cmd = format!("sh -c '{script}'");
        let ledger =
            serde_json::json!({"task": "t", "steps": [{"id": "s", "check": [cmd], "status": "done"}]});
        std::fs::write(env.path("ledger.json"), ledger.to_string()).unwrap();
        let path = env.path("ledger.json");
        let report =
            env.checkrun(&["reconcile", path.to_str().unwrap(), "--format", "json"]).expect(1).json();
        assert_eq!(report["steps"][0]["finding"], "flaky", "{report}");
    }
}

#[test]
fn a_check_that_always_fails_is_failing_and_soon_so() {
    let env = Env::new();
    let told = flake(&env, &["--runs", "4"], "exit 7").expect(1).json();
    assert_eq!((&told["verdict"], &told["failures"][0]["exit"]), (&"failing".into(), &7.into()));
    // A claim is given up at once; four earlier failures count.
    let told = flake(&env, &["--certify", "p<1%", "--jobs", "1"], "exit 7").expect(1).json();
    assert_eq!(told["n"].as_u64(), Some(1), "{told}");
    assert_eq!(told["earlier"]["failed"].as_u64(), Some(4));
    // Two failures are too few to say so.
    let told = flake(&env, &["--runs", "2"], "exit 8").expect(4).json();
    assert_eq!(told["verdict"], "undecided");
    assert!(told["reason"].as_str().unwrap().starts_with("few_runs: "), "{told}");
}

#[test]
fn a_claim_is_certified_after_the_runs_that_its_test_needs() {
    let env = Env::new();
    let claim = ["--certify", "p<20%", "--confidence", "90%", "--jobs", "2"];
    // Long enough for two at a time to end in about the order in which they were started, also on a busy machine.
    let passes = "sleep 0.3; exit 0";
    let told = flake(&env, &claim, passes).expect(0).json();
    // ln(0.1) / ln(0.8/0.98), and perhaps one that was started before that was known.
    let n = told["n"].as_u64().unwrap();
    assert!((12..=13).contains(&n) && told["bound"]["method"] == "sequential", "{told}");
    // Runs of earlier sessions count, so that hardly anything is left to do.
    let told = flake(&env, &claim, passes).expect(0).json();
    assert!(told["n"].as_u64().unwrap() <= 2, "{told}");
    // Also one that was running when the decision fell counts in one session or not at all.
    assert_eq!(told["earlier"]["passed"].as_u64(), Some(n), "{told}");
    // The cap comes first.
    let told = flake(&env, &["--certify", "p<1%", "--max-runs", "5"], "exit  0").expect(4).json();
    assert_eq!((told["n"].as_u64(), &told["verdict"]), (Some(5), &"undecided".into()));
    let told = flake(&env, &["--certify", "p<5%"], &coin(40)).expect(3).json();
    assert_eq!(told["verdict"], "flaky");
}

#[test]
fn results_that_were_answered_from_the_record_do_not_count() {
    let env = Env::new();
    for _ in 0..3 {
        env.sh("exit 0").expect(0);
    }
    let told = flake(&env, &["--runs", "1"], "exit 0").expect(0).json();
    assert_eq!(told["earlier"], serde_json::json!({"passed": 1, "failed": 0}));
}

#[test]
fn until_it_fails_and_for_a_time() {
    let env = Env::new();
    let told = flake(&env, &["--until-fail", "--max-runs", "400"], &coin(64)).json();
    assert!(told["k"].as_u64().unwrap() >= 1 && told["n"].as_u64().unwrap() < 400, "{told}");
    let told = flake(&env, &["--until-fail", "--max-runs", "3"], "exit 0").expect(0).json();
    assert_eq!((told["n"].as_u64(), &told["bound"]["method"]), (Some(3), &"anytime".into()));
    let told = flake(&env, &["--for", "1s"], "exit 0").expect(0).json();
    assert!(told["n"].as_u64().unwrap() >= 1 && told["secs"].as_f64().unwrap() >= 1.0, "{told}");
}

// bazelbuild/bazel#6511: runs of one test shared a working directory.
#[test]
fn runs_at_the_same_time_share_no_file_no_port_and_no_process() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let script = "import os, socket, time\n\
            for path in ['/tmp/lock', 'lock', os.path.expanduser('~/lock'), '/dev/shm/lock']:\n\
            \x20   os.close(os.open(path, os.O_CREAT | os.O_EXCL))\n\
            s = socket.socket(); s.bind(('127.0.0.1', 8080)); s.listen()\n\
            a = socket.socket(socket.AF_UNIX); a.bind('\\0name')\n\
            time.sleep(0.2)\n\
            assert len([p for p in os.listdir('/proc') if p.isdigit()]) <= 3\n";
        let args = [
            "flake",
            "--format",
            "json",
            "--runs",
            "8",
            "--jobs",
            "4",
            "--",
            "/usr/bin/python3",
            "-c",
            script,
        ];
        let told = env.checkrun(&args).expect(0).json();
        assert_eq!(told["outcomes"], serde_json::json!({"passed": 8}), "{told}");
    }
}

#[test]
fn was_it_fixed() {
    let env = Env::new();
    let script = "sh ./test";
    env.write("test", coin(128));
    env.commit();
    let old = flake(&env, &["--runs", "30"], script).expect(3).json();
    let key = old["key"].as_str().unwrap();
    // Nothing changed.
    flake(&env, &["--fixed", key], script).refused(&["this very check", "hint:"]);
    env.write("test", "exit 0\n");
    env.commit();
    for name in [key, "HEAD~1"] {
        let told = flake(&env, &["--fixed", name], script).expect(0);
        let said = told.err();
        let told = told.json();
        let rule = &told["rule"];
        assert_eq!((&rule["fixed"], &told["n"]), (&true.into(), &rule["needed"]), "{told}");
        assert!(said.contains(&format!("takes {} runs", rule["needed"])), "{said}");
    }
    let human = env.checkrun(&["flake", "--fixed", "HEAD~1", "--", "sh", "-c", script]).expect(0);
    assert!(human.out().starts_with("fixed: "), "{}", human.out());
    // Too few runs are never called that.
    let told = flake(&env, &["--fixed", key, "--max-runs", "2"], script).expect(4).json();
    assert_eq!((&told["rule"]["fixed"], &told["verdict"]), (&false.into(), &"undecided".into()));
    // One failure is enough to say no.
    env.write("test", "exit 1\n");
    let told = flake(&env, &["--fixed", key, "--jobs", "1"], script).json();
    assert_eq!((&told["rule"]["fixed"], told["n"].as_u64()), (&false.into(), Some(1)));
    // What never failed cannot have been fixed, and another command is another matter.
    env.write("test", "exit 2\n");
    flake(&env, &["--fixed", "HEAD"], script).refused(&["never failed"]);
    flake(&env, &["--fixed", key], "exit 0").refused(&["another command"]);
    flake(&env, &["--fixed", "nosuch"], script).refused(&["nosuch"]);
}

#[test]
fn a_command_that_cannot_start_stops_at_once() {
    let env = Env::new();
    env.write("plain", "text");
    let args = ["flake", "--runs", "1000", "--", "nosuchprogram"];
    env.checkrun(&args).refused(&["cannot be started", "hint:"]);
    env.checkrun(&["flake", "--runs", "1000", "--", "./plain"]).refused(&["cannot be started"]);
    assert!(records(&env) < 20);
}

#[test]
fn two_runs_past_their_timeout_are_enough() {
    let env = Env::new();
    let options = ["--runs", "50", "--jobs", "2", "--timeout", "300ms"];
    let told = flake(&env, &options, "sleep 60").expect(4).json();
    assert!(told["n"].as_u64().unwrap() <= 3, "{told}");
    assert!(told["reason"].as_str().unwrap().starts_with("timed_out: "), "{told}");
    // One that only sometimes hangs is flaky.
    let script = "test $(( $(od -An -N1 -tu1 /dev/urandom) < 128 )) = 1 || sleep 60";
    let told = flake(&env, &["--runs", "12", "--timeout", "1s", "--jobs", "4"], script).json();
    assert!(told["outcomes"]["timed_out"].as_u64() > Some(0), "{told}");
}

#[test]
fn claims_that_make_no_sense_are_refused() {
    let env = Env::new();
    for (options, parts) in [
        (&["--runs", "0"][..], &["--runs", "0"][..]),
        (&["--certify", "p<0%"], &["between 0 and 1"]),
        (&["--certify", "p<100%"], &["between 0 and 1"]),
        (&["--certify", "p<two"], &["p<two", "p<1%"]),
        (&["--confidence", "100%"], &["between 0 and 1"]),
        (&["--confidence", "20%"], &["less sure than not"]),
        (&["--jobs", "0"], &["--jobs"]),
        (&["--for", "0s"], &["longer than zero"]),
        (&["--runs", "2", "--until-fail"], &["cannot be used with"]),
        (&["--fixed", ""], &["no key and no revision"]),
    ] {
        let mut args = vec!["flake"];
        args.extend(options);
        args.extend(["--", "true"]);
        env.checkrun(&args).refused(parts);
    }
    assert_eq!(records(&env), 0);
}

/// Sends a signal to a session in progress, as soon as it has come so far; what it says then.
pub fn interrupted(
    env: &Env,
    args: &[&str],
    is_time: &dyn Fn() -> bool,
    (signal, whole_group): (&str, bool),
) -> Output {
    use std::os::unix::process::CommandExt;
    let mut command = env.command(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().unwrap();
    let patience = Instant::now() + Duration::from_secs(180);
    while !is_time() {
        let too_late = child.try_wait().unwrap().is_some() || Instant::now() > patience;
        if too_late {
            drop(child.kill());
            panic!("it never came so far: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let target = if whole_group { format!("-{}", child.id()) } else { child.id().to_string() };
    run(env.as_who("sh").args(["-c", &format!("kill {signal} {target}")])).expect(0);
    let output = child.wait_with_output().unwrap();
    let status = output.status.code().unwrap_or(-1);
    Output { status, stdout: output.stdout, stderr: output.stderr, took: Duration::ZERO }
}

#[test]
fn a_session_that_is_interrupted_tells_and_keeps_what_it_knows() {
    for who in EVERYBODY {
        for (signal, status, whole_group) in
            [("-INT", 130, true), ("-INT", 130, false), ("-TERM", 143, false)]
        {
            let env = Env::of(who);
            let args =
                ["flake", "--format", "json", "--runs", "100000", "--jobs", "2", "--", "sleep", "0.05"];
            let is_time = || records(&env) >= 3;
            let told = interrupted(&env, &args, &is_time, (signal, whole_group)).expect(status).json();
            assert_eq!(told["verdict"], "undecided", "{told}");
            assert_eq!(told["interrupted"].as_u64(), Some(u64::try_from(status - 128).unwrap()));
            let n = told["n"].as_u64().unwrap();
            assert!(n >= 3 && told["bound"]["method"] == "anytime", "{told}");
            assert_eq!(u64::try_from(records(&env)).unwrap().min(100), n.min(100), "what ran is on record");
            // At the full level there is not even one during a run.
            let left = std::fs::read_dir(env.path("cache/runs")).map_or(0, |folder| folder.count());
            assert_eq!(left, 0, "folders of runs are left");
        }
    }
}

#[test]
fn nothing_is_left_when_the_session_itself_is_killed() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let mark = format!("{}.5", 86_000 + std::process::id() % 1000);
        let mut command = env.command(&["flake", "--runs", "9", "--jobs", "3", "--", "sleep", &mark]);
        let mut child = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let there = || {
            let all = std::fs::read_dir("/proc").unwrap().flatten();
            let asleep = |path: std::path::PathBuf| {
                std::fs::read(path.join("cmdline"))
                    .is_ok_and(|words| words == format!("sleep\0{mark}\0").as_bytes())
            };
            all.filter(|entry| asleep(entry.path())).count()
        };
        let wait = |wanted: &dyn Fn(usize) -> bool| {
            let patience = Instant::now() + Duration::from_secs(60);
            while !wanted(there()) {
                assert!(Instant::now() < patience, "{} processes", there());
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        wait(&|count| count >= 3);
        child.kill().unwrap();
        child.wait().unwrap();
        wait(&|count| count == 0);
    }
}

#[test]
fn a_cache_that_cannot_be_used_is_told_before_anything_runs() {
    let env = Env::new();
    let cache = env.path("cache");
    std::fs::remove_dir(&cache).unwrap();
    std::fs::write(&cache, "").unwrap();
    env.checkrun(&["flake", "--runs", "2", "--", "true"]).refused(&["folder"]);
}

#[test]
fn people_get_a_line_that_says_it_and_lines_that_say_why() {
    let env = Env::new();
    let human =
        env.checkrun(&["flake", "--runs", "3", "--", "sh", "-c", "echo no such luck; exit 2"]).expect(1);
    let out = human.out();
    assert!(out.starts_with("failing: 3 of 3 runs failed; it fails at least 36% of the time"), "{out}");
    assert!(out.contains("3 × failed, exit 2, first in run 1: no such luck\n"), "{out}");
    assert!(human.err().is_empty(), "{}", human.err());
    let known = env.checkrun(&["flakes"]).expect(0);
    assert!(known.stdout.is_empty(), "a check that always fails is not flaky: {}", known.out());
}

/// The report holds to its schema: every field is described, and none is missing.
#[test]
fn the_report_is_as_its_schema_says() {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/schemas/flake.json")).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    let env = Env::new();
    let told = flake(&env, &["--runs", "6"], "echo 'test a ... ok'; exit 1").expect(1).json();
    compare(&schema, &told, "report");
}

/// Fields that a schema names and those of an object are the same, at every level.
fn compare(schema: &Value, value: &Value, at: &str) {
    if let (Some(fields), Some(object)) = (schema["properties"].as_object(), value.as_object()) {
        for name in object.keys() {
            assert!(fields.contains_key(name), "{at}.{name} is not in the schema");
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            assert!(object.contains_key(name), "{at}.{name} is missing");
        }
        for (name, value) in object {
            compare(&fields[name], value, &format!("{at}.{name}"));
        }
    }
    for item in value.as_array().into_iter().flatten() {
        compare(&schema["items"], item, &format!("{at}[]"));
    }
}
