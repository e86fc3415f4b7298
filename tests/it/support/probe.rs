//! What the jail tests run inside and watch from outside: probes in Python with raw system calls, machines made worse
//! on purpose, runs that go on while the test looks at them.

use super::{Env, Output, Who, program, run};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// System calls that probes make by number.
const CALLS: [(&str, libc::c_long); 34] = [
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("io_uring_enter", libc::SYS_io_uring_enter),
    ("io_uring_register", libc::SYS_io_uring_register),
    ("add_key", libc::SYS_add_key),
    ("request_key", libc::SYS_request_key),
    ("keyctl", libc::SYS_keyctl),
    ("ioctl", libc::SYS_ioctl),
    ("socket", libc::SYS_socket),
    ("socketpair", libc::SYS_socketpair),
    ("personality", libc::SYS_personality),
    ("ptrace", libc::SYS_ptrace),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("openat2", libc::SYS_openat2),
    ("faccessat2", libc::SYS_faccessat2),
    ("clone3", libc::SYS_clone3),
    ("mount", libc::SYS_mount),
    ("umount2", libc::SYS_umount2),
    ("pivot_root", libc::SYS_pivot_root),
    ("chroot", libc::SYS_chroot),
    ("mount_setattr", libc::SYS_mount_setattr),
    ("open_tree", libc::SYS_open_tree),
    ("move_mount", libc::SYS_move_mount),
    ("fsopen", libc::SYS_fsopen),
    ("setns", libc::SYS_setns),
    ("unshare", libc::SYS_unshare),
    ("mknod", libc::SYS_mknodat),
    ("bpf", libc::SYS_bpf),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("userfaultfd", libc::SYS_userfaultfd),
    ("syslog", libc::SYS_syslog),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("inotify_init1", libc::SYS_inotify_init1),
    ("landlock_create_ruleset", libc::SYS_landlock_create_ruleset),
    ("unknown", 4000),
];

