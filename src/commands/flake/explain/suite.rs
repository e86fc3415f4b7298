//! A command that runs a suite of tests, and the same suite in other words: in another order, some tests only, twice in one
//! process. Only what the runner itself offers; what a command is that is not known here is not guessed.
#![forbid(unsafe_code)]

use crate::catalogue;
use crate::commands::flake::explain::axes::{Arm, Turn};
use std::time::Duration;

/// Longest command that is made, in bytes; a program start takes a good deal more (execve(2)).
const COMMAND_MAX: usize = 100_000;
/// How often a suite is repeated in one process to see what runs out by and by.
const OFTEN: usize = 50;
/// Only where it takes no longer than this once, of which the start is a good part.
const SHORT: Duration = Duration::from_secs(2);
/// Orders that are tried besides the suite's own and its reverse.
const SHUFFLES: u64 = 2;
/// Options of pytest that take the next word, which may look like a path.
const TAKE_A_WORD: [&[u8]; 16] = [
    b"-c",
    b"--config-file",
    b"--rootdir",
    b"--confcutdir",
    b"--ignore",
    b"--ignore-glob",
    b"--deselect",
    b"--basetemp",
    b"--junitxml",
    b"--junit-xml",
    b"--junit-prefix",
    b"-k",
    b"-m",
    b"-o",
    b"-p",
    b"-W",
];
/// Words of `go test` by which somebody has already said what is run and how often.
const GO_SAID: [&str; 5] = ["run", "shuffle", "count", "args", "json"];

/// A suite whose tests can be named on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Suite {
    /// Program and options; files and folders that were named.
    Pytest { start: Vec<Vec<u8>>, named: Vec<Vec<u8>> },
    /// Everything after `go test`.
    Go { program: Vec<u8>, rest: Vec<Vec<u8>> },
}

impl Suite {
    /// The suite that a command runs; `is_there` says whether the tree has a file or folder of that name.
    pub(super) fn of(argv: &[Vec<u8>], is_there: &dyn Fn(&[u8]) -> bool) -> Option<Self> {
        let first = argv.first()?;
        let name = catalogue::bare(first);
        if name == b"go" && argv.get(1).is_some_and(|word| word == b"test") {
            let said = |word: &Vec<u8>| {
                let word = String::from_utf8_lossy(word);
                let word = word.trim_start_matches('-');
                let word = word.split('=').next().unwrap_or(word);
                GO_SAID.contains(&word.strip_prefix("test.").unwrap_or(word))
            };
            let rest = argv.get(2..)?.to_vec();
            return (!rest.iter().any(said)).then(|| Self::Go { program: first.clone(), rest });
        }
        let options_from = if name == b"pytest" || name == b"py.test" {
            1
        } else if name.starts_with(b"python") {
            let at = argv.iter().skip(1).position(|word| !word.starts_with(b"-") || word == b"-m")? + 1;
            (argv.get(at)? == b"-m" && argv.get(at + 1)? == b"pytest").then_some(at + 2)?
        } else {
            return None;
        };
        let mut start = argv.get(..options_from)?.to_vec();
        let mut named = Vec::new();
        let mut taken = false;
        for word in argv.get(options_from..)? {
            let file = word.split(|byte| *byte == b':').next().unwrap_or(word);
            if !taken && !word.starts_with(b"-") && is_there(file) {
                named.push(word.clone());
            } else {
                start.push(word.clone());
            }
            taken = TAKE_A_WORD.contains(&word.as_slice());
        }
        Some(Self::Pytest { start, named })
    }

    /// The whole suite, with each test told by name.
    pub(super) fn told(&self) -> Vec<Vec<u8>> {
        match self {
            Self::Pytest { start, named } => [start.clone(), vec![b"-vv".to_vec()], named.clone()].concat(),
            Self::Go { program, rest } => go(program, &["-v"], rest),
        }
    }

    /// Those tests only, in that order where the runner keeps it; `None` where they cannot be named.
    pub(super) fn only(&self, tests: &[String]) -> Option<Vec<Vec<u8>>> {
        let argv = match self {
            Self::Pytest { start, .. } => {
                let names = tests.iter().map(|test| test.as_bytes().to_vec()).collect();
                [start.clone(), vec![b"-vv".to_vec()], names].concat()
            }
            Self::Go { program, rest } => {
                let plain =
                    |test: &String| test.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                if !tests.iter().all(plain) {
                    return None;
                }
                let pattern = format!("-run=^({})$", tests.join("|"));
                go(program, &["-v", &pattern], rest)
            }
        };
        (length(&argv) <= COMMAND_MAX).then_some(argv)
    }

    /// Whether tests that are named are run in the order in which they are named.
    pub(super) fn keeps_order(&self) -> bool {
        matches!(self, Self::Pytest { .. })
    }

