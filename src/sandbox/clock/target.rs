//! A process of the check, as the supervisor reaches it: its memory, its descriptors and what /proc says of it. The
//! check may change any of this at any moment; nothing that is read here is ever trusted beyond the check itself.
#![forbid(unsafe_code)]

use crate::sandbox::sys;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

/// AT_SYSINFO_EHDR, the vDSO's address (getauxval(3)).
const VDSO_ADDRESS: u64 = 33;

/// One thread that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    /// The /proc of the supervisor's own PID namespace.
    pub(super) proc: BorrowedFd<'a>,
    /// The thread.
    pub(super) pid: u32,
}

impl Target<'_> {
    fn open(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let path = format!("{}/{name}", self.pid);
        Ok(File::from(rustix::fs::openat(self.proc, path, flags | OFlags::CLOEXEC, Mode::empty())?))
    }

    fn text(&self, name: &str) -> io::Result<String> {
        // Nothing says how long it is, and mostly it is short: with room for it one read does.
        let mut text = String::with_capacity(4096);
        self.open(name, OFlags::RDONLY)?.take(1 << 20).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Its memory, for reading and writing; writing also where the process itself may not, as a debugger does
    /// (proc(5), /proc/pid/mem).
    pub(super) fn memory(&self) -> io::Result<Memory> {
        self.open("mem", OFlags::RDWR).map(Memory)
    }

    /// Where its vDSO lies, from its auxiliary vector.
    pub(super) fn vdso(&self) -> io::Result<Option<u64>> {
        // Some forty words, which come in one piece.
        let mut bytes = [0; 1024];
        let read = self.open("auxv", OFlags::RDONLY)?.read(&mut bytes)?;
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        Ok(bytes[..read]
            .chunks_exact(16)
            .find(|pair| word(&pair[..8]) == VDSO_ADDRESS)
            .map(|pair| word(&pair[8..])))
    }

    /// The clock of one of its POSIX timers (proc(5), /proc/pid/timers).
    pub(super) fn timer_clock(&self, timer: u64) -> Option<i32> {
        let text = self.text("timers").ok()?;
        let wanted = format!("ID: {timer}");
        text.lines()
            .skip_while(|line| *line != wanted)
            .find_map(|line| line.strip_prefix("ClockID: ")?.trim().parse().ok())
    }

    /// The clock of one of its timer descriptors (proc(5), /proc/pid/fdinfo).
    pub(super) fn descriptor_clock(&self, number: i32) -> Option<i32> {
        let text = self.text(&format!("fdinfo/{number}")).ok()?;
        text.lines().find_map(|line| line.strip_prefix("clockid:")?.trim().parse().ok())
    }

    /// The process that the thread is one of.
    pub(super) fn process(&self) -> io::Result<Pid> {
        let status = self.text("status")?;
        let leader = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
        leader.and_then(Pid::from_raw).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
    }

    /// A copy of one of its descriptors.
    pub(super) fn descriptor(&self, number: i32) -> io::Result<OwnedFd> {
        let pidfd = pidfd_open(self.process()?, PidfdFlags::empty())?;
        sys::copy_descriptor(pidfd.as_fd(), number)
    }

    /// The name of the program that it runs.
    pub(super) fn name(&self) -> String {
        self.text("comm").map_or_else(|_| "a program".to_owned(), |name| name.trim_end().to_owned())
    }

    /// The letter of the thread's state (proc(5), /proc/pid/stat); `None` where it is gone.
    pub(super) fn state(&self) -> Option<char> {
        let stat = self.text("stat").ok()?;
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
    }

    /// Nanoseconds that this thread has spent on a processor; 0 where the kernel does not count them. Counted up when it
    /// is switched out and at every tick (/proc/pid/schedstat, first number).
    pub(super) fn processor_time(&self) -> u64 {
        let text = self.text(&format!("task/{}/schedstat", self.pid)).unwrap_or_default();
        text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
    }
}

/// The memory of a process.
#[derive(Debug)]
pub(super) struct Memory(File);

impl Memory {
    /// Reads bytes.
    pub(super) fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(bytes, at)
    }

    /// Whether these bytes are at a place.
    pub(super) fn holds(&self, at: u64, bytes: &[u8]) -> bool {
        let mut found = vec![0; bytes.len()];
        self.read(at, &mut found).is_ok() && found == bytes
    }

    /// Reads one 32-bit word.
    pub(super) fn word(&self, at: u64) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.0.read_exact_at(&mut bytes, at)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    /// Reads two 64-bit words: a timespec.
    pub(super) fn pair(&self, at: u64) -> io::Result<(i64, i64)> {
        let mut bytes = [0; 16];
        self.0.read_exact_at(&mut bytes, at)?;
        let word = |half: &[u8]| half.try_into().map_or(0, i64::from_ne_bytes);
        Ok((word(&bytes[..8]), word(&bytes[8..])))
    }

    /// Writes two 64-bit words.
    pub(super) fn write_pair(&self, at: u64, pair: (i64, i64)) -> io::Result<()> {
        self.write(at, &pair_bytes(pair))
    }

    /// Writes bytes.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }
}

/// Writes two 64-bit words, a timespec, where the thread might have written them itself; elsewhere it is a fault, as in the
/// kernel.
pub(super) fn tell_pair(pid: u32, at: u64, pair: (i64, i64)) -> io::Result<()> {
    sys::write_memory(pid, at, &pair_bytes(pair))
}

fn pair_bytes(pair: (i64, i64)) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&pair.0.to_ne_bytes());
    bytes[8..].copy_from_slice(&pair.1.to_ne_bytes());
    bytes
}
