//! Which tree is checked: a revision, the working tree, the index or a plain folder, resolved to the id of a git tree and
//! to a way of reading it. The only room that names the git library. Nothing is written here, save file contents that a
//! snapshot must hold on to, which go to a folder that the caller gives, and objects where a commit is to be made of them.
//!
//! What decides a result is in the repository: of git's configuration only the repository's own is read, of ignore rules
//! only `.gitignore` files and `.git/info/exclude`. A user's `core.excludesFile`, `safe.directory` or `GIT_*` variables
//! count for nothing. No hook, filter, attribute or file system monitor has a say: bytes are taken as they are.
#![forbid(unsafe_code)]

mod changes;
mod descent;
mod error;
mod fill;
mod folder;
mod history;
mod kept;
mod lfs;
mod listing;
mod manifest;
mod objects;
mod patch;
mod pathspec;
mod revision;
mod stored;
mod synthetic;
#[cfg(test)]
pub(crate) mod tests;
mod untracked;
mod walker;
mod without;
mod worktree;

pub use crate::tree::changes::Changes;
pub(crate) use crate::tree::descent::open_folder;
pub(crate) use crate::tree::descent::{Descent, open_root, split};
pub use crate::tree::error::TreeError;
pub(crate) use crate::tree::error::show;
pub use crate::tree::history::{Commit, History, State, history, state};
pub use crate::tree::synthetic::RepositoryFile;
pub(crate) use crate::tree::walker::Folder;
pub use crate::tree::walker::{Spot, Walker};
pub use crate::tree::without::{Change, Changed, changes};

use crate::model::check::TreeIdentity;
use crate::model::digest::{ObjectFormat, ObjectId};
use crate::tree::kept::{Keeper, Kept};
use gix::odb::pack::cache::lru::MemoryCappedHashmap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a tree is taken from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// Any git revision that leads to a tree: a commit, tag, branch, `HEAD~2`, a tree id, `REV:sub/dir`.
    Revision(String),
    /// The working tree as it stands: tracked files with their edits, and untracked ones that git does not ignore; what
    /// `git add -A && git write-tree` gives where no filter applies. Tracked submodules stay at the index's commit.
    WorkingTree,
    /// The index, as `git write-tree` gives it.
    Index,
    /// A plain folder. Empty folders and what is named `.git` are no part of it, as git cannot store them.
    Folder {
        /// Where it is, relative to the start.
        path: PathBuf,
        /// Whether files that its `.gitignore` files name are part of it.
        ignored: bool,
    },
}

/// What an entry of a tree is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EntryKind {
    /// A file.
    File,
    /// A file that may be executed.
    Executable,
    /// A symbolic link; its blob is the target.
    Symlink,
    /// A folder.
    Folder,
    /// The commit of another repository; its content is not part of the tree.
    Submodule,
}

impl EntryKind {
    /// The mode as it is written in tree objects.
    fn mode(self) -> &'static [u8] {
        match self {
            Self::File => b"100644",
            Self::Executable => b"100755",
            Self::Symlink => b"120000",
            Self::Folder => b"40000",
            Self::Submodule => b"160000",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::File | Self::Executable => "a file",
            Self::Symlink => "a symbolic link",
            Self::Folder => "a folder",
            Self::Submodule => "a submodule",
        }
    }
}

/// One entry of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Path from the root of the tree, `/` between parts; no part is empty, `.`, `..` or `.git`.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: EntryKind,
    /// Id of its blob, tree or commit.
    pub id: ObjectId,
}

/// A resolved tree: what it is known by, and how to read it. A copy shares what was read.
#[derive(Clone, Debug)]
pub struct Snapshot {
    identity: TreeIdentity,
    committed: Option<i64>,
    root: Option<PathBuf>,
    /// The folder that pathspecs are relative to, where that is not the root.
    start: Option<PathBuf>,
    repository: Option<gix::Repository>,
    /// The tree of the commit that HEAD stood for, for states that no commit has.
    head: Option<gix::ObjectId>,
    /// Whether it was taken from a working tree, an index or a folder.
    from_disk: bool,
    /// Other repositories that hold some of its content.
    others: Vec<gix::Repository>,
    /// Content that is in no repository.
    kept: Vec<Arc<Kept>>,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    /// In the repository or the memory of our view of it; the bytes of the root's tree object.
    Objects(Vec<u8>),
    /// Made here.
    Listing(Arc<Vec<Entry>>),
}

