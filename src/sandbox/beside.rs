//! Work in processes of their own beside this one, so that several checks run at once: a check is started by a process
//! with one thread, and each of these is one. What they find out they leave on record; here only whether it was good
//! comes back.
#![forbid(unsafe_code)]

use crate::sandbox::sys::{self, Forked};
use rustix::process::{Signal, WaitOptions, getppid, set_parent_process_death_signal};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Starts work beside this process, provided that this one has one thread; the number of the new process. It is asked
/// to end (SIGTERM) when this process dies.
///
/// # Errors
/// There are other threads, or no room for another process.
pub fn start(work: impl FnOnce() -> bool) -> io::Result<i32> {
    let parent = rustix::process::getpid();
    match sys::fork()? {
        Forked::Parent(process) => Ok(process),
        Forked::Child => {
            // The parent may have died before this was said (prctl(2), PR_SET_PDEATHSIG).
            let told = set_parent_process_death_signal(Some(Signal::TERM));
            let is_good = told.is_ok()
                && getppid() == Some(parent)
                // A panic must not unwind into what the parent was doing.
                && catch_unwind(AssertUnwindSafe(work)).unwrap_or(false);
            sys::exit_now(i32::from(!is_good))
        }
    }
}

/// Waits for one of them: its number and whether it was good.
///
/// # Errors
/// There is none (`ECHILD`).
pub fn finished() -> io::Result<(i32, bool)> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((process, status))) => {
                return Ok((process.as_raw_nonzero().get(), status.exit_status() == Some(0)));
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
