//! Whether a set of facts still holds, for another tree and for this machine as it is now. What a fact is and where it
//! comes from is `inputs`'.
#![forbid(unsafe_code)]

use crate::pipeline::contents::Contents;
use crate::pipeline::glances::{self, Other, Unlike};
use crate::pipeline::hosts;
use crate::pipeline::inputs::{Fact, described, letter};
use crate::pipeline::kept_set::{Group, Item, KeptSet, Sort};
use crate::tree::{EntryKind, Folder, Spot, TreeError, Walker};
use std::collections::BTreeSet;

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
    set: &KeptSet<'_>,
    walker: &mut Walker<'_>,
    contents: &mut Contents<'_>,
    newest: Option<i64>,
) -> Result<Compared, TreeError> {
    let (tree, host) = set.parts();
    let (differs, glanced) = glances::beside(host, newest, || {
        let found = first_difference(tree, walker);
        let goes_on = matches!(found, Ok(None));
        (found, goes_on)
    });
    if let Some(unlike) = differs?.or(glanced.differs) {
        return Ok(Compared::Differs(in_words(&unlike)));
    }
    if glanced.others.is_empty() {
        return Ok(Compared::Holds);
    }
    // Content is read only where all else is as it was.
    let Some(facts) = set.facts() else { return Ok(Compared::Differs(in_words(&Unlike::Unreadable))) };
    let mut anew: BTreeSet<Fact> = facts.into_iter().collect();
    for Other { path, before, look, .. } in glanced.others {
        let alike = hosts::alike(contents, &path, before, &look);
        let was = Fact::HostStamp(path.clone(), before.to_vec());
        let Some(stamp) = alike else { return Ok(Compared::Differs(in_words(&Unlike::Fact(was)))) };
        anew.remove(&was);
        anew.insert(Fact::HostStamp(path, stamp));
    }
    Ok(Compared::Anew(anew))
}

/// The first fact that does not hold in a tree.
fn first_difference(groups: &[Group<'_>], walker: &mut Walker<'_>) -> Result<Option<Unlike>, TreeError> {
    for group in groups {
        // A folder with the same tree object is the same to the last file below it, and need not be read.
        let is_same =
            |spot: &Spot| matches!(spot, Spot::Entry(EntryKind::Folder, id) if id.as_bytes() == group.tree);
        if !group.tree.is_empty() && is_same(&walker.at(group.above())?) {
            continue;
        }
        let folder = walker.folder(group.above())?;
        let mut near = 0;
        for item in group.items() {
            let Some(item) = item else { return Ok(Some(Unlike::Unreadable)) };
            let at_once =
                folder.as_ref().and_then(|folder| holds_in_folder(group.sort, &item, folder, &mut near));
            if at_once == Some(true) {
                continue;
            }
            let Some(fact) = group.fact(&item) else { return Ok(Some(Unlike::Unreadable)) };
            if at_once == Some(false) || !holds_in_tree(&fact, walker)? {
                return Ok(Some(Unlike::Fact(fact)));
            }
        }
    }
    Ok(None)
}

/// Whether what a fact says of something in a folder is so; `None` where the folder alone does not tell.
fn holds_in_folder(sort: Sort, item: &Item<'_>, folder: &Folder, near: &mut usize) -> Option<bool> {
    // The tree's root is in no folder.
    if item.name.is_empty() || !matches!(sort, Sort::Absent | Sort::Entry | Sort::Kind) {
        return None;
    }
    let there = folder.near(item.name, near);
    Some(match sort {
        Sort::Absent => there.is_none(),
        Sort::Kind => there.is_some_and(|(kind, _)| item.value.first() == Some(&letter(kind))),
        _ => there.is_some_and(|(kind, id)| item.value.split_first() == Some((&letter(kind), id))),
    })
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

fn in_words(unlike: &Unlike) -> String {
    let Unlike::Fact(fact) = unlike else { return "the set of inputs cannot be read".to_owned() };
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
