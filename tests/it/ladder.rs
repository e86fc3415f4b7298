//! Machines as they are in containers, sandboxes and hardened systems, made as far as they can be made here: each ends in
//! the level that was asked for or in a refusal that names cause and remedy, and no record says more than there was.
//!
//! Machines without Landlock, without namespaces, and with other versions of Landlock are in `worse_machines`.

use crate::support::probe::in_own_mounts;
use crate::support::{EVERYBODY, Env, Output, USER, Who, run, say};
use std::process::{Command, Stdio};

const SHOW: [&str; 6] =
    ["--format", "json", "--", "sh", "-c", "cat f; ls /root; grep -c . /proc/self/mounts; true"];

fn scene(who: Who) -> Env {
    let env = Env::of(who);
    env.write("f", "told\n").commit();
    env
}

/// It is the whole level, and every layer of it that is required is in force.
#[track_caller]
fn is_full(output: Output, what: &str) -> serde_json::Value {
    assert_eq!(output.status, 0, "{what}: {}", output.err());
    let result = output.json();
    assert_eq!(result["sandbox"]["level"], "full", "{what}");
    for layer in ["user", "mount", "pid", "net", "ipc", "uts", "landlock", "seccomp"] {
        assert_eq!(result["sandbox"]["layers"][layer], "enforced", "{what}: {}", result["sandbox"]);
    }
    assert!(result["tail"].as_str().unwrap().starts_with("told\n"), "{what}: {result}");
    result
}

/// It is refused, with a cause and a remedy, and nothing was run; or it is the whole level, where the kernel lets it.
#[track_caller]
fn refused_or_full(output: Output, parts: &[&str], what: &str) -> &'static str {
    if output.status == 0 {
        is_full(output, what);
        return "full";
    }
    assert!(output.err().contains("hint:"), "{what}: {}", output.err());
    drop(output.refused(parts));
    "refused"
}

/// Starts checkrun as whoever it is for, from a command that root runs.
fn under(env: &Env, wrapper: &[&str], args: &[&str]) -> Output {
    run(&mut env.wrapped(wrapper, args))
}

// containers/bubblewrap#284, opencontainers/runc#1658, moby/moby#36597: what engines cover and take away
#[test]
fn a_machine_as_containers_have_it() {
    let mut told = Vec::new();
    for who in EVERYBODY {
        let env = scene(who);
        let enclosed = |setup: &str| in_own_mounts(&env, setup, &SHOW);
        is_full(
            enclosed(
                "mount -o remount,bind,ro /sys; mount | grep -q cgroup && umount -R /sys/fs/cgroup || true",
            ),
            "no cgroups",
        );
        let read_only = enclosed(
            "for at in $(awk '$2 ~ \"^/sys\" { print $2 }' /proc/self/mounts); do mount -o remount,bind,ro $at; done",
        );
        let result = is_full(read_only, "a read-only /sys");
        let memory = &result["sandbox"]["layers"]["memory"];
        assert!(memory.as_str().unwrap().starts_with("unavailable: "), "{memory}");
        let limit = ["--memory", "64MiB", "--", "echo", "ran"];
        let asked = in_own_mounts(
            &env,
            "for at in $(awk '$2 ~ \"^/sys\" { print $2 }' /proc/self/mounts); do mount -o remount,bind,ro $at; done",
            &limit,
        );
        drop(asked.refused(&["memory", "hint:"]));
        is_full(enclosed("umount -l /dev/pts"), "no /dev/pts");
        is_full(
            enclosed("mount -t tmpfs none /dev/shm; mount -t tmpfs none /run; mount -t tmpfs none /var"),
            "covered folders",
        );
        // A /proc of which something is covered keeps an unprivileged mount of another one from being made.
        for (what, setup) in [
            ("a covered file in /proc", "mount --bind /dev/null /proc/kallsyms"),
            (
                "a covered folder in /proc",
                "mount -t tmpfs -o ro none /proc/acpi 2>/dev/null || mount -t tmpfs -o ro none /proc/bus",
            ),
            (
                "a read-only folder in /proc",
                "mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys",
            ),
        ] {
            told.push(format!("{who:?}, {what}: {}", refused_or_full(enclosed(setup), &["/proc"], what)));
        }
        told.push(format!(
            "{who:?}, no /proc: {}",
            refused_or_full(enclosed("umount -l /proc"), &["/proc is not mounted"], "no /proc")
        ));
    }
    say(&told.join("\n"));
}

