//! Decides whether a host may be reached, and connects to it: by name, so that what a name stands for is looked up here,
//! once, and judged before it is used. A name that means one address to the judge and another to the dialler would lead
//! anywhere (DNS rebinding).
#![forbid(unsafe_code)]

use super::{Rules, Upstream};
use crate::model::hosts::{Host, Special, Target, special};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// How long one address may take to answer.
const CONNECT: Duration = Duration::from_secs(15);
/// How long another proxy may take to answer.
const UPSTREAM: Duration = Duration::from_secs(60);
/// Most addresses of one name that are tried.
const ADDRESSES: usize = 6;

/// Why there is no connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// It may not be reached: why, to be read after "which", and the rule that would let it be.
    Rule(String, Option<String>),
    /// It may, and nobody is to be had.
    Unreachable(String),
}

/// A connection on which the request, or what was within CONNECT, can be sent.
#[derive(Debug)]
pub(super) struct Dialled {
    pub(super) stream: TcpStream,
    /// What came behind another proxy's answer.
    pub(super) early: Vec<u8>,
    /// Whether it is to another proxy, which is to be told where to; with what authorises us there.
    pub(super) by_proxy: Option<Option<String>>,
}

/// Connects to a host that the rules name; for CONNECT through another proxy as well.
pub(super) fn dial(rules: &Rules, target: &Target, tunnel: bool) -> Result<Dialled, Refused> {
    let mut naming = rules.hosts.iter().filter(|rule| rule.names(target)).peekable();
    if naming.peek().is_none() {
        return Err(Refused::Rule("the policy does not name".to_owned(), Some(target.as_rule())));
    }
    let private = naming.any(|rule| rule.private);
    match rules.upstream.as_ref().filter(|upstream| !upstream.leaves_out(&target.host)) {
        // Names may mean something only there, and where it goes is for whoever runs it.
        Some(upstream) => upstream.dial(target, tunnel),
        None => {
            let addresses = look_up(target, private)?;
            let stream = connect(&addresses).map_err(|error| Refused::Unreachable(told(&error)))?;
            Ok(Dialled { stream, early: Vec::new(), by_proxy: None })
        }
    }
}

/// The addresses that a named host may be reached at.
fn look_up(target: &Target, private: bool) -> Result<Vec<SocketAddr>, Refused> {
    let name = match &target.host {
        // Named itself, so that whoever named it knew.
        Host::Address(address) => return Ok(vec![SocketAddr::new(*address, target.port)]),
        Host::Name(name) => name.as_str(),
    };
    let found = (name, target.port).to_socket_addrs();
    let found = found.map_err(|_| Refused::Unreachable("no address is known for that name".to_owned()))?;
    let mut kept = Vec::new();
    let mut refused = None;
    for address in found {
        match special(address.ip()) {
            None => kept.push(address),
            Some(Special::Private(_)) if private => kept.push(address),
            Some(Special::Private(what)) => {
                let why = format!("is at {}, {what}, and not named as private", address.ip());
                refused = Some(Refused::Rule(why, Some(format!("{},private", target.as_rule()))));
            }
            Some(Special::Never(what)) => {
                let why = format!("is at {}, {what}, for which no name may stand", address.ip());
                refused = Some(Refused::Rule(why, None));
            }
        }
    }
    match refused {
        Some(refused) if kept.is_empty() => Err(refused),
        _ => Ok(kept),
    }
}

fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no address is known for that name");
    for address in addresses.iter().take(ADDRESSES) {
        match TcpStream::connect_timeout(address, CONNECT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// An error in few words, without its number.
fn told(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::TimedOut => "it does not answer".to_owned(),
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => "no way leads there".to_owned(),
        _ => error.to_string(),
    }
}

impl Upstream {
    /// Whether that host is to be reached without this proxy.
    fn leaves_out(&self, host: &Host) -> bool {
        let host = host.to_string();
        self.direct.iter().any(|entry| {
            let name = entry.trim_start_matches("*.").trim_start_matches('.');
            entry == "*" || host == name || host.strip_suffix(name).is_some_and(|above| above.ends_with('.'))
        })
    }

    fn dial(&self, target: &Target, tunnel: bool) -> Result<Dialled, Refused> {
        let own = |what: &str| Refused::Unreachable(format!("the proxy {}:{}: {what}", self.host, self.port));
        let name = self.host.trim_start_matches('[').trim_end_matches(']');
        let addresses = match name.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, self.port)],
            Err(_) => (name, self.port)
                .to_socket_addrs()
                .map_err(|_| own("no address is known for that name"))?
                .collect(),
        };
        let mut stream = connect(&addresses).map_err(|error| own(&told(&error)))?;
        let by_proxy = Some(self.authorization.clone());
        if !tunnel {
            return Ok(Dialled { stream, early: Vec::new(), by_proxy });
        }
        let early = self.ask(&mut stream, target).map_err(|error| own(&told(&error)))?;
        Ok(Dialled { stream, early, by_proxy })
    }

    /// Has it connect to the target; what came behind its answer.
    fn ask(&self, stream: &mut TcpStream, target: &Target) -> io::Result<Vec<u8>> {
        let authorization = self.authorization.as_ref();
        let authorization =
            authorization.map_or_else(String::new, |value| format!("Proxy-Authorization: {value}\r\n"));
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{authorization}\r\n");
        stream.set_write_timeout(Some(UPSTREAM))?;
        stream.write_all(request.as_bytes())?;
        let until = Instant::now() + UPSTREAM;
        let (mut answer, mut buffer) = (Vec::new(), [0; 2048]);
        let end = loop {
            if let Some(end) = super::head::end_of_head(&answer) {
                break end;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || answer.len() > super::head::HEAD_MAX {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
            match stream.read(&mut buffer) {
                Ok(0) => return Err(io::Error::other("it closed the connection")),
                Ok(read) => answer.extend(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error),
            }
        };
        let first = String::from_utf8_lossy(&answer[..end]);
        let status: String = first.split(' ').nth(1).unwrap_or_default().chars().take(3).collect();
        if status != "200" || !first.starts_with("HTTP/1.") {
            return Err(io::Error::other(format!("it answers with status {}", status.escape_default())));
        }
        Ok(answer.split_off(end))
    }
}
