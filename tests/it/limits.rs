//! Limits: each holds, is told by its own word when hit, and is refused where it cannot be kept.

use crate::support::probe::{Live, bearing, in_own_mounts, marker};
use crate::support::{EVERYBODY, Env, Output, Who, program};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A check with the outer bounds that a hostile test needs: its user may not have more than a thousand processes, and
/// after a minute all is over.
fn bounded(env: &Env, args: &[&str]) -> Output {
    let own = env.command(args);
    let mut command = env.as_who("timeout");
    command
        .args(["--signal=KILL", "60", "prlimit", "--nproc=1000", "--"])
        .arg(program())
        .args(own.get_args());
    command.env("CHECKRUN_CACHE_DIR", env.path("cache")).current_dir(env.path("repo")).stdin(Stdio::null());
    crate::support::run(&mut command)
}

/// Not stored as an answer, whatever it is.
fn is_no_answer(env: &Env, args: &[&str]) {
    let mut again = vec!["--cached-only"];
    again.extend(args);
    drop(env.checkrun(&again).refused(&["no earlier result"]));
}

#[test]
fn time_that_is_up_ends_all_of_it() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let (written, shown) = marker();
        let script = format!("trap '' TERM; setsid sleep {written} & sleep {written}; sleep {written}");
        let args = ["--format", "json", "--timeout", "300ms", "--", "sh", "-c", &script];
        let output = env.checkrun(&args).expect(124);
        assert_eq!(output.json()["outcome"], "timed_out", "{who:?}");
        assert_eq!(bearing(&shown), Vec::<i32>::new());
        is_no_answer(&env, &args);
    }
}

#[test]
fn a_command_may_end_in_good_order_when_its_time_is_up() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let script = "trap 'echo tidied; exit 0' TERM; sleep 60 & wait";
        let output = env.checkrun(&["--timeout", "3s", "--", "sh", "-c", script]).expect(124);
        assert_eq!(output.out(), "tidied\n", "{who:?}");
    }
}

// buildbuddy-io/buildbuddy#8396, kubernetes/community#7237: one process is killed and the test goes on oddly;
// sosy-lab/benchexec#1099: the supervisor is killed. The memory controller is root's here.
#[test]
fn want_of_memory_ends_the_whole_run_and_is_told_as_such() {
    let env = Env::of(Who::Root);
    let (written, shown) = marker();
    let greedy = "/usr/bin/python3 -c 'x = []\nwhile True: x.append(bytearray(1 << 20))'";
    for script in [
        format!("sleep {written} & {greedy}"),
        format!("sleep {written} & while true; do {greedy}; done"),
        format!("sleep {written} & {greedy}; exit 0"),
        format!("sleep {written} & head -c 1G /dev/zero > /tmp/file"),
        format!("sleep {written} & head -c 1G /dev/zero > /dev/shm/file"),
    ] {
        let args = ["--format", "json", "--memory", "48MiB", "--timeout", "50s", "--", "sh", "-c", &script];
        let output = bounded(&env, &args).expect(137);
        let result = output.json();
        assert_eq!(result["outcome"], "out_of_memory", "{script}: {result}");
        assert_eq!(result["sandbox"]["layers"]["memory"], "enforced");
        assert!(result["usage"]["max_rss_bytes"].as_u64().expect("a number") <= 48 << 20, "{result}");
        assert_eq!(bearing(&shown), Vec::<i32>::new(), "{script}");
        is_no_answer(&env, &args);
    }
    let fits =
        env.checkrun(&["--memory", "256MiB", "--", "/usr/bin/python3", "-c", "x = bytearray(64 << 20)"]);
    drop(fits.expect(0));
}

// bazelbuild/bazel#26076: swap escapes the limit
#[test]
fn swap_does_not_widen_the_memory_limit() {
    let env = Env::of(Who::Root);
    let mut live =
        Live::start(&env, &["--no-cache", "--memory", "64MiB", "--", "sh", "-c", "echo ready; sleep 30"]);
    assert_eq!(live.line(), "ready");
    let name = format!("checkrun-{}-0", live.pid());
    let found =
        Command::new("find").args(["/sys/fs/cgroup", "-type", "d", "-name", &name]).output().expect("find");
    let mut seen = 0;
    for folder in String::from_utf8_lossy(&found.stdout).lines() {
        let read = |file: &str| {
            std::fs::read_to_string(format!("{folder}/{file}")).ok().map(|text| text.trim().to_owned())
        };
        let memory = read("memory.limit_in_bytes").or_else(|| read("memory.max"));
        let swap = read("memory.memsw.limit_in_bytes").or_else(|| read("memory.swap.max"));
        if let Some(memory) = memory {
            assert_eq!(memory, (64 << 20).to_string());
            let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
            match swap {
                Some(swap) => assert!(swap == memory || swap == "0", "{swap}"),
                None => {
                    assert!(swaps.lines().count() < 2, "this kernel does not count swap, and there is some")
                }
            }
            seen += 1;
        }
        let inside = read("cgroup.procs").unwrap_or_default();
        let own: Vec<i32> = inside.lines().filter_map(|pid| pid.parse().ok()).collect();
        assert!(!own.contains(&live.pid()), "the supervisor is outside of the group");
        assert!(own.len() >= 2, "{own:?}");
    }
    assert_eq!(seen, 1, "{found:?}");
}

