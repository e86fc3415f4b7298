//! What is kept of a run and what of that answers: verdicts do, everything else is history, and what is damaged or
//! forged counts as absent.

use crate::support::store::{marker, parent_of, processes_with, signal, wait_for};
use crate::support::{EVERYBODY, Env, Who};
use std::process::Stdio;

/// Starts a check that sleeps for a time that no other process has on its command line, waits until it is there, does
/// something, and gives checkrun's status.
fn disturbed(env: &Env, script: &str, act: impl FnOnce(u32, u32)) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    let mark = marker();
    let script = script.replace("MARK", &mark);
    let mut command = env.command(&["--", "sh", "-c", &script]);
    let mut checkrun = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("checkrun");
    wait_for("the check", || !processes_with(&mark).is_empty());
    let inside = processes_with(&mark)[0];
    act(checkrun.id(), inside);
    let status = checkrun.wait().expect("checkrun");
    wait_for("all processes to be gone", || processes_with(&mark).is_empty());
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

// moonrepo/moon#1925, vercel/turborepo#6754: an interrupted run stored as a success because the child exits with 0.
#[test]
fn an_interrupted_run_is_no_verdict() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.commit();
        let script = "trap 'exit 0' INT TERM HUP; sleep MARK & wait";
        for (name, status) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
            assert_eq!(disturbed(&env, script, |checkrun, _| signal(checkrun, name)), status, "{name}");
        }
        // One that does not listen is killed after a grace.
        let deaf = "trap '' INT TERM; while :; do sleep MARK; done";
        assert_eq!(disturbed(&env, deaf, |checkrun, _| signal(checkrun, "INT")), 130);
        assert!(env.logged().is_empty(), "{:?}", env.logged());
    }
}

// kryptobaseddev/cleo#1380, #1387: a killed run stored and served; andymai/brepjs#1380: the check burns on.
#[test]
fn a_killed_run_is_no_verdict_and_nothing_survives_it() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.commit();
        // Also what tries to get away: another session, another process group, an orphan.
        let script = "setsid sh -c 'sleep MARK & sleep MARK' & (sleep MARK &) ; sleep MARK";
        assert_eq!(disturbed(&env, script, |checkrun, _| signal(checkrun, "KILL")), 137);
        assert!(env.logged().is_empty());
        // The sandbox's own first process, from outside.
        let killed = disturbed(&env, "sleep MARK", |_, inside| {
            let init = parent_of(inside);
            // Where the shell has become the sleeper itself, its parent is the init process already.
            let status = std::fs::read_to_string(format!("/proc/{init}/status")).unwrap();
            let is_init = status.lines().any(|line| line.starts_with("NSpid:") && line.ends_with("\t1"));
            signal(if is_init { init } else { parent_of(init) }, "KILL");
        });
        assert_eq!(killed, 137);
        let logged = env.logged();
        assert!(logged.iter().all(|record| record["outcome"] == "killed"), "{logged:?}");
        assert!(env.checkrun(&["--", "true"]).expect(0).err().contains("(ran)"));
    }
}

// earendil-works/pi#8992, beefytech/Beef#2530: death by a signal reported as 0.
#[test]
fn death_by_a_signal_is_told_as_such() {
    let env = Env::new();
    env.commit();
    let own = env.sh("kill -9 $$").expect(137).json();
    assert_eq!(
        (own["outcome"].clone(), own["signal"].clone(), own["exit"].clone()),
        ("failed".into(), 9.into(), ().into())
    );
    let mapped = env.sh("sh -c 'kill -9 $$'; exit $?").expect(137).json();
    assert_eq!(
        (mapped["outcome"].clone(), mapped["signal"].clone(), mapped["exit"].clone()),
        ("failed".into(), ().into(), 137.into())
    );
    let abort = env.python(&["--format", "json"], "import os; os.abort()").expect(134).json();
    assert_eq!(abort["signal"], 6);
    assert_eq!(env.sh("kill -9 $$").expect(137).json()["cache"], "hit");
}

// nrwl/nx#36932: out of memory or disk recorded on the same hash as a good entry.
#[test]
fn a_lack_of_room_is_no_failure_and_leaves_an_earlier_pass_alone() {
    let env = Env::of(Who::Root);
    env.commit();
    // Passes or runs out of memory by the throw of a coin.
    let program = "import os\nif os.urandom(1)[0] < 128: b = bytearray(1 << 30)";
    let check = |options: &[&str]| {
        let options = [&["--format", "json", "--memory", "64MiB"], options].concat();
        env.python(&options, program)
    };
    let mut seen = std::collections::BTreeSet::new();
    // Until both were seen: a pass first, so that there is something to spoil.
    for _ in 0..60 {
        let output = check(&["--refresh"]);
        let outcome = output.json()["outcome"].as_str().unwrap().to_owned();
        assert_eq!(output.status, if outcome == "passed" { 0 } else { 137 }, "{outcome}");
        if outcome == "passed" || !seen.is_empty() {
            seen.insert(outcome);
        }
        if seen.len() == 2 {
            break;
        }
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["out_of_memory", "passed"]);
    let answer = check(&[]).expect(0).json();
    assert_eq!(
        (answer["cache"].clone(), answer["outcome"].clone(), answer["flaky"].clone()),
        ("hit".into(), "passed".into(), ().into())
    );
}

