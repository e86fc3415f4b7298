//! How a set of facts is written and read: in groups by sort and folder, so that one of thousands can be compared where it
//! lies, each group by itself. What a fact says is `inputs`', and whether it holds is asked by `comparing`.
//!
//! A version, then groups, those about the tree first: a letter for what its facts say, the folder's path up to and with its
//! last slash, the id of its tree object in the tree that they were seen to hold for, and the facts, each a name in that
//! folder and a value. Each field has its length before it.
#![forbid(unsafe_code)]

use crate::model::digest::ObjectId;
use crate::pipeline::inputs::Fact;
use std::collections::BTreeSet;
use std::convert::Infallible;

/// Version of a set's layout and meaning. In 1, links of the host were not facts of their own, and ways through
/// `/proc/self` by a link were taken for ways to nothing. 2 means the same as 3, one fact with its whole path after another.
const VERSION: u8 = 3;
/// The oldest version with today's meaning.
const SAME_MEANING: u8 = 2;
/// Facts of one group at most; of a larger folder there are several, which are compared side by side.
const GROUP: usize = 64;

/// What the facts of a group say; in the order of the facts themselves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Sort {
    Absent,
    Entry,
    Kind,
    Names,
    HostAbsent,
    HostStamp,
    HostFolder,
    HostLink,
}

impl Sort {
    const ALL: [(Self, u8); 8] = [
        (Self::Absent, b'a'),
        (Self::Entry, b'e'),
        (Self::Kind, b'k'),
        (Self::Names, b'n'),
        (Self::HostAbsent, b'A'),
        (Self::HostStamp, b'S'),
        (Self::HostFolder, b'F'),
        (Self::HostLink, b'L'),
    ];

    fn letter(self) -> u8 {
        Self::ALL.iter().find(|(sort, _)| *sort == self).map_or(b'?', |(_, letter)| *letter)
    }

    fn of_letter(letter: u8) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == letter).map(|(sort, _)| *sort)
    }

    fn of(fact: &Fact) -> Self {
        match fact {
            Fact::Absent(_) => Self::Absent,
            Fact::Entry(..) => Self::Entry,
            Fact::Kind(..) => Self::Kind,
            Fact::Names(..) => Self::Names,
            Fact::HostAbsent(_) => Self::HostAbsent,
            Fact::HostStamp(..) => Self::HostStamp,
            Fact::HostFolder(_) => Self::HostFolder,
            Fact::HostLink(..) => Self::HostLink,
        }
    }

    /// Whether it is about the host and not about the tree.
    fn is_of_host(self) -> bool {
        self >= Self::HostAbsent
    }

    fn fact(self, path: Vec<u8>, value: &[u8]) -> Option<Fact> {
        let own = || value.to_vec();
        Some(match self {
            Self::Absent => Fact::Absent(path),
            Self::Entry => Fact::Entry(path, own()),
            Self::Kind => Fact::Kind(path, *value.first()?),
            Self::Names => Fact::Names(path, own()),
            Self::HostAbsent => Fact::HostAbsent(path),
            Self::HostStamp => Fact::HostStamp(path, own()),
            Self::HostFolder => Fact::HostFolder(path),
            Self::HostLink => Fact::HostLink(path, own()),
        })
    }
}

/// Facts of one sort about one folder, as they lie in a set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group<'b> {
    pub(super) sort: Sort,
    /// With its last slash; empty for names in the tree's root, and for that root itself.
    pub(super) folder: &'b [u8],
    /// The tree object of that folder for which all of the group holds; empty where none is known.
    pub(super) tree: &'b [u8],
    items: &'b [u8],
}

/// One fact of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'b> {
    pub(super) name: &'b [u8],
    pub(super) value: &'b [u8],
}

impl<'b> Group<'b> {
    /// Its facts, by name; `None` where the rest cannot be read.
    pub(super) fn items(&self) -> impl Iterator<Item = Option<Item<'b>>> + use<'b> {
        let mut rest = self.items;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let mut item = || Some(Item { name: field(&mut rest)?, value: field(&mut rest)? });
            let found = item();
            if found.is_none() {
                rest = &[];
            }
            Some(found)
        })
    }

    /// The path of its folder as the tree has it.
    pub(super) fn above(&self) -> &'b [u8] {
        without_slash(self.folder)
    }

    /// The whole path of one of its names.
    pub(super) fn path(&self, name: &[u8]) -> Vec<u8> {
        [self.folder, name].concat()
    }

    /// One of its facts by itself; `None` where its value cannot be read.
    pub(super) fn fact(&self, item: &Item<'b>) -> Option<Fact> {
        self.sort.fact(self.path(item.name), item.value)
    }
}

/// A set where it lies.
#[derive(Debug)]
pub(super) struct KeptSet<'b> {
    groups: Vec<Group<'b>>,
    /// How many of the groups are about the tree.
    of_tree: usize,
}

