//! Puts the objects of a snapshot into the repository's own object store, so that a commit can name its tree. Only
//! objects are written: commits, references and the index are not this room's.
#![forbid(unsafe_code)]

use crate::tree::error::{TreeError, show};
use crate::tree::kept::Kept;
use crate::tree::listing::{self, Leaf};
use crate::tree::{Content, EntryKind, Snapshot, git_id};
use gix::objs::{Kind, Write as _};
use std::collections::HashMap;
use std::sync::Arc;

impl Snapshot {
    /// Whether anything is at `path`.
    ///
    /// # Errors
    /// A tree object cannot be read.
    pub fn has(&self, path: &[u8]) -> Result<bool, TreeError> {
        Ok(self.find(path)?.is_some())
    }

    /// The tree with one more file, or with another content in its place. The content is written to the repository's
    /// object store; without a repository the tree stays as it is.
    ///
    /// # Errors
    /// The object cannot be written, or a folder is at `path`.
    pub fn plus(self, path: &[u8], kind: EntryKind, bytes: &[u8]) -> Result<Self, TreeError> {
        let Some(repository) = self.repository.clone() else { return Ok(self) };
        let id = write(&repository, Kind::Blob, bytes, path)?;
        let mut leaves = vec![Leaf { path: path.to_vec(), kind, id }];
        for entry in self.entries()? {
            if entry.kind != EntryKind::Folder && entry.path != path {
                leaves.push(Leaf { id: git_id(&entry.id)?, path: entry.path, kind: entry.kind });
            }
        }
        let (tree, entries) = listing::build(leaves, repository.object_hash())?;
        let kept = match &self.content {
            Content::Listing { kept, .. } => Arc::clone(kept),
            Content::Objects(_) => Arc::new(Kept::default()),
        };
        let mut identity = self.identity.clone();
        (identity.tree, identity.commit, identity.dirty) = (listing::id_of(&tree), None, true);
        Ok(Self { identity, content: Content::Listing { entries: Arc::new(entries), kept }, ..self })
    }

    /// Writes those objects of the tree that the repository lacks to its object store; the root comes last, so that
    /// whoever finds it finds all of it.
    ///
    /// # Errors
    /// An object cannot be written, or its content was not kept.
    pub fn store(&self) -> Result<(), TreeError> {
        let (Content::Listing { entries, kept }, Some(repository)) = (&self.content, &self.repository) else {
            return Ok(());
        };
        let mut folders: HashMap<&[u8], Vec<u8>> = HashMap::new();
        for entry in entries.iter() {
            let (folder, name) = match entry.path.iter().rposition(|byte| *byte == b'/') {
                Some(at) => (&entry.path[..at], &entry.path[at + 1..]),
                None => (&b""[..], entry.path.as_slice()),
            };
            listing::append(folders.entry(folder).or_default(), entry.kind, name, &git_id(&entry.id)?);
        }
        let mut buffer = Vec::new();
        // Folders stand before what they hold, so backwards what they hold is there first.
        for entry in entries.iter().rev() {
            let id = git_id(&entry.id)?;
            if entry.kind == EntryKind::Submodule || repository.has_object(id) {
                continue;
            }
            if entry.kind == EntryKind::Folder {
                let bytes = folders.get(entry.path.as_slice()).map_or(&b""[..], Vec::as_slice);
                write(repository, Kind::Tree, bytes, &entry.path)?;
                continue;
            }
            match kept.read(&id, &mut buffer) {
                Some(read) => read?,
                None => {
                    return Err(TreeError::Missing {
                        id: id.to_string(),
                        what: format!("the content of `{}`", show(&entry.path)),
                    });
                }
            }
            write(repository, Kind::Blob, &buffer, &entry.path)?;
        }
        let root = folders.get(&b""[..]).map_or(&b""[..], Vec::as_slice);
        write(repository, Kind::Tree, root, b"").map(drop)
    }
}

fn write(
    repository: &gix::Repository,
    kind: Kind,
    bytes: &[u8],
    path: &[u8],
) -> Result<gix::ObjectId, TreeError> {
    repository.objects.write_buf(kind, bytes).map_err(|error| TreeError::Unwritable {
        path: show(path),
        store: repository.objects.store_ref().path().to_owned(),
        detail: error.to_string(),
    })
}
