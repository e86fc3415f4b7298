//! The runners that print a line for each test. One function for each; the first whose form a line has takes it.
#![forbid(unsafe_code)]

use crate::model::case::Fate;
use crate::results::Cases;

/// What earlier lines said.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The libtest test whose line is not at its end yet.
    libtest: Option<String>,
    /// nextest has begun its summary, which tells of failures a second time.
    nextest_done: bool,
    /// TAP: how many tests were announced, and how many were seen at the outermost level.
    tap: (Option<u64>, u64),
}

impl State {
    pub(super) fn line(&mut self, line: &str, cases: &mut Cases) {
        let line = line.trim_end_matches('\r');
        let taken = go_json(line, cases)
            || go_plain(line, cases)
            || self.libtest(line, cases)
            || self.nextest(line, cases)
            || pytest(line, cases)
            || self.tap(line, cases);
        let _ = taken;
    }

    pub(super) fn finish(&mut self, cases: &mut Cases) {
        if let Some(id) = self.libtest.take() {
            cases.started(&id);
        }
        if let (Some(announced), seen) = self.tap
            && announced > seen
        {
            cases.ended(&format!("TAP plan 1..{announced}"), Fate::Failed);
        }
    }

    /// `test a::b ... ok`; with one thread the line begins when the test does, and its output may stand in between.
    fn libtest(&mut self, line: &str, cases: &mut Cases) -> bool {
        if let Some(rest) = line.strip_prefix("test ")
            && let Some((name, end)) = rest.split_once(" ... ")
        {
            if let Some(open) = self.libtest.take() {
                cases.started(&open);
            }
            let name = name.strip_suffix(" - should panic").unwrap_or(name).trim();
            match libtest_fate(end) {
                Some(fate) => cases.ended(name, fate),
                None => self.libtest = Some(name.to_owned()),
            }
            return true;
        }
        if self.libtest.is_some() && line.starts_with("test result:") {
            if let Some(id) = self.libtest.take() {
                cases.started(&id);
            }
            return true;
        }
        // The end may follow directly on what the test printed last.
        let end = ["ok", "FAILED"].into_iter().find(|word| line.ends_with(word));
        if let (Some(word), Some(_)) = (end, &self.libtest)
            && let Some(fate) = libtest_fate(word)
            && let Some(id) = self.libtest.take()
        {
            cases.ended(&id, fate);
            return true;
        }
        false
    }

    /// `PASS [   0.005s] crate::binary test::name`, with `TRY 2` before it and `(1/10)` behind it in some versions.
    fn nextest(&mut self, line: &str, cases: &mut Cases) -> bool {
        let line = line.trim_start();
        if line.starts_with("Summary [") {
            self.nextest_done = true;
            return true;
        }
        let Some((word, rest)) = line.split_once(" [") else { return false };
        let word = word.trim_end();
        let word = match word.strip_prefix("TRY ") {
            Some(attempt) => attempt.trim_start_matches(|letter: char| letter.is_ascii_digit()).trim(),
            None => word,
        };
        let fate = match word {
            "PASS" | "LEAK" => Fate::Passed,
            "FAIL" | "TIMEOUT" | "ABORT" | "LEAK-FAIL" | "FLKY-FL" => Fate::Failed,
            "SKIP" => Fate::Skipped,
            _ if word.starts_with("SIG") && word.len() < 12 => Fate::Failed,
            _ => return false,
        };
        let Some((took, name)) = rest.split_once(']') else { return false };
        if !took.chars().all(|letter| letter.is_ascii_digit() || " .s>ms".contains(letter)) {
            return false;
        }
        let name = name.trim_start();
        let name = match name.strip_prefix('(').and_then(|numbered| numbered.split_once(')')) {
            Some((count, name)) if count.contains('/') => name.trim_start(),
            _ => name,
        };
        if !self.nextest_done {
            cases.ended(name, fate);
        }
        true
    }

    /// `ok 1 - name`, `not ok 2 - name # TODO why`; deeper levels are indented and told before what they belong to.
    fn tap(&mut self, line: &str, cases: &mut Cases) -> bool {
        let bare = line.trim_start();
        let outermost = bare.len() == line.len();
        if let Some(count) = bare.strip_prefix("1..") {
            let count = count.split(' ').next().and_then(|count| count.parse().ok());
            if outermost && let Some(count) = count {
                self.tap.0 = Some(count);
            }
            return count.is_some();
        }
        if outermost && let Some(why) = bare.strip_prefix("Bail out!") {
            cases.ended(&format!("TAP bail out {}", why.trim()), Fate::Failed);
            return true;
        }
        let (good, rest) = match (bare.strip_prefix("ok "), bare.strip_prefix("not ok ")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return false,
        };
        let (number, text) = rest.split_once(' ').unwrap_or((rest, ""));
        if number.is_empty() || !number.bytes().all(|digit| digit.is_ascii_digit()) {
            return false;
        }
        if outermost {
            self.tap.1 += 1;
        }
        let text = text.strip_prefix("- ").unwrap_or(text);
        let (name, directive) = text.split_once(" # ").unwrap_or((text, ""));
        let directive = directive.to_ascii_uppercase();
        let fate = match good {
            _ if directive.starts_with("SKIP") || directive.starts_with("TODO") => Fate::Skipped,
            true => Fate::Passed,
            false => Fate::Failed,
        };
        let name = if name.trim().is_empty() { format!("TAP {number}") } else { name.trim().to_owned() };
        cases.ended(&name, fate);
        true
    }
}

