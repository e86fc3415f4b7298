//! Putting files and folders to their places by descriptor: nothing here follows a symbolic link or takes a path
//! apart twice. Used on the sandbox's own file systems only.
#![forbid(unsafe_code)]

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// Opens the folder `path` below `root`, made on the way if `create`. A symbolic link on the way is `ELOOP`, `..` is
/// `EINVAL`.
pub(super) fn folder(root: BorrowedFd<'_>, path: &Path, create: bool) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = rustix::fs::openat(root, ".", flags, Mode::empty())?;
    for part in path.components() {
        let Component::Normal(name) = part else {
            return Err(rustix::io::Errno::INVAL.into());
        };
        if create {
            match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(rustix::io::Errno::EXIST | rustix::io::Errno::ROFS) => {}
                Err(error) => return Err(error.into()),
            }
        }
        at = match rustix::fs::openat(&at, name, flags, Mode::empty()) {
            Ok(next) => next,
            // With O_DIRECTORY and O_NOFOLLOW together a link shows as ENOTDIR (open(2)); tell the two apart.
            Err(rustix::io::Errno::NOTDIR) if is_link(&at, name) => {
                return Err(rustix::io::Errno::LOOP.into());
            }
            Err(error) => return Err(error.into()),
        };
    }
    Ok(at)
}

fn is_link(at: &OwnedFd, name: &OsStr) -> bool {
    rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

/// Writes a new file of mode 0644; it must not exist.
pub(super) fn write_file(at: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(at, name, flags, Mode::from_raw_mode(0o644))?;
    write_all(file.as_fd(), bytes)
}

fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(fd, bytes))?;
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}

/// Gives `name` the access and modification times of `stat`.
pub(super) fn set_times(at: BorrowedFd<'_>, name: &OsStr, stat: &Stat) -> io::Result<()> {
    let time = |secs: i64, nanos: u64| Timespec { tv_sec: secs, tv_nsec: i64::try_from(nanos).unwrap_or(0) };
    let times = Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    };
    rustix::fs::utimensat(at, name, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(Into::into)
}

/// Copies the content of the folder `from` into the folder `to`: files, folders and links with modes and times. What is
/// there already gives way, folders are merged, and a whiteout of overlayfs, a character device 0:0, takes away.
/// A stack of open folders instead of recursion, so that a deep tree costs memory and not our stack.
pub(super) fn copy_tree(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    let readable = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut open = vec![(
        Dir::new(rustix::fs::openat(from, ".", readable, Mode::empty())?)?,
        rustix::fs::openat(to, ".", readable, Mode::empty())?,
        rustix::fs::fstat(from)?,
    )];
    while let Some((entries, target, stat)) = open.last_mut() {
        let Some(entry) = entries.read() else {
            // A folder's times are set when nothing more is made in it.
            set_times(target.as_fd(), OsStr::new("."), stat)?;
            open.pop();
            continue;
        };
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let source = entries.fd()?.try_clone_to_owned()?;
        let stat = rustix::fs::statat(&source, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            make_folder(target.as_fd(), name)?;
            let next = Dir::new(rustix::fs::openat(&source, name, readable, Mode::empty())?)?;
            let target = rustix::fs::openat(&*target, name, readable, Mode::empty())?;
            open.push((next, target, stat));
        } else {
            copy_entry(source.as_fd(), target.as_fd(), name, &stat)?;
        }
    }
    Ok(())
}

fn make_folder(at: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let make = || rustix::fs::mkdirat(at, name, Mode::from_raw_mode(0o755));
    match make() {
        Err(rustix::io::Errno::EXIST) => {}
        other => return other.map_err(Into::into),
    }
    let there = rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(there.st_mode) != FileType::Directory {
        remove(at, name)?;
        make()?;
    }
    Ok(())
}

/// Removes whatever is at `name`, if anything is. As deep as a tree may be, which is bounded.
fn remove(at: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    match rustix::fs::unlinkat(at, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(rustix::io::Errno::ISDIR | rustix::io::Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(at, name, flags, Mode::empty())?;
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            remove(folder.as_fd(), OsStr::from_bytes(entry.file_name().to_bytes()))?;
        }
    }
    rustix::fs::unlinkat(at, name, AtFlags::REMOVEDIR).map_err(Into::into)
}

/// Smaller files are copied faster than their blocks are shared.
const SHARED: i64 = 16384;

/// Fills a new file with the content of another: by sharing its blocks where the file system can (ioctl_ficlone(2)), else
/// by copying.
fn copy_bytes(source: &OwnedFd, target: &OwnedFd, size: i64) -> io::Result<()> {
    if size >= SHARED && rustix::fs::ioctl_ficlone(target, source).is_ok() {
        return Ok(());
    }
    let mut buffer = [0_u8; 65536];
    loop {
        let read = rustix::io::retry_on_intr(|| rustix::io::read(source, &mut buffer[..]))?;
        if read == 0 {
            return Ok(());
        }
        write_all(target.as_fd(), &buffer[..read])?;
    }
}

fn copy_entry(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &OsStr, stat: &Stat) -> io::Result<()> {
    if rustix::fs::statat(to, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        remove(to, name)?;
    }
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::CharacterDevice if stat.st_rdev == 0 => return Ok(()),
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(from, name, Vec::new())?;
            rustix::fs::symlinkat(target.as_c_str(), to, name)?;
        }
        FileType::RegularFile => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let source = rustix::fs::openat(from, name, flags, Mode::empty())?;
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let mode = Mode::from_raw_mode(stat.st_mode & 0o777);
            let target = rustix::fs::openat(to, name, flags, mode)?;
            copy_bytes(&source, &target, stat.st_size)?;
            rustix::fs::fchmod(&target, mode)?;
        }
        // A layer holds nothing else; anything that is there all the same was not put there by us.
        _ => return Err(rustix::io::Errno::INVAL.into()),
    }
    set_times(to, name, stat)
}
