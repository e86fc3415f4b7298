//! Waits for a date end when the shown clock gets there: at once where it is past, after the real distance where it is
//! ahead, whether the shown date is far before the machine's or far after it. How long a wait takes is compared with
//! bounds that a busy machine keeps: never too short, and minutes at most where a mistake would be years.

use crate::real::{plant, tool};
use crate::support::probes::compile;
use crate::support::{EVERYBODY, Env, Output};

/// A date long past and one far ahead of any machine's.
const DATES: [&str; 2] = ["2000-01-01T00:00:00Z", "2050-01-01T00:00:00Z"];
const MODES: [&str; 2] = ["ticking", "frozen"];
/// Milliseconds that a wait may take longer than it has to.
const LATE: i64 = 60_000;

/// Runs a command under a clock.
fn at(env: &Env, date: &str, mode: &str, command: &[&str]) -> Output {
    let options = ["--clock", date, "--clock-mode", mode, "--timeout", "180s", "--"];
    env.checkrun(&[&options, command].concat())
}

/// Runs `waits.c` for one way and insists on what it tells.
#[track_caller]
fn waits(env: &Env, way: &str, (milliseconds, repeat): (i64, usize), modes: &[&str]) {
    for date in DATES {
        for mode in modes {
            let (distance, times) = (milliseconds.to_string(), repeat.to_string());
            let output = at(env, date, mode, &["./waits", way, &distance, &times]);
            let told = output.out();
            assert_eq!(
                (output.status, told.lines().count()),
                (0, repeat),
                "{way} {date} {mode}: {}",
                output.err()
            );
            for line in told.lines() {
                let mut words = line.split(' ');
                let took: i64 = words.next().and_then(|word| word.parse().ok()).expect("milliseconds");
                // Milliseconds are cut off at both ends.
                let least = milliseconds.max(0) - 1;
                assert!((least..milliseconds.max(0) + LATE).contains(&took), "{way} {date} {mode}: {line}");
                let rest: Vec<&str> = words.collect();
                // A span says nothing of a date.
                let expected = if way == "futex-span" { "same" } else { "reached same" };
                assert!(rest.join(" ").ends_with(expected), "{way} {date} {mode}: {line}");
            }
        }
    }
}

fn all_ways(ways: &[&str]) {
    let env = Env::new();
    compile(&env, "waits", "waits.c", &["gcc", "-O1"]);
    for way in ways {
        waits(&env, way, (120, 2), &MODES);
        waits(&env, way, (7, 2), &MODES);
        if *way != "futex-span" {
            waits(&env, way, (-3_600_000, 2), &MODES);
        }
    }
}

#[test]
fn sleeps_until_a_date_end_at_that_date() {
    all_ways(&["sleep", "sleep-tai"]);
}

// wolfcw/libfaketime#390, #419: timed waits of semaphores and of many threads.
#[test]
fn mutexes_conditions_and_semaphores_end_at_their_date() {
    all_ways(&["mutex", "condition", "semaphore"]);
}

#[test]
fn mutexes_with_inherited_priority_end_at_their_date() {
    all_ways(&["pi-mutex"]);
}

#[test]
fn the_futex_calls_themselves_end_at_their_date_and_spans_stay_spans() {
    all_ways(&["futex", "futex-waitv", "futex-span"]);
}

#[test]
fn timers_and_timer_descriptors_expire_at_their_date() {
    all_ways(&["timer", "timer-descriptor"]);
}

#[test]
fn message_queues_end_at_their_date() {
    all_ways(&["queue-receive", "queue-send"]);
}

/// That library turns dates into spans, which do not move a clock that stands still; so only one that runs is tried.
#[test]
fn musl_waits_as_well() {
    let env = Env::new();
    compile(&env, "waits", "waits.c", &["musl-gcc", "-static"]);
    for way in ["sleep", "mutex", "condition", "semaphore", "futex", "timer", "timer-descriptor"] {
        waits(&env, way, (120, 1), &MODES[..1]);
        waits(&env, way, (-3_600_000, 1), &MODES[..1]);
    }
}

// wolfcw/libfaketime#469, #503: waits on the steady clock and on the system's, through the C++ library.
#[test]
fn the_cpp_library_waits_on_each_of_its_clocks() {
    let env = Env::new();
    compile(&env, "waits", "waits.cc", &["g++", "-std=c++17"]);
    for date in DATES {
        let output = env.checkrun(&["--clock", date, "--timeout", "180s", "--", "./waits"]);
        assert_eq!((output.status, output.out().as_str()), (0, "ok\n"), "{date}: {}", output.err());
    }
}