// bazelbuild/bazel#26062: a limit asked for, not applied, and success told
#[test]
fn a_limit_that_cannot_be_kept_is_refused() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let hidden = "umount -R /sys/fs/cgroup";
        for (option, value, layer) in [("--memory", "64MiB", "memory"), ("--cpus", "1", "cpus")] {
            let output = in_own_mounts(&env, hidden, &[option, value, "--", "echo", "ran"]);
            drop(output.refused(&[layer, "no control group file system", "hint:", "leave that limit out"]));
        }
        // Without being asked for, it is not kept, and the record says so.
        let output = in_own_mounts(&env, hidden, &["--format", "json", "--", "true"]).expect(0);
        let layers = &output.json()["sandbox"]["layers"];
        assert!(
            layers["memory"].as_str().expect("text").starts_with("unavailable: no control group"),
            "{layers}"
        );
        assert!(layers["pids"].as_str().expect("text").starts_with("partial: by RLIMIT_NPROC"), "{layers}");
    }
}

// Where processes are not counted by a control group, a check that was given fewer than it asked for would only fail.
#[test]
fn fewer_processes_than_asked_for_are_refused_with_what_can_be_asked_for() {
    let env = Env::of(Who::User);
    let own = ["prlimit", "--nproc=1000:1000", "--"];
    let output = crate::support::run(&mut env.wrapped(&own, &["--", "echo", "ran"]));
    drop(output.refused(&["4096 processes are asked for", "hard limit is 1000", "hint:", "`--pids`"]));
    assert_eq!(env.logged().len(), 0);
    let output =
        crate::support::run(&mut env.wrapped(&own, &["--pids", "1000", "--", "echo", "ran"])).expect(0);
    assert_eq!(output.out(), "ran\n");
}

// crun refused a machine with the old hierarchies and an empty new one (measured)
#[test]
fn root_has_its_limits_kept_by_control_groups() {
    let env = Env::of(Who::Root);
    let result = env.checkrun(&["--format", "json", "--cpus", "1", "--", "true"]).expect(0).json();
    for layer in ["memory", "pids", "cpus", "disk"] {
        assert_eq!(result["sandbox"]["layers"][layer], "enforced", "{result}");
    }
}

// opencontainers/runc#2339, #2582, containers/podman#6368, #17202, #8545: hung on a session bus
#[test]
fn a_session_bus_that_never_answers_is_not_asked() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let place = env.path("bus");
        let listener = std::os::unix::net::UnixListener::bind(&place).expect("listen");
        listener.set_nonblocking(true).expect("nonblocking");
        let env = env.var("DBUS_SESSION_BUS_ADDRESS", format!("unix:path={}", place.display()));
        let env = env.var("XDG_RUNTIME_DIR", "/none");
        drop(env.checkrun(&["--", "true"]).expect(0));
        assert!(listener.accept().is_err());
    }
}

/// Starts sleepers until it cannot, and tells how many there were.
const FORKS: &str = "import os, time\nn = 0\ntry:\n  while n < 500:\n    if os.fork() == 0: time.sleep(60); os._exit(0)\n    n += 1\nexcept BlockingIOError: print(n, flush=True); raise SystemExit(4)\nprint('unlimited')";

// akitaonrails/ai-jail#21, flynn/flynn#1554, luckyPipewrench/pipelock#1261: the whole session of the user counted
#[test]
fn the_limit_on_processes_counts_the_run_alone() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let (_, shown) = marker();
        let mut others: Vec<_> =
            (0..80).map(|_| env.as_who("sleep").arg(&shown).spawn().expect("sleep")).collect();
        let args = ["--pids", "50", "--", "/usr/bin/python3", "-c", FORKS];
        let output = bounded(&env, &args);
        for other in &mut others {
            other.kill().expect("kill");
            other.wait().expect("wait");
        }
        let output = output.expect(4);
        let made: u32 = output.out().trim().parse().expect("a number");
        assert!((40..=50).contains(&made), "{who:?} {made}");
    }
}

