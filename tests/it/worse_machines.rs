//! Machines that lack something: a run is refused with what is missing by name, or is had without and says so; never
//! is a command run unsandboxed. Terminals of the caller, too, since how a machine treats them is its own choice.

use crate::support::probe::{Refusal, container_filter, probe, worse};
use crate::support::{EVERYBODY, Env, Who, program, run};
use std::process::Command;

const NEWTIME: u32 = 0x80;

// containers/bubblewrap#505, #284; openai/codex#6224, #15434, #23468
#[test]
fn in_a_container_the_full_level_is_refused_with_the_cause_and_the_other_works() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("f", "told\n").commit();
        let output = worse(&env, &container_filter(), &["--", "sh", "-c", "echo ran"]);
        drop(output.refused(&["user (", "seccomp profile", "hint:", "--policy landlock"]));
        let args = ["--format", "json", "--policy", "landlock", "--", "sh", "-c", "cat f; ls /root"];
        let result = worse(&env, &container_filter(), &args).expect(2).json();
        assert_eq!((&result["sandbox"]["level"], &result["outcome"]), (&"landlock".into(), &"failed".into()));
        assert!(result["tail"].as_str().expect("text").starts_with("told\n"), "{result}");
        let doctor = worse(&env, &container_filter(), &["doctor"]).expect(1);
        let told = doctor.out().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains("seccomp profile"), "{told}");
        // What a person gets is on one screen, with the line that mends it, and what there is was tried.
        assert!(told.contains("mend docker run --security-opt seccomp=unconfined"), "{told}");
        assert!(told.contains("isolation a check tried: reaching out refused"), "{told}");
        assert!(doctor.out().lines().count() <= 24 && doctor.out().lines().all(|line| line.len() <= 80));
    }
}

// containers/bubblewrap#632, anthropic-experimental/sandbox-runtime#74, google/nsjail#236, NVIDIA/OpenShell#1895
#[test]
fn what_stands_in_the_way_is_told_with_its_remedy() {
    let cases: [(&[Refusal], &[&str]); 3] = [
        (&[(libc::SYS_unshare, libc::ENOSPC, 0)], &["user (", "sysctl user.max_user_namespaces"]),
        // The namespace is made, and its powers are taken away.
        (&[(libc::SYS_fsopen, libc::EPERM, 0)], &["mount (", "can be made but not used"]),
        (&[(libc::SYS_landlock_create_ruleset, libc::EOPNOTSUPP, 0)], &["landlock (", "`lsm=`"]),
    ];
    for who in EVERYBODY {
        for (rules, parts) in cases {
            let output = worse(&Env::of(who), rules, &["--", "sh", "-c", "echo ran"]);
            drop(output.refused(parts));
        }
    }
}

// anthropics/claude-code#12515, #84563, #46120, #79316; NixOS/nix sandbox-fallback
#[test]
fn with_any_piece_missing_nothing_is_run_unsandboxed() {
    let calls = [
        libc::SYS_unshare,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_move_mount,
        libc::SYS_open_tree,
        libc::SYS_mount_setattr,
        libc::SYS_pivot_root,
        libc::SYS_umount2,
        libc::SYS_sethostname,
        libc::SYS_landlock_create_ruleset,
        libc::SYS_landlock_add_rule,
        libc::SYS_landlock_restrict_self,
        libc::SYS_seccomp,
        libc::SYS_capset,
        libc::SYS_close_range,
        libc::SYS_pidfd_open,
        libc::SYS_setsid,
        libc::SYS_signalfd4,
    ];
    for who in EVERYBODY {
        // Refused in one case, not there in the other: what a call says must make no difference.
        let error = if who == Who::Root { libc::ENOSYS } else { libc::EPERM };
        for call in calls {
            let env = Env::of(who);
            let output = worse(&env, &[(call, error, 0)], &["--", "sh", "-c", "echo ran"]);
            assert_eq!(
                (output.status, output.out().as_str()),
                (125, ""),
                "{who:?} call {call}: {}",
                output.err()
            );
            assert!(output.err().starts_with("checkrun: error: "), "call {call}: {}", output.err());
            drop(
                env.checkrun(&["--cached-only", "--", "sh", "-c", "echo ran"])
                    .refused(&["no earlier result"]),
            );
        }
    }
}

#[test]
fn at_the_other_level_nothing_is_run_unsandboxed_either() {
    let calls = [
        libc::SYS_landlock_create_ruleset,
        libc::SYS_landlock_add_rule,
        libc::SYS_landlock_restrict_self,
        libc::SYS_seccomp,
        libc::SYS_close_range,
        libc::SYS_pidfd_open,
    ];
    for who in EVERYBODY {
        for call in calls {
            let rules = [(call, libc::ENOSYS, 0)];
            let output =
                worse(&Env::of(who), &rules, &["--policy", "landlock", "--", "sh", "-c", "echo ran"]);
            assert_eq!(
                (output.status, output.out().as_str()),
                (125, ""),
                "{who:?} call {call}: {}",
                output.err()
            );
        }
    }
}

