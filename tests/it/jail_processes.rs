//! Processes of a check and around it: what may be traced and what not, threads, debuggers, nested sandboxes, and what is
//! inherited from the caller.

use crate::support::probe::{LEVELS, Live, compile, facts};
use crate::support::{EVERYBODY, Env};
use std::os::unix::fs::MetadataExt;

// CVE-2016-8659, CVE-2026-41163 (containers/bubblewrap#107): set-up processes could be traced
#[test]
fn setuid_programs_give_nothing_and_helpers_cannot_be_traced() {
    for who in EVERYBODY {
        for level in LEVELS {
            let env = Env::of(who);
            let body = r#"
status = open("/proc/self/status").read()
for line in status.splitlines():
    name, _, value = line.partition(":")
    if name in ("CapInh", "CapPrm", "CapEff", "CapAmb", "NoNewPrivs", "Seccomp", "TracerPid"): say(name, value.strip())
os.system("cp /usr/bin/id /tmp/suid 2>/dev/null || cp /usr/bin/id $TMPDIR/suid")
say("setuid", tried(os.setuid, 0))
say("setgid", tried(os.setgid, 0))
say("groups", tried(os.setgroups, [0]))
for pid in (1, os.getppid()):
    say(f"seize.{pid}", call("ptrace", 0x4206, pid, 0, 0))
    say(f"attach.{pid}", call("ptrace", 16, pid, 0, 0))
"#;
            let facts = facts(&env, level, body);
            facts.expect("NoNewPrivs", "1").expect("Seccomp", "2").expect("TracerPid", "0");
            for name in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
                facts.expect(name, "0000000000000000");
            }
            facts
                .one_of("setuid", &["EPERM", "EINVAL"])
                .one_of("setgid", &["EPERM", "EINVAL"])
                .expect("groups", "EPERM");
            for (name, got) in facts.starting("seize.").into_iter().chain(facts.starting("attach.")) {
                assert!(["EPERM", "EACCES", "ESRCH"].contains(&got), "{who:?} {level:?} {name} {got}");
            }
        }
    }
}

// From outside: another process of the same user looks at the processes that hold the sandbox.
#[test]
fn the_callers_other_processes_cannot_look_into_the_supervisor() {
    let env = Env::new();
    env.commit();
    let mut live = Live::start(&env, &["--no-cache", "--", "sh", "-c", "echo ready; sleep 30"]);
    assert_eq!(live.line(), "ready");
    let below = live.below();
    assert!(below.len() >= 3, "{below:?}");
    // The first two are the supervisor and the init process.
    for pid in &below[..2] {
        for name in ["environ", "exe", "root", "fd/0"] {
            let file = format!("/proc/{pid}/{name}");
            let mut look = env.as_who("sh");
            look.args(["-c", "if [ -L \"$0\" ]; then readlink \"$0\"; else head -c 1 \"$0\"; fi", &file]);
            let output = look.output().expect("sh");
            assert!(!output.status.success(), "{file}: {output:?}");
        }
        // Files of a process that may not be looked into belong to root (proc(5)).
        assert_eq!(std::fs::metadata(format!("/proc/{pid}/environ")).expect("process").uid(), 0);
    }
}

#[test]
fn descriptors_of_the_caller_end_at_the_door() {
    for who in EVERYBODY {
        for level in LEVELS {
            let env = Env::of(who);
            std::fs::write(env.path("private"), "untold").expect("write");
            let program = "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{n}')))";
            let mut args: Vec<&str> = level.to_vec();
            args.extend(["--", "/usr/bin/python3", "-c", program]);
            let own = env.command(&args);
            let mut shell = env.as_who("sh");
            shell.args(["-c", "exec 5<\"$0\" 9<.; exec \"$@\""]).arg(env.path("private"));
            shell.arg(own.get_program()).args(own.get_args());
            shell.env("CHECKRUN_CACHE_DIR", env.path("cache")).current_dir(env.path("repo"));
            let output = crate::support::run(&mut shell).expect(0);
            assert_eq!(output.out().trim(), "[0, 1, 2]", "{who:?} {level:?}");
        }
    }
}

const LEAK: &str = "#include <stdlib.h>\nint main(void) { void *volatile lost = malloc(123); lost = 0; return lost != 0; }\n";

