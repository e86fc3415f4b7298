//! What test suites need to see and do is there: users, shared memory, terminals, threads, debuggers, limits that fit.

use crate::support::probe::{Facts, LEVELS, facts, probe};
use crate::support::{EVERYBODY, Env, Who, run};

// isolate 2.6: /dev/shm was shared between boxes by a recursive bind
#[test]
fn shared_memory_is_private_to_a_run_and_gone_after_it() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let name = format!("checkrun-it-{}-{who:?}", std::process::id());
        std::fs::write(format!("/dev/shm/{name}"), "of the host").expect("write");
        for run in ["first", "second"] {
            let body = format!(
                "say('seen', os.listdir('/dev/shm'))\nopen('/dev/shm/left-{run}', 'w').write('x')\nopen('/tmp/left', 'w').write('x')\nsay('tmp', os.listdir('/tmp'))"
            );
            facts(&env, &["--no-cache"], &body).expect("seen", "[]").expect("tmp", "['left']");
        }
        let outside: Vec<_> =
            std::fs::read_dir("/dev/shm").expect("ls").flatten().map(|it| it.file_name()).collect();
        assert!(!outside.iter().any(|name| name.to_string_lossy().starts_with("left-")), "{outside:?}");
        std::fs::remove_file(format!("/dev/shm/{name}")).expect("remove");
    }
}

// nolabs-ai/nono#306, GreyhavenHQ/greywall#92, navikt/cplt#29, NVIDIA/OpenShell#749: device ioctls refused
#[test]
fn a_program_can_open_terminals_of_its_own() {
    for who in EVERYBODY {
        for level in LEVELS {
            let body = r#"
import pty, termios, tty
ours, theirs = os.openpty()
say("name", os.ttyname(theirs).rsplit("/", 1)[0])
tty.setraw(theirs)
fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
say("size", subprocess.run(["stty", "size"], stdin=theirs, capture_output=True, text=True).stdout.strip())
os.write(ours, b"typed"); say("read", os.read(theirs, 9).decode())
pid, fd = pty.fork()
if pid == 0:
    print(os.isatty(0), opened("/dev/tty", os.O_RDWR)); sys.stdout.flush(); os._exit(0)
say("child", os.read(fd, 99).decode().strip()); os.wait()
say("null", opened("/dev/null", os.O_RDWR))
"#;
            let facts = facts(&Env::of(who), level, body);
            facts.expect("name", "/dev/pts").expect("size", "40 100").expect("read", "typed");
            facts.expect("child", "True ok").expect("null", "ok");
        }
    }
}

// NixOS/nix#4991, #5006, RisorseArtificiali/lince#77, netblue30/firejail#1082, safedep/pmg#487
#[test]
fn the_user_exists_has_a_home_and_owns_the_tree() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("d/e/f", "x").commit();
        let body = r#"
import getpass, grp, pwd
say("user", getpass.getuser()); say("passwd", pwd.getpwuid(os.getuid())); say("group", grp.getgrgid(os.getgid()).gr_name)
say("ids", f"{os.getuid()} {os.getgid()} {os.getgroups()}")
say("whoami", subprocess.run(["whoami"], capture_output=True, text=True).stdout.strip())
open(os.path.expanduser("~/own"), "w").write("x"); say("home", os.path.expanduser("~"))
owners = {os.lstat(os.path.join(at, name)).st_uid for at, folders, files in os.walk("/src") for name in folders + files + ["."]}
say("owners", owners)
for place in ("/tmp", "/dev/shm"): say("mode." + place, oct(os.stat(place).st_mode & 0o7777))
say("homes", os.stat("/home/check").st_uid)
say("overflow", open("/proc/sys/kernel/overflowuid").read().strip() != str(os.getuid()))
def git(*args): return subprocess.run(["git", *args], capture_output=True, text=True)
git("init", "-q"); git("add", "-A")
say("commit", git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x").returncode)
say("status", repr(git("status", "--short").stdout + git("status").stderr))
say("ssh", subprocess.run(["ssh", "-G", "host"], capture_output=True, text=True).returncode)
"#;
        let facts = facts(&env, &[], body);
        facts
            .expect("user", "check")
            .expect("whoami", "check")
            .expect("group", "check")
            .expect("ids", "1000 1000 []");
        facts
            .expect("home", "/home/check")
            .expect("homes", "1000")
            .expect("owners", "{1000}")
            .expect("overflow", "True");
        facts.expect("mode./tmp", "0o1777").expect("mode./dev/shm", "0o1777");
        facts.expect("commit", "0").expect("status", "''").expect("ssh", "0");
        assert!(facts.get("passwd").contains("pw_dir='/home/check'"), "{facts:?}");
    }
}

