//! Bytes that others wrote, in thousands of forms: each parser of them neither panics nor hangs nor takes much memory.
//!
//! What is called here is what the program itself calls; the same inputs, fewer, are given to the built program in
//! `foreign_input`. Seeds lie in `tests/corpus`. `CHECKRUN_FUZZ` says how many inputs each parser is given.

use crate::support::corpus::{Seeds, altered, inputs};
use crate::support::{Env, say};
use checkrun::catalogue::{self, RepositorySettings};
use checkrun::ledger::{self, Pattern, Update};
use checkrun::logs::{LogReader, LogWriter, Tail};
use checkrun::model::event::Stream;
use checkrun::model::runner::Reading;
use checkrun::results::Results;
use checkrun::sandbox::observer::read_observation_file;
use checkrun::sandbox::wire::{Order, Report};
use checkrun::summary::Summary;
use checkrun::tree::{self, Source};
use checkrun::{cli, key, trailers};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// No input is larger than a few ten thousand bytes, so a parser that needs longer has run away, on any machine.
const LONGEST: Duration = Duration::from_secs(30);

/// Most memory that the whole test may ever have had, in KiB: a parser that takes what a length field says has more.
const MOST_KIB: u64 = 400 << 10;

/// Gives a parser the seeds as they are and then altered; what it does with them is its own business, and a property
/// that does not hold is a failure like a panic.
fn hammer(kind: &str, seeds: &[Vec<u8>], parser: impl Fn(&[u8]) -> Result<(), TestCaseError>) {
    let cases = inputs();
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 500,
        max_global_rejects: 0,
        ..Config::default()
    };
    for seed in seeds {
        parser(seed).unwrap_or_else(|error| panic!("{kind}: {error}: {}", String::from_utf8_lossy(seed)));
    }
    TestRunner::new(config)
        .run(&altered(seeds.to_vec()), |bytes| {
            let began = Instant::now();
            parser(&bytes)?;
            proptest::prop_assert!(began.elapsed() < LONGEST, "it takes {:?}", began.elapsed());
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{kind}: {error}"));
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < MOST_KIB, "{kind}: {peak} KiB at the most");
    say(&format!("{kind}: {} inputs, {} KiB of memory at the most", seeds.len() + cases as usize, peak));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file for parsers that read one, in memory where the machine has such a place.
fn scratch() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("checkrun-it-").tempdir().unwrap()
}

fn repository() -> Env {
    let env = Env::new();
    env.write("f", "x\n")
        .write("sub/dir/g", "g\n")
        .write("a/x/b", "b\n")
        .write("A1", "")
        .write(".gitattributes", "*.c text\nsub export-ignore -text eol=lf\n[attr]m a b\n/a/** !x\n");
    env.commit();
    env.write("f", "y\n").commit();
    env.git(&["tag", "v1"]);
    env
}

// CVE-2022-24765 and others of git: text that names a revision is asked of a library with a grammar of its own.
#[test]
fn any_revision() {
    let env = repository();
    let start = env.repo("");
    hammer("revisions", &Seeds::of("revisions").bytes(), |bytes| {
        drop(tree::resolve(&start, &Source::Revision(text(bytes)), &start));
        Ok(())
    });
}

#[test]
fn any_pathspec() {
    let env = repository();
    let start = env.repo("");
    let snapshot = tree::resolve(&start, &Source::Revision("HEAD".to_owned()), &start).unwrap();
    hammer("pathspecs", &Seeds::of("pathspecs").bytes(), |bytes| {
        drop(snapshot.part(&[text(bytes)]));
        drop(snapshot.part(&["f".to_owned(), text(bytes)]));
        if let Ok(pattern) = Pattern::parse(&text(bytes)) {
            let _ = pattern.covers(b"sub/dir/g");
            let _ = pattern.covers("a/".repeat(200).as_bytes());
        }
        Ok(())
    });
}

