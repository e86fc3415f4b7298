//! What the wall clock shows to this very process, by each way that a program has of reading it. `doctor` runs it inside
//! a sandbox; what is right is decided there, not here.
#![forbid(unsafe_code)]

use crate::sandbox::sys;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// How far ahead the date is that is waited for, in nanoseconds.
const AHEAD: i64 = 20_000_000;

/// One reading: seconds and nanoseconds.
pub type Reading = (i64, i64);

/// Every reading, with the name that it is reported by. A file is written in `folder` and removed.
pub fn readings(folder: &Path) -> [(&'static str, io::Result<Reading>); 4] {
    [
        ("vdso", Ok(by_vdso())),
        ("raw_call", sys::raw_wall_clock()),
        ("absolute_wait", after_wait()),
        ("file_time", of_file(folder)),
    ]
}

/// As nearly every program reads it.
#[must_use]
pub fn by_vdso() -> Reading {
    let now = clock_gettime(ClockId::Realtime);
    (now.tv_sec, now.tv_nsec)
}

/// After a wait for a date, which must have come.
fn after_wait() -> io::Result<Reading> {
    let (seconds, nanoseconds) = by_vdso();
    let sum = nanoseconds + AHEAD;
    let until = (seconds + sum / 1_000_000_000, sum % 1_000_000_000);
    clock_nanosleep_absolute(ClockId::Realtime, &Timespec { tv_sec: until.0, tv_nsec: until.1 })?;
    let now = by_vdso();
    if now < until { Err(io::Error::other("it ended before its date")) } else { Ok(now) }
}

/// The time of a file that has just been written.
fn of_file(folder: &Path) -> io::Result<Reading> {
    let path = folder.join("checkrun-clock-report");
    std::fs::write(&path, b"x")?;
    let meta = std::fs::metadata(&path)?;
    std::fs::remove_file(&path)?;
    Ok((meta.mtime(), meta.mtime_nsec()))
}