// arxanas/git-branchless: a command that was not found is replayed for ever.
#[test]
fn what_is_history_never_answers() {
    let env = Env::of(Who::Root);
    env.write("folder/x", "").write("plain", "no program\n").commit();
    let cases: [(&[&str], &str, i32); 7] = [
        (&["--", "no-such-tool"], "not_started", 127),
        (&["--", "./folder"], "not_started", 126),
        (&["--", "./plain"], "not_started", 126),
        (&["--timeout", "300ms", "--", "sleep", "60"], "timed_out", 124),
        (&["--output-limit", "10KiB", "--", "yes"], "output_limit", 137),
        (&["--disk", "1MiB", "--", "sh", "-c", "head -c 5M /dev/zero >f"], "disk_full", 1),
        (
            &["--pids", "4", "--", "sh", "-c", "for i in 1 2 3 4 5 6; do sleep 1 & done; wait"],
            "pids_limit",
            2,
        ),
    ];
    for (args, outcome, status) in cases {
        for round in 1..=2 {
            let answer = env.checkrun(&[&["--format", "json"], args].concat()).expect(status).json();
            assert_eq!(
                (answer["outcome"].clone(), answer["cache"].clone()),
                (outcome.into(), "miss".into()),
                "{args:?}"
            );
            let records = env.logged().into_iter().filter(|record| record["outcome"] == outcome).count();
            assert!(records >= round, "{args:?}");
        }
        let refused = env.checkrun(&[&["--cached-only"], args].concat());
        drop(refused.refused(&["no earlier result answers", outcome]));
    }
}

// nrwl/nx#36898, #37111: a record without its artefact.
#[test]
fn a_record_answers_without_its_log() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.commit();
        let args = ["--", "sh", "-c", "echo out; echo err >&2; exit 4"];
        drop(env.checkrun(&args).expect(4));
        std::fs::remove_dir_all(env.path("cache/logs")).unwrap();
        let hit = env.checkrun(&args).expect(4);
        assert!(
            hit.err().contains("(cached, exact)") && hit.err().contains("output is gone"),
            "{}",
            hit.err()
        );
        assert_eq!(hit.out(), "out\nerr\n");
        let shown = env.checkrun(&["show", "1"]).expect(0);
        assert!(shown.out().ends_with("out\nerr\n"), "{}", shown.out());
        drop(
            env.checkrun(&["show", "1", "--log"]).refused(&["the whole output of record 1 is gone", "hint:"]),
        );
        // A damaged one is no better than none.
        drop(env.checkrun(&["--refresh", "--", "sh", "-c", "echo more; echo and more"]).expect(0));
        for (path, ..) in env.listing(&env.path("cache/logs")).into_iter().filter(|(path, ..)| path.is_file())
        {
            std::fs::write(path, "rubbish").unwrap();
        }
        let hit = env.checkrun(&["--", "sh", "-c", "echo more; echo and more"]).expect(0);
        assert_eq!(hit.out(), "more\nand more\n");
        assert!(hit.err().contains("damaged"), "{}", hit.err());
    }
}

// frerich/clcache#263, pocl/pocl#534, DanEngelbrecht/golongtail#237: a torn entry is fatal, or is believed.
#[test]
fn a_torn_database_is_a_miss_that_heals() {
    let env = Env::new();
    env.commit();
    let args = ["--", "sh", "-c", "echo verdict; exit 3"];
    drop(env.checkrun(&args).expect(3));
    let whole = std::fs::read(env.database()).unwrap();
    for cut in [0, 1, 17, 100, 4095, 4096, 8192, whole.len() / 2, whole.len() - 1] {
        std::fs::write(env.database(), &whole[..cut]).unwrap();
        let run = env.checkrun(&args).expect(3);
        assert_eq!(run.out(), "verdict\n", "cut at {cut}");
        assert!(run.err().contains("(ran)") || run.err().contains("(cached"), "cut at {cut}: {}", run.err());
        let again = env.checkrun(&args).expect(3);
        assert!(
            again.err().contains("(cached, exact)") && !again.err().contains("warning"),
            "cut at {cut}: {}",
            again.err()
        );
    }
    std::fs::write(env.database(), "not a database, but long enough to look like something".repeat(200))
        .unwrap();
    assert!(env.checkrun(&args).expect(3).err().contains("warning"));
    assert!(!env.checkrun(&args).expect(3).err().contains("warning"));
}