/// Resolves `source` as seen from the folder `start`.
///
/// `scratch` is a folder in which contents of changed files are kept once they are too many for memory, in a file
/// without a name; it is made if it is needed and not there.
///
/// # Errors
/// No repository, no such revision, objects that are missing or damaged, a conflicted index, files that cannot be read
/// or that git cannot store.
pub fn resolve(start: &Path, source: &Source, scratch: &Path) -> Result<Snapshot, TreeError> {
    match source {
        Source::Revision(revision) => resolve_revision(start, revision),
        Source::WorkingTree => {
            let repository = revision::open(start)?.with_object_memory();
            let keeper = Keeper::new(repository.object_hash(), scratch);
            let differing = worktree::working_tree(&repository, &keeper)?;
            from_index(start, repository, &differing, keeper.finish())
        }
        Source::Index => {
            let repository = revision::open(start)?.with_object_memory();
            let differing = worktree::index(&repository)?;
            from_index(start, repository, &differing, Kept::default())
        }
        Source::Folder { path, ignored } => {
            let hash = gix::hash::Kind::Sha1;
            let keeper = Keeper::new(hash, scratch);
            let leaves = folder::leaves(&start.join(path), *ignored, &keeper)?;
            let (tree, entries) = listing::build(leaves, hash)?;
            Ok(Snapshot {
                identity: identity(hash, &tree, None, true),
                committed: None,
                root: None,
                start: None,
                repository: None,
                head: None,
                from_disk: true,
                others: Vec::new(),
                kept: vec![Arc::new(keeper.finish())],
                content: Content::Listing(Arc::new(entries)),
            })
        }
    }
}

fn resolve_revision(start: &Path, revision: &str) -> Result<Snapshot, TreeError> {
    let repository = revision::open(start)?;
    let peeled = revision::resolve(&repository, revision)?;
    Ok(Snapshot {
        identity: identity(repository.object_hash(), &peeled.tree, peeled.commit.as_ref(), false),
        start: Some(start.to_owned()).filter(|_| !peeled.is_part && repository.workdir().is_some()),
        committed: peeled.committed,
        root: Some(root_of(&repository)),
        repository: Some(repository),
        head: None,
        from_disk: false,
        others: Vec::new(),
        kept: Vec::new(),
        content: Content::Objects(peeled.root),
    })
}

fn from_index(
    start: &Path,
    repository: gix::Repository,
    (index, differences): &worktree::Differing,
    kept: Kept,
) -> Result<Snapshot, TreeError> {
    let (tree, root) = patch::tree(&repository, index, differences)?;
    let head = revision::head(&repository)?;
    let same = head.as_ref().filter(|head| head.tree == tree);
    let commit = same.and_then(|head| head.commit);
    let committed = same.and_then(|head| head.committed);
    Ok(Snapshot {
        identity: identity(repository.object_hash(), &tree, commit.as_ref(), same.is_none()),
        committed,
        start: Some(start.to_owned()),
        root: Some(root_of(&repository)),
        repository: Some(repository),
        head: head.filter(|head| head.tree != tree).map(|head| head.tree),
        from_disk: true,
        others: Vec::new(),
        kept: vec![Arc::new(kept)],
        content: Content::Objects(root),
    })
}

fn identity(
    hash: gix::hash::Kind,
    tree: &gix::oid,
    commit: Option<&gix::ObjectId>,
    dirty: bool,
) -> TreeIdentity {
    let format = if hash == gix::hash::Kind::Sha1 { ObjectFormat::Sha1 } else { ObjectFormat::Sha256 };
    let commit = commit.map(|id| listing::id_of(id));
    TreeIdentity { format, tree: listing::id_of(tree), commit, dirty }
}

fn root_of(repository: &gix::Repository) -> PathBuf {
    repository.workdir().unwrap_or_else(|| repository.git_dir()).to_owned()
}

impl Snapshot {
    /// What the tree is known by. A plain folder has no commit and counts as dirty.
    #[must_use]
    pub fn identity(&self) -> &TreeIdentity {
        &self.identity
    }

    /// The committer date of its commit, in seconds since 1970; `None` where it has no commit, or the commit no date
    /// that can be read.
    #[must_use]
    pub fn committed(&self) -> Option<i64> {
        self.committed
    }

    /// The working tree's folder, or that of a bare repository itself; `None` for a plain folder.
    #[must_use]
    pub fn repository_root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// Whether `path` is a folder of the tree, the root if it is empty; a submodule counts, being an empty folder.
    #[must_use]
    pub fn folder_exists(&self, path: &[u8]) -> bool {
        let path = path.strip_suffix(b"/").unwrap_or(path);
        path.is_empty()
            || self
                .find(path)
                .is_ok_and(|found| matches!(found, Some((EntryKind::Folder | EntryKind::Submodule, _))))
    }

    /// Whether `path` is a file of the tree.
    #[must_use]
    pub fn has_file(&self, path: &[u8]) -> bool {
        let is_file = |kind| matches!(kind, EntryKind::File | EntryKind::Executable);
        self.find(path).is_ok_and(|found| found.is_some_and(|(kind, _)| is_file(kind)))
    }