// tokio-rs/tokio: timers on the steady clock, woken through epoll; the wall clock beside them is the fixed one.
#[test]
fn tokio_waits_as_long_as_it_says_in_both_runtimes() {
    for who in EVERYBODY {
        let env = Env::of(who);
        plant(&env, &tool("tokio-waits"));
        for (date, start) in [(DATES[0], 946_684_800_u64), (DATES[1], 2_524_608_000)] {
            for mode in MODES {
                let output = at(&env, date, mode, &["./tokio-waits", mode]);
                assert_eq!(output.status, 0, "{date} {mode}: {}", output.err());
                let began: u64 = output.out().trim().parse().expect("seconds");
                assert!((start..start + 60).contains(&began), "{date} {mode}: {began}");
            }
        }
    }
}

// wolfcw/libfaketime#419: a lock that all share starves threads.
#[test]
fn sixty_four_threads_wait_at_once_and_none_comes_early() {
    for who in EVERYBODY {
        let env = Env::of(who);
        compile(&env, "crowd", "crowd.c", &["gcc", "-O1"]);
        for date in DATES {
            let output = env.checkrun(&["--clock", date, "--timeout", "180s", "--", "./crowd"]);
            assert_eq!((output.status, output.out().as_str()), (0, "ok\n"), "{date}: {}", output.err());
        }
    }
}

#[test]
fn a_signal_ends_a_wait_and_a_stop_does_not() {
    let env = Env::new();
    compile(&env, "signals", "signals.c", &["gcc", "-O1"]);
    for date in DATES {
        let output = env.checkrun(&["--clock", date, "--timeout", "120s", "--", "./signals", "wait"]);
        assert_eq!((output.status, output.out().as_str()), (0, "ok\n"), "{date}: {}", output.err());
    }
}

// wolfcw/libfaketime#390, #426; adamchainz/time-machine#387: sleeps, events and queues of Python.
#[test]
fn sleeps_and_timed_waits_of_python_end_on_time() {
    let env = Env::new();
    let program = "
import asyncio, queue, select, signal, threading, time
began = time.monotonic()
time.sleep(0.2)
assert threading.Event().wait(0.2) is False
assert threading.Lock().acquire(timeout=0.2)
held = threading.Lock(); held.acquire()
assert not held.acquire(timeout=0.2)
try: queue.Queue().get(timeout=0.2)
except queue.Empty: pass
assert signal.sigtimedwait([signal.SIGUSR1], 0.2) is None
assert select.select([], [], [], 0.2) == ([], [], [])
asyncio.run(asyncio.sleep(0.2))
asyncio.run(asyncio.wait_for(asyncio.sleep(0.1), 60))
took = time.monotonic() - began
assert 1.4 < took < 60, took
";
    for date in DATES {
        for mode in ["ticking", "frozen"] {
            let output = env.python(&["--clock", date, "--clock-mode", mode, "--timeout", "120s"], program);
            assert_eq!(output.status, 0, "{date} {mode}: {}", output.err());
        }
    }
}

/// A wait whose time the supervisor cannot translate is no secret.
#[test]
fn a_wait_that_escapes_the_clock_is_recorded_and_never_answers() {
    let env = Env::new();
    compile(&env, "escape", "escape.c", &["gcc"]);
    env.commit();
    let args = ["--format", "json", "--clock", "2000-01-01T00:00:00Z", "--", "./escape"];
    for _ in 0..2 {
        let output = env.checkrun(&args).expect(0);
        let result = output.json();
        assert_eq!(result["cache"], "miss");
        let state = result["sandbox"]["layers"]["clock"].as_str().expect("a state").to_owned();
        assert!(state.starts_with("partial") && state.contains("`escape` waits for a date"), "{state}");
        assert!(
            output.err().contains("will not answer again: layer `clock` was partial"),
            "{}",
            output.err()
        );
    }
    let explained = env.checkrun(&["explain", "--clock", "2000-01-01T00:00:00Z", "--", "./escape"]).expect(0);
    assert!(explained.out().contains("layer `clock` was partial instead of enforced"), "{}", explained.out());
    drop(
        env.checkrun(&["--cached-only", "--clock", "2000-01-01T00:00:00Z", "--", "./escape"])
            .refused(&["no earlier result answers"]),
    );
}