    /// The suite in other orders, and more than once in one process. `tests` are those of the suite in its own order, `shortest`
    /// is what the shortest run of it took.
    pub(super) fn arms(&self, tests: &[String], shortest: Duration) -> Vec<Arm> {
        let is_short = shortest <= SHORT;
        let arm =
            |axis, cause, what: &str, argv| Arm { axis, cause, turn: Turn::Command(what.to_owned(), argv) };
        let mut arms = Vec::new();
        match self {
            Self::Pytest { start, named } => {
                let mut orders = vec![("tests in reverse order".to_owned(), reversed(tests))];
                orders.extend(
                    (1..=SHUFFLES).map(|seed| (format!("tests shuffled, {seed}"), shuffled(tests, seed))),
                );
                for (what, order) in orders {
                    arms.extend(self.only(&order).map(|argv| arm("order", "test-order", &what, argv)));
                }
                // By pytest's own account a file that is named twice is run twice with this option, each test of it.
                let is_file = |word: &Vec<u8>| word.ends_with(b".py");
                if !named.is_empty() && named.iter().all(is_file) {
                    let times = |times: usize| {
                        let options = vec![b"-vv".to_vec(), b"--keep-duplicates".to_vec()];
                        let repeated = (0..times).flat_map(|_| named.clone()).collect();
                        [start.clone(), options, repeated].concat()
                    };
                    let twice = "each file twice in one process";
                    arms.push(arm("repetition", "non-idempotent", twice, times(2)));
                    let often = times(OFTEN);
                    if is_short && length(&often) <= COMMAND_MAX {
                        let what = format!("each file {OFTEN} times in one process");
                        arms.push(arm("repetition", "non-idempotent", &what, often));
                    }
                }
            }
            Self::Go { program, rest } => {
                for seed in 1..=SHUFFLES + 1 {
                    let argv = go(program, &["-v", &format!("-shuffle={seed}")], rest);
                    arms.push(arm("order", "test-order", &format!("-shuffle={seed}"), argv));
                }
                for times in [10, OFTEN].into_iter().filter(|times| *times < OFTEN || is_short) {
                    let count = format!("-count={times}");
                    let argv = go(program, &["-v", &count], rest);
                    arms.push(arm("repetition", "non-idempotent", &count, argv));
                }
            }
        }
        arms
    }
}

/// Length of a command in bytes, as an exec takes it.
fn length(argv: &[Vec<u8>]) -> usize {
    argv.iter().map(|word| word.len() + 1).sum()
}

fn go(program: &[u8], options: &[&str], rest: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let options = options.iter().map(|option| option.as_bytes().to_vec()).collect();
    [vec![program.to_vec(), b"test".to_vec()], options, rest.to_vec()].concat()
}

fn reversed(tests: &[String]) -> Vec<String> {
    tests.iter().rev().cloned().collect()
}

/// Another order, the same for the same seed (Fisher and Yates; numbers by xorshift64).
fn shuffled(tests: &[String], seed: u64) -> Vec<String> {
    let mut tests = tests.to_vec();
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for at in (1..tests.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let most = u64::try_from(at + 1).unwrap_or(u64::MAX);
        tests.swap(at, usize::try_from(state % most).unwrap_or(0));
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Vec<u8>> {
        text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    fn suite(text: &str) -> Option<Suite> {
        Suite::of(&words(text), &|name| name == b"tests" || name == b"a.py" || name == b"my.ini")
    }

    #[test]
    fn commands_that_run_a_suite_are_known_by_their_words() {
        for text in [
            "pytest",
            "/opt/bin/pytest -q tests",
            "python3 -m pytest a.py",
            "/usr/bin/python3 -I -m pytest",
            "go test ./...",
        ] {
            assert!(suite(text).is_some(), "{text}");
        }
        for text in [
            "python3 a.py",
            "python3 -m unittest",
            "sh -c pytest",
            "go vet ./...",
            "go test -run=A .",
            "make",
        ] {
            assert!(suite(text).is_none(), "{text}");
        }
    }

    #[test]
    fn named_files_give_way_to_names_of_tests_and_options_stay() {
        let suite = suite("pytest -c my.ini -k tests tests a.py::test_x -q").unwrap();
        let only = suite.only(&["a.py::test_y".to_owned()]).unwrap();
        assert_eq!(only, words("pytest -c my.ini -k tests -q -vv a.py::test_y"));
        let go = Suite::of(&words("go test ./..."), &|_| false).unwrap();
        let only = go.only(&["TestA".to_owned(), "TestB".to_owned()]).unwrap();
        assert_eq!(only, words("go test -v -run=^(TestA|TestB)$ ./..."));
        assert_eq!(go.only(&["TestA/with space".to_owned()]), None);
    }

    #[test]
    fn a_suite_is_repeated_often_only_where_that_is_soon_done() {
        for text in ["pytest a.py", "go test ./..."] {
            let times = |secs| {
                let arms = suite(text).unwrap().arms(&["a".to_owned()], Duration::from_secs(secs));
                arms.iter().filter(|arm| arm.axis == "repetition").count()
            };
            assert_eq!((times(1), times(3)), (2, 1), "{text}");
        }
    }

    #[test]
    fn another_order_has_the_same_tests_and_is_the_same_each_time() {
        let tests: Vec<String> = (0..50).map(|number| number.to_string()).collect();
        let mut other = shuffled(&tests, 1);
        assert!(other != tests && other == shuffled(&tests, 1) && other != shuffled(&tests, 2));
        other.sort_by_key(|text| text.parse::<u32>().unwrap());
        assert_eq!(other, tests);
    }
}
