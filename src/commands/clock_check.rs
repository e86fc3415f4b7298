//! The self-check of the fixed clock: this program, run as a check, says what it reads; compared with what it should.
#![forbid(unsafe_code)]

use crate::commands::{Failure, Session};
use crate::model::check::{DepsChoice, Filled, Guard};
use crate::model::event::{Event, Sink, Stream};
use crate::model::outcome::Outcome;
use crate::model::policy::{ClockStart, ClockWish, Overrides};
use crate::pipeline::{self, Caching, Wish};
use crate::sandbox::readings::{Reading, by_vdso, readings};
use crate::tree::Source;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

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

/// Collects a check's output.
#[derive(Default)]
struct Collector {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Sink for Collector {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Output(stream, bytes) = event {
            let to = if stream == Stream::Stdout { &mut self.stdout } else { &mut self.stderr };
            to.extend_from_slice(bytes);
        }
    }
}

/// Runs the report in a real sandbox.
///
/// # Errors
/// Says in a sentence why it could not be run.
pub(super) fn check(session: &Session) -> Result<Findings, String> {
    let folder = session.around.scratch().join(format!("doctor-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let found = run(session, &folder);
    drop(std::fs::remove_dir_all(&folder));
    found
}

fn run(session: &Session, folder: &Path) -> Result<Findings, String> {
    // As part of the tree it is seen wherever it is installed.
    let copied = std::env::current_exe().and_then(|program| std::fs::copy(program, folder.join("checkrun")));
    copied.map_err(|error| format!("cannot copy this program: {error}"))?;
    // The shell forks for each, so that both are children.
    let script = format!("./checkrun {REPORT} && ./checkrun {REPORT} --child");
    let wish = Wish {
        start: folder.to_owned(),
        source: Source::Folder(folder.to_owned()),
        cwd: None,
        filled: Filled::default(),
        deps: DepsChoice::None,
        guard: Guard::Exact,
        inputs: false,
        scope: Vec::new(),
        touches: Vec::new(),
        policy: "hermetic".to_owned(),
        runner: Some("generic".to_owned()),
        env: BTreeMap::new(),
        overrides: Overrides { timeout: Some(Duration::from_secs(60)), ..Overrides::default() },
        clock: ClockWish { start: Some(ClockStart::At(START)), mode: None },
        require_tests: None,
        argv: [b"sh".as_slice(), b"-c", script.as_bytes()].map(<[u8]>::to_vec).to_vec(),
    };
    let mut output = Collector::default();
    let (_, answered) = pipeline::check(&wish, Caching::Off, &session.around, None, &mut output)
        .map_err(|error| error.to_string())?;
    if answered.evidence.outcome != Outcome::Passed {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().map_or_else(String::new, |line| format!(": {line}"));
        return Err(format!(
            "this program does not run in the sandbox ({}){last}",
            answered.evidence.outcome.name()
        ));
    }
    Ok(judge(&String::from_utf8_lossy(&output.stdout)))
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
