//! A session as a page of HTML and as a report in JUnit's XML. What was seen is the report's; nothing is judged here.
#![forbid(unsafe_code)]

use crate::commands::flake::cases::SHOWN;
use crate::commands::flake::told::{FailureTold, Report, percent_down, percent_up};
use crate::commands::flake::verdict::Word;
use crate::report::{Bar, Finding, Page, Row, TestCase, junit_suite, seconds};
use crate::stats;

/// Most tests that a page or a report lists.
const TESTS: usize = 100;

/// The page; `wrong` are those of the first runs that did not pass.
pub(super) fn html(report: &Report<'_>, wrong: &[u64]) -> String {
    let headline = report.headline();
    let mut page = Page::new(&report.cmd, headline.trim_end());
    if let Some(reason) = report.reason {
        page.list(&[reason.to_owned()]);
    }
    page.list(report.notes);
    let tests = report.tests.as_ref().map(|tests| tests.list.as_slice()).unwrap_or_default();
    let confidence = report.bound.confidence;
    page.section(
        "How often it fails",
        "From never on the left to always on the right: seen, and where the rate may be.",
    );
    let mut bars = Vec::new();
    let all = [("the check", report.n, report.k)];
    let each = tests.iter().take(TESTS).map(|test| {
        let wrong = test.failed + test.aborted;
        (test.id.as_str(), test.passed + wrong, wrong)
    });
    for (label, n, k) in all.into_iter().chain(each) {
        bars.push(bar(label, (n, k), confidence, &format!("{k} of {n}")));
    }
    page.bars(&bars);
    let shown = report.n.min(SHOWN);
    let about = if report.n > SHOWN {
        format!("The first {SHOWN} of {} runs", report.n)
    } else {
        "Each run".to_owned()
    };
    page.section("Run by run", &format!("{about}, in the order in which they began; a failure stands out."));
    let mut rows = vec![Row { label: "the check", failed: wrong }];
    rows.extend(tests.iter().take(TESTS).map(|test| Row { label: &test.id, failed: &test.wrong }));
    page.runs(&rows, shown);
    if !report.failures.is_empty() {
        page.section("How it fails", "One example of each kind: the end of what it printed.");
        for failure in &report.failures {
            page.text(&failure.text(), failure.tail);
        }
    }
    page.section("What it cost", "Runs are separate sandboxes of one key.");
    let mut facts = vec![
        ("tree", report.tree.clone()),
        ("key", report.key.clone()),
        ("runs", format!("{}, {} at a time", report.n, report.jobs)),
        ("time", format!("{}; all runs together {}", seconds(report.secs), seconds(report.run_secs))),
    ];
    if report.earlier.passed + report.earlier.failed > 0 {
        let earlier = report.earlier;
        facts.push(("earlier runs", format!("{} passed, {} failed", earlier.passed, earlier.failed)));
    }
    page.facts(&facts);
    page.finish()
}

/// The rate of `k` failures in `n` runs, where it may be, and `seen` as the words for it.
pub(super) fn bar<'a>(label: &'a str, (n, k): (u64, u64), confidence: f64, seen: &str) -> Bar<'a> {
    let (low, high) = stats::interval(n, k, confidence);
    let rate = if n == 0 { 0.0 } else { stats::real(k) / stats::real(n) };
    let text = format!("{seen}, {} to {}", percent_down(low), percent_up(high));
    Bar { label, rate, between: (low, high), text }
}

/// The report for collectors: the check, and each test that did not pass every time.
pub(super) fn junit(report: &Report<'_>, at: &str) -> String {
    let headline = report.headline();
    let message = headline.trim_end();
    let element = match report.verdict {
        Word::Stable => None,
        Word::Flaky => Some("flakyFailure"),
        Word::Failing => Some("failure"),
        Word::Undecided => Some("skipped"),
    };
    let finding = |element, tail, kind| Finding { element, kind, message: message.to_owned(), text: tail };
    let findings = match (element, report.failures.first()) {
        (None, _) => Vec::new(),
        (Some("failure"), Some(first)) => vec![finding("failure", first.tail, first.outcome)],
        (Some("flakyFailure"), Some(_)) => {
            let each = |failure: &_| finding_of(failure, message);
            report.failures.iter().map(each).collect()
        }
        (Some(element), _) => vec![finding(element, "", report.verdict.name())],
    };
    let mut cases = vec![TestCase { class: "checkrun", name: &report.cmd, secs: report.run_secs, findings }];
    for test in report.tests.iter().flat_map(|tests| &tests.list).take(TESTS) {
        let wrong = test.failed + test.aborted;
        let element = if test.verdict == "flaky" { "flakyFailure" } else { "failure" };
        let message = format!("{}: {wrong} of {} runs failed", test.verdict, test.passed + wrong);
        let findings = vec![Finding { element, kind: test.verdict, message, text: "" }];
        cases.push(TestCase { class: &report.cmd, name: &test.id, secs: 0.0, findings });
    }
    junit_suite(at, &[("tree", &report.tree), ("key", &report.key)], &cases)
}

fn finding_of<'a>(failure: &FailureTold<'a>, message: &str) -> Finding<'a> {
    Finding {
        element: "flakyFailure",
        kind: failure.outcome,
        message: format!("{message}; {}", failure.text()),
        text: failure.tail,
    }
}
