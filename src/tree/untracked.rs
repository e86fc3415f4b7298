//! Files of a working tree that the index does not have and no rule of the repository ignores, as `git add -A` finds
//! them. Rules are those of `.gitignore` files and `.git/info/exclude`; the user's own excludes file is left out, since
//! who asks must not change the answer.
#![forbid(unsafe_code)]

use crate::tree::descent::{is_gone, open_folder};
use crate::tree::error::{TreeError, below, detail};
use crate::tree::kept::Keeper;
use crate::tree::listing::Leaf;
use crate::tree::objects::join;
use crate::tree::worktree::{Taken, file_kind, special, take};
use crate::tree::{EntryKind, revision};
use gix::bstr::BStr;
use gix::index::entry::Mode;
use gix::worktree::stack::state;
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, statat};
use std::path::Path;

const PARSE: state::ignore::ParseIgnore = state::ignore::ParseIgnore { support_precious: false };

/// Names in a folder with their kind, in byte order, without `.`, `..` and `.git`.
pub(super) fn names(folder: BorrowedFd<'_>) -> rustix::io::Result<Vec<(Vec<u8>, FileType)>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b".." | b".git") {
            continue;
        }
        let kind = match entry.file_type() {
            // Some file systems leave the kind out (readdir(3)).
            FileType::Unknown => match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) => FileType::from_raw_mode(found.st_mode),
                Err(error) if is_gone(error) => continue,
                Err(error) => return Err(error),
            },
            kind => kind,
        };
        names.push((name.to_vec(), kind));
    }
    names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(names)
}

/// Refuses a folder whose rules would be waited for for ever: what a pipe of that name says.
pub(super) fn readable_rules(names: &[(Vec<u8>, FileType)], folder: &Path) -> Result<(), TreeError> {
    let is_special = |kind| !matches!(kind, FileType::Directory | FileType::RegularFile | FileType::Symlink);
    match names.iter().find(|(name, kind)| name == b".gitignore" && is_special(*kind)) {
        Some((_, kind)) => Err(special(folder.join(".gitignore"), *kind)),
        None => Ok(()),
    }
}

/// Finds them and takes their content.
pub(super) fn leaves(
    repository: &gix::Repository,
    root: BorrowedFd<'_>,
    workdir: &Path,
    index: &gix::index::State,
    keeper: &Keeper<'_>,
) -> Result<Vec<Leaf>, TreeError> {
    let files = repository.filesystem_options().map_err(|error| TreeError::Open {
        start: repository.git_dir().to_owned(),
        detail: detail(&error),
    })?;
    let rules = rules(repository, workdir, index, files.ignore_case)?;
    let mut walk =
        Walk { repository, workdir, index, keeper, files, rules, leaves: Vec::new(), waiting: Vec::new() };
    walk.waiting.push(Vec::new());
    while let Some(folder) = walk.waiting.pop() {
        match open_folder(root, &folder) {
            Ok(fd) => walk.folder(&fd, &folder)?,
            Err(error) if is_gone(error) => {}
            Err(error) => return Err(TreeError::io("open", below(workdir, &folder), error)),
        }
    }
    Ok(walk.leaves)
}

fn rules(
    repository: &gix::Repository,
    workdir: &Path,
    index: &gix::index::State,
    folds_case: bool,
) -> Result<gix::worktree::Stack, TreeError> {
    let mut buffer = Vec::new();
    let exclude = gix::ignore::Search::from_git_dir(repository.common_dir(), None, &mut buffer, PARSE)
        .map_err(|error| TreeError::io("read", repository.common_dir().join("info/exclude"), error))?;
    Ok(stack(workdir, exclude, index, folds_case))
}

/// Rules of the `.gitignore` files below a folder, and those of `exclude`.
pub(super) fn stack(
    workdir: &Path,
    exclude: gix::ignore::Search,
    index: &gix::index::State,
    folds_case: bool,
) -> gix::worktree::Stack {
    let source = state::ignore::Source::WorktreeThenIdMappingIfNotSkipped;
    let ignore = state::Ignore::new(gix::ignore::Search::default(), exclude, None, source, PARSE);
    gix::worktree::Stack::from_state_and_ignore_case(
        workdir,
        folds_case,
        gix::worktree::stack::State::IgnoreStack(ignore),
        index,
        index.path_backing(),
    )
}

/// The index entries below a folder.
fn tracked_in<'i>(index: &'i gix::index::State, folder: &[u8]) -> &'i [gix::index::Entry] {
    let prefix = if folder.is_empty() { Vec::new() } else { join(folder, b"") };
    let entries = index.entries();
    let start = entries.partition_point(|entry| entry.path(index) < BStr::new(&prefix));
    let from = entries.get(start..).unwrap_or_default();
    from.get(..from.partition_point(|entry| entry.path(index).starts_with(&prefix))).unwrap_or_default()
}

