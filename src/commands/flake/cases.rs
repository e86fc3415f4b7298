//! Tests by name over many runs: how often each passed and did not. Reading them from one run's output is `results`'.
#![forbid(unsafe_code)]

use crate::commands::flake::quarantine::Quarantine;
use crate::model::case::{Case, Fate};
use crate::model::evidence::Tally;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Most names that are counted.
const NAMES_MAX: usize = 100_000;
/// Most tests that a report lists.
const LISTED: usize = 1000;
/// Runs, from the first, of which it is kept how each went.
pub(super) const SHOWN: u64 = 400;
/// Names of one pattern, each seen in one run only, from which on they are told to change from run to run.
const CHANGING: u64 = 3;

/// One test over all runs in which it was seen.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct CaseRuns {
    pub(super) id: String,
    /// `flaky`, or `failing` where it never passed.
    pub(super) verdict: &'static str,
    pub(super) passed: u64,
    pub(super) failed: u64,
    /// Runs in which it was started and did not end.
    pub(super) aborted: u64,
    pub(super) skipped: u64,
    /// Runs in which one attempt passed and another did not.
    pub(super) retried: u64,
    /// Whether it is in quarantine.
    pub(super) quarantined: bool,
    /// Which of the first runs it went wrong in, from 0, going up.
    #[serde(skip)]
    pub(super) wrong: Vec<u64>,
}

impl CaseRuns {
    fn went_wrong(&self) -> bool {
        self.failed + self.aborted > 0
    }
}

/// All tests.
#[derive(Debug, Default)]
pub(super) struct CasesSeen {
    tests: HashMap<String, CaseRuns>,
    /// Runs in which any test was seen.
    runs: u64,
}

/// What a report says of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct CasesTold {
    /// Names that were seen.
    pub(super) seen: usize,
    /// Those that passed each time.
    pub(super) stable: usize,
    /// Those that did not, the most failures first.
    pub(super) list: Vec<CaseRuns>,
    /// Patterns of names that change from run to run, digits and the like as `#`.
    pub(super) unstable_names: Vec<String>,
}

impl CasesSeen {
    /// Counts the tests of one run; `number` says which, from 0.
    pub(super) fn add(&mut self, number: u64, cases: &[Case]) {
        self.runs += u64::from(!cases.is_empty());
        for case in cases {
            if self.tests.len() >= NAMES_MAX && !self.tests.contains_key(&case.id) {
                continue;
            }
            let test = self.tests.entry(case.id.clone()).or_default();
            let count = match case.fate() {
                Fate::Passed => &mut test.passed,
                Fate::Failed => &mut test.failed,
                Fate::Aborted => &mut test.aborted,
                Fate::Skipped => &mut test.skipped,
            };
            *count += 1;
            if number < SHOWN && matches!(case.fate(), Fate::Failed | Fate::Aborted) {
                test.wrong.push(number);
            }
            test.retried += u64::from(case.passed > 0 && case.failed > 0);
        }
    }

    /// Counts of the tests that did not pass each time, and of those that are known.
    pub(super) fn tallies(&self, known: &BTreeSet<String>) -> Vec<(String, Tally)> {
        let wanted = |(id, test): &(&String, &CaseRuns)| test.went_wrong() || known.contains(*id);
        let tally = |test: &CaseRuns| Tally { passed: test.passed, failed: test.failed + test.aborted };
        let all = self.tests.iter().filter(wanted).map(|(id, test)| (id.clone(), tally(test)));
        all.take(LISTED).collect()
    }

    /// What there is to tell; `None` where no test could be read.
    pub(super) fn told(&self, quarantine: &Quarantine) -> Option<CasesTold> {
        if self.tests.is_empty() {
            return None;
        }
        let mut list: Vec<CaseRuns> = self
            .tests
            .iter()
            .filter(|(_, test)| test.went_wrong())
            .map(|(id, test)| {
                let both = test.passed > 0 || test.retried > 0;
                let verdict = if both { "flaky" } else { "failing" };
                let mut wrong = test.wrong.clone();
                // Runs end in another order than they begin.
                wrong.sort_unstable();
                CaseRuns { id: id.clone(), verdict, wrong, quarantined: quarantine.holds(id), ..test.clone() }
            })
            .collect();
        list.sort_by(|one, other| {
            let wrong = |test: &CaseRuns| std::cmp::Reverse(test.failed + test.aborted);
            wrong(one).cmp(&wrong(other)).then_with(|| one.id.cmp(&other.id))
        });
        let stable = self.tests.values().filter(|test| !test.went_wrong()).count();
        list.truncate(LISTED);
        Some(CasesTold { seen: self.tests.len(), stable, list, unstable_names: self.unstable_names() })
    }

    // pytest-dev/pytest#1075: names with times, addresses or random parts are other names each run.
    fn unstable_names(&self) -> Vec<String> {
        if self.runs < 2 {
            return Vec::new();
        }
        let mut patterns: BTreeMap<String, u64> = BTreeMap::new();
        for (id, test) in &self.tests {
            if test.passed + test.failed + test.aborted + test.skipped == 1 {
                *patterns.entry(pattern(id)).or_default() += 1;
            }
        }
        let changes = |(pattern, count): (String, u64)| {
            (pattern.contains('#') && count >= CHANGING.min(self.runs)).then_some(pattern)
        };
        patterns.into_iter().filter_map(changes).take(20).collect()
    }
}

/// A name with everything that looks like a number, in whatever base, as `#`.
fn pattern(id: &str) -> String {
    let mut text = String::with_capacity(id.len());
    for word in id.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric()) {
        let bare = word.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
        let has_digit = bare.bytes().any(|byte| byte.is_ascii_digit());
        let digits = bare.strip_prefix("0x").unwrap_or(bare);
        let is_number = has_digit && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        text.push_str(if is_number { "#" } else { bare });
        text.push_str(&word[bare.len()..]);
    }
    text
}
