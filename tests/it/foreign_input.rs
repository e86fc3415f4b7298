//! Bytes that others wrote, as the built program meets them: on the command line, in files, in commits, in what a check
//! prints, and in each column of each table of the records. It says what is wrong, or goes on; it never dies of it.

use crate::support::corpus::{Seeds, altered, inputs};
use crate::support::{Env, Output, run, say};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRunner};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Seeds, and altered ones: a small part of what `foreign_bytes` gives the parsers themselves.
fn some_of(seeds: &Seeds, most: usize) -> Vec<Vec<u8>> {
    let mut found = seeds.bytes();
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    let strategy = altered(found.clone());
    let more = (usize::try_from(inputs()).unwrap() / 25).min(most);
    found.extend((0..more).map(|_| strategy.new_tree(&mut runner).unwrap().current()));
    found
}

/// checkrun with bounds of its own: two gigabytes of addresses, a minute.
fn bounded(env: &Env, args: &[&OsStr]) -> Output {
    let mut command = env.wrapped(&["timeout", "-s", "KILL", "60", "prlimit", "--as=2000000000:"], &[]);
    run(command.args(args))
}

/// Insists that it ended as a program that knows what it does.
#[track_caller]
fn in_order(output: &Output, statuses: &[i32], what: &str, bytes: &[u8]) {
    let shown = String::from_utf8_lossy(bytes);
    assert!(statuses.contains(&output.status), "{what}: status {}: {shown}\n{}", output.status, output.err());
    assert!(!output.err().contains("panicked"), "{what}: {shown}\n{}", output.err());
    // What is foreign does not reach the terminal as it is.
    assert!(!output.stderr.contains(&0x1b), "{what}: {shown}\n{}", output.err());
    let is_told = output.err().contains("checkrun: error: ") || !output.stdout.is_empty();
    assert!(output.status != 125 || is_told, "{what}: {}", output.err());
}

// moonrepo/moon#1925, vercel/turborepo#6754 and others: a program that dies of its input, and a harness that takes that for a verdict
#[test]
fn words_of_the_command_line_are_refused_in_order() {
    let env = Env::new();
    env.write("f", "x\n").write("sub/g", "g\n").commit();
    let mut count = 0;
    for (kind, option) in [("revisions", "--tree"), ("pathspecs", "--scope"), ("pathspecs", "--touches")] {
        for bytes in some_of(&Seeds::of(kind), 40) {
            let bytes: Vec<u8> = bytes.into_iter().filter(|byte| *byte != 0).collect();
            let words = ["--cached-only", option].map(OsStr::new);
            let rest = ["--", "true"].map(OsStr::new);
            let args = [&words[..], &[OsStr::from_bytes(&bytes)], &rest].concat();
            in_order(&bounded(&env, &args), &[125], option, &bytes);
            count += 1;
        }
    }
    say(&format!("{count} command lines"));
}

#[test]
fn files_are_refused_in_order_with_their_name() {
    let env = Env::new();
    env.write("f", "x\n").commit();
    let runners = env.path("home/.config/checkrun/runners");
    std::fs::create_dir_all(&runners).unwrap();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = [
        ("ledgers", env.repo("ledger.json"), vec!["ledger", "check", "ledger.json"], Seeds::of("ledgers")),
        ("settings", env.repo(".checkrun.toml"), vec!["--cached-only", "--", "true"], Seeds::of("settings")),
        (
            "policies",
            env.repo("own.toml"),
            vec!["--policy", "./own.toml", "--cached-only", "--", "true"],
            Seeds::of("policies").and(&root.join("policies")),
        ),
        (
            "runners",
            runners.join("own.toml"),
            vec!["runners"],
            Seeds::of("runners").and(&root.join("runners")),
        ),
    ];
    let mut count = 0;
    for (kind, path, args, seeds) in places {
        let args: Vec<&OsStr> = args.into_iter().map(OsStr::new).collect();
        for bytes in some_of(&seeds, 40) {
            std::fs::write(&path, &bytes).unwrap();
            let output = bounded(&env, &args);
            in_order(&output, &[0, 125], kind, &bytes);
            let name = path.file_stem().unwrap().to_str().unwrap();
            let named = output.err().contains(name) || output.err().contains("no earlier result");
            assert!(output.status != 125 || named, "{kind}: {}", output.err());
            count += 1;
        }
        std::fs::remove_file(&path).unwrap();
    }
    assert!(env.logged().is_empty());
    say(&format!("{count} files"));
}

