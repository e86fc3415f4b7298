//! How a run ends, and that nothing of it is left: by itself, by a signal, by a signal to checkrun, by its death.

use crate::support::probe::{LEVELS, Live, bearing, marker, until};
use crate::support::{EVERYBODY, Env};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

// google/nsjail#226 (PID 1 swallows signals), compiler-explorer/compiler-explorer#5224 (abort told as segfault)
#[test]
fn a_command_that_dies_of_a_signal_is_told_by_that_signal() {
    for who in EVERYBODY {
        for level in LEVELS {
            let env = Env::of(who);
            for (signal, number) in [
                ("HUP", 1),
                ("INT", 2),
                ("QUIT", 3),
                ("ABRT", 6),
                ("KILL", 9),
                ("SEGV", 11),
                ("PIPE", 13),
                ("TERM", 15),
                ("XFSZ", 25),
            ] {
                let script = format!("kill -{signal} $$; sleep 60");
                let mut args = level.to_vec();
                args.extend(["--format", "json", "--", "sh", "-c", &script]);
                let result = env.checkrun(&args).expect(128 + number).json();
                assert_eq!(result["outcome"], "failed", "{who:?} {signal}");
                assert_eq!(
                    (&result["signal"], &result["exit"]),
                    (&json!(number), &json!(null)),
                    "{who:?} {signal}"
                );
            }
        }
    }
}

#[test]
fn statuses_are_passed_on_and_real_faults_too() {
    for who in EVERYBODY {
        let env = Env::of(who);
        for status in [0, 1, 7, 124, 125, 127, 255] {
            let output = env.sh(&format!("exit {status}")).expect(status);
            assert_eq!(output.json()["exit"], status);
        }
        let fault = env.checkrun(&[
            "--format",
            "json",
            "--",
            "/usr/bin/python3",
            "-c",
            "import ctypes; ctypes.string_at(0)",
        ]);
        assert_eq!(fault.expect(139).json()["signal"], 11);
        let abort =
            env.checkrun(&["--format", "json", "--", "/usr/bin/python3", "-c", "import os; os.abort()"]);
        assert_eq!(abort.expect(134).json()["signal"], 6);
    }
}

/// Three ways to get out of sight of the shell.
fn daemons(script: &str) -> String {
    format!(
        "nohup {script} >/dev/null 2>&1 & setsid {script} & (setsid {script} & ) ; \
         /usr/bin/python3 -c 'import os, sys, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0: os.execvp(\"sleep\", [\"sleep\", sys.argv[1]])\n' {}",
        script.trim_start_matches("sleep ")
    )
}

// containers/bubblewrap#105, #529; minijail and firejail waited for a child that held stdout (measured)
#[test]
fn nothing_that_a_command_leaves_running_survives_it_or_holds_it_up() {
    for who in EVERYBODY {
        for level in LEVELS {
            let env = Env::of(who);
            let (written, shown) = marker();
            let script = format!(
                "{}; while [ $(pgrep -c sleep) -lt 4 ]; do sleep 0.01; done; exit 3",
                daemons(&format!("sleep {written}"))
            );
            let mut args = level.to_vec();
            args.extend(["--", "sh", "-c", &script]);
            let output = env.checkrun(&args).expect(3);
            assert!(output.took < Duration::from_secs(60), "{:?}", output.took);
            assert_eq!(bearing(&shown), Vec::<i32>::new(), "{who:?} {level:?}");
        }
    }
}

// measured: srt and minijail0 give status 0 on SIGTERM
#[test]
fn a_signal_to_checkrun_reaches_the_command_and_nothing_is_stored() {
    for who in EVERYBODY {
        for level in LEVELS {
            for (signal, name) in [(libc::SIGTERM, "TERM"), (libc::SIGINT, "INT"), (libc::SIGHUP, "HUP")] {
                let env = Env::of(who);
                let (written, shown) = marker();
                let script =
                    format!("trap 'echo got {name}; exit 5' {name}; echo ready; sleep {written} & wait");
                let mut args = level.to_vec();
                args.extend(["--", "sh", "-c", &script]);
                let mut live = Live::start(&env, &args);
                assert_eq!(live.line(), "ready");
                live.signal(signal);
                let (status, out, err) = live.end();
                assert_eq!(
                    (status, out.as_str()),
                    (128 + signal, &*format!("got {name}\n")),
                    "{who:?} {level:?}\n{err}"
                );
                assert_eq!(bearing(&shown), Vec::<i32>::new());
                let log = env.checkrun(&["log", "--format", "json"]).expect(0);
                assert!(!log.out().contains("\"outcome\""), "{}", log.out());
                let mut again = vec!["--cached-only"];
                again.extend(&args);
                drop(env.checkrun(&again).refused(&["no earlier result"]));
            }
        }
    }
}

#[test]
fn a_command_that_ignores_the_signal_is_killed_after_a_grace() {
    for who in EVERYBODY {
        for level in LEVELS {
            let env = Env::of(who);
            let (written, shown) = marker();
            let script = format!("trap '' TERM INT; echo ready; sleep {written}; sleep {written}");
            let mut args = level.to_vec();
            args.extend(["--", "sh", "-c", &script]);
            let mut live = Live::start(&env, &args);
            assert_eq!(live.line(), "ready");
            live.signal(libc::SIGTERM);
            assert_eq!(live.end().0, 143, "{who:?} {level:?}");
            assert_eq!(bearing(&shown), Vec::<i32>::new());
        }
    }
}

