//! Bits that flip and files that are cut, in all that the cache holds: noticed, said, made anew; never a wrong verdict.
//!
//! `CHECKRUN_FAULTS` says how many there are of each kind.

use crate::support::moments::Moments;
use crate::support::{Env, Output, say};
use std::path::{Path, PathBuf};

fn faults() -> u64 {
    std::env::var("CHECKRUN_FAULTS").map_or(80, |count| count.parse().expect("a number"))
}

/// Flips one bit of a file's content, or cuts it; where and what.
fn harm(whole: &[u8], number: u64, of: u64, moments: &mut Moments) -> (Vec<u8>, String) {
    let length = whole.len() as u64;
    // Spread over the whole of it, with a bit of chance in each part.
    let part = (length / of).max(1);
    let at = usize::try_from((number * length / of + moments.below(part)).min(length - 1)).unwrap();
    let mut bytes = whole.to_vec();
    if number.is_multiple_of(4) {
        bytes.truncate(at);
        return (bytes, format!("cut at {at}"));
    }
    let bit = moments.below(8);
    bytes[at] ^= 1 << bit;
    (bytes, format!("bit {bit} of byte {at}"))
}

/// Every file below a folder, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(entry.path())
            } else if kind.is_file() {
                found.push(entry.path())
            }
        }
    }
    found.sort();
    found
}

fn sound(output: &Output, what: &str) {
    assert!(!output.err().contains("panicked"), "{what}: {}", output.err());
}

// frerich/clcache#263, DanEngelbrecht/golongtail#237: a torn entry is fatal, or is believed
#[test]
fn a_database_with_any_bit_flipped_or_cut_anywhere_gives_no_wrong_answer() {
    let mut moments = Moments::new();
    let env = Env::new();
    env.write("f", "x\n").commit();
    let check = |n: u64| format!("echo out {n}; exit {}", n % 3);
    for n in 0..12 {
        let status = i32::try_from(n % 3).unwrap();
        drop(env.checkrun(&["--", "sh", "-c", &check(n)]).expect(status));
    }
    env.sql("PRAGMA wal_checkpoint(TRUNCATE)");
    let whole = std::fs::read(env.database()).unwrap();
    let (all, mut hits, mut noticed) = (faults() * 2, 0, 0);
    for number in 0..all {
        for suffix in ["-wal", "-shm"] {
            drop(std::fs::remove_file(format!("{}{suffix}", env.database().display())));
        }
        let (harmed, what) = harm(&whole, number, all, &mut moments);
        std::fs::write(env.database(), harmed).unwrap();
        let n = moments.below(12);
        let (script, status) = (check(n), i32::try_from(n % 3).unwrap());
        let known = env.checkrun(&["--cached-only", "--", "sh", "-c", &script]);
        sound(&known, &what);
        assert!(known.status == status || known.status == 125, "{what}: {} for {status}", known.status);
        if known.status == status && known.out() == format!("out {n}\n") {
            hits += 1;
        }
        let listed = env.checkrun(&["log", "--format", "json"]);
        sound(&listed, &what);
        let ran = env.checkrun(&["--", "sh", "-c", &script]).expect(status);
        assert_eq!(ran.out(), format!("out {n}\n"), "{what}: {}", ran.err());
        noticed += usize::from(ran.err().contains("warning") || known.err().contains("warning"));
        // Said once: after a run that is recorded there is nothing more to say of this check.
        let again = env.checkrun(&["--", "sh", "-c", &script]).expect(status);
        assert!(
            again.err().contains("(cached") && !again.err().contains("warning"),
            "{what}: {}",
            again.err()
        );
        for aside in files(&env.path("cache/records/v1")) {
            if aside.file_name().unwrap().to_string_lossy().starts_with("damaged-") {
                std::fs::remove_file(aside).unwrap();
            }
        }
    }
    say(&format!(
        "{all} faults in the database: {hits} harmed no answer, {noticed} were noticed in the one that was asked for"
    ));
}

#[test]
fn kept_output_with_any_bit_flipped_or_cut_anywhere_is_told_or_whole() {
    let mut moments = Moments::new();
    let env = Env::new();
    env.commit();
    let script = "seq 1 20000; exit 3";
    let truth = env.checkrun(&["-q", "--", "sh", "-c", script]).expect(3).stdout;
    let logs = files(&env.path("cache/logs"));
    assert_eq!(logs.len(), 1, "{logs:?}");
    let whole = std::fs::read(&logs[0]).unwrap();
    let (all, mut told) = (faults(), 0);
    for number in 0..all {
        let (harmed, what) = harm(&whole, number, all, &mut moments);
        std::fs::write(&logs[0], harmed).unwrap();
        let hit = env.checkrun(&["--cached-only", "--", "sh", "-c", script]).expect(3);
        sound(&hit, &what);
        let is_told = hit.err().contains("the kept output is damaged");
        assert!(is_told || hit.stdout == truth, "{what}: other bytes, and nothing is said\n{}", hit.err());
        assert!(hit.stdout.len() <= truth.len() + 4096, "{what}: {} bytes", hit.stdout.len());
        let shown = env.checkrun(&["show", "1", "--log"]);
        sound(&shown, &what);
        assert!(
            shown.status == 125 || shown.stdout == truth,
            "{what}: `show --log` gives other bytes and status 0"
        );
        told += usize::from(is_told);
    }
    // A run mends it.
    drop(env.checkrun(&["-q", "--refresh", "--", "sh", "-c", script]).expect(3));
    assert_eq!(env.checkrun(&["show", "1", "--log"]).expect(0).stdout, truth);
    say(&format!("{all} faults in a kept output, {told} of them told"));
}