/// Runs its later arguments in a user namespace with the map that the first one is, with all powers over that namespace.
const IN_A_USER_NAMESPACE: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
uid, gid = os.getuid(), os.getgid()
ready, done = os.pipe(), os.pipe()
parent = os.getpid()
mapper = os.fork()
if mapper == 0:
    os.read(ready[0], 1)
    # user_namespaces(7): an ordinary user has to give up setgroups(2) first.
    for name, text in (("uid_map", sys.argv[1]), ("setgroups", "deny"), ("gid_map", sys.argv[1])):
        if name == "setgroups" and uid == 0: continue
        with open(f"/proc/{parent}/{name}", "w") as file: file.write(text)
    os.write(done[1], b"x")
    os._exit(0)
if libc.unshare(0x10000000) != 0: raise OSError(ctypes.get_errno(), "unshare")
os.write(ready[1], b"x")
os.read(done[0], 1)
os.waitpid(mapper, 0)
# What is kept over exec: ambient, PR_CAP_AMBIENT_RAISE, after it is inheritable.
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
sets = (ctypes.c_uint32 * 6)()
libc.capget(header, sets)
sets[2], sets[5] = sets[1], sets[4]
libc.capset(header, sets)
for capability in range(64): libc.prctl(47, 2, capability, 0, 0)
os.execvp(sys.argv[2], sys.argv[2:])
"#;

// openai/codex#15434, containers/bubblewrap#632: the kernel's own switches, not stand-ins for them
#[test]
fn user_namespaces_that_are_used_up_or_not_allowed() {
    for who in EVERYBODY {
        let env = scene(who);
        // In a user namespace of its own the limit is its own too.
        let maps = if who == Who::User { format!("{USER} {USER} 1") } else { "0 0 65536".to_owned() };
        let own = ["/usr/bin/python3", "-c", IN_A_USER_NAMESPACE, &maps];
        let script = "echo 0 >/proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
        let wrapper = [&own[..], &["sh", "-c", script]].concat();
        drop(under(&env, &wrapper, &SHOW).refused(&["user (", "user.max_user_namespaces", "hint:"]));
        let args = ["--policy", "landlock", "--format", "json", "--", "cat", "f"];
        let landlock = under(&env, &wrapper, &args).expect(0).json();
        assert_eq!(
            (&landlock["sandbox"]["level"], &landlock["tail"]),
            (&"landlock".into(), &"told\n".into())
        );
        // With the limit as it is, the same is the whole level for a user, and the machine's mounts are not root's there.
        let with_limit = under(&env, &own, &SHOW);
        if who == Who::User {
            is_full(with_limit, "a user namespace of its own");
        } else {
            refused_or_full(with_limit, &["hint:"], "a user namespace of root's");
        }
        if who == Who::Root {
            let only_root = under(&env, &["unshare", "--user", "--map-current-user"], &SHOW);
            drop(only_root.refused(&["root is the only user id here", "hint:"]));
            // user_namespaces(7): no user namespace is made by who has another root than its mount namespace.
            let root = env.path("root");
            std::fs::create_dir(&root).unwrap();
            let setup = format!(
                "mount --rbind / {0}; export OLD=$PWD; set -- chroot {0} sh -c 'cd \"$OLD\" && exec \"$0\" \"$@\"' \"$@\"",
                root.display()
            );
            drop(in_own_mounts(&env, &setup, &SHOW).refused(&["user (", "hint:"]));
        }
    }
}

#[test]
fn who_may_gain_nothing_more_is_served_like_anybody() {
    for who in EVERYBODY {
        let env = scene(who);
        is_full(under(&env, &["setpriv", "--no-new-privs"], &SHOW), "no new privileges");
        if who == Who::Root {
            is_full(
                under(
                    &env,
                    &["setpriv", "--no-new-privs", "--bounding-set=-sys_admin", "--inh-caps=-all"],
                    &SHOW,
                ),
                "fewer capabilities",
            );
            let bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];
            told_or_full(&under(&env, &bare, &SHOW));
        }
        // A file limit as low as shells have, and no core files.
        is_full(under(&env, &["prlimit", "--nofile=64", "--core=0"], &SHOW), "few descriptors");
    }
}

