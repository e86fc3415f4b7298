//! What the check prints: passed through, kept whole, shortened to a tail, and given again. Whatever it prints, memory
//! stays flat.

use crate::support::{EVERYBODY, Env, Output, run};
use std::io::Read;
use std::process::Stdio;

/// The most memory that checkrun itself holds at one time while a check runs, in KiB, and its status.
fn peak_of(env: &Env, args: &[&str]) -> (u64, i32) {
    let mut child = env.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("checkrun");
    let mut peak = 0;
    loop {
        // VmHWM only grows, so the last look is the one that counts (proc_pid_status(5)).
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        if let Some(kib) = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()) {
            peak = peak.max(kib);
        }
        if let Some(status) = child.try_wait().expect("checkrun") {
            return (peak, status.code().unwrap_or(-1));
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

// drmowinckels/entracte#213, MatthewMckee4/karva#982; bkt holds 300 MB of output in memory.
#[test]
fn memory_is_flat_whatever_a_check_prints() {
    let env = Env::new();
    env.commit();
    // Less than a gigabyte shows the same, since what is held would pass the bound at once. The whole one takes longer
    // than the runner's limit: `CHECKRUN_TEST_FLOOD=1 cargo test --test it memory_is_flat`.
    let bytes: u64 = if std::env::var_os("CHECKRUN_TEST_FLOOD").is_some() { 1 << 30 } else { 64 << 20 };
    let size = bytes.to_string();
    // Nine tenths of it are the program itself, twice as large in a build for development as in a release, whose 20 MB are
    // measured by `benches/run`.
    let (silent, status) = peak_of(&env, &["--", "true"]);
    assert_eq!(status, 0);
    for source in [
        "head -c SIZE /dev/zero",
        "yes | head -c SIZE",
        "head -c SIZE /dev/zero >&2",
        "head -c SIZE /dev/urandom",
    ] {
        let script = source.replace("SIZE", &size);
        let args = ["--output-limit", "2GiB", "--", "sh", "-c", &script];
        let (ran, status) = peak_of(&env, &args);
        assert_eq!(status, 0, "{script}");
        let (replayed, status) = peak_of(&env, &args);
        assert_eq!(status, 0, "{script}");
        for (what, peak) in [("run", ran), ("replay", replayed)] {
            assert!((1000..silent + 2_048).contains(&peak), "{script}: {what} with {peak} KiB, of {silent}");
        }
        let hit =
            env.checkrun(&[&["--format", "json", "--cached-only"], &args[..]].concat()).expect(0).json();
        assert_eq!(hit["output_bytes"], bytes, "{script}");
        assert!(hit["tail_bytes"].as_u64().unwrap() <= 2048);
    }
}

/// The result of a Python program as a check.
fn tail_of(env: &Env, program: &str) -> String {
    let answer = env.python(&["--format", "json"], program).expect(0).json();
    let tail = answer["tail"].as_str().unwrap().to_owned();
    assert_eq!(answer["tail_bytes"], tail.len());
    assert!(tail.len() <= 2048, "{}", tail.len());
    tail
}

// smithersai/smithers#182: a cut through a character; one stream starves the other.
#[test]
fn the_tail_begins_at_a_character_or_a_line_and_holds_both_streams() {
    let env = Env::new();
    env.commit();
    for shift in 0..3 {
        let tail = tail_of(&env, &format!("print('x' * {shift} + '€' * 3000, end='')"));
        assert!(tail.chars().all(|c| c == '€') && tail.len() > 2040, "{tail}");
    }
    let lines = tail_of(&env, "for n in range(1000): print('line', n)");
    assert!(lines.starts_with("line ") && lines.ends_with("line 999\n") && lines.len() > 1900, "{lines}");
    let numbers: Vec<u32> = lines.lines().map(|line| line[5..].parse().expect("a whole line")).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]));
    let noisy = "import sys, time\n\
        print('first on stdout', flush=True); time.sleep(0.3)\n\
        sys.stderr.write('noise\\n' * 100); sys.stderr.flush(); time.sleep(0.3)\n\
        print('last on stdout', flush=True)";
    let tail = tail_of(&env, noisy);
    assert!(
        tail.starts_with("first on stdout\nnoise\n") && tail.ends_with("noise\nlast on stdout\n"),
        "{tail}"
    );
    let flood = noisy.replace("* 100", "* 100000");
    assert!(tail_of(&env, &flood).ends_with("noise\nlast on stdout\n"));
}

