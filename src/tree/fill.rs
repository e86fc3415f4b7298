//! Content that a tree only names: the files of submodules, at the commits that the tree pins, taken from repositories that
//! are here already. Nothing is fetched. What LFS keeps elsewhere is `lfs`'s.
#![forbid(unsafe_code)]

use crate::model::check::Filled;
use crate::model::evidence::Foreign;
use crate::tree::error::{TreeError, show};
use crate::tree::listing::{self, Leaf, MAX_ENTRIES, id_of};
use crate::tree::objects::{self, list, load};
use crate::tree::{Content, Entry, EntryKind, Snapshot, git_id, lfs, revision};
use gix::bstr::BStr;
use gix::objs::Kind;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The file that says which submodule is at which path (gitmodules(5)).
const MODULES: &str = ".gitmodules";

/// Submodules in one another. No real tree comes near.
const MAX_NESTED: usize = 32;

impl Snapshot {
    /// The tree with the content that it only names, as far as `filled` says so; its id is that of the tree with it. Content
    /// of LFS is kept as that of changed files is, beyond memory in a file without a name in the folder `scratch`.
    ///
    /// # Errors
    /// Something that is to be put in is not here, or not what the tree says, by name.
    pub fn fill(self, filled: Filled, scratch: &Path) -> Result<Self, TreeError> {
        let with_submodules = if filled.submodules { self.with_submodules()? } else { self };
        if filled.lfs { lfs::with_content(with_submodules, scratch) } else { Ok(with_submodules) }
    }

    /// How much of what the tree only names is not in it. To keep the cost from growing with the tree, submodules of a
    /// commit are those that its `.gitmodules` lists, and LFS files those of a tree whose root says in `.gitattributes`
    /// that it has some.
    ///
    /// # Errors
    /// A tree object or a small file cannot be read.
    pub fn foreign(&self, filled: Filled) -> Result<Foreign, TreeError> {
        let empty_submodules = if filled.submodules { 0 } else { self.count_submodules()? };
        let lfs_pointers = if filled.lfs { 0 } else { lfs::count(self)? };
        Ok(Foreign { submodules: filled.submodules, empty_submodules, lfs: filled.lfs, lfs_pointers })
    }

    fn count_submodules(&self) -> Result<u64, TreeError> {
        let mut count = 0;
        if let Content::Listing(entries) = &self.content {
            count = entries.iter().filter(|entry| entry.kind == EntryKind::Submodule).count();
        } else if let Some((EntryKind::File | EntryKind::Executable, id)) = self.find(MODULES.as_bytes())? {
            let mut text = Vec::new();
            self.reader().read(&id, &mut text)?;
            for path in listed(&text) {
                count += usize::from(matches!(self.find(&path)?, Some((EntryKind::Submodule, _))));
            }
        }
        Ok(u64::try_from(count).unwrap_or(u64::MAX))
    }

    fn with_submodules(self) -> Result<Self, TreeError> {
        let entries = self.entries()?;
        let Some(repository) = &self.repository else { return Ok(self) };
        if !entries.iter().any(|entry| entry.kind == EntryKind::Submodule) {
            return Ok(self);
        }
        let mut filling = Filling { leaves: Vec::with_capacity(entries.len()), others: Vec::new() };
        let modules = match self.find(MODULES.as_bytes())? {
            Some((EntryKind::File | EntryKind::Executable, id)) => {
                let mut text = Vec::new();
                self.reader().read(&id, &mut text)?;
                text
            }
            _ => Vec::new(),
        };
        let above = Above { repository, modules: &modules, prefix: b"" };
        filling.take(entries, &above, 0)?;
        let (tree, entries) = listing::build(filling.leaves, repository.object_hash())?;
        let mut identity = self.identity.clone();
        identity.tree = id_of(&tree);
        // What it was made from is in the repository, so it can be laid out from that.
        let head = match self.head {
            None if !self.identity.dirty => Some(git_id(&self.identity.tree)?),
            head => head,
        };
        Ok(Self {
            identity,
            head,
            others: filling.others,
            content: Content::Listing(Arc::new(entries)),
            ..self
        })
    }
}

/// The paths that a `.gitmodules` file names; what cannot be read names none.
fn listed(text: &[u8]) -> Vec<Vec<u8>> {
    let Some(file) = parsed(text) else { return Vec::new() };
    file.names().filter_map(|name| file.path(name).ok()).map(Vec::from).collect()
}

fn parsed(text: &[u8]) -> Option<gix::submodule::File> {
    gix::submodule::File::from_bytes(text, None, &gix::config::File::new(gix::config::file::Metadata::api()))
        .ok()
}

/// The tree that a submodule is in.
struct Above<'a> {
    repository: &'a gix::Repository,
    /// The text of its `.gitmodules`.
    modules: &'a [u8],
    /// Where that tree is in the whole.
    prefix: &'a [u8],
}

