//! File times under a fixed clock: the stat family and the calls that set times, carried out for the check and
//! translated. Which calls come here is `seccomp`'s.
//!
//! The kernel writes real times into files. What is shown of a time `t` is decided by where it lies, with `R` the real
//! start of the run, `F` the shown start, and `M` what a far mark adds:
//!
//! | stored | shown | it is |
//! |---|---|---|
//! | `t >= M` | `t - M` | a time that the check set itself and that would otherwise be taken for one of the kernel's |
//! | `t >= R` | `t - R + F` | written by the kernel during the run |
//! | on a file of the host, later than the tree's files | the tree's constant | a tool installed after the shown date: never newer than what is built with it |
//! | else | `t` | the tree's constant, or set by the check |
//!
//! Paths are resolved as the check sees them: from the supervisor's root, which is the check's, and by way of the
//! thread's own /proc entries. A thread that has made a root or mount namespace of its own is left to the kernel, and
//! so are paths below /proc and /dev; both show real times.
#![forbid(unsafe_code)]

use crate::model::policy::TREE_MARGIN;
use crate::sandbox::memory::{PATH_MAX, read_path};
use crate::sandbox::sys::{self, Notification, Verdict};
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, Timespec, Timestamps};
use std::ffi::CString;
use std::io;

/// Added to times that the check sets itself where they would be mistaken: 2^34 seconds, some 544 years.
const MARK: i64 = 1 << 34;
/// UTIME_NOW and UTIME_OMIT (utimensat(2)).
const SPECIAL: [i64; 2] = [(1 << 30) - 1, (1 << 30) - 2];

/// Translates the times of one run.
#[derive(Debug)]
pub(super) struct FileTimes {
    /// The run's real start, in seconds.
    real_start: i64,
    /// The shown start.
    shown_start: i64,
    /// Whole and fractional distance from real to shown, the fraction in nanoseconds.
    offset: (i64, i64),
    /// Devices of the host's files that are shown.
    host_devices: Vec<u64>,
    /// Mount namespace of the command's first process, by its name in /proc.
    home: Option<Vec<u8>>,
    /// Some thread may live in a namespace or below a root of its own.
    strangers: bool,
}

impl FileTimes {
    /// `offset` is what is added to real times, as seconds and nanoseconds.
    pub(super) fn new(real_start: i64, shown_start: i64, offset: (i64, i64), host_devices: Vec<u64>) -> Self {
        Self { real_start, shown_start, offset, host_devices, home: None, strangers: false }
    }

    /// Deals with a call of the two families; `None` where it is none of them.
    pub(super) fn judge(&mut self, call: &Notification, proc: BorrowedFd<'_>) -> Option<Verdict> {
        let [first, second, third, fourth, fifth, _] = call.arguments;
        let low = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap_or(0).cast_signed();
        #[cfg(target_arch = "x86_64")]
        let here = libc::AT_FDCWD;
        let done = match libc::c_long::from(call.number) {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_stat => self.stat(call, proc, (here, first, 0), second),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_lstat => self.stat(call, proc, (here, first, libc::AT_SYMLINK_NOFOLLOW), second),
            libc::SYS_fstat => self.stat(call, proc, (low(first), 0, libc::AT_EMPTY_PATH), second),
            libc::SYS_newfstatat => self.stat(call, proc, (low(first), second, low(fourth)), third),
            libc::SYS_statx => {
                let mask = low(fourth).cast_unsigned();
                self.statx(call, proc, (low(first), second, low(third)), (mask, fifth))
            }
            libc::SYS_utimensat => self.set(call, proc, (low(first), second, low(fourth)), third, 1),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_futimesat => self.set(call, proc, (low(first), second, 0), third, 1000),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utimes => self.set(call, proc, (here, first, 0), second, 1000),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utime => self.set(call, proc, (here, first, 0), second, 0),
            // Before the call is done, so that whatever the thread asks next is found out of place.
            libc::SYS_chroot
            | libc::SYS_pivot_root
            | libc::SYS_clone
            | libc::SYS_unshare
            | libc::SYS_setns
            | libc::SYS_mount
            | libc::SYS_move_mount => {
                self.strangers = true;
                None
            }
            _ => return None,
        };
        // Whatever could not be done here the kernel does, and tells its own errors.
        Some(done.unwrap_or(Verdict::Continue))
    }

