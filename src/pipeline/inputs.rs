//! Observed inputs: from the paths that a check looked at to a set of facts about tree and host. Observing is
//! `sandbox::observer`'s, how a set is written is `kept_set`'s, keeping it is `store`'s, and whether the facts still hold for
//! another tree is asked by `comparing`.
//!
//! A fact says what was at one place, taken literally: links on the way are facts of their own, so a set can be compared
//! with another tree by looking at places, without opening a file.
#![forbid(unsafe_code)]

use crate::model::digest::ObjectId;
use crate::pipeline::hosts::Hosts;
use crate::pipeline::kept_set;
use crate::pipeline::links::Way;
use crate::sandbox::observer::{DEEP, EXISTS, LISTING};
use crate::sandbox::plan::TREE_PLACE;
use crate::tree::{EntryKind, Snapshot, Spot, TreeError, Walker};
use std::collections::{BTreeSet, HashSet};

/// What was found at one place. The order of sorts is that of kept sets.
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

/// A set as it is kept, of facts that hold for a snapshot.
///
/// # Errors
/// A tree object cannot be read.
pub(super) fn kept(facts: &BTreeSet<Fact>, snapshot: &Snapshot) -> Result<Vec<u8>, TreeError> {
    let mut walker = Walker::new(snapshot);
    kept_set::encode(facts, |folder| match walker.at(folder)? {
        Spot::Entry(EntryKind::Folder, id) => Ok(Some(id)),
        _ => Ok(None),
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