    /// Whether `path` is a file of the tree that may be executed.
    pub(crate) fn has_executable(&self, path: &[u8]) -> bool {
        self.find(path).is_ok_and(|found| found.is_some_and(|(kind, _)| kind == EntryKind::Executable))
    }

    /// Reads the file at `path`, of at most `max` bytes; `None` if nothing is there.
    ///
    /// # Errors
    /// Something other than a file is there, it is larger than `max`, or it cannot be read.
    pub fn read_file(&self, path: &[u8], max: u64) -> Result<Option<Vec<u8>>, TreeError> {
        let Some((kind, id)) = self.find(path)? else { return Ok(None) };
        if !matches!(kind, EntryKind::File | EntryKind::Executable) {
            return Err(TreeError::NotAFile { path: show(path), what: kind.words() });
        }
        let mut bytes = Vec::new();
        self.reader().read(&id, &mut bytes)?;
        if u64::try_from(bytes.len()).is_ok_and(|length| length <= max) {
            return Ok(Some(bytes));
        }
        Err(TreeError::TooLarge {
            path: show(path),
            why: "the file is larger than is allowed for its purpose",
        })
    }

    /// Everything in the tree, folders before what they hold. Entries that must not be written to disk are refused:
    /// names that are empty, `.`, `..`, `.git` in any case, or hold a slash or NUL, and names that are there twice.
    ///
    /// # Errors
    /// A refused entry, or a tree object that is missing or damaged.
    pub fn entries(&self) -> Result<Vec<Entry>, TreeError> {
        match (&self.content, &self.repository) {
            (Content::Listing(entries), _) => Ok(entries.to_vec()),
            (Content::Objects(_), Some(repository)) => {
                objects::list(repository, &git_id(&self.identity.tree)?, b"")
            }
            (Content::Objects(_), None) => Ok(Vec::new()),
        }
    }

    /// A reader of blobs; each thread takes its own.
    #[must_use]
    pub fn reader(&self) -> BlobReader {
        let own = |repository: &gix::Repository| {
            let mut own = repository.clone();
            own.objects.set_pack_cache(|| Box::new(MemoryCappedHashmap::new(DELTA_BASES)));
            own
        };
        let repositories = self.repository.iter().chain(&self.others).map(own).collect();
        BlobReader { repositories, kept: self.kept.clone() }
    }

    fn find(&self, path: &[u8]) -> Result<Option<(EntryKind, ObjectId)>, TreeError> {
        match (&self.content, &self.repository) {
            (Content::Listing(entries), _) => Ok(entries
                .iter()
                .find(|entry| entry.path == path)
                .map(|entry| (entry.kind, entry.id.clone()))),
            (Content::Objects(root), Some(repository)) => {
                let found = objects::find(repository, repository.object_hash(), root, path)?;
                Ok(found.map(|(kind, id)| (kind, listing::id_of(&id))))
            }
            (Content::Objects(_), None) => Ok(None),
        }
    }
}

/// Bytes of objects that a reader keeps, since others in the pack are written as differences from them. Without any, each
/// object costs its whole chain, fifty long as git makes them.
const DELTA_BASES: usize = 32 << 20;

/// Reads blobs of a snapshot. May be sent to another thread.
#[derive(Debug)]
pub struct BlobReader {
    repositories: Vec<gix::Repository>,
    kept: Vec<Arc<Kept>>,
}

impl BlobReader {
    /// Reads the blob `id` into `buffer`, replacing what is in it. Its bytes are checked against its id.
    ///
    /// # Errors
    /// It is missing or damaged, or no blob.
    pub fn read(&mut self, id: &ObjectId, buffer: &mut Vec<u8>) -> Result<(), TreeError> {
        let id = git_id(id)?;
        if let Some(read) = self.kept.iter().find_map(|kept| kept.read(&id, buffer)) {
            return read;
        }
        let what = || "the content of a file".to_owned();
        for repository in &self.repositories {
            match objects::load(repository, &id, buffer, &what) {
                Ok(gix::objs::Kind::Blob) => return Ok(()),
                Ok(kind) => {
                    let detail = format!("it is a {kind}, not a blob");
                    return Err(TreeError::Damaged { id: id.to_string(), what: what(), detail });
                }
                Err(TreeError::Missing { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(TreeError::Missing { id: id.to_string(), what: what() })
    }
}

fn git_id(id: &ObjectId) -> Result<gix::ObjectId, TreeError> {
    gix::ObjectId::try_from(id.as_bytes()).map_err(|error| TreeError::Damaged {
        id: id.hex(),
        what: "an id".to_owned(),
        detail: error::detail(&error),
    })
}