// vercel/turborepo#12302, nrwl/nx#31639, MemberJunction/MJ#4061: who can write to the cache can forge a verdict.
#[test]
fn a_forged_record_is_not_believed() {
    let env = Env::new();
    env.commit();
    let args = ["--format", "json", "--", "sh", "-c", "exit 1"];
    let first = env.checkrun(&args).expect(1).json();
    let forgeries = [
        "UPDATE executions SET outcome = 'passed', evidence = CAST(replace(CAST(evidence AS TEXT), '\"outcome\":\"failed\",\"exit\":1', '\"outcome\":\"passed\",\"exit\":0') AS BLOB)",
        "UPDATE executions SET tag = zeroblob(32)",
        "UPDATE keys SET passed = 5, failed = 0",
        "UPDATE keys SET preimage = zeroblob(10)",
        "UPDATE executions SET evidence = zeroblob(0)",
        "UPDATE executions SET evidence = 17, tag = 'x'",
    ];
    for forgery in forgeries {
        env.sql(forgery);
        let run = env.checkrun(&args).expect(1);
        assert_eq!(
            (run.json()["cache"].clone(), run.json()["key"].clone()),
            ("miss".into(), first["key"].clone()),
            "{forgery}"
        );
        assert!(run.err().contains("warning"), "{forgery}: {}", run.err());
        let healed = env.checkrun(&args).expect(1);
        assert_eq!(
            (healed.json()["cache"].clone(), healed.err()),
            ("hit".into(), String::new()),
            "{forgery}"
        );
    }
    // A record of one key put under another.
    drop(env.checkrun(&["--", "sh", "-c", "exit 0"]).expect(0));
    env.sql("UPDATE executions SET key = (SELECT key FROM keys ORDER BY passed LIMIT 1)");
    env.sql("UPDATE keys SET answer = (SELECT max(id) FROM executions)");
    assert!(env.checkrun(&args).expect(1).err().contains("warning"));
    // Another user's secret, or none: nothing answers, and a verdict is still had.
    std::fs::remove_file(env.path("home/.local/state/checkrun/secret")).unwrap();
    assert_eq!(env.checkrun(&args).expect(1).json()["cache"], "miss");
    assert_eq!(env.checkrun(&args).expect(1).json()["cache"], "hit");
}

#[test]
fn the_check_cannot_see_the_store() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.commit();
        drop(env.sh("true").expect(0));
        let places = [env.path("cache"), env.path("home"), env.database(), env.path("repo/.git")];
        for place in places {
            assert!(place.exists());
            drop(env.sh(&format!("test ! -e {}", place.display())).expect(0));
        }
        let found = env
            .sh("find / \\( -path /usr -o -path /proc \\) -prune -o -name checkrun.db -print 2>/dev/null")
            .json();
        assert_eq!(found["tail"], "");
    }
}

// bazelbuild/bazel#27548: two versions alternate on one store.
#[test]
fn a_store_of_a_newer_version_is_used_and_not_reset() {
    let env = Env::new();
    env.commit();
    drop(env.sh("exit 5").expect(5));
    env.sql("ALTER TABLE executions ADD COLUMN novelty BLOB");
    env.sql("CREATE TABLE novelties (x)");
    env.sql("PRAGMA user_version = 99");
    assert_eq!(env.sh("exit 5").expect(5).json()["cache"], "hit");
    assert_eq!(env.sh("exit 6").expect(6).json()["cache"], "miss");
    assert_eq!(env.sh("exit 6").expect(6).json()["cache"], "hit");
    assert_eq!(env.sql("PRAGMA user_version"), serde_json::json!([[99]]));
    assert_eq!(env.sql("SELECT count(*), count(novelty) FROM executions"), serde_json::json!([[2, 0]]));
}

#[test]
fn a_hit_writes_nothing() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("f", "x\n").commit();
        let args = ["--tree", "HEAD", "--", "sh", "-c", "cat f; echo e >&2"];
        drop(env.checkrun(&args).expect(0));
        let before = (env.listing(&env.path("cache")), env.listing(&env.path("home")));
        let hit = env.checkrun(&args).expect(0);
        assert!(hit.err().contains("(cached, exact)"), "{}", hit.err());
        drop(env.checkrun(&["explain", "--tree", "HEAD", "--", "sh", "-c", "cat f; echo e >&2"]).expect(0));
        drop(env.checkrun(&["log"]).expect(0));
        drop(env.checkrun(&["show", "1"]).expect(0));
        assert_eq!((env.listing(&env.path("cache")), env.listing(&env.path("home"))), before);
    }
}
