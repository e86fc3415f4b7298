//! Whether a set of facts still holds, for another tree and for this machine as it is now. What a fact is and where it
//! comes from is `inputs`'.
#![forbid(unsafe_code)]

use crate::pipeline::contents::Contents;
use crate::pipeline::glances;
use crate::pipeline::hosts::{self, Same, host_path};
use crate::pipeline::inputs::{Fact, described, letter};
use crate::tree::{Spot, TreeError, Walker};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How a set of facts compares with a tree and with this machine.
pub(crate) enum Compared {
    /// All holds.
    Holds,
    /// All holds, though files of the host are others with the same content: the facts as they are to be kept from now on.
    Anew(BTreeSet<Fact>),
    /// The first that does not hold, in words.
    Differs(String),
}

/// Compares a set. `newest` is the latest time that a check is shown of a file of the host, in seconds.
///
/// # Errors
/// A tree object cannot be read.
pub(super) fn compare(
    facts: &[Fact],
    walker: &mut Walker<'_>,
    contents: &mut Contents<'_>,
    newest: Option<i64>,
) -> Result<Compared, TreeError> {
    // Sets are kept in order, and what is about the tree comes first.
    let (tree, host) = facts.split_at(facts.partition_point(|fact| fact.seen_on_host().is_none()));
    let places: Vec<&Path> =
        host.iter().map(|fact| fact.seen_on_host().unwrap_or_default()).map(as_path).collect();
    let (differs, seen) = glances::beside(&places, || {
        let found = first_difference(tree, walker);
        let goes_on = matches!(found, Ok(None));
        (found, goes_on)
    });
    if let Some(differs) = differs? {
        return Ok(Compared::Differs(differs));
    }
    let mut others = Vec::new();
    for (at, (fact, look)) in host.iter().zip(seen).enumerate() {
        let index = tree.len() + at;
        let look = look.flatten();
        let holds = match fact {
            Fact::HostAbsent(_) => look.is_none(),
            Fact::HostFolder(_) => look.is_some_and(|look| look.is_folder()),
            Fact::HostLink(path, before) => {
                let now = std::fs::read_link(host_path(path));
                now.is_ok_and(|now| now.as_os_str().as_bytes() == before)
            }
            Fact::HostStamp(path, before) => {
                match look.map(|look| (hosts::compare(&look, before, newest), look)) {
                    Some((Same::Yes, _)) => true,
                    None | Some((Same::No, _)) => false,
                    Some((Same::Perhaps, look)) => {
                        others.push((index, path, before, look));
                        true
                    }
                }
            }
            _ => holds_in_tree(fact, walker)?,
        };
        if !holds {
            return Ok(Compared::Differs(in_words(fact)));
        }
    }
    if others.is_empty() {
        return Ok(Compared::Holds);
    }
    // Content is read only where all else is as it was.
    let mut anew: Vec<Fact> = facts.to_vec();
    for (index, path, before, look) in others {
        match hosts::alike(contents, path, before, &look) {
            Some(stamp) => anew[index] = Fact::HostStamp(path.clone(), stamp),
            None => return Ok(Compared::Differs(in_words(&facts[index]))),
        }
    }
    Ok(Compared::Anew(anew.into_iter().collect()))
}

/// The first fact that does not hold in a tree, in words.
fn first_difference(facts: &[Fact], walker: &mut Walker<'_>) -> Result<Option<String>, TreeError> {
    for fact in facts {
        if !holds_in_tree(fact, walker)? {
            return Ok(Some(in_words(fact)));
        }
    }
    Ok(None)
}

/// Whether what a fact says of the tree is so; what it says of the host is not looked at.
fn holds_in_tree(fact: &Fact, walker: &mut Walker<'_>) -> Result<bool, TreeError> {
    Ok(match fact {
        Fact::Absent(path) => walker.at(path)? == Spot::Absent,
        Fact::Entry(path, before) => {
            matches!(walker.at(path)?, Spot::Entry(kind, id) if described(kind, &id) == *before)
        }
        Fact::Kind(path, before) => {
            matches!(walker.at(path)?, Spot::Entry(kind, _) if letter(kind) == *before)
        }
        Fact::Names(path, before) => walker.names(path)?.is_some_and(|now| now.0[..] == before[..]),
        Fact::HostAbsent(_) | Fact::HostFolder(_) | Fact::HostLink(..) | Fact::HostStamp(..) => true,
    })
}

fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

fn in_words(fact: &Fact) -> String {
    let path = fact.path();
    let name = if path.is_empty() { "the tree's root".into() } else { String::from_utf8_lossy(path) };
    match fact {
        Fact::Absent(_) => format!("`{name}` was looked for and not there"),
        Fact::Entry(..) => format!("`{name}` was read and is another"),
        Fact::Kind(..) => format!("`{name}` is of another kind, or gone"),
        Fact::Names(..) => format!("folder `{name}` was listed and holds other names"),
        Fact::HostAbsent(_) => format!("host file {name} was looked for and not there"),
        Fact::HostFolder(_) => format!("host folder {name} is gone"),
        Fact::HostLink(..) => format!("host link {name} leads elsewhere"),
        Fact::HostStamp(..) => format!("host file {name} was used and has changed"),
    }
}