    /// A program starts: the namespace and root of the first are those that paths are resolved in. Whoever goes elsewhere
    /// asks by one of the calls above first, so that this costs the first program alone.
    pub(super) fn program_start(&mut self, call: &Notification, proc: BorrowedFd<'_>) {
        if self.home.is_none() {
            self.home = place_of(call.pid, proc);
        }
    }

    fn is_stranger(&self, call: &Notification, proc: BorrowedFd<'_>) -> bool {
        self.strangers && place_of(call.pid, proc) != self.home
    }

    /// The path, from the supervisor's /proc or the root, that names what a call is about, and its flags.
    fn subject(
        &self,
        call: &Notification,
        proc: BorrowedFd<'_>,
        at: (i32, u64, i32),
    ) -> Option<(CString, i32)> {
        let (folder, path, flags) = at;
        if self.is_stranger(call, proc) {
            return None;
        }
        let path = if path == 0 { Vec::new() } else { read_path(call.pid, path)? };
        let base = if folder == libc::AT_FDCWD {
            format!("{}/cwd", call.pid)
        } else {
            format!("{}/fd/{folder}", call.pid)
        };
        if path.is_empty() {
            // The descriptor itself: its entry in /proc is a link, which is followed.
            let followed = flags & !(libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW);
            return if flags & libc::AT_EMPTY_PATH == 0 {
                None
            } else {
                Some((CString::new(base).ok()?, followed))
            };
        }
        if path.first() == Some(&b'/') {
            // Links below these lead to whoever looks.
            let special = path.starts_with(b"/proc") || path.starts_with(b"/dev/");
            return if special { None } else { Some((CString::new(path).ok()?, flags)) };
        }
        let whole = [base.as_bytes(), b"/", &path].concat();
        if whole.len() < PATH_MAX { Some((CString::new(whole).ok()?, flags)) } else { None }
    }

    fn stat(
        &self,
        call: &Notification,
        proc: BorrowedFd<'_>,
        at: (i32, u64, i32),
        to: u64,
    ) -> Option<Verdict> {
        let (path, flags) = self.subject(call, proc, at)?;
        let mut bytes = sys::stat_bytes(proc, &path, flags).ok()?;
        // struct stat: st_dev first, then atime, mtime, ctime at 72, 88, 104, on x86-64 and aarch64 alike (asm/stat.h).
        let device = word(&bytes, 0);
        for at in [72, 88, 104] {
            let shown = self.show((signed(&bytes, at), signed(&bytes, at + 8)), device);
            bytes[at..at + 8].copy_from_slice(&shown.0.to_ne_bytes());
            bytes[at + 8..at + 16].copy_from_slice(&shown.1.to_ne_bytes());
        }
        Some(told(call, to, &bytes))
    }

    fn statx(
        &self,
        call: &Notification,
        proc: BorrowedFd<'_>,
        at: (i32, u64, i32),
        what: (u32, u64),
    ) -> Option<Verdict> {
        let (path, flags) = self.subject(call, proc, at)?;
        let mut bytes = sys::statx_bytes(proc, &path, flags, what.0).ok()?;
        // struct statx: atime, btime, ctime, mtime at 64, 80, 96, 112; the device's halves at 136 and 140 (statx(2)).
        let half = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
        let device = rustix::fs::makedev(half(136), half(140));
        for at in [64, 80, 96, 112] {
            let seconds = signed(&bytes, at);
            let nanoseconds =
                i64::from(u32::from_ne_bytes(bytes[at + 8..at + 12].try_into().unwrap_or_default()));
            let shown = self.show((seconds, nanoseconds), device);
            bytes[at..at + 8].copy_from_slice(&shown.0.to_ne_bytes());
            bytes[at + 8..at + 12].copy_from_slice(&u32::try_from(shown.1).unwrap_or(0).to_ne_bytes());
        }
        Some(told(call, what.1, &bytes))
    }

