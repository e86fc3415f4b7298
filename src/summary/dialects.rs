//! The lines in which test runners say how many tests there were. Each function knows one form and gives what a line adds
//! to the counts; which forms a runner's output is searched for is decided in `summary`.
#![forbid(unsafe_code)]

use crate::model::evidence::TestCounts;

const fn counts(passed: u64, failed: u64, skipped: u64) -> TestCounts {
    TestCounts { passed, failed, skipped }
}

/// The number at the start of a text and the word behind it: `3 passed`.
fn number_and_word(text: &str) -> Option<(u64, &str)> {
    let (number, word) = text.trim().split_once(' ')?;
    Some((number.parse().ok()?, word.trim()))
}

/// pytest's last line: `=== 1 failed, 2 passed, 1 xfailed in 0.12s ===`, without the signs under `-q`.
pub(super) fn pytest(line: &str) -> Option<TestCounts> {
    let line = line.trim_matches(|letter| letter == '=' || letter == ' ');
    let (list, took) = line.rsplit_once(" in ")?;
    if !took.split(' ').next()?.strip_suffix('s')?.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    if list == "no tests ran" {
        return Some(counts(0, 0, 0));
    }
    let mut sum = counts(0, 0, 0);
    for part in list.split(',') {
        let (number, word) = number_and_word(part)?;
        match word {
            "passed" | "xpassed" => sum.passed += number,
            "failed" | "error" | "errors" => sum.failed += number,
            "skipped" | "xfailed" => sum.skipped += number,
            "warning" | "warnings" | "deselected" | "rerun" => {}
            _ => return None,
        }
    }
    Some(sum)
}

/// unittest: `Ran 5 tests in 0.1s`, remembered in `ran`, then `OK` or `FAILED (failures=1, errors=1, skipped=2)`.
pub(super) fn unittest(line: &str, ran: &mut Option<u64>) -> Option<TestCounts> {
    if let Some(rest) = line.strip_prefix("Ran ") {
        let (number, word) = number_and_word(rest)?;
        *ran = word.starts_with("test").then_some(number);
        return None;
    }
    let rest = line.strip_prefix("OK").or_else(|| line.strip_prefix("FAILED"));
    let rest = rest.or_else(|| line.strip_prefix("NO TESTS RAN"))?;
    let list = rest.trim();
    let in_brackets = list.starts_with('(') && list.ends_with(')');
    if !(list.is_empty() || in_brackets) {
        return None;
    }
    let all = ran.take()?;
    let mut sum = counts(0, 0, 0);
    for (word, number) in list.trim_matches(['(', ')']).split(", ").filter_map(|part| part.split_once('=')) {
        let number: u64 = number.parse().ok()?;
        match word {
            "failures" | "errors" | "unexpected successes" => sum.failed += number,
            "skipped" | "expected failures" => sum.skipped += number,
            _ => {}
        }
    }
    sum.passed = all.saturating_sub(sum.failed + sum.skipped);
    Some(sum)
}

/// `node --test` and TAP's usual ending: `# pass 3`, `ℹ fail 1`, a line for each.
pub(super) fn node_test(line: &str) -> Option<TestCounts> {
    let rest = line.strip_prefix("# ").or_else(|| line.strip_prefix("\u{2139} "))?;
    let (word, number) = rest.split_once(' ')?;
    let number = number.trim().parse().ok()?;
    match word {
        "pass" => Some(counts(number, 0, 0)),
        "fail" | "cancelled" => Some(counts(0, number, 0)),
        "skipped" | "todo" => Some(counts(0, 0, number)),
        _ => None,
    }
}

/// mocha: `  5 passing (12ms)`, `  1 pending`, `  2 failing`.
pub(super) fn mocha(line: &str) -> Option<TestCounts> {
    if !line.starts_with("  ") {
        return None;
    }
    let (number, word) = number_and_word(line)?;
    match word {
        "pending" => Some(counts(0, 0, number)),
        "failing" => Some(counts(0, number, 0)),
        _ if word.starts_with("passing (") && word.ends_with(')') => Some(counts(number, 0, 0)),
        _ => None,
    }
}

