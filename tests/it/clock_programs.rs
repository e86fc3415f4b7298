//! The fixed clock in programs of many languages, under debuggers and with filters of their own. The table that this
//! makes is `docs/clock-coverage.md`.

use crate::clock_reads::{all_from, readings};
use crate::support::probes::{compile, go, go_build, go_run, must, source};
use crate::support::{Env, Output};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// 2000-01-01T00:00:00Z.
const Y2000: i64 = 946_684_800;
const AT_2000: [&str; 4] = ["--clock", "2000-01-01T00:00:00Z", "--timeout", "300s"];

/// Set, it makes the test write the table instead of comparing it.
const UPDATE: &str = "CHECKRUN_UPDATE_DOCS";

fn at_2000(env: &Env, command: &[&str]) -> Output {
    env.checkrun(&[&AT_2000[..], &["--"], command].concat())
}

/// Programs and how they are run.
fn programs(env: &Env) -> Vec<(&'static str, Vec<&'static str>)> {
    compile(env, "c-dynamic", "reads.c", &["gcc"]);
    compile(env, "c-static", "reads.c", &["gcc", "-static"]);
    compile(env, "c-musl", "reads.c", &["musl-gcc"]);
    compile(env, "c-musl-static", "reads.c", &["musl-gcc", "-static"]);
    go_build(env, "go-static", "reads.go", false);
    go_build(env, "go-cgo", "reads.go", true);
    must(Command::new("rustc").arg("-O").arg("-o").arg(env.repo("rust")).arg(source("reads.rs")));
    must(Command::new("javac").arg("-d").arg(env.path("repo")).arg(source("Reads.java")));
    let python = "import time, datetime
n = time.time_ns(); print('main.time', n // 10**9, n % 10**9)
t = datetime.datetime.now(datetime.timezone.utc); print('main.datetime', int(t.timestamp()), t.microsecond * 1000)
print('main.gmtime', __import__('calendar').timegm(time.gmtime()), 0)";
    let perl = "use Time::HiRes; my ($s, $u) = Time::HiRes::gettimeofday(); print \"main.time \", time, \" 0\\n\"; \
                print \"main.HiRes $s \", $u * 1000, \"\\n\";";
    let node = "const say = (n, ms) => console.log(n, Math.floor(ms / 1000), ms % 1000 * 1000000); \
                say('main.Date.now', Date.now()); say('main.Date', new Date().getTime()); const t = process.hrtime(); \
                setTimeout(() => { const d = process.hrtime(t); if (d[0] * 1e9 + d[1] < 9e7) process.exit(1); \
                say('waited.Date.now', Date.now()); }, 100)";
    vec![
        ("C, glibc, dynamic", vec!["./c-dynamic"]),
        ("C, glibc, static", vec!["./c-static"]),
        ("C, musl, dynamic", vec!["./c-musl"]),
        ("C, musl, static", vec!["./c-musl-static"]),
        ("Go, static", vec!["./go-static"]),
        ("Go, cgo", vec!["./go-cgo"]),
        ("Rust", vec!["./rust"]),
        ("Java", vec!["java", "-cp", ".", "Reads"]),
        ("Node", vec!["node", "-e", node]),
        ("Python", vec!["/usr/bin/python3", "-c", python]),
        ("Perl", vec!["perl", "-e", perl]),
        ("shell and date", vec!["sh", "-c", "echo main.date $(date '+%s %N' | sed 's/ 0*\\(.\\)/ \\1/')"]),
        (
            "bash",
            vec!["bash", "-c", "printf 'main.printf %(%s)T 0\\n' -1; echo main.EPOCHSECONDS $EPOCHSECONDS 0"],
        ),
    ]
}

// chaos-mesh/chaos-mesh#2401, #2742, #2979, #3400; wolfcw/libfaketime#57, #187, #195, #206, #474, #481.
#[test]
fn programs_of_every_language_see_the_date_and_the_table_says_so() {
    let env = Env::new();
    let mut table = String::from(
        "# What sees the fixed clock\n\n\
         Made by a test from what each program printed; where a program reads, and by what. Every reading named here lay\n\
         where the clock had been set to.\n\n\
         | program | where | read by |\n|---|---|---|\n",
    );
    let mut rows = Vec::new();
    for (name, command) in programs(&env) {
        let output = at_2000(&env, &command);
        assert_eq!(output.status, 0, "{name}: {}{}", output.out(), output.err());
        let found = readings(&output.out());
        assert!(!found.is_empty(), "{name} printed nothing");
        all_from(&found, Y2000);
        let mut places: Vec<(&str, Vec<&str>)> = Vec::new();
        for (reading, ..) in &found {
            let (place, way) = reading.split_once('.').expect("place and way");
            match places.iter_mut().find(|(known, _)| *known == place) {
                Some((_, ways)) if ways.contains(&way) => {}
                Some((_, ways)) => ways.push(way),
                None => places.push((place, vec![way])),
            }
        }
        let names: Vec<&str> = places.iter().map(|(place, _)| *place).collect();
        let mut all: Vec<&str> = Vec::new();
        for (place, ways) in &places {
            writeln!(table, "| {name} | {place} | {} |", ways.join(", ")).expect("a String");
            all.extend(ways.iter().filter(|way| !way.starts_with("raw-")));
            all.sort_unstable();
            all.dedup();
        }
        rows.push(format!("| {name} | {} | {} | yes |", names.join(", "), all.join(", ")));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).expect("README.md");
    for row in &rows {
        assert!(readme.contains(row.as_str()), "README.md lacks this row of its table of the clock: {row}");
    }
    let path = root.join("docs/clock-coverage.md");
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &table).expect("docs");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(kept, table, "docs/clock-coverage.md is out of date; {UPDATE}=1 writes it anew");
}

