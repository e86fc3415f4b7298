//! Trying what a run does with mounts, in a namespace that is thrown away afterwards: for `probe`.
#![forbid(unsafe_code)]

use crate::sandbox::layered::{TREE, mount_at};
use crate::sandbox::mounts::{attach, new_proc, new_tmpfs};
use crate::sandbox::place;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::mount::{OpenTreeFlags, open_tree};
use std::io;
use std::path::Path;

/// Tries to make a /proc, for `probe`; true where all of it can be had.
pub(super) fn try_proc() -> rustix::io::Result<bool> {
    new_proc().map(|(_, whole)| whole)
}

/// Tries what a run does with mounts, for `probe`: a temporary file system, then an overlay that is written through,
/// locked and read back. The namespace is thrown away afterwards.
pub(super) fn try_mounts() -> (rustix::io::Result<()>, Result<(), String>) {
    let root = match new_tmpfs("16m", "0755") {
        Ok(root) => root,
        Err(error) => return (Err(error), Err("no temporary file system".to_owned())),
    };
    if let Err(error) = attach(root.as_fd()) {
        return (Err(error), Err("nothing can be mounted".to_owned()));
    }
    (Ok(()), try_overlay(root.as_fd()).map_err(|error| why_not(&error)))
}

/// An overlay marks what hides a lower folder by an attribute of users (`userxattr` of overlayfs), and fails with EIO in the
/// middle of its work where the file system above keeps none: tmpfs does since Linux 6.6 (tmpfs(5)).
fn why_not(error: &io::Error) -> String {
    let keeps = new_tmpfs("1m", "0755").and_then(|scratch| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(&scratch, ".", flags, Mode::empty())?;
        rustix::fs::fsetxattr(&folder, "user.checkrun", b"1", rustix::fs::XattrFlags::empty())
    });
    if keeps == Err(rustix::io::Errno::OPNOTSUPP) {
        return "before Linux 6.6 temporary file systems lack the attributes that it needs".to_owned();
    }
    error.to_string()
}

fn try_overlay(root: BorrowedFd<'_>) -> io::Result<()> {
    for folder in ["src", "layer", "layer/a"] {
        rustix::fs::mkdirat(root, folder, Mode::from_raw_mode(0o755))?;
    }
    let layer_folder = place::folder(root, Path::new("layer/a"), false)?;
    place::write_file(layer_folder.as_fd(), "file", b"below")?;
    let scratch = new_tmpfs("1m", "0755")?;
    attach(scratch.as_fd())?;
    for folder in ["src", "work"] {
        rustix::fs::mkdirat(&scratch, folder, Mode::from_raw_mode(0o755))?;
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let layer = open_tree(root, "layer", flags)?;
    attach(layer.as_fd())?;
    mount_at(root, scratch.as_fd(), &[layer], TREE)?;
    let folder = place::folder(root, Path::new("src/a"), false)?;
    let file = rustix::fs::openat(&folder, "file", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
    rustix::io::write(&file, b"above")?;
    rustix::fs::renameat(&folder, "file", &folder, "renamed")?;
    rustix::fs::unlinkat(&folder, "renamed", AtFlags::empty())?;
    rustix::fs::unlinkat(root, "src/a", AtFlags::REMOVEDIR)?;
    Ok(())
}
