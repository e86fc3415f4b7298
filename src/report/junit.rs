//! A check as one test case of JUnit's XML, as collectors of test reports read it. The tests inside a check are its own to
//! report.
#![forbid(unsafe_code)]

use crate::model::outcome::Outcome;
use crate::report::Answer;
use crate::report::human::verdict_line;
use std::fmt::Write as _;

/// The report of one answer, a whole document.
#[must_use]
pub fn junit(answer: &Answer) -> String {
    let failed = answer.outcome == Outcome::Failed;
    let (failures, errors) = match answer.outcome {
        Outcome::Passed => (0, 0),
        Outcome::Failed => (1, 0),
        _ => (0, 1),
    };
    let counts = format!("tests=\"1\" failures=\"{failures}\" errors=\"{errors}\" time=\"{}\"", answer.secs);
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"checkrun\" {counts}>\n  <testsuite name=\"checkrun\" {counts} timestamp=\"{}\">\n    <properties>\n",
        escaped(answer.at())
    );
    for (name, value) in
        [("tree", answer.tree.as_str()), ("key", answer.key()), ("policy", answer.policy.name())]
    {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "      <property name=\"{name}\" value=\"{}\"/>", escaped(value));
    }
    let _ = writeln!(
        text,
        "    </properties>\n    <testcase classname=\"checkrun\" name=\"{}\" time=\"{}\">",
        escaped(answer.command()),
        answer.secs
    );
    if answer.outcome != Outcome::Passed {
        let element = if failed { "failure" } else { "error" };
        let _ = writeln!(
            text,
            "      <{element} type=\"{}\" message=\"{}\">{}</{element}>",
            answer.outcome.name(),
            escaped(&verdict_line(answer, false)),
            escaped(answer.tail())
        );
    }
    text.push_str("    </testcase>\n  </testsuite>\n</testsuites>\n");
    text
}

/// A text in which nothing is markup, without what XML 1.0 has no way to write (section 2.2 of the recommendation).
fn escaped(text: &str) -> String {
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
