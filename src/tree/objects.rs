//! Reading commits, tags, trees and blobs of a repository as they are: every object's bytes are checked against its id,
//! nothing is fetched, replaced or filtered.
#![forbid(unsafe_code)]

use crate::model::digest::ObjectId;
use crate::tree::error::{TreeError, detail, show};
use crate::tree::listing::{MAX_DEPTH, MAX_ENTRIES, id_of, refuse_name};
use crate::tree::{Entry, EntryKind};
use gix::objs::{Find as _, Kind, TreeRefIter};
use std::collections::{HashMap, HashSet};

/// Reads the object `id` into `buffer`; `what` says what it is needed for.
pub(super) fn load(
    repository: &gix::Repository,
    id: &gix::oid,
    buffer: &mut Vec<u8>,
    what: &dyn Fn() -> String,
) -> Result<Kind, TreeError> {
    let damaged = |text: String| TreeError::Damaged { id: id.to_string(), what: what(), detail: text };
    // Every repository knows the empty tree, also where nobody wrote it.
    if id == gix::ObjectId::empty_tree(id.kind()) {
        buffer.clear();
        return Ok(Kind::Tree);
    }
    match repository.try_find(id, buffer) {
        Err(error) => Err(damaged(detail(&error))),
        Ok(None) => Err(TreeError::Missing { id: id.to_string(), what: what() }),
        Ok(Some(data)) => {
            let kind = data.kind;
            let length = data.data.len();
            data.verify_checksum(id).map_err(|error| damaged(detail(&error)))?;
            buffer.truncate(length);
            Ok(kind)
        }
    }
}

/// What a revision leads to.
pub(super) struct Peeled {
    pub(super) commit: Option<gix::ObjectId>,
    /// The commit's committer date, in seconds since 1970, where it has one that can be read.
    pub(super) committed: Option<i64>,
    pub(super) tree: gix::ObjectId,
    /// The tree object's bytes.
    pub(super) root: Vec<u8>,
    /// Whether it was named as a folder of a larger tree.
    pub(super) is_part: bool,
}

/// Follows tags and a commit from `id` to a tree.
pub(super) fn peel(
    repository: &gix::Repository,
    id: gix::ObjectId,
    revision: &str,
) -> Result<Peeled, TreeError> {
    let mut id = id;
    let mut commit = None;
    let mut committed = None;
    let mut buffer = Vec::new();
    let mut role = "what the revision names";
    // A chain of tags is as long as its maker likes; ids are digests, so it cannot be a ring, but it may be a nuisance.
    for _ in 0..64 {
        let kind = load(repository, &id, &mut buffer, &|| format!("{role}, for `{revision}`"))?;
        let next = match kind {
            Kind::Tree => return Ok(Peeled { commit, committed, tree: id, root: buffer, is_part: false }),
            Kind::Blob => {
                return Err(TreeError::NotATree { revision: revision.to_owned(), id: id.to_string() });
            }
            Kind::Commit => {
                commit = Some(id);
                role = "the tree of its commit";
                let date = |iter: gix::objs::CommitRefIter<'_>| iter.committer().ok()?.time().ok();
                committed =
                    date(gix::objs::CommitRefIter::from_bytes(&buffer, id.kind())).map(|time| time.seconds);
                gix::objs::CommitRefIter::from_bytes(&buffer, id.kind()).tree_id()
            }
            Kind::Tag => {
                role = "what its tag points at";
                gix::objs::TagRefIter::from_bytes(&buffer, id.kind()).target_id()
            }
        };
        id = next.map_err(|error| TreeError::Damaged {
            id: id.to_string(),
            what: format!("{kind} for `{revision}`"),
            detail: detail(&error),
        })?;
    }
    Err(TreeError::TooLarge { path: revision.to_owned(), why: "more than 64 tags that point at each other" })
}

/// One entry of a tree object.
fn kind_of(mode: gix::objs::tree::EntryMode) -> EntryKind {
    use gix::objs::tree::EntryKind as Git;
    match mode.kind() {
        Git::Tree => EntryKind::Folder,
        Git::Blob => EntryKind::File,
        Git::BlobExecutable => EntryKind::Executable,
        Git::Link => EntryKind::Symlink,
        Git::Commit => EntryKind::Submodule,
    }
}

/// Lists everything below a tree, folders before what they hold. Refuses names that must not be written to disk.
pub(super) fn list(
    repository: &gix::Repository,
    id: &gix::oid,
    prefix: &[u8],
) -> Result<Vec<Entry>, TreeError> {
    let mut wanted = |_: &[u8]| true;
    let mut listing = Listing { repository, wanted: &mut wanted, entries: Vec::new() };
    listing.add(id, prefix, 0)?;
    Ok(listing.entries)
}

/// As [`list`] from the root, but what is in folders that are not wanted is left out unread.
pub(super) fn list_where(
    repository: &gix::Repository,
    id: &gix::oid,
    wanted: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<Vec<Entry>, TreeError> {
    let mut listing = Listing { repository, wanted, entries: Vec::new() };
    listing.add(id, b"", 0)?;
    Ok(listing.entries)
}

/// A list in the making.
struct Listing<'a> {
    repository: &'a gix::Repository,
    wanted: &'a mut dyn FnMut(&[u8]) -> bool,
    entries: Vec<Entry>,
}