/// Without any power root is a user that owns much; what that comes to is the kernel's to say.
fn told_or_full(output: &Output) {
    assert!(
        output.status == 0 || (output.status == 125 && output.err().contains("hint:")),
        "{}",
        output.err()
    );
    if output.status == 0 {
        assert_eq!(output.json()["sandbox"]["layers"]["user"], "enforced");
    }
}

/// A root of its own that holds little, and all namespaces.
const NARROW: &str = "bwrap --unshare-all --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 \
    --ro-bind /etc /etc --proc /proc --dev /dev --tmpfs /tmp";

// containers/bubblewrap#164, bazelbuild/bazel#20753, flatpak/flatpak#3797: a sandbox within another one
#[test]
fn within_bubblewrap() {
    for who in EVERYBODY {
        let env = scene(who);
        let place = env.path("");
        let place = place.to_str().unwrap();
        is_full(
            under(
                &env,
                &["bwrap", "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--die-with-parent"],
                &SHOW,
            ),
            "bwrap, files alone",
        );
        let whole = ["bwrap", "--unshare-all", "--bind", "/", "/", "--dev-bind", "/dev", "/dev"];
        drop(
            under(&env, &whole, &SHOW).refused(&["/proc is that of another PID namespace", "hint: mount it"]),
        );
        let program = crate::support::program().parent().unwrap().to_str().unwrap();
        let narrow = format!("{NARROW} --ro-bind {program} {program} --bind {place} {place}");
        let narrow: Vec<&str> = narrow.split(' ').collect();
        let closed = [&narrow[..], &["--unshare-user", "--disable-userns"]].concat();
        let landlock = ["--policy", "landlock", "--format", "json", "--", "cat", "f"];
        if who == Who::User {
            is_full(under(&env, &narrow, &SHOW), "bwrap --unshare-all with a root of its own");
            drop(under(&env, &closed, &SHOW).refused(&["user (", "hint:", "--policy landlock"]));
            assert_eq!(under(&env, &closed, &landlock).expect(0).json()["sandbox"]["level"], "landlock");
        } else {
            // Started by root it maps root alone, and a check is never run as that.
            for wrapper in [&narrow[..], &closed] {
                drop(under(&env, wrapper, &SHOW).refused(&["user (root is the only user id here", "hint:"]));
            }
        }
        // Over the machine's own /proc, parts of which are covered, the kernel lets nobody mount a whole one.
        let covered = [
            "bwrap",
            "--bind",
            "/",
            "/",
            "--dev",
            "/dev",
            "--proc",
            "/proc",
            "--ro-bind",
            "/dev/null",
            "/proc/kallsyms",
        ];
        drop(under(&env, &covered, &SHOW).refused(&[
            "pid (/proc cannot be mounted since the one outside is partly covered",
            "hint:",
            "--policy landlock",
        ]));
        assert_eq!(under(&env, &covered, &landlock).expect(0).json()["sandbox"]["level"], "landlock");
        // Nothing of a weaker machine answers on the whole one, nor the other way round.
        let whole = env.checkrun(&SHOW);
        is_full(whole, "no sandbox around");
    }
}

/// A container of an ordinary user, as runc(8) makes it without any privilege: its root is that user, `/proc` and `/sys` are
/// covered in parts, and what it gains by `setuid` is nothing. `capability` is added to its few.
fn within_runc(env: &Env, capability: Option<&str>, args: &[&str]) -> Output {
    let bundle = env.path("home/bundle");
    let program = crate::support::program();
    let folder = program.parent().unwrap().to_str().unwrap();
    let prepare = r#"
import json, os, subprocess, sys
bundle, folder, place, capability, *argv = sys.argv[1:]
os.makedirs(bundle + '/rootfs', exist_ok=True)
os.chdir(bundle)
if os.path.exists('config.json'): os.remove('config.json')
subprocess.run(['runc', 'spec', '--rootless'], check=True)
config = json.load(open('config.json'))
process = config['process']
process['terminal'], process['args'], process['cwd'] = False, argv, place + '/repo'
process['env'] += [name + '=' + os.environ[name] for name in os.environ if name.startswith(('CHECKRUN', 'HOME', 'XDG'))]
if capability != '-':
    for kind in process['capabilities'].values(): kind.append(capability)
config['root'] = {'path': 'rootfs', 'readonly': False}
bind = lambda at, mode: {'destination': at, 'type': 'none', 'source': at, 'options': ['rbind', mode]}
config['mounts'] += [bind('/usr', 'ro'), bind('/etc', 'ro'), bind(folder, 'ro'), bind(place, 'rw')]
for link in 'bin', 'lib', 'lib64', 'sbin':
    if not os.path.lexists('rootfs/' + link): os.symlink('usr/' + link, 'rootfs/' + link)
json.dump(config, open('config.json', 'w'))
os.execvp('runc', ['runc', '--rootless', 'true', '--root', bundle + '/state', 'run', 'checkrun-test-%d' % os.getpid()])
"#;
    let place = env.path("");
    let place = place.to_str().unwrap().trim_end_matches('/');
    let capability = capability.unwrap_or("-");
    let wrapper = ["python3", "-c", prepare, bundle.to_str().unwrap(), folder, place, capability];
    under(env, &wrapper, args)
}

