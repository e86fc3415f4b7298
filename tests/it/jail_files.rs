//! Nothing gets out by way of files, mounts or links, and nothing of the caller's is changed.

use crate::support::probe::{LEVELS, Live, bearing, facts, in_own_mounts, marker, policy_like, probe, until};
use crate::support::{EVERYBODY, Env};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Every file below a folder with what is to stay: kind and mode, content or target, time of change.
fn picture(folder: &Path) -> Vec<String> {
    let output =
        Command::new("find").arg(folder).args(["-printf", "%P %y %m %l %T@ %s\n"]).output().expect("find");
    let mut lines: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    let output = Command::new("sh")
        .args(["-c", "find \"$0\" -type f -exec sha256sum {} +"])
        .arg(folder)
        .output()
        .expect("sha256sum");
    lines.extend(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned));
    lines.sort();
    lines
}

// CVE-2019-5736 (opencontainers/runc, containers/bubblewrap#313)
#[test]
fn no_helper_can_be_overwritten_through_proc() {
    for who in EVERYBODY {
        for level in LEVELS {
            let env = Env::of(who);
            let body = r#"
for pid in [name for name in os.listdir("/proc") if name.isdigit()]:
    if int(pid) == os.getpid(): continue
    for name in ("exe", "mem", "cwd", "root", "environ", "maps", "fd/1"):
        for flags, how in ((os.O_WRONLY, "w"), (os.O_RDONLY, "r")):
            if opened(f"/proc/{pid}/{name}", flags) == "ok" and (how == "w" or name != "maps"):
                say("opened", f"{pid} {name} {how} {open(f'/proc/{pid}/comm').read()}")
say("own", opened("/proc/self/exe", os.O_WRONLY))
say("others", tried(os.kill, os.getppid(), 0))
"#;
            let output = env.python(level, &probe(body)).expect(0);
            assert!(!output.out().contains("opened"), "{who:?} {level:?}\n{}", output.out());
            assert!(
                output.out().contains("own EACCES") || output.out().contains("own ETXTBSY"),
                "{}",
                output.out()
            );
            drop(env.checkrun(&["--version"]).expect(0));
        }
    }
}

// CVE-2026-87766, GHSA-pxhw-h44j-8pfx (flatcar/Flatcar#2417): mount points were made through links of the tree
#[test]
fn a_link_in_the_tree_leads_nowhere_on_the_host() {
    for who in EVERYBODY {
        for level in LEVELS {
            let env = Env::of(who);
            let outside = env.path("outside");
            std::fs::create_dir(&outside).expect("mkdir");
            std::fs::set_permissions(&outside, std::fs::Permissions::from_mode(0o777)).expect("chmod");
            let secret = outside.join("secret");
            std::fs::write(&secret, "untold\n").expect("write");
            for (name, target) in [
                ("out", outside.to_str().expect("UTF-8")),
                ("up", "../../.."),
                ("old", "/oldroot"),
                ("root", "/"),
            ] {
                symlink(target, env.repo(name)).expect("symlink");
            }
            env.commit();
            let script = format!(
                "cat out/secret root{0}/secret up{0}/secret; echo x > out/new; mkdir out/d; ls /oldroot",
                outside.display()
            );
            let mut args = level.to_vec();
            args.extend(["--", "sh", "-c", &script]);
            let output = env.checkrun(&args);
            assert!(!output.out().contains("untold"), "{output:?}");
            let left: Vec<_> =
                std::fs::read_dir(&outside).expect("ls").flatten().map(|it| it.file_name()).collect();
            assert_eq!(left, ["secret"], "{who:?} {level:?}");
        }
    }
}

#[test]
fn a_folder_to_start_in_is_not_looked_for_behind_a_link() {
    let env = Env::new();
    symlink("/usr", env.repo("out")).expect("symlink");
    env.write("d/f", "").commit();
    drop(env.checkrun(&["--cwd", "out", "--", "true"]).refused(&["no folder `out`"]));
    drop(env.checkrun(&["--cwd", "out/bin", "--", "true"]).refused(&["no folder `out/bin`"]));
    drop(env.checkrun(&["--cwd", "../..", "--", "true"]).refused(&["leads out of the tree"]));
    drop(env.checkrun(&["--cwd", "d", "--", "pwd"]).expect(0));
}

