//! Writable places that start with the content of layers: the tree, and the home folder where packages were prepared. An
//! overlay where the kernel makes one, else a copy. Which layers there are is the plan's business.
#![forbid(unsafe_code)]

use crate::sandbox::mounts::PLAIN;
use crate::sandbox::plan::Plan;
use crate::sandbox::wire::{At, Failure, Step};
use crate::sandbox::{listing, place};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};
use std::ffi::OsStr;
use std::io;
use std::path::Path;

/// A path that names an open descriptor, for calls that take only paths. Resolved by the kernel without a look at
/// any name (proc(5), magic links).
fn descriptor_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

pub(super) fn attach_part(
    from: BorrowedFd<'_>,
    part: &str,
    root: BorrowedFd<'_>,
    at: &str,
) -> rustix::io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = open_tree(from, part, flags)?;
    move_mount(mount.as_fd(), "", root, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// A writable place that starts with the content of layers: its folders on the scratch file system, and where it goes.
#[derive(Clone, Copy)]
pub(super) struct Layered {
    upper: &'static str,
    work: &'static str,
    pub(super) at: &'static str,
}

pub(super) const TREE: Layered = Layered { upper: "src", work: "work", at: "src" };
pub(super) const HOME: Layered = Layered { upper: "home", work: "homework", at: "home/check" };

pub(super) fn copy_in(
    root: BorrowedFd<'_>,
    scratch: BorrowedFd<'_>,
    layers: &[OwnedFd],
    to: Layered,
) -> io::Result<()> {
    let target = place::folder(scratch, Path::new(to.upper), false)?;
    for layer in layers.iter().rev() {
        place::copy_tree(layer.as_fd(), target.as_fd())?;
    }
    attach_part(scratch, to.upper, root, to.at).map_err(Into::into)
}

/// The tree as a copy, with its folders in the order that is asked for.
pub(super) fn copy_tree(
    plan: &Plan,
    root: BorrowedFd<'_>,
    scratch: BorrowedFd<'_>,
    tree: &[OwnedFd],
) -> Result<(), Failure> {
    copy_in(root, scratch, tree, TREE).at(Step::Tree, "copy")?;
    let folder = |name: &str| place::folder(scratch, Path::new(name), false).at(Step::Tree, name);
    // The overlay's work folder, which a copy leaves empty.
    let (tree, aside) = (folder(TREE.upper)?, folder(TREE.work)?);
    listing::set(tree.as_fd(), aside.as_fd(), plan.guise.listing)
        .at(Step::Tree, "in the order that was asked for")
}

/// Mounts an overlay of the layers at its place.
///
/// The kernel takes a lower folder only from this mount namespace (fs/namespace.c, `clone_private_mount`), so the layers
/// have to be attached; the overlay then holds copies of its own.
pub(super) fn mount_at(
    root: BorrowedFd<'_>,
    scratch: BorrowedFd<'_>,
    layers: &[OwnedFd],
    to: Layered,
) -> io::Result<()> {
    let overlay = new_overlay(scratch, layers, to)?;
    move_mount(overlay.as_fd(), "", root, to.at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(Into::into)
}

fn new_overlay(scratch: BorrowedFd<'_>, layers: &[OwnedFd], to: Layered) -> io::Result<OwnedFd> {
    let folder = |name: &str| {
        rustix::fs::openat(scratch, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    };
    let (upper, work) = (folder(to.upper)?, folder(to.work)?);
    // The upper folder's times and mode are those of the tree's root inside.
    let uppermost = layers.first().ok_or(rustix::io::Errno::INVAL)?;
    let stat = rustix::fs::fstat(uppermost)?;
    place::set_times(scratch, OsStr::new(to.upper), &stat)?;
    let lower: Vec<String> = layers.iter().map(|layer| descriptor_path(layer.as_fd())).collect();
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "source", to.upper)?;
    fsconfig_set_string(context.as_fd(), "lowerdir", lower.join(":"))?;
    fsconfig_set_string(context.as_fd(), "upperdir", descriptor_path(upper.as_fd()))?;
    fsconfig_set_string(context.as_fd(), "workdir", descriptor_path(work.as_fd()))?;
    fsconfig_set_flag(context.as_fd(), "userxattr")?;
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, PLAIN).map_err(Into::into)
}
