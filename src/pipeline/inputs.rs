//! Observed inputs: from the paths that a check looked at to a set of facts about tree and host. Observing is
//! `sandbox::observer`'s, keeping is `store`'s, and whether the facts still hold for another tree is asked by `comparing`.
//!
//! A fact says what was at one place, taken literally: links on the way are facts of their own, so a set can be compared
//! with another tree by looking at places, without opening a file.
#![forbid(unsafe_code)]

use crate::model::digest::ObjectId;
use crate::pipeline::hosts::Hosts;
use crate::pipeline::links::Way;
use crate::sandbox::observer::{DEEP, EXISTS, LISTING};
use crate::sandbox::plan::TREE_PLACE;
use crate::tree::{EntryKind, Snapshot, Spot, TreeError, Walker};
use std::collections::{BTreeSet, HashSet};

/// Version of a set's layout and meaning. In 1, links of the host were not facts of their own, and ways through
/// `/proc/self` by a link were taken for ways to nothing.
const VERSION: u8 = 2;

/// What was found at one place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Fact {
    /// In the tree: nothing.
    Absent(Vec<u8>),
    /// In the tree: this entry, content and all.
    Entry(Vec<u8>, Vec<u8>),
    /// In the tree: something of this kind.
    Kind(Vec<u8>, u8),
    /// In the tree: a folder with these names in it.
    Names(Vec<u8>, Vec<u8>),
    /// On the host: nothing.
    HostAbsent(Vec<u8>),
    /// On the host: this very file, or this folder with what is in it; behind the stamp, where it is known, what a file
    /// must be like to stand for it.
    HostStamp(Vec<u8>, Vec<u8>),
    /// On the host: a folder.
    HostFolder(Vec<u8>),
    /// On the host: a link with this text.
    HostLink(Vec<u8>, Vec<u8>),
}

impl Fact {
    /// The place that it is about.
    pub(super) fn path(&self) -> &[u8] {
        match self {
            Self::Absent(path)
            | Self::Entry(path, _)
            | Self::Kind(path, _)
            | Self::Names(path, _)
            | Self::HostAbsent(path)
            | Self::HostStamp(path, _)
            | Self::HostFolder(path)
            | Self::HostLink(path, _) => path,
        }
    }

    /// Its place on the host; `None` where it is about the tree.
    pub(super) fn seen_on_host(&self) -> Option<&[u8]> {
        match self {
            Self::HostAbsent(path)
            | Self::HostStamp(path, _)
            | Self::HostFolder(path)
            | Self::HostLink(path, _) => Some(path),
            Self::Absent(_) | Self::Entry(..) | Self::Kind(..) | Self::Names(..) => None,
        }
    }
}

/// Works out the facts behind what a check looked at.
///
/// # Errors
/// A tree object cannot be read.
pub(crate) fn facts(
    looked_at: &[(Vec<u8>, u8)],
    snapshot: &Snapshot,
    hosts: &mut Hosts<'_>,
) -> Result<BTreeSet<Fact>, TreeError> {
    let mut walker = Walker::new(snapshot);
    let mut facts = BTreeSet::new();
    for (path, kind) in looked_at {
        let parts = normal(path);
        match below_tree(&parts) {
            Some(inside) => tree_facts(&mut walker, inside, *kind, &mut facts)?,
            None => hosts.note(&parts, *kind, &mut facts),
        }
    }
    fold(&mut walker, facts)
}

