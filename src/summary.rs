//! Reads counts of tests and a one-line summary from a runner's output as it comes. The command's own exit status
//! stays the authority; counts can only make a verdict worse.
#![forbid(unsafe_code)]

use crate::model::evidence::TestCounts;

/// Longer lines are looked at no further than this; counts stand in short ones.
const LINE_MAX: usize = 4096;
/// Longest summary that is kept, in bytes.
const SUMMARY_MAX: usize = 160;

/// How a runner's output is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dialect {
    /// `go test`, plain, `-v` and `-json`.
    Go,
    /// `cargo test` and `cargo nextest run`.
    Rust,
    /// None is known.
    Unknown,
}

/// A reader of one run's output.
#[derive(Debug)]
pub struct Summary {
    dialect: Dialect,
    lines: [Vec<u8>; 2],
    counts: Option<TestCounts>,
    packages: u64,
    last: Option<String>,
}

impl Summary {
    /// A reader for the output of the runner of that name.
    #[must_use]
    pub fn for_runner(name: &str) -> Self {
        let dialect = match name {
            "go" => Dialect::Go,
            "rust" => Dialect::Rust,
            _ => Dialect::Unknown,
        };
        Self { dialect, lines: [Vec::new(), Vec::new()], counts: None, packages: 0, last: None }
    }

    /// Takes what was printed, `stderr` or stdout.
    pub fn push(&mut self, stderr: bool, bytes: &[u8]) {
        if self.dialect == Dialect::Unknown {
            return;
        }
        let slot = usize::from(stderr);
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            let room = LINE_MAX.saturating_sub(self.lines[slot].len());
            self.lines[slot].extend_from_slice(&piece[..piece.len().min(room)]);
            if pieces.peek().is_some() {
                let line = std::mem::take(&mut self.lines[slot]);
                self.line_read(&String::from_utf8_lossy(&line));
            }
        }
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
        match self.dialect {
            Dialect::Go => self.go(line),
            Dialect::Rust => self.rust(line),
            Dialect::Unknown => {}
        }
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

fn clipped(text: &str) -> String {
    let end = (0..=text.len().min(SUMMARY_MAX)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(runner: &str, output: &str) -> (Option<TestCounts>, Option<String>) {
        let mut summary = Summary::for_runner(runner);
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
        assert_eq!(read("go", plain), (None, Some("ok  x/b  (2 packages)".into())));
        let verbose = "=== RUN   TestA\n--- PASS: TestA (0.00s)\n    --- PASS: TestA/sub (0.00s)\n--- SKIP: TestB (0.00s)\nPASS\nok  \tx/a\t0.1s\n";
        assert_eq!(read("go", verbose).0, counts(1, 0, 1));
        let json = "{\"Action\":\"pass\",\"Test\":\"TestA\"}\n{\"Action\":\"pass\",\"Test\":\"TestA/s\"}\n{\"Action\":\"fail\",\"Test\":\"TestB\"}\n{\"Action\":\"output\",\"Output\":\"FAIL\\tx/a\\t0.1s\\n\"}\n";
        assert_eq!(read("go", json), (counts(1, 1, 0), Some("FAIL  x/a  1 passed, 1 failed".into())));
        let cargo = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out\n test result: no\ntest result: FAILED. 1 passed; 2 failed; 0 ignored\n";
        assert_eq!(read("rust", cargo).0, counts(13, 2, 1));
        let nextest = "     Summary [   0.504s] 12 tests run: 11 passed, 1 failed, 2 skipped\n";
        assert_eq!(read("rust", nextest).0, counts(11, 1, 2));
        assert_eq!(read("generic", cargo), (None, None));
    }
}