// openai/codex#7251, #2318
#[test]
fn semaphores_and_shared_memory_work() {
    for who in EVERYBODY {
        let body = r#"
import multiprocessing
from multiprocessing import shared_memory
lock = multiprocessing.Lock(); lock.acquire(); say("lock", "ok")
memory = shared_memory.SharedMemory(create=True, size=64 << 20); memory.buf[:] = b"x" * (64 << 20); say("size", memory.size)
memory.close(); memory.unlink()
queue = multiprocessing.Queue(); worker = multiprocessing.Process(target=queue.put, args=("sent",)); worker.start()
say("queue", queue.get()); worker.join()
"#;
        facts(&Env::of(who), &[], body)
            .expect("lock", "ok")
            .expect("size", "67108864")
            .expect("queue", "sent");
    }
}

// golang/go#35547: race detectors and debuggers switch address randomisation off
#[test]
fn address_randomisation_can_be_switched_off_and_nothing_else() {
    for who in EVERYBODY {
        for level in LEVELS {
            let body = r#"
say("ours", open("/proc/self/personality").read().strip())
say("setarch", subprocess.run(["setarch", "-R", "cat", "/proc/self/personality"], capture_output=True, text=True).stdout.strip())
say("query", call("personality", 0xffffffff))
for name, value in (("read_implies_exec", 0x400000), ("mmap_page_zero", 0x100000), ("compat_layout", 0x200000)):
    say("refused." + name, call("personality", value))
"#;
            let facts = facts(&Env::of(who), level, body);
            facts.expect("ours", "00000000").expect("setarch", "00040000").expect("query", "ok");
            for (name, got) in facts.starting("refused.") {
                assert_eq!(got, "EPERM", "{name}");
            }
        }
    }
}

// golang/go#52941, assembledhq/143#417, itigges22/ATLAS#163
#[test]
fn programs_can_be_executed_wherever_they_are_written() {
    for who in EVERYBODY {
        for level in LEVELS {
            let env = Env::of(who);
            let script = "for d in \"$TMPDIR\" \"$HOME\" \"$PWD\"; do cp /usr/bin/true \"$d/own\" && \"$d/own\" && printf '#!/bin/sh\\necho ran\\n' > \"$d/script\" && chmod +x \"$d/script\" && \"$d/script\"; done";
            let mut args = level.to_vec();
            args.extend(["--", "sh", "-c", script]);
            assert_eq!(env.checkrun(&args).expect(0).out(), "ran\nran\nran\n", "{who:?} {level:?}");
        }
        let mounts = Env::of(who);
        let text = mounts.checkrun(&["--", "cat", "/proc/self/mounts"]).expect(0).out();
        for line in text.lines().filter(|line| !line.contains(" /dev/")) {
            assert!(line.contains("nosuid") && line.contains("nodev"), "{line}");
        }
    }
}

// Zouuup/landrun#55, #48, empathic/clash#205, rust-lang/rust#156895, phylum-dev/birdcage#10, nolabs-ai/nono#1396
#[test]
fn files_can_be_renamed_and_linked_across_folders() {
    for who in EVERYBODY {
        for level in LEVELS {
            let env = Env::of(who);
            env.write("a/f", "x").write("b/g", "y").write("c/d/h", "z").commit();
            let body = r#"
say("rename", tried(os.rename, "a/f", "b/f")); say("link", tried(os.link, "b/g", "a/g"))
os.makedirs("new/deep"); say("into", tried(os.rename, "b/f", "new/deep/f")); say("out", tried(os.rename, "new/deep", "deep"))
say("folder", tried(os.rename, "deep", "a/deep"))
say("over", tried(os.replace, "a/g", "a/deep/f")); say("symlink", tried(os.symlink, "g", "b/l"))
temporary = tempfile.mkdtemp(); open(temporary + "/one", "w").close(); os.mkdir(temporary + "/in")
say("temporary", tried(os.rename, temporary + "/one", temporary + "/in/one"))
say("mv", subprocess.run(["mv", "c", "moved"]).returncode); say("tree", os.path.exists("moved/d/h"))
"#;
            let facts = facts(&env, level, body);
            for name in ["rename", "link", "into", "out", "folder", "over", "symlink", "temporary"] {
                facts.expect(name, "ok");
            }
            facts.expect("mv", "0").expect("tree", "True");
        }
    }
}

