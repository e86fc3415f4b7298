//! The sockets between the processes of one sandbox: message borders kept, a descriptor along with a message. What
//! the messages say is `wire`'s.
#![forbid(unsafe_code)]

use crate::sandbox::sys;
use crate::sandbox::wire::{At, Failure, MESSAGE_MAX, Step};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::time::Duration;

/// The ends that a supervisor is started with.
#[derive(Debug)]
pub(super) struct Channels {
    /// To the launcher, for the supervisor.
    pub(super) launcher: OwnedFd,
    /// To the launcher, for the init process.
    pub(super) init: OwnedFd,
    /// The check's standard output.
    pub(super) stdout: OwnedFd,
    /// The check's standard error.
    pub(super) stderr: OwnedFd,
    /// The check's standard input: /dev/null.
    pub(super) null: OwnedFd,
}

impl Channels {
    /// Closes whatever else the launcher had open: a lock or a file that lived on here would outlive the launcher.
    pub(super) fn close_all_else(&self) {
        let kept =
            [&self.launcher, &self.init, &self.stdout, &self.stderr, &self.null].map(AsRawFd::as_raw_fd);
        // Without close_range (before Linux 5.9) they close when this process ends, soon after the launcher.
        drop(sys::keep_only(&kept));
    }
}

/// The launcher's ends of the same.
#[derive(Debug)]
pub(super) struct LauncherEnds {
    /// From the supervisor.
    pub(super) launcher: OwnedFd,
    /// To and from the init process.
    pub(super) init: OwnedFd,
    /// What the check prints.
    pub(super) stdout: OwnedFd,
    /// What the check prints on its standard error.
    pub(super) stderr: OwnedFd,
}

/// Which of the launcher's sources have something to be dealt with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub(super) signal: bool,
    pub(super) alarm: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) init: bool,
    pub(super) supervisor: bool,
}

/// Opens all channels of one run: the ends for the supervisor and the launcher's own.
///
/// # Errors
/// Where there is no room for another descriptor, or no /dev/null.
pub(super) fn open_all() -> Result<(Channels, LauncherEnds), Failure> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC).at(Step::Channel, "pipe");
    let ((stdout, stdout_end), (stderr, stderr_end)) = (pipe()?, pipe()?);
    let socket = || pair().at(Step::Channel, "socket");
    let ((launcher, launcher_end), (init, init_end)) = (socket()?, socket()?);
    let null = std::fs::File::open("/dev/null").at(Step::Channel, "/dev/null")?.into();
    let channels =
        Channels { launcher: launcher_end, init: init_end, stdout: stdout_end, stderr: stderr_end, null };
    Ok((channels, LauncherEnds { launcher, init, stdout, stderr }))
}

/// A connected pair of message sockets, closed on exec.
pub(super) fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Sends one message, with a descriptor along if given.
pub(super) fn send(socket: &OwnedFd, bytes: &[u8], along: Option<BorrowedFd<'_>>) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<BorrowedFd<'_>> = along.into_iter().collect();
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    rustix::io::retry_on_intr(|| sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL))
        .map(drop)
}

/// Receives one message; `None` when the other side is closed.
pub(super) fn receive(socket: BorrowedFd<'_>) -> rustix::io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
    let mut bytes = vec![0_u8; MESSAGE_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut get = || {
        rustix::io::retry_on_intr(|| {
            recvmsg(socket.as_fd(), &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)
        })
    };
    // The other side ended with a message of ours unread (unix(7)). That is told once and before what it had sent, which
    // is still to be had: its last word may be the reason.
    let got = match get() {
        Err(rustix::io::Errno::CONNRESET) => get(),
        got => got,
    };
    let got = match got {
        Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        got => got?,
    };
    if got.bytes == 0 {
        return Ok(None);
    }
    bytes.truncate(got.bytes);
    let mut along = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message {
            along = fds.next();
        }
    }
    Ok(Some((bytes, along)))
}

/// Waits until one of the sources that are there has something, or for that long; which of them have.
pub(super) fn wait<const N: usize>(
    sources: &[(Option<BorrowedFd<'_>>, PollFlags); N],
    within: Option<Duration>,
) -> rustix::io::Result<[bool; N]> {
    let mut at = [None; N];
    let mut fds = Vec::with_capacity(N);
    for (index, (fd, flags)) in sources.iter().enumerate() {
        if let Some(fd) = fd {
            at[index] = Some(fds.len());
            fds.push(PollFd::from_borrowed_fd(*fd, *flags));
        }
    }
    let timeout = within.map(|left| Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    });
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error),
    }
    Ok(at.map(|at| at.is_some_and(|at: usize| !fds[at].revents().is_empty())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_of_one_that_ended_without_listening_is_heard() {
        let (ours, theirs) = pair().expect("a pair");
        send(&ours, b"never read", None).expect("sent");
        send(&theirs, b"why", None).expect("sent");
        drop(theirs);
        let heard = receive(ours.as_fd()).expect("received").map(|(bytes, _)| bytes);
        assert_eq!(heard.as_deref(), Some(&b"why"[..]));
        assert!(receive(ours.as_fd()).expect("received").is_none());
    }
}
