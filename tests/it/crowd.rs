//! Many processes on one cache: the same check runs once, nobody waits for the dead, and records stay whole.

use crate::support::store::{marker, processes_with, signal, wait_for};
use crate::support::{EVERYBODY, Env, is_root, say};
use serde_json::Value;
use std::process::{Child, Stdio};

fn start(env: &Env, args: &[&str]) -> Child {
    env.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("checkrun")
}

fn answer(child: Child) -> Value {
    let output = child.wait_with_output().expect("checkrun");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {:?} {}", output.status, String::from_utf8_lossy(&output.stderr))
    })
}

// flyteorg/flyte#872; bkt and git-branchless: two same runs both execute, or the second is refused.
#[test]
fn the_same_check_started_many_times_at_once_runs_once() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.commit();
        // Says something that no two runs would say.
        let args = [
            "--format",
            "json",
            "--",
            "sh",
            "-c",
            "sleep 1.5; head -c 16 /dev/urandom | od -An -tx1; exit 3",
        ];
        let children: Vec<Child> = (0..6).map(|_| start(&env, &args)).collect();
        let answers: Vec<Value> = children.into_iter().map(answer).collect();
        assert_eq!(env.logged().len(), 1);
        let ways = |way: &str| answers.iter().filter(|answer| answer["cache"] == way).count();
        assert_eq!(ways("miss"), 1, "{answers:?}");
        assert_eq!(ways("miss") + ways("joined") + ways("hit"), 6, "{answers:?}");
        assert!(ways("joined") > 0, "{answers:?}");
        for answer in &answers {
            for field in ["tail", "at", "secs", "output_digest", "exit", "key"] {
                assert_eq!(answer[field], answers[0][field]);
            }
        }
    }
}

// rochecompaan/patchmill#255, mrmans0n/alas#217, iree-org/iree#23390: locks that outlive their holder.
#[test]
fn when_the_leader_dies_another_takes_over() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.commit();
        let mark = marker();
        let script = format!("sleep {mark} & sleep 3; kill $!; echo done");
        let args = ["--format", "json", "--", "sh", "-c", &script];
        let mut leader = start(&env, &args);
        wait_for("the leader's check", || !processes_with(&mark).is_empty());
        let followers: Vec<Child> = (0..3).map(|_| start(&env, &args)).collect();
        signal(leader.id(), "KILL");
        leader.wait().unwrap();
        let answers: Vec<Value> = followers.into_iter().map(answer).collect();
        assert!(answers.iter().all(|answer| answer["outcome"] == "passed"), "{answers:?}");
        assert_eq!(env.logged().len(), 1);
        // Stale lock files stop nobody.
        let key = answers[0]["key"].as_str().unwrap().trim_start_matches("b3:").to_owned();
        std::fs::write(env.path(&format!("cache/locks/{key}")), "4711").unwrap();
        let refresh = [&["--refresh"], &args[..]].concat();
        std::fs::set_permissions(
            env.path(&format!("cache/locks/{key}")),
            std::os::unix::fs::PermissionsExt::from_mode(0o666),
        )
        .unwrap();
        assert_eq!(answer(start(&env, &refresh))["cache"], "refreshed");
    }
}

#[test]
fn whoever_waits_can_be_interrupted() {
    let env = Env::new();
    env.commit();
    let mark = marker();
    let args = ["--", "sh", "-c", &format!("sleep {mark}")];
    let leader = start(&env, &args);
    wait_for("the leader's check", || !processes_with(&mark).is_empty());
    let follower = start(&env, &args);
    // Its handler is in place before it asks for the lock, and the lock file is open while it waits.
    wait_for("the follower to wait", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", follower.id())).unwrap_or_default();
        status
            .lines()
            .any(|line| line.strip_prefix("SigBlk:\t").is_some_and(|mask| mask != "0000000000000000"))
    });
    signal(follower.id(), "INT");
    let output = follower.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!processes_with(&mark).is_empty(), "the leader's check was stopped too");
    signal(leader.id(), "TERM");
    assert_eq!(leader.wait_with_output().unwrap().status.code(), Some(143));
    assert!(env.logged().is_empty());
}

// nrwl/nx#28608, #28665, #28772, #34861, NixOS/nix#177: a busy or malformed database under many processes.
// bazelbuild/bazel#16179: an entry that is published before it is complete.
#[test]
fn many_processes_and_some_that_are_killed_leave_whole_records() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("f", "x\n").commit();
        let scripts: Vec<String> =
            (0..64).map(|n| format!("echo out {0}; echo err {0} >&2; exit {0}", n % 16)).collect();
        let mut children: Vec<Child> = Vec::new();
        let mut killed = 0;
        for (n, script) in scripts.iter().enumerate() {
            children.push(start(&env, &["--format", "json", "--", "sh", "-c", script]));
            if n % 8 == 7 {
                // One at whatever it is about by now; most of them are recording or just done.
                let victim = &mut children[n - 5];
                if victim.try_wait().unwrap().is_none() {
                    signal(victim.id(), "KILL");
                    killed += 1;
                }
            }
        }
        let mut answered = 0;
        for (n, child) in children.into_iter().enumerate() {
            let output = child.wait_with_output().unwrap();
            let Some(code) = output.status.code() else { continue };
            assert_eq!(code, i32::try_from(n % 16).unwrap(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(output.stderr, b"", "{}", String::from_utf8_lossy(&output.stderr));
            answered += 1;
        }
        assert!(answered >= 64 - killed, "{answered} of 64 answered and {killed} were killed");
        // Every record is whole and has its log, and each check is answered from the cache or run, but rightly.
        for record in env.logged() {
            let id = record["id"].to_string();
            let log = env.checkrun(&["show", &id, "--log"]).expect(0);
            assert_eq!(log.out(), format!("out {0}\nerr {0}\n", record["exit"]));
        }
        for (n, script) in scripts.iter().enumerate().take(16) {
            drop(env.checkrun(&["--", "sh", "-c", script]).expect(i32::try_from(n).unwrap()));
            let hit =
                env.checkrun(&["--cached-only", "--", "sh", "-c", script]).expect(i32::try_from(n).unwrap());
            assert_eq!(
                (hit.out(), hit.err().contains("warning")),
                (format!("out {n}\n"), false),
                "{}",
                hit.err()
            );
        }
        let rows = env.sql("PRAGMA integrity_check");
        assert_eq!(rows, serde_json::json!([["ok"]]));
    }
}

