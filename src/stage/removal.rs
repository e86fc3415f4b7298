//! Removing a folder with all that is in it, whatever a check made there: however deep, and whatever its modes. The usual
//! way opens one folder within another, and so needs a descriptor and a piece of stack for each level.
#![forbid(unsafe_code)]

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use std::ffi::CString;
use std::io;
use std::path::Path;

/// Removes a folder; a link is not followed, neither there nor below.
///
/// Folders within folders are moved to the top first, so that two descriptors are enough and each folder is moved at
/// most once.
///
/// # Errors
/// What could not be removed is still there.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    let top = open(CWD, path)?;
    let mut number = 0;
    loop {
        let mut moved = false;
        for (name, is_folder) in entries(top.as_fd())? {
            if is_folder {
                moved |= empty(top.as_fd(), &name, &mut number)?;
                unlinkat(&top, &name, AtFlags::REMOVEDIR)?;
            } else {
                unlinkat(&top, &name, AtFlags::empty())?;
            }
        }
        if !moved {
            break;
        }
    }
    unlinkat(CWD, path, AtFlags::REMOVEDIR)?;
    Ok(())
}

/// Empties one folder of the top; whether others have come to the top from there.
fn empty(top: BorrowedFd<'_>, name: &CString, number: &mut u64) -> io::Result<bool> {
    let folder = open(top, name.as_c_str())?;
    let mut moved = false;
    for (name, is_folder) in entries(folder.as_fd())? {
        if !is_folder {
            unlinkat(&folder, &name, AtFlags::empty())?;
            continue;
        }
        match unlinkat(&folder, &name, AtFlags::REMOVEDIR) {
            Ok(()) => continue,
            // Its own entry for the folder above is changed by the move, so it has to be writable.
            Err(Errno::NOTEMPTY | Errno::EXIST) => drop(open(folder.as_fd(), name.as_c_str())?),
            Err(error) => return Err(error.into()),
        }
        loop {
            *number += 1;
            match renameat(&folder, &name, top, format!(".removed-{number}")) {
                Ok(()) => break,
                // The check may have used the name.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        moved = true;
    }
    Ok(moved)
}

fn open(at: BorrowedFd<'_>, name: impl rustix::path::Arg + Copy) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(at, name, flags, Mode::empty()) {
        Ok(folder) if rustix::fs::fstat(&folder)?.st_mode & 0o300 == 0o300 => Ok(folder),
        Ok(_) | Err(Errno::ACCESS) => {
            // By the descriptor, so that it is this folder and no other whose mode is changed.
            let found = openat(at, name, flags | OFlags::PATH, Mode::empty())?;
            rustix::fs::chmod(format!("/proc/self/fd/{}", found.as_raw_fd()), Mode::RWXU)?;
            Ok(openat(at, name, flags, Mode::empty())?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Names in a folder, and which of them are folders.
fn entries(folder: BorrowedFd<'_>) -> io::Result<Vec<(CString, bool)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_owned();
        if [&b"."[..], b".."].contains(&name.as_bytes()) {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                FileType::from_raw_mode(statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode)
            }
            kind => kind,
        };
        found.push((name, kind == FileType::Directory));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn whatever_is_in_a_folder_goes_with_it_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, kept) = (dir.path().join("x"), dir.path().join("kept"));
        std::fs::create_dir_all(folder.join("a/b/c/d")).unwrap();
        std::fs::create_dir_all(folder.join("a/e/f")).unwrap();
        std::fs::create_dir_all(folder.join(".removed-1/g")).unwrap();
        std::fs::create_dir_all(folder.join("closed/h/i")).unwrap();
        std::fs::create_dir(&kept).unwrap();
        std::fs::write(kept.join("file"), "").unwrap();
        for link in ["link", "a/link", "a/b/c/link"] {
            std::os::unix::fs::symlink(&kept, folder.join(link)).unwrap();
        }
        for file in ["1", "a/2", "a/b/c/d/3", ".removed-2"] {
            std::fs::write(folder.join(file), "").unwrap();
        }
        for (closed, mode) in [("closed/h", 0o000), ("closed", 0o500), ("a/e", 0o600)] {
            std::fs::set_permissions(folder.join(closed), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        remove_folder(&folder).unwrap();
        assert!(!folder.exists() && kept.join("file").exists());
        assert!(remove_folder(&folder).is_err());
        std::os::unix::fs::symlink(&kept, &folder).unwrap();
        assert!(remove_folder(&folder).is_err());
        assert!(kept.join("file").exists());
    }
}
