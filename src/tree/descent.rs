//! Going down into folders of the disk by descriptor, never through a symbolic link and with no bound on the length
//! of a path. Knows nothing of git; reading and writing files is done by those who ask for a folder.
#![forbid(unsafe_code)]

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use std::path::Path;

/// The kernel refuses longer paths in one call (path_resolution(7): PATH_MAX is 4096 with the final NUL).
const STRETCH: usize = 4000;

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens a folder that everything else is looked up from. Here, and only here, links are followed.
pub(crate) fn open_root(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, FOLDER, Mode::empty())
}

/// Opens the folder at `path` below `root`, `root` itself if it is empty.
///
/// `path` has `/` between its parts and none of them is `.` or `..`. A part that is a symbolic link gives `ELOOP`, one
/// that is a file `ENOTDIR`, one that is not there `ENOENT`.
pub(crate) fn open_folder(root: BorrowedFd<'_>, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    if path.is_empty() {
        return openat(root, c".", FOLDER, Mode::empty());
    }
    let mut reached: Option<OwnedFd> = None;
    let mut rest = path;
    while !rest.is_empty() {
        let (stretch, after) = first_stretch(rest);
        let from = reached.as_ref().map_or(root, AsFd::as_fd);
        reached = Some(open_stretch(from, stretch)?);
        rest = after;
    }
    reached.ok_or(Errno::NOENT)
}

/// Cuts off as many leading parts as the kernel takes in one call.
fn first_stretch(path: &[u8]) -> (&[u8], &[u8]) {
    if path.len() <= STRETCH {
        return (path, &[]);
    }
    let cut = path[..STRETCH].iter().rposition(|byte| *byte == b'/');
    // A single part longer than that cannot exist; the kernel says so itself (ENAMETOOLONG).
    cut.map_or((path, &[]), |at| (&path[..at], &path[at + 1..]))
}

fn open_stretch(from: BorrowedFd<'_>, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    match openat2(from, path, FOLDER, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // openat2(2) is missing before Linux 5.6 and refused by the filters of some older container engines.
        Err(Errno::NOSYS | Errno::PERM) => open_by_parts(from, path),
        other => other,
    }
}

fn open_by_parts(from: BorrowedFd<'_>, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    let mut reached: Option<OwnedFd> = None;
    for part in path.split(|byte| *byte == b'/') {
        let at = reached.as_ref().map_or(from, AsFd::as_fd);
        reached = Some(openat(at, part, FOLDER | OFlags::NOFOLLOW, Mode::empty())?);
    }
    reached.ok_or(Errno::NOENT)
}

/// Splits a path into the folder it is in and its own name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// Whether an error of [`open_folder`] says that there is no such folder, rather than that it cannot be read.
pub(crate) fn is_gone(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
}

/// Remembers the folder that was opened last, since paths come folder by folder.
#[derive(Debug)]
pub(crate) struct Descent<'a> {
    root: BorrowedFd<'a>,
    last: Option<(Vec<u8>, rustix::io::Result<OwnedFd>)>,
}

impl<'a> Descent<'a> {
    /// Starts at `root`.
    pub(crate) fn new(root: BorrowedFd<'a>) -> Self {
        Self { root, last: None }
    }

    /// Opens `folder` unless it is the one opened last.
    pub(crate) fn folder(&mut self, folder: &[u8]) -> rustix::io::Result<BorrowedFd<'_>> {
        let known = self.last.as_ref().is_some_and(|(path, _)| path == folder);
        if !known {
            let opened = open_folder(self.root, folder);
            self.last = Some((folder.to_vec(), opened));
        }
        match &self.last {
            Some((_, Ok(fd))) => Ok(fd.as_fd()),
            Some((_, Err(error))) => Err(*error),
            None => Err(Errno::NOENT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn folders_are_reached_but_never_through_links_or_files() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("a/file"), "").unwrap();
        symlink("a", dir.path().join("link")).unwrap();
        let root = open_root(dir.path()).unwrap();
        assert!(open_folder(root.as_fd(), b"").is_ok());
        assert!(open_folder(root.as_fd(), b"a/b").is_ok());
        for gone in [&b"link"[..], b"link/b", b"a/file", b"a/none"] {
            assert!(is_gone(open_folder(root.as_fd(), gone).unwrap_err()), "{gone:?}");
            assert!(is_gone(open_by_parts(root.as_fd(), gone).unwrap_err()), "{gone:?}");
        }
        assert!(open_by_parts(root.as_fd(), b"a/b").is_ok());
    }

    #[test]
    fn a_path_longer_than_one_call_takes_is_walked_in_stretches() {
        let dir = tempfile::tempdir().unwrap();
        let root = open_root(dir.path()).unwrap();
        let part = vec![b'x'; 250];
        let mut path = Vec::new();
        for _ in 0..40 {
            let parent = open_folder(root.as_fd(), &path).unwrap();
            rustix::fs::mkdirat(&parent, part.as_slice(), Mode::RWXU).unwrap();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&part);
        }
        assert!(path.len() > 2 * STRETCH);
        assert!(open_folder(root.as_fd(), &path).is_ok());
        path.extend_from_slice(b"/none");
        assert_eq!(open_folder(root.as_fd(), &path).unwrap_err(), Errno::NOENT);
    }

    #[test]
    fn paths_split_at_the_last_slash() {
        assert_eq!(split(b"a/b/c"), (&b"a/b"[..], &b"c"[..]));
        assert_eq!(split(b"c"), (&b""[..], &b"c"[..]));
    }
}