/// Puts one fact in the place of all about a folder that was listed and read to the last file: the id of its tree object
/// says the same and is found by one look.
fn fold(walker: &mut Walker<'_>, mut facts: BTreeSet<Fact>) -> Result<BTreeSet<Fact>, TreeError> {
    let mut whole: HashSet<Vec<u8>> = HashSet::new();
    let mut listed: Vec<Vec<u8>> = Vec::new();
    for fact in &facts {
        match fact {
            Fact::Entry(path, _) => drop(whole.insert(path.clone())),
            Fact::Names(path, _) => listed.push(path.clone()),
            _ => {}
        }
    }
    // Longer paths first: a folder is whole when the folders in it are.
    listed.sort_by_key(|path| std::cmp::Reverse(path.len()));
    let mut folded: HashSet<Vec<u8>> = HashSet::new();
    for folder in listed {
        let names = walker.children(&folder)?.unwrap_or_default();
        let below =
            |name: &[u8]| if folder.is_empty() { name.to_vec() } else { [&folder, &b"/"[..], name].concat() };
        if !names.is_empty() && names.iter().all(|name| whole.contains(&below(name))) {
            whole.insert(folder.clone());
            folded.insert(folder);
        }
    }
    facts.retain(|fact| match fact {
        Fact::Absent(path) | Fact::Entry(path, _) | Fact::Kind(path, _) | Fact::Names(path, _) => {
            !and_above(path).any(|folder| folded.contains(folder))
        }
        Fact::HostAbsent(_) | Fact::HostFolder(_) | Fact::HostLink(..) | Fact::HostStamp(..) => true,
    });
    for folder in &folded {
        let inner = and_above(folder).skip(1).any(|above| folded.contains(above));
        if let (false, Spot::Entry(kind, id)) = (inner, walker.at(folder)?) {
            facts.insert(Fact::Entry(folder.clone(), described(kind, &id)));
        }
    }
    Ok(facts)
}

/// A path of the tree, and each folder above it up to the root, which is empty.
fn and_above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(path), |path| {
        (!path.is_empty())
            .then(|| path.iter().rposition(|byte| *byte == b'/').map_or(&[][..], |at| &path[..at]))
    })
}

/// The fact that all of the tree is as it is.
pub(crate) fn all_of(snapshot: &Snapshot) -> Fact {
    Fact::Entry(Vec::new(), described(EntryKind::Folder, &snapshot.identity().tree))
}

/// The parts of an absolute path without empty ones and dots; `..` stays, since links decide what it means.
pub(super) fn normal(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect()
}

pub(super) fn below_tree<'p>(parts: &[&'p [u8]]) -> Option<Vec<&'p [u8]>> {
    let place = TREE_PLACE.trim_start_matches('/').as_bytes();
    (parts.first() == Some(&place)).then(|| parts[1..].to_vec())
}

/// Follows a path through the tree's own links and notes what is at its end and at each link.
fn tree_facts(
    walker: &mut Walker<'_>,
    parts: Vec<&[u8]>,
    kind: u8,
    facts: &mut BTreeSet<Fact>,
) -> Result<(), TreeError> {
    let mut way = Way::new(&parts);
    while way.step() {
        let path = way.at.join(&b'/');
        if let Spot::Entry(EntryKind::Symlink, id) = walker.at(&path)? {
            facts.insert(Fact::Entry(path, described(EntryKind::Symlink, &id)));
            let target = walker.link_target(&id)?;
            let mut parts = normal(&target);
            let is_absolute = target.first() == Some(&b'/');
            if is_absolute {
                match below_tree(&parts) {
                    Some(inside) => parts = inside,
                    // Out of the tree; what is there was noted by its real path.
                    None => return Ok(()),
                }
            }
            if !way.follow(&parts, is_absolute) {
                return Ok(());
            }
        }
    }
    end_fact(walker, way.at.join(&b'/'), kind, facts)
}

fn end_fact(
    walker: &mut Walker<'_>,
    path: Vec<u8>,
    kind: u8,
    facts: &mut BTreeSet<Fact>,
) -> Result<(), TreeError> {
    match walker.at(&path)? {
        Spot::Absent | Spot::BehindLink => {
            facts.insert(Fact::Absent(path));
        }
        Spot::Entry(EntryKind::Folder, id) => {
            if kind & DEEP != 0 {
                facts.insert(Fact::Entry(path.clone(), described(EntryKind::Folder, &id)));
            }
            if kind & LISTING != 0
                && let Some(names) = walker.names(&path)?
            {
                facts.insert(Fact::Names(path.clone(), names.0.to_vec()));
            }
            facts.insert(Fact::Kind(path, letter(EntryKind::Folder)));
        }
        Spot::Entry(found, _) if kind == EXISTS => {
            facts.insert(Fact::Kind(path, letter(found)));
        }
        Spot::Entry(found, id) => {
            facts.insert(Fact::Entry(path, described(found, &id)));
        }
    }
    Ok(())
}