// The same, by a tree object that no git would write: one name, first a link, then a folder.
#[test]
fn a_forged_tree_writes_nothing_outside() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let outside = env.path("outside");
        std::fs::create_dir(&outside).expect("mkdir");
        std::fs::set_permissions(&outside, std::fs::Permissions::from_mode(0o777)).expect("chmod");
        env.write("target", outside.to_str().expect("UTF-8")).write("d/planted", "x").commit();
        let link = env.git(&["hash-object", "-w", "target"]);
        let folder = env.git(&["rev-parse", "HEAD:d"]);
        for (first, second) in
            [(("120000", &link), ("40000", &folder)), (("40000", &folder), ("120000", &link))]
        {
            let mut bytes = Vec::new();
            for (mode, id) in [first, second] {
                bytes.extend(format!("{mode} out\0").bytes());
                bytes.extend(
                    (0..id.len()).step_by(2).map(|at| u8::from_str_radix(&id[at..at + 2], 16).expect("hex")),
                );
            }
            env.write("forged", &bytes);
            let tree = env.git(&["hash-object", "-w", "-t", "tree", "--literally", "forged"]);
            let output = env.checkrun(&["--tree", &tree, "--", "sh", "-c", "ls -R ."]);
            assert_eq!(std::fs::read_dir(&outside).expect("ls").count(), 0, "{output:?}");
        }
    }
}

// CVE-2024-42472 (flatpak/flatpak#5922), CVE-2021-30465: a path checked, then swapped, then used
#[test]
fn a_folder_swapped_for_a_link_meanwhile_shows_nothing_else() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let outside = env.path("outside");
        std::fs::create_dir(&outside).expect("mkdir");
        std::fs::write(outside.join("f"), "untold\n").expect("write");
        env.write("d/f", "told\n").write("e", "x").commit();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (here, aside) = (env.repo("d"), env.path("aside"));
                while !done.load(Ordering::Relaxed) {
                    std::fs::rename(&here, &aside).expect("rename");
                    symlink(&outside, &here).expect("symlink");
                    std::fs::remove_file(&here).expect("remove");
                    std::fs::rename(&aside, &here).expect("rename");
                }
            });
            let mut told = 0;
            for _ in 0..20 {
                let output = env.checkrun(&["--no-cache", "--", "sh", "-c", "cat d/f; true"]);
                let text = output.out() + &output.err();
                if text.contains("untold") {
                    done.store(true, Ordering::Relaxed);
                    panic!("{who:?}: {text}");
                }
                told += usize::from(output.status == 0);
            }
            done.store(true, Ordering::Relaxed);
            assert!(told > 0, "not one of the runs came about");
        });
    }
}

// CVE-2025-31133, CVE-2025-52565 (opencontainers/runc), CVE-2026-47766 (crun)
#[test]
fn devices_are_the_machines_own_whatever_the_tree_holds() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("dev/null", "not a device").write("proc/self", "").write("etc/passwd", "");
        symlink("/proc/sys/kernel/core_pattern", env.repo("dev/zero")).expect("symlink");
        env.commit();
        let body = r#"
for name in ("null", "zero", "full", "random", "urandom", "tty"):
    node = os.lstat("/dev/" + name)
    say("dev." + name, f"{stat.S_ISCHR(node.st_mode)} {os.major(node.st_rdev)}:{os.minor(node.st_rdev)}")
"#;
        let facts = facts(&env, &[], body);
        for (name, number) in [
            ("null", "1:3"),
            ("zero", "1:5"),
            ("full", "1:7"),
            ("random", "1:8"),
            ("urandom", "1:9"),
            ("tty", "5:0"),
        ] {
            facts.expect(&format!("dev.{name}"), &format!("True {number}"));
        }
    }
}

