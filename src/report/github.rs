//! What GitHub's runner reads of a step: commands on stdout, and a summary in Markdown. See "Workflow commands" in the
//! documentation of GitHub Actions. What is said is `human`'s.
#![forbid(unsafe_code)]

use crate::model::outcome::Outcome;
use crate::report::Answer;
use crate::report::human::verdict_line;

/// Tells the runner to take nothing as a command from here on: what a check prints is not ours to vouch for, and could
/// otherwise set variables of later steps. `token` must not be known to the check.
pub(super) fn stop(token: &str) -> String {
    format!("::stop-commands::{token}\n")
}

/// Tells the runner to take commands again.
pub(super) fn resume(token: &str) -> String {
    format!("::{token}::\n")
}

/// The verdict as an annotation: an error unless the check passed.
pub(super) fn annotation(answer: &Answer) -> String {
    let kind = if answer.outcome == Outcome::Passed { "notice" } else { "error" };
    let mut text = verdict_line(answer, false);
    if answer.outcome != Outcome::Passed && !answer.tail().is_empty() {
        text.push('\n');
        text.push_str(answer.tail());
    }
    format!("::{kind} title={}::{}\n", property(answer.command()), data(&text))
}

/// One row about the check, with its last output where it did not pass.
#[must_use]
pub fn summary(answer: &Answer) -> String {
    let mark = if answer.outcome == Outcome::Passed { "✅" } else { "❌" };
    let mut text =
        format!("### {mark} {}\n\n{}\n", code(answer.command()), plain(&verdict_line(answer, false)));
    if answer.outcome != Outcome::Passed && !answer.tail().is_empty() {
        text.push('\n');
        // An indented block: no run of backticks in the output can end it.
        for line in answer.tail().lines() {
            text.push_str("    ");
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// The text of a command: percent signs and line ends are its own.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// The value of a property, in which colons and commas are the command's as well.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

/// Words as code, between more backticks than they have in a row.
fn code(text: &str) -> String {
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    format!("{fence} {} {fence}", text.replace('\n', " "))
}

/// Words in which nothing is taken as Markdown or HTML.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for letter in text.chars() {
        if letter.is_ascii_punctuation() {
            plain.push('\\');
        }
        plain.push(letter);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_ends_a_command_or_begins_markup() {
        assert_eq!(data("100%\r\n::error::x"), "100%25%0D%0A::error::x");
        assert_eq!(property("a: b, c\n"), "a%3A b%2C c%0A");
        assert_eq!(code("echo `x` ``"), "``` echo `x` `` ```");
        assert_eq!(plain("<b>*"), "\\<b\\>\\*");
    }
}
