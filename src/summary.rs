//! Reads counts of tests and a one-line summary from a runner's output as it comes. The command's own exit status
//! stays the authority; counts can only make a verdict worse.
#![forbid(unsafe_code)]

mod dialects;

use crate::model::evidence::TestCounts;
use crate::model::lines::Lines;
use crate::model::runner::Reading;

/// Longer lines are looked at no further than this; counts stand in short ones.
const LINE_MAX: usize = 4096;
/// Longest summary that is kept, in bytes.
const SUMMARY_MAX: usize = 160;

/// A reader of one run's output.
#[derive(Debug)]
pub struct Summary {
    reading: Option<Reading>,
    lines: Lines,
    counts: Option<TestCounts>,
    /// unittest has said how many tests it ran, and not yet how they went.
    ran: Option<u64>,
    /// `prove` has said that all went well.
    all_good: bool,
    packages: u64,
    last: Option<String>,
}

impl Summary {
    /// A reader for output of that kind; `None` counts nothing.
    #[must_use]
    pub fn new(reading: Option<Reading>) -> Self {
        Self {
            reading,
            lines: Lines::default(),
            counts: None,
            ran: None,
            all_good: false,
            packages: 0,
            last: None,
        }
    }

    /// Takes what was printed, `stderr` or stdout.
    pub fn push(&mut self, stderr: bool, bytes: &[u8]) {
        if self.reading.is_none() {
            return;
        }
        let mut lines = std::mem::take(&mut self.lines);
        lines.push(stderr, bytes, LINE_MAX, |line| self.line_read(line));
        self.lines = lines;
    }

    /// Takes counts from elsewhere, where the output has told none: told twice, they are the same tests.
    pub fn take(&mut self, counts: Option<TestCounts>) {
        self.counts = self.counts.or(counts);
    }

    /// Tests as counted, if the runner counts them.
    #[must_use]
    pub fn tests(&self) -> Option<TestCounts> {
        self.counts
    }

    /// One line that says what happened, if the runner gives one.
    #[must_use]
    pub fn line(&self) -> Option<String> {
        let counts = self.counts.map(|counts| {
            let mut text = format!("{} passed", counts.passed);
            for (number, word) in [(counts.failed, "failed"), (counts.skipped, "skipped")] {
                if number > 0 {
                    text = format!("{text}, {number} {word}");
                }
            }
            text
        });
        match (&self.last, counts) {
            (Some(last), Some(counts)) if self.packages > 1 => {
                Some(format!("{last}  ({} packages, {counts})", self.packages))
            }
            (Some(last), Some(counts)) => Some(format!("{last}  {counts}")),
            (Some(last), None) if self.packages > 1 => Some(format!("{last}  ({} packages)", self.packages)),
            (Some(last), None) => Some(last.clone()),
            (None, counts) => counts,
        }
    }

    fn line_read(&mut self, line: &str) {
        let line = &plain(line);
        let found = match self.reading {
            Some(Reading::Go) => return self.go(line),
            Some(Reading::Rust) => return self.rust(line),
            Some(Reading::Python) => {
                dialects::pytest(line).or_else(|| dialects::unittest(line, &mut self.ran))
            }
            Some(Reading::Node) => {
                dialects::node_test(line).or_else(|| dialects::mocha(line)).or_else(|| dialects::jest(line))
            }
            Some(Reading::Java) => dialects::surefire(line).or_else(|| dialects::gradle(line)),
            Some(Reading::Make) => dialects::ctest(line).or_else(|| dialects::make_check(line)),
            Some(Reading::Tap) => dialects::tap(line).or_else(|| self.prove(line)),
            None => None,
        };
        if let Some(found) = found {
            self.add(found.passed, found.failed, found.skipped);
        }
    }

    fn prove(&mut self, line: &str) -> Option<TestCounts> {
        self.all_good |= line == "All tests successful.";
        let passed = dialects::prove(line).filter(|_| self.all_good && self.counts.is_none())?;
        Some(TestCounts { passed, failed: 0, skipped: 0 })
    }

    fn add(&mut self, passed: u64, failed: u64, skipped: u64) {
        let counts = self.counts.get_or_insert(TestCounts { passed: 0, failed: 0, skipped: 0 });
        counts.passed = counts.passed.saturating_add(passed);
        counts.failed = counts.failed.saturating_add(failed);
        counts.skipped = counts.skipped.saturating_add(skipped);
    }

    fn go(&mut self, line: &str) {
        if line.starts_with('{') {
            let Ok(event) = serde_json::from_str::<serde_json::Value>(line) else { return };
            let text = |name: &str| event.get(name).and_then(serde_json::Value::as_str);
            // Sub-tests are counted with their parent, as the plain form does.
            match (text("Action"), text("Test")) {
                (Some("pass"), Some(test)) if !test.contains('/') => self.add(1, 0, 0),
                (Some("fail"), Some(test)) if !test.contains('/') => self.add(0, 1, 0),
                (Some("skip"), Some(test)) if !test.contains('/') => self.add(0, 0, 1),
                (Some("output"), None) => self.go_package(text("Output").unwrap_or_default().trim_end()),
                _ => {}
            }
            return;
        }
        match line.get(..9) {
            Some("--- PASS:") => self.add(1, 0, 0),
            Some("--- FAIL:") => self.add(0, 1, 0),
            Some("--- SKIP:") => self.add(0, 0, 1),
            _ => self.go_package(line),
        }
    }

