//! Reads each test by name from what a command prints, whatever the runner: `go test` (`-json` and `-v`), libtest, nextest,
//! pytest (`-v`, and its summary), TAP, and JUnit XML on the standard output or in files. The command's own exit status stays the
//! authority for the run; what is read here can make nothing better.
//!
//! Nothing says beforehand which runner it is, since a command may start several; each line is taken by the reader whose
//! form it has. Counts of what is printed are `summary`'s.
#![forbid(unsafe_code)]

mod junit;
mod lines;

#[cfg(test)]
mod tests;

use crate::model::case::{Case, Fate};
use crate::model::evidence::TestCounts;
use crate::model::lines::Lines;
use std::collections::HashMap;

/// The longest line that is looked at, in bytes.
const LINE_MAX: usize = 1 << 20;
/// The longest name that is kept, in bytes.
const NAME_MAX: usize = 512;
/// Most tests that are kept of one run; further ones are not counted.
const CASES_MAX: usize = 50_000;

/// A reader of one run's output.
#[derive(Debug, Default)]
pub struct Results {
    lines: Lines,
    state: lines::State,
    report: junit::Report,
    cases: Cases,
    /// What files told of.
    filed: Cases,
}

/// How many tests the files of one run tell of; `None` where they tell of none.
pub fn counts<'f>(files: impl Iterator<Item = &'f [u8]>) -> Option<TestCounts> {
    let mut sum = TestCounts { passed: 0, failed: 0, skipped: 0 };
    // Only how many, so names need not be kept beyond one file.
    for file in files {
        let counts = junit::of_file(file, &mut Cases::default());
        sum.passed += counts.passed;
        sum.failed += counts.failed;
        sum.skipped += counts.skipped;
    }
    (sum.passed + sum.failed + sum.skipped > 0).then_some(sum)
}

/// Tests by name, in the order in which they were first heard of.
#[derive(Debug, Default)]
struct Cases {
    all: Vec<Case>,
    places: HashMap<String, usize>,
    /// Tests that were started and have not ended, how often.
    open: HashMap<String, u32>,
}

impl Cases {
    /// A test that was started.
    fn started(&mut self, id: &str) {
        let id = short(id);
        if self.place(id).is_some() {
            *self.open.entry(id.to_owned()).or_default() += 1;
        }
    }

    /// A test that ended.
    fn ended(&mut self, id: &str, fate: Fate) {
        let id = short(id);
        let Some(place) = self.place(id) else { return };
        if let Some(open) = self.open.get_mut(id) {
            *open = open.saturating_sub(1);
        }
        let case = &mut self.all[place];
        let count = match fate {
            Fate::Passed => &mut case.passed,
            Fate::Failed => &mut case.failed,
            Fate::Skipped => &mut case.skipped,
            Fate::Aborted => &mut case.aborted,
        };
        *count = count.saturating_add(1);
    }

    /// Notes an end only where none of that kind is known: for summaries, which repeat what was told before.
    fn repeated(&mut self, id: &str, fate: Fate) {
        let known = self.places.get(short(id)).is_some_and(|place| {
            let case = &self.all[*place];
            case.passed + case.failed + case.skipped > 0
        });
        if !known {
            self.ended(id, fate);
        }
    }

    fn finish(mut self) -> Vec<Case> {
        for (id, count) in std::mem::take(&mut self.open) {
            if let Some(place) = self.places.get(&id) {
                self.all[*place].aborted += count;
            }
        }
        let heard_of = |case: &Case| case.passed + case.failed + case.skipped + case.aborted > 0;
        self.all.retain(heard_of);
        self.all
    }

    fn place(&mut self, id: &str) -> Option<usize> {
        if let Some(place) = self.places.get(id) {
            return Some(*place);
        }
        if id.is_empty() || self.all.len() >= CASES_MAX {
            return None;
        }
        self.all.push(Case { id: id.to_owned(), passed: 0, failed: 0, skipped: 0, aborted: 0 });
        self.places.insert(id.to_owned(), self.all.len() - 1);
        Some(self.all.len() - 1)
    }
}

fn short(id: &str) -> &str {
    let mut end = id.len().min(NAME_MAX);
    while !id.is_char_boundary(end) {
        end -= 1;
    }
    id[..end].trim()
}

impl Results {
    /// Takes what was printed, on stderr or stdout.
    pub fn push(&mut self, stderr: bool, bytes: &[u8]) {
        if !stderr {
            self.report.push(bytes);
        }
        self.lines.push(stderr, bytes, LINE_MAX, |line| self.state.line(line, &mut self.cases));
    }

    /// Takes a file that the run left.
    pub fn file(&mut self, bytes: &[u8]) {
        let _ = junit::of_file(bytes, &mut self.filed);
    }

    /// All tests of the run: as it printed them or as its files have them, whichever are more; both are the same tests,
    /// under names that may differ. What was started and did not end is aborted.
    #[must_use]
    pub fn finish(mut self) -> Vec<Case> {
        self.lines.finish(|line| self.state.line(line, &mut self.cases));
        self.state.finish(&mut self.cases);
        let _ = self.report.finish(&mut self.cases);
        let (printed, filed) = (self.cases.finish(), self.filed.finish());
        if filed.len() > printed.len() { filed } else { printed }
    }
}