#[test]
fn a_machine_whose_null_device_is_none_is_refused() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let fake = env.path("fake");
        std::fs::write(&fake, "").expect("write");
        std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o666)).expect("chmod");
        let setup = format!("mount --bind {} /dev/zero", fake.display());
        drop(in_own_mounts(&env, &setup, &["--", "true"]).refused(&["/dev/zero"]));
    }
}

// A program of root's that copies a file's mode to where it writes leaves such a device behind (`cp -a FILE /dev/null`), and
// then nobody else can throw anything away.
#[test]
fn a_machine_whose_null_device_only_root_may_write_to_is_refused() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let closed = env.path("closed");
        let setup = format!("mknod -m 644 {0} c 1 3 && mount --bind {0} /dev/null", closed.display());
        let output = in_own_mounts(&env, &setup, &["--", "true"]);
        drop(output.refused(&["/dev/null", "ermission denied"]));
    }
}

// measured in bwrap, hakoniwa and srt: the machine's root could write /proc/sys/kernel/core_pattern from inside
#[test]
fn no_setting_of_the_machine_can_be_written() {
    for who in EVERYBODY {
        for level in LEVELS {
            let env = Env::of(who);
            let body = r#"
tried = 0
for top in ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/acpi", "/proc/mtrr", "/proc/scsi",
            "/proc/fs", "/sys", "/proc/kcore", "/proc/kmsg", "/proc/timer_list", "/proc/pressure"):
    names = [top] + [os.path.join(at, name) for at, _, files in os.walk(top) for name in files]
    for name in names:
        if os.path.isdir(name) or not os.path.exists(name): continue
        tried += 1
        # Everybody may open these four (mode 0666); the first takes no value without a capability, the others are
        # asked through a descriptor for news of the machine's load.
        known = ("/proc/sys/kernel/ns_last_pid", "/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory")
        if name not in known and opened(name, os.O_WRONLY) == "ok": say("opened", name)
say("tried", tried)
def next_pid():
    with open("/proc/sys/kernel/ns_last_pid", "w") as file: file.write("5")
try: next_pid(); say("set.ns_last_pid", "ok")
except OSError as error: say("set.ns_last_pid", errno.errorcode[error.errno])
for name in ("kernel/core_pattern", "vm/drop_caches", "kernel/hostname", "vm/overcommit_memory", "fs/suid_dumpable"):
    say("set." + name, opened("/proc/sys/" + name, os.O_WRONLY))
"#;
            let output = env.python(level, &probe(body)).expect(0);
            assert!(!output.out().contains("opened"), "{who:?} {level:?}\n{}", output.out());
            let facts = crate::support::probe::Facts::of(&output.out());
            assert!(facts.get("tried").parse::<u32>().expect("a number") > 300, "{facts:?}");
            for (name, got) in facts.starting("set.") {
                assert!(["EACCES", "EPERM", "EROFS"].contains(&got), "{name} {got}");
            }
        }
    }
}