// saethlin/crater-at-home#57; git-branchless cannot read what is not UTF-8.
#[test]
fn bytes_that_are_not_text_are_kept_and_replaced_only_for_reading() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.commit();
        let args = ["--", "printf", "a\\377b\\000c\\302"];
        let exact = b"a\xffb\0c\xc2";
        assert_eq!(env.checkrun(&args).expect(0).stdout, exact);
        assert_eq!(env.checkrun(&args).expect(0).stdout, exact, "replayed");
        assert_eq!(env.checkrun(&["show", "1", "--log"]).expect(0).stdout, exact);
        let json = env.checkrun(&[&["--format", "json"], &args[..]].concat()).expect(0).json();
        assert_eq!(
            (json["tail"].clone(), json["output_bytes"].clone()),
            ("a\u{fffd}bc\u{fffd}".into(), 6.into())
        );
    }
}

#[test]
fn escapes_and_progress_lines_are_dropped_from_the_tail_alone() {
    let env = Env::new();
    env.commit();
    let program = "import sys; sys.stdout.write('\\x1b[31mred\\x1b[0m\\x1b]0;title\\x07 10%\\r 50%\\r100%\\nend\\x08\\n')";
    assert_eq!(tail_of(&env, program), "100%\nend\n");
    let whole = env.checkrun(&["show", "1", "--log"]).expect(0).stdout;
    assert_eq!(whole, b"\x1b[31mred\x1b[0m\x1b]0;title\x07 10%\r 50%\r100%\nend\x08\n");
}

// vercel/turborepo#897, auth0/auth0-auth-js#162: colour depends on who ran it first.
#[test]
fn a_terminal_on_the_outside_changes_nothing_on_the_inside() {
    let env = Env::new();
    env.commit();
    let script = "for n in 0 1 2; do test -t $n && echo terminal $n; done; echo $TERM $NO_COLOR; test ! -e /dev/tty -o ! -r /dev/tty || cat </dev/null";
    let in_terminal = "import os, pty, sys\n\
        def read(fd):\n    return os.read(fd, 4096)\n\
        sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:], read)))";
    let args = ["--", "sh", "-c", script];
    let first =
        run(env.wrapped(&["/usr/bin/python3", "-c", in_terminal], &args).env("TERM", "xterm")).expect(0);
    assert!(first.out().contains("dumb 1\r\n") && !first.out().contains("terminal"), "{}", first.out());
    assert!(first.out().contains("\u{1b}[32mpassed"), "{}", first.out());
    let second = env.checkrun(&args).expect(0);
    assert_eq!(second.out(), "dumb 1\n");
    assert!(second.err().contains("passed (cached, exact)"), "{}", second.err());
    let replayed =
        run(env.wrapped(&["/usr/bin/python3", "-c", in_terminal], &args).env("TERM", "xterm")).expect(0);
    assert!(replayed.out().starts_with("dumb 1\r\n"), "{}", replayed.out());
}

// nuprl/MultiPL-E#184: long traces cut at 4 KB classify failures wrongly.
#[test]
fn the_whole_output_is_kept_and_given_again() {
    let env = Env::new();
    env.commit();
    let program = "import sys\n\
        print('panic: what happened first')\n\
        for n in range(100):\n    print(f'goroutine {n} [running]:\\n' + '\\tsome/where.go:12 +0x1d\\n' * 20)\n\
        sys.exit(2)";
    let first = env.python(&[], program).expect(2);
    assert!(first.out().starts_with("panic: what happened first\n") && first.stdout.len() > 40_000);
    let file = env.path("home/whole");
    let replayed = env.python(&["--cached-only", "--log", file.to_str().unwrap()], program).expect(2);
    assert_eq!(replayed.stdout, first.stdout);
    assert_eq!(std::fs::read(&file).unwrap(), first.stdout);
    assert_eq!(env.checkrun(&["show", "1", "--log"]).expect(0).stdout, first.stdout);
    let json = env.checkrun(&["show", "1", "--format", "json"]).expect(0).json();
    assert_eq!(json["output_bytes"], first.stdout.len());
    assert!(json["tail"].as_str().unwrap().len() <= 2048);
}

