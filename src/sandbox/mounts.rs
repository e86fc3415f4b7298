//! The check's file system: an empty root to which everything is added on purpose, by descriptor, so that no path
//! is resolved twice and no symbolic link is followed. Which paths are shown is the plan's business.
#![forbid(unsafe_code)]

use crate::model::guise::Guise;
use crate::sandbox::layered::{HOME, TREE, attach_part, copy_in, copy_tree, mount_at};
use crate::sandbox::plan::{HOME_PLACE, Plan, TreeStyle};
use crate::sandbox::sources::{Shown, Sources};
use crate::sandbox::wire::{At, Failure, Step};
use crate::sandbox::{etc, place, sys};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

pub(super) const PLAIN: MountAttrFlags =
    MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);

/// The root under construction.
pub(super) struct Root {
    /// The root folder.
    pub(super) fd: OwnedFd,
    /// The file system that holds all that the check writes.
    pub(super) scratch: OwnedFd,
}

/// Builds all but /proc, which only a process of the new PID namespace can mount.
pub(super) fn build(plan: &Plan, sources: Sources) -> Result<Root, Failure> {
    let bytes = plan.limits.disk.0;
    let scratch = new_limited_tmpfs(bytes).at(Step::Scratch, "")?;
    // Before the root, which is not to be covered by them.
    attach(scratch.as_fd()).at(Step::Scratch, "")?;
    if plan.style == TreeStyle::Overlay {
        sources
            .tree
            .iter()
            .chain(&sources.home)
            .try_for_each(|layer| attach(layer.as_fd()))
            .at(Step::Tree, "attach")?;
    }
    let root = new_tmpfs("16m", "0755").at(Step::Root, "")?;
    attach(root.as_fd()).at(Step::Root, "")?;
    for folder in [
        "src",
        "home",
        "home/check",
        "tmp",
        "dev",
        "dev/pts",
        "dev/shm",
        "dev/mqueue",
        "proc",
        "etc",
        "run",
        "var",
    ] {
        rustix::fs::mkdirat(&root, folder, Mode::from_raw_mode(0o755)).at(Step::Root, folder)?;
    }
    rustix::fs::symlinkat("../tmp", &root, "var/tmp").at(Step::Root, "var/tmp")?;
    rustix::fs::symlinkat("../run", &root, "var/run").at(Step::Root, "var/run")?;
    // Another user's home is the same folder, so that what was prepared is found.
    if let Some(name) =
        Path::new(plan.guise.home()).strip_prefix("/").ok().filter(|name| *name != Path::new(HOME.at))
    {
        rustix::fs::symlinkat(HOME_PLACE, &root, name).at(Step::Root, plan.guise.home())?;
    }
    make_etc(root.as_fd(), &plan.guise)?;
    make_devices(root.as_fd(), sources.devices)?;
    // Before the binds, some of which lie below the home folder or /tmp and would be covered by them.
    writable_places(plan, root.as_fd(), scratch.as_fd(), (&sources.tree, &sources.home))?;
    let mut shelf = Shelf { root: root.as_fd(), last: None };
    for (bind, shown) in sources.binds {
        show(&mut shelf, &bind.inside, shown)
            .map_err(|error| Failure::new(Step::Show, bind.inside.to_string_lossy(), &error))?;
    }
    sys::set_mount_attributes(root.as_fd(), libc::MOUNT_ATTR_RDONLY, false).at(Step::Root, "")?;
    Ok(Root { fd: root, scratch })
}

/// Hangs a mount into the namespace, above the machine's own root and out of the check's sight: all that hangs there
/// goes with that root when it is let go of (see [`enter`]), in one step, since each unmounting costs a grace period of
/// the kernel. Where hardly matters: /tmp may be missing in a bare container, and a root that is covered keeps others in
/// this namespace from making a user namespace (user_namespaces(7)), as the command's process does at that time.
pub(super) fn attach(mount: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let at = |place| move_mount(mount, "", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH);
    at("/tmp").or_else(|_| at("/usr")).or_else(|_| at("/dev"))
}

/// A file system of that size. Empty files take no block of it, but a kilobyte of the kernel's memory each, so they are
/// limited as well: to one for each page, as the kernel does where no size is given (tmpfs(5), `nr_inodes`), with some
/// thousands for the smallest.
fn new_limited_tmpfs(bytes: u64) -> rustix::io::Result<OwnedFd> {
    let inodes = (bytes / 4096).max(16_384).to_string();
    make_tmpfs(&[("size", &bytes.to_string()), ("nr_inodes", &inodes), ("mode", "0755")])
}

