//! Disks that are full or do not read or write, at random moments, and clocks that are set back: the verdict is the
//! check's own or there is none, what is on record is true, and once all is well again so is the next run.
//!
//! `CHECKRUN_LONG=1` makes ten times as many faults; `CHECKRUN_CRASH_SEED` says which moments.

use crate::support::moments::Moments;
use crate::support::probe::in_own_mounts;
use crate::support::{EVERYBODY, Env, Output, USER, Who, run, say};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

fn times(few: u64) -> u64 {
    if std::env::var_os("CHECKRUN_LONG").is_some() { few * 10 } else { few }
}

/// An environment with a few files.
fn scene(who: Who) -> Env {
    let env = Env::of(who);
    for n in 0..20 {
        env.write(&format!("d{}/f{n}", n % 5), format!("{n}\n"));
    }
    env.commit();
    env
}

/// A shell line that puts a file system of that size over the cache.
fn small_cache(env: &Env, kib: u64) -> String {
    let owner = if env.who() == Who::User { USER } else { 0 };
    format!("mount -t tmpfs -o size={kib}k,uid={owner},mode=755 none {}", env.path("cache").display())
}

/// Statuses that a shell told, in order.
fn told(output: &Output) -> Vec<String> {
    let text = output.out();
    text.lines().filter_map(|line| line.strip_prefix("status ")).map(str::to_owned).collect()
}

fn warnings(output: &Output) -> usize {
    output.err().lines().filter(|line| line.contains("warning")).count()
}

// bazelbuild/bazel#16179 and others: a disk that fills up makes a wrong verdict, or a cache that answers no more
#[test]
fn a_disk_that_is_full_at_any_moment_makes_no_wrong_verdict() {
    let mut moments = Moments::new();
    let (mut disks, mut full) = (0, 0);
    for who in EVERYBODY {
        let env = scene(who);
        for _ in 0..times(12) {
            // From a disk that takes nothing to one that takes all.
            let (pages, status) = (moments.below(160) + 1, moments.below(3));
            let three = "set -- sh -c 'for i in 1 2 3; do \"$0\" \"$@\"; echo status $?; done' \"$@\"";
            let script = format!("echo whole {status}; exit {status}");
            let args = ["-q", "--", "sh", "-c", &script];
            let output = in_own_mounts(&env, &format!("{}\n{three}", small_cache(&env, pages * 4)), &args);
            // The verdict is had in any case, and each run says at most once that it is not kept.
            assert_eq!(told(&output), vec![status.to_string(); 3], "{who:?} {pages} pages: {}", output.err());
            assert!(
                !output.err().contains("panicked") && warnings(&output) <= 3,
                "{pages}: {}",
                output.err()
            );
            disks += 1;
            full += usize::from(warnings(&output) > 0);
        }
    }
    say(&format!("{disks} disks, {full} of them too small for the record"));
    assert!(full > 0, "no disk was too small");
}

// A disk that fills up later, when there are records and laid-out trees on it.
#[test]
fn on_a_disk_that_has_filled_up_verdicts_are_had_and_room_can_be_made() {
    for who in EVERYBODY {
        let env = scene(who);
        std::fs::write(env.path("large"), vec![7_u8; 70 << 20]).unwrap();
        let steps = r#"
cr() { "$0" -q "$@" >>out; echo "status $?" >>out; }
fill() { dd if=/dev/zero of="$CHECKRUN_CACHE_DIR/filler" bs=4k 2>/dev/null || true; }
cr -- sh -c 'echo known; exit 3'
fill
echo hit >&2;     cr -- sh -c 'echo known; exit 3'
echo refresh >&2; cr --refresh -- sh -c 'echo known; exit 3'
echo new >&2;     cr -- sh -c 'echo new; exit 4'
echo tree >&2;    echo changed >d1/f1; cr -- sh -c 'cat d1/f1; exit 5'
echo level >&2;   cr --policy landlock -- sh -c 'exit 6'
echo flake >&2;   cr flake --runs 2 -- sh -c 'exit 0'
echo large >&2;   cp ../large .; cr -- sh -c 'test $(wc -c <large) = 73400320 && exit 7'; rm large
echo log >&2;     cr log
echo gc >&2;      cr gc --max-size 1B
rm "$CHECKRUN_CACHE_DIR/filler"
echo again >&2;   cr -- sh -c 'echo new; exit 4'
                  cr --cached-only -- sh -c 'echo new; exit 4'
echo left >&2;    git checkout -q d1/f1; cat out; rm out
"#;
        let shell =
            format!("{}\nset -- sh -c '{}' \"$@\"", small_cache(&env, 900), steps.replace('\'', r"'\''"));
        std::fs::write(env.repo(".gitignore"), "out\n").unwrap();
        // A shell function is no program: the steps are the arguments' own, and checkrun's arguments are none.
        let output = in_own_mounts(&env, &shell, &[]);
        let err = output.err();
        let part = |from: &str, to: &str| {
            let after = err.split_once(&format!("{from}\n")).unwrap_or_else(|| panic!("{from}: {err}")).1;
            after.split_once(&format!("{to}\n")).unwrap_or_else(|| panic!("{to}: {err}")).0.to_owned()
        };
        let statuses = told(&output);
        let (log, gc) = (&statuses[8], &statuses[9]);
        assert_eq!(statuses[..8], ["3", "3", "3", "4", "5", "6", "0", "7"], "{who:?}: {err}");
        assert_eq!(log, "0", "{err}");
        // There may be no room to note what goes; then the hint is the one thing left to do.
        assert!(gc == "0" || part("gc", "again").contains("hint: make room"), "{gc}: {err}");
        assert_eq!(statuses[10..], ["4", "4"], "{err}");
        assert!(!part("hit", "refresh").contains("warning"), "{err}");
        for (from, to) in
            [("refresh", "new"), ("new", "tree"), ("tree", "level"), ("level", "flake"), ("large", "log")]
        {
            let warned = part(from, to).lines().filter(|line| line.contains("warning")).count();
            assert!(warned <= 1, "{from}: {err}");
        }
        assert!(!err.contains("panicked"), "{err}");
    }
}