fn is_tracked(index: &gix::index::State, entries: &[gix::index::Entry], path: &[u8]) -> bool {
    entries.binary_search_by(|entry| entry.path(index).cmp(BStr::new(path))).is_ok()
}

struct Walk<'a> {
    repository: &'a gix::Repository,
    workdir: &'a Path,
    index: &'a gix::index::State,
    keeper: &'a Keeper<'a>,
    files: gix::fs::Capabilities,
    rules: gix::worktree::Stack,
    leaves: Vec<Leaf>,
    waiting: Vec<Vec<u8>>,
}

impl Walk<'_> {
    fn folder(&mut self, fd: &OwnedFd, folder: &[u8]) -> Result<(), TreeError> {
        let names =
            names(fd.as_fd()).map_err(|error| TreeError::io("list", below(self.workdir, folder), error))?;
        readable_rules(&names, &below(self.workdir, folder))?;
        let tracked = tracked_in(self.index, folder);
        let first_new = self.waiting.len();
        for (name, kind) in names {
            let path = join(folder, &name);
            match kind {
                FileType::Directory => self.subfolder(fd, &name, path)?,
                FileType::RegularFile | FileType::Symlink if is_tracked(self.index, tracked, &path) => {}
                FileType::RegularFile | FileType::Symlink => self.file(fd, &name, path, kind)?,
                // git passes over pipes, sockets and devices.
                _ => {}
            }
        }
        // The rules are read folder by folder, so neighbours are visited in order.
        self.waiting[first_new..].reverse();
        Ok(())
    }

    fn subfolder(&mut self, fd: &OwnedFd, name: &[u8], path: Vec<u8>) -> Result<(), TreeError> {
        let entry = self.index.entry_by_path(path.as_slice().into());
        let is_submodule = entry.is_some_and(|entry| entry.mode == Mode::COMMIT);
        if is_submodule || self.is_sparse_folder(&path) || self.is_ignored(&path, true)? {
            return Ok(());
        }
        let holds_tracked = self.index.path_is_directory(path.as_slice().into());
        if !holds_tracked && statat(fd, join(name, b".git"), AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            let place = below(self.workdir, &path);
            if let Some(nested) = revision::open_at(&place) {
                return self.nested(&nested, &place, path);
            }
        }
        self.waiting.push(path);
        Ok(())
    }

    /// An untracked repository stands in the tree as a submodule at its present commit, as `git add` records it.
    fn nested(&mut self, nested: &gix::Repository, place: &Path, path: Vec<u8>) -> Result<(), TreeError> {
        let head = nested.head().and_then(gix::Head::try_into_peeled_id).ok().flatten();
        let Some(id) = head.filter(|id| id.kind() == self.repository.object_hash()) else {
            return Err(TreeError::NestedWithoutCommit(place.to_owned()));
        };
        self.leaves.push(Leaf { path, kind: EntryKind::Submodule, id: id.detach() });
        Ok(())
    }

    fn file(&mut self, fd: &OwnedFd, name: &[u8], path: Vec<u8>, kind: FileType) -> Result<(), TreeError> {
        if self.is_ignored(&path, false)? {
            return Ok(());
        }
        let place = below(self.workdir, &path);
        let found = match statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(error) if is_gone(error) => return Ok(()),
            Err(error) => return Err(TreeError::io("look at", place, error)),
        };
        let is_link = kind == FileType::Symlink;
        let taken = Taken { known: None, path: &path, place: &place };
        let Some(id) = take(fd.as_fd(), name, is_link, self.keeper, &taken)? else { return Ok(()) };
        let kind = match is_link {
            true => EntryKind::Symlink,
            false if self.files.executable_bit => file_kind(found.st_mode),
            false => EntryKind::File,
        };
        self.leaves.push(Leaf { path, kind, id });
        Ok(())
    }

    /// In a sparse index a folder outside of the checkout is one entry, its path ending in a slash.
    fn is_sparse_folder(&self, path: &[u8]) -> bool {
        self.index.is_sparse() && self.index.entry_by_path(BStr::new(&join(path, b""))).is_some()
    }

    fn is_ignored(&mut self, path: &[u8], is_folder: bool) -> Result<bool, TreeError> {
        let mode = if is_folder { Mode::DIR } else { Mode::FILE };
        match self.rules.at_entry(BStr::new(path), Some(mode), &self.repository.objects) {
            Ok(platform) => Ok(platform.is_excluded()),
            Err(error) => Err(TreeError::io("read the ignore rules for", below(self.workdir, path), error)),
        }
    }
}
