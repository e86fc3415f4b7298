//! Level `landlock`: what holds without namespaces, and that the record says which level it was. What holds at both
//! levels alike is tested beside the full level.

use crate::support::probe::{Live, facts, policy_like};
use crate::support::{EVERYBODY, Env, Who};
use std::os::unix::fs::PermissionsExt;

const LANDLOCK: [&str; 2] = ["--policy", "landlock"];

#[test]
fn files_outside_can_neither_be_read_nor_written() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("f", "x").commit();
        for (name, text) in [("home/secret", "untold"), ("open", "untold")] {
            std::fs::write(env.path(name), text).expect("write");
            std::fs::set_permissions(env.path(name), std::fs::Permissions::from_mode(0o666)).expect("chmod");
        }
        let body = format!(
            r#"
outside = {:?}
for name in ("home/secret", "open", "repo/f", "repo/.git/HEAD", "cache/store.sqlite", "home", "repo", "cache", "cache/runs", "."):
    path = outside + "/" + name
    say("read." + name, opened(path, os.O_RDONLY))
    say("write." + name, opened(path, os.O_WRONLY))
for name in ("new", "repo/new", "home/new", "cache/new"): say("make." + name, opened(outside + "/" + name, os.O_WRONLY | os.O_CREAT))
say("make.tmp", opened("/tmp/checkrun-was-here", os.O_WRONLY | os.O_CREAT)); say("make.shm", opened("/dev/shm/checkrun-was-here", os.O_WRONLY | os.O_CREAT))
say("remove.f", tried(os.remove, outside + "/repo/f")); say("remove.link", tried(os.link, outside + "/open", "linked"))
say("remove.into", tried(os.rename, outside + "/open", "taken")); say("remove.out", tried(os.rename, "f", outside + "/f"))
for name in ("/root", "/home", "/tmp", "/var", "/dev/shm", "/etc/shadow", "/run"): say("read." + name, opened(name, os.O_RDONLY))
say("own", opened("f", os.O_RDWR)); say("program", opened("/usr/bin/env", os.O_RDONLY))
"#,
            env.path("").to_str().expect("UTF-8").trim_end_matches('/')
        );
        let facts = facts(&env, &LANDLOCK, &body);
        facts.expect("own", "ok").expect("program", "ok");
        for start in ["read.", "write.", "make.", "remove."] {
            for (name, got) in facts.starting(start) {
                assert!(
                    ["EACCES", "EXDEV", "EISDIR", "ENOENT", "EPERM"].contains(&got),
                    "{who:?} {name} {got}"
                );
            }
        }
        assert_eq!(std::fs::read_to_string(env.path("open")).expect("read"), "untold");
    }
}

// landlock-lsm/linux#54: TCP rules are passed by Multipath TCP, and UDP is not covered
#[test]
fn no_internet_socket_of_any_kind_is_to_be_had() {
    for who in EVERYBODY {
        let body = r#"
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET):
    for kind, protocol in ((1, 0), (1, 6), (1, 262), (1, 132), (2, 0), (2, 17), (3, 1), (5, 132), (2 | 0o2000000, 0)):
        say(f"{int(family)}.{kind}.{protocol}", call("socket", int(family), kind, protocol))
a, b = socket.socketpair(); a.send(b"x"); say("unix", b.recv(1))
server = socket.socket(socket.AF_UNIX); server.bind("own.sock"); server.listen(); client = socket.socket(socket.AF_UNIX)
say("path", tried(client.connect, "own.sock"))
"#;
        let facts = facts(&Env::of(who), &LANDLOCK, body);
        for family in ["2.", "10.", "16.", "17."] {
            for (name, got) in facts.starting(family) {
                assert_eq!(got, "EAFNOSUPPORT", "{who:?} {name}");
            }
        }
        facts.expect("unix", "b'x'").expect("path", "ok");
    }
}

#[test]
fn processes_outside_get_no_signal_and_cannot_be_looked_into() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let mut other = env.as_who("sleep").arg("600").spawn().expect("sleep");
        let body = format!(
            "pid = {}\nsay('signal', tried(os.kill, pid, 9))\nsay('none', tried(os.kill, pid, 0))\n\
             say('all', tried(os.kill, -1, 0))\nsay('trace', call('ptrace', 0x4206, pid, 0, 0))\n\
             say('environ', opened(f'/proc/{{pid}}/environ', 0))\nsay('fd', opened(f'/proc/{{pid}}/fd/0', 0))\n\
             say('parent', tried(os.kill, os.getppid(), 9))",
            other.id()
        );
        let facts = facts(&env, &LANDLOCK, &body);
        other.kill().expect("kill");
        let ended = other.wait().expect("wait");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(9));
        for name in ["signal", "none", "trace", "parent"] {
            facts.expect(name, "EPERM");
        }
        facts.one_of("environ", &["EACCES", "EPERM"]).one_of("fd", &["EACCES", "EPERM"]);
    }
}

// Zouuup/landrun#48, nolabs-ai/nono#1396: a second ruleset takes the right to rename across folders away
#[test]
fn a_program_may_stack_a_ruleset_of_its_own() {
    for who in EVERYBODY {
        for level in [&[][..], &LANDLOCK] {
            let env = Env::of(who);
            env.write("a/f", "x").write("b/g", "x").commit();
            let restrict = libc::SYS_landlock_restrict_self;
            let add = libc::SYS_landlock_add_rule;
            let body = format!(
                r#"
NR["add"], NR["restrict"] = {add}, {restrict}
def stack(handled):
    ruleset = LIBC.syscall(ctypes.c_long(NR["landlock_create_ruleset"]), ctypes.create_string_buffer(struct.pack("Q", handled)), ctypes.c_long(8), ctypes.c_long(0))
    here = os.open(".", os.O_PATH)
    rule = ctypes.create_string_buffer(struct.pack("=Qi", handled, here))
    return call("add", ruleset, 1, rule, 0) + " " + call("restrict", ruleset, 0)
say("with", stack(0x3fff)); say("rename", tried(os.rename, "a/f", "b/f"))
say("without", stack(0x1fff)); say("denied", tried(os.rename, "b/f", "a/f"))
"#
            );
            let facts = facts(&env, level, &body);
            facts
                .expect("with", "ok ok")
                .expect("rename", "ok")
                .expect("without", "ok ok")
                .expect("denied", "EXDEV");
        }
    }
}

