//! The proxy at work: takes connections, has each judged, moves bytes, keeps count. All that the check can use up here
//! is bounded: connections at one time, bytes of a head, and the time in which nothing moves.
#![forbid(unsafe_code)]

use super::dial::{Dialled, Refused, dial};
use super::head::{self, HEAD_MAX, Refusal, Request};
use super::{Rules, await_socket};
use crate::model::hosts::{Reached, Target, Turned};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Connections at one time; further ones wait.
const AT_ONCE: usize = 64;
/// How long a request's head may take in all.
const HEAD_TIME: Duration = Duration::from_secs(20);
/// How long nothing may move on a connection, in either direction.
const IDLE: Duration = Duration::from_secs(300);
/// How often a side that waits looks whether the other one still moves.
const GLANCE: Duration = Duration::from_secs(5);
/// Most hosts of each kind that are told of.
const TOLD: usize = 100;
/// Each thread does little.
const STACK: usize = 256 * 1024;

/// What the threads share.
struct Shared {
    rules: Rules,
    account: Mutex<Reached>,
    /// So that a program that tries a thousand times does not make the lists slow.
    known: Mutex<BTreeSet<Target>>,
    at_work: AtomicUsize,
    sent: AtomicU64,
    received: AtomicU64,
}

/// Serves until the other end of `orders` is closed, then writes the account down.
pub(super) fn serve(rules: &Rules, orders: &OwnedFd, account: OwnedFd) -> io::Result<()> {
    let shared = Arc::new(Shared {
        rules: rules.clone(),
        account: Mutex::default(),
        known: Mutex::default(),
        at_work: AtomicUsize::new(0),
        sent: AtomicU64::new(0),
        received: AtomicU64::new(0),
    });
    if let Some(listener) = await_socket(orders)? {
        // Never blocked in accept(2): a connection may be gone by then.
        listener.set_nonblocking(true)?;
        loop {
            let is_full = shared.at_work.load(Ordering::Acquire) >= AT_ONCE;
            let mut fds = vec![PollFd::new(orders, PollFlags::IN)];
            if !is_full {
                fds.push(PollFd::new(&listener, PollFlags::IN));
            }
            let a_moment = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            match poll(&mut fds, is_full.then_some(&a_moment)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !fds[0].revents().is_empty() {
                break;
            }
            if !is_full && let Ok((client, _)) = listener.accept() {
                take(&shared, client);
            }
        }
    }
    let mut account_now = std::mem::take(&mut *lock(&shared.account));
    account_now.sent = shared.sent.load(Ordering::Relaxed);
    account_now.received = shared.received.load(Ordering::Relaxed);
    let text = serde_json::to_vec(&account_now)?;
    std::fs::File::from(account).write_all(&text)
}

/// What a thread that panicked left behind is whole: nothing is half done under a lock.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a connection for as long as this lives.
struct AtWork(Arc<Shared>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.at_work.fetch_sub(1, Ordering::Release);
    }
}

fn take(shared: &Arc<Shared>, client: TcpStream) {
    shared.at_work.fetch_add(1, Ordering::Acquire);
    let at_work = AtWork(Arc::clone(shared));
    let thread = std::thread::Builder::new().stack_size(STACK);
    // Without room for a thread the connection is closed, which the program sees.
    drop(thread.spawn(move || {
        // It is the check's own connection: what becomes of it is told in the account where it matters.
        drop(attend(&at_work.0, client));
    }));
}

fn attend(shared: &Arc<Shared>, mut client: TcpStream) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_write_timeout(Some(IDLE))?;
    let (request, body) = match read_head(&mut client)? {
        Ok(read) => read,
        Err(refusal) => return refuse(&mut client, &refusal),
    };
    let target = &request.target;
    let dialled = match dial(&shared.rules, target, request.forward.is_none()) {
        Ok(dialled) => dialled,
        Err(refused) => {
            shared.note(target, &Err(refused.clone()));
            return refuse(&mut client, &answer(&shared.rules, target, refused));
        }
    };
    shared.note(target, &Ok(()));
    let Dialled { stream: mut server, early, by_proxy } = dialled;
    server.set_write_timeout(Some(IDLE))?;
    match &request.forward {
        Some(forward) => {
            let head = forward.head(target, by_proxy.as_ref().map(Option::as_deref));
            server.write_all(&head)?;
        }
        None => client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?,
    }
    server.write_all(&body)?;
    client.write_all(&early)?;
    let count = |bytes: &[u8]| u64::try_from(bytes.len()).unwrap_or(0);
    shared.sent.fetch_add(count(&body), Ordering::Relaxed);
    shared.received.fetch_add(count(&early), Ordering::Relaxed);
    pass_on(shared, client, server)
}

