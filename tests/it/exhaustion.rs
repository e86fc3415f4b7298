//! Checks that take whatever they can get: each ends at its limit or is told that there is no more, with the right word,
//! soon, and leaves nothing; checkrun itself stays small and others on the machine go on.
//!
//! Fork bombs, lack of memory by one program and floods of output are in `limits` and `crowd`.

use crate::support::probe::{bearing, marker};
use crate::support::{EVERYBODY, Env, Output, Who, run, say};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Most that checkrun and its supervisor may have in memory, each, in KiB: 20 MiB, and what a build without optimisation
/// has mapped of its own program besides.
const OWN_KIB: u64 = (20 + 40) << 10;

/// How long after its limit a run may take to be over. Two seconds are the aim, and the suite says what it was; this is
/// for a machine that does other things as well.
const SLACK: Duration = Duration::from_secs(30);

/// What a flood came to.
struct Ended {
    status: i32,
    result: Value,
    took: Duration,
    /// Most memory of checkrun itself and of its first child, in KiB.
    own_kib: u64,
}

/// Bounded from outside as well: by time, and by a number of processes that the machine can bear. With as few descriptors
/// as most machines give.
fn outer(env: &Env, args: &[&str]) -> Command {
    env.wrapped(
        &["timeout", "-s", "KILL", "100", "prlimit", "--nproc=3000", "--nofile=1024:1024", "--"],
        args,
    )
}