// One that looked in vain, and comes to the lock only when another has run the check and gone, runs nothing: strace(1)
// holds it up between the two.
#[test]
fn whoever_is_held_up_between_look_up_and_lock_takes_what_was_found_meanwhile() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.commit();
        let args = ["--format", "json", "--", "sh", "-c", "head -c 16 /dev/urandom | od -An -tx1; exit 3"];
        // A store must be there, or the look-up would have nothing to open.
        drop(env.checkrun(&["--", "true"]).expect(0));
        let slow = ["strace", "-o", "/dev/null", "-e", "inject=flock:delay_enter=5s:when=1"];
        let late = env.wrapped(&slow, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for("the late one to come to the lock", || {
            std::fs::read_dir(env.path("cache/locks")).is_ok_and(|locks| locks.count() > 0)
        });
        let first = answer(start(&env, &args));
        assert_eq!(first["cache"], "miss");
        let late = answer(late);
        assert_eq!((&late["cache"], &late["tail"]), (&Value::from("joined"), &first["tail"]), "{late}");
        assert_eq!(env.logged().len(), 2);
    }
}

// marcusquinn/aidevops#5531, sixty-north/cosmic-ray#603, build2/build2#551: a timeout that kills the direct child only.
// bazelbuild/bazel#1437 (TERM ignored), #10245 (answered before descendants are gone).
#[test]
fn a_timeout_leaves_nobody_behind() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.commit();
        let mark = marker();
        let program = format!(
            "import os, signal, time\n\
             for n in range(3):\n\
             \x20   if os.fork() == 0:\n\
             \x20       os.setsid()\n\
             \x20       if os.fork() == 0:\n\
             \x20           signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
             \x20           signal.signal(signal.SIGHUP, signal.SIG_IGN)\n\
             \x20           os.execvp('sleep', ['sleep', '{mark}'])\n\
             \x20       os._exit(0)\n\
             signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
             time.sleep({mark})"
        );
        let output = env.python(&["--format", "json", "--timeout", "1500ms"], &program).expect(124);
        assert_eq!(output.json()["outcome"], "timed_out");
        assert!(processes_with(&mark).is_empty());
        // Nor does a check that ends by itself, and one that holds its output does not keep us waiting.
        let script = format!("setsid sleep {mark} & (sleep {mark} &); echo done");
        let output = env.checkrun(&["--timeout", "60s", "--", "sh", "-c", &script]).expect(0);
        assert_eq!(output.out(), "done\n");
        assert!(processes_with(&mark).is_empty());
    }
}

// bazelbuild/bazel#11910, #1671: a storm of processes.
#[test]
fn a_fork_storm_ends_with_its_time() {
    assert!(is_root());
    for who in EVERYBODY {
        let env = Env::of(who);
        env.commit();
        let mark = marker();
        let storm = format!(
            "import os, time\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        time.sleep(0.01)\n# {mark}"
        );
        let limits = [
            "--timeout",
            "2s",
            "--pids",
            "40",
            "--format",
            "json",
            "--",
            "/usr/bin/python3",
            "-c",
            &storm,
            &mark,
        ];
        // Bounded from outside as well: by time, and by a number of processes that the machine can bear.
        let outer = ["timeout", "-s", "KILL", "120", "prlimit", "--nproc=3000"];
        let output = crate::support::run(&mut env.wrapped(&outer, &limits)).expect(124);
        assert_eq!(output.json()["outcome"], "timed_out");
        assert!(processes_with(&mark).is_empty());
    }
}

// flyteorg/flyte#872, nrwl/nx#28608: a crowd runs checks twice, or is told of a locked database.
#[test]
fn two_hundred_at_once_of_twenty_checks_run_each_once() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("f", "x\n").commit();
        let scripts: Vec<String> =
            (0..20).map(|n| format!("head -c 9 /dev/urandom | od -An -tx1; exit {n}")).collect();
        let children: Vec<Child> = (0..200)
            .map(|n| start(&env, &["--format", "json", "--", "sh", "-c", &scripts[n % 20]]))
            .collect();
        let mut tails: Vec<Option<Value>> = vec![None; 20];
        for (n, child) in children.into_iter().enumerate() {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), i32::try_from(n % 20).ok(), "{said}");
            assert_eq!(said, "", "somebody had something to say");
            let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
            // No two runs print the same, so the same text is the same run.
            let first = tails[n % 20].get_or_insert_with(|| answer["tail"].clone());
            assert_eq!(*first, answer["tail"], "a check ran twice: {answer}");
        }
        assert_eq!(env.logged().len(), 20);
        assert_eq!(env.sql("PRAGMA integrity_check"), serde_json::json!([["ok"]]));
        say(&format!("{who:?}: 200 invocations, 20 runs"));
    }
}