#[test]
fn a_record_is_at_most_four_kibibytes_whatever_is_printed() {
    let env = Env::new();
    env.commit();
    for piece in ["\\n", "\\\"", "\\\\", "\\x01", "\\xff", "€", "\\U0001f600", "\\t", "\\x1b[31m", "x"] {
        let program = format!(
            "import sys; sys.stdout.buffer.write('{piece}'.encode('latin-1' if '{piece}' == '\\xff' else 'utf-8') * 9000)"
        );
        drop(tail_of(&env, &program));
    }
    let long = "d/".repeat(400);
    env.write(&format!("{long}f"), "x");
    drop(env.checkrun(&["--cwd", &long, "--", "sh", "-c", "yes '\"' | head -c 9000"]).expect(0));
    let rows = env
        .sql("SELECT count(*), max(length(evidence)), max(length(evidence) + length(tag)) FROM executions");
    assert_eq!(rows[0][0], 11);
    let largest = rows[0][1].as_u64().unwrap();
    assert!((2048..=4096).contains(&largest), "{rows}");
    // Each still answers.
    drop(
        env.checkrun(&["--cached-only", "--cwd", &long, "--", "sh", "-c", "yes '\"' | head -c 9000"])
            .expect(0),
    );
}

#[test]
fn a_hit_gives_both_streams_apart_and_in_order() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.commit();
        let script =
            "for n in 1 2 3; do echo out $n; sleep 0.2; echo err $n >&2; sleep 0.2; done; printf unfinished";
        let args = ["--", "sh", "-c", script];
        let check = |output: &Output| {
            assert_eq!(output.out(), "out 1\nout 2\nout 3\nunfinished");
            assert!(output.err().starts_with("err 1\nerr 2\nerr 3\n"), "{}", output.err());
            assert!(output.err().lines().last().unwrap().starts_with("checkrun: passed"), "{}", output.err());
        };
        check(&env.checkrun(&args).expect(0));
        check(&env.checkrun(&args).expect(0));
        let merged = "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\nunfinished";
        assert_eq!(env.checkrun(&["show", "1", "--log"]).expect(0).out(), merged);
        // On one descriptor they come as they came.
        let both = run(&mut env.wrapped(&["sh", "-c", "exec \"$0\" \"$@\" 2>&1"], &args)).expect(0);
        assert!(both.out().starts_with(merged), "{}", both.out());
        let events = env.checkrun(&[&["--format", "jsonl", "--show-output"], &args[..]].concat()).expect(0);
        let lines: Vec<serde_json::Value> =
            events.out().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let outputs: Vec<(&str, &str)> = lines
            .iter()
            .filter(|line| line["event"] == "output")
            .map(|line| (line["stream"].as_str().unwrap(), line["text"].as_str().unwrap()))
            .collect();
        assert_eq!(outputs.first(), Some(&("stdout", "out 1\n")));
        assert_eq!(outputs.iter().map(|(_, text)| *text).collect::<String>(), merged);
        assert_eq!(outputs.iter().filter(|(stream, _)| *stream == "stderr").count(), 3);
    }
}

#[test]
fn a_reader_that_goes_away_changes_no_verdict() {
    let env = Env::new();
    env.commit();
    let args = ["--", "sh", "-c", "yes | head -c 3000000; exit 3"];
    for round in ["run", "replay"] {
        let mut child = env.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut start = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut start).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{round}");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(err.starts_with("checkrun: failed, exit 3") && !err.contains("pipe"), "{round}: {err}");
    }
    assert_eq!(
        env.checkrun(&["--cached-only", "--format", "json", "--", "sh", "-c", args[3]]).expect(3).json()["output_bytes"],
        3_000_000
    );
    for words in ["log", "policies hermetic", "man", "completions bash", "show 1 --log"] {
        let output =
            run(&mut env.wrapped(&["sh", "-c", &format!("{{ \"$0\" {words}; echo $? >&2; }} | true")], &[]));
        assert_eq!(output.err(), "0\n", "{words}");
    }
    // A full disk behind stdout is told.
    let full = run(&mut env.wrapped(&["sh", "-c", "exec \"$0\" \"$@\" >/dev/full"], &["--", "echo", "x"]))
        .expect(125);
    assert!(full.err().contains("cannot write to standard output"), "{}", full.err());
}