/// What is written back is a ledger again, and nothing but what was to change has changed.
#[test]
fn any_ledger_of_every_kind() {
    let place = scratch();
    let path = place.path().join("ledger.json");
    hammer("ledgers", &Seeds::of("ledgers").bytes(), |bytes| {
        std::fs::write(&path, bytes).unwrap();
        let Ok(document) = ledger::read(&path) else { return Ok(()) };
        let same = document.with(&[]);
        proptest::prop_assert_eq!(same.as_bytes(), bytes);
        let updates: Vec<Update> = document
            .ledger
            .steps
            .iter()
            .filter_map(|step| Update::withdrawn(step, document.ledger.shape, "pending"))
            .collect();
        std::fs::write(&path, document.with(&updates)).unwrap();
        let again = ledger::read(&path);
        proptest::prop_assert!(again.is_ok(), "{:?}", again.err().map(|error| error.to_string()));
        Ok(())
    });
}

#[test]
fn any_commit_message() {
    hammer("trailers", &Seeds::of("trailers").bytes(), |bytes| {
        let claims = trailers::read(&text(bytes));
        proptest::prop_assert!(claims.claims.len() <= bytes.len());
        Ok(())
    });
}

#[test]
fn any_settings_of_a_repository() {
    let policy = catalogue::policy("hermetic", None).unwrap().policy;
    hammer("settings of a repository", &Seeds::of("settings").bytes(), |bytes| {
        if let Ok(settings) = RepositorySettings::parse(bytes) {
            drop(catalogue::tighten(&policy, &settings));
        }
        Ok(())
    });
}

#[test]
fn any_policy_and_any_runner() {
    let place = scratch();
    let path = place.path().join("policies/mine.toml");
    let runner = place.path().join("runners/mine.toml");
    for file in [&path, &runner] {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let seeds = Seeds::of("policies").and(&root.join("policies"));
    let name = path.to_str().unwrap();
    hammer("policies", &seeds.bytes(), |bytes| {
        std::fs::write(&path, bytes).unwrap();
        if let Ok(named) = catalogue::policy(name, None) {
            // What is understood can be told, and then means the same.
            let told = catalogue::expand(&named.policy, &named.reasons);
            std::fs::write(&path, &told).unwrap();
            let again = catalogue::policy(name, None);
            proptest::prop_assert!(
                again.as_ref().is_ok_and(|again| key::policy_digest(&again.policy) == key::policy_digest(&named.policy)),
                "{}\n{:?}", told, again.err().map(|error| error.to_string())
            );
        }
        Ok(())
    });
    let seeds = Seeds::of("runners").and(&root.join("runners"));
    hammer("runners", &seeds.bytes(), |bytes| {
        std::fs::write(&runner, bytes).unwrap();
        drop(catalogue::runners(Some(place.path())));
        Ok(())
    });
}

/// go -json, JUnit, TAP and all others, in pieces as a pipe gives them.
#[test]
fn any_output_of_a_test_runner() {
    hammer("outputs of test runners", &Seeds::of("outputs").bytes(), |bytes| {
        for piece in [bytes.len().max(1), 7] {
            let mut results = Results::default();
            let mut summaries = Reading::ALL.map(|(_, reading)| Summary::new(Some(reading)));
            for (number, part) in bytes.chunks(piece).enumerate() {
                results.push(number % 5 == 4, part);
                summaries.iter_mut().for_each(|summary| summary.push(number % 5 == 4, part));
            }
            proptest::prop_assert!(results.finish().len() <= bytes.len());
            for summary in &summaries {
                let _ = summary.tests();
                proptest::prop_assert!(summary.line().is_none_or(|line| line.len() < 4096));
            }
        }
        Ok(())
    });
}

#[test]
fn any_end_of_any_output() {
    hammer("tails", &Seeds::of("outputs").bytes(), |bytes| {
        let mut tail = Tail::new();
        bytes.chunks(97).for_each(|part| tail.push(part));
        let text = tail.text();
        let is_clean = |character: char| !character.is_control() || matches!(character, '\n' | '\t');
        proptest::prop_assert!(text.len() <= 2048 && text.chars().all(is_clean), "{:?}", text);
        Ok(())
    });
}

/// A kept log that somebody altered: what is passed on before the fault is noticed is never more than it could hold.
#[test]
fn any_kept_log() {
    let place = scratch();
    let mut writer = LogWriter::new(place.path());
    for number in 0..400 {
        writer.push(
            if number % 3 == 0 { Stream::Stderr } else { Stream::Stdout },
            format!("line {number}\n").as_bytes(),
        );
    }
    let kept = writer.finish();
    let hex = kept.digest.hex();
    let mut found = Vec::new();
    let mut folders = vec![place.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if entry.path().is_dir() { folders.push(entry.path()) } else { found.push(entry.path()) }
        }
    }
    assert_eq!(found.len(), 1, "one log under {hex}: {found:?}");
    let whole = std::fs::read(&found[0]).unwrap();
    hammer("kept logs", std::slice::from_ref(&whole), |bytes| {
        std::fs::write(&found[0], bytes).unwrap();
        let mut passed = 0_usize;
        let reader = LogReader::open(place.path(), &kept.digest).unwrap().unwrap();
        let done = reader.replay(&mut |_, bytes| {
            passed += bytes.len();
            Ok(())
        });
        // LZ4 makes at most 255 bytes of one.
        proptest::prop_assert!(
            passed <= bytes.len() * 256 + (64 << 10),
            "{} bytes of {}",
            passed,
            bytes.len()
        );
        proptest::prop_assert!(done.is_err() || kept.bytes == passed as u64);
        Ok(())
    });
}

