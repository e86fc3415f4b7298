//! The way out that a policy with named hosts leaves: a proxy for HTTP and for what goes through HTTP's CONNECT (RFC 9110,
//! 9.3.6). It listens on the sandbox's own loopback, at a socket that the init process makes there and hands out, and is
//! served by a process of its own outside, since what it is told comes from the check. That process dials the hosts that
//! the policy names and nothing else. What TLS carries passes through untouched.
//!
//! `head` reads requests, `dial` decides and connects, `serve` moves bytes, `environment` tells programs of it. Which hosts
//! are named is decided above.
#![forbid(unsafe_code)]

mod dial;
mod environment;
mod head;
mod serve;

pub(super) use environment::{put, upstream};

use crate::model::hosts::{HostRule, Reached};
use crate::sandbox::plan::HostUser;
use crate::sandbox::wire::{At, Step};
use crate::sandbox::{SandboxError, channel, sys};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpListener};

/// Where it is inside, at 127.0.0.1. The network is the sandbox's own, so that the port is free.
pub(super) const PORT: u16 = 3128;

/// The longest account that is read, in bytes; the lists in it are bounded.
const ACCOUNT_MAX: u64 = 1 << 20;

/// What the proxy goes by.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Name of the policy, for messages.
    pub policy: String,
    /// The hosts that may be reached.
    pub hosts: Vec<HostRule>,
    /// A proxy that the caller names, by which all that goes out has to go.
    pub upstream: Option<Upstream>,
}

/// Another proxy on the way.
#[derive(Clone, PartialEq, Eq)]
pub struct Upstream {
    /// Its host, as it is given.
    host: String,
    /// Its port.
    port: u16,
    /// The value of `Proxy-Authorization`, if it asks for one.
    authorization: Option<String>,
    /// Names that are reached without it, as in `NO_PROXY`.
    direct: Vec<String>,
}

/// Without the password.
impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Upstream({}:{})", self.host, self.port)
    }
}

/// The proxy's process. Dropped early, it is killed and reaped.
#[derive(Debug)]
pub(super) struct Proxy {
    pid: i32,
    /// Its end tells the process to end.
    orders: Option<OwnedFd>,
    account: OwnedFd,
}

impl Proxy {
    /// Starts the process; it waits for the socket to listen at.
    pub(super) fn start(rules: &Rules, user: HostUser) -> Result<Self, SandboxError> {
        let (orders, theirs) = channel::pair().at(Step::Proxy, "socket")?;
        let (account, account_end) = pipe_with(PipeFlags::CLOEXEC).at(Step::Proxy, "pipe")?;
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        match sys::fork().at(Step::Proxy, "fork")? {
            sys::Forked::Child => {
                let status = settle(user, own, [&theirs, &account_end])
                    .and_then(|()| serve::serve(rules, &theirs, account_end));
                sys::exit_now(i32::from(status.is_err()))
            }
            sys::Forked::Parent(pid) => Ok(Self { pid, orders: Some(orders), account }),
        }
    }

    /// Hands over the socket that the check's programs connect to.
    pub(super) fn listen(&self, socket: BorrowedFd<'_>) -> Result<(), SandboxError> {
        let Some(orders) = &self.orders else { return Ok(()) };
        channel::send(orders, &[1], Some(socket)).at(Step::Proxy, "listen").map_err(Into::into)
    }

    /// Ends the process, and says what was reached.
    pub(super) fn finish(mut self) -> Result<Reached, SandboxError> {
        drop(self.orders.take());
        let mut text = Vec::new();
        let account = std::fs::File::from(self.account.try_clone().at(Step::Proxy, "account")?);
        account.take(ACCOUNT_MAX).read_to_end(&mut text).at(Step::Proxy, "account")?;
        // It may have been killed: then nobody knows, which is no verdict.
        serde_json::from_slice(&text).map_err(|_| SandboxError::Lost)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(sys::kill(self.pid, libc::SIGKILL));
        drop(sys::wait(self.pid, true));
    }
}

/// Gives up what the process has of checkrun's and does not need: it reads what the check writes.
fn settle(user: HostUser, parent: i32, kept: [&OwnedFd; 2]) -> io::Result<()> {
    drop(sys::set_name(c"checkrun-proxy"));
    drop(sys::keep_only(&kept.map(AsRawFd::as_raw_fd)));
    if user.switch {
        sys::become_user(user.uid, user.gid)?;
    }
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    sys::prctl(libc::PR_SET_DUMPABLE, 0)?;
    // Behind the change of user, which clears it (prctl(2)).
    sys::prctl(libc::PR_SET_PDEATHSIG, libc::c_ulong::from(libc::SIGKILL.unsigned_abs()))?;
    let now = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    if now == parent { Ok(()) } else { Err(rustix::io::Errno::SRCH.into()) }
}

/// Makes the socket inside; to be called in the sandbox's network.
pub(super) fn socket() -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, PORT))
}

/// Waits for the socket to listen at; `None` where the run is over before there was one.
fn await_socket(orders: &OwnedFd) -> io::Result<Option<TcpListener>> {
    let received = channel::receive(orders.as_fd())?;
    Ok(received.and_then(|(_, socket)| socket).map(TcpListener::from))
}
