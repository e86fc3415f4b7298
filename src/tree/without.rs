//! A tree without certain files, and what differs between two trees. Which files those are is not decided here.
#![forbid(unsafe_code)]

use crate::model::digest::ObjectId;
use crate::tree::error::TreeError;
use crate::tree::listing::{self, Leaf};
use crate::tree::{Content, Entry, EntryKind, Snapshot, git_id, revision};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a path differs between two trees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Only in the later one.
    Added,
    /// Only in the earlier one.
    Deleted,
    /// In both, and not the same.
    Modified,
}

impl Change {
    /// The letter that git uses for it.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::Added => 'A',
            Self::Deleted => 'D',
            Self::Modified => 'M',
        }
    }
}

/// A path that differs between two trees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changed {
    /// Path from the root.
    pub path: Vec<u8>,
    /// How it differs.
    pub change: Change,
}

impl Snapshot {
    /// The tree without the files at `paths`; the same tree where it holds none of them. Where the rest is as in the
    /// commit of HEAD, it counts as that commit's and as clean.
    ///
    /// # Errors
    /// Whatever keeps the tree from being read.
    pub fn without(self, paths: &[Vec<u8>]) -> Result<Self, TreeError> {
        let mut holds = false;
        for path in paths {
            holds |= self.find(path)?.is_some();
        }
        if !(holds || self.from_disk && self.identity.dirty) {
            return Ok(self);
        }
        let (tree, entries) = cut(&self.entries()?, paths, &self.identity.tree)?;
        let mut identity = self.identity.clone();
        identity.tree = tree;
        if identity.dirty
            && let Some(repository) = &self.repository
            && let Some(head) = revision::head(repository)?
        {
            let entries = super::objects::list(repository, &head.tree, b"")?;
            if cut(&entries, paths, &identity.tree)?.0 == identity.tree {
                identity.dirty = false;
                identity.commit = head.commit.as_ref().map(|id| listing::id_of(id));
            }
        }
        // What it was cut from is the nearest thing in the repository that it can be laid out from.
        let head = match self.head {
            None if !self.identity.dirty => Some(git_id(&self.identity.tree)?),
            head => head,
        };
        Ok(Self { identity, head, content: Content::Listing(Arc::new(entries)), ..self })
    }

    /// Files, links and submodules, by path; folders are left out.
    ///
    /// # Errors
    /// As [`Snapshot::entries`].
    pub fn leaves(&self) -> Result<BTreeMap<Vec<u8>, (EntryKind, ObjectId)>, TreeError> {
        let leaf = |entry: &Entry| entry.kind != EntryKind::Folder;
        Ok(self
            .entries()?
            .into_iter()
            .filter(leaf)
            .map(|entry| (entry.path, (entry.kind, entry.id)))
            .collect())
    }
}

/// The same list without some paths, and the id of its tree.
fn cut(entries: &[Entry], paths: &[Vec<u8>], like: &ObjectId) -> Result<(ObjectId, Vec<Entry>), TreeError> {
    let mut leaves = Vec::with_capacity(entries.len());
    for entry in entries {
        if entry.kind != EntryKind::Folder && !paths.contains(&entry.path) {
            leaves.push(Leaf { path: entry.path.clone(), kind: entry.kind, id: git_id(&entry.id)? });
        }
    }
    let (tree, entries) = listing::build(leaves, git_id(like)?.kind())?;
    Ok((listing::id_of(&tree), entries))
}

/// What differs from `before` to `after`, by path.
#[must_use]
pub fn changes(
    before: &BTreeMap<Vec<u8>, (EntryKind, ObjectId)>,
    after: &BTreeMap<Vec<u8>, (EntryKind, ObjectId)>,
) -> Vec<Changed> {
    let gone = before
        .keys()
        .filter(|path| !after.contains_key(*path))
        .map(|path| Changed { path: path.clone(), change: Change::Deleted });
    let here = after.iter().filter_map(|(path, entry)| {
        let change = match before.get(path) {
            None => Change::Added,
            Some(old) if old != entry => Change::Modified,
            Some(_) => return None,
        };
        Some(Changed { path: path.clone(), change })
    });
    let mut all: Vec<Changed> = gone.chain(here).collect();
    all.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    all
}