// containers/bubblewrap#287: started by root, read-only binds could be made writable and covers taken off
#[test]
fn mounts_are_locked_in_every_way_of_asking() {
    let body = r#"
MS_REMOUNT, MS_BIND, MS_MOVE, MNT_DETACH, CLONE_NEWNS, CLONE_NEWUSER = 32, 4096, 8192, 2, 0x20000, 0x10000000
def attack(who):
    for place in ("/", "/usr", "/proc", "/dev/null", "/etc/ssl/certs"):
        at = ctypes.create_string_buffer(place.encode())
        say(f"{who}.remount.{place}", call("mount", at, at, None, MS_REMOUNT | MS_BIND, None))
    for place in ("/src", "/home/check", "/tmp", "/usr", "/dev/shm", "/proc"):
        at = ctypes.create_string_buffer(place.encode())
        say(f"{who}.uncover.{place}", call("umount2", at, MNT_DETACH))
    attributes = ctypes.create_string_buffer(struct.pack("QQQQ", 0, 1, 0, 0))
    say(f"{who}.setattr", call("mount_setattr", -100, ctypes.create_string_buffer(b"/usr"), 0, attributes, 32))
    say(f"{who}.write", opened("/usr/checkrun-was-here", os.O_WRONLY | os.O_CREAT))
    say(f"{who}.root", opened("/checkrun-was-here", os.O_WRONLY | os.O_CREAT))
attack("plain")
say("chroot", call("chroot", ctypes.create_string_buffer(b"/tmp")))
say("mknod", call("mknod", -100, ctypes.create_string_buffer(b"/tmp/sda"), stat.S_IFBLK | 0o666, os.makedev(8, 0)))
if os.fork() == 0:
    ids = (os.getuid(), os.getgid())
    say("nested", call("unshare", CLONE_NEWUSER | CLONE_NEWNS))
    open("/proc/self/setgroups", "w").write("deny")
    open("/proc/self/uid_map", "w").write(f"0 {ids[0]} 1")
    open("/proc/self/gid_map", "w").write(f"0 {ids[1]} 1")
    attack("nested")
    os._exit(0)
os.wait()
"#;
    for who in EVERYBODY {
        let env = Env::of(who);
        // Once with every layer, once with the mounts' own locks alone.
        let bare = policy_like(
            &env,
            "hermetic",
            &[(
                "[layers.landlock]\nneed = \"require\"",
                "[layers.landlock]\nneed = \"off\"\nwhy = \"the mounts are to hold by themselves\"",
            )],
        );
        for options in [&[][..], &["--policy", &bare]] {
            let facts = facts(&env, options, body);
            facts.expect("nested", "ok").expect("chroot", "EPERM").expect("mknod", "EPERM");
            for (key, got) in facts.starting("plain.").into_iter().chain(facts.starting("nested.")) {
                assert!(
                    ["EPERM", "EACCES", "EROFS", "EINVAL"].contains(&got),
                    "{who:?} {options:?} {key} {got}"
                );
            }
        }
        assert!(!Path::new("/usr/checkrun-was-here").exists());
    }
}

// anthropic-experimental/sandbox-runtime#85, #139, anthropics/claude-code#46584, openai/codex#31599
#[test]
fn the_callers_tree_and_home_stay_as_they_are() {
    for who in EVERYBODY {
        for level in LEVELS {
            let env = Env::of(who);
            env.write("src/a", "a\n").write(".gitignore", "ignored\n").write("ignored", "i").commit();
            env.write("untracked", "u").write("src/a", "edited\n");
            let before = (picture(&env.path("repo")), picture(&env.path("home")));
            let (written, shown) = marker();
            let script = "rm -rf src .gitignore untracked; mkdir n; echo x > n/f; echo x > a; echo x > $HOME/.bash_profile; git init -q . ; chmod -R 700 .";
            let mut args = level.to_vec();
            args.extend(["--no-cache", "--", "sh", "-c", script]);
            drop(env.checkrun(&args).expect(0));
            // And killed in the middle.
            let waiting = format!("{script}; echo ready; sleep {written}");
            *args.last_mut().expect("a script") = &waiting;
            let mut live = Live::start(&env, &args);
            assert_eq!(live.line(), "ready");
            live.signal(libc::SIGKILL);
            live.end();
            until("the check is gone", || bearing(&shown).is_empty());
            let after = (picture(&env.path("repo")), picture(&env.path("home")));
            assert_eq!(before, after, "{who:?} {level:?}");
            assert!(env.git(&["status", "--short", "--ignored"]).contains("!! ignored"));
        }
    }
}

#[test]
fn nothing_of_the_machine_but_its_programs_is_in_view() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("f", "").commit();
        let place = env.path("home");
        let places = format!(
            "{} /root /home /var /run /mnt /opt /srv /boot /sys /etc/shadow /etc/ssh /etc/ssl/private",
            place.display()
        );
        let body = format!(
            "for place in {:?}.split():\n    say('at.' + place, ','.join(sorted(os.listdir(place))) if os.path.isdir(place) else os.path.exists(place))",
            places
        );
        let facts = facts(&env, &[], &body);
        for (place, got) in facts.starting("at.") {
            let expected = match place {
                "at./home" => "check",
                "at./var" => "run,tmp",
                "at./run" => "",
                _ => "False",
            };
            assert_eq!(got, expected, "{who:?} {place}");
        }
    }
}