// nsjail's defaults; golang/go#37651, compiler-explorer/compiler-explorer#1703, runxhq/runx#487, melpon/wandbox#198
#[test]
fn the_callers_limits_are_not_the_checks_and_address_space_is_never_limited() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let body = r#"
import mmap, resource
say("soft", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
files = [open("/dev/null") for _ in range(min(hard, 2100) - 100)]; say("files", len(files) >= 2000)
say("core", resource.getrlimit(resource.RLIMIT_CORE)); say("stack", resource.getrlimit(resource.RLIMIT_STACK)[0])
for name in ("AS", "DATA", "FSIZE", "CPU"): say("limit." + name, resource.getrlimit(getattr(resource, "RLIMIT_" + name))[0])
open("big", "wb").write(b"x" * (50 << 20)); say("big", os.path.getsize("big"))
LIBC.mmap.restype = ctypes.c_void_p
say("terabyte", LIBC.mmap(None, ctypes.c_size_t(1 << 40), 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, -1, ctypes.c_long(0)) not in (None, 2**64 - 1))
"#;
        let args = ["--", "/usr/bin/python3", "-c", &probe(body)];
        let own = env.command(&args);
        let mut shell = env.as_who("bash");
        shell.args([
            "-c",
            "ulimit -S -n 200 -f 20000 -v 4000000 -t 600 -d 4000000 -s 4096; exec \"$@\"",
            "bash",
        ]);
        shell.arg(own.get_program()).args(own.get_args());
        shell.env("CHECKRUN_CACHE_DIR", env.path("cache")).current_dir(env.path("repo"));
        let output = run(&mut shell).expect(0);
        let facts = Facts::of(&output.out());
        facts
            .expect("soft", "1024")
            .expect("files", "True")
            .expect("core", "(0, 0)")
            .expect("stack", "8388608");
        facts.expect("big", "52428800").expect("terabyte", "True");
        for (name, got) in facts.starting("limit.") {
            assert_eq!(got, "-1", "{name}");
        }
    }
}

// containers/bubblewrap#521, safedep/pmg#487
#[test]
fn archives_of_other_owners_unpack_and_owners_cannot_be_given_away() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let body = r#"
import io, tarfile
with tarfile.open("a.tar", "w") as archive:
    for name, uid in (("of-root", 0), ("of-somebody", 4711)):
        entry = tarfile.TarInfo(name); entry.uid = entry.gid = uid; entry.size = 1
        archive.addfile(entry, io.BytesIO(b"x"))
say("tar", subprocess.run(["tar", "-xf", "a.tar"]).returncode)
say("owner", os.stat("of-root").st_uid)
say("own", tried(os.chown, "of-root", 1000, 1000)); say("root", tried(os.chown, "of-root", 0, 0))
"#;
        let facts = facts(&env, &[], body);
        // EPERM is what a machine without user namespaces says; the kernel's word here is EINVAL (see known-gaps).
        facts
            .expect("tar", "0")
            .expect("owner", "1000")
            .expect("own", "ok")
            .one_of("root", &["EINVAL", "EPERM"]);
    }
}

// NixOS/nixpkgs#36214, Sanne/incus-spawn#570, scylladb/scylladb#21199
#[test]
fn parallel_runs_have_watchers() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let program = probe("say('made', [call('inotify_init1', 0) for _ in range(4)]); time.sleep(1)");
        std::thread::scope(|scope| {
            let runs: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| env.checkrun(&["--no-cache", "--", "/usr/bin/python3", "-c", &program]))
                })
                .collect();
            for run in runs {
                let output = run.join().expect("no panic").expect(0);
                Facts::of(&output.out()).expect("made", "['ok', 'ok', 'ok', 'ok']");
            }
        });
    }
}

#[test]
fn root_and_an_ordinary_user_see_the_same() {
    let body = r#"
for name in sorted(os.listdir("/")) + ["/"]: say("at." + name, f"{oct(os.lstat('/' + name).st_mode)} {os.lstat('/' + name).st_uid}")
say("env", sorted(os.environ.items())); say("cmdline", open("/proc/1/cmdline").read().strip("\0"))
say("pids", sorted(name for name in os.listdir("/proc") if name.isdigit())[:1]); say("self", os.getpid() != 1)
say("host", socket.gethostname()); say("domain", open("/proc/sys/kernel/domainname").read().strip())
say("cgroup", all(line.rstrip().endswith(":/") for line in open("/proc/self/cgroup")))
say("umask", oct(os.umask(0))); say("session", os.getsid(0) == os.getpid()); say("stdin", os.read(0, 9))
# Python itself ignores SIGPIPE and SIGXFSZ, so a shell's is looked at.
status = subprocess.run(["sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status"], capture_output=True, text=True, restore_signals=True).stdout
say("signals", status.split())
"#;
    let seen = [Who::User, Who::Root].map(|who| {
        let env = Env::of(who);
        format!("{:?}", facts(&env, &[], body))
    });
    assert_eq!(seen[0], seen[1]);
    assert!(seen[0].contains("'SigBlk:', '0000000000000000', 'SigIgn:', '0000000000000000'"), "{}", seen[0]);
    assert!(
        seen[0].contains("\"self\": \"True\"") && seen[0].contains("\"cgroup\": \"True\""),
        "{}",
        seen[0]
    );
}
