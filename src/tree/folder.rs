//! A plain folder as a tree: every file and link below it but for `.git` and, unless they are wanted, for what its own
//! `.gitignore` files name. No repository and no other rules.
#![forbid(unsafe_code)]

use crate::tree::EntryKind;
use crate::tree::descent::{open_folder, open_root};
use crate::tree::error::{TreeError, below};
use crate::tree::kept::Keeper;
use crate::tree::listing::Leaf;
use crate::tree::objects::join;
use crate::tree::untracked::{self, names};
use crate::tree::worktree::{Taken, file_kind, special, take};
use gix::bstr::BStr;
use gix::index::entry::Mode;
use rustix::fd::AsFd as _;
use rustix::fs::{AtFlags, FileType, statat};
use std::path::Path;

/// Lists the folder and takes the content of its files, of those too that are ignored if `ignored`.
pub(super) fn leaves(folder: &Path, ignored: bool, keeper: &Keeper<'_>) -> Result<Vec<Leaf>, TreeError> {
    let nothing_tracked = gix::index::State::new(gix::hash::Kind::Sha1);
    let none = gix::ignore::Search::default();
    let mut rules = (!ignored).then(|| untracked::stack(folder, none, &nothing_tracked, false));
    let root = open_root(folder).map_err(|error| TreeError::io("open the folder", folder, error))?;
    let mut leaves = Vec::new();
    let mut waiting: Vec<Vec<u8>> = vec![Vec::new()];
    while let Some(path) = waiting.pop() {
        let place = below(folder, &path);
        let fd = open_folder(root.as_fd(), &path).map_err(|error| TreeError::io("open", &place, error))?;
        let names = names(fd.as_fd()).map_err(|error| TreeError::io("list", &place, error))?;
        untracked::readable_rules(&names, &place)?;
        for (name, kind) in names {
            let path = join(&path, &name);
            let place = below(folder, &path);
            if let Some(rules) = &mut rules {
                let mode = if kind == FileType::Directory { Mode::DIR } else { Mode::FILE };
                let found = rules.at_entry(BStr::new(&path), Some(mode), &gix::objs::find::Never);
                if found
                    .map_err(|error| TreeError::io("read the ignore rules for", &place, error))?
                    .is_excluded()
                {
                    continue;
                }
            }
            let is_link = match kind {
                FileType::Directory => {
                    waiting.push(path);
                    continue;
                }
                FileType::RegularFile => false,
                FileType::Symlink => true,
                other => return Err(special(place, other)),
            };
            let found = statat(&fd, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|error| TreeError::io("look at", &place, error))?;
            let taken = Taken { known: None, path: &path, place: &place };
            let Some(id) = take(fd.as_fd(), &name, is_link, keeper, &taken)? else { continue };
            let kind = if is_link { EntryKind::Symlink } else { file_kind(found.st_mode) };
            leaves.push(Leaf { path, kind, id });
        }
    }
    Ok(leaves)
}
