//! Everything of the host that goes into a sandbox, opened: detached copies of mounts, and what its links say. Where they
//! go is `mounts`' business.
#![forbid(unsafe_code)]

use crate::model::runner::Bind;
use crate::sandbox::plan::Plan;
use crate::sandbox::sys;
use crate::sandbox::wire::{At, Failure, Step};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, FileType};
use rustix::mount::{OpenTreeFlags, open_tree};
use std::io;
use std::path::{Path, PathBuf};

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;

/// Device nodes that are shown: name, major, minor (Documentation/admin-guide/devices.txt in the kernel's source).
const DEVICES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

/// A host path, opened.
pub(super) enum Shown {
    /// A detached copy of its mount, what it is, and the device that it lies on.
    Mount(OwnedFd, FileType, u64),
    /// It is a symbolic link: the same link is made inside.
    Link(PathBuf),
    /// The host lacks it.
    Absent,
}

/// Everything of the host that goes into the sandbox, opened.
pub(super) struct Sources {
    /// Devices of the host's files among them.
    pub(super) devices_shown: Vec<u64>,
    /// Layers of the tree, uppermost first.
    pub(super) tree: Vec<OwnedFd>,
    pub(super) home: Vec<OwnedFd>,
    pub(super) binds: Vec<(Bind, Shown)>,
    pub(super) devices: Vec<(&'static str, OwnedFd)>,
}

/// Opens all host paths that the plan names, and the layers of the tree. Needs CAP_SYS_ADMIN over the mount namespace it runs
/// in.
pub(super) fn open_sources(plan: &Plan, tree: &[PathBuf]) -> Result<Sources, Failure> {
    let tree = tree.iter().chain(&plan.beneath).map(|layer| open_layer(layer)).collect::<Result<_, _>>()?;
    let home = plan.home.iter().map(|layer| open_layer(layer)).collect::<Result<_, _>>()?;
    let mut binds = Vec::with_capacity(plan.binds.len());
    let mut devices_shown = Vec::new();
    for bind in &plan.binds {
        let shown = open_shown(&bind.host).at(Step::Source, bind.host.to_string_lossy())?;
        if let Shown::Mount(_, _, device) = &shown
            && !devices_shown.contains(device)
        {
            devices_shown.push(*device);
        }
        binds.push((bind.clone(), shown));
    }
    let mut devices = Vec::with_capacity(DEVICES.len());
    for (name, major, minor) in DEVICES {
        let path = Path::new("/dev").join(name);
        let fd = clone_mount(&path, false).at(Step::Devices, path.to_string_lossy())?;
        let stat = rustix::fs::fstat(&fd).at(Step::Devices, path.to_string_lossy())?;
        let right = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
            && (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)) == (major, minor);
        // One that root alone may write to would make programs fail in ways that say nothing of it.
        let open = name != "null" || stat.st_mode & 0o006 == 0o006;
        if !right || !open {
            let errno = if right { rustix::io::Errno::ACCESS } else { rustix::io::Errno::NODEV };
            let wrong = io::Error::from(errno);
            return Err(Failure::new(Step::Devices, path.to_string_lossy(), &wrong));
        }
        let bits = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
        sys::set_mount_attributes(fd.as_fd(), bits, false).at(Step::Devices, path.to_string_lossy())?;
        devices.push((name, fd));
    }
    Ok(Sources { devices_shown, tree, home, binds, devices })
}

fn open_layer(layer: &Path) -> Result<OwnedFd, Failure> {
    let mount = clone_mount(layer, true).at(Step::Source, layer.to_string_lossy())?;
    sys::set_mount_attributes(mount.as_fd(), READ_ONLY, true).at(Step::Source, layer.to_string_lossy())?;
    Ok(mount)
}

fn clone_mount(path: &Path, recursive: bool) -> rustix::io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    if recursive {
        // A plain copy would leave out what is mounted beneath, /usr/local on a disk of its own, say.
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    open_tree(CWD, path, flags)
}

fn open_shown(path: &Path) -> io::Result<Shown> {
    // Before its mount is copied: to let go of a copy that is not used costs a grace period of the kernel.
    if let Ok(target) = std::fs::read_link(path) {
        return Ok(Shown::Link(target));
    }
    let mount = match clone_mount(path, true) {
        Ok(mount) => mount,
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(Shown::Absent),
        Err(error) => return Err(error.into()),
    };
    let stat = rustix::fs::fstat(&mount)?;
    match FileType::from_raw_mode(stat.st_mode) {
        // It has become one since.
        FileType::Symlink => Ok(Shown::Link(std::fs::read_link(path)?)),
        kind @ (FileType::Directory | FileType::RegularFile) => {
            sys::set_mount_attributes(mount.as_fd(), READ_ONLY, true)?;
            Ok(Shown::Mount(mount, kind, stat.st_dev))
        }
        // Sockets, pipes and devices of the host are never shown: they reach out of the sandbox.
        _ => Err(rustix::io::Errno::OPNOTSUPP.into()),
    }
}
