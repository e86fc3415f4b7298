//! What time it is inside: every way of reading the wall clock shows one timeline that starts where it was told to.
//! Waits are in `clock_waits`, languages and debuggers in `clock_programs`, options in `clock_options`.

use crate::support::probes::compile;
use crate::support::{EVERYBODY, Env};

/// 2000-01-01T00:00:00Z.
const Y2000: i64 = 946_684_800;
const AT_2000: [&str; 2] = ["--clock", "2000-01-01T00:00:00Z"];

/// Names, seconds and nanoseconds of a probe's lines.
#[track_caller]
pub fn readings(text: &str) -> Vec<(String, i64, i64)> {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let mut word = || words.next().unwrap_or_else(|| panic!("{line}"));
        (word().to_owned(), word().parse().expect("seconds"), word().parse().expect("nanoseconds"))
    };
    text.lines().map(line).collect()
}

/// Insists that every reading lies in the five minutes from `start` on; a run takes far less.
#[track_caller]
pub fn all_from(readings: &[(String, i64, i64)], start: i64) {
    for (name, seconds, nanoseconds) in readings {
        assert!((start..start + 300).contains(seconds), "{name}: {seconds}");
        assert!((0..1_000_000_000).contains(nanoseconds), "{name}: {nanoseconds}");
    }
}

// wolfcw/libfaketime#82, #195, #481; shadow/shadow#1948: static programs and callers of the vDSO see the date too.
#[test]
fn every_reading_of_a_c_program_shows_the_date_however_it_is_linked() {
    for who in EVERYBODY {
        let env = Env::of(who);
        compile(&env, "dynamic", "reads.c", &["gcc"]);
        compile(&env, "static", "reads.c", &["gcc", "-static"]);
        compile(&env, "musl", "reads.c", &["musl-gcc"]);
        compile(&env, "musl-static", "reads.c", &["musl-gcc", "-static"]);
        for program in ["./dynamic", "./static", "./musl", "./musl-static"] {
            let output = env.checkrun(&[&AT_2000[..], &["--", program]].concat()).expect(0);
            let found = readings(&output.out());
            assert_eq!(found.len(), 1 + 4 * 12, "{program}: {}", output.out());
            all_from(&found, Y2000);
        }
    }
}

// google/gvisor#8118: time does not go backwards between two reads.
#[test]
fn no_thread_sees_the_clock_step_back_whichever_way_it_reads() {
    let env = Env::new();
    compile(&env, "order", "order.c", &["gcc", "-O1"]);
    for clock in ["1999-12-31T23:59:59Z", "2049-12-31T23:59:59Z"] {
        let output = env.checkrun(&["--clock", clock, "--", "./order"]).expect(0);
        assert_eq!(output.out(), "ok\n");
    }
}

// vi/timeskew#2: each process starts its own timeline.
#[test]
fn processes_one_after_the_other_share_one_timeline() {
    let env = Env::new();
    let script = "for i in 1 2 3 4 5; do date +%s.%N; sleep 0.1; done; sh -c 'exec sh -c \"exec date +%s.%N\"'; \
                  (sleep 0.1; date +%s.%N) & wait";
    let output = env.checkrun(&[&AT_2000[..], &["--", "sh", "-c", script]].concat()).expect(0);
    let times: Vec<f64> = output.out().lines().map(|line| line.parse().expect("a time")).collect();
    assert_eq!(times.len(), 7);
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
    assert!(times[0] >= 946_684_800.0 && times[6] - times[0] > 0.6 && times[6] < 946_685_100.0, "{times:?}");
}

// chaos-mesh/chaos-mesh#3612, #3725: children that are forked after the start.
#[test]
fn workers_that_a_server_forks_later_see_the_date() {
    let env = Env::new();
    let program = "
import os, time
def chain(depth):
    if depth == 0:
        os.execv('/bin/date', ['date', '+%s'])
    if depth % 2:
        os.posix_spawn('/usr/bin/python3', ['python3', '-c', 'import time; print(int(time.time()))'], os.environ)
        os.wait()
    if os.fork() == 0:
        print(int(time.time()), flush=True)
        chain(depth - 1)
    os.wait()
    os._exit(0)
chain(6)
";
    let output = env.python(&AT_2000, program).expect(0);
    let times: Vec<i64> = output.out().lines().map(|line| line.parse().expect("a time")).collect();
    assert_eq!(times.len(), 3 + 6 + 1, "{}", output.out());
    assert!(times.iter().all(|time| (Y2000..Y2000 + 300).contains(time)), "{times:?}");
}

