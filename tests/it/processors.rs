//! Which processors a check may use: those of its caller, however the sandbox's own processes are spread while they build
//! it; and that a check is told of as it ended, however busy the machine is.

use crate::support::{EVERYBODY, Env};

/// The processors that a process of ours may use, as the kernel lists them.
fn own() -> String {
    listed(&std::fs::read_to_string("/proc/self/status").expect("our own status"))
}

fn listed(status: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("the kernel tells").trim().to_owned()
}

#[test]
fn a_check_may_use_the_processors_that_its_caller_may() {
    let all = own();
    let first = all.split([',', '-']).next().expect("one").to_owned();
    for who in EVERYBODY {
        let env = Env::of(who);
        for allowed in [&all, &first] {
            // The processes of a sandbox move one another while they build it, each time at other moments.
            for round in 0..15 {
                let outer = ["taskset", "-c", allowed];
                let run = ["--no-cache", "-q", "--", "cat", "/proc/self/status"];
                let output = crate::support::run(&mut env.wrapped(&outer, &run)).expect(0);
                assert_eq!(listed(&output.out()), **allowed, "round {round}");
            }
        }
    }
}

// The launcher stopped listening when the supervisor had said its last word, and the init process's was still to be read.
#[test]
fn a_check_is_told_of_as_it_ended_however_busy_the_machine_is() {
    for who in EVERYBODY {
        let env = Env::of(who);
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..40 {
                        let output = env.checkrun(&["--no-cache", "--", "sh", "-c", "exit 3"]);
                        assert_eq!(output.status, 3, "{output:?}");
                    }
                });
            }
        });
    }
}
