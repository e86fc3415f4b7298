//! What the caller asked besides the command, said again as words of a command line.
#![forbid(unsafe_code)]

use crate::cli::{CheckRequest, TreeChoice};
use crate::model::units::{show_cpus, show_duration};
use std::os::unix::ffi::OsStrExt;

/// What the caller asked besides the command, as words of a command line; without the clock, which an arm may set.
pub(super) fn options(request: &CheckRequest) -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = Vec::new();
    let mut say = |option: &str, value: &[u8]| words.extend([option.as_bytes().to_vec(), value.to_vec()]);
    match &request.tree {
        TreeChoice::Revision(revision) => say("--tree", revision.as_bytes()),
        TreeChoice::Folder(folder) => say("--dir", folder.as_os_str().as_bytes()),
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
    for variation in &asked.varied {
        say("--vary", variation.to_string().as_bytes());
    }
    if request.tree == TreeChoice::Staged {
        words.push(b"--staged".to_vec());
    }
    words
}
