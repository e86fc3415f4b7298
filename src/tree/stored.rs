//! Puts the objects of a snapshot into the repository's own object store, so that a commit can name its tree. Only
//! objects are written: commits, references and the index are not this room's.
#![forbid(unsafe_code)]

use crate::tree::error::{TreeError, show};
use crate::tree::listing::{self, Leaf};
use crate::tree::{BlobReader, Content, Entry, EntryKind, Snapshot, git_id, objects};
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
        let Some(repository) = self.on_disk() else { return Ok(self) };
        let id = write(&repository, Kind::Blob, bytes, path)?;
        let mut leaves = vec![Leaf { path: path.to_vec(), kind, id }];
        for entry in self.entries()? {
            if entry.kind != EntryKind::Folder && entry.path != path {
                leaves.push(Leaf { id: git_id(&entry.id)?, path: entry.path, kind: entry.kind });
            }
        }
        let (tree, entries) = listing::build(leaves, repository.object_hash())?;
        let mut identity = self.identity.clone();
        (identity.tree, identity.commit, identity.dirty) = (listing::id_of(&tree), None, true);
        Ok(Self { identity, content: Content::Listing(Arc::new(entries)), ..self })
    }

    /// Writes those objects of the tree that the repository lacks to its object store; the root comes last, so that
    /// whoever finds it finds all of it.
    ///
    /// # Errors
    /// An object cannot be written, or its content was not kept.
    pub fn store(&self) -> Result<(), TreeError> {
        let Some(disk) = self.on_disk() else { return Ok(()) };
        let mut reader = self.reader();
        match &self.content {
            Content::Objects(root) => store_folder(self, &disk, &mut reader, root, &mut Vec::new()),
            Content::Listing(entries) => store_listing(&disk, &mut reader, entries),
        }
    }

    /// The repository without what only our view of it holds.
    fn on_disk(&self) -> Option<gix::Repository> {
        let mut repository = self.repository.clone()?;
        drop(repository.objects.take_object_memory());
        Some(repository)
    }
}

/// Writes what a folder holds, then the folder, of which these are the bytes.
fn store_folder(
    snapshot: &Snapshot,
    disk: &gix::Repository,
    reader: &mut BlobReader,
    bytes: &[u8],
    path: &mut Vec<u8>,
) -> Result<(), TreeError> {
    let mut buffer = Vec::new();
    for (name, (kind, id)) in objects::children(bytes, disk.object_hash())? {
        let object = git_id(&id)?;
        // Folders are written after what is in them: one that is there is there whole.
        if kind == EntryKind::Submodule || disk.has_object(object) {
            continue;
        }
        let length = path.len();
        if length > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(&name);
        if kind == EntryKind::Folder {
            // Our view of the repository knows it, or it would not be in the tree.
            let view = snapshot.repository.as_ref().unwrap_or(disk);
            let mut inner = Vec::new();
            objects::load(view, &object, &mut inner, &|| format!("folder `{}`", show(path)))?;
            store_folder(snapshot, disk, reader, &inner, path)?;
        } else {
            reader.read(&id, &mut buffer)?;
            write(disk, Kind::Blob, &buffer, path)?;
        }
        path.truncate(length);
    }
    write(disk, Kind::Tree, bytes, path).map(drop)
}

/// Writes a tree that was made here, of which only the list of its entries is known.
fn store_listing(
    disk: &gix::Repository,
    reader: &mut BlobReader,
    entries: &[Entry],
) -> Result<(), TreeError> {
    let mut folders: HashMap<&[u8], Vec<u8>> = HashMap::new();
    for entry in entries {
        let (folder, name) = super::split(&entry.path);
        listing::append(folders.entry(folder).or_default(), entry.kind, name, &git_id(&entry.id)?);
    }
    let mut buffer = Vec::new();
    // Folders stand before what they hold, so backwards what they hold is there first.
    for entry in entries.iter().rev() {
        if entry.kind == EntryKind::Submodule || disk.has_object(git_id(&entry.id)?) {
            continue;
        }
        if entry.kind == EntryKind::Folder {
            let bytes = folders.get(entry.path.as_slice()).map_or(&b""[..], Vec::as_slice);
            write(disk, Kind::Tree, bytes, &entry.path)?;
        } else {
            reader.read(&entry.id, &mut buffer)?;
            write(disk, Kind::Blob, &buffer, &entry.path)?;
        }
    }
    let root = folders.get(&b""[..]).map_or(&b""[..], Vec::as_slice);
    write(disk, Kind::Tree, root, b"").map(drop)
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