// rr-debugger/rr#2452, proot-me/proot#18: a tracer inside.
#[test]
fn strace_and_gdb_work_inside_and_what_they_start_sees_the_date() {
    let env = Env::new();
    compile(&env, "reads", "reads.c", &["gcc", "-g"]);
    let strace = at_2000(&env, &["strace", "-f", "-o", "/tmp/trace", "./reads"]).expect(0);
    all_from(&readings(&strace.out()), Y2000);
    let counted =
        at_2000(&env, &["sh", "-c", "strace -f -o /tmp/t ./reads >/dev/null && grep -c exited /tmp/t"])
            .expect(0);
    let exited: u32 = counted.out().trim().parse().expect("a count");
    assert!(exited >= 3, "{exited}");
    // What the program was told, and not what a call from here is: gdb 13 can make none on a processor with AMX.
    let script = "break clocks\nrun\nprint before_main.tv_sec\ndelete\ncontinue\n";
    env.write("script", script);
    let gdb = at_2000(&env, &["gdb", "-q", "-batch", "-nx", "-x", "script", "./reads"]).expect(0);
    let out = gdb.out();
    let value = out
        .lines()
        .find_map(|line| line.strip_prefix("$1 = "))
        .and_then(|text| text.trim().parse::<i64>().ok());
    assert!(value.is_some_and(|value| (Y2000..Y2000 + 300).contains(&value)), "{out}");
    let lines: Vec<&str> =
        out.lines().filter(|line| line.starts_with("main.") || line.starts_with("fork.")).collect();
    assert!(lines.len() >= 24, "{out}");
    all_from(&readings(&lines.join("\n")), Y2000);
}

