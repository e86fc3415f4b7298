//! `checkrun init`: a commented settings file for a repository. What the settings mean is `catalogue`'s.
#![forbid(unsafe_code)]

use crate::catalogue::SETTINGS_FILE;
use crate::commands::{Failure, Session};
use crate::model::units::{INSTANT_MAX, show_instant};
use crate::tree::{self, Source};
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;

/// Seconds of a day.
const DAY: i64 = 86_400;

#[derive(Serialize)]
struct Written<'a> {
    path: &'a Path,
    clock: String,
}

/// Writes the settings file of the repository around the start; never over one that is there.
pub(super) fn init(session: &mut Session) -> Result<u8, Failure> {
    let source = Source::Revision("HEAD".to_owned());
    let snapshot = tree::resolve(&session.start, &source, &session.around.scratch())?;
    let root = snapshot.repository_root().filter(|root| root.join(".git").exists());
    let root = root.ok_or_else(|| {
        Failure::new(
            "a bare repository has no working tree to write the settings to",
            Some("start in a clone of it"),
        )
    })?;
    let committed =
        snapshot.committed().filter(|date| (0..=INSTANT_MAX - DAY).contains(date)).ok_or_else(|| {
            Failure::new(
                "the newest commit has no date that a clock can be set to",
                Some("write the file by hand"),
            )
        })?;
    let clock = show_instant(midnight_after(committed));
    let path = root.join(SETTINGS_FILE);
    write_new(&path, &settings(&clock))?;
    if session.reporter.is_json() {
        session.reporter.object(&Written { path: &path, clock });
    } else {
        let text = format!("wrote {}: the clock starts at {clock}\n", path.display());
        session.reporter.data(text.as_bytes());
    }
    Ok(0)
}

fn midnight_after(date: i64) -> i64 {
    (date.div_euclid(DAY) + 1) * DAY
}

fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let written = std::fs::File::create_new(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            Failure::new(
                format!("{} is there already", path.display()),
                Some("edit it, or move it away first"),
            )
        } else {
            Failure::new(format!("cannot write {}: {error}", path.display()), None)
        }
    })
}

fn settings(clock: &str) -> String {
    format!(
        "\
# What checkrun does with this repository. The file is part of the tree and so of every key; it may tighten the policy
# that is in force, never widen it. `checkrun policies hermetic` shows all that a policy says.
format = 1

# A stricter policy that comes with checkrun.
# policy = \"strict\"

# No network but loopback, whatever the policy allows.
# network = \"loopback\"

# What time it is when a check starts. It stays until somebody moves it, so that checks keep their results; move it
# when the sources come to need a later date. `commit` is the committer date of the commit that is checked; a result
# then answers for that date only. Modes: `ticking` runs as real time does, `frozen` stands still.
[clock]
start = \"{clock}\"
mode = \"ticking\"

# Limits, each at most the policy's own.
# [limits]
# timeout = \"5m\"
# memory = \"2GiB\"
# pids = 512
# cpus = 2
# disk = \"1GiB\"
# output = \"64MiB\"
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::RepositorySettings;

    #[test]
    fn the_file_that_is_written_can_be_read() {
        assert_eq!(show_instant(midnight_after(1_577_836_800)), "2020-01-02T00:00:00Z");
        assert_eq!(show_instant(midnight_after(1_577_836_799)), "2020-01-01T00:00:00Z");
        let text = settings("2020-01-02T00:00:00Z");
        RepositorySettings::parse(text.as_bytes()).unwrap();
        // What is commented out is right as well; `network` and `policy` must stand before the tables.
        let all: String = text
            .lines()
            .map(|line| {
                line.strip_prefix("# ")
                    .filter(|rest| rest.contains(" = ") || rest.starts_with('['))
                    .unwrap_or(line)
            })
            .map(|line| format!("{line}\n"))
            .collect();
        RepositorySettings::parse(all.as_bytes()).unwrap();
    }
}
