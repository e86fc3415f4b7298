//! From a flat list of files to the git tree that holds them: names checked, folders and their ids made. Pure; nothing
//! is read or written here.
#![forbid(unsafe_code)]

use crate::model::digest::ObjectId;
use crate::tree::error::TreeError;
use crate::tree::{Entry, EntryKind};
use std::collections::HashSet;

/// Folders below each other. git itself stops at 2048; no real tree comes near either.
pub(super) const MAX_DEPTH: usize = 512;

/// Entries of one tree, so that a small object graph that unfolds without end is refused before memory runs out.
pub(super) const MAX_ENTRIES: usize = 5_000_000;

/// A file, link or submodule and where it is.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) path: Vec<u8>,
    pub(super) kind: EntryKind,
    pub(super) id: gix::ObjectId,
}

/// Says why a name must not be written to disk, if it must not.
pub(super) fn refuse_name(name: &[u8]) -> Option<&'static str> {
    if name.is_empty() {
        Some("its name is empty")
    } else if name == b"." || name == b".." {
        Some("its name means another folder")
    } else if name.contains(&b'/') {
        Some("its name contains a slash")
    } else if name.contains(&0) {
        Some("its name contains a NUL byte")
    } else if name.eq_ignore_ascii_case(b".git") {
        Some("its name is `.git`, which would make it part of a repository")
    } else {
        None
    }
}

/// The model's form of an id.
pub(super) fn id_of(id: &gix::oid) -> ObjectId {
    ObjectId::new(id.as_bytes())
}

/// What is told of each tree object that is built: its id and its bytes.
type Told<'a> = &'a mut dyn FnMut(gix::ObjectId, &[u8]);

/// Builds the tree objects for `leaves` in memory; gives the id of the root and the list with its folders.
pub(super) fn build(
    leaves: Vec<Leaf>,
    hash: gix::hash::Kind,
) -> Result<(gix::ObjectId, Vec<Entry>), TreeError> {
    build_into(leaves, hash, &mut |_, _| {})
}

/// As [`build`], and tells of every tree object.
pub(super) fn build_into(
    mut leaves: Vec<Leaf>,
    hash: gix::hash::Kind,
    told: Told<'_>,
) -> Result<(gix::ObjectId, Vec<Entry>), TreeError> {
    // Byte order of whole paths is the order of git's index, and within each folder that of git's trees: a folder sorts
    // as if its name ended in a slash.
    leaves.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    if let Some(pair) = leaves.windows(2).find(|pair| pair[0].path == pair[1].path) {
        return Err(TreeError::hostile(&pair[0].path, "it is there twice"));
    }
    let mut building = Building { files: HashSet::with_capacity(leaves.len()), ..Building::new(hash, told) };
    building.files.extend(leaves.iter().map(|leaf| leaf.path.as_slice()));
    for leaf in &leaves {
        building.add(leaf)?;
    }
    building.finish()
}

/// A folder whose entries are still coming.
struct Open {
    path: Vec<u8>,
    place: usize,
    bytes: Vec<u8>,
}

struct Building<'a> {
    hash: gix::hash::Kind,
    files: HashSet<&'a [u8]>,
    open: Vec<Open>,
    root: Vec<u8>,
    entries: Vec<Entry>,
    told: Told<'a>,
}

impl<'a> Building<'a> {
    fn new(hash: gix::hash::Kind, told: Told<'a>) -> Self {
        Self { hash, files: HashSet::new(), open: Vec::new(), root: Vec::new(), entries: Vec::new(), told }
    }

    fn add(&mut self, leaf: &'a Leaf) -> Result<(), TreeError> {
        while self.open.last().is_some_and(|open| !is_below(&open.path, &leaf.path)) {
            self.close()?;
        }
        let mut start = self.open.last().map_or(0, |open| open.path.len() + 1);
        while let Some(length) = leaf.path[start..].iter().position(|byte| *byte == b'/') {
            self.descend(&leaf.path[..start + length], start)?;
            start += length + 1;
        }
        let name = &leaf.path[start..];
        if let Some(why) = refuse_name(name) {
            return Err(TreeError::hostile(&leaf.path, why));
        }
        append(self.top(), leaf.kind, name, &leaf.id);
        self.entries.push(Entry { path: leaf.path.clone(), kind: leaf.kind, id: id_of(&leaf.id) });
        if self.entries.len() > MAX_ENTRIES {
            return Err(TreeError::TooLarge {
                path: super::error::show(&leaf.path),
                why: "more than 5 million entries",
            });
        }
        Ok(())
    }