fn libtest_fate(end: &str) -> Option<Fate> {
    match end.trim() {
        "ok" => Some(Fate::Passed),
        "FAILED" => Some(Fate::Failed),
        // `ignored, why`; and with times reported, `ok <0.012s>`.
        end if end.starts_with("ignored") => Some(Fate::Skipped),
        end if end.starts_with("ok <") && end.ends_with('>') => Some(Fate::Passed),
        end if end.starts_with("FAILED <") && end.ends_with('>') => Some(Fate::Failed),
        _ => None,
    }
}

/// `go test -json`: one object a line.
fn go_json(line: &str, cases: &mut Cases) -> bool {
    if !line.starts_with("{\"") || !line.contains("\"Action\"") {
        return false;
    }
    let Ok(event) = serde_json::from_str::<serde_json::Value>(line) else { return false };
    let text = |name: &str| event.get(name).and_then(serde_json::Value::as_str);
    let Some(action) = text("Action") else { return false };
    if let (Some(package), Some(test)) = (text("Package"), text("Test")) {
        let id = format!("{package}.{test}");
        match action {
            "run" => cases.started(&id),
            "pass" => cases.ended(&id, Fate::Passed),
            "fail" => cases.ended(&id, Fate::Failed),
            "skip" => cases.ended(&id, Fate::Skipped),
            _ => {}
        }
    }
    true
}

/// `go test -v`: `=== RUN   Test`, then `--- PASS: Test (0.00s)`, indented for sub-tests.
fn go_plain(line: &str, cases: &mut Cases) -> bool {
    if let Some(test) = line.strip_prefix("=== RUN ") {
        cases.started(test.trim());
        return true;
    }
    let Some(rest) = line.trim_start().strip_prefix("--- ") else { return false };
    let Some((word, rest)) = rest.split_once(": ") else { return false };
    let fate = match word {
        "PASS" => Fate::Passed,
        "FAIL" => Fate::Failed,
        "SKIP" => Fate::Skipped,
        _ => return false,
    };
    let Some((test, _)) = rest.rsplit_once(" (") else { return false };
    cases.ended(test, fate);
    true
}

/// `tests/test_a.py::test_x PASSED   [ 50%]` of `pytest -v`, and `PASSED tests/test_a.py::test_x` of its summary.
fn pytest(line: &str, cases: &mut Cases) -> bool {
    // `::` alone stands in addresses and in paths of other languages.
    if !line.contains(".py::") {
        return false;
    }
    if let Some((word, rest)) = line.split_once(' ')
        && let Some(fate) = pytest_fate(word)
    {
        let name = rest.split(" - ").next().unwrap_or(rest);
        if name.contains(".py::") {
            // A failure at tear-down is told of a test that has passed.
            let is_error = word == "ERROR";
            if is_error {
                cases.ended(name, fate)
            } else {
                cases.repeated(name, fate)
            }
            return true;
        }
    }
    let line = line.trim_end();
    let line = match line.rsplit_once(" [") {
        Some((before, share)) if share.ends_with("%]") => before.trim_end(),
        _ => line,
    };
    for word in [" SKIPPED (", " XFAIL ("] {
        if let Some((name, _)) = line.split_once(word) {
            cases.ended(name.trim_end(), Fate::Skipped);
            return true;
        }
    }
    let Some((name, word)) = line.rsplit_once(' ') else { return false };
    let Some(fate) = pytest_fate(word) else { return false };
    if word == "ERROR" || !name.contains(".py::") {
        // The summary tells of an error again.
        return true;
    }
    cases.ended(name.trim_end(), fate);
    true
}

fn pytest_fate(word: &str) -> Option<Fate> {
    match word {
        "PASSED" | "XPASS" => Some(Fate::Passed),
        "FAILED" | "ERROR" => Some(Fate::Failed),
        "SKIPPED" | "XFAIL" => Some(Fate::Skipped),
        "RERUN" => Some(Fate::Failed),
        _ => None,
    }
}