#[test]
fn commit_messages_and_what_a_check_prints_are_read_in_order() {
    let env = Env::new();
    env.write("f", "x\n").commit();
    let mut count = 0;
    for bytes in some_of(&Seeds::of("trailers"), 12) {
        // git itself takes no NUL in a message.
        let bytes: Vec<u8> = bytes.into_iter().filter(|byte| *byte != 0).collect();
        std::fs::write(env.path("message"), &bytes).unwrap();
        let message = env.path("message");
        env.git(&[
            "commit",
            "-q",
            "--allow-empty",
            "--allow-empty-message",
            "--cleanup=verbatim",
            "-F",
            message.to_str().unwrap(),
        ]);
        let args = ["reconcile", "--from-history", "HEAD"].map(OsStr::new);
        in_order(&bounded(&env, &args), &[0, 1, 125], "a commit message", &bytes);
        env.git(&["reset", "-q", "--hard", "HEAD~1"]);
        count += 1;
    }
    for bytes in some_of(&Seeds::of("outputs"), 12) {
        env.write("out", &bytes);
        for runner in ["go", "python", "generic"] {
            let args =
                ["--format", "json", "--runner", runner, "--", "sh", "-c", "cat out; exit 6"].map(OsStr::new);
            let output = bounded(&env, &args);
            in_order(&output, &[6], "an output", &bytes);
            assert_eq!((&output.json()["outcome"], &output.json()["exit"]), (&"failed".into(), &6.into()));
        }
        let args = ["flake", "--runs", "2", "--format", "json", "--", "cat", "out"].map(OsStr::new);
        in_order(&bounded(&env, &args), &[0], "an output of a flake", &bytes);
        count += 1;
    }
    say(&format!("{count} messages and outputs"));
}

/// What an altered cell may hold, as SQL.
fn values(seed: u64) -> Vec<String> {
    let digits: String = (0..seed % 90).map(|n| format!("{:02x}", (seed * 7919 + n * 31) % 256)).collect();
    let mut values: Vec<String> = [
        "NULL",
        "-1",
        "9223372036854775807",
        "1e308",
        "''",
        "x''",
        "CAST(x'ff00fe' AS TEXT)",
        "zeroblob(3000000)",
        "randomblob(32)",
        "randomblob(40)",
        "'{\"version\":1}'",
    ]
    .map(str::to_owned)
    .to_vec();
    values.push(format!("x'{digits}'"));
    values
}

// vercel/turborepo#12302, nrwl/nx#31639: whoever can write to the cache; here by chance, in each column of each table
#[test]
fn any_value_in_any_column_of_any_table_of_the_records_gives_no_wrong_answer() {
    let env = Env::new();
    env.write("f", "x\n").write("g", "1\n").commit();
    let check = ["--", "sh", "-c", "cat f; exit 3"];
    drop(env.checkrun(&check).expect(3));
    drop(env.checkrun(&["--", "true"]).expect(0));
    env.sql("PRAGMA wal_checkpoint(TRUNCATE)");
    let whole = std::fs::read(env.database()).unwrap();
    let mut cells = Vec::new();
    for table in env
        .sql("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        .as_array()
        .unwrap()
    {
        let table = table[0].as_str().unwrap().to_owned();
        for column in env.sql(&format!("SELECT name FROM pragma_table_info('{table}')")).as_array().unwrap() {
            cells.push((table.clone(), column[0].as_str().unwrap().to_owned()));
        }
    }
    assert!(cells.len() >= 20, "{cells:?}");
    let beside: [&[&str]; 6] = [
        &["log"],
        &["show", "1"],
        &["explain", "--", "sh", "-c", "cat f; exit 3"],
        &["flakes"],
        &["show", "1", "--inputs"],
        &["gc"],
    ];
    let (mut count, mut hits) = (0_usize, 0);
    for (number, (table, column)) in cells.iter().enumerate() {
        // A third of them for each column; the choice goes round.
        let is_number = |value: &&String| column != "id" || value.parse::<i64>().is_ok();
        for value in values(number as u64).iter().filter(is_number).skip(number % 3).step_by(3) {
            for suffix in ["-wal", "-shm"] {
                drop(std::fs::remove_file(format!("{}{suffix}", env.database().display())));
            }
            std::fs::write(env.database(), &whole).unwrap();
            env.write("g", "1\n");
            env.sql(&format!("UPDATE OR IGNORE {table} SET {column} = {value}"));
            let what = format!("{table}.{column} = {value}");
            // Under the same key, and by observed inputs on another tree.
            if count.is_multiple_of(2) {
                env.write("g", "2\n");
            }
            let known = env.checkrun(&[&["--cached-only"], &check[..]].concat());
            in_order(&known, &[3, 125], &what, b"");
            hits += usize::from(known.status == 3);
            in_order(&env.checkrun(beside[count % beside.len()]), &[0, 1, 125], &what, b"");
            let truth = env.checkrun(&check).expect(3);
            assert_eq!(truth.out(), "x\n", "{what}");
            let again = env.checkrun(&check).expect(3);
            assert!(again.err().contains("(cached"), "{what}: {}", again.err());
            assert!(!again.err().contains("warning"), "{what}: {}", again.err());
            count += 1;
        }
    }
    say(&format!("{count} values in {} columns, {hits} of which harmed no answer", cells.len()));
}