#[test]
fn the_limit_on_processes_is_told_as_such_where_a_control_group_counts() {
    let env = Env::of(Who::Root);
    let args = ["--format", "json", "--pids", "50", "--", "/usr/bin/python3", "-c", FORKS];
    let result = bounded(&env, &args).expect(4).json();
    assert_eq!(result["outcome"], "pids_limit");
    is_no_answer(&env, &args);
}

/// Forks whatever happens, ignores what it can, and so do its children.
const BOMB: &str = "import os, signal\nfor number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)\nprint('lit', flush=True)\nwhile True:\n  try:\n    if os.fork() == 0: os.setsid()\n  except OSError: pass";

// NVIDIA/NemoClaw#871
#[test]
fn a_fork_bomb_is_bounded_and_gone_with_its_time() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let args = ["--pids", "100", "--timeout", "1s", "--", "/usr/bin/python3", "-c", BOMB];
        let output = bounded(&env, &args).expect(124);
        assert!(output.out().starts_with("lit\n"), "{who:?} {output:?}");
        assert_eq!(bearing(BOMB), Vec::<i32>::new(), "{who:?}");
        assert!(output.took < Duration::from_secs(30), "{:?}", output.took);
    }
}

// measured: half of the machine's memory for each temporary file system in bwrap, hakoniwa and firejail
#[test]
fn a_full_disk_is_told_to_the_command_and_by_its_own_word() {
    for who in EVERYBODY {
        for place in ["/tmp", "/dev/shm", "/src", "/home/check"] {
            let env = Env::of(who);
            let script = format!("head -c 40M /dev/zero > {place}/file");
            let args = ["--format", "json", "--disk", "10MiB", "--", "sh", "-c", &script];
            let output = env.checkrun(&args).expect(1);
            let result = output.json();
            assert_eq!(result["outcome"], "disk_full", "{who:?} {place}");
            assert!(result["tail"].as_str().expect("text").contains("No space left on device"), "{result}");
            is_no_answer(&env, &args);
        }
        let env = Env::of(who);
        // All four places share what there is.
        let script = "head -c 6M /dev/zero > /tmp/file && head -c 6M /dev/zero > /dev/shm/file";
        drop(env.checkrun(&["--disk", "10MiB", "--", "sh", "-c", script]).expect(1));
    }
}

#[test]
fn too_much_output_ends_the_run_at_the_limit() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let args = [
            "--format",
            "json",
            "--show-output",
            "--output-limit",
            "300KiB",
            "--",
            "sh",
            "-c",
            "yes & yes >&2",
        ];
        let output = env.checkrun(&args).expect(137);
        let result = output.json();
        assert_eq!(
            (&result["outcome"], &result["output_bytes"]),
            (&"output_limit".into(), &(300 << 10).into()),
            "{who:?}"
        );
        is_no_answer(&env, &args);
    }
}

// An outer limit of the machine's, or a person, kills the sandbox.
#[test]
fn a_sandbox_killed_from_outside_is_told_as_killed() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let (written, shown) = marker();
        let script = format!("echo ready; sleep {written}");
        let args = ["--output", "result.json", "--", "sh", "-c", &script];
        let mut live = Live::start(&env, &args);
        assert_eq!(live.line(), "ready");
        let init = live.below()[1];
        assert!(Command::new("kill").args(["-KILL", &init.to_string()]).status().expect("kill").success());
        let (status, _, err) = live.end();
        assert_eq!(status, 137, "{who:?} {err}");
        let text = std::fs::read_to_string(env.repo("result.json")).expect("a result");
        let result: serde_json::Value = serde_json::from_str(&text).expect("json");
        assert_eq!(result["outcome"], "killed", "{result}");
        assert!(result["reason"].as_str().expect("text").starts_with("killed: "), "{result}");
        assert_eq!(bearing(&shown), Vec::<i32>::new());
        std::fs::remove_file(env.repo("result.json")).expect("remove");
        is_no_answer(&env, &args);
    }
}

#[test]
fn fewer_processors_are_seen_where_they_are_limited() {
    let env = Env::of(Who::Root);
    let output = env.checkrun(&["--cpus", "1", "--", "nproc"]).expect(0);
    assert_eq!(output.out(), "1\n");
}
