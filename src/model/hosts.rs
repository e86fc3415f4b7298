//! Hosts that a policy names, where a program wanted to go, and what became of it. Looking names up and connecting is
//! `sandbox::proxy`'s.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest name of a host, in bytes (RFC 1035, 2.3.4, written with dots).
const NAME_MAX: usize = 253;
/// The ports of a host that is named without one: HTTP over TLS, and HTTP.
const USUAL_PORTS: [u16; 2] = [443, 80];
/// Most hosts that a reason tells, and most letters of each: a record has room for little.
const TOLD: usize = 3;
const TOLD_LETTERS: usize = 80;

/// A host by name or by address.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Host {
    /// In lower case, without a dot at the end.
    Name(String),
    /// An address; one of IPv4 that is written as one of IPv6 is that of IPv4.
    Address(IpAddr),
}

impl Host {
    /// Reads a name or an address, the latter with or without the brackets of IPv6.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Some(bare) = bare {
            let address = bare.parse::<Ipv6Addr>();
            return address
                .map(|address| Self::Address(IpAddr::V6(address).to_canonical()))
                .map_err(|_| "has brackets around something that is no IPv6 address".to_owned());
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Address(address.to_canonical()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        };
        if name.len() > NAME_MAX || !name.split('.').all(is_label) {
            return Err("is neither a host name (letters, digits, `-`, dots) nor an address".to_owned());
        }
        // Resolvers take `127.1`, `0x7f000001` and `2130706433` for addresses (inet_aton(3)).
        let last = name.rsplit('.').next().unwrap_or_default();
        if last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x") {
            return Err("ends in a number and is no address as it is usually written".to_owned());
        }
        Ok(Self::Name(name))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// Where a program wants to go.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The TCP port.
    pub port: u16,
}

impl Target {
    /// Reads `HOST:PORT`, or `HOST` where there is a usual port.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence.
    pub fn parse(text: &str, usual: Option<u16>) -> Result<Self, String> {
        let (host, port) = split_port(text)?;
        let port = port.or(usual).ok_or("has no port")?;
        Ok(Self { host: Host::parse(host)?, port })
    }
}

impl Target {
    /// As a rule names it: without a port where it is a usual one.
    #[must_use]
    pub fn as_rule(&self) -> String {
        if USUAL_PORTS.contains(&self.port) { self.host.to_string() } else { self.to_string() }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// A port that is written behind a host; none where the host is an IPv6 address without brackets.
fn split_port(text: &str) -> Result<(&str, Option<u16>), String> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') && text.parse::<Ipv6Addr>().is_err() => (host, port),
        _ => return Ok((text, None)),
    };
    match port.parse::<u16>() {
        Ok(port @ 1..) if !host.contains("::") || host.starts_with('[') => Ok((host, Some(port))),
        _ => Err(format!("has `{}` for a port, which is a number from 1 to 65535", port.escape_default())),
    }
}

/// Hosts that may be reached.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HostRule {
    host: Host,
    /// Whether all names below that one are meant, and not itself.
    below: bool,
    /// The port; the usual ones where none is named.
    port: Option<u16>,
    /// Whether the name may stand for an address of this machine or of a private network.
    pub private: bool,
}

impl HostRule {
    /// Reads `HOST`, `HOST:PORT` or `*.HOST`.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence.
    pub fn parse(text: &str, private: bool) -> Result<Self, String> {
        let wrong = |problem: String| format!("`{}` {problem}", text.escape_default());
        let (plain, below) = text.strip_prefix("*.").map_or((text, false), |rest| (rest, true));
        let (host, port) = split_port(plain).map_err(wrong)?;
        let host = Host::parse(host).map_err(wrong)?;
        let is_narrow = matches!(&host, Host::Name(name) if name.contains('.'));
        if below && !is_narrow {
            return Err(wrong("is too wide; `*.` stands before a name with a dot in it".to_owned()));
        }
        Ok(Self { host, below, port, private })
    }

    /// Reads what the command line takes: as [`Self::parse`], with `,private` behind it where that is meant.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence.
    pub fn parse_option(text: &str) -> Result<Self, String> {
        match text.strip_suffix(",private") {
            Some(rest) => Self::parse(rest, true),
            None => Self::parse(text, false),
        }
    }