/// The request, and what came behind its head.
fn read_head(client: &mut TcpStream) -> io::Result<Result<(Request, Vec<u8>), Refusal>> {
    let until = Instant::now() + HEAD_TIME;
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    let end = loop {
        if let Some(end) = head::end_of_head(&bytes) {
            break end;
        }
        if bytes.len() > HEAD_MAX {
            let text = format!("the head of a request may have {HEAD_MAX} bytes");
            return Ok(Err(Refusal::new(431, "Request Header Fields Too Large", text)));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Err(Refusal::new(408, "Request Timeout", "the request did not come in time")));
        }
        client.set_read_timeout(Some(left))?;
        match client.read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => bytes.extend(&buffer[..read]),
            Err(error) if is_no_end(&error) => {}
            Err(error) => return Err(error),
        }
    };
    let body = bytes.split_off(end);
    Ok(head::read(&bytes).map(|request| (request, body)))
}

/// A time that is up, or a signal.
fn is_no_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Answers in the server's stead. What else the program writes is read for a moment, or the answer would be lost to it
/// (RFC 9112, 9.6).
fn refuse(client: &mut TcpStream, refusal: &Refusal) -> io::Result<()> {
    client.write_all(&refusal.answer())?;
    client.shutdown(Shutdown::Write)?;
    client.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut buffer = [0; 4096];
    for _ in 0..64 {
        if !matches!(client.read(&mut buffer), Ok(1..)) {
            break;
        }
    }
    Ok(())
}

fn answer(rules: &Rules, target: &Target, refused: Refused) -> Refusal {
    match refused {
        Refused::Rule(why, allow) => {
            let remedy =
                allow.map_or_else(String::new, |rule| format!("; `--allow-host {rule}` lets it be reached"));
            let text = format!("{target}, which {why}, is refused by policy `{}`{remedy}", rules.policy);
            Refusal::new(403, "Forbidden By Policy", text)
        }
        Refused::Unreachable(why) => {
            Refusal::new(502, "Bad Gateway", format!("could not reach {target}: {why}"))
        }
    }
}

impl Shared {
    /// Notes what became of the first try for each host.
    fn note(&self, target: &Target, became: &Result<(), Refused>) {
        let mut account = lock(&self.account);
        let text = target.to_string();
        let add = |list: &mut Vec<Turned>, why: &str, allow: Option<&String>| {
            if list.len() < TOLD && lock(&self.known).insert(target.clone()) {
                list.push(Turned { host: text.clone(), why: why.to_owned(), allow: allow.cloned() });
            }
        };
        match became {
            Err(Refused::Rule(why, allow)) => add(&mut account.refused, why, allow.as_ref()),
            Err(Refused::Unreachable(why)) => add(&mut account.unreachable, why, None),
            Ok(()) if account.hosts.len() < TOLD && !account.hosts.contains(&text) => {
                account.hosts.push(text)
            }
            Ok(()) => {}
        }
    }
}

/// Moves bytes both ways until both are at their end, or nothing moves any more.
fn pass_on(shared: &Arc<Shared>, client: TcpStream, server: TcpStream) -> io::Result<()> {
    let start = Instant::now();
    // Milliseconds from `start` to when something last moved.
    let moved = Arc::new(AtomicU64::new(0));
    for side in [&client, &server] {
        side.set_read_timeout(Some(GLANCE))?;
    }
    let (from_client, to_server) = (client.try_clone()?, server.try_clone()?);
    let (counts, also_moved) = (Arc::clone(shared), Arc::clone(&moved));
    let outward = std::thread::Builder::new().stack_size(STACK).spawn(move || {
        copy(&from_client, &to_server, &counts.sent, (&also_moved, start));
    })?;
    copy(&server, &client, &shared.received, (&moved, start));
    drop(outward.join());
    Ok(())
}

/// One way. At its end the other side is told, and at an error both are.
fn copy(mut from: &TcpStream, mut to: &TcpStream, count: &AtomicU64, (moved, start): (&AtomicU64, Instant)) {
    let now = || u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    let idle = u64::try_from(IDLE.as_millis()).unwrap_or(u64::MAX);
    let mut buffer = vec![0; 32 * 1024];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => {
                drop(to.shutdown(Shutdown::Write));
                return;
            }
            Ok(read) => {
                if to.write_all(&buffer[..read]).is_err() {
                    break;
                }
                moved.store(now(), Ordering::Relaxed);
                count.fetch_add(u64::try_from(read).unwrap_or(0), Ordering::Relaxed);
            }
            Err(error) if is_no_end(&error) => {
                if now().saturating_sub(moved.load(Ordering::Relaxed)) > idle {
                    break;
                }
            }
            Err(_) => break,
        }
    }
    drop(from.shutdown(Shutdown::Both));
    drop(to.shutdown(Shutdown::Both));
}
