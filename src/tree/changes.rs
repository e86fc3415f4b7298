//! In what a snapshot differs from another tree of its repository, found by walking both from the root and passing over
//! folders with the same id: the cost is that of the differences, not of the trees.
#![forbid(unsafe_code)]

use crate::model::digest::ObjectId;
use crate::tree::error::TreeError;
use crate::tree::objects::{Child, join, read_folder};
use crate::tree::{Content, Entry, EntryKind, Snapshot, git_id, identity, listing};
use std::collections::HashMap;

/// What to write over a folder that holds one tree so that it holds another.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Entries that are new or different, folders before what they hold; also every folder on the way to a change,
    /// whether it is new or not.
    pub entries: Vec<Entry>,
    /// Paths that must go, never below one another, and never one at which an entry of another kind is to be.
    pub gone: Vec<Vec<u8>>,
}

impl Changes {
    /// Entries to write and paths to take away.
    #[must_use]
    pub fn count(&self) -> usize {
        self.entries.len() + self.gone.len()
    }
}

impl Snapshot {
    /// What makes this tree out of the tree `base`; `None` if that takes more than `limit` changes, or if `base` is
    /// not, or not wholly, in the repository. What both have in common is not read.
    ///
    /// # Errors
    /// As [`Snapshot::entries`], for what differs.
    pub fn changes_since(&self, base: &ObjectId, limit: usize) -> Result<Option<Changes>, TreeError> {
        let Some(repository) = &self.repository else { return Ok(None) };
        let (base, id) = (git_id(base)?, git_id(&self.identity.tree)?);
        if base.kind() != id.kind() {
            return Ok(None);
        }
        let listing = match &self.content {
            Content::Listing(entries) => Some(entries.as_slice()),
            Content::Objects(_) => None,
        };
        let mut walk = Walk { repository, listing, changes: Changes::default(), limit };
        let within = base == id || walk.folder(&Folder { path: Vec::new(), id, first: 0 }, Some(&base), 0)?;
        Ok(within.then_some(walk.changes))
    }

    /// The tree of the commit that a state of a working tree or an index is based on, if it is another.
    #[must_use]
    pub fn based_on(&self) -> Option<Self> {
        let repository = self.repository.clone()?;
        let head = self.head?;
        let mut identity = identity(repository.object_hash(), &head, None, false);
        identity.format = self.identity.format;
        let mut root = Vec::new();
        super::objects::load(&repository, &head, &mut root, &|| "the tree of HEAD".to_owned()).ok()?;
        Some(Self {
            identity,
            committed: None,
            root: self.root.clone(),
            start: None,
            repository: Some(repository),
            head: None,
            from_disk: false,
            others: Vec::new(),
            kept: Vec::new(),
            content: Content::Objects(root),
        })
    }
}

/// A folder of the snapshot.
struct Folder {
    path: Vec<u8>,
    id: gix::ObjectId,
    /// Where its first entry is in the listing, if there is one.
    first: usize,
}

struct Walk<'a> {
    repository: &'a gix::Repository,
    listing: Option<&'a [Entry]>,
    changes: Changes,
    limit: usize,
}

impl Walk<'_> {
    /// Compares one folder with the tree `base`, or takes all of it; false where it is not worth going on.
    fn folder(&mut self, folder: &Folder, base: Option<&gix::oid>, depth: usize) -> Result<bool, TreeError> {
        let before = match base {
            None => Vec::new(),
            Some(id) => match read_folder(self.repository, id, &folder.path, depth) {
                Ok(children) => children,
                Err(_) => return Ok(false),
            },
        };
        let mut before: HashMap<&[u8], &Child> =
            before.iter().map(|child| (child.name.as_slice(), child)).collect();
        for (child, first) in self.children(folder, depth)? {
            let old = before.remove(child.name.as_slice());
            let path = join(&folder.path, &child.name);
            if !self.entry(&child, path, first, (old, depth))? || self.changes.count() > self.limit {
                return Ok(false);
            }
        }
        let mut gone: Vec<Vec<u8>> = before.into_keys().map(|name| join(&folder.path, name)).collect();
        gone.sort_unstable();
        self.changes.gone.append(&mut gone);
        Ok(self.changes.count() <= self.limit)
    }

    fn entry(
        &mut self,
        child: &Child,
        path: Vec<u8>,
        first: usize,
        (old, depth): (Option<&Child>, usize),
    ) -> Result<bool, TreeError> {
        let old_kind = old.map(|old| old.kind);
        let same = old.is_some_and(|old| old.kind == child.kind && old.id == child.id);
        // Of a submodule only the empty folder is there, whichever commit it is at.
        if same || (child.kind == EntryKind::Submodule && old_kind == Some(EntryKind::Submodule)) {
            return Ok(true);
        }
        self.changes.entries.push(Entry {
            path: path.clone(),
            kind: child.kind,
            id: listing::id_of(&child.id),
        });
        let old_folder = old.filter(|old| old.kind == EntryKind::Folder).map(|old| &*old.id);
        match child.kind {
            EntryKind::Folder => self.folder(&Folder { path, id: child.id, first }, old_folder, depth + 1),
            // An empty folder over one that is not: what is in it must go one by one.
            EntryKind::Submodule => {
                let Some(id) = old_folder else { return Ok(true) };
                let Ok(before) = read_folder(self.repository, id, &path, depth + 1) else { return Ok(false) };
                self.changes.gone.extend(before.iter().map(|child| join(&path, &child.name)));
                Ok(true)
            }
            EntryKind::File | EntryKind::Executable | EntryKind::Symlink => Ok(true),
        }
    }

    /// What a folder of the snapshot holds, each with the place of its own first entry in the listing.
    fn children(&self, folder: &Folder, depth: usize) -> Result<Vec<(Child, usize)>, TreeError> {
        let Some(entries) = self.listing else {
            let found = read_folder(self.repository, &folder.id, &folder.path, depth)?;
            return Ok(found.into_iter().map(|child| (child, 0)).collect());
        };
        let start = if folder.path.is_empty() { 0 } else { folder.path.len() + 1 };
        let mut found = Vec::new();
        let mut at = folder.first;
        while let Some(entry) = entries.get(at).filter(|entry| is_below(&folder.path, &entry.path)) {
            let name = entry.path.get(start..).unwrap_or_default().to_vec();
            found.push((Child { name, kind: entry.kind, id: git_id(&entry.id)? }, at + 1));
            let rest = entries.get(at + 1..).unwrap_or_default();
            // What a folder holds follows it without a gap.
            at += 1 + rest.partition_point(|below| is_below(&entry.path, &below.path));
        }
        Ok(found)
    }
}

pub(super) fn is_below(folder: &[u8], path: &[u8]) -> bool {
    folder.is_empty() || (path.len() > folder.len() && path.starts_with(folder) && path[folder.len()] == b'/')
}