    /// Whether it names that host and port.
    #[must_use]
    pub fn names(&self, target: &Target) -> bool {
        let is_host = match (&self.host, &target.host) {
            (Host::Name(named), Host::Name(asked)) if self.below => asked
                .strip_suffix(named.as_str())
                .is_some_and(|above| above.len() > 1 && above.ends_with('.')),
            (named, asked) => named == asked,
        };
        is_host && self.port.map_or(USUAL_PORTS.contains(&target.port), |port| port == target.port)
    }

    /// Whether it is a host of the machine itself, by its usual name or by address.
    #[must_use]
    pub fn is_of_the_machine(&self) -> bool {
        match &self.host {
            Host::Name(name) => name == "localhost",
            Host::Address(address) => address.is_loopback(),
        }
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let below = if self.below { "*." } else { "" };
        write!(f, "{below}{}", self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// A host that a policy names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedHost {
    /// Which, and how.
    pub rule: HostRule,
    /// Why it may be reached.
    pub why: String,
}

/// What kind of address one is, where it is not an ordinary one of the internet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Special {
    /// Of this machine or of a private network: a name may stand for it where that is said.
    Private(&'static str),
    /// No name may stand for it; it can only be named itself.
    Never(&'static str),
}

/// The kind of a special address, by IANA's registries for IPv4 and IPv6 (RFC 6890); `None` for an ordinary one, and for those
/// of documentation, which are nobody's.
#[must_use]
pub fn special(address: IpAddr) -> Option<Special> {
    match address.to_canonical() {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

fn special_v4(address: Ipv4Addr) -> Option<Special> {
    let [a, b, c, _] = address.octets();
    Some(match (a, b, c) {
        (127, _, _) => Special::Private("an address of this machine"),
        (10, _, _) | (192, 168, _) | (172, 16..=31, _) | (100, 64..=127, _) | (198, 18 | 19, _) => {
            Special::Private("an address of a private network")
        }
        // Machines in clouds tell their secrets at 169.254.169.254.
        (169, 254, _) => Special::Never("a link-local address"),
        (224..=239, _, _) => Special::Never("a multicast address"),
        (0 | 240.., _, _) | (192, 0, 0) => Special::Never("a reserved address"),
        _ => return None,
    })
}

fn special_v6(address: Ipv6Addr) -> Option<Special> {
    let parts = address.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        special_v4(Ipv4Addr::new(a, b, c, d))
    };
    match parts {
        [0, 0, 0, 0, 0, 0, 0, 1] => Some(Special::Private("an address of this machine")),
        [0, 0, 0, 0, 0, 0, ..] => Some(Special::Never("a reserved address")),
        // Translated and tunnelled ones go to the address of IPv4 that is in them (RFC 6052, RFC 3056).
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => embedded(high, low),
        [0x64, 0xff9b, ..] | [0x2001, 0, ..] | [0x100, ..] => Some(Special::Never("a reserved address")),
        [0xfc00..=0xfdff, ..] => Some(Special::Private("an address of a private network")),
        [0xfe80..=0xfeff, ..] => Some(Special::Never("a link-local address")),
        [0xff00..=0xffff, ..] => Some(Special::Never("a multicast address")),
        _ => None,
    }
}

/// Somewhere that was not reached.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Turned {
    /// `HOST:PORT`.
    pub host: String,
    /// Why: to be read after "which" where it was refused, else by itself.
    pub why: String,
    /// What `--allow-host` takes to let it be reached, where that is possible.
    pub allow: Option<String>,
}

/// What a run reached by way of the hosts that its policy names.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Reached {
    /// Where it was connected to, `HOST:PORT` each, in order.
    pub hosts: Vec<String>,
    /// Where it was not let go to.
    pub refused: Vec<Turned>,
    /// Where it was let go to and nobody was to be had.
    pub unreachable: Vec<Turned>,
    /// Bytes that went out.
    pub sent: u64,
    /// Bytes that came in.
    pub received: u64,
}

impl Reached {
    /// A sentence on what went wrong, for a record's reason; a run that passed did well without what did not answer.
    #[must_use]
    pub fn reason(&self, passed: bool) -> Option<String> {
        let mut parts = Vec::new();
        for turned in self.refused.iter().take(TOLD) {
            parts.push(format!("tried to reach {}, which {}", shortened(&turned.host), turned.why));
        }
        if let more @ 1.. = self.refused.len().saturating_sub(TOLD) {
            parts.push(format!("{more} more were refused"));
        }
        if !passed {
            let each = self.unreachable.iter().take(TOLD);
            parts.extend(
                each.map(|turned| format!("could not reach {}: {}", shortened(&turned.host), turned.why)),
            );
        }
        (!parts.is_empty()).then(|| format!("network: {}", parts.join("; ")))
    }
}

fn shortened(host: &str) -> String {
    match host.char_indices().nth(TOLD_LETTERS) {
        Some((at, _)) => format!("{}…", &host[..at]),
        None => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(rule: &str, target: &str) -> bool {
        HostRule::parse(rule, false).unwrap().names(&Target::parse(target, None).unwrap())
    }

    #[test]
    fn a_rule_names_its_host_and_ports_and_no_other() {
        for (rule, target, expected) in [
            ("example.org", "example.org:443", true),
            ("example.org", "EXAMPLE.org.:80", true),
            ("example.org", "example.org:22", false),
            ("example.org", "a.example.org:443", false),
            ("example.org:8443", "example.org:8443", true),
            ("example.org:8443", "example.org:443", false),
            ("*.example.org", "a.b.example.org:443", true),
            ("*.example.org", "example.org:443", false),
            ("*.example.org", "evilexample.org:443", false),
            ("127.0.0.1:8080", "127.0.0.1:8080", true),
            ("127.0.0.1:8080", "[::ffff:127.0.0.1]:8080", true),
            ("[::1]:8080", "[::1]:8080", true),
            ("localhost:1", "127.0.0.1:1", false),
        ] {
            assert_eq!(named(rule, target), expected, "{rule} {target}");
        }
        for wrong in [
            "",
            "*",
            "*.org",
            "a b",
            "127.1",
            "0x7f.0x1",
            "2130706433",
            "a:0",
            "a:b",
            "a..b",
            "*.127.0.0.1",
            "[x]",
            "a@b",
            "é.org",
        ] {
            assert!(HostRule::parse(wrong, false).is_err(), "{wrong}");
        }
        for right in ["a.org:1,private", "[::1]:80", "*.a.org"] {
            let rule = HostRule::parse_option(right).unwrap();
            assert_eq!(rule.to_string(), right.trim_end_matches(",private"));
        }
    }

    #[test]
    fn addresses_that_no_public_name_stands_for_are_known() {
        for (text, expected) in [
            ("8.8.8.8", "public"),
            ("2606:4700::1111", "public"),
            ("127.0.0.2", "private"),
            ("::1", "private"),
            ("::ffff:10.0.0.1", "private"),
            ("172.31.0.1", "private"),
            ("172.32.0.1", "public"),
            ("100.64.0.1", "private"),
            ("fd00::1", "private"),
            ("64:ff9b::10.0.0.1", "private"),
            ("2002:7f00:1::", "private"),
            ("169.254.169.254", "never"),
            ("64:ff9b::169.254.169.254", "never"),
            ("fe80::1", "never"),
            ("ff02::1", "never"),
            ("0.0.0.0", "never"),
            ("::", "never"),
            ("::7f00:1", "never"),
            ("255.255.255.255", "never"),
            ("224.0.0.1", "never"),
        ] {
            let kind = match special(text.parse().unwrap()) {
                None => "public",
                Some(Special::Private(_)) => "private",
                Some(Special::Never(_)) => "never",
            };
            assert_eq!(kind, expected, "{text}");
        }
    }

    proptest::proptest! {
        /// What a program asks for is foreign text.
        #[test]
        fn any_target_is_read_without_a_panic(text in "\\PC{0,40}") {
            if let Ok(target) = Target::parse(&text, Some(80)) {
                let again = Target::parse(&target.to_string(), None);
                proptest::prop_assert_eq!(again, Ok(target));
            }
            drop(HostRule::parse_option(&text));
        }
    }
}
