//! The self-check of the sandbox: this program, run as a check, tries to get out in a few plain ways and says what came of
//! it; what it says is held against what can be seen from outside. The escape tests try hundreds of others.
#![forbid(unsafe_code)]

use crate::commands::{Failure, Session, self_run};
use crate::model::layer::Level;
use crate::model::policy::ClockWish;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The word by which this program tries to get out.
const ATTEMPTS: &str = "attempts-report";
/// An address that belongs to nobody (RFC 5737): where there is a route at all, it leads there.
const OUTSIDE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);
/// What is in the file outside.
const WITNESS: &str = "as it was";
/// How long a connection may take.
const WAIT: Duration = Duration::from_millis(500);

/// What each attempt came to: `ok` where it was refused, or what was wrong.
pub(super) type Findings = BTreeMap<String, String>;

/// Tries to get out, from inside; a line each.
pub(super) fn report(host: SocketAddr, file: &Path, session: &mut Session) -> Result<u8, Failure> {
    let mut text = String::new();
    for (name, wrong) in [
        ("reach_out", reached(host)),
        ("write_out", written(file)),
        ("read_in", std::fs::read(file).ok().map(|_| "a file outside can be read".to_owned())),
        ("see_processes", seen()),
    ] {
        text.push_str(&format!("{name} {}\n", wrong.unwrap_or_else(|| "ok".to_owned())));
    }
    session.reporter.data(text.as_bytes());
    Ok(0)
}

fn reached(host: SocketAddr) -> Option<String> {
    [host, OUTSIDE].into_iter().find_map(|to| match TcpStream::connect_timeout(&to, WAIT) {
        Ok(_) => Some(format!("{to} was reached")),
        // Somebody took the packet and did not answer, so there is a way out.
        Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
            Some(format!("there is a route to {to}"))
        }
        Err(_) => None,
    })
}

fn written(file: &Path) -> Option<String> {
    let beside = file.with_extension("new");
    let outside = std::fs::OpenOptions::new().write(true).open(file).and_then(|mut to| to.write_all(b"x"));
    if outside.is_ok() || std::fs::write(&beside, b"x").is_ok() {
        return Some("a file outside can be written".to_owned());
    }
    let system = std::fs::write("/usr/bin/checkrun-attempt", b"x").is_ok();
    system.then(|| "the system's programs can be replaced".to_owned())
}

/// Whether the process that asked can be seen: it is the only one with that word.
fn seen() -> Option<String> {
    let lines = std::fs::read_dir("/proc").ok()?.flatten();
    let mut lines = lines.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let doctor = lines.any(|line| line.split(|byte| *byte == 0).any(|word| word == b"doctor"));
    doctor.then(|| "processes outside can be seen".to_owned())
}

/// Has a check at a level try to get out.
///
/// # Errors
/// Says in a sentence why it could not be run.
pub(super) fn check(session: &Session, level: Level) -> Result<Findings, String> {
    let folder = session.around.scratch().join(format!("doctor-witness-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let found = check_beside(&folder.join("witness"), session, level);
    drop(std::fs::remove_dir_all(&folder));
    found
}

fn check_beside(witness: &Path, session: &Session, level: Level) -> Result<Findings, String> {
    let no = |what: &str, error: std::io::Error| format!("cannot {what}: {error}");
    std::fs::write(witness, WITNESS).map_err(|error| no("write the file to be tried", error))?;
    let host =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| no("listen on loopback", error))?;
    host.set_nonblocking(true).map_err(|error| no("listen on loopback", error))?;
    let address = host.local_addr().map_err(|error| no("listen on loopback", error))?;
    let path: PathBuf = std::path::absolute(witness).map_err(|error| no("tell the current folder", error))?;
    let quoted = path.display().to_string().replace('\'', r"'\''");
    let script = format!("./checkrun {ATTEMPTS} {address} '{quoted}'");
    let policy = if level == Level::Full { "hermetic" } else { "landlock" };
    let output = self_run::run(session, policy, ClockWish::default(), &script)?;
    let mut found = judge(&output, level);
    // What the check says of itself is not all: these two are looked at from here.
    if host.accept().is_ok() {
        found.insert("reach_out".to_owned(), format!("{address} was reached"));
    }
    let beside = std::fs::read_dir(witness.parent().unwrap_or(witness)).map(Iterator::count);
    if std::fs::read(witness).ok().as_deref() != Some(WITNESS.as_bytes()) || !matches!(beside, Ok(1)) {
        found.insert("write_out".to_owned(), "a file outside was written".to_owned());
    }
    Ok(found)
}

/// Reads what an attempt came to; what is not told is said to be missing.
fn judge(text: &str, level: Level) -> Findings {
    let mut names = vec!["reach_out", "write_out", "read_in"];
    // Without a PID namespace nothing hides the processes of the machine.
    if level == Level::Full {
        names.push("see_processes");
    }
    let told = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap_or("it was not tried")
    };
    names.into_iter().map(|name| (name.to_owned(), told(name).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_that_is_not_told_of_is_no_success() {
        let found = judge("reach_out ok\nwrite_out a file outside can be written\n", Level::Full);
        let of = |name: &str| found.get(name).map_or("", String::as_str);
        assert_eq!((of("reach_out"), of("read_in")), ("ok", "it was not tried"));
        assert_eq!(
            (of("write_out"), of("see_processes")),
            ("a file outside can be written", "it was not tried")
        );
        assert!(!judge("", Level::Landlock).contains_key("see_processes"));
    }
}