/// A check that prints all that it sees, and what it must print.
const LOOK: &str =
    "find . -type f | LC_ALL=C sort | while read -r f; do echo $f; cat $f; done; find . | wc -l";

// moby/buildkit, nrwl/nx#8921: what lies in a cache is believed, whatever became of it meanwhile
#[test]
fn a_laid_out_tree_with_any_bit_flipped_or_cut_anywhere_is_made_anew() {
    let mut moments = Moments::new();
    let env = Env::new();
    for n in 0..30 {
        env.write(&format!("d{}/f{n}", n % 4), format!("content of {n}\n").repeat(9));
    }
    env.commit();
    let look =
        |level: &str| env.checkrun(&["--no-cache", "--policy", level, "--", "sh", "-c", LOOK]).expect(0);
    let truth = look("hermetic").out();
    let (all, mut told) = (faults() / 2, 0);
    for number in 0..all {
        // It is made anew each time, so its files are others each time.
        let found = files(&env.path("cache/trees"));
        let pick = usize::try_from(number).unwrap() % found.len();
        // The file beside the layer that says what is in it comes as often as all others together.
        let meta = found.iter().find(|path| path.extension().is_some_and(|end| end == "meta")).unwrap();
        let path = if number.is_multiple_of(2) { meta } else { &found[pick] };
        let (harmed, what) = harm(&std::fs::read(path).unwrap(), moments.below(64), 64, &mut moments);
        // Younger than the clock's tick, a change has the stamp of the making.
        std::thread::sleep(std::time::Duration::from_millis(15));
        std::fs::write(path, harmed).unwrap();
        let level = if number.is_multiple_of(3) { "landlock" } else { "hermetic" };
        let seen = look(level);
        sound(&seen, &what);
        assert_eq!(seen.out(), truth, "{what} of {}: {}", path.display(), seen.err());
        told += usize::from(seen.err().contains("altered"));
        assert!(!look(level).err().contains("altered"), "{what}: said once");
    }
    say(&format!("{all} faults in a laid-out tree, {told} of them told as alterations"));
}

#[test]
fn prepared_packages_with_any_bit_flipped_or_cut_anywhere_are_whole_or_not_there() {
    let mut moments = Moments::new();
    let env = Env::new();
    std::fs::create_dir_all(env.path("home/.config/checkrun/runners")).unwrap();
    let runner = "format = 1\ndescription = \"d\"\nserves = [\"frob\"]\n[[prepare]]\nwhen = [\"lock\"]\n\
         run = \"mkdir -p got/a; seq 1 500 >got/a/one; seq 500 900 >got/two\"\ntree = [\"got\"]\n";
    std::fs::write(env.path("home/.config/checkrun/runners/frob.toml"), runner).unwrap();
    env.write("lock", "1\n").commit();
    let prepare = || drop(env.checkrun(&["prepare", "--runner", "frob"]).expect(0));
    let look =
        || env.checkrun(&["--no-cache", "--runner", "frob", "--", "sh", "-c", "cat got/a/one got/two"]);
    prepare();
    let truth = look().expect(0).out();
    let (all, mut gone, mut told) = (faults(), 0, 0);
    for number in 0..all {
        let mut found = files(&env.path("cache/packages"));
        let layers = files(&env.path("cache/trees")).into_iter();
        found.extend(layers.filter(|path| path.to_string_lossy().contains("/deps-")));
        assert!(found.len() >= 4, "{found:?}");
        let path = &found[usize::try_from(number).unwrap() % found.len()];
        let (harmed, what) = harm(&std::fs::read(path).unwrap(), moments.below(64), 64, &mut moments);
        std::thread::sleep(std::time::Duration::from_millis(15));
        std::fs::write(path, harmed).unwrap();
        let seen = look();
        sound(&seen, &what);
        if seen.status == 0 {
            assert_eq!(seen.out(), truth, "{what} of {}", path.display());
        } else {
            // What was altered is taken away, and that is said; where the note of it cannot be read any more it is as if
            // there had been none: `cat` finds no such folder, and the verdict says why.
            let is_told =
                seen.status == 125 && seen.err().contains("were altered") && seen.err().contains("hint:");
            let is_missing = seen.status == 1 && seen.err().contains("not_prepared");
            assert!(is_told || is_missing, "{what}: {} {}", seen.status, seen.err());
            told += usize::from(is_told);
            gone += 1;
            prepare();
            assert_eq!(look().expect(0).out(), truth, "{what} of {}: prepared again", path.display());
        }
    }
    say(&format!("{all} faults in prepared packages: {told} told, {gone} made anew"));
}
