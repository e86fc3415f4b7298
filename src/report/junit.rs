//! Results as JUnit's XML, as collectors of test reports read it: a check as one test case, and what repeated runs of one
//! showed, in the words that Maven's Surefire has for reruns. The tests inside a single check are its own to report.
#![forbid(unsafe_code)]

use crate::model::outcome::Outcome;
use crate::report::Answer;
use crate::report::human::verdict_line;
use std::fmt::Write as _;

/// One test case.
#[derive(Clone, PartialEq, Debug)]
pub struct TestCase<'a> {
    /// What it is grouped under.
    pub class: &'a str,
    /// Its name.
    pub name: &'a str,
    /// How long it took, in seconds.
    pub secs: f64,
    /// What is to be said of it; nothing of one that passed.
    pub findings: Vec<Finding<'a>>,
}

/// Why a test case did not simply pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding<'a> {
    /// The element: `failure`, `error`, `skipped`, or `flakyFailure` for a failure of one that passed as well.
    pub element: &'static str,
    /// What kind of failure.
    pub kind: &'a str,
    /// In a line.
    pub message: String,
    /// At length.
    pub text: &'a str,
}

/// The report of one answer, a whole document.
#[must_use]
pub fn junit(answer: &Answer) -> String {
    let element = match answer.outcome {
        Outcome::Passed => None,
        Outcome::Failed => Some("failure"),
        _ => Some("error"),
    };
    let finding = element.map(|element| Finding {
        element,
        kind: answer.outcome.name(),
        message: verdict_line(answer, false),
        text: answer.tail(),
    });
    let case = TestCase {
        class: "checkrun",
        name: answer.command(),
        secs: answer.secs,
        findings: finding.into_iter().collect(),
    };
    let properties =
        [("tree", answer.tree.as_str()), ("key", answer.key()), ("policy", answer.policy.name())];
    junit_suite(answer.at(), &properties, &[case])
}

/// A document of one suite; `at` is when it began.
#[must_use]
pub fn junit_suite(at: &str, properties: &[(&str, &str)], cases: &[TestCase<'_>]) -> String {
    let with = |element: &str| {
        let has = |case: &&TestCase<'_>| case.findings.iter().any(|finding| finding.element == element);
        cases.iter().filter(has).count()
    };
    let counts = format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{}\"",
        cases.len(),
        with("failure"),
        with("error"),
        with("skipped"),
        cases.iter().map(|case| case.secs).sum::<f64>()
    );
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"checkrun\" {counts}>\n  <testsuite name=\"checkrun\" {counts} timestamp=\"{}\">\n    <properties>\n",
        escaped(at)
    );
    for (name, value) in properties {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "      <property name=\"{name}\" value=\"{}\"/>", escaped(value));
    }
    text.push_str("    </properties>\n");
    for case in cases {
        let (class, name) = (escaped(case.class), escaped(case.name));
        let _ = writeln!(text, "    <testcase classname=\"{class}\" name=\"{name}\" time=\"{}\">", case.secs);
        for Finding { element, kind, message, text: long } in &case.findings {
            let (kind, message, long) = (escaped(kind), escaped(message), escaped(long));
            let _ =
                writeln!(text, "      <{element} type=\"{kind}\" message=\"{message}\">{long}</{element}>");
        }
        text.push_str("    </testcase>\n");
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}

/// A text in which nothing is markup, without what XML 1.0 has no way to write (section 2.2 of the recommendation).
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'.. => escaped.push(letter),
            _ => escaped.push('\u{fffd}'),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xml_cannot_hold_is_replaced() {
        assert_eq!(
            escaped("a<b>&\"\u{1b}[31m\0\u{ffff}\n"),
            "a&lt;b&gt;&amp;&quot;\u{fffd}[31m\u{fffd}\u{fffd}&#10;"
        );
    }
}