// wolfcw/libfaketime#440: the monotonic clock jumps to the date; shadow/shadow#1968: it stands still.
#[test]
fn monotonic_time_starts_small_and_flows_and_so_does_uptime() {
    for mode in ["ticking", "frozen"] {
        let env = Env::new();
        let program = "
import time, ctypes, threading
class Info(ctypes.Structure):
    _fields_ = [('uptime', ctypes.c_long), ('rest', ctypes.c_char * 512)]
def all():
    info = Info()
    assert ctypes.CDLL(None).sysinfo(ctypes.byref(info)) == 0
    return [time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME), time.clock_gettime(time.CLOCK_MONOTONIC_RAW),
            float(open('/proc/uptime').read().split()[0]), info.uptime]
first = all()
time.sleep(1.1)
second = all()
for before, after in zip(first, second):
    assert 99 <= before < 300, first
    assert 1 <= after - before < 100, (first, second)
";
        let output = env.python(&["--clock", "2000-01-01T00:00:00Z", "--clock-mode", mode], program);
        assert_eq!(output.status, 0, "{mode}: {}", output.err());
    }
}

#[test]
fn bad_calls_fail_as_the_kernel_lets_them_and_nobody_sets_the_clock() {
    for who in EVERYBODY {
        let env = Env::of(who);
        compile(&env, "settimes", "settimes.c", &["gcc"]);
        for mode in ["ticking", "frozen"] {
            let output = env.checkrun(&["--clock-mode", mode, "--", "./settimes"]);
            assert_eq!(output.out(), "ok\n", "{mode}: {}", output.err());
        }
    }
}

// dettrace/dettrace#238: the years before 1980; python/cpython#124851, borgbackup/borg#6996: those after 2038.
#[test]
fn the_first_and_the_last_years_can_be_shown() {
    let env = Env::new();
    compile(&env, "reads", "reads.c", &["gcc"]);
    for (clock, start) in [
        ("1970-01-01T00:00:00Z", 0),
        ("1975-06-01T00:00:00Z", 170_812_800),
        ("2038-01-19T03:14:07Z", 2_147_483_647),
        ("2106-02-07T06:28:15Z", 4_294_967_295),
        ("2262-01-01T00:00:00Z", 9_214_646_400),
    ] {
        let output = env.checkrun(&["--clock", clock, "--", "./reads"]).expect(0);
        all_from(&readings(&output.out()), start);
    }
}

/// A call that waits for its answer can be interrupted, which no reading of a clock may show.
#[test]
fn signals_do_not_make_readings_fail() {
    let env = Env::new();
    compile(&env, "signals", "signals.c", &["gcc"]);
    assert_eq!(env.checkrun(&["--", "./signals", "read"]).out(), "ok\n");
    assert_eq!(env.checkrun(&["--clock-mode", "frozen", "--", "./signals", "frozen"]).out(), "ok\n");
}

// travisjeffery/timecop#425: loops that wait for a clock that stands still never end.
#[test]
fn a_frozen_clock_stands_and_a_program_that_spins_on_it_ends() {
    let env = Env::new();
    let frozen = ["--clock", "2000-01-01T00:00:00Z", "--clock-mode", "frozen", "--timeout", "120s"];
    let stands = env.checkrun(
        &[&frozen[..], &["--", "sh", "-c", "date +%s; sleep 1.2; date +%s; sleep 1.2; date +%s"]].concat(),
    );
    assert_eq!(stands.out(), "946684800\n946684800\n946684800\n", "{}", stands.err());
    let program = "
import time, threading
began, steady = time.time(), time.monotonic()
while time.time() < began + 1: pass
assert time.time() - began < 60
assert time.monotonic() - steady < 60
seen = [time.time_ns() for _ in range(100)]
assert seen == sorted(set(seen)), seen
time.sleep(0.2)
assert threading.Event().wait(0.2) is False
";
    let output = env.python(&frozen, program);
    assert_eq!(output.status, 0, "{}", output.err());
}