// opencontainers/runc#1658, containers/podman#4056: what is left of the kernel's abilities in a container without privilege
#[test]
fn within_a_container_of_an_ordinary_user() {
    let env = scene(Who::User);
    // Its root may map nobody, and the message says which capability that takes.
    drop(within_runc(&env, None, &SHOW).refused(&[
        "user (root of this container",
        "--cap-add SETFCAP",
        "hint:",
    ]));
    let landlock = ["--policy", "landlock", "--format", "json", "--", "cat", "f"];
    let weak = within_runc(&env, None, &landlock).expect(0).json();
    assert_eq!(weak["sandbox"]["level"], "landlock", "{weak}");
    let doctor = within_runc(&env, None, &["doctor"]);
    let shown = doctor.out();
    let line = |start: &str| shown.lines().any(|line| line.trim_start().starts_with(start));
    assert!(line("level      landlock") && line("mend       docker run --cap-add SETFCAP"), "{shown}");
    // With it the whole level is there, save what the container's own masks keep.
    let told = refused_or_full(within_runc(&env, Some("CAP_SETFCAP"), &SHOW), &["hint:"], "runc");
    say(&format!("within runc with CAP_SETFCAP: {told}"));
    is_full(env.checkrun(&SHOW), "no container around");
}

// Standard streams that are closed, or that nobody reads: what is opened next must not take their place.
#[test]
fn closed_streams_are_nobody_elses() {
    for who in EVERYBODY {
        let env = scene(who);
        for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
            let first = format!("exec {closed}");
            let mut command = env
                .after(&first, &["--output", "result.json", "--", "sh", "-c", "cat f; echo e >&2; exit 3"]);
            let status = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap().status;
            assert_eq!(status.code(), Some(3), "{closed}");
            let result = std::fs::read(env.repo("result.json")).unwrap();
            let result: serde_json::Value =
                serde_json::from_slice(&result).unwrap_or_else(|error| panic!("{closed}: {error}"));
            assert_eq!(result["exit"], 3, "{closed}");
            std::fs::remove_file(env.repo("result.json")).unwrap();
        }
        drop(run(Command::new("true").stdin(Stdio::null())).expect(0));
    }
}

// The usual cache lies in a home folder, and root's is closed to all others: the user that a check is run as cannot reach it.
#[test]
fn a_cache_that_nobody_else_may_enter_serves_every_level() {
    for who in EVERYBODY {
        let env = scene(who);
        let spare = env.path("spare");
        std::fs::create_dir(&spare).unwrap();
        std::fs::set_permissions(&spare, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
        std::fs::set_permissions(env.path("cache"), std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .unwrap();
        let env = env.var("TMPDIR", &spare);
        let script = "cat f && echo x >new && echo y >$HOME/z && cat new $HOME/z && touch $TMPDIR/a";
        for level in ["hermetic", "landlock"] {
            let output = env.checkrun(&["--policy", level, "--", "sh", "-c", script]).expect(0);
            assert_eq!(output.out(), "told\nx\ny\n", "{who:?} {level}");
            let hit = env.checkrun(&["--cached-only", "--policy", level, "--", "sh", "-c", script]).expect(0);
            assert_eq!(hit.out(), "told\nx\ny\n", "{who:?} {level}");
        }
        for folder in [&spare, &env.path("cache/runs")] {
            let left: Vec<_> = std::fs::read_dir(folder).into_iter().flatten().flatten().collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }
}