/// Messages between the processes of one sandbox, and what the observer hands over.
#[test]
fn any_message_between_our_processes() {
    let reports = [
        Report::Init(42),
        Report::Started,
        Report::NotExecuted(2),
        Report::Ended { ending: Ok(7), leftovers: 3, network: true },
        Report::Escaped("why".to_owned()),
        Report::Observed,
        Report::Unobserved("why".to_owned()),
        Report::Usage { user_us: 1, sys_us: 2, max_rss_kib: 3, written_bytes: 4, full: true },
    ];
    let mut seeds: Vec<Vec<u8>> = reports.iter().map(Report::encode).collect();
    seeds.extend([Order::Go, Order::Signal(15), Order::Join].map(|order| order.encode().to_vec()));
    seeds.push([&[2, 5, 13, 0, 0, 0][..], b"/detail \xff"].concat());
    seeds.push([&[3, 6, 0, 0, 0][..], b"/src/a\x01\xff\xff\xff\xff"].concat());
    hammer("messages between our processes", &seeds, |bytes| {
        if let Some(report) = Report::decode(bytes) {
            let coded = report.encode();
            proptest::prop_assert!(Report::decode(&coded).is_some());
        }
        if let Some(order) = Order::decode(bytes) {
            proptest::prop_assert_eq!(Order::decode(&order.encode()), Some(order));
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let seen = read_observation_file(file.into());
        proptest::prop_assert!(seen.is_none_or(|seen| seen.len() * 5 <= bytes.len()));
        Ok(())
    });
}

/// Commands given as one string, and what the pre-image of a key says was asked.
#[test]
fn any_command_and_any_preimage() {
    let seeds =
        ["go test ./...", "a 'b c' \"d\\\"e\" f\\ g", "x && y | z > w", "'", "\"\\", "a=b c", "~ $HOME `x`"];
    hammer("commands", &seeds.map(|seed| seed.as_bytes().to_vec()), |bytes| {
        drop(cli::split(bytes));
        Ok(())
    });
    // The version, then a name, a kind and what it holds, with lengths in front.
    let field = |name: &str, kind: u8, rest: &[u8]| {
        let length = u8::try_from(name.len()).unwrap();
        [&[length, 0, 0, 0][..], name.as_bytes(), &[kind], rest].concat()
    };
    let seeds: Vec<Vec<u8>> = (0..8)
        .flat_map(|version| {
            (0..4).map(move |kind| {
                [&[version][..], &field("argv", kind, &[2, 0, 0, 0, 1, 0, 0, 0, b'x', 255, 255, 255, 255])]
                    .concat()
            })
        })
        .collect();
    hammer("pre-images", &seeds, |bytes| {
        let asked = key::asked(bytes);
        proptest::prop_assert!(asked.argv.len() <= bytes.len() && asked.scope.len() <= bytes.len());
        drop(key::argv_of(bytes));
        drop(key::differences(bytes, &seeds[0]));
        Ok(())
    });
}