/// jest: `Tests:       1 failed, 2 skipped, 3 passed, 6 total`; vitest: `  Tests  1 failed | 3 passed (4)`.
pub(super) fn jest(line: &str) -> Option<TestCounts> {
    let rest = line.trim_start().strip_prefix("Tests")?;
    let list = match rest.strip_prefix(':') {
        Some(list) => list.trim().rsplit_once(", ")?.0,
        None => rest.strip_prefix("  ")?.trim().rsplit_once(" (")?.0,
    };
    let mut sum = counts(0, 0, 0);
    for part in list.split([',', '|']) {
        let (number, word) = number_and_word(part)?;
        match word {
            "passed" => sum.passed += number,
            "failed" => sum.failed += number,
            "skipped" | "todo" | "pending" => sum.skipped += number,
            _ => return None,
        }
    }
    Some(sum)
}

/// Maven's surefire and failsafe, the sum of a module: `[INFO] Tests run: 5, Failures: 0, Errors: 0, Skipped: 1`. Lines of
/// single classes say how long they took besides.
pub(super) fn surefire(line: &str) -> Option<TestCounts> {
    let at = line.find("Tests run: ").filter(|at| *at == 0 || line.starts_with('['))?;
    let mut numbers = [0_u64; 4];
    let mut parts = line.get(at..)?.split(", ");
    for (number, word) in numbers.iter_mut().zip(["Tests run", "Failures", "Errors", "Skipped"]) {
        let (name, value) = parts.next()?.split_once(": ")?;
        *number = (name == word).then(|| value.trim().parse().ok()).flatten()?;
    }
    if parts.next().is_some() {
        return None;
    }
    let [all, failures, errors, skipped] = numbers;
    let failed = failures.saturating_add(errors);
    Some(counts(all.saturating_sub(failed.saturating_add(skipped)), failed, skipped))
}

/// Gradle, which counts only where something failed: `5 tests completed, 1 failed, 2 skipped`.
pub(super) fn gradle(line: &str) -> Option<TestCounts> {
    let mut parts = line.split(", ");
    let (all, word) = number_and_word(parts.next()?)?;
    if word != "tests completed" && word != "test completed" {
        return None;
    }
    let mut sum = counts(0, 0, 0);
    for part in parts {
        match number_and_word(part)? {
            (number, "failed") => sum.failed = number,
            (number, "skipped") => sum.skipped = number,
            _ => return None,
        }
    }
    sum.passed = all.saturating_sub(sum.failed.saturating_add(sum.skipped));
    Some(sum)
}

/// ctest: `80% tests passed, 1 tests failed out of 5`.
pub(super) fn ctest(line: &str) -> Option<TestCounts> {
    let (_, rest) = line.split_once("% tests passed, ")?;
    let (failed, word) = number_and_word(rest)?;
    let all: u64 = word.rsplit_once("failed out of ")?.1.trim().parse().ok()?;
    Some(counts(all.saturating_sub(failed), failed, 0))
}

/// Automake's summary, `# PASS:  3`, and meson's, `Ok:                 3`; a line for each.
pub(super) fn make_check(line: &str) -> Option<TestCounts> {
    let (word, number) = line.split_once(':')?;
    let number = number.trim().parse().ok()?;
    match word {
        "# PASS" | "Ok" => Some(counts(number, 0, 0)),
        "# FAIL" | "# XPASS" | "# ERROR" | "Fail" | "Unexpected Pass" | "Timeout" => {
            Some(counts(0, number, 0))
        }
        "# SKIP" | "# XFAIL" | "Skipped" | "Expected Fail" => Some(counts(0, 0, number)),
        _ => None,
    }
}

/// TAP: `ok 1 - name`, `not ok 2`, `ok 3 # SKIP why`; only the outermost level counts.
pub(super) fn tap(line: &str) -> Option<TestCounts> {
    let (good, rest) = match line.strip_prefix("not ok") {
        Some(rest) => (false, rest),
        None => (true, line.strip_prefix("ok")?),
    };
    // A bare `ok` is what `prove` says of a file.
    if !rest.starts_with(' ') {
        return None;
    }
    let directive = rest.rsplit_once('#').map(|(_, directive)| directive.trim().to_ascii_uppercase());
    let skipped = directive.is_some_and(|word| word.starts_with("SKIP") || word.starts_with("TODO"));
    Some(match (skipped, good) {
        (true, _) => counts(0, 0, 1),
        (false, true) => counts(1, 0, 0),
        (false, false) => counts(0, 1, 0),
    })
}

