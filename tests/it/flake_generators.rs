//! Checks whose truth is known, and whether sessions find it: one each, twenty each with `CHECKRUN_LONG=1`, of which nineteen
//! have to be right.

use crate::support::{Env, Who, say};

/// A check of known truth.
struct Generator {
    name: &'static str,
    /// What makes a difference, so that a short session turns this and one that makes none.
    axis: &'static str,
    command: &'static [&'static str],
    /// `null` for none.
    cause: Option<&'static str>,
}

const PYTHON: &str = "/usr/bin/python3";
const BASE: [Generator; 3] = [
    Generator {
        name: "second boundary",
        axis: "clock",
        command: &["sh", "-c", "[ $(date +%S) != 58 ] && [ $(date +%S) != 59 ]"],
        cause: Some("date"),
    },
    Generator {
        name: "order of a set",
        axis: "hash_seed",
        command: &[PYTHON, "-c", "assert list({'a', 'b', 'c'})[0] != list({'x', 'y', 'z'})[0] != 'x'"],
        cause: Some("unordered-collection"),
    },
    Generator {
        name: "half of the runs",
        axis: "clock",
        command: &["sh", "-c", "[ $(( $(od -An -N1 -tu1 /dev/urandom) < 128 )) = 1 ]"],
        cause: None,
    },
];
/// More of the same kinds, and those that a loaded machine may spoil, or that take long.
const LONG: [Generator; 13] = [
    Generator {
        name: "a host name with capitals",
        axis: "hostname",
        command: &["sh", "-c", "test $(hostname) = $(hostname | tr A-Z a-z)"],
        cause: Some("hostname"),
    },
    Generator {
        name: "root",
        axis: "user",
        command: &["sh", "-c", "test $(id -u) != 0"],
        cause: Some("user"),
    },
    Generator {
        name: "half of the runs take far more memory",
        axis: "memory",
        command: &[PYTHON, "-c", "import os; it = b'x' * (os.urandom(1)[0] % 2 * 160_000_000)"],
        cause: Some("memory"),
    },
    Generator {
        name: "a connection that has to hang",
        axis: "network",
        command: &[
            PYTHON,
            "-c",
            "import socket\ntry: socket.create_connection(('10.255.255.1', 81), timeout=0.1)\nexcept TimeoutError: pass",
        ],
        cause: Some("network"),
    },
    Generator {
        name: "without IPv6",
        axis: "network",
        command: &[PYTHON, "-c", "import socket; socket.create_server(('::1', 0), family=socket.AF_INET6)"],
        cause: Some("network"),
    },
    Generator {
        name: "first name of a folder",
        axis: "listing",
        command: &[PYTHON, "-c", "import os; assert os.listdir('many')[0] in ('0', '1', '2', '3', '4', '5')"],
        cause: Some("directory-order"),
    },
    Generator {
        name: "month end",
        axis: "clock",
        command: &["sh", "-c", "[ $(date -d tomorrow +%d) != 01 ]"],
        cause: Some("date"),
    },
    Generator {
        name: "day of the week",
        axis: "clock",
        command: &["sh", "-c", "[ $(date +%u) != 7 ]"],
        cause: Some("date"),
    },
    Generator {
        name: "port and path that others may have",
        axis: "clock",
        command: &[
            PYTHON,
            "-c",
            "import socket, os; socket.create_server(('127.0.0.1', 8080)); os.mkdir('/tmp/mine')",
        ],
        cause: None,
    },
    Generator {
        name: "one run in ten",
        axis: "hash_seed",
        command: &["sh", "-c", "[ $(( $(od -An -N1 -tu1 /dev/urandom) < 26 )) = 0 ]"],
        cause: None,
    },
    Generator {
        name: "one run in fifty",
        axis: "timezone",
        command: &["sh", "-c", "[ $(( $(od -An -N1 -tu1 /dev/urandom) < 5 )) = 0 ]"],
        cause: None,
    },
    Generator {
        name: "one core",
        axis: "cores",
        command: &[PYTHON, "-c", "import os; assert len(os.sched_getaffinity(0)) > 1"],
        cause: Some("concurrency"),
    },
    Generator {
        name: "a timeout that a fifth of a processor misses",
        axis: "cpu",
        command: &[
            PYTHON,
            "-c",
            "import time\nbegan = time.monotonic()\nwhile time.process_time() < 0.4: pass\nassert time.monotonic() - began < 1.5",
        ],
        cause: Some("async-wait"),
    },
];

/// How many sessions were right.
fn right_of(generator: &Generator, sessions: u32, is_long: bool) -> u32 {
    let mut right = 0;
    for _ in 0..sessions {
        let env = Env::of(Who::Root);
        for name in 0..10 {
            env.write(&format!("many/{name}"), "");
        }
        let mut args = vec!["flake", "--explain", "--format", "json"];
        if !is_long {
            args.extend(["--axis", generator.axis, "--axis", "umask"]);
        }
        args.push("--");
        args.extend(generator.command);
        let told = env.checkrun(&args).json();
        if told["cause"].as_str() == generator.cause {
            right += 1;
        } else {
            say(&format!("{}: wrong: {told}", generator.name));
        }
    }
    right
}

#[test]
fn the_cause_of_a_check_of_known_truth_is_found() {
    let is_long = std::env::var_os("CHECKRUN_LONG").is_some();
    let sessions = if is_long { 20 } else { 1 };
    let also: &[Generator] = if is_long { &LONG } else { &[] };
    for generator in BASE.iter().chain(also) {
        let mut sessions = sessions;
        let mut right = right_of(generator, sessions, is_long);
        if right < sessions && !is_long {
            // A session may be wrong once in a hundred times; two more say whether that was it.
            sessions += 2;
            right += right_of(generator, 2, is_long);
        }
        say(&format!("{}: {right} of {sessions} sessions were right", generator.name));
        assert!(right + 1 >= sessions && right > 0, "{}: {right} of {sessions}", generator.name);
    }
}
