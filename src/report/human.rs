//! Lines for people: verdicts, warnings, tables. Each is a pure function of what it says; nothing is written here.
#![forbid(unsafe_code)]

use crate::model::check::Guard;
use crate::model::event::RunsSoFar;
use crate::model::evidence::{CacheUse, Evidence, Foreign};
use crate::model::outcome::Outcome;
use crate::model::shell::shell_words;
use crate::report::answer::state_text;
use crate::report::{Answer, Circumstances, sets_order};
use std::fmt::Write as _;
use std::time::Duration;

const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";

fn painted(text: &str, colour: &str, wanted: bool) -> String {
    if wanted { format!("{colour}{text}{PLAIN}") } else { text.to_owned() }
}

/// `checkrun: passed (cached, exact) tree 8f3c1ad2b4c6 in 22.6s`.
#[must_use]
pub fn verdict_line(answer: &Answer, colour: bool) -> String {
    let paint = if answer.outcome == Outcome::Passed { GREEN } else { RED };
    let verdict = painted(&answer.outcome.name().replace('_', " "), paint, colour);
    let ending = ending(answer.outcome, answer.exit, answer.signal);
    let how = match answer.cache {
        CacheUse::Hit => format!("cached, {}", answer.guard),
        CacheUse::Joined => format!("joined, {}", answer.guard),
        CacheUse::Miss => "ran".to_owned(),
        CacheUse::Refreshed => "refreshed".to_owned(),
        CacheUse::Off => "ran, cache off".to_owned(),
    };
    let tree: String = answer.tree.chars().take(12).collect();
    let mut line = format!("checkrun: {verdict}{ending} ({how}) tree {tree} in {}", seconds(answer.secs));
    if let Some(from) = &answer.from {
        let other: String = from.tree.chars().take(12).collect();
        let _ = write!(line, "; ran on tree {other}");
    }
    if let Some(left_out) = left_out(answer.foreign) {
        let _ = write!(line, "; {left_out}");
    }
    if let Some(tally) = answer.flaky {
        let _ = write!(line, "; flaky: {} passed, {} failed", tally.passed, tally.failed);
    }
    if let Some(reason) = &answer.reason {
        let _ = write!(line, "; {}", one_line(reason));
    }
    line
}