// containers/bubblewrap#633, #700, #692: dying with the parent was racy and bound to a thread
#[test]
fn the_death_of_checkrun_takes_everything_along() {
    for who in EVERYBODY {
        for level in LEVELS {
            let env = Env::of(who);
            let (written, shown) = marker();
            let script = format!("{}; echo ready; sleep {written}", daemons(&format!("sleep {written}")));
            let mut args = level.to_vec();
            args.extend(["--", "sh", "-c", &script]);
            let mut live = Live::start(&env, &args);
            assert_eq!(live.line(), "ready");
            until("five sleepers", || bearing(&shown).len() == 5);
            let helpers = live.below();
            live.signal(libc::SIGKILL);
            live.end();
            until("all sleepers are gone", || bearing(&shown).is_empty());
            until("all helpers are gone", || {
                helpers.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
            });
        }
    }
}

// The same at every moment of the start, when the sandbox is half built.
#[test]
fn the_death_of_checkrun_at_any_moment_leaves_no_process() {
    for who in EVERYBODY {
        for level in LEVELS {
            let env = Env::of(who);
            env.write("f", "").commit();
            let (written, shown) = marker();
            let script = format!("sleep {written}");
            let mut args = level.to_vec();
            args.extend(["--no-cache", "--", "sh", "-c", &script]);
            for step in 0..25_u64 {
                let mut child = env.command(&args).spawn().expect("checkrun");
                std::thread::sleep(Duration::from_millis(step * 3));
                child.kill().expect("kill");
                let pid = child.id();
                child.wait().expect("wait");
                until("the command is gone", || bearing(&shown).is_empty());
                // A process made by fork bears checkrun's own arguments until it takes another program.
                until("the helpers are gone", || bearing(&script).is_empty());
                assert!(!Path::new(&format!("/proc/{pid}")).exists());
            }
        }
    }
}

/// Control groups of checkrun anywhere on the machine, with the process id in their names.
fn groups_of(pid: i32) -> Vec<String> {
    let output = std::process::Command::new("find")
        .args(["/sys/fs/cgroup", "-maxdepth", "6", "-type", "d", "-name", &format!("checkrun-{pid}-*")])
        .output()
        .expect("find");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

// google/nsjail#69: control groups left behind
#[test]
fn what_a_killed_checkrun_leaves_is_swept_by_the_next() {
    for who in EVERYBODY {
        for level in LEVELS {
            let env = Env::of(who);
            env.write("f", "").commit();
            let (written, shown) = marker();
            let script = format!("echo ready; sleep {written}");
            let mut args = level.to_vec();
            args.extend(["--no-cache", "--", "sh", "-c", &script]);
            let mut killed = Vec::new();
            for _ in 0..5 {
                let mut live = Live::start(&env, &args);
                assert_eq!(live.line(), "ready");
                killed.push(live.pid());
                if who == crate::support::Who::Root {
                    assert!(!groups_of(live.pid()).is_empty(), "root's runs are in control groups here");
                }
                live.signal(libc::SIGKILL);
                live.end();
                until("the sleeper is gone", || bearing(&shown).is_empty());
            }
            until("no process of the runs is left", || {
                killed.iter().flat_map(|pid| groups_of(*pid)).all(|folder| {
                    std::fs::read_to_string(format!("{folder}/cgroup.procs")).unwrap_or_default().is_empty()
                })
            });
            let mut args = level.to_vec();
            args.extend(["--no-cache", "--", "true"]);
            drop(env.checkrun(&args).expect(0));
            assert_eq!(
                killed.iter().flat_map(|pid| groups_of(*pid)).collect::<Vec<_>>(),
                Vec::<String>::new()
            );
            // Only the level without namespaces needs a folder on the host.
            let runs: Vec<_> = std::fs::read_dir(env.path("cache/runs"))
                .into_iter()
                .flatten()
                .flatten()
                .map(|it| it.path())
                .collect();
            assert!(runs.is_empty(), "{who:?} {level:?} {runs:?}");
        }
    }
}

#[test]
fn floods_on_both_streams_come_through_whole_and_apart() {
    for who in EVERYBODY {
        for level in LEVELS {
            let env = Env::of(who);
            let script = "for i in 1 2 3 4; do head -c 100000 /dev/zero | tr '\\0' o; head -c 100000 /dev/zero | tr '\\0' e >&2; done; echo; echo >&2";
            let mut args = level.to_vec();
            args.extend(["-q", "--", "sh", "-c", script]);
            for run in ["first", "replayed"] {
                let output = env.checkrun(&args).expect(0);
                assert_eq!(output.stdout.len(), 400_001, "{who:?} {run}");
                assert!(output.stdout[..400_000].iter().all(|byte| *byte == b'o'), "{who:?} {run}");
                assert_eq!(
                    output.stderr.iter().filter(|byte| **byte == b'e').count(),
                    400_000,
                    "{who:?} {run}"
                );
            }
        }
    }
}

// claude-code#46120; measured: bwrap and srt answer 1 where the sandbox could not be built
#[test]
fn a_sandbox_that_cannot_be_built_is_no_failing_check() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("f", "").commit();
        let missing = crate::support::probe::policy_like(
            &env,
            "hermetic",
            &[("path = \"/usr\"", "path = \"/usr/none/such\"")],
        );
        let output = env.checkrun(&["--format", "json", "--policy", &missing, "--", "true"]);
        drop(output.refused(&["/usr/none/such", "hint:"]));
    }
}