/// What every probe begins with: `call` gives `ok` or the name of the error, `tried` the same for a Python call,
/// `say` prints one fact.
const PRELUDE: &str = r#"
import ctypes, errno, fcntl, os, signal, socket, stat, struct, subprocess, sys, tempfile, threading, time
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
def call(name, *args):
    ctypes.set_errno(0)
    got = LIBC.syscall(ctypes.c_long(NR[name]), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return errno.errorcode.get(ctypes.get_errno(), "?") if got == -1 else "ok"
def tried(function, *args, **named):
    try:
        function(*args, **named)
        return "ok"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
def opened(path, flags):
    try:
        os.close(os.open(path, flags | os.O_NONBLOCK))
        return "ok"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
def say(key, value):
    print(key, value, flush=True)
"#;

/// A probe with its prelude.
pub fn probe(body: &str) -> String {
    let numbers: Vec<String> = CALLS.iter().map(|(name, number)| format!("{name:?}:{number}")).collect();
    format!("NR = {{{}}}\n{PRELUDE}\n{body}", numbers.join(","))
}

/// The facts that a probe said.
#[derive(Debug)]
pub struct Facts(BTreeMap<String, String>);

impl Facts {
    /// Of printed lines, a word and the rest.
    pub fn of(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        Self(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    /// One of them.
    #[track_caller]
    pub fn get(&self, key: &str) -> &str {
        self.0.get(key).unwrap_or_else(|| panic!("no fact `{key}` among {:?}", self.0))
    }

    /// Insists on one.
    #[track_caller]
    pub fn expect(&self, key: &str, value: &str) -> &Self {
        assert_eq!(self.get(key), value, "{key} among {:?}", self.0);
        self
    }

    /// Insists that one is one of several.
    #[track_caller]
    pub fn one_of(&self, key: &str, values: &[&str]) -> &Self {
        assert!(values.contains(&self.get(key)), "{key} is not one of {values:?} among {:?}", self.0);
        self
    }

    /// All whose word begins so.
    #[track_caller]
    pub fn starting(&self, start: &str) -> Vec<(&str, &str)> {
        let found: Vec<(&str, &str)> = self
            .0
            .iter()
            .filter(|(key, _)| key.starts_with(start))
            .map(|(key, value)| (&key[..], &value[..]))
            .collect();
        assert!(!found.is_empty(), "no fact begins with `{start}` among {:?}", self.0);
        found
    }
}

/// Runs a probe as a check that must end well.
#[track_caller]
pub fn facts(env: &Env, options: &[&str], body: &str) -> Facts {
    Facts::of(&env.python(options, &probe(body)).expect(0).out())
}

/// The default level and the one without namespaces.
pub const LEVELS: [&[&str]; 2] = [&[], &["--policy", "landlock"]];

/// Compiles a C program into the repository and commits nothing.
#[track_caller]
pub fn compile(env: &Env, compiler: &str, name: &str, flags: &[&str], source: &str) {
    let file = env.path(&format!("{name}.c"));
    std::fs::write(&file, source).expect("source");
    let to = env.path(&format!("{name}.out"));
    let output =
        Command::new(compiler).args(["-o"]).arg(&to).arg(&file).args(flags).output().expect(compiler);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    env.write(name, std::fs::read(&to).expect("program")).executable(name);
}

/// One refusal of a machine made worse: a system call, the error, and bits of the first argument, 0 for any.
pub type Refusal = (libc::c_long, i32, u32);

/// What the default filter of a container engine refuses that matters here.
pub fn container_filter() -> Vec<Refusal> {
    let namespaces = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWCGROUP;
    let mut rules: Vec<Refusal> = [
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_open_tree,
        libc::SYS_move_mount,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_mount_setattr,
    ]
    .map(|call| (call, libc::EPERM, 0))
    .to_vec();
    rules.push((libc::SYS_clone, libc::EPERM, namespaces.cast_unsigned()));
    rules.push((libc::SYS_clone3, libc::ENOSYS, 0));
    rules
}

/// checkrun on a machine made worse.
pub fn worse(env: &Env, rules: &[Refusal], args: &[&str]) -> Output {
    let rules: Vec<(libc::c_long, i32, u32)> = rules.to_vec();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/stand_in.py");
    let text = std::fs::read_to_string(script).expect("the stand-in");
    let mut command = env.as_who("/usr/bin/python3");
    command.args(["-c", &text, &serde_json::to_string(&rules).expect("rules")]).arg(program()).args(args);
    command.env("CHECKRUN_CACHE_DIR", env.path("cache")).current_dir(env.path("repo")).stdin(Stdio::null());
    run(&mut command)
}

/// A call of checkrun that goes on while the test looks at it. Dropped, it is killed.
pub struct Live {
    /// The process.
    pub child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Live {
    /// Starts it.
    pub fn start(env: &Env, args: &[&str]) -> Self {
        let mut child =
            env.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("checkrun");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, out }
    }

    /// The next line that the check prints.
    #[track_caller]
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("read");
        if line.is_empty() {
            let mut text = String::new();
            drop(self.child.stderr.take().expect("piped").read_to_string(&mut text));
            panic!("it ended early: {text}");
        }
        line.trim_end().to_owned()
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        assert!(
            Command::new("kill")
                .arg(format!("-{signal}"))
                .arg(self.pid().to_string())
                .status()
                .expect("kill")
                .success()
        );
    }

    /// Waits for its end: status, the rest of stdout, stderr.
    pub fn end(mut self) -> (i32, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        drop(self.out.read_to_string(&mut out));
        drop(self.child.stderr.take().expect("piped").read_to_string(&mut err));
        let status = self.child.wait().expect("wait");
        (status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)), out, err)
    }

    /// All processes below it, found by walking the lists of children.
    pub fn below(&self) -> Vec<i32> {
        let mut found = Vec::new();
        let mut open = vec![self.pid()];
        while let Some(pid) = open.pop() {
            let text =
                std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            let children: Vec<i32> = text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
            found.extend(&children);
            open.extend(children);
        }
        found
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A number of seconds for `sleep` that no other process on the machine sleeps for: as it is written in a script, so
/// that the script itself does not bear it, and as it shows in the process table.
pub fn marker() -> (String, String) {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let own = format!("{}.{}", std::process::id(), 100 + NEXT.fetch_add(1, Ordering::Relaxed));
    (format!("98''76{own}"), format!("9876{own}"))
}

/// Processes of the machine whose arguments hold `word`.
pub fn bearing(word: &str) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    })
    .collect()
}

/// Waits until something holds, for at most ten seconds.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let by = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < by, "not within ten seconds: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A policy file made from a built-in one by replacing text.
#[track_caller]
pub fn policy_like(env: &Env, name: &str, changes: &[(&str, &str)]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies").join(format!("{name}.toml"));
    let mut text = std::fs::read_to_string(path).expect("a built-in policy");
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let own = env.path("own.toml");
    std::fs::write(&own, text).expect("policy");
    own.to_str().expect("UTF-8").to_owned()
}

/// The machine's root in a mount namespace of the test's own, in which `setup` (a shell script) was run; then
/// checkrun, as whoever `env` is for.
pub fn in_own_mounts(env: &Env, setup: &str, args: &[&str]) -> Output {
    let own = env.command(args);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec"]);
    let switch = match env.who() {
        Who::Root => "exec \"$@\"".to_owned(),
        Who::User => format!("exec setpriv --reuid {0} --regid {0} --clear-groups \"$@\"", super::USER),
    };
    command.arg(format!("{setup}\n{switch}")).arg("sh").arg(own.get_program()).args(own.get_args());
    command.env_clear().current_dir(env.path("repo")).stdin(Stdio::null());
    for (name, value) in own.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    run(&mut command)
}