    fn descend(&mut self, path: &[u8], start: usize) -> Result<(), TreeError> {
        if let Some(why) = refuse_name(&path[start..]) {
            return Err(TreeError::hostile(path, why));
        }
        if self.files.contains(path) {
            return Err(TreeError::hostile(path, "it is both a file and a folder"));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(TreeError::TooLarge {
                path: super::error::show(path),
                why: "more than 512 folders deep",
            });
        }
        self.open.push(Open { path: path.to_vec(), place: self.entries.len(), bytes: Vec::new() });
        // The id is known only when the folder is complete.
        let id = id_of(&self.hash.null());
        self.entries.push(Entry { path: path.to_vec(), kind: EntryKind::Folder, id });
        Ok(())
    }

    fn top(&mut self) -> &mut Vec<u8> {
        match self.open.last_mut() {
            Some(open) => &mut open.bytes,
            None => &mut self.root,
        }
    }

    fn close(&mut self) -> Result<(), TreeError> {
        let Some(done) = self.open.pop() else { return Ok(()) };
        let id = hash_tree(self.hash, &done.bytes, &done.path)?;
        (self.told)(id, &done.bytes);
        if let Some(entry) = self.entries.get_mut(done.place) {
            entry.id = id_of(&id);
        }
        let (_, name) = super::descent::split(&done.path);
        append(self.top(), EntryKind::Folder, name, &id);
        Ok(())
    }

    fn finish(mut self) -> Result<(gix::ObjectId, Vec<Entry>), TreeError> {
        while !self.open.is_empty() {
            self.close()?;
        }
        let id = hash_tree(self.hash, &self.root, b"")?;
        (self.told)(id, &self.root);
        Ok((id, self.entries))
    }
}

fn is_below(folder: &[u8], path: &[u8]) -> bool {
    path.len() > folder.len() && path.starts_with(folder) && path[folder.len()] == b'/'
}

/// Adds an entry to the bytes of a tree object.
pub(super) fn append(tree: &mut Vec<u8>, kind: EntryKind, name: &[u8], id: &gix::oid) {
    tree.extend_from_slice(kind.mode());
    tree.push(b' ');
    tree.extend_from_slice(name);
    tree.push(0);
    tree.extend_from_slice(id.as_bytes());
}

/// The id of the tree object of `bytes`; `path` is for messages.
pub(super) fn hash_tree(
    hash: gix::hash::Kind,
    bytes: &[u8],
    path: &[u8],
) -> Result<gix::ObjectId, TreeError> {
    gix::objs::compute_hash(hash, gix::objs::Kind::Tree, bytes)
        .map_err(|_| TreeError::Collision { path: super::error::show(path) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(path: &str) -> Leaf {
        Leaf {
            path: path.as_bytes().to_vec(),
            kind: EntryKind::File,
            id: gix::ObjectId::empty_blob(gix::hash::Kind::Sha1),
        }
    }

    #[test]
    fn an_empty_list_is_the_empty_tree() {
        let (id, entries) = build(Vec::new(), gix::hash::Kind::Sha1).unwrap();
        assert_eq!(id.to_string(), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
        assert!(entries.is_empty());
    }

    #[test]
    fn folders_come_before_what_they_hold_and_only_once() {
        let leaves = ["a/z", "a.b", "a/b/c", "a-b/x", "a/b/d"].map(leaf).to_vec();
        let (_, entries) = build(leaves, gix::hash::Kind::Sha1).unwrap();
        let paths: Vec<_> = entries.iter().map(|entry| String::from_utf8_lossy(&entry.path)).collect();
        assert_eq!(paths, ["a-b", "a-b/x", "a.b", "a", "a/b", "a/b/c", "a/b/d", "a/z"]);
    }

    #[test]
    fn names_that_would_leave_the_tree_are_refused() {
        for path in
            ["../x", "a/../x", "a/./x", ".git/config", "a/.GIT/x", ".Git", "a//x", "/x", "x/", "", "a\0b"]
        {
            let error = build(vec![leaf(path)], gix::hash::Kind::Sha1).unwrap_err();
            assert!(matches!(error, TreeError::Hostile { .. }), "{path:?}: {error}");
        }
        for path in [".gitignore", "..x", "x..", ".gitx", "git"] {
            assert!(build(vec![leaf(path)], gix::hash::Kind::Sha1).is_ok(), "{path:?}");
        }
    }

    #[test]
    fn one_name_for_two_things_is_refused() {
        for pair in [["a", "a"], ["a", "a/b"]] {
            let mut leaves = pair.map(leaf).to_vec();
            // A name in between by byte order must not hide the clash.
            leaves.push(leaf("a-b"));
            let error = build(leaves, gix::hash::Kind::Sha1).unwrap_err();
            assert!(matches!(error, TreeError::Hostile { .. }), "{pair:?}: {error}");
        }
    }

    #[test]
    fn a_bottomless_path_is_refused() {
        let deep = "a/".repeat(MAX_DEPTH + 1) + "x";
        let error = build(vec![leaf(&deep)], gix::hash::Kind::Sha1).unwrap_err();
        assert!(matches!(error, TreeError::TooLarge { .. }), "{error}");
    }
}