// google/sanitizers#764, containers/bubblewrap#511, travis-ci/travis-ci#9033
#[test]
fn debuggers_and_leak_checkers_work_on_their_own_children() {
    for who in EVERYBODY {
        let env = Env::of(who);
        compile(&env, "gcc", "leak", &["-fsanitize=leak", "-g", "-O0"], LEAK);
        compile(
            &env,
            "gcc",
            "plain",
            &["-g", "-O0"],
            "int twice(int n) { return 2 * n; }\nint main(void) { return twice(3); }\n",
        );
        env.commit();
        let leak = env.checkrun(&["--", "./leak"]).expect(23);
        assert!(leak.err().contains("LeakSanitizer: detected memory leaks"), "{}", leak.err());
        let strace = env.checkrun(&["--", "strace", "-f", "-e", "trace=execve", "./plain"]).expect(6);
        assert!(strace.err().contains("execve(\"./plain\""), "{}", strace.err());
        let gdb = env
            .checkrun(&[
                "--",
                "gdb",
                "-batch",
                "-nx",
                "-ex",
                "break twice",
                "-ex",
                "run",
                "-ex",
                "print n",
                "-ex",
                "continue",
                "./plain",
            ])
            .expect(0);
        assert!(
            gdb.out().contains("$1 = 3") && gdb.out().contains("exited with code 06"),
            "{}\n{}",
            gdb.out(),
            gdb.err()
        );
    }
}

const THREADS: &str = r#"
#include <pthread.h>
#include <stdio.h>
static void *run(void *given) { return given; }
int main(void) {
    for (long i = 0; i < 64; i++) {
        pthread_t thread; void *got;
        if (pthread_create(&thread, 0, run, (void *)i) || pthread_join(thread, &got) || (long)got != i) return 1;
    }
    puts("threads ok");
    return 0;
}
"#;

// moby/moby#42680, containers/crun#546, bytecodealliance/cap-std#147, nestybox/sysbox#273
#[test]
fn new_system_calls_work_and_unknown_ones_are_said_not_to_be_there() {
    for who in EVERYBODY {
        for level in LEVELS {
            let env = Env::of(who);
            compile(&env, "gcc", "threads", &["-pthread"], THREADS);
            env.commit();
            let mut args = level.to_vec();
            args.extend(["--", "./threads"]);
            assert_eq!(env.checkrun(&args).expect(0).out(), "threads ok\n");
            let body = r#"
here = ctypes.create_string_buffer(b".")
how = ctypes.create_string_buffer(struct.pack("QQQ", os.O_PATH, 0, 8))
say("openat2", call("openat2", -100, here, how, 24))
say("faccessat2", call("faccessat2", -100, here, os.R_OK, 0x200))
say("clone3", call("clone3", None, 0))
say("unknown", call("unknown", 0))
say("userfaultfd", call("userfaultfd", 1))
say("bpf", call("bpf", 5, None, 0))
"#;
            let facts = facts(&env, level, body);
            facts
                .expect("openat2", "ok")
                .expect("faccessat2", "ok")
                .expect("clone3", if level.is_empty() { "ENOSYS" } else { "EINVAL" })
                .expect("unknown", "ENOSYS");
            facts.expect("userfaultfd", "ENOSYS").expect("bpf", "EPERM");
        }
    }
}

// microsoft/playwright#3106, containers/bubblewrap#164, bazelbuild/bazel#20753
#[test]
fn nested_sandboxes_are_there_by_default_and_may_mount_under_the_policy_for_it() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("checkrun", std::fs::read(crate::support::program()).expect("program"))
            .executable("checkrun");
        env.write("tree/f", "inner\n").commit();
        // What a browser makes: user, process and network namespaces, no mounts.
        drop(env.checkrun(&["--", "unshare", "-Urpfn", "true"]).expect(0));
        let inside = "export CHECKRUN_CACHE_DIR=/tmp/c; ./checkrun --clock host --dir tree -- cat f";
        let refused = env.checkrun(&["--", "sh", "-c", inside]).expect(125);
        assert!(refused.err().contains("mounting is refused"), "{}", refused.err());
        assert!(refused.err().contains("`--policy nested`"), "{}", refused.err());
        let bubble = [
            "bwrap",
            "--unshare-all",
            "--ro-bind",
            "/",
            "/",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "cat",
            "tree/f",
        ];
        let mut args = vec!["--policy", "nested", "--"];
        args.extend(bubble);
        assert_eq!(env.checkrun(&args).expect(0).out(), "inner\n");
        let nested = env.checkrun(&["--policy", "nested", "--", "sh", "-c", inside]).expect(0);
        assert_eq!(nested.out(), "inner\n", "{}", nested.err());
    }
}