#[test]
fn a_layer_that_is_only_preferred_is_done_without_and_the_record_says_so() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let rules = [(libc::SYS_unshare, libc::EINVAL, NEWTIME)];
        let result = worse(&env, &rules, &["--format", "json", "--", "true"]).expect(0).json();
        let time = result["sandbox"]["layers"]["time"].as_str().expect("text");
        assert!(time.starts_with("unavailable: "), "{result}");
        drop(worse(&env, &rules, &["--policy", "strict", "--", "true"]).refused(&["time ("]));
        // A machine that has it is another machine: nothing answers from there.
        drop(env.checkrun(&["--cached-only", "--", "true"]).refused(&["no earlier result"]));
    }
}

#[test]
fn a_remedy_is_seen_without_being_asked_for() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let refused = [(libc::SYS_unshare, libc::ENOSPC, 0)];
        // A filter again, so that nothing but the refusal differs.
        let harmless = [(libc::SYS_acct, libc::EPERM, 0)];
        drop(worse(&env, &refused, &["--", "true"]).refused(&["user ("]));
        drop(worse(&env, &harmless, &["--", "true"]).expect(0));
        let worse_again = worse(&env, &refused, &["--no-cache", "--", "sh", "-c", "echo ran"]);
        drop(worse_again.refused(&["hint:"]));
    }
}

/// Lets the program see another Landlock: its version is what FAKE_ABI says, and what that version does not know is
/// refused as the kernel would.
const OTHER_LANDLOCK: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
static long kernel(long n, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    if (result < 0 && result > -4096) { errno = -result; return -1; }
    return result;
}
long syscall(long n, ...) {
    va_list list;
    long a[6];
    va_start(list, n);
    for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    const char *fake = getenv("FAKE_ABI");
    if (n == SYS_landlock_create_ruleset && fake) {
        int abi = atoi(fake);
        if (a[2] & 1) return abi;
        unsigned long long attributes[3] = {0};
        memcpy(attributes, (void *)a[0], a[1] < 24 ? a[1] : 24);
        unsigned long long known = abi >= 5 ? 0xffff : abi >= 3 ? 0x7fff : abi == 2 ? 0x3fff : 0x1fff;
        if ((attributes[0] & ~known) || (abi < 4 && attributes[1]) || (abi < 6 && attributes[2])) { errno = EINVAL; return -1; }
    }
    return kernel(n, a[0], a[1], a[2], a[3], a[4], a[5]);
}
"#;

// openai/codex#8217, #6828: a rights table older or newer than the kernel's
#[test]
fn every_version_of_landlock_is_used_for_what_it_has() {
    for who in EVERYBODY {
        let source = Env::of(who);
        std::fs::write(source.path("other.c"), OTHER_LANDLOCK).expect("write");
        let library = source.path("other.so");
        let mut gcc = Command::new("gcc");
        gcc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source.path("other.c"));
        drop(run(&mut gcc).expect(0));
        for (abi, lost) in [
            ("0", None),
            ("1", Some("renames across folders")),
            ("2", Some("truncation")),
            ("3", Some("device ioctls")),
            ("4", Some("device ioctls")),
            ("5", Some("abstract sockets and signals")),
            ("6", Some("")),
            ("7", Some("")),
            ("9", Some("")),
            ("20", Some("")),
        ] {
            for policy in ["hermetic", "landlock"] {
                let env = Env::of(who).var("LD_PRELOAD", &library).var("FAKE_ABI", abi);
                let args = [
                    "--format",
                    "json",
                    "--policy",
                    policy,
                    "--",
                    "sh",
                    "-c",
                    "ls /root; echo x > f && cat f",
                ];
                let output = env.checkrun(&args);
                let Some(lost) = lost else {
                    drop(output.refused(&["landlock ("]));
                    continue;
                };
                let result = output.expect(0).json();
                let state = result["sandbox"]["layers"]["landlock"].as_str().expect("text");
                if lost.is_empty() {
                    assert_eq!(state, "enforced", "{abi}");
                } else {
                    assert!(
                        state.starts_with(&format!("partial: ABI {abi} lacks ")) && state.contains(lost),
                        "{state}"
                    );
                }
            }
        }
    }
}