    /// `ok`, the package and the time, or `FAIL` and these, with tabs between.
    fn go_package(&mut self, line: &str) {
        let mut words = line.split('\t');
        let (word, package) = (words.next().unwrap_or_default().trim_end(), words.next());
        if let ("ok" | "FAIL", Some(package)) = (word, package) {
            self.packages += 1;
            // The first failure says more than any later pass.
            if word == "FAIL" || !self.last.as_ref().is_some_and(|last| last.starts_with("FAIL")) {
                self.last = Some(clipped(&format!("{word}  {package}")));
            }
        }
    }

    /// `test result: ok. 12 passed; 0 failed; 1 ignored; …`, or nextest's `Summary [ 0.5s] 12 tests run: 11 passed, 1 failed, 1 skipped`.
    fn rust(&mut self, line: &str) {
        let nextest = line.trim_start().starts_with("Summary [");
        if !nextest && !line.starts_with("test result: ") {
            return;
        }
        let number = |word: &str| {
            let before = line.find(&format!(" {word}")).and_then(|at| line.get(..at)).unwrap_or_default();
            before.rsplit(' ').next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
        };
        let skipped = if nextest { number("skipped") } else { number("ignored") };
        self.add(number("passed"), number("failed"), skipped);
    }
}

/// A line without the colours that some runners use whatever they are told.
fn plain(line: &str) -> std::borrow::Cow<'_, str> {
    let line = line.trim_end_matches('\r');
    if !line.contains('\x1b') {
        return line.into();
    }
    let mut pieces = line.split("\x1b[");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        // A control sequence ends with its first letter (ECMA-48, 5.4).
        let end = piece.find(|letter: char| letter.is_ascii_alphabetic()).map_or(piece.len(), |at| at + 1);
        text.push_str(&piece[end..]);
    }
    text.into()
}

fn clipped(text: &str) -> String {
    let end = (0..=text.len().min(SUMMARY_MAX)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(reading: Reading, output: &str) -> (Option<TestCounts>, Option<String>) {
        let mut summary = Summary::new(Some(reading));
        // In small pieces, as pipes give them.
        for piece in output.as_bytes().chunks(7) {
            summary.push(false, piece);
        }
        (summary.tests(), summary.line())
    }

    #[test]
    fn counts_are_read_from_each_dialect() {
        let counts = |passed, failed, skipped| Some(TestCounts { passed, failed, skipped });
        let plain = "ok  \tx/a\t0.1s\nok  \tx/b\t0.1s\n";
        assert_eq!(read(Reading::Go, plain), (None, Some("ok  x/b  (2 packages)".into())));
        let verbose = "=== RUN   TestA\n--- PASS: TestA (0.00s)\n    --- PASS: TestA/sub (0.00s)\n--- SKIP: TestB (0.00s)\nPASS\nok  \tx/a\t0.1s\n";
        assert_eq!(read(Reading::Go, verbose).0, counts(1, 0, 1));
        let json = "{\"Action\":\"pass\",\"Test\":\"TestA\"}\n{\"Action\":\"pass\",\"Test\":\"TestA/s\"}\n{\"Action\":\"fail\",\"Test\":\"TestB\"}\n{\"Action\":\"output\",\"Output\":\"FAIL\\tx/a\\t0.1s\\n\"}\n";
        assert_eq!(read(Reading::Go, json), (counts(1, 1, 0), Some("FAIL  x/a  1 passed, 1 failed".into())));
        let cargo = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out\n test result: no\ntest result: FAILED. 1 passed; 2 failed; 0 ignored\n";
        assert_eq!(read(Reading::Rust, cargo).0, counts(13, 2, 1));
        let nextest = "     Summary [   0.504s] 12 tests run: 11 passed, 1 failed, 2 skipped\n";
        assert_eq!(read(Reading::Rust, nextest).0, counts(11, 1, 2));
        let colours = "\x1b[1m\x1b[32m==== 2 passed\x1b[0m in 0.01s ====\x1b[m\r\n";
        assert_eq!(read(Reading::Python, colours), (counts(2, 0, 0), Some("2 passed".into())));
        let prove = "t/a.t .. ok\nAll tests successful.\nFiles=1, Tests=5,  0 wallclock secs\nResult: PASS\n";
        assert_eq!(read(Reading::Tap, prove).0, counts(5, 0, 0));
        let mut none = Summary::new(None);
        none.push(false, cargo.as_bytes());
        assert_eq!((none.tests(), none.line()), (None, None));
    }
}