/// The whole tree in the making.
struct Filling {
    leaves: Vec<Leaf>,
    others: Vec<gix::Repository>,
}

impl Filling {
    fn take(&mut self, entries: Vec<Entry>, above: &Above<'_>, nested: usize) -> Result<(), TreeError> {
        for entry in entries.into_iter().filter(|entry| entry.kind != EntryKind::Folder) {
            let id = git_id(&entry.id)?;
            if entry.kind == EntryKind::Submodule {
                self.submodule(&entry.path, id, above, nested)?;
            } else if self.leaves.len() < MAX_ENTRIES {
                self.leaves.push(Leaf { path: entry.path, kind: entry.kind, id });
            } else {
                return Err(TreeError::TooLarge {
                    path: show(&entry.path),
                    why: "more than 5 million entries",
                });
            }
        }
        Ok(())
    }

    fn submodule(
        &mut self,
        path: &[u8],
        commit: gix::ObjectId,
        above: &Above<'_>,
        nested: usize,
    ) -> Result<(), TreeError> {
        if nested >= MAX_NESTED {
            return Err(TreeError::TooLarge {
                path: show(path),
                why: "more than 32 submodules in one another",
            });
        }
        let (repository, tree) = find(path, commit, above)?;
        let hash = repository.object_hash();
        let mut root = Vec::new();
        load(&repository, &tree, &mut root, &|| format!("the tree of submodule `{}`", show(path)))?;
        let mut modules = Vec::new();
        if let Some((EntryKind::File | EntryKind::Executable, id)) =
            objects::find(&repository, hash, &root, MODULES.as_bytes())?
        {
            load(&repository, &id, &mut modules, &|| format!("{MODULES} of `{}`", show(path)))?;
        }
        let entries = list(&repository, &tree, path)?;
        let below = Above { repository: &repository, modules: &modules, prefix: path };
        self.take(entries, &below, nested + 1)?;
        self.others.push(repository);
        Ok(())
    }
}

/// The repository that has the commit, and the commit's tree.
fn find(
    path: &[u8],
    commit: gix::ObjectId,
    above: &Above<'_>,
) -> Result<(gix::Repository, gix::ObjectId), TreeError> {
    let inner = path.strip_prefix(above.prefix).unwrap_or(path);
    let inner = inner.strip_prefix(b"/").unwrap_or(inner);
    let places = places(inner, above);
    for place in &places {
        let Some(repository) = revision::open_at(place) else { continue };
        if repository.object_hash() != commit.kind() {
            continue;
        }
        let mut buffer = Vec::new();
        match load(&repository, &commit, &mut buffer, &|| format!("the commit of submodule `{}`", show(path)))
        {
            Ok(Kind::Commit) => {
                let tree = gix::objs::CommitRefIter::from_bytes(&buffer, commit.kind()).tree_id();
                let tree = tree.map_err(|error| TreeError::Damaged {
                    id: commit.to_string(),
                    what: format!("the commit of submodule `{}`", show(path)),
                    detail: super::error::detail(&error),
                })?;
                return Ok((repository, tree));
            }
            Ok(_) | Err(TreeError::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Err(TreeError::SubmoduleMissing { path: show(path), commit: commit.to_string() })
}

/// Where a submodule's repository may be: by its name among those that git keeps for this repository, or in the checkout.
/// Which of them it is does not matter, since its objects are known by their ids.
fn places(path: &[u8], above: &Above<'_>) -> Vec<PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    let as_path = |bytes: &[u8]| Path::new(std::ffi::OsStr::from_bytes(bytes)).to_owned();
    let mut places = Vec::new();
    let file = parsed(above.modules);
    let name = file.as_ref().and_then(|file| file.name_by_path(BStr::new(path)));
    // A name may hold slashes; one that would lead out of the folder is no name (CVE-2018-11235).
    let name = name.map(|name| as_path(name)).unwrap_or_else(|| as_path(path));
    if name.components().all(|part| matches!(part, Component::Normal(_))) {
        for folder in [above.repository.git_dir(), above.repository.common_dir()] {
            places.push(folder.join("modules").join(&name));
        }
    }
    places.extend(above.repository.workdir().map(|workdir| workdir.join(as_path(path))));
    places.dedup();
    places
}

/// Where LFS may keep content for the snapshot: beside each repository that holds some of it.
pub(super) fn stores(snapshot: &Snapshot) -> Vec<PathBuf> {
    let repositories = snapshot.repository.iter().chain(&snapshot.others);
    repositories.map(|repository| join_all(repository.common_dir(), &["lfs", "objects"])).collect()
}

fn join_all(folder: &Path, parts: &[&str]) -> PathBuf {
    parts.iter().fold(folder.to_owned(), |path, part| path.join(part))
}