/// Calls of the launcher by which it reads, writes, and gives names.
const CALLS: [&str; 21] = [
    "openat",
    "read",
    "pread64",
    "write",
    "pwrite64",
    "fsync",
    "fdatasync",
    "ftruncate",
    "fallocate",
    "rename",
    "renameat2",
    "mkdir",
    "linkat",
    "unlink",
    "flock",
    "fcntl",
    "getdents64",
    "statx",
    "lseek",
    "fchmod",
    "utimensat",
];

/// checkrun with one call that fails, of the launcher alone; what its sandbox does is its own.
fn failing(env: &Env, call: &str, error: &str, nth: u64, args: &[&str]) -> Output {
    let fault = format!("inject={call}:error={error}:when={nth}");
    let trace = env.path("home/trace");
    let mut command = env.wrapped(
        &["timeout", "-s", "KILL", "100", "strace", "-o", trace.to_str().unwrap(), "-e", &fault],
        args,
    );
    run(&mut command)
}

// FuzzingLabs/apko, zkat/cacache, and SQLite's own tests: one call after the other that does not do its work
#[test]
fn one_call_that_fails_makes_no_wrong_verdict_and_no_wrong_record() {
    let mut moments = Moments::new();
    let mut seen: BTreeMap<i32, usize> = BTreeMap::new();
    let (mut faults, mut hits) = (0, 0);
    for who in EVERYBODY {
        let env = scene(who);
        let args = |script: &str| ["--format", "json", "--", "sh", "-c", script].map(str::to_owned);
        drop(env.checkrun(&["--", "true"]).expect(0));
        for n in 0..times(45) {
            let pick = |from: u64| usize::try_from(from).unwrap();
            let call = CALLS[pick(n) % CALLS.len()];
            let error = ["EIO", "ENOSPC"][pick(moments.below(2))];
            let (nth, status) = (moments.below(12) + 1, moments.below(3));
            let script = format!(": {n}; echo whole {status}; exit {status}");
            let arguments = args(&script);
            let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            if n % 3 == 0 {
                // A hit.
                drop(env.checkrun(&arguments).expect(i32::try_from(status).unwrap()));
                hits += 1;
            }
            if n % 5 == 0 {
                arguments.splice(0..0, ["--policy", "landlock"]);
            }
            let output = failing(&env, call, error, nth, &arguments);
            let what =
                format!("{who:?} {call} {error} {nth}: {} {}\n{}", output.status, output.out(), output.err());
            assert!(!output.err().contains("panicked"), "{what}");
            // 127: the dynamic loader was hit, which is before checkrun.
            let is_verdict = i64::from(output.status) == i64::try_from(status).unwrap();
            assert!(is_verdict || [125, 127].contains(&output.status), "{what}");
            let result: Option<Value> = serde_json::from_slice(&output.stdout).ok();
            if let Some(result) = result {
                let outcome = if status == 0 { "passed" } else { "failed" };
                assert!(!is_verdict || result["outcome"] == outcome, "{what}");
                assert!(!is_verdict || result["tail"] == format!("whole {status}\n"), "{what}");
            }
            *seen.entry(if is_verdict { 0 } else { output.status }).or_default() += 1;
            faults += 1;
            // The next run is right, and so is what is on record by then.
            let args = args(&script);
            let again = env.checkrun(&args.iter().map(String::as_str).collect::<Vec<_>>());
            let again = again.expect(i32::try_from(status).unwrap()).json();
            assert_eq!(again["tail"], format!("whole {status}\n"), "{what}");
        }
        assert_eq!(env.sql("PRAGMA integrity_check"), serde_json::json!([["ok"]]));
        for record in env.logged().iter().filter(|record| record["cmd"] != "true") {
            let wanted = record["cmd"].as_str().unwrap().trim_end_matches('\'').rsplit_once(' ').unwrap().1;
            let log = env.checkrun(&["show", &record["id"].to_string(), "--log"]);
            assert!(log.status == 125 || log.out() == format!("whole {wanted}\n"), "{record} {log:?}");
            assert_eq!(record["exit"].to_string(), wanted, "{record}");
        }
    }
    say(&format!(
        "{faults} calls failed, {hits} of them in hits; verdicts, and statuses without one: {seen:?}"
    ));
    assert!(seen.get(&0).is_some_and(|verdicts| *verdicts > faults / 4), "{seen:?}");
}