impl Listing<'_> {
    fn add(&mut self, id: &gix::oid, prefix: &[u8], depth: usize) -> Result<(), TreeError> {
        for child in read_folder(self.repository, id, prefix, depth)? {
            if self.entries.len() >= MAX_ENTRIES {
                return Err(TreeError::TooLarge { path: show(prefix), why: "more than 5 million entries" });
            }
            let path = join(prefix, &child.name);
            self.entries.push(Entry { path: path.clone(), kind: child.kind, id: id_of(&child.id) });
            if child.kind == EntryKind::Folder && (self.wanted)(&path) {
                self.add(&child.id, &path, depth + 1)?;
            }
        }
        Ok(())
    }
}

/// One entry of a folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Child {
    pub(super) name: Vec<u8>,
    pub(super) kind: EntryKind,
    pub(super) id: gix::ObjectId,
}

/// What the folder `prefix` holds whose tree object is `id`, `depth` folders below the root. Refuses names that must
/// not be written to disk.
pub(super) fn read_folder(
    repository: &gix::Repository,
    id: &gix::oid,
    prefix: &[u8],
    depth: usize,
) -> Result<Vec<Child>, TreeError> {
    if depth > MAX_DEPTH {
        return Err(TreeError::TooLarge { path: show(prefix), why: "more than 512 folders deep" });
    }
    let mut buffer = Vec::new();
    let what = || {
        if prefix.is_empty() { "the root folder".to_owned() } else { format!("folder `{}`", show(prefix)) }
    };
    let damaged = |detail: String| TreeError::Damaged { id: id.to_string(), what: what(), detail };
    if load(repository, id, &mut buffer, &what)? != Kind::Tree {
        return Err(damaged("it is not a tree".to_owned()));
    }
    let mut names: HashSet<&[u8]> = HashSet::new();
    let mut found = Vec::new();
    for item in TreeRefIter::from_bytes(&buffer, id.kind()) {
        let item = item.map_err(|error| damaged(detail(&error)))?;
        let name: &[u8] = item.filename.as_ref();
        if let Some(why) = refuse_name(name) {
            return Err(TreeError::hostile(&join(prefix, name), why));
        }
        if !names.insert(name) {
            return Err(TreeError::hostile(&join(prefix, name), "it is there twice"));
        }
        found.push(Child { name: name.to_vec(), kind: kind_of(item.mode), id: item.oid.to_owned() });
    }
    Ok(found)
}

/// The entries of one tree object, by name.
pub(super) fn children(
    bytes: &[u8],
    hash: gix::hash::Kind,
) -> Result<HashMap<Vec<u8>, (EntryKind, ObjectId)>, TreeError> {
    let mut found = HashMap::new();
    each_child(bytes, hash, &mut |name, kind, id| {
        found.insert(name.to_vec(), (kind, ObjectId::new(id)));
    })?;
    Ok(found)
}

/// Tells name, kind and id of each entry of one tree object, as they come.
pub(super) fn each_child(
    bytes: &[u8],
    hash: gix::hash::Kind,
    tell: &mut impl FnMut(&[u8], EntryKind, &[u8]),
) -> Result<(), TreeError> {
    for item in TreeRefIter::from_bytes(bytes, hash) {
        let item = item.map_err(|error| TreeError::Damaged {
            id: String::new(),
            what: "a folder".to_owned(),
            detail: detail(&error),
        })?;
        tell(item.filename.as_ref(), kind_of(item.mode), item.oid.as_bytes());
    }
    Ok(())
}

/// Finds the entry at `path` below a tree whose bytes are `root`.
pub(super) fn find(
    repository: &gix::Repository,
    hash: gix::hash::Kind,
    root: &[u8],
    path: &[u8],
) -> Result<Option<(EntryKind, gix::ObjectId)>, TreeError> {
    let mut buffer;
    let mut tree = root;
    let mut parts = path.split(|byte| *byte == b'/').peekable();
    while let Some(part) = parts.next() {
        let found =
            TreeRefIter::from_bytes(tree, hash).filter_map(Result::ok).find(|item| item.filename == part);
        let Some(found) = found else { return Ok(None) };
        let (kind, id) = (kind_of(found.mode), found.oid.to_owned());
        if parts.peek().is_none() {
            return Ok(Some((kind, id)));
        }
        if kind != EntryKind::Folder {
            return Ok(None);
        }
        let mut next = Vec::new();
        load(repository, &id, &mut next, &|| format!("a folder on the way to `{}`", show(path)))?;
        buffer = next;
        tree = &buffer;
    }
    Ok(None)
}

/// `prefix` and `name` with a slash between them.
pub(super) fn join(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(prefix.len() + 1 + name.len());
    path.extend_from_slice(prefix);
    if !prefix.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}