pub(super) fn new_tmpfs(size: &str, mode: &str) -> rustix::io::Result<OwnedFd> {
    make_tmpfs(&[("size", size), ("mode", mode)])
}

fn make_tmpfs(options: &[(&str, &str)]) -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        fsconfig_set_string(context.as_fd(), *name, *value)?;
    }
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, PLAIN)
}

fn make_etc(root: BorrowedFd<'_>, guise: &Guise) -> Result<(), Failure> {
    let etc = place::folder(root, Path::new("etc"), false).at(Step::Etc, "")?;
    for (name, text) in etc::FILES {
        place::write_file(etc.as_fd(), name, text.as_bytes()).at(Step::Etc, name)?;
    }
    for (name, text) in etc::of_guise(guise) {
        place::write_file(etc.as_fd(), name, text.as_bytes()).at(Step::Etc, name)?;
    }
    for (name, target) in etc::LINKS {
        rustix::fs::symlinkat(target, &etc, name).at(Step::Etc, name)?;
    }
    Ok(())
}

fn make_devices(root: BorrowedFd<'_>, devices: Vec<(&'static str, OwnedFd)>) -> Result<(), Failure> {
    let dev = place::folder(root, Path::new("dev"), false).at(Step::Devices, "")?;
    for (name, device) in devices {
        place::write_file(dev.as_fd(), name, b"").at(Step::Devices, name)?;
        move_mount(device.as_fd(), "", dev.as_fd(), name, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .at(Step::Devices, name)?;
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        rustix::fs::symlinkat(target, &dev, name).at(Step::Devices, name)?;
    }
    let context = fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC).at(Step::Devices, "pts")?;
    // A new instance is what a user namespace always gets; saying so keeps old kernels from sharing the host's.
    fsconfig_set_flag(context.as_fd(), "newinstance").at(Step::Devices, "pts")?;
    fsconfig_set_string(context.as_fd(), "ptmxmode", "0666").at(Step::Devices, "pts")?;
    fsconfig_set_string(context.as_fd(), "mode", "0620").at(Step::Devices, "pts")?;
    fsconfig_create(context.as_fd()).at(Step::Devices, "pts")?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let pts = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes).at(Step::Devices, "pts")?;
    move_mount(pts.as_fd(), "", dev.as_fd(), "pts", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .at(Step::Devices, "pts")?;
    show_queues(dev.as_fd()).at(Step::Devices, "mqueue")
}

/// The POSIX message queues of our IPC namespace (mq_overview(7)). Only what is mounted can be granted to the check; a
/// kernel without queues has nothing to mount.
fn show_queues(dev: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let context = match fsopen("mqueue", FsOpenFlags::FSOPEN_CLOEXEC) {
        Err(rustix::io::Errno::NODEV) => return Ok(()),
        context => context?,
    };
    fsconfig_create(context.as_fd())?;
    let queues = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, PLAIN)?;
    move_mount(queues.as_fd(), "", dev, "mqueue", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// The root, and the folder in it that was needed last: most of what is shown lies beside each other in /etc.
struct Shelf<'r> {
    root: BorrowedFd<'r>,
    last: Option<(PathBuf, OwnedFd)>,
}

impl Shelf<'_> {
    fn folder(&mut self, path: &Path) -> io::Result<BorrowedFd<'_>> {
        let known = self.last.take().filter(|(last, _)| last == path);
        let found = match known {
            Some(known) => known,
            None => (path.to_owned(), place::folder(self.root, path, true)?),
        };
        Ok(self.last.insert(found).1.as_fd())
    }
}

/// Puts one host path to its place. What an earlier one already shows there stays.
fn show(shelf: &mut Shelf<'_>, inside: &Path, shown: Shown) -> io::Result<()> {
    let relative = inside.strip_prefix("/").unwrap_or(inside);
    let (Some(parent), Some(name)) = (relative.parent(), relative.file_name()) else {
        return Err(rustix::io::Errno::INVAL.into());
    };
    if matches!(shown, Shown::Absent) {
        return Ok(());
    }
    let parent = match shelf.folder(parent) {
        Ok(parent) => parent,
        // Its parent is a link, to a place that the link's own target shows: /bin/x where /bin is usr/bin.
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return Ok(()),
        Err(error) => return Err(error),
    };
    match shown {
        Shown::Absent => Ok(()),
        Shown::Link(target) => match rustix::fs::symlinkat(&target, parent, name) {
            Ok(()) | Err(rustix::io::Errno::EXIST | rustix::io::Errno::ROFS) => Ok(()),
            Err(error) => Err(error.into()),
        },
        Shown::Mount(mount, kind, _) => {
            make_mount_point(parent, name, kind)?;
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            move_mount(mount.as_fd(), "", parent, name, flags).map_err(Into::into)
        }
    }
}

