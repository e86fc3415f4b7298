//! The order in which folders list what is in them, where it is asked for: each name is taken out of its folder and put back
//! in turn. On a file system in memory that decides what readdir(3) gives, newest first or last, which differs between
//! kernels; so what came of it is looked at, and never assumed.
#![forbid(unsafe_code)]

use crate::model::guise::Listing;
use crate::sandbox::place;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Makes every folder below `root` list in that order. `aside` is an empty folder on the same file system.
///
/// # Errors
/// `EOPNOTSUPP` where the file system has an order of its own; else what the kernel says.
pub(super) fn set(root: BorrowedFd<'_>, aside: BorrowedFd<'_>, listing: Listing) -> io::Result<()> {
    if listing == Listing::Host {
        return Ok(());
    }
    let mut newest_first = false;
    let mut open = vec![PathBuf::new()];
    while let Some(path) = open.pop() {
        let folder = readable(place::folder(root, &path, false)?.as_fd())?;
        let stat = rustix::fs::fstat(&folder)?;
        let mut wanted = names(&folder)?;
        for name in &wanted {
            let kind = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode;
            if FileType::from_raw_mode(kind) == FileType::Directory {
                open.push(path.join(name));
            }
        }
        sort(&mut wanted, listing);
        if names(&folder)? == wanted {
            continue;
        }
        put_anew(&folder, aside, &wanted, newest_first)?;
        if names(&folder)? != wanted {
            newest_first = !newest_first;
            put_anew(&folder, aside, &wanted, newest_first)?;
            if names(&folder)? != wanted {
                return Err(rustix::io::Errno::OPNOTSUPP.into());
            }
        }
        place::set_times(folder.as_fd(), OsStr::new("."), &stat)?;
    }
    Ok(())
}

fn readable(folder: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(folder, ".", flags, Mode::empty())
}

/// What is in a folder, in the order in which it is listed.
fn names(folder: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name.to_vec()));
        }
    }
    Ok(names)
}

fn put_anew(
    folder: &OwnedFd,
    aside: BorrowedFd<'_>,
    wanted: &[OsString],
    newest_first: bool,
) -> io::Result<()> {
    for name in wanted {
        rustix::fs::renameat(folder, name, aside, name)?;
    }
    let back = |name: &OsString| rustix::fs::renameat(aside, name, folder, name);
    if newest_first {
        wanted.iter().rev().try_for_each(back)?;
    } else {
        wanted.iter().try_for_each(back)?;
    }
    Ok(())
}

fn sort(names: &mut [OsString], listing: Listing) {
    match listing {
        Listing::Host => {}
        Listing::Ascending => names.sort_unstable(),
        Listing::Descending => names.sort_unstable_by(|one, other| other.cmp(one)),
        Listing::Shuffled(seed) => {
            names.sort_by_cached_key(|name| (mixed(seed, name.as_bytes()), name.clone()))
        }
    }
}

/// A number that looks like chance and is always the same for one name under one seed (FNV-1a, then the end of splitmix64).
fn mixed(seed: u64, name: &[u8]) -> u64 {
    let start = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xCBF2_9CE4_8422_2325;
    let sum = name.iter().fold(start, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3));
    let sum = (sum ^ (sum >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let sum = (sum ^ (sum >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    sum ^ (sum >> 31)
}