impl<'b> KeptSet<'b> {
    /// Finds the groups of a set; `None` where it is of another version or cut. The facts in them are read when they are
    /// asked for.
    pub(super) fn read(bytes: &'b [u8]) -> Option<Self> {
        let (&VERSION, mut rest) = bytes.split_first()? else { return None };
        let mut groups: Vec<Group<'b>> = Vec::new();
        while let Some((letter, after)) = rest.split_first() {
            rest = after;
            let group = Group {
                sort: Sort::of_letter(*letter)?,
                folder: field(&mut rest)?,
                tree: field(&mut rest)?,
                items: field(&mut rest)?,
            };
            // Order is what lets the tree's be told from the host's.
            if groups.last().is_some_and(|last| last.sort > group.sort) {
                return None;
            }
            groups.push(group);
        }
        let of_tree = groups.partition_point(|group| !group.sort.is_of_host());
        Some(Self { groups, of_tree })
    }

    /// The groups about the tree, and those about the host.
    pub(super) fn parts(&self) -> (&[Group<'b>], &[Group<'b>]) {
        self.groups.split_at(self.of_tree)
    }

    /// All facts by themselves; `None` where one cannot be read.
    pub(super) fn facts(&self) -> Option<Vec<Fact>> {
        let items = self.groups.iter().flat_map(|group| group.items().map(move |item| group.fact(&item?)));
        items.collect()
    }
}

/// A set as it is kept. `tree_of` tells the tree object of a folder, in the tree that the facts hold for.
///
/// # Errors
/// Those of `tree_of`.
pub(super) fn encode<E>(
    facts: &BTreeSet<Fact>,
    mut tree_of: impl FnMut(&[u8]) -> Result<Option<ObjectId>, E>,
) -> Result<Vec<u8>, E> {
    let mut placed: Vec<(Sort, &[u8], &[u8], &Fact)> = facts
        .iter()
        .map(|fact| {
            let path = fact.path();
            let (folder, name) =
                path.split_at(path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1));
            (Sort::of(fact), folder, name, fact)
        })
        .collect();
    placed.sort();
    let mut bytes = vec![VERSION];
    let mut items = Vec::new();
    for of_folder in placed.chunk_by(|one, next| (one.0, one.1) == (next.0, next.1)) {
        let (sort, folder, ..) = of_folder[0];
        let known = if sort.is_of_host() { None } else { tree_of(without_slash(folder))? };
        for group in of_folder.chunks(GROUP) {
            items.clear();
            for (_, _, name, fact) in group {
                let value: &[u8] = match fact {
                    Fact::Entry(_, value)
                    | Fact::Names(_, value)
                    | Fact::HostLink(_, value)
                    | Fact::HostStamp(_, value) => value,
                    Fact::Kind(_, kind) => std::slice::from_ref(kind),
                    Fact::Absent(_) | Fact::HostAbsent(_) | Fact::HostFolder(_) => &[],
                };
                put(&mut items, name);
                put(&mut items, value);
            }
            bytes.push(sort.letter());
            put(&mut bytes, folder);
            put(&mut bytes, known.as_ref().map_or(&[], ObjectId::as_bytes));
            put(&mut bytes, &items);
        }
    }
    Ok(bytes)
}

fn without_slash(folder: &[u8]) -> &[u8] {
    folder.strip_suffix(b"/").unwrap_or(folder)
}

/// Appends a field with its length, seven bits to a byte, lowest first; all but the last have the eighth set.
fn put(bytes: &mut Vec<u8>, field: &[u8]) {
    let mut length = field.len();
    while let Some(rest) = (length >> 7 != 0).then_some(length >> 7) {
        bytes.push(u8::try_from(length & 0x7f).unwrap_or_default() | 0x80);
        length = rest;
    }
    bytes.push(u8::try_from(length).unwrap_or_default());
    bytes.extend_from_slice(field);
}

/// Takes the next field.
fn field<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let mut length = 0_usize;
    // Four bytes say more than a set may have.
    for shift in [0, 7, 14, 21] {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            let (field, after) = rest.split_at_checked(length)?;
            *rest = after;
            return Some(field);
        }
    }
    None
}

/// A set in today's layout, if what it says means the same today. Others can be read, but do not answer.
pub(super) fn current(bytes: Vec<u8>) -> Option<Vec<u8>> {
    match bytes.first() {
        Some(&VERSION) => Some(bytes),
        Some(&SAME_MEANING) => encode_unplaced(&decode_flat(&bytes)?.into_iter().collect()),
        _ => None,
    }
}

/// A set whose tree is not at hand.
pub(super) fn encode_unplaced(facts: &BTreeSet<Fact>) -> Option<Vec<u8>> {
    encode(facts, |_| Ok::<_, Infallible>(None)).ok()
}

/// Reads a set of any version; `None` where it is of an unknown one or cut.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<Fact>> {
    match bytes.first()? {
        &VERSION => KeptSet::read(bytes)?.facts(),
        1..VERSION => decode_flat(bytes),
        _ => None,
    }
}

/// Reads a set of version 1 or 2: each fact as a letter and two fields with their lengths in four bytes.
fn decode_flat(bytes: &[u8]) -> Option<Vec<Fact>> {
    let (_, mut rest) = bytes.split_first()?;
    let mut facts = Vec::new();
    while let Some((letter, after)) = rest.split_first() {
        rest = after;
        let mut field = || {
            let (length, after) = rest.split_first_chunk::<4>()?;
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            let (value, after) = after.split_at_checked(length)?;
            rest = after;
            Some(value)
        };
        let (path, value) = (field()?, field()?);
        facts.push(Sort::of_letter(*letter)?.fact(path.to_vec(), value)?);
    }
    Some(facts)
}

#[cfg(test)]
mod tests;