fn make_mount_point(parent: BorrowedFd<'_>, name: &OsStr, kind: FileType) -> io::Result<()> {
    let made = if kind == FileType::Directory {
        rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755))
    } else {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::WRONLY;
        rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o644)).map(drop)
    };
    match made {
        // Already there in a folder that is shown read-only: mounting over it needs no writing.
        Ok(()) | Err(rustix::io::Errno::EXIST | rustix::io::Errno::ROFS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Makes the four places that a check may write to, all on one file system of limited size, and puts the tree into
/// the first.
fn writable_places(
    plan: &Plan,
    root: BorrowedFd<'_>,
    scratch: BorrowedFd<'_>,
    (tree, home): (&[OwnedFd], &[OwnedFd]),
) -> Result<(), Failure> {
    for (name, mode) in [
        ("src", 0o755),
        ("work", 0o755),
        ("homework", 0o755),
        ("home", 0o755),
        ("tmp", 0o1777),
        ("shm", 0o1777),
    ] {
        rustix::fs::mkdirat(scratch, name, Mode::from_raw_mode(mode)).at(Step::Scratch, name)?;
        // mkdir(2) does not set the sticky bit on every system and the umask cuts the mode, so it is said again.
        rustix::fs::chmodat(scratch, name, Mode::from_raw_mode(mode), AtFlags::empty())
            .at(Step::Scratch, name)?;
    }
    match plan.style {
        // An overlay may be refused over the file system that the layer lies on; a copy never is.
        TreeStyle::Overlay => mount_at(root, scratch, tree, TREE)
            .or_else(|_| copy_in(root, scratch, tree, TREE))
            .at(Step::Tree, "overlay, then copy")?,
        TreeStyle::Copy => copy_tree(plan, root, scratch, tree)?,
    }
    match (home, plan.style) {
        ([], _) => attach_part(scratch, "home", root, "home/check").at(Step::Scratch, "home")?,
        (home, TreeStyle::Overlay) => mount_at(root, scratch, home, HOME)
            .or_else(|_| copy_in(root, scratch, home, HOME))
            .at(Step::Tree, "packages: overlay, then copy")?,
        (home, TreeStyle::Copy) => copy_in(root, scratch, home, HOME).at(Step::Tree, "packages: copy")?,
    }
    // The parts keep the file system; its own root, with the overlay's work folder, stays out of sight.
    for (part, at) in [("tmp", "tmp"), ("shm", "dev/shm")] {
        attach_part(scratch, part, root, at).at(Step::Scratch, at)?;
    }
    Ok(())
}

/// Puts a /proc in its place.
pub(super) fn show_proc(root: BorrowedFd<'_>, proc: BorrowedFd<'_>) -> rustix::io::Result<()> {
    move_mount(proc, "", root, "proc", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// A /proc of the PID namespace that the caller is in, and whether it is whole. A kernel refuses that where its own /proc is
/// partly covered, as in many containers; then only the part about processes is shown (proc(5), `subset=pid`, Linux 5.8).
pub(super) fn new_proc() -> rustix::io::Result<(OwnedFd, bool)> {
    let attempt = |subset: bool| -> rustix::io::Result<OwnedFd> {
        let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
        if subset {
            fsconfig_set_string(context.as_fd(), "subset", "pid")?;
        }
        fsconfig_create(context.as_fd())?;
        fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, PLAIN | MountAttrFlags::MOUNT_ATTR_NOEXEC)
    };
    match attempt(false) {
        Ok(mount) => Ok((mount, true)),
        Err(first) => attempt(true).map(|mount| (mount, false)).map_err(|_| first),
    }
}

/// Makes `root` the root of this mount namespace and lets go of the old one (pivot_root(2), the case of one folder
/// for both arguments).
pub(super) fn enter(root: BorrowedFd<'_>) -> Result<(), Failure> {
    rustix::process::fchdir(root).at(Step::Pivot, "")?;
    rustix::process::pivot_root(".", ".").at(Step::Pivot, "")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).at(Step::Pivot, "detach the old root")?;
    rustix::process::chdir("/").at(Step::Pivot, "/")
}