// golang/go#71089, openssl/openssl#18456: a suite that breaks when an embedded certificate ends, in a static binary.
#[test]
fn an_expired_certificate_in_a_static_go_test_is_found_by_date() {
    let env = Env::new();
    let root = go().ancestors().nth(2).expect("its root").to_owned();
    go_run(&["test", "-c", "-o", env.repo("tls.test").to_str().expect("UTF-8"), "crypto/tls"], false);
    must(Command::new("cp").arg("-r").arg(root.join("src/crypto/tls/testdata")).arg(env.repo("testdata")));
    let tests = "-test.run=^(TestVerifyConnection|TestResumptionKeepsOCSPAndSCT)$";
    for (clock, status) in [("2024-11-30T00:00:00Z", 0), ("2025-02-01T00:00:00Z", 1)] {
        let output = env.checkrun(&["--clock", clock, "--timeout", "300s", "--", "./tls.test", tests]);
        assert_eq!(output.status, status, "{clock}: {}{}", output.out(), output.err());
        assert_eq!(output.out().contains("certificate has expired"), status == 1, "{}", output.out());
    }
}

/// The leak checker stops all threads of its own process as a tracer does.
#[test]
fn the_leak_checker_finds_its_leak() {
    let env = Env::new();
    env.write(
        "leak.c",
        "#include <stdlib.h>\nint main(void) { volatile char *p = malloc(7); p = 0; return p != 0; }\n",
    );
    must(
        Command::new("gcc").args(["-fsanitize=address", "-o"]).arg(env.repo("leak")).arg(env.repo("leak.c")),
    );
    let output = at_2000(&env, &["./leak"]);
    assert!(
        output.status != 0 && output.err().contains("LeakSanitizer: detected memory leaks"),
        "{}",
        output.err()
    );
}

#[test]
fn a_program_with_a_strict_filter_of_its_own_still_reads_the_clock() {
    let env = Env::new();
    compile(&env, "filter", "filter.c", &["gcc"]);
    compile(&env, "filter-static", "filter.c", &["gcc", "-static"]);
    for program in ["./filter", "./filter-static"] {
        let output = at_2000(&env, &[program]).expect(0);
        all_from(&readings(&output.out()), Y2000);
    }
}

// shadow/shadow#3763: patching code allocates and deadlocks programs that bring an allocator.
#[test]
fn a_program_with_an_allocator_of_its_own_starts() {
    let env = Env::new();
    env.write(
        "alloc.c",
        "#include <stddef.h>\n#include <time.h>\nstatic char heap[1 << 20]; static size_t used;\n\
         void *malloc(size_t n) { time(NULL); size_t at = used; used += (n + 15) & ~15UL; return heap + at; }\n\
         void free(void *p) { (void)p; }\n\
         void *calloc(size_t n, size_t m) { return malloc(n * m); }\n\
         void *realloc(void *p, size_t n) { char *q = malloc(n), *o = p; if (o) for (size_t i = 0; i < n; i++) q[i] = o[i]; return q; }\n",
    );
    must(
        Command::new("gcc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(env.repo("alloc.so"))
            .arg(env.repo("alloc.c")),
    );
    let output = at_2000(&env, &["env", "LD_PRELOAD=/src/alloc.so", "date", "+%Y"]).expect(0);
    assert_eq!(output.out(), "2000\n");
}

// wolfcw/libfaketime#96, #256, #281, #384: leftovers of one run in the way of others.
#[test]
fn runs_at_the_same_time_have_a_clock_each_and_leave_nothing() {
    let env = Env::new();
    env.write("f", "1").commit();
    let running: Vec<_> = (0..40)
        .map(|index| {
            let clock = format!("{}-06-01T00:00:00Z", 2000 + index);
            let args = ["--no-cache", "--clock", &clock, "--", "sh", "-c", "sleep 0.3; date +%Y"];
            let mut command = env.command(&args);
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
            (2000 + index, command.spawn().expect("checkrun"))
        })
        .collect();
    for (year, child) in running {
        let output = child.wait_with_output().expect("checkrun");
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            format!("{year}\n"),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let left = std::fs::read_dir("/dev/shm").expect("a folder").flatten().map(|entry| entry.file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().contains("checkrun")));
    let runs = std::fs::read_dir(env.path("cache/runs")).map_or(0, Iterator::count);
    assert_eq!(runs, 0);
}
