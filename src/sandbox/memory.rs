//! Reading paths and /proc entries of the check's threads, for the supervisor. What is read may be changed by the check
//! at any moment; nothing read here is trusted beyond the check itself.
#![forbid(unsafe_code)]

use crate::sandbox::sys;
use rustix::fd::BorrowedFd;
use rustix::fs::{Mode, OFlags};
use std::ffi::CStr;
use std::io::{self, Read};

/// Longest path that the kernel takes, with its NUL (path_resolution(7), PATH_MAX).
pub(super) const PATH_MAX: usize = 4096;

/// Why a path cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unread {
    /// It is longer than the kernel takes.
    TooLong,
    /// The memory is not there, or not any more.
    Fault,
}

/// A path of a thread's memory; `None` where it cannot be read or is too long, which the kernel then says itself.
pub(super) fn read_path(pid: u32, at: u64) -> Option<Vec<u8>> {
    read_text(pid, at).ok()
}

/// A path of a thread's memory.
pub(super) fn read_text(pid: u32, at: u64) -> Result<Vec<u8>, Unread> {
    let mut path = Vec::with_capacity(256);
    let mut buffer = [0; 256];
    while path.len() < PATH_MAX {
        let done = u64::try_from(path.len()).ok();
        let from = done.and_then(|done| at.checked_add(done)).ok_or(Unread::Fault)?;
        // Never across the end of a page in one go: the next one may not be there.
        let room = usize::try_from(4096 - from % 4096).unwrap_or(1);
        let length = room.min(buffer.len());
        let read = sys::read_memory(pid, from, &mut buffer[..length]).map_err(|_| Unread::Fault)?;
        let part = buffer.get(..read).filter(|part| !part.is_empty()).ok_or(Unread::Fault)?;
        if let Ok(text) = CStr::from_bytes_until_nul(part) {
            path.extend_from_slice(text.to_bytes());
            return Ok(path);
        }
        path.extend_from_slice(part);
    }
    Err(Unread::TooLong)
}

/// One of a thread's files in /proc, whole.
pub(super) fn read_proc(proc: BorrowedFd<'_>, pid: u32, name: &str) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(proc, format!("{pid}/{name}"), flags, Mode::empty())?;
    let mut bytes = Vec::new();
    std::fs::File::from(file).read_to_end(&mut bytes)?;
    Ok(bytes)
}
