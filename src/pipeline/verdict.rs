//! From what was observed to what is recorded: which ending counts as what. Pure.
#![forbid(unsafe_code)]

use crate::model::evidence::TestCounts;
use crate::model::outcome::{Ending, Observation, Outcome, Stop};

/// How a run ended, as it is recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    pub(crate) outcome: Outcome,
    pub(crate) exit: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// A word, a colon and a sentence.
    pub(crate) reason: Option<String>,
}

/// Decides. The first line that applies decides:
///
/// | observed | outcome |
/// |---|---|
/// | we stopped it: signal to us, time, output, memory | `interrupted`, `timed_out`, `output_limit`, `out_of_memory` |
/// | execve failed | `not_started` |
/// | no ending at all | `killed` |
/// | exit 0, fewer tests than asked | `failed` |
/// | exit 0 | `passed` |
/// | a process of it was killed for want of memory | `out_of_memory` |
/// | the limit on processes, or the space, was hit | `pids_limit`, `disk_full` |
/// | anything else | `failed` |
pub(crate) fn verdict(seen: &Observation, tests: Option<TestCounts>, require: Option<u64>) -> Verdict {
    let (exit, signal) = match seen.ending {
        Some(Ending::Exited(status)) => (Some(status), None),
        Some(Ending::Signalled(signal)) => (None, Some(signal)),
        Some(Ending::NotExecuted(_)) | None => (None, None),
    };
    let with = |outcome, reason: Option<String>| Verdict { outcome, exit, signal, reason };
    match seen.stop {
        Some(Stop::Interrupt(number)) => {
            return Verdict { outcome: Outcome::Interrupted, exit, signal: Some(number), reason: None };
        }
        Some(Stop::Timeout) => return with(Outcome::TimedOut, None),
        Some(Stop::Output) => return with(Outcome::OutputLimit, None),
        Some(Stop::Memory) => return with(Outcome::OutOfMemory, None),
        None => {}
    }
    match seen.ending {
        None if seen.oom_hit => with(Outcome::OutOfMemory, None),
        None => with(Outcome::Killed, Some("killed: the sandbox was killed from outside".to_owned())),
        Some(Ending::NotExecuted(errno)) => with(Outcome::NotStarted, Some(not_executed(errno))),
        Some(Ending::Exited(0)) => match missing_tests(tests, require) {
            Some(reason) => with(Outcome::Failed, Some(reason)),
            None => with(Outcome::Passed, None),
        },
        Some(_) if seen.oom_hit => with(Outcome::OutOfMemory, None),
        Some(_) if seen.pids_hit => with(Outcome::PidsLimit, None),
        Some(_) if seen.disk_hit => with(Outcome::DiskFull, None),
        Some(_) => with(Outcome::Failed, None),
    }
}

fn missing_tests(tests: Option<TestCounts>, require: Option<u64>) -> Option<String> {
    let wanted = require?;
    match tests {
        None => Some("no_tests: the runner counted no tests in the output".to_owned()),
        Some(counts) if counts.passed.saturating_add(counts.failed) < wanted => Some(format!(
            "no_tests: {} ran and {wanted} were asked for",
            counts.passed.saturating_add(counts.failed)
        )),
        Some(_) => None,
    }
}

fn not_executed(errno: i32) -> String {
    if errno == libc_enoent() {
        "not_found: no such command in the sandbox".to_owned()
    } else {
        format!("not_executable: {}", std::io::Error::from_raw_os_error(errno))
    }
}

fn libc_enoent() -> i32 {
    rustix::io::Errno::NOENT.raw_os_error()
}

/// The exit status that tells of a result (see the contract's table).
#[must_use]
pub fn exit_status(outcome: Outcome, exit: Option<i32>, signal: Option<i32>, reason: Option<&str>) -> u8 {
    let code = match outcome {
        Outcome::Passed => 0,
        Outcome::TimedOut => 124,
        Outcome::NotStarted if reason.is_some_and(|reason| reason.starts_with("not_found")) => 127,
        Outcome::NotStarted => 126,
        Outcome::OutOfMemory | Outcome::OutputLimit | Outcome::Killed => 137,
        Outcome::Interrupted => 128 + signal.unwrap_or(2),
        // A pass by its own status that lacks the tests asked for.
        Outcome::Failed if exit == Some(0) => 1,
        Outcome::Failed | Outcome::PidsLimit | Outcome::DiskFull => {
            signal.map_or_else(|| exit.unwrap_or(1), |signal| 128 + signal)
        }
    };
    u8::try_from(code & 0xff).unwrap_or(1)
}