/// Sets the clock of the machine, as one program sees it, back by STEP seconds once it has been read AFTER times.
const SET_BACK: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *at) {
    static int reads;
    int result = syscall(SYS_clock_gettime, id, at);
    const char *step = getenv("STEP"), *after = getenv("AFTER");
    if (result == 0 && id == CLOCK_REALTIME && step && after && ++reads > atoi(after)) at->tv_sec -= atol(step);
    return result;
}
time_t time(time_t *to) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (to) *to = at.tv_sec;
    return at.tv_sec;
}
int gettimeofday(struct timeval *to, void *zone) {
    struct timespec at;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &at);
    to->tv_sec = at.tv_sec;
    to->tv_usec = at.tv_nsec / 1000;
    return 0;
}
"#;

// nextest-rs/nextest#1203, bazelbuild/bazel#22835, and others: durations below zero, and the older of two records is the newer
#[test]
fn a_clock_that_is_set_back_changes_no_verdict_and_no_order() {
    for who in EVERYBODY {
        let env = scene(who);
        std::fs::write(env.path("back.c"), SET_BACK).unwrap();
        let library = env.path("back.so");
        let mut gcc = Command::new("gcc");
        drop(
            run(gcc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(env.path("back.c"))).expect(0),
        );
        let at = |step: &str, after: &str, args: &[&str]| {
            let mut command = env.command(args);
            run(command.env("LD_PRELOAD", &library).env("STEP", step).env("AFTER", after))
        };
        let args = ["--format", "json", "--", "sh", "-c", "sleep 0.2; echo x; exit 3"];
        let first = env.checkrun(&args).expect(3).json();
        // Ten years back: what is on record is of the future, and answers.
        let hit = at("315360000", "0", &args).expect(3).json();
        assert_eq!((&hit["cache"], &hit["at"]), (&"hit".into(), &first["at"]));
        // In the middle of a run, and before it.
        for after in ["0", "1", "2", "3"] {
            let refreshed = at("315360000", after, &[&["--refresh"], &args[..]].concat()).expect(3).json();
            let secs = refreshed["secs"].as_f64().unwrap();
            assert!((0.2..60.0).contains(&secs), "{refreshed}");
        }
        let past = at("315360000", "0", &[&["--refresh"], &args[..]].concat()).expect(3).json();
        assert!(past["at"].as_str() < first["at"].as_str(), "the clock was not set back: {past}");
        // The newest is what was run last, whatever the clock said.
        let logged = env.logged();
        let ids: Vec<i64> = logged.iter().map(|record| record["id"].as_i64().unwrap()).collect();
        assert!(ids.is_sorted_by(|one, next| one > next), "{ids:?}");
        assert_eq!(logged[0]["at"], past["at"]);
        assert_eq!(env.checkrun(&args).expect(3).json()["at"], past["at"]);
        // A limit on time is no matter of the clock's.
        let late = ["--timeout", "700ms", "--no-cache", "--format", "json", "--", "sleep", "30"];
        assert_eq!(at("-315360000", "1", &late).expect(124).json()["outcome"], "timed_out");
        let quick = ["--timeout", "60s", "--no-cache", "--", "sleep", "0.3"];
        drop(at("-315360000", "1", &quick).expect(0));
        // Making room by age from the past takes nothing of the future away, and the last answer stays.
        drop(at("315360000", "0", &["gc", "--max-age", "1d"]).expect(0));
        assert_eq!(env.checkrun(&args).expect(3).json()["cache"], "hit");
        // A tree that is laid out in the past is the same tree.
        env.write("d1/f1", "other\n");
        let read = ["--", "cat", "d1/f1"];
        assert_eq!(at("315360000", "0", &read).expect(0).out(), "other\n");
        assert_eq!(env.checkrun(&[&["--refresh"], &read[..]].concat()).expect(0).out(), "other\n");
    }
}

// Caches on network file systems, where several believe to be alone.
#[test]
fn a_cache_where_locks_do_not_work_is_refused_and_nothing_is_stored() {
    for who in EVERYBODY {
        let env = scene(who);
        // As file systems without locks answer, and as one that grants the same lock to everybody.
        for fault in ["error=ENOLCK", "error=EOPNOTSUPP", "error=ENOSYS", "error=EINVAL", "retval=0"] {
            let fault = format!("inject=flock:{fault}");
            let strace = ["strace", "-o", "/dev/null", "-e", &fault];
            let output = run(&mut env.wrapped(&strace, &["--", "echo", "ran"]));
            drop(output.refused(&["locks do not work", "cache/locks/", "hint:", "CHECKRUN_CACHE_DIR"]));
        }
        assert_eq!(env.logged().len(), 0);
        // The same cache, once locks do work.
        assert_eq!(env.checkrun(&["--", "echo", "ran"]).expect(0).out(), "ran\n");
    }
}
