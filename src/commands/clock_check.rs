//! The self-check of the fixed clock: this program, run as a check, says what it reads; compared with what it should.
#![forbid(unsafe_code)]

use crate::commands::{Failure, Session, self_run};
use crate::model::policy::{ClockStart, ClockWish};
use crate::sandbox::readings::{Reading, by_vdso, readings};
use std::collections::BTreeMap;

/// The word by which this program says what it reads.
pub(super) const REPORT: &str = "clock-report";
/// Where the clock is set to: 2001-02-03T04:05:06Z, a date that no machine has.
const START: i64 = 981_173_106;
/// A reading may be this much later, in seconds: the check's timeout.
const LATE: i64 = 60;

/// What each way of reading came to: `ok`, or what was wrong.
pub(super) type Findings = BTreeMap<String, String>;

/// Tells what this process reads, a line each; of a child only that it sees the date.
pub(super) fn report(is_child: bool, session: &mut Session) -> Result<u8, Failure> {
    let line = |name: &str, reading: Reading| format!("{name} {} {}\n", reading.0, reading.1);
    let mut text = String::new();
    if is_child {
        text.push_str(&line("child", by_vdso()));
    } else {
        for (name, reading) in readings(&session.start) {
            match reading {
                Ok(reading) => text.push_str(&line(name, reading)),
                Err(error) => text.push_str(&format!("{name} {error}\n")),
            }
        }
    }
    session.reporter.data(text.as_bytes());
    Ok(0)
}

/// Runs the report in a real sandbox.
///
/// # Errors
/// Says in a sentence why it could not be run.
pub(super) fn check(session: &Session) -> Result<Findings, String> {
    // The shell forks for each, so that both are children.
    let script = format!("./checkrun {REPORT} && ./checkrun {REPORT} --child");
    let clock = ClockWish { start: Some(ClockStart::At(START)), mode: None };
    self_run::run(session, "hermetic", clock, &script).map(|output| judge(&output))
}

/// Compares readings with where the clock was set to; what is not told is said to be missing.
fn judge(text: &str) -> Findings {
    let mut findings: Findings = ["vdso", "raw_call", "child", "absolute_wait", "file_time"]
        .into_iter()
        .map(|name| (name.to_owned(), "nothing was read".to_owned()))
        .collect();
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(' ') else { continue };
        let Some(finding) = findings.get_mut(name) else { continue };
        let seconds = rest.split_once(' ').and_then(|(seconds, _)| seconds.parse::<i64>().ok());
        *finding = match seconds {
            // The kernel stamps files by a coarser clock, which may lag behind by a tick.
            Some(seconds) if (START - 1..=START + LATE).contains(&seconds) => "ok".to_owned(),
            Some(seconds) => format!("shows {}", crate::model::units::show_instant(seconds)),
            None => rest.to_owned(),
        };
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_compared_with_where_the_clock_was_set_to() {
        let text = format!("vdso {START} 5\nraw_call 0 7\nchild {} 0\nfile_time no such file\n", START + 2);
        let found = judge(&text);
        let of = |name: &str| found.get(name).map_or("", String::as_str);
        assert_eq!((of("vdso"), of("child")), ("ok", "ok"));
        assert_eq!(of("raw_call"), "shows 1970-01-01T00:00:00Z");
        assert_eq!((of("absolute_wait"), of("file_time")), ("nothing was read", "no such file"));
    }
}