/// `prove` without `-v`, which shows no TAP: `Files=2, Tests=5,  0 wallclock secs …`. It counts failures by file only, so
/// this is taken where it has said that all were good.
pub(super) fn prove(line: &str) -> Option<u64> {
    line.strip_prefix("Files=")?.split_once(", Tests=")?.1.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_read_and_what_only_looks_like_it_is_not() {
        type Reader = fn(&str) -> Option<TestCounts>;
        type Counted = Option<(u64, u64, u64)>;
        let all: [(Reader, &str, Counted); 33] = [
            (
                pytest,
                "=== 1 failed, 2 passed, 1 skipped, 1 xfailed, 1 error, 3 warnings in 0.12s ===",
                Some((2, 2, 2)),
            ),
            (pytest, "2 passed in 0.01s", Some((2, 0, 0))),
            (pytest, "=== 200 passed in 75.10s (0:01:15) ===", Some((200, 0, 0))),
            (pytest, "=== no tests ran in 0.01s ===", Some((0, 0, 0))),
            (pytest, "3 apples in 1s", None),
            (pytest, "2 passed in Rome", None),
            (node_test, "# pass 3", Some((3, 0, 0))),
            (node_test, "\u{2139} fail 1", Some((0, 1, 0))),
            (node_test, "# skipped 2", Some((0, 0, 2))),
            (node_test, "# tests 6", None),
            (node_test, "# pass the salt", None),
            (mocha, "  5 passing (12ms)", Some((5, 0, 0))),
            (mocha, "  1 pending", Some((0, 0, 1))),
            (mocha, "  2 failing", Some((0, 2, 0))),
            (mocha, "5 passing (12ms)", None),
            (mocha, "  5 passing cars", None),
            (jest, "Tests:       1 failed, 2 skipped, 3 passed, 6 total", Some((3, 1, 2))),
            (jest, "      Tests  1 failed | 3 passed (4)", Some((3, 1, 0))),
            (jest, "      Tests  no tests", None),
            (jest, "Test Suites: 1 passed, 1 total", None),
            (surefire, "[INFO] Tests run: 5, Failures: 0, Errors: 1, Skipped: 1", Some((3, 1, 1))),
            (
                surefire,
                "[INFO] Tests run: 5, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 0.1 s - in A",
                None,
            ),
            (surefire, "Tests run: 1, Failures: 1, Errors: 0, Skipped: 0", Some((0, 1, 0))),
            (surefire, "we say Tests run: 1, Failures: 1, Errors: 0, Skipped: 0", None),
            (gradle, "5 tests completed, 1 failed, 2 skipped", Some((2, 1, 2))),
            (ctest, "80% tests passed, 1 tests failed out of 5", Some((4, 1, 0))),
            (ctest, "100% tests passed, 0 tests failed out of 5", Some((5, 0, 0))),
            (make_check, "# PASS:  3", Some((3, 0, 0))),
            (make_check, "Expected Fail:      2", Some((0, 0, 2))),
            (make_check, "Fail: to open", None),
            (tap, "ok 1 - a", Some((1, 0, 0))),
            (tap, "not ok 2 - b # TODO later", Some((0, 0, 1))),
            (tap, "ok", None),
        ];
        for (read, line, expected) in all {
            let expected = expected.map(|(passed, failed, skipped)| counts(passed, failed, skipped));
            assert_eq!(read(line), expected, "{line}");
        }
    }

    #[test]
    fn unittests_two_lines_belong_together() {
        for (ending, expected) in [
            ("OK", Some(counts(5, 0, 0))),
            ("OK (skipped=2)", Some(counts(3, 0, 2))),
            ("FAILED (failures=1, errors=1, expected failures=1)", Some(counts(2, 2, 1))),
            ("OK then", None),
        ] {
            let mut ran = None;
            assert_eq!(unittest(ending, &mut ran), None, "nothing ran before");
            assert_eq!(unittest("Ran 5 tests in 0.100s", &mut ran), None);
            assert_eq!(unittest(ending, &mut ran), expected, "{ending}");
        }
    }
}
