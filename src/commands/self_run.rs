//! This program as a check, in a folder that holds nothing else: how `doctor` finds out what a check sees and reaches.
//! What is right is not decided here.
#![forbid(unsafe_code)]

use crate::commands::Session;
use crate::model::check::{DepsChoice, Filled, Guard};
use crate::model::event::{Event, Sink, Stream};
use crate::model::outcome::Outcome;
use crate::model::policy::{ClockWish, Overrides};
use crate::pipeline::{self, Caching, Wish};
use crate::tree::Source;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

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

/// Runs a shell script beside a copy of this program, `./checkrun`; what it printed on stdout.
///
/// # Errors
/// Says in a sentence why it could not be run.
pub(super) fn run(session: &Session, policy: &str, clock: ClockWish, script: &str) -> Result<String, String> {
    let folder = session.around.scratch().join(format!("doctor-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let output = run_in(&folder, session, policy, clock, script);
    drop(std::fs::remove_dir_all(&folder));
    output
}

fn run_in(
    folder: &Path,
    session: &Session,
    policy: &str,
    clock: ClockWish,
    script: &str,
) -> Result<String, String> {
    // As part of the tree it is seen wherever it is installed.
    let copied = std::env::current_exe().and_then(|program| std::fs::copy(program, folder.join("checkrun")));
    copied.map_err(|error| format!("cannot copy this program: {error}"))?;
    let wish = Wish {
        start: folder.to_owned(),
        source: Source::Folder { path: folder.to_owned(), ignored: true },
        cwd: None,
        filled: Filled::default(),
        deps: DepsChoice::None,
        guard: Guard::Exact,
        inputs: false,
        scope: Vec::new(),
        touches: Vec::new(),
        policy: policy.to_owned(),
        runner: Some("generic".to_owned()),
        env: BTreeMap::new(),
        hosts: Vec::new(),
        overrides: Overrides { timeout: Some(Duration::from_secs(60)), ..Overrides::default() },
        clock,
        require_tests: None,
        argv: [b"sh".as_slice(), b"-c", script.as_bytes()].map(<[u8]>::to_vec).to_vec(),
    };
    let mut output = Collector::default();
    let (_, answered) = pipeline::check(&wish, Caching::Off, &session.around, None, &mut output)
        .map_err(|error| error.to_string())?;
    let has_no_shell =
        answered.evidence.reason.as_deref().is_some_and(|reason| reason.starts_with("not_found"));
    if answered.evidence.outcome == Outcome::NotStarted && has_no_shell {
        return Err("not tried: it takes a shell, and there is no `sh` here".to_owned());
    }
    if answered.evidence.outcome != Outcome::Passed {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().map_or_else(String::new, |line| format!(": {line}"));
        return Err(format!(
            "this program does not run in the sandbox ({}){last}",
            answered.evidence.outcome.name()
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
