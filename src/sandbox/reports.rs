//! Files of test results that a check has left in its tree, picked up when all its processes are gone and before the tree
//! is. What is in them is read by whoever asked; here it is only bytes, and few enough of them.
//!
//! The check made all of this, and may have made it to do harm: no link is followed, only regular files are opened, and
//! names, depth, files and bytes are counted. What is beyond the bounds, or may not be read, is left out.
#![forbid(unsafe_code)]

use crate::model::path::below;
use crate::model::pattern::matches;
use crate::sandbox::plan::Plan;
use crate::sandbox::wire::{At, Failure, Report, Step};
use crate::sandbox::{channel, place};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Dir, FileType, MemfdFlags, Mode, OFlags};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Most names that are looked at.
const NAMES_MAX: u32 = 100_000;
/// Folders further down are not entered.
const DEPTH_MAX: usize = 24;
/// Most files that are taken.
const FILES_MAX: usize = 2000;
/// Most bytes that are taken of all files together.
const BYTES_MAX: u64 = 32 << 20;

/// A file: its path below the tree, and its bytes.
pub(super) type Left = (Vec<u8>, Vec<u8>);

/// Sends the files that a plan asks for to the launcher. `scratch` holds what the check has written to the tree in its
/// folder `src`, and where there is no overlay what the tree had besides.
pub(super) fn hand_over(plan: &Plan, scratch: BorrowedFd<'_>, to_launcher: &OwnedFd) -> Result<(), Failure> {
    if plan.results.is_empty() {
        return Ok(());
    }
    let left = place::folder(scratch, Path::new("src"), false)
        .and_then(|tree| pick_up(tree.as_fd(), &plan.cwd, &plan.results));
    // Results that cannot be had are no reason to lose the verdict.
    let Ok(Some(file)) = left else { return Ok(()) };
    channel::send(to_launcher, &Report::Left.encode(), Some(file.as_fd())).at(Step::Channel, "results")
}

/// Takes the files below the folder `tree` whose path below `cwd` one of the patterns matches, into a file without a name.
/// `None` where there are none.
pub(super) fn pick_up(tree: BorrowedFd<'_>, cwd: &Path, patterns: &[String]) -> io::Result<Option<OwnedFd>> {
    let start = cwd.as_os_str().as_bytes();
    let wanted: Vec<Vec<u8>> = patterns.iter().map(|pattern| below(start, pattern.as_bytes())).collect();
    let mut out: Option<File> = None;
    let (mut names, mut files, mut bytes) = (NAMES_MAX, FILES_MAX, BYTES_MAX);
    // The upper ones first: what a check hides far down must not keep us from what everybody expects.
    let mut folders = VecDeque::from([(start.to_vec(), 0)]);
    while let Some((path, depth)) = folders.pop_front() {
        let Ok(folder) = place::folder(tree, Path::new(OsStr::from_bytes(&path)), false) else { continue };
        let readable = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&folder, ".", readable, Mode::empty()).and_then(Dir::new);
        let Ok(mut entries) = opened else { continue };
        while let Some(Ok(entry)) = entries.read() {
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let Some(left) = names.checked_sub(1) else { return Ok(out.map(OwnedFd::from)) };
            names = left;
            let inner = below(&path, name);
            match entry.file_type() {
                FileType::Directory if depth < DEPTH_MAX && wanted.iter().any(|it| leads_to(it, &inner)) => {
                    folders.push_back((inner, depth + 1));
                }
                FileType::RegularFile if files > 0 && wanted.iter().any(|it| matches(it, &inner)) => {
                    let Ok(content) = content(folder.as_fd(), name, bytes) else { continue };
                    bytes = bytes.saturating_sub(u64::try_from(content.len()).unwrap_or(u64::MAX));
                    files -= 1;
                    let file = match &mut out {
                        Some(file) => file,
                        none => none.insert(rustix::fs::memfd_create("results", MemfdFlags::CLOEXEC)?.into()),
                    };
                    put(file, &inner)?;
                    put(file, &content)?;
                }
                _ => {}
            }
        }
    }
    Ok(out.map(OwnedFd::from))
}