    /// What is shown of a stored time (the table above).
    fn show(&self, stored: (i64, i64), device: u64) -> (i64, i64) {
        let (seconds, nanoseconds) = stored;
        if seconds >= MARK {
            return (seconds - MARK, nanoseconds);
        }
        if seconds >= self.real_start {
            let sum = nanoseconds + self.offset.1;
            return (seconds + self.offset.0 + i64::from(sum >= 1_000_000_000), sum % 1_000_000_000);
        }
        let constant = self.shown_start - TREE_MARGIN;
        if seconds > constant && self.host_devices.contains(&device) {
            return (constant, 0);
        }
        stored
    }

    /// Sets times that would be mistaken for the kernel's with a mark; `unit` is the length in nanoseconds of the
    /// fraction as given, 0 for utime(2), which has none.
    fn set(
        &self,
        call: &Notification,
        proc: BorrowedFd<'_>,
        at: (i32, u64, i32),
        times: u64,
        unit: i64,
    ) -> Option<Verdict> {
        if times == 0 {
            return None;
        }
        let mut bytes = [0; 32];
        let length = if unit == 0 { 16 } else { 32 };
        let read = sys::read_memory(call.pid, times, &mut bytes[..length]).ok()?;
        if read < length {
            return None;
        }
        let given = if unit == 0 {
            [(signed(&bytes, 0), 0), (signed(&bytes, 8), 0)]
        } else {
            [(signed(&bytes, 0), signed(&bytes, 8)), (signed(&bytes, 16), signed(&bytes, 24))]
        };
        let mistaken = |(seconds, fraction): (i64, i64)| {
            seconds >= self.real_start && !(unit == 1 && SPECIAL.contains(&fraction))
        };
        if !given.iter().any(|time| mistaken(*time)) {
            return None;
        }
        let marked = |time: (i64, i64)| {
            let seconds = if mistaken(time) { time.0.checked_add(MARK)? } else { time.0 };
            Some(Timespec { tv_sec: seconds, tv_nsec: time.1.checked_mul(unit.max(1))? })
        };
        let times = Timestamps { last_access: marked(given[0])?, last_modification: marked(given[1])? };
        // A descriptor alone is set through its entry in /proc, followed as a link.
        let flags = if at.1 == 0 { libc::AT_EMPTY_PATH } else { at.2 };
        let (path, flags) = self.subject(call, proc, (at.0, at.1, flags))?;
        let flags = AtFlags::from_bits_truncate(u32::try_from(flags).ok()?);
        rustix::fs::utimensat(proc, &path, &times, flags).ok()?;
        Some(Verdict::Return(0))
    }
}

/// Names of mount namespace and root of a thread: together they tell whether its paths are ours.
fn place_of(pid: u32, proc: BorrowedFd<'_>) -> Option<Vec<u8>> {
    let namespace = rustix::fs::readlinkat(proc, format!("{pid}/ns/mnt"), Vec::new()).ok()?;
    let root = rustix::fs::statat(proc, format!("{pid}/root"), AtFlags::empty()).ok()?;
    let user = rustix::fs::readlinkat(proc, format!("{pid}/ns/user"), Vec::new()).ok()?;
    Some(
        [namespace.to_bytes(), user.to_bytes(), &root.st_ino.to_ne_bytes(), &root.st_dev.to_ne_bytes()]
            .concat(),
    )
}

fn told(call: &Notification, to: u64, bytes: &[u8]) -> Verdict {
    let written: io::Result<()> = sys::write_memory(call.pid, to, bytes);
    if written.is_ok() { Verdict::Return(0) } else { Verdict::Fail(libc::EFAULT) }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

fn signed(bytes: &[u8], at: usize) -> i64 {
    bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map_or(0, i64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_by_where_they_lie() {
        let past = FileTimes::new(2000, 500, (-1500, 250_000_000), vec![7]);
        // Written by the kernel during the run.
        assert_eq!(past.show((2010, 900_000_000), 1), (511, 150_000_000));
        // Set by the check: read back as it was.
        assert_eq!(past.show((1500, 3), 1), (1500, 3));
        assert_eq!(past.show((2500 + MARK, 3), 1), (2500, 3));
        // Of the host, and newer than the tree.
        let late = FileTimes::new(200_000, 100_000, (-100_000, 0), vec![7]);
        assert_eq!(late.show((150_000, 3), 7), (100_000 - TREE_MARGIN, 0));
        assert_eq!(late.show((50_000, 3), 7), (50_000, 3));
        assert_eq!(late.show((150_000, 3), 8), (150_000, 3));
    }
}
