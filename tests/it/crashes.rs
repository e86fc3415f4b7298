//! checkrun killed at random moments, whatever it is about: nothing is left but what the next call sweeps, no record is
//! wrong or half, and the next run is right.
//!
//! `CHECKRUN_LONG=1` makes 2,000 kills of the 100 that there are by default; `CHECKRUN_CRASH_SEED` says which moments.

use crate::support::moments::Moments;
use crate::support::probe::{Live, bearing, until};
use crate::support::{EVERYBODY, Env, run, say};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

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

/// Sends a signal to a process that is there.
#[track_caller]
fn tell(pid: i32, signal: &str) {
    assert_eq!(run(Command::new("kill").args([signal, &pid.to_string()])).status, 0);
}

/// Every record is one of a run to its end, and has the log that belongs to it.
fn records_are_true(env: &Env) {
    let mut whole = 0;
    let rows = env.sql("PRAGMA integrity_check");
    assert_eq!(rows, json!([["ok"]]));
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
    let folders = ["trees", "runs", "", "records/v1", "logs/v1", "locks", "scratch", "packages/frob"];
    for folder in folders.map(|folder| format!("cache/{folder}")) {
        let entries = std::fs::read_dir(env.path(&folder)).into_iter().flatten().flatten();
        let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        let is_unfinished = |name: &&String| {
            [".new", "new-", "run-", "prepare-", "doctor-", ".kept", "tmp-"]
                .iter()
                .any(|start| name.starts_with(start))
                || name.contains(".tmp")
                || (folder.ends_with("frob") && name.contains('.'))
                || folder.ends_with("locks")
        };
        let left: Vec<_> = names.iter().filter(is_unfinished).collect();
        assert!(left.is_empty(), "{folder}: {left:?}");
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    assert!(!mounts.contains(env.path("cache").to_str().expect("UTF-8")), "{mounts}");
}

/// A place in which everything that checkrun does can be killed.
struct Scene {
    env: Env,
    mark: String,
    who: crate::support::Who,
}

/// One call that is about to be killed.
struct Call {
    kind: &'static str,
    args: Vec<String>,
    /// The cache that it uses.
    cache: &'static str,
    /// Statuses with which it may end where only a helper of it is hit, besides 125 and 137.
    statuses: Vec<i32>,
}

impl Scene {
    fn new(who: crate::support::Who) -> Self {
        let env = Env::of(who);
        for n in 0..40 {
            env.write(&format!("d{}/f{n}", n % 5), format!("{n}\n"));
        }
        std::fs::create_dir_all(env.path("home/.config/checkrun/runners")).expect("mkdir");
        let runner = "format = 1\ndescription = \"d\"\nserves = [\"frob\"]\n[[prepare]]\nwhen = [\"lock\"]\n\
             run = \"mkdir got; cat lock lock >got/twice; head -c 200000 /dev/zero >got/more\"\ntree = [\"got\"]\n";
        std::fs::write(env.path("home/.config/checkrun/runners/frob.toml"), runner).expect("a runner");
        env.write("lock", "first\n");
        env.commit();
        // No other process of the machine bears this, so that those of a run are found by their arguments.
        let mark = format!(": {}.{who:?}", std::process::id());
        Self { env, mark, who }
    }

    fn script(&self, status: u64) -> String {
        format!("{}; echo whole {status}; exit {status}", self.mark)
    }

    /// The call that comes next; what it needs is made.
    fn call(&self, n: usize, status: u64, which: u64) -> Call {
        let (script, env) = (self.script(status), &self.env);
        let fresh = format!("{}; : {n}; echo whole {status}; exit {status}", self.mark);
        let is = i32::try_from(status).expect("small");
        let (kind, options, script) = match which {
            0 => ("a run", vec!["--"], fresh),
            1 => ("a hit", vec!["--"], script),
            2 => ("a new tree", vec!["--refresh", "--"], script),
            3 => {
                let args = ["gc", "--max-size", "1KiB"].map(str::to_owned).to_vec();
                return Call { kind: "gc", args, cache: "cache", statuses: vec![0] };
            }
            4 => ("flake", vec!["flake", "--runs", "4", "--"], script),
            5 => ("landlock", vec!["--refresh", "--policy", "landlock", "--"], script),
            6 => {
                env.write("lock", format!("{n}\n"));
                let args = ["prepare", "--runner", "frob"].map(str::to_owned).to_vec();
                return Call { kind: "prepare", args, cache: "cache", statuses: vec![0] };
            }
            7 => {
                self.ledger(n);
                let args = ["reconcile", "ledger.json", "--write"].map(str::to_owned).to_vec();
                return Call { kind: "reconcile", args, cache: "cache", statuses: vec![0, 1] };
            }
            8 => ("a first materialisation", vec!["--"], script),
            _ => ("a refresh", vec!["--refresh", "--"], script),
        };
        if kind == "a new tree" {
            env.write("changed", format!("{n}\n"));
        }
        let cache = if which == 8 { "home/first" } else { "cache" };
        if which == 8 {
            drop(std::fs::remove_dir_all(env.path(cache)));
        }
        let statuses = if kind == "flake" { vec![0, 1] } else { vec![is] };
        let words = options.into_iter().chain(["sh", "-c"]).map(str::to_owned);
        Call { kind, args: words.chain([script]).collect(), cache, statuses }
    }

    /// A ledger whose second step does not hold, whatever happens.
    fn ledger(&self, n: usize) {
        let step = |id: &str, status: u64| {
            let check = format!("{}; : l{n}; echo whole {status}; exit {status}", self.mark);
            json!({"id": id, "title": id, "touches": ["d1/**"], "depends_on": [], "check": [format!("sh -c '{check}'")],
                "status": if n.is_multiple_of(2) { "pending" } else { "passed" }, "evidence": null, "attempts": 0})
        };
        let ledger = json!({"task": "t", "plan_version": 1, "steps": [step("s01", 0), step("s02", 1)]});
        self.env.write("ledger.json", serde_json::to_string_pretty(&ledger).expect("JSON") + "\n");
    }

    /// The ledger is the old one or the new one, and after another look says what holds.
    fn ledger_is_whole(&self) {
        let read = || -> serde_json::Value {
            serde_json::from_slice(&std::fs::read(self.env.repo("ledger.json")).expect("a ledger"))
                .expect("whole JSON")
        };
        let ids =
            |ledger: &serde_json::Value| (ledger["steps"][0]["id"].clone(), ledger["steps"][1]["id"].clone());
        assert_eq!(ids(&read()), (json!("s01"), json!("s02")));
        drop(self.env.checkrun(&["reconcile", "ledger.json", "--write"]).expect(1));
        let ledger = read();
        assert_eq!(ids(&ledger), (json!("s01"), json!("s02")));
        assert_eq!(ledger["steps"][0]["status"], "passed", "{ledger}");
        assert_ne!(ledger["steps"][1]["status"], "passed", "{ledger}");
        assert!(!self.env.repo(".ledger.json.checkrun-new").exists());
    }

    /// What was half prepared is not there, or is whole.
    fn packages_are_whole(&self) {
        let script = "test ! -e got || { cmp got/twice - && test $(wc -c <got/more) = 200000; }";
        let lock = std::fs::read_to_string(self.env.repo("lock")).expect("a lock");
        let script = format!("printf '{0}{0}' | {{ {script}; }}", lock.replace('\n', "\\n"));
        drop(self.env.checkrun(&["--runner", "frob", "--", "sh", "-c", &script]).expect(0));
        drop(self.env.checkrun(&["prepare", "--runner", "frob"]).expect(0));
        let script = "cat got/twice; wc -c <got/more";
        let output = self.env.checkrun(&["--runner", "frob", "--", "sh", "-c", script]).expect(0);
        assert_eq!(output.out(), format!("{lock}{lock}200000\n"));
    }

    /// The next run is right, as is the one after it, and sweeps.
    fn next_is_right(&self, status: u64, cache: &str) {
        let (script, code) = (self.script(status), i32::try_from(status).expect("small"));
        for options in [&["--refresh"][..], &[]] {
            let args = [options, &["--", "sh", "-c", &script]].concat();
            let output = run(self.env.command(&args).env("CHECKRUN_CACHE_DIR", self.env.path(cache)));
            assert_eq!(output.expect(code).out(), format!("whole {status}\n"));
        }
    }

    /// Kills it at some moment: whether that came before the end, and whether it was a helper.
    fn kill_one(&self, call: &Call, moments: &mut Moments) -> (bool, bool) {
        let args: Vec<&str> = call.args.iter().map(String::as_str).collect();
        let mut command = self.env.command(&args);
        command.env("CHECKRUN_CACHE_DIR", self.env.path(call.cache));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("checkrun");
        std::thread::sleep(Duration::from_micros(moments.below(80_000)));
        let family = below(child.id());
        let own = i32::try_from(child.id()).expect("a number");
        // One in three hits the supervisor or the init process instead; at level `landlock` the first child is the check,
        // and a reconciliation has workers before it has sandboxes.
        let has_helpers = !["landlock", "reconcile"].contains(&call.kind);
        let other = if has_helpers { usize::try_from(moments.below(6)).expect("small") } else { 6 };
        let victim = family[..family.len().min(2)].get(other).copied();
        let struck = child.try_wait().expect("wait").is_none();
        if struck {
            kill(victim.unwrap_or(own));
        }
        let ended: ExitStatus = child.wait().expect("wait");
        if let (Some(_), Some(code)) = (victim, ended.code()) {
            // The verdict, a signal's status, or that there is none; never another verdict.
            let known = call.statuses.contains(&code) || [137, 125].contains(&code);
            assert!(known, "{:?} {}: status {code}", self.who, call.kind);
        }
        until("all that worked for it is gone", || {
            call.args
                .last()
                .is_none_or(|script| !script.starts_with(&self.mark) || bearing(script).is_empty())
                && family.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
        });
        (struck, struck && victim.is_some())
    }
}

// google/nsjail#69, NixOS/nix#177, nrwl/nx#28608: what a kill leaves behind
#[test]
fn a_kill_at_any_moment_leaves_nothing_behind_and_no_wrong_record() {
    let kills = if std::env::var_os("CHECKRUN_LONG").is_some() { 2000 } else { 100 };
    let mut moments = Moments::new();
    let (mut struck, mut helpers) = (BTreeMap::<&str, usize>::new(), 0);
    for who in EVERYBODY {
        let scene = Scene::new(who);
        let env = &scene.env;
        for n in 0..kills / 2 {
            // Each kind comes as often as the others.
            let (status, which) = (moments.below(4), (n % 10) as u64);
            let call = scene.call(n, status, which);
            let (was_struck, was_helper) = scene.kill_one(&call, &mut moments);
            *struck.entry(call.kind).or_default() += usize::from(was_struck);
            helpers += usize::from(was_helper);
            match which {
                6 => scene.packages_are_whole(),
                7 => scene.ledger_is_whole(),
                8 => scene.next_is_right(status, "home/first"),
                9 => scene.next_is_right(status, "cache"),
                _ => {}
            }
        }
        drop(env.checkrun(&["--refresh", "--", "sh", "-c", &scene.script(0)]).expect(0));
        drop(env.checkrun(&["gc"]).expect(0));
        drop(env.checkrun(&["--refresh", "--", "true"]).expect(0));
        drop(env.checkrun(&["--refresh", "--policy", "landlock", "--", "true"]).expect(0));
        nothing_is_left_over(env);
        records_are_true(env);
    }
    let all: usize = struck.values().sum();
    say(&format!("{all} of {kills} kills struck, {helpers} of them a helper; by kind {struck:?}"));
    assert!(all > kills / 4, "only {all} of {kills} kills came before the end");
    assert!(struck.len() == 10, "{struck:?}");
}

// marcusquinn/aidevops#5531, rochecompaan/patchmill#255: a holder that stands still
#[test]
fn a_leader_that_is_stopped_holds_a_follower_up_and_gives_it_no_wrong_answer() {
    for who in EVERYBODY {
        for is_killed in [false, true] {
            let env = Env::of(who);
            env.commit();
            let args = ["--format", "json", "--", "sh", "-c", "sleep 1; exit 3"];
            let spawn = || env.command(&args).stdout(Stdio::piped()).spawn().expect("checkrun");
            let mut leader = spawn();
            until("the leader's check", || below(leader.id()).len() >= 3);
            let own = i32::try_from(leader.id()).expect("a number");
            tell(own, "-STOP");
            let mut follower = spawn();
            std::thread::sleep(Duration::from_millis(1500));
            assert!(follower.try_wait().expect("wait").is_none(), "it answered without an answer");
            // A stopped process can be killed, and then nobody waits for it any more.
            tell(own, if is_killed { "-KILL" } else { "-CONT" });
            assert_eq!(leader.wait().expect("wait").code(), (!is_killed).then_some(3));
            assert_eq!(follower.wait().expect("wait").code(), Some(3));
            assert_eq!(env.logged().len(), 1);
        }
    }
}

// A supervisor that dies makes the check's own calls fail, so whatever the check says after that is not its verdict.
#[test]
fn an_ending_without_the_supervisors_last_word_is_no_result() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.commit();
        // No system call that the supervisor is asked about comes between the two.
        let script = "echo up; i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done; exit 0";
        let mut live = Live::start(&env, &["--", "sh", "-c", script]);
        live.line();
        let family = live.below();
        let (supervisor, init) = (family[0], family[1]);
        tell(supervisor, "-STOP");
        until("the check and the init process have ended", || {
            std::fs::read_to_string(format!("/proc/{init}/stat")).is_ok_and(|stat| stat.contains(") Z "))
        });
        tell(supervisor, "-KILL");
        let (status, _, err) = live.end();
        assert_eq!(status, 125, "{err}");
        assert!(err.contains("killed from outside") && err.contains("hint: "), "{err}");
        assert_eq!(env.logged().len(), 0, "it is on record");
    }
}