/// Whether something below a folder may match: what the pattern says up to its first `*` agrees with the folder's path.
fn leads_to(pattern: &[u8], folder: &[u8]) -> bool {
    let plain = pattern.split(|byte| *byte == b'*').next().unwrap_or_default();
    let folder = [folder, b"/"].concat();
    plain.starts_with(&folder) || (plain.len() < pattern.len() && folder.starts_with(plain))
}

fn content(folder: BorrowedFd<'_>, name: &[u8], most: u64) -> io::Result<Vec<u8>> {
    // It may have become a pipe since it was listed, at the level where somebody may still be there to do so.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(folder, name, flags, Mode::empty())?);
    let meta = file.metadata()?;
    if !meta.is_file() || meta.len() > most {
        return Err(rustix::io::Errno::FBIG.into());
    }
    let mut bytes = Vec::new();
    file.take(meta.len()).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn put(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::Error::from(rustix::io::Errno::FBIG))?;
    file.write_all(&length.to_le_bytes())?;
    file.write_all(bytes)
}

/// Reads what [`pick_up`] wrote; what is cut is left out.
pub(super) fn read(file: OwnedFd) -> Vec<Left> {
    let mut file = File::from(file);
    let mut bytes = Vec::new();
    if file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes)).is_err() {
        return Vec::new();
    }
    let mut rest = bytes.as_slice();
    let mut next = || {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (one, after) = after.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        rest = after;
        Some(one.to_vec())
    };
    std::iter::from_fn(|| Some((next()?, next()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_regular_files_that_were_asked_for_are_taken() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for folder in ["m/target/surefire-reports", "target/surefire-reports", "other/target"] {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        for file in
            ["m/target/surefire-reports/b.xml", "target/surefire-reports/a.xml", "target/a.xml", "x.xml"]
        {
            std::fs::write(at(file), file).unwrap();
        }
        symlink("/etc", at("other/target/surefire-reports")).unwrap();
        symlink("/etc/passwd", at("target/surefire-reports/p.xml")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("target/surefire-reports/f.xml"),
            FileType::Fifo,
            Mode::from_raw_mode(0o644),
            0,
        )
        .unwrap();
        let huge = File::create(at("target/surefire-reports/huge.xml")).unwrap();
        huge.set_len(BYTES_MAX + 1).unwrap();
        let open = rustix::fs::openat(rustix::fs::CWD, dir.path(), OFlags::PATH, Mode::empty()).unwrap();
        let found = |cwd: &str, pattern: &str| -> Vec<String> {
            let file = pick_up(open.as_fd(), Path::new(cwd), &[pattern.to_owned()]).unwrap();
            let left = file.map(read).unwrap_or_default();
            assert!(left.iter().all(|(path, bytes)| path == bytes));
            let mut paths: Vec<String> =
                left.into_iter().map(|(path, _)| String::from_utf8(path).unwrap()).collect();
            paths.sort();
            paths
        };
        let all = ["m/target/surefire-reports/b.xml", "target/surefire-reports/a.xml"];
        assert_eq!(found("", "*target/surefire-reports/*.xml"), all);
        assert_eq!(found("m", "target/*.xml"), all[..1]);
        assert_eq!(found("", "target/surefire-reports/a.xml"), all[1..]);
        assert_eq!(found("", "../*.xml"), Vec::<String>::new());
        assert_eq!(found("gone", "*.xml"), Vec::<String>::new());
    }

    #[test]
    fn a_tree_without_end_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let mut deep = dir.path().to_owned();
        for _ in 0..DEPTH_MAX + 5 {
            deep.push("d");
        }
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("a.xml"), "").unwrap();
        let open = rustix::fs::openat(rustix::fs::CWD, dir.path(), OFlags::PATH, Mode::empty()).unwrap();
        assert!(pick_up(open.as_fd(), Path::new(""), &["*.xml".to_owned()]).unwrap().is_none());
    }
}
