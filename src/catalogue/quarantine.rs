//! A repository's quarantine: tests and commands that are known to be flaky and that are not to gate for a while. What is read
//! comes out whole: each entry has an owner, a reason, what was seen, and a day on which it ends. Whether it holds is not
//! decided here.
#![forbid(unsafe_code)]

use crate::catalogue::CatalogueError;
use crate::catalogue::document::{Section, Source};
use crate::model::units::parse_instant;

/// The file at the root of a tree that holds it.
pub const QUARANTINE_FILE: &str = ".checkrun-quarantine.toml";

const DAY: i64 = 86_400;
/// Keys of an entry.
const KEYS: [&str; 8] = ["test", "command", "owner", "reason", "issue", "failed", "runs", "expires"];

/// What an entry is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Quarantined {
    /// A test, by the name that reports have for it.
    Test(String),
    /// A whole command, as one line for a shell.
    Command(String),
}

/// One entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuarantineEntry {
    /// What it is about.
    pub what: Quarantined,
    /// Who sees to it.
    pub owner: String,
    /// Why it is there.
    pub reason: String,
    /// Of how many runs it failed how many when it was put there.
    pub evidence: (u64, u64),
    /// The last day on which it holds, as written.
    pub expires: String,
    /// The first second at which it no longer holds, since 1970.
    pub ends: i64,
}

/// Reads the bytes of [`QUARANTINE_FILE`].
///
/// # Errors
/// The text does not parse, has a key or value that it may not have, or an entry lacks what every entry needs.
pub fn quarantine(bytes: &[u8]) -> Result<Vec<QuarantineEntry>, CatalogueError> {
    let source = Source::of_bytes(QUARANTINE_FILE, bytes)?;
    let table = source.parse()?;
    let root = Section::root(source, &table, &["format", "quarantine"])?;
    let mut entries: Vec<QuarantineEntry> = Vec::new();
    for section in root.sections("quarantine", &KEYS)? {
        let read = entry(&section)?;
        if entries.iter().any(|known| known.what == read.what) {
            let key = if matches!(read.what, Quarantined::Test(_)) { "test" } else { "command" };
            return Err(section.fail(key, "has an entry already; one is enough"));
        }
        entries.push(read);
    }
    Ok(entries)
}

fn entry(section: &Section<'_, '_>) -> Result<QuarantineEntry, CatalogueError> {
    let what = match (section.has("test"), section.has("command")) {
        (true, false) => Quarantined::Test(section.needed_text("test", "a test's name")?.to_owned()),
        (false, true) => Quarantined::Command(section.needed_text("command", "a command")?.trim().to_owned()),
        (true, true) => {
            return Err(section.fail("command", "stands beside `test`; an entry is about one of the two"));
        }
        (false, false) => return Err(section.missing("test", "the name of a test, or give `command`")),
    };
    let owner = section.needed_text("owner", "who sees to it; without one an entry stays for ever")?;
    let reason = section.needed_text("reason", "why it is here, for whoever reads it")?;
    section.text("issue")?;
    let needed = |key: &str, what: &str| section.integer(key)?.ok_or_else(|| section.missing(key, what));
    let runs = needed("runs", "how many runs were made, as `checkrun flake` tells")?;
    let failed = needed("failed", "how many of the runs failed, as `checkrun flake` tells")?;
    if failed == 0 || failed >= runs {
        let problem = "must be more than none and fewer than `runs`: what never failed needs no quarantine, and what never \
                       passed is not flaky but broken";
        return Err(section.fail("failed", problem));
    }
    let expires = section.needed_text("expires", "the last day on which it holds, such as \"2026-12-31\"")?;
    let day = || {
        // RFC 3339 has no other length for a date, and anything longer would bring a time of its own.
        let day = parse_instant(&format!("{expires}T00:00:00Z")).ok().filter(|_| expires.len() == 10);
        day.ok_or_else(|| {
            section.fail("expires", format!("`{expires}` is not a day; write it as \"2026-12-31\""))
        })
    };
    let ends = day()? + DAY;
    let (owner, reason, expires) = (owner.to_owned(), reason.to_owned(), expires.to_owned());
    Ok(QuarantineEntry { what, owner, reason, evidence: (failed, runs), expires, ends })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "format = 1\n[[quarantine]]\ntest = \"a\"\nowner = \"o\"\nreason = \"r\"\nfailed = 2\nruns = 50\n\
                         expires = \"2026-12-31\"\n";

    #[test]
    fn a_whole_entry_is_read() {
        let entries = quarantine(WHOLE.as_bytes()).unwrap();
        assert_eq!(entries[0].what, Quarantined::Test("a".to_owned()));
        // 2027-01-01.
        assert_eq!((entries[0].evidence, entries[0].ends), ((2, 50), 1_798_761_600));
        assert_eq!(quarantine(b"format = 1\n").unwrap(), []);
    }

    #[test]
    fn entries_that_lack_something_are_refused_with_the_place() {
        for (from, to, problem) in [
            ("owner = \"o\"\n", "", ":2:1: key `quarantine[0].owner`: is missing"),
            ("expires = \"2026-12-31\"\n", "", "key `quarantine[0].expires`: is missing"),
            ("reason = \"r\"", "reason = \" \"", ":5:10: key `quarantine[0].reason`: is empty"),
            ("owner", "ownr", ":4:1: key `quarantine[0].ownr`: no such key; did you mean `owner`?"),
            ("test = \"a\"\n", "", "key `quarantine[0].test`: is missing"),
            ("test = \"a\"\n", "test = \"a\"\ncommand = \"b\"\n", "one of the two"),
            ("failed = 2", "failed = 50", "not flaky but broken"),
            ("failed = 2", "failed = 0", "needs no quarantine"),
            ("2026-12-31", "2026-13-31", "is not a day"),
            ("\"2026-12-31\"", "2026-12-31", "put it in quotes"),
            ("format = 1", "format = 2", "reads format 1"),
        ] {
            let text = WHOLE.replacen(from, to, 1);
            assert_ne!(text, WHOLE, "{from}");
            let error = quarantine(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(problem) && error.starts_with(QUARANTINE_FILE), "{error}");
        }
        let twice = format!("{WHOLE}{}", WHOLE.trim_start_matches("format = 1\n"));
        assert!(quarantine(twice.as_bytes()).unwrap_err().to_string().contains("already"));
    }
}
