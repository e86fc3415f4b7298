//! The tree that an index stands for with differences laid over it, made without listing what has not changed: folders
//! that the index's own record of trees (gitformat-index(5), "Cache tree") vouches for are taken as they are, and only those
//! on the way to a difference are made anew, in memory. What differs is found by `worktree`.
#![forbid(unsafe_code)]

use crate::tree::EntryKind;
use crate::tree::error::{TreeError, detail, show};
use crate::tree::listing::{MAX_DEPTH, append, hash_tree, refuse_name};
use crate::tree::worktree::indexed_kind;
use gix::index::entry::Mode;
use gix::index::extension::Tree;
use gix::objs::{Kind, Write as _};
use std::collections::{BTreeMap, HashSet};
use std::ops::{Bound, Range};

/// What is at a path instead of what the index says, by path; `None` where nothing is.
pub(super) type Differences = BTreeMap<Vec<u8>, Option<(EntryKind, gix::ObjectId)>>;

/// The tree's id and the bytes of its root. New trees are written to the memory of `repository`, whose copies have them too.
pub(super) fn tree(
    repository: &gix::Repository,
    index: &gix::index::State,
    differences: &Differences,
) -> Result<(gix::ObjectId, Vec<u8>), TreeError> {
    let patch = Patch { repository, index, differences };
    let id = patch.folder(0..index.entries().len(), b"", index.tree(), 0)?;
    let id = id.unwrap_or(gix::ObjectId::empty_tree(repository.object_hash()));
    let mut bytes = Vec::new();
    super::objects::load(repository, &id, &mut bytes, &|| "the root folder".to_owned())?;
    Ok((id, bytes))
}

struct Patch<'a> {
    repository: &'a gix::Repository,
    index: &'a gix::index::State,
    differences: &'a Differences,
}

/// The entries of a folder in the making, by the name that git sorts them by.
type Children = BTreeMap<Vec<u8>, (EntryKind, gix::ObjectId)>;

impl<'a> Patch<'a> {
    /// The folder of the index entries in `range`, whose paths all begin with `prefix`; `None` if nothing is in it.
    fn folder(
        &self,
        range: Range<usize>,
        prefix: &[u8],
        known: Option<&Tree>,
        depth: usize,
    ) -> Result<Option<gix::ObjectId>, TreeError> {
        let is_same = self.below(prefix).next().is_none();
        let vouched = known.filter(|known| known.num_entries.map(usize::try_from) == Some(Ok(range.len())));
        if let (true, Some(known)) = (is_same && !range.is_empty(), vouched)
            && self.repository.has_object(known.id)
        {
            return Ok(Some(known.id));
        }
        if depth > MAX_DEPTH {
            return Err(TreeError::TooLarge { path: show(prefix), why: "more than 512 folders deep" });
        }
        let mut children = Children::new();
        let mut done = HashSet::new();
        self.indexed(range, prefix, known, (&mut children, &mut done), depth)?;
        self.added(prefix, (&mut children, &mut done), depth)?;
        if children.is_empty() {
            return Ok(None);
        }
        self.write(prefix, &children).map(Some)
    }

    /// What the index has, but for what differs.
    fn indexed(
        &self,
        range: Range<usize>,
        prefix: &[u8],
        known: Option<&Tree>,
        (children, done): (&mut Children, &mut HashSet<&'a [u8]>),
        depth: usize,
    ) -> Result<(), TreeError> {
        let entries = self.index.entries();
        let mut at = range.start;
        while let Some(entry) = entries.get(at).filter(|_| at < range.end) {
            let path: &'a [u8] = entry.path(self.index);
            let rest = path.get(prefix.len()..).unwrap_or_default();
            let slash = rest.iter().position(|byte| *byte == b'/');
            let Some(slash) = slash else {
                if !self.differences.contains_key(path) {
                    add(children, prefix, rest, (indexed_kind(entry), entry.id))?;
                }
                at += 1;
                continue;
            };
            let (name, sub) = (&rest[..slash], &path[..=prefix.len() + slash]);
            if entry.mode == Mode::DIR && sub.len() == path.len() {
                // A sparse index holds whole folders that are not checked out.
                add(children, prefix, name, (EntryKind::Folder, entry.id))?;
                at += 1;
                continue;
            }
            let rest = entries.get(at..range.end).unwrap_or_default();
            let end = at + rest.partition_point(|entry| entry.path(self.index).starts_with(sub)).max(1);
            let below = known.and_then(|known| known.children.iter().find(|child| child.name[..] == *name));
            done.insert(name);
            if let Some(id) = self.folder(at..end, sub, below, depth + 1)? {
                add(children, prefix, name, (EntryKind::Folder, id))?;
            }
            at = end;
        }
        Ok(())
    }

    /// What is new or another.
    fn added(
        &self,
        prefix: &[u8],
        (children, done): (&mut Children, &mut HashSet<&'a [u8]>),
        depth: usize,
    ) -> Result<(), TreeError> {
        for (path, found) in self.below(prefix) {
            let Some(found) = found else { continue };
            let rest = path.get(prefix.len()..).unwrap_or_default();
            let Some(slash) = rest.iter().position(|byte| *byte == b'/') else {
                add(children, prefix, rest, *found)?;
                continue;
            };
            let name = &rest[..slash];
            if done.insert(name)
                && let Some(id) = self.folder(0..0, &path[..=prefix.len() + slash], None, depth + 1)?
            {
                add(children, prefix, name, (EntryKind::Folder, id))?;
            }
        }
        Ok(())
    }

    fn below(
        &self,
        prefix: &[u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a Option<(EntryKind, gix::ObjectId)>)> + use<'a, '_> {
        let prefix = prefix.to_vec();
        let from: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Included(&prefix), Bound::Unbounded);
        let range = self.differences.range::<[u8], _>(from);
        range
            .map(|(path, found)| (path.as_slice(), found))
            .take_while(move |(path, _)| path.starts_with(&prefix))
    }

    fn write(&self, prefix: &[u8], children: &Children) -> Result<gix::ObjectId, TreeError> {
        let mut bytes = Vec::new();
        for (key, (kind, id)) in children {
            append(&mut bytes, *kind, key.strip_suffix(b"/").unwrap_or(key), id);
        }
        let path = prefix.strip_suffix(b"/").unwrap_or(prefix);
        let id = hash_tree(self.repository.object_hash(), &bytes, path)?;
        self.repository.objects.write_buf_with_known_id(Kind::Tree, &bytes, id).map_err(|error| {
            TreeError::Damaged { id: id.to_string(), what: show(path), detail: detail(&error) }
        })
    }
}

/// Adds an entry, unless its name is refused or taken.
fn add(
    children: &mut Children,
    prefix: &[u8],
    name: &[u8],
    entry: (EntryKind, gix::ObjectId),
) -> Result<(), TreeError> {
    let path = || [prefix, name].concat();
    if let Some(why) = refuse_name(name) {
        return Err(TreeError::hostile(&path(), why));
    }
    // A folder sorts as if its name ended in a slash.
    let (folder, file) = ([name, b"/"].concat(), name.to_vec());
    let key = if entry.0 == EntryKind::Folder { folder.clone() } else { file.clone() };
    let other = if entry.0 == EntryKind::Folder { &file } else { &folder };
    if children.contains_key(other) {
        return Err(TreeError::hostile(&path(), "it is both a file and a folder"));
    }
    match children.insert(key, entry) {
        Some(_) => Err(TreeError::hostile(&path(), "it is there twice")),
        None => Ok(()),
    }
}