/// Runs its arguments on a terminal of their own, then tells what was typed into it meanwhile.
const ON_A_TERMINAL: &str = r#"
import os, pty, select, subprocess, sys, tty
pid, fd = pty.fork()
if pid == 0:
    tty.setraw(0)
    status = subprocess.call(sys.argv[1:])
    ready = select.select([0], [], [], 0.3)[0]
    print("typed", os.read(0, 99) if ready else b"", "status", status, flush=True)
    os._exit(0)
text = b""
while True:
    try: more = os.read(fd, 9999)
    except OSError: break
    if not more: break
    text += more
os.waitpid(pid, 0)
sys.stdout.write(text.decode())
"#;

// CVE-2017-5226 (containers/bubblewrap#142, #555, landlock-lsm/linux#5), CVE-2023-28100
#[test]
fn nothing_can_be_typed_into_the_callers_terminal() {
    for who in EVERYBODY {
        for level in crate::support::probe::LEVELS {
            let env = Env::of(who);
            let body = r#"
PUSH, CONSOLE = 0x5412, 0x541c
letter, paste = ctypes.create_string_buffer(b"x"), ctypes.create_string_buffer(b"\x03x")
say("tty", opened("/dev/tty", os.O_RDWR))
ours, theirs = os.openpty()
for fd in (0, 1, 2, ours, theirs):
    for high in (0, 1 << 32, 0xdead << 32):
        say(f"push.{fd}.{high}", call("ioctl", fd, PUSH | high, letter))
        say(f"paste.{fd}.{high}", call("ioctl", fd, CONSOLE | high, paste))
say("terminals", [os.isatty(fd) for fd in (0, 1, 2)])
"#;
            let mut args = level.to_vec();
            let body = probe(body);
            args.extend(["--", "/usr/bin/python3", "-c", &body]);
            let own = env.command(&args);
            let mut command = env.as_who("/usr/bin/python3");
            command.args(["-c", ON_A_TERMINAL]).arg(program()).args(own.get_args());
            command.env("CHECKRUN_CACHE_DIR", env.path("cache")).current_dir(env.path("repo"));
            let text = run(&mut command).expect(0).out().replace('\r', "");
            assert!(text.contains("typed b'' status 0"), "{who:?} {level:?}\n{text}");
            assert!(text.contains("tty ENXIO"), "{text}");
            assert!(text.contains("terminals [False, False, False]"), "{text}");
            let pushed: Vec<&str> =
                text.lines().filter(|line| line.starts_with("push.") || line.starts_with("paste.")).collect();
            assert!(pushed.len() == 30 && pushed.iter().all(|line| line.ends_with(" EPERM")), "{text}");
        }
    }
}

// What is put together hangs above the machine's own /tmp while it is built, so that all of it goes in one step.
#[test]
fn a_machine_may_be_without_a_folder_for_temporary_files() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("f", "told\n").commit();
        let (place, binary) = (env.path(""), program());
        let mut command = env.as_who("bwrap");
        if who == Who::Root {
            command.args(["--cap-add", "ALL"]);
        }
        for (option, from, to) in [
            ("--ro-bind", "/usr", "/usr"),
            ("--ro-bind", "/etc", "/etc"),
            ("--symlink", "usr/bin", "/bin"),
            ("--symlink", "usr/lib", "/lib"),
            ("--symlink", "usr/lib64", "/lib64"),
            ("--dev-bind", "/dev", "/dev"),
            ("--dev-bind", "/proc", "/proc"),
        ] {
            command.args([option, from, to]);
        }
        command.arg("--bind").arg(&place).args(["/place", "--ro-bind"]).arg(binary);
        command.args(["/checkrun", "--setenv", "HOME", "/place/home", "--setenv", "TMPDIR", "/place"]);
        command.args(["--setenv", "CHECKRUN_CACHE_DIR", "/place/cache", "--chdir", "/place/repo", "--"]);
        command.args([
            "sh",
            "-c",
            "! [ -e /tmp ] || exit 9; exec /checkrun --refresh -- sh -c 'cat f; ls -d /tmp'",
        ]);
        // Its processes get in one another's way at some moments only.
        for _ in 0..5 {
            let output = run(&mut command).expect(0);
            assert_eq!(output.out(), "told\n/tmp\n");
        }
    }
}

// Its init process ends while the supervisor still builds what it would have entered.
#[test]
fn what_fails_early_in_the_sandbox_is_told_by_its_name() {
    let netlink = u32::try_from(libc::AF_NETLINK).expect("a small number");
    for who in EVERYBODY {
        let env = Env::of(who);
        let args = ["--no-cache", "--vary", "network=ipv4", "--", "echo", "ran"];
        drop(env.checkrun(&args).expect(0));
        for _ in 0..5 {
            let output = worse(&env, &[(libc::SYS_socket, libc::EPERM, netlink)], &args);
            drop(output.refused(&["bring loopback up"]));
        }
    }
}
