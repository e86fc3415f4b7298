//! Puts paths of the working tree into the state that they have in another tree. What is put back and whether it may
//! be is decided by the commands; here nothing is overwritten that was not named.
#![forbid(unsafe_code)]

use crate::commands::Failure;
use crate::model::digest::ObjectId;
use crate::tree::{Changed, EntryKind, Snapshot, show};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

/// Files, links and submodules of a tree.
type Leaves = BTreeMap<Vec<u8>, (EntryKind, ObjectId)>;

/// A path and what is to be there; nothing for `None`.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Move {
    path: Vec<u8>,
    to: Option<(EntryKind, ObjectId)>,
}

/// What is to be done so that these paths become as they are in `goal`.
pub(in crate::commands) fn moves(changed: &[Changed], goal: &Leaves) -> Vec<Move> {
    changed
        .iter()
        .map(|changed| Move { path: changed.path.clone(), to: goal.get(&changed.path).cloned() })
        .collect()
}

/// Why it cannot be done without losing something that is in no tree, a sentence each. `now` is the tree as it stands.
pub(in crate::commands) fn obstacles(root: &Path, moves: &[Move], now: &Leaves) -> Vec<String> {
    let gone: BTreeSet<&[u8]> =
        moves.iter().filter(|one| one.to.is_none()).map(|one| one.path.as_slice()).collect();
    let mut found = Vec::new();
    for Move { path, to } in moves {
        let submodule = |entry: Option<&(EntryKind, ObjectId)>| {
            entry.is_some_and(|(kind, _)| *kind == EntryKind::Submodule)
        };
        if submodule(to.as_ref()) || submodule(now.get(path)) {
            found.push(format!("`{}` is a submodule, which is not moved", show(path)));
            continue;
        }
        if to.is_none() {
            continue;
        }
        for above in folders_above(path) {
            let is_file = meta(&place(root, above)).is_some_and(|meta| !meta.is_dir());
            if is_file && !gone.contains(above) {
                found.push(format!("`{}` is in the way of `{}`", show(above), show(path)));
            }
        }
        match meta(&place(root, path)) {
            Some(meta) if meta.is_dir() => {
                if let Some(other) = kept_inside(root, path, &gone) {
                    found.push(format!("`{}` is in the way of `{}`", show(&other), show(path)));
                }
            }
            Some(_) if !now.contains_key(path) => {
                found.push(format!("`{}` is there and is ignored by git, so nothing keeps it", show(path)));
            }
            _ => {}
        }
    }
    found.dedup();
    found
}

/// Does it. Files that go away go first; each other file is made aside and takes its place as a whole.
pub(in crate::commands) fn put(
    root: &Path,
    git_dir: &Path,
    moves: &[Move],
    goal: &Snapshot,
) -> Result<(), Failure> {
    for Move { path, to } in moves {
        if to.is_none() {
            remove(root, path).map_err(|error| failed("remove", path, &error))?;
        }
    }
    let mut reader = goal.reader();
    let mut bytes = Vec::new();
    let aside = git_dir.join(format!("checkrun-new.{}", std::process::id()));
    for Move { path, to } in moves {
        let Some((kind, id)) = to else { continue };
        reader.read(id, &mut bytes)?;
        write(root, path, *kind, &bytes, &aside).map_err(|error| {
            drop(fs::remove_file(&aside));
            failed("write", path, &error)
        })?;
    }
    Ok(())
}

fn failed(what: &str, path: &[u8], error: &io::Error) -> Failure {
    Failure::new(
        format!("cannot {what} `{}`: {error}", show(path)),
        Some("what was there is kept; `checkrun partials` lists it"),
    )
}

fn remove(root: &Path, path: &[u8]) -> io::Result<()> {
    match fs::remove_file(place(root, path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    remove_emptied(root, path);
    Ok(())
}

/// Removes the folders above a path that have become empty, as git does; one that is not empty stays by itself.
pub(in crate::commands) fn remove_emptied(root: &Path, path: &[u8]) {
    for above in folders_above(path).into_iter().rev() {
        match fs::remove_dir(place(root, above)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => break,
            _ => {}
        }
    }
}

fn write(root: &Path, path: &[u8], kind: EntryKind, bytes: &[u8], aside: &Path) -> io::Result<()> {
    for above in folders_above(path) {
        let folder = place(root, above);
        match meta(&folder) {
            Some(meta) if meta.is_dir() => {}
            Some(_) => return Err(io::Error::from(io::ErrorKind::NotADirectory)),
            None => fs::create_dir(&folder)?,
        }
    }
    let target = place(root, path);
    if meta(&target).is_some_and(|meta| meta.is_dir()) {
        // Only empty folders are left here by now.
        fs::remove_dir(&target)?;
    }
    make(aside, kind, bytes)?;
    match fs::rename(aside, &target) {
        // The folder of git's files is elsewhere: then the file is made in its place.
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            fs::remove_file(aside)?;
            match fs::remove_file(&target) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => make(&target, kind, bytes),
            }
        }
        other => other,
    }
}

fn make(target: &Path, kind: EntryKind, bytes: &[u8]) -> io::Result<()> {
    if kind == EntryKind::Symlink {
        return symlink(OsStr::from_bytes(bytes), target);
    }
    let mode = if kind == EntryKind::Executable { 0o777 } else { 0o666 };
    let mut file = File::options().write(true).create_new(true).mode(mode).open(target)?;
    file.write_all(bytes)
}

/// A file in a folder of the working tree that is not among those that go away.
fn kept_inside(root: &Path, folder: &[u8], gone: &BTreeSet<&[u8]>) -> Option<Vec<u8>> {
    for entry in fs::read_dir(place(root, folder)).ok()?.flatten() {
        let path = [folder, b"/", entry.file_name().as_bytes()].concat();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let found = if is_folder {
            kept_inside(root, &path, gone)
        } else {
            (!gone.contains(path.as_slice())).then_some(path)
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

fn meta(path: &Path) -> Option<Metadata> {
    fs::symlink_metadata(path).ok()
}

fn place(root: &Path, path: &[u8]) -> PathBuf {
    root.join(OsStr::from_bytes(path))
}

/// The folders that a path lies in, outermost first, without the root.
fn folders_above(path: &[u8]) -> Vec<&[u8]> {
    path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[..at]).collect()
}