/// What of the content that the tree only names was not there.
fn left_out(foreign: Foreign) -> Option<String> {
    let mut parts = Vec::new();
    if foreign.empty_submodules > 0 {
        let count = foreign.empty_submodules;
        parts.push(format!("{count} {} left empty", plural(count, "submodule", "submodules")));
    }
    if foreign.lfs_pointers > 0 {
        let count = foreign.lfs_pointers;
        parts.push(format!(
            "{count} LFS {} left as {}",
            plural(count, "file", "files"),
            plural(count, "a pointer", "pointers")
        ));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// How the command ended, where the verdict alone does not say it.
fn ending(outcome: Outcome, exit: Option<i32>, signal: Option<i32>) -> String {
    match (outcome, exit, signal) {
        (Outcome::Passed, _, _) => String::new(),
        (_, Some(exit), _) => format!(", exit {exit}"),
        (_, None, Some(signal)) => format!(", signal {signal}"),
        (_, None, None) => String::new(),
    }
}

/// What an answer was made of, for `-v`.
pub(super) fn particulars(answer: &Answer) -> String {
    let mut text = format!(
        "checkrun: policy {}, runner {}, sandbox {}\ncheckrun: key {}",
        answer.policy.name(),
        one_line(&answer.runner.described()),
        one_line(&answer.sandbox.described()),
        answer.key()
    );
    if let Some(summary) = &answer.summary {
        let _ = write!(text, "\ncheckrun: {}", one_line(summary));
    }
    text
}

/// What is about to be looked up, for `-v`.
pub(super) fn resolved(tree: &str, key: &str) -> String {
    format!("checkrun: tree {tree}, key {key}")
}

/// A warning.
pub(super) fn warning(text: &str, colour: bool) -> String {
    format!("checkrun: {} {}", painted("warning:", YELLOW, colour), printable(text.trim_end()))
}

/// Why no answer can be given.
pub(super) fn failure(text: &str, hint: Option<&str>, colour: bool) -> String {
    let mut lines = format!("checkrun: {} {}", painted("error:", RED, colour), printable(text.trim_end()));
    if let Some(hint) = hint {
        let _ = write!(lines, "\n\nhint: {}", hint.trim_end());
    }
    lines
}

/// The progress line while the tree is laid out.
pub(super) fn staging(done: u64, total: u64) -> String {
    format!("checkrun: laying out the tree, {done} of {total} {}", plural(total, "file", "files"))
}

/// The progress line while another run of the same check goes on.
pub(super) fn waiting(waited: Duration) -> String {
    format!("checkrun: waiting for the same check that is already running, {}s", waited.as_secs())
}

/// The progress line while a check is run many times.
pub(super) fn runs(so_far: RunsSoFar) -> String {
    let RunsSoFar { runs, failed, of, bound, left } = so_far;
    let of = of.map_or_else(String::new, |of| format!(" of {of}"));
    let left = left.map_or_else(String::new, |left| format!(", {} left", seconds(left.as_secs_f64())));
    let rate = bound.map_or_else(String::new, |bound| format!(", rate at most {}", percent(bound)));
    format!("checkrun: {runs}{of} runs, {failed} failed{rate}{left}")
}

/// A share of one as people read it: `3.1%`, `0.04%`.
#[must_use]
pub fn percent(share: f64) -> String {
    let digits = match share * 100.0 {
        percent if percent >= 10.0 || percent == 0.0 => 0,
        percent if percent >= 1.0 => 1,
        percent if percent >= 0.1 => 2,
        _ => 4,
    };
    format!("{:.digits$}%", share * 100.0)
}

fn plural<'w>(count: u64, one: &'w str, many: &'w str) -> &'w str {
    if count == 1 { one } else { many }
}

/// Seconds as people read them: `0.004s`, `22.6s`, `3m 05s`.
#[must_use]
pub fn seconds(secs: f64) -> String {
    let millis = Duration::try_from_secs_f64(secs).unwrap_or_default().as_millis();
    match millis {
        0..1000 => format!("0.{millis:03}s"),
        1000..60_000 => format!("{}.{}s", millis / 1000, millis % 1000 / 100),
        _ => format!("{}m {:02}s", millis / 60_000, millis % 60_000 / 1000),
    }
}

/// A text without line breaks and other control characters, so that it cannot pass for lines of our own.
fn one_line(text: &str) -> String {
    text.trim()
        .chars()
        .map(|letter| if letter.is_control() || sets_order(letter) { ' ' } else { letter })
        .collect()
}

/// A text without control characters other than newline and tab: what a tree or a file brings in does not reach the
/// terminal as commands.
fn printable(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        if (letter.is_control() && letter != '\n' && letter != '\t') || sets_order(letter) {
            plain.extend(letter.escape_default());
        } else {
            plain.push(letter);
        }
    }
    plain
}

/// Rows of a name and a text, the texts in one column; further lines of a text are set under its first.
#[must_use]
pub fn table(rows: &[(String, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in rows {
        for (index, line) in value.split('\n').enumerate() {
            let name = if index == 0 { name.as_str() } else { "" };
            let row = format!("{name:width$}  {line}");
            text.push_str(row.trim_end());
            text.push('\n');
        }
    }
    text
}

/// A record for people: its facts, what was asked, then the end of its output.
#[must_use]
pub fn evidence_text(evidence: &Evidence, asked: &Circumstances) -> String {
    let mut rows: Vec<(&str, String)> = vec![
        ("key", evidence.key.clone()),
        ("command", shell_words(&asked.argv)),
        (
            "outcome",
            format!(
                "{}{}",
                evidence.outcome.name(),
                ending(evidence.outcome, evidence.exit, evidence.signal)
            ),
        ),
    ];
    rows.extend(evidence.reason.iter().map(|reason| ("reason", reason.clone())));
    rows.extend(evidence.summary.iter().map(|summary| ("summary", summary.clone())));
    rows.extend(evidence.tests.iter().map(|tests| {
        ("tests", format!("{} passed, {} failed, {} skipped", tests.passed, tests.failed, tests.skipped))
    }));
    rows.push(("tree", format!("{}{}", evidence.tree, if evidence.dirty { " (uncommitted)" } else { "" })));
    rows.extend(
        evidence.deps.iter().map(|deps| ("packages", format!("{} {} {}", deps.from, deps.name, deps.digest))),
    );
    rows.extend(left_out(evidence.foreign).map(|text| ("left out", text)));
    rows.extend(evidence.unobserved.iter().map(|why| ("inputs", format!("not known in full: {why}"))));
    rows.extend(evidence.varied.iter().map(|(input, value)| ("varied", format!("{input}={value}"))));
    if asked.guard != Guard::Exact {
        rows.push(("guard", asked.guard.name().to_owned()));
    }
    rows.extend(asked.scope.iter().map(|pathspec| ("scope", pathspec.clone())));
    rows.extend(asked.touches.iter().map(|pathspec| ("touches", pathspec.clone())));
    rows.extend(evidence.commit.iter().map(|commit| ("commit", commit.clone())));
    rows.push(("folder", evidence.cwd.clone()));
    rows.push(("ran at", format!("{}, for {}", evidence.at, seconds(evidence.secs))));
    let usage = &evidence.usage;
    rows.push((
        "used",
        format!(
            "{} in user mode, {} in the kernel, {} at most, {} written",
            seconds(usage.user_secs),
            seconds(usage.sys_secs),
            size(usage.max_rss_bytes),
            size(usage.written_bytes)
        ),
    ));
    rows.push(("policy", format!("{} {}", evidence.policy.0, evidence.policy.1)));
    let (name, digest, toolchain) = &evidence.runner;
    rows.push(("runner", format!("{name} {digest} {toolchain}")));
    rows.push(("clock", format!("{} from {}", evidence.clock.0, evidence.clock.1)));
    let layers: Vec<String> =
        evidence.layers.iter().map(|(layer, state)| format!("{layer} {}", state_text(state))).collect();
    rows.push(("sandbox", format!("{}: {}", evidence.level, layers.join(", "))));
    rows.push(("host", format!("{} {}", evidence.host.0, evidence.host.1)));
    rows.push(("output", format!("{} {}", size(evidence.output_bytes), evidence.output_digest)));
    let rows: Vec<(String, String)> =
        rows.into_iter().map(|(name, text)| (name.to_owned(), one_line(&text))).collect();
    let mut text = table(&rows);
    if !evidence.tail.is_empty() {
        text.push('\n');
        text.push_str(&evidence.tail);
        if !evidence.tail.ends_with('\n') {
            text.push('\n');
        }
    }
    text
}

/// A size for people, to one digit.
fn size(bytes: u64) -> String {
    for (unit, name) in [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit {
            return format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit);
        }
    }
    format!("{bytes} {}", plural(bytes, "byte", "bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        for (secs, text) in
            [(0.0, "0.000s"), (0.0042, "0.004s"), (22.64, "22.6s"), (185.2, "3m 05s"), (f64::NAN, "0.000s")]
        {
            assert_eq!(seconds(secs), text);
        }
        assert_eq!(size(1), "1 byte");
        assert_eq!(size(1536), "1.5 KiB");
    }

    #[test]
    fn tables_line_up() {
        let row = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(
            table(&[row("a", "1"), row("long", "2\n3"), row("b", "")]),
            "a     1\nlong  2\n      3\nb\n"
        );
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn errors_hold_no_commands_for_the_terminal() {
        assert_eq!(failure("`\x1b[2Jx\0`\n  ^", None, false), "checkrun: error: `\\u{1b}[2Jx\\u{0}`\n  ^");
    }

    #[test]
    fn what_a_check_says_cannot_pass_for_a_line_of_ours() {
        assert_eq!(one_line("x\ncheckrun: passed\x1b[2K"), "x checkrun: passed [2K");
    }
}
