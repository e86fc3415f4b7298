//! checkrun killed at random moments, and disks that are full at random moments: nothing is left but what the next call
//! sweeps, no record is wrong or half, and the next run is right.
//!
//! `CHECKRUN_LONG=1` makes 2,000 kills of the 100 that there are by default; `CHECKRUN_CRASH_SEED` says which moments.

use crate::support::probe::{bearing, in_own_mounts, until};
use crate::support::{EVERYBODY, Env, Who, run, say};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A generator of moments that can be repeated (xorshift64).
struct Moments(u64);

impl Moments {
    fn new() -> Self {
        let seed = std::env::var("CHECKRUN_CRASH_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) | 1 << 40);
        say(&format!("CHECKRUN_CRASH_SEED={seed}"));
        Self(seed)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// All processes below one, the nearest first.
fn below(pid: u32) -> Vec<i32> {
    let mut found: Vec<i32> = Vec::new();
    let mut open = vec![i32::try_from(pid).expect("a number")];
    while let Some(pid) = open.pop() {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let children: Vec<i32> = text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
        found.extend(&children);
        open.extend(children);
    }
    found
}

fn kill(pid: i32) {
    // It may have ended by itself; nobody else has its number, since its parent has not waited for it.
    let mut kill = Command::new("kill");
    kill.args(["-9", &pid.to_string()]).stderr(Stdio::null()).status().expect("kill");
}

/// Every record is one of a run to its end, and has the log that belongs to it.
fn records_are_true(env: &Env) {
    let mut whole = 0;
    let rows = env.sql("PRAGMA integrity_check");
    assert_eq!(rows, serde_json::json!([["ok"]]));
    for record in env.logged() {
        let command = record["cmd"].as_str().expect("a command");
        let (outcome, exit) = (&record["outcome"], &record["exit"]);
        if outcome == "killed" {
            // The sandbox's own first process was hit: true, and no answer to anything.
            continue;
        }
        if let Some((_, wanted)) = command.rsplit_once("exit ") {
            let wanted: i64 = wanted.trim_end_matches('\'').parse().expect("a status");
            let true_outcome = if wanted == 0 { "passed" } else { "failed" };
            assert_eq!((outcome.as_str(), exit.as_i64()), (Some(true_outcome), Some(wanted)), "{record}");
            let log = env.checkrun(&["show", &record["id"].to_string(), "--log"]);
            // Making room takes logs first; one that is there is whole.
            let gone = log.status == 125 && log.err().contains("is gone");
            assert!(gone || log.out() == format!("whole {wanted}\n"), "{record} {log:?}");
            whole += usize::from(!gone);
        }
    }
    assert!(whole > 0, "not one log is left to be looked at");
}

/// Nothing in the cache but what belongs there, once checkrun has run again.
fn nothing_is_left_over(env: &Env) {
    for folder in ["cache/trees", "cache/runs", "cache", "cache/records/v1", "cache/logs/v1"] {
        let entries = std::fs::read_dir(env.path(folder)).into_iter().flatten().flatten();
        let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        let left: Vec<_> = names
            .iter()
            .filter(|name| name.starts_with(".new") || name.starts_with("run-") || name.ends_with(".tmp"))
            .collect();
        assert!(left.is_empty(), "{folder}: {left:?}");
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    assert!(!mounts.contains(env.path("cache").to_str().expect("UTF-8")), "{mounts}");
}

// google/nsjail#69, NixOS/nix#177, nrwl/nx#28608: what a kill leaves behind
#[test]
fn a_kill_at_any_moment_leaves_nothing_behind_and_no_wrong_record() {
    let long = std::env::var_os("CHECKRUN_LONG").is_some();
    let kills = if long { 2000 } else { 100 };
    let mut moments = Moments::new();
    let (mut struck, mut helpers) = (0, 0);
    for who in EVERYBODY {
        let env = Env::of(who);
        for n in 0..40 {
            env.write(&format!("d{}/f{n}", n % 5), format!("{n}\n"));
        }
        env.commit();
        // No other process of the machine bears this, so that those of a run are found by their arguments.
        let mark = format!(": {}.{who:?}", std::process::id());
        for n in 0..kills / 2 {
            let status = moments.below(4);
            let script = format!("{mark}; echo whole {status}; exit {status}");
            let fresh = format!("{mark}; : {n}; echo whole {status}; exit {status}");
            let (kind, args): (&str, Vec<&str>) = match moments.below(7) {
                0 => ("a run", vec!["--", "sh", "-c", &fresh]),
                1 => ("a hit", vec!["--", "sh", "-c", &script]),
                2 => ("a new tree", vec!["--refresh", "--", "sh", "-c", &script]),
                3 => ("gc", vec!["gc", "--max-size", "1KiB"]),
                4 => ("flake", vec!["flake", "--runs", "4", "--", "sh", "-c", &script]),
                5 => ("landlock", vec!["--refresh", "--policy", "landlock", "--", "sh", "-c", &script]),
                _ => ("a refresh", vec!["--refresh", "--", "sh", "-c", &script]),
            };
            if kind == "a new tree" {
                env.write("changed", format!("{n}\n"));
            }
            let mut command = env.command(&args);
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("checkrun");
            std::thread::sleep(Duration::from_micros(moments.below(60_000)));
            let family = below(child.id());
            let own = i32::try_from(child.id()).expect("a number");
            // One in three hits the supervisor or the init process instead; at level `landlock` the first child is the check.
            let other =
                if kind == "landlock" { 6 } else { usize::try_from(moments.below(6)).expect("small") };
            let victim = match family[..family.len().min(2)].get(other) {
                Some(helper) => {
                    helpers += 1;
                    *helper
                }
                None => own,
            };
            if child.try_wait().expect("wait").is_none() {
                kill(victim);
                struck += 1;
            }
            let ended = child.wait().expect("wait");
            if victim != own
                && let Some(code) = ended.code()
            {
                // The verdict, a signal's status, or that there is none; never another verdict.
                let known = [i32::try_from(status).expect("small"), 137, 125];
                let other = ["flake", "gc"].contains(&kind) && code <= 1;
                assert!(known.contains(&code) || other, "{who:?} {kind}: status {code}");
            }
            until("all that worked for it is gone", || {
                bearing(&script).is_empty()
                    && bearing(&fresh).is_empty()
                    && family.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
            });
            if n % 10 == 9 {
                // The next run is right, as is the one after it, and sweeps.
                let again = format!("{mark}; echo whole {status}; exit {status}");
                let code = i32::try_from(status).expect("small");
                for options in [&["--refresh"][..], &[]] {
                    let output = env.checkrun(&[options, &["--", "sh", "-c", &again]].concat());
                    assert_eq!(output.expect(code).out(), format!("whole {status}\n"));
                }
            }
        }
        drop(env.checkrun(&["gc"]).expect(0));
        drop(env.checkrun(&["--refresh", "--", "true"]).expect(0));
        drop(env.checkrun(&["--refresh", "--policy", "landlock", "--", "true"]).expect(0));
        nothing_is_left_over(&env);
        records_are_true(&env);
    }
    say(&format!("{struck} of {kills} kills struck, {helpers} of them a helper"));
    assert!(struck > kills / 4, "only {struck} of {kills} kills came before the end");
}

// bazelbuild/bazel#16179 and others: a disk that fills up makes a wrong verdict, or a cache that answers no more
#[test]
fn a_disk_that_is_full_at_any_moment_makes_no_wrong_verdict() {
    let mut moments = Moments::new();
    for who in EVERYBODY {
        let env = Env::of(who);
        for n in 0..20 {
            env.write(&format!("d{}/f{n}", n % 5), format!("{n}\n"));
        }
        env.commit();
        for _ in 0..12 {
            // From a disk that takes nothing to one that takes all.
            let (pages, status) = (moments.below(160) + 1, moments.below(3));
            let owner = if who == Who::User { crate::support::USER } else { 0 };
            let cache = env.path("cache");
            let setup = format!(
                "mount -t tmpfs -o size={}k,uid={owner},mode=755 none {}",
                pages * 4,
                cache.display()
            );
            let three = "set -- sh -c 'for i in 1 2 3; do \"$0\" \"$@\"; echo status $?; done' \"$@\"";
            let script = format!("echo whole {status}; exit {status}");
            let args = ["-q", "--", "sh", "-c", &script];
            let output = in_own_mounts(&env, &format!("{setup}\n{three}"), &args);
            let text = output.out();
            let verdict = format!("status {status}\n");
            let none = "status 125\n";
            for line in text.lines().filter(|line| line.starts_with("status")) {
                let line = format!("{line}\n");
                assert!(line == verdict || line == none, "{who:?} {pages} pages: {text}{}", output.err());
            }
            assert_eq!(text.lines().filter(|line| line.starts_with("status")).count(), 3, "{output:?}");
            if text.contains(none) {
                // The second is SQLite's word for a file that cannot be made to grow where it is mapped into memory.
                let said = ["No space left", "disk I/O error", "disk is full"];
                assert!(said.iter().any(|why| output.err().contains(why)), "{pages}: {}", output.err());
            }
            assert!(!output.err().contains("panicked"), "{}", output.err());
        }
        assert!(Path::new(&env.path("cache")).is_dir());
    }
}

// marcusquinn/aidevops#5531, rochecompaan/patchmill#255: a holder that stands still
#[test]
fn a_leader_that_is_stopped_holds_a_follower_up_and_gives_it_no_wrong_answer() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.commit();
        let args = ["--format", "json", "--", "sh", "-c", "sleep 1; exit 3"];
        let spawn = || env.command(&args).stdout(Stdio::piped()).spawn().expect("checkrun");
        let mut leader = spawn();
        until("the leader's check", || below(leader.id()).len() >= 3);
        let own = leader.id().to_string();
        let tell = |what: &str| assert_eq!(run(Command::new("kill").args([what, &own])).status, 0);
        tell("-STOP");
        let mut follower = spawn();
        std::thread::sleep(Duration::from_millis(1500));
        assert!(follower.try_wait().expect("wait").is_none(), "it answered without an answer");
        tell("-CONT");
        assert_eq!(leader.wait().expect("wait").code(), Some(3));
        assert_eq!(follower.wait().expect("wait").code(), Some(3));
        assert_eq!(env.logged().len(), 1);
    }
}