#[test]
fn the_record_says_which_level_it_was_and_never_answers_for_the_other() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("f", "x").commit();
        let command = ["--", "sh", "-c", "echo ran"];
        let mut args = vec!["--format", "json", "--policy", "landlock"];
        args.extend(command);
        let result = env.checkrun(&args).expect(0).json();
        assert_eq!(result["sandbox"]["level"], "landlock");
        let layers = &result["sandbox"]["layers"];
        for layer in ["user", "mount", "pid", "net"] {
            assert_eq!(layers[layer], "off", "{layers}");
        }
        assert_eq!((&layers["landlock"], &layers["seccomp"]), (&"enforced".into(), &"enforced".into()));
        for layer in ["clock", "disk"] {
            assert!(layers[layer].as_str().expect("text").starts_with("unavailable: "), "{layers}");
        }
        let mut full = vec!["--cached-only"];
        full.extend(command);
        drop(env.checkrun(&full).refused(&["no earlier result"]));
        let again = env.checkrun(&args).expect(0).json();
        assert_eq!(again["cache"], "hit");
        // The folder of the run is gone.
        assert_eq!(std::fs::read_dir(env.path("cache/runs")).expect("ls").count(), 0);
    }
}

#[test]
fn limits_hold_for_root_and_are_refused_where_they_cannot() {
    let root = Env::of(Who::Root);
    let greedy = "x = []\nwhile True: x.append(bytearray(1 << 20))";
    let args = [
        "--format",
        "json",
        "--policy",
        "landlock",
        "--memory",
        "48MiB",
        "--timeout",
        "50s",
        "--",
        "/usr/bin/python3",
        "-c",
        greedy,
    ];
    let result = root.checkrun(&args).expect(137).json();
    assert_eq!(result["outcome"], "out_of_memory", "{result}");
    for who in EVERYBODY {
        let env = Env::of(who);
        let args = ["--policy", "landlock", "--disk", "1MiB", "--", "true"];
        drop(env.checkrun(&args).refused(&["disk", "leave that limit out"]));
    }
    let user = Env::of(Who::User);
    drop(user.checkrun(&["--policy", "landlock", "--pids", "50", "--", "true"]).refused(&["pids", "hint:"]));
    let late = ["--format", "json", "--policy", "landlock", "--timeout", "300ms", "--", "sleep", "60"];
    assert_eq!(user.checkrun(&late).expect(124).json()["outcome"], "timed_out");
    let loud = ["--format", "json", "--policy", "landlock", "--output-limit", "9KiB", "--", "yes"];
    assert_eq!(user.checkrun(&loud).expect(137).json()["outcome"], "output_limit");
}

// NVIDIA/OpenShell#584, #803, #810: a path could not be opened, and the rules quietly shrank to nothing
#[test]
fn a_path_that_cannot_be_opened_is_an_error_and_not_a_smaller_ruleset() {
    for who in EVERYBODY {
        for level in ["landlock", "hermetic"] {
            let env = Env::of(who);
            let folder = env.path("closed");
            std::fs::create_dir(&folder).expect("mkdir");
            std::fs::write(folder.join("tool"), "x").expect("write");
            let entry = format!(
                "[[visible]]\npath = \"{}\"\nwhy = \"a tool\"\n\n[[visible]]\npath = \"/usr\"",
                folder.join("tool").display()
            );
            let policy = policy_like(&env, level, &[("[[visible]]\npath = \"/usr\"", &entry)]);
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).expect("chmod");
            let output = env.checkrun(&[
                "--policy",
                &policy,
                "--",
                "cat",
                folder.join("tool").to_str().expect("UTF-8"),
            ]);
            if who == Who::Root && level == "hermetic" {
                // Opened before root is given up.
                assert_eq!(output.expect(0).out(), "x");
            } else {
                drop(output.refused(&["closed/tool"]));
            }
        }
    }
}

#[test]
fn the_parts_of_a_run_are_found_beneath_its_own_folder() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("d/f", "x").commit();
        let body = "say('home', os.path.dirname(os.environ['HOME']) == os.path.dirname(os.getcwd().removesuffix('/d')))\n\
                    say('tmp', tempfile.gettempdir() == os.environ['TMPDIR'])\nsay('file', open('f').read())\n\
                    say('uid', os.getuid() != 0)";
        let mut options = LANDLOCK.to_vec();
        options.extend(["--cwd", "d"]);
        facts(&env, &options, body)
            .expect("home", "True")
            .expect("tmp", "True")
            .expect("file", "x")
            .expect("uid", "True");
        let mut live = Live::start(
            &env,
            &["--no-cache", "--policy", "landlock", "--", "sh", "-c", "echo $HOME; sleep 30"],
        );
        let home = live.line();
        assert!(std::path::Path::new(&home).is_dir());
        live.signal(libc::SIGTERM);
        assert_eq!(live.end().0, 143);
        assert!(!std::path::Path::new(&home).exists());
    }
}
