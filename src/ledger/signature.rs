//! What tells one failure from another when a step is tried again and again: the tests that failed, else the end of the
//! output without what changes from run to run.
#![forbid(unsafe_code)]

use crate::ledger::PastFailure;
use crate::model::digest::Digest;
use std::collections::BTreeSet;

/// Attempts that end alike before a step counts as not converging.
const ALIKE: usize = 3;
/// The most of a signature that is kept, in bytes.
const MAX_BYTES: usize = 120;

/// The signature of a failing command's output.
#[must_use]
pub fn signature(cmd: &str, exit: i64, tail: &str) -> String {
    let tests: BTreeSet<&str> = tail.lines().filter_map(failed_test).collect();
    if !tests.is_empty() {
        let all = tests.into_iter().collect::<Vec<_>>().join(" ");
        if all.len() <= MAX_BYTES && !all.chars().any(char::is_control) {
            return all;
        }
        return format!("tests {}", short(&all));
    }
    let lines: Vec<String> = tail.lines().map(normalised).filter(|line| !line.is_empty()).collect();
    format!("output {}", short(&format!("{cmd}\0{exit}\0{}", lines.join("\n"))))
}

fn short(text: &str) -> String {
    Digest::of(text.as_bytes()).hex().chars().take(16).collect()
}

/// The name of the test that a line says has failed, as Go, pytest and Rust's test harness write it.
fn failed_test(line: &str) -> Option<&str> {
    let line = line.trim();
    let word = |text: &str| -> Option<usize> {
        text.find(char::is_whitespace).or(Some(text.len())).filter(|end| *end > 0)
    };
    if let Some(rest) = line.strip_prefix("--- FAIL: ") {
        return word(rest).map(|end| &rest[..end]);
    }
    if let Some(rest) = line.strip_prefix("FAILED ") {
        return word(rest).map(|end| &rest[..end]).filter(|name| name.contains("::"));
    }
    let rest = line.strip_prefix("test ")?;
    let (name, verdict) = rest.split_once(" ... ")?;
    verdict.starts_with("FAILED").then_some(name)
}

/// A line without numbers, addresses and times, and with single blanks.
fn normalised(line: &str) -> String {
    let mut text = String::new();
    for word in line.split_whitespace() {
        if !text.is_empty() {
            text.push(' ');
        }
        let mut in_number = false;
        for letter in word.chars() {
            let is_digit = letter.is_ascii_digit();
            if is_digit && !in_number {
                text.push('#');
            }
            if !is_digit {
                // A hexadecimal number goes on through its letters, and a decimal one through its point.
                let goes_on = in_number && (letter.is_ascii_hexdigit() || matches!(letter, '.' | 'x'));
                if !goes_on {
                    text.push(letter);
                }
                in_number = goes_on;
            } else {
                in_number = true;
            }
        }
    }
    text
}

/// The last failures, if so many of them in a row look alike that another attempt is unlikely to help.
#[must_use]
pub fn converges_not(failures: &[PastFailure]) -> Option<&[PastFailure]> {
    let last = failures.last()?;
    let alike = failures.iter().rev().take_while(|failure| failure.signature == last.signature).count();
    (alike >= ALIKE).then(|| &failures[failures.len() - alike..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_failed_name_a_failure() {
        let go =
            "--- FAIL: TestTokenRoundTrip (0.00s)\n    token_test.go:88: got\nFAIL\tinternal/api\t0.412s";
        assert_eq!(signature("go test", 1, go), "TestTokenRoundTrip");
        let two = "FAILED tests/x.py::test_b - assert\nFAILED tests/x.py::test_a\n";
        assert_eq!(signature("pytest", 1, two), "tests/x.py::test_a tests/x.py::test_b");
        assert_eq!(signature("cargo test", 101, "test a::b ... FAILED\ntest c ... ok\n"), "a::b");
        assert!(
            signature("x", 1, &"test aaaaaaaaaaaaaaaaaaaaaaa ... FAILED\n".replace('a', "ab").repeat(2))
                .len()
                <= MAX_BYTES
        );
    }

    #[test]
    fn what_changes_from_run_to_run_does_not_count() {
        let first = "0x7f3a error at line 12 after 0.41s\n\n";
        let second = "0x1c error   at line 7 after 12.9s\n";
        assert_eq!(signature("c", 1, first), signature("c", 1, second));
        assert_ne!(signature("c", 1, first), signature("c", 2, first));
        assert_ne!(signature("c", 1, first), signature("c", 1, "another error"));
    }

    #[test]
    fn three_alike_in_a_row_are_flagged() {
        let past = |names: &[&str]| -> Vec<PastFailure> {
            names.iter().map(|name| PastFailure { signature: (*name).to_owned(), hypothesis: None }).collect()
        };
        assert!(converges_not(&past(&["a", "a"])).is_none());
        assert!(converges_not(&past(&["a", "a", "b", "a"])).is_none());
        assert_eq!(converges_not(&past(&["b", "a", "a", "a"])).map(<[_]>::len), Some(3));
    }
}
