//! Signals that a caller sends to checkrun, taken as they come instead of ending it. What is done about them is up to
//! whoever asks.
#![forbid(unsafe_code)]

use crate::sandbox::sys;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;

/// Signals that a caller may send to checkrun, as a descriptor; blocked for as long as this lives.
#[derive(Debug)]
pub struct Interrupts {
    signals: OwnedFd,
}

impl Interrupts {
    /// Blocks SIGINT, SIGTERM and SIGHUP in this thread and takes them from here on.
    ///
    /// # Errors
    /// What sigprocmask(2) or signalfd(2) says.
    pub fn take_over() -> io::Result<Self> {
        let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
        sys::block_signals(&[&signals[..], &[libc::SIGCHLD]].concat())?;
        Ok(Self { signals: sys::signal_descriptor(&signals)? })
    }

    /// The signal that is pending, if there is one.
    #[must_use]
    pub fn pending(&self) -> Option<i32> {
        sys::take_signal(self.signals.as_fd()).ok().flatten()
    }

    /// Becomes readable when a signal is pending.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}
