//! What the caller asked besides the command, said again as words of a command line.
#![forbid(unsafe_code)]

use crate::cli::{CheckRequest, TreeChoice};
use crate::model::check::DepsChoice;
use crate::model::policy::ClockStart;
use crate::model::shell::shell_words;
use crate::model::units::{show_cpus, show_duration, show_instant};
use std::os::unix::ffi::OsStrExt;

/// What the caller asked besides the command, as words of a command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    words: Vec<Vec<u8>>,
    /// When the clock starts, which an arm may set itself.
    clock: Vec<Vec<u8>>,
}

impl Asked {
    pub(super) fn new(request: &CheckRequest) -> Self {
        let clock = match request.clock.start {
            None => None,
            Some(ClockStart::At(at)) => Some(show_instant(at)),
            Some(ClockStart::Commit) => Some("commit".to_owned()),
            Some(ClockStart::Host) => Some("host".to_owned()),
        };
        let clock = clock.map(|clock| vec![b"--clock".to_vec(), clock.into_bytes()]).unwrap_or_default();
        Self { words: options(request), clock }
    }

    /// The words before `--`, for one whose own options set the clock or not.
    pub(super) fn start(&self, sets_clock: bool) -> String {
        let clock: &[Vec<u8>] = if sets_clock { &[] } else { &self.clock };
        let program = [b"checkrun".to_vec(), b"--refresh".to_vec()];
        shell_words(&[&program, &self.words[..], clock].concat())
    }
}

fn options(request: &CheckRequest) -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = Vec::new();
    let mut say = |option: &str, value: &[u8]| words.extend([option.as_bytes().to_vec(), value.to_vec()]);
    match &request.tree {
        TreeChoice::Revision(revision) => say("--tree", revision.as_bytes()),
        TreeChoice::Folder(path, _) => say("--dir", path.as_os_str().as_bytes()),
        TreeChoice::Working | TreeChoice::Staged => {}
    }
    for (option, value) in [("--policy", &request.policy), ("--runner", &request.runner)] {
        if let Some(value) = value {
            say(option, value.as_bytes());
        }
    }
    if let Some(cwd) = &request.cwd {
        say("--cwd", cwd.as_os_str().as_bytes());
    }
    for pathspec in &request.scope {
        say("--scope", pathspec.as_bytes());
    }
    for passed in &request.env {
        let value = passed.value.as_ref().map(|value| [&passed.name[..], b"=", value].concat());
        say("--env", value.as_deref().unwrap_or(&passed.name));
    }
    let asked = &request.overrides;
    let limits = [
        ("--timeout", asked.timeout.map(|timeout| show_duration(timeout).replace(' ', ""))),
        ("--memory", asked.memory.map(|bytes| bytes.0.to_string())),
        ("--pids", asked.pids.map(|pids| pids.to_string())),
        ("--cpus", asked.cpus_milli.map(show_cpus)),
        ("--disk", asked.disk.map(|bytes| bytes.0.to_string())),
        ("--output-limit", asked.output.map(|bytes| bytes.0.to_string())),
        ("--aslr", asked.aslr.map(|aslr| aslr.name().to_owned())),
        ("--umask", asked.umask.map(|mask| format!("{mask:03o}"))),
    ];
    for (option, value) in limits {
        if let Some(value) = value {
            say(option, value.as_bytes());
        }
    }
    if request.deps != DepsChoice::default() {
        say("--deps", request.deps.name().as_bytes());
    }
    if let Some(mode) = request.clock.mode {
        say("--clock-mode", mode.name().as_bytes());
    }
    for variation in &asked.varied {
        say("--vary", variation.to_string().as_bytes());
    }
    let flags = [
        ("--staged", request.tree == TreeChoice::Staged),
        ("--ignored", matches!(request.tree, TreeChoice::Folder(_, true))),
        ("--submodules", request.filled.submodules),
        ("--lfs", request.filled.lfs),
    ];
    words.extend(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag.as_bytes().to_vec()));
    words
}