pub(super) fn letter(kind: EntryKind) -> u8 {
    match kind {
        EntryKind::File => b'f',
        EntryKind::Executable => b'x',
        EntryKind::Symlink => b'l',
        EntryKind::Folder => b'd',
        EntryKind::Submodule => b's',
    }
}

pub(super) fn described(kind: EntryKind, id: &ObjectId) -> Vec<u8> {
    [&[letter(kind)], id.as_bytes()].concat()
}

/// A set as bytes: a version, then each fact as a letter and one or two length-prefixed fields.
pub(crate) fn encode(facts: &BTreeSet<Fact>) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    for fact in facts {
        let (letter, path, value): (u8, &[u8], &[u8]) = match fact {
            Fact::Absent(path) => (b'a', path, &[]),
            Fact::Entry(path, value) => (b'e', path, value),
            Fact::Kind(path, kind) => (b'k', path, std::slice::from_ref(kind)),
            Fact::Names(path, value) => (b'n', path, value),
            Fact::HostAbsent(path) => (b'A', path, &[]),
            Fact::HostFolder(path) => (b'F', path, &[]),
            Fact::HostLink(path, value) => (b'L', path, value),
            Fact::HostStamp(path, value) => (b'S', path, value),
        };
        bytes.push(letter);
        for field in [path, value] {
            bytes.extend(u32::try_from(field.len()).unwrap_or(u32::MAX).to_le_bytes());
            bytes.extend(field);
        }
    }
    bytes
}

/// Whether a set was made by the rules of today. An older one can be read, but does not answer.
pub(crate) fn is_current(bytes: &[u8]) -> bool {
    bytes.first() == Some(&VERSION)
}

/// Reads a set back; `None` where it is of an unknown version or cut.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<Fact>> {
    let (version, mut rest) = bytes.split_first()?;
    if !(1..=VERSION).contains(version) {
        return None;
    }
    let mut facts = Vec::new();
    while let Some((letter, after)) = rest.split_first() {
        rest = after;
        let mut field = || -> Option<Vec<u8>> {
            let (length, after) = rest.split_first_chunk::<4>()?;
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            let value = after.get(..length)?.to_vec();
            rest = after.get(length..)?;
            Some(value)
        };
        let (path, value) = (field()?, field()?);
        facts.push(match letter {
            b'a' => Fact::Absent(path),
            b'e' => Fact::Entry(path, value),
            b'k' => Fact::Kind(path, *value.first()?),
            b'n' => Fact::Names(path, value),
            b'A' => Fact::HostAbsent(path),
            b'F' => Fact::HostFolder(path),
            b'L' => Fact::HostLink(path, value),
            b'S' => Fact::HostStamp(path, value),
            _ => return None,
        });
    }
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_read_back_and_cut_ones_are_none() {
        let facts: BTreeSet<Fact> = [
            Fact::Absent(b"a/b".to_vec()),
            Fact::Entry(b"c".to_vec(), vec![b'f', 1, 2]),
            Fact::Kind(Vec::new(), b'd'),
            Fact::Names(b"d".to_vec(), vec![9; 32]),
            Fact::HostAbsent(b"/usr/x".to_vec()),
            Fact::HostFolder(b"/usr".to_vec()),
            Fact::HostStamp(b"/usr/y".to_vec(), vec![7; 64]),
            Fact::HostStamp(b"/usr/z".to_vec(), vec![7; 96]),
            Fact::HostLink(b"/bin".to_vec(), b"usr/bin".to_vec()),
        ]
        .into();
        let bytes = encode(&facts);
        assert_eq!(decode(&bytes).map(|read| read.into_iter().collect()), Some(facts));
        assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        assert!(is_current(&bytes));
        assert_eq!(decode(&[VERSION + 1]), None);
        assert_eq!(decode(&[0]), None);
        assert_eq!(decode(&[1]), Some(Vec::new()));
        assert!(!is_current(&[1]));
    }
}