fn peak(pid: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

fn child(pid: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    text.split_whitespace().next().map(str::to_owned)
}

/// Runs a flood to its end and looks at checkrun meanwhile.
fn flood(env: &Env, options: &[&str], program: &[&str]) -> Ended {
    let result = env.path("result.json");
    let args = [&["--no-cache", "--output", result.to_str().unwrap()], options, &["--"], program].concat();
    drop(std::fs::remove_file(&result));
    let folder = env.path("home/results");
    drop(std::fs::create_dir(&folder));
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let result = folder.join("result.json");
    let args: Vec<&str> = args
        .iter()
        .map(|arg| if arg.ends_with("result.json") { result.to_str().unwrap() } else { arg })
        .collect();
    let began = Instant::now();
    let mut timeout = outer(env, &args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut own_kib = 0;
    let ended = loop {
        // `timeout` has one child, which has become checkrun.
        if let Some(launcher) = child(&timeout.id().to_string()) {
            own_kib = own_kib.max(peak(&launcher).unwrap_or(0));
            if let Some(supervisor) = child(&launcher) {
                own_kib = own_kib.max(peak(&supervisor).unwrap_or(0));
            }
        }
        if let Some(ended) = timeout.try_wait().unwrap() {
            break ended;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let took = began.elapsed();
    let text =
        std::fs::read_to_string(&result).unwrap_or_else(|error| panic!("{error}: {ended:?} {program:?}"));
    std::fs::remove_file(&result).unwrap();
    Ended { status: ended.code().unwrap_or(-1), result: serde_json::from_str(&text).unwrap(), took, own_kib }
}

/// Nothing of it is left: no process, no folder of a run.
#[track_caller]
fn nothing_is_left(env: &Env, mark: &str) {
    assert_eq!(bearing(mark), Vec::<i32>::new());
    let runs: Vec<_> = std::fs::read_dir(env.path("cache/runs")).into_iter().flatten().flatten().collect();
    assert!(runs.is_empty(), "{runs:?}");
}

fn python(mark: &str, body: &str) -> [String; 4] {
    let program = format!(
        "import os, sys, time, mmap, socket, ctypes, threading\n\
         src = os.getcwd()\nos.chdir(os.environ.get('TMPDIR', '/tmp'))\n{body}"
    );
    ["/usr/bin/python3".to_owned(), "-c".to_owned(), program, mark.to_owned()]
}

/// Ways to take memory that are not a program's own heap. `MIB` stands for more of them than the limit.
const MEMORY: [(&str, &str); 7] = [
    ("anonymous", "b = bytearray(MIB << 20)"),
    (
        "shared between processes",
        "m = mmap.mmap(-1, MIB << 20)\nfor at in range(0, MIB << 20, 4096): m[at] = 1",
    ),
    (
        "a file in memory without a name",
        "f = os.memfd_create('x')\nfor n in range(MIB): os.write(f, b'x' * (1 << 20))",
    ),
    (
        "System V shared memory",
        "libc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_void_p\n\
         i = libc.shmget(0, ctypes.c_size_t(MIB << 20), 0o1600)\np = libc.shmat(i, None, 0)\nctypes.memset(p, 1, MIB << 20)",
    ),
    (
        "many children",
        "for n in range(40):\n  if os.fork() == 0:\n    b = bytearray((MIB << 20) // 20); time.sleep(60); os._exit(0)\ntime.sleep(60)",
    ),
    ("a temporary file system", "f = open('/tmp/x', 'wb')\nfor n in range(MIB): f.write(b'x' * (1 << 20))"),
    (
        "sockets and pipes",
        "all = []\nfor n in range(500):\n  p = socket.socketpair()\n  p[0].setblocking(False); all.append(p)\n  try:\n    while True: p[0].send(b'x' * 60000)\n  except BlockingIOError: pass",
    ),
];

// kubernetes/community#7237, bazelbuild/bazel#26076: memory that is counted to nobody. The memory controller is root's here.
#[test]
fn memory_by_every_way_of_having_it_ends_the_run_at_the_limit() {
    let env = Env::of(Who::Root);
    env.commit();
    let mut told = BTreeMap::new();
    for (way, body) in MEMORY {
        let (_, mark) = marker();
        let program = python(&mark, &body.replace("MIB", "200"));
        let program: Vec<&str> = program.iter().map(String::as_str).collect();
        let ended = flood(&env, &["--memory", "64MiB", "--disk", "1GiB", "--timeout", "60s"], &program);
        assert_eq!(
            (ended.status, &ended.result["outcome"]),
            (137, &"out_of_memory".into()),
            "{way}: {}",
            ended.result
        );
        assert!(ended.took < Duration::from_secs(60), "{way}: {:?}", ended.took);
        assert!(ended.own_kib < OWN_KIB, "{way}: checkrun had {} KiB", ended.own_kib);
        nothing_is_left(&env, &mark);
        told.insert(way, format!("{:.1} s", ended.took.as_secs_f64()));
    }
    // What is only read of the tree is the machine's to keep or not.
    env.write("large", vec![1_u8; 100 << 20]).commit();
    let ended = flood(&env, &["--memory", "64MiB"], &["sh", "-c", "cat large large >/dev/null"]);
    assert_eq!(ended.result["outcome"], "passed", "{}", ended.result);
    say(&format!("{told:?}"));
}

/// Floods that are no matter of memory: what is printed last tells how far it came.
const FLOODS: [(&str, &str); 10] = [
    ("descriptors", "try:\n  while True: os.dup(0)\nexcept OSError as e: print(e)"),
    (
        "descriptors in flight",
        "import array\na, b = socket.socketpair()\ntry:\n  while True:\n    c, d = socket.socketpair()\n    a.sendmsg([b'x'], [(1, 1, array.array('i', [b.fileno(), c.fileno()] * 50))], 64)\n    a, b = c, d\nexcept OSError as e: print(e)",
    ),
    (
        "names of empty files",
        "n = 0\ntry:\n  for d in range(400):\n    os.mkdir(f'{d}')\n    for n in range(5000): os.close(os.open(f'{d}/{n}', os.O_CREAT | os.O_WRONLY))\nexcept OSError as e: print(d, e); os._exit(7)",
    ),
    (
        "inotify",
        "libc = ctypes.CDLL(None, use_errno=True)\nn = 0\nwhile libc.inotify_init() >= 0: n += 1\nprint(n)",
    ),
    (
        "threads",
        "n = 0\ntry:\n  while n < 3000:\n    threading.Thread(target=time.sleep, args=(5,), daemon=True).start(); n += 1\nexcept RuntimeError as e: pass\nprint('threads', n, flush=True)\nos._exit(0 if n < 200 else 9)",
    ),
    ("terminals", "n = 0\ntry:\n  while True: os.openpty(); n += 1\nexcept OSError as e: print(n, e)"),
    (
        "a file with holes",
        "f = open('x', 'wb')\nos.truncate('x', 1 << 40)\nf.seek(1 << 39); f.write(b'x'); f.close()\nprint(os.stat('x').st_blocks)",
    ),
    (
        "deep folders",
        "n = 0\nos.chdir(src)\ntry:\n  while n < 1500: os.mkdir('d'); os.chdir('d'); n += 1\nexcept OSError as e: print(e)\nprint(n)\nos._exit(0 if n >= 1000 else 9)",
    ),
    (
        "folders that are closed",
        "os.chdir(src)\nfor n in range(200): os.makedirs(f'a{n}/b/c'); os.chmod(f'a{n}/b', 0)\nos.chmod('a0', 0)\nprint('closed')",
    ),
    (
        "long names in many folders",
        "n = 0\nos.chdir(src)\ntry:\n  for d in range(40):\n    os.mkdir(str(d))\n    for f in range(200): open(f'{d}/' + 'n' * 240 + str(f), 'w').close(); n += 1\nexcept OSError as e: print(e)\nprint(n)",
    ),
];

// mozilla/rr, kata-containers/runtime and others: one run that leaves nothing for the rest of the machine
#[test]
fn floods_of_all_else_are_bounded_and_gone() {
    let mut told = BTreeMap::new();
    for who in EVERYBODY {
        let env = Env::of(who);
        env.commit();
        for (way, body) in FLOODS {
            for level in ["hermetic", "landlock"] {
                let (_, mark) = marker();
                let program = python(&mark, body);
                let program: Vec<&str> = program.iter().map(String::as_str).collect();
                let mut options = vec!["--policy", level, "--timeout", "120s"];
                if level == "hermetic" {
                    options.extend(["--disk", "20MiB", "--pids", "100"]);
                }
                // At that level an ordinary user's processes are not counted and the disk is the machine's; see docs/known-gaps.md.
                if level == "landlock" && (way == "threads" || way == "names of empty files") {
                    continue;
                }
                let ended = flood(&env, &options, &program);
                let what = format!("{who:?} {level} {way}: {} {}", ended.status, ended.result);
                if way == "names of empty files" {
                    assert_eq!((ended.status, &ended.result["outcome"]), (7, &"disk_full".into()), "{what}");
                } else {
                    assert_eq!(ended.status, 0, "{what}");
                }
                assert!(ended.took < Duration::from_secs(120), "{what}");
                assert!(ended.own_kib < OWN_KIB, "{what}: checkrun had {} KiB", ended.own_kib);
                nothing_is_left(&env, &mark);
                told.insert(way, ended.result["tail"].as_str().unwrap().trim().to_owned());
            }
        }
        // The machine has all of it again.
        let again = "a = [os.openpty() for n in range(50)]\nlibc = ctypes.CDLL(None)\nassert libc.inotify_init() >= 0\nos.mkdir('/tmp/x')";
        let program = python("x", again);
        let program: Vec<&str> = program.iter().map(String::as_str).collect();
        drop(env.checkrun(&[&["--"], &program[..]].concat()).expect(0));
    }
    say(&format!("{told:?}"));
}

/// Each goes on until its time is up.
const ENDLESS: [(&str, &str); 4] = [
    ("output", "while True: os.write(1, b'x' * 65536)"),
    ("questions to the supervisor", "while True:\n  try: os.stat('/src/none')\n  except OSError: pass"),
    (
        "processes that ignore signals and fork again",
        "import signal\nfor number in range(1, 32):\n  try: signal.signal(number, signal.SIG_IGN)\n  except OSError: pass\nwhile True:\n  try:\n    if os.fork() == 0: os.setsid()\n    elif os.fork() == 0: os._exit(0)\n  except OSError: pass",
    ),
    (
        "files that come and go",
        "n = 0\nwhile True:\n  n += 1\n  try: os.close(os.open(f'/tmp/{n % 5000}', os.O_CREAT)); os.unlink(f'/tmp/{(n + 2500) % 5000}')\n  except OSError: pass",
    ),
];

// bazelbuild/bazel#1437, #10245: a limit that is answered late, or with somebody left
#[test]
fn what_never_ends_is_over_soon_after_its_time_and_checkrun_stays_small() {
    let mut told = Vec::new();
    for who in EVERYBODY {
        let env = Env::of(who);
        env.commit();
        for (way, body) in ENDLESS {
            let (_, mark) = marker();
            let program = python(&mark, body);
            let program: Vec<&str> = program.iter().map(String::as_str).collect();
            let options = ["--timeout", "2s", "--pids", "100", "--output-limit", "100GiB"];
            let ended = flood(&env, &options, &program);
            assert_eq!(
                (ended.status, &ended.result["outcome"]),
                (124, &"timed_out".into()),
                "{way}: {}",
                ended.result
            );
            let late = ended.took.saturating_sub(Duration::from_secs(2));
            assert!(late < SLACK, "{way}: {late:?} late");
            assert!(ended.own_kib < OWN_KIB, "{way}: checkrun had {} KiB", ended.own_kib);
            nothing_is_left(&env, &mark);
            told.push(format!("{who:?} {way}: {:.2} s late, {} KiB", late.as_secs_f64(), ended.own_kib));
        }
    }
    say(&told.join("\n"));
}

// While one check takes all it can, another one on the same machine is had.
#[test]
fn the_machine_stays_usable_while_a_bomb_goes_off() {
    let mut told = Vec::new();
    for who in EVERYBODY {
        let env = Env::of(who);
        env.commit();
        let (_, mark) = marker();
        let program = python(&mark, ENDLESS[2].1);
        let program: Vec<&str> = program.iter().map(String::as_str).collect();
        let args = [&["--no-cache", "--timeout", "80s", "--pids", "100", "--"], &program[..]].concat();
        let mut bomb = outer(&env, &args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        crate::support::probe::until("the bomb", || bearing(&mark).len() > 20);
        let output: Output = run(&mut env.command(&["--", "sh", "-c", "echo on; exit 3"])).expect(3);
        assert_eq!(output.out(), "on\n");
        assert!(
            bearing(&mark).len() > 1 && bomb.try_wait().unwrap().is_none(),
            "the bomb was over before: {:?}",
            output.took
        );
        told.push(output.took);
        let launcher = child(&bomb.id().to_string()).expect("checkrun");
        assert!(Command::new("kill").args(["-TERM", &launcher]).status().unwrap().success());
        assert_eq!(bomb.wait().unwrap().code(), Some(143));
        nothing_is_left(&env, &mark);
    }
    say(&format!("a check beside a bomb took {told:?}"));
}
