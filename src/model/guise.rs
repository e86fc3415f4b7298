//! What a check takes its surroundings for: host name, user, the shape of the network, the order in which folders are listed.
//! Values and the words for them; setting them up is `sandbox`'s.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt;

/// Longest host name, in bytes (gethostname(2), `HOST_NAME_MAX`).
pub const HOST_NAME_MAX: usize = 64;
/// The check's host name where nothing else is asked.
pub const HOST_NAME: &str = "checkrun";
/// The user and group that the check runs as inside where nothing else is asked.
pub const CHECK_UID: u32 = 1000;
/// The user who owns nothing, by convention; also what a number that is not mapped shows as (user_namespaces(7)).
pub const NOBODY: u32 = 65_534;
/// The number that stands for no user at all (setresuid(2)).
const NO_USER: u32 = u32::MAX;

/// What a check takes its surroundings for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guise {
    /// What gethostname(2) says.
    pub host_name: String,
    /// The user's number; the group has the same.
    pub uid: u32,
    /// What becomes of packets to elsewhere.
    pub network: Shape,
    /// In which order the folders of the tree list what is in them.
    pub listing: Listing,
}

impl Default for Guise {
    fn default() -> Self {
        Self {
            host_name: HOST_NAME.to_owned(),
            uid: CHECK_UID,
            network: Shape::Loopback,
            listing: Listing::Host,
        }
    }
}

/// What becomes of packets to elsewhere. None of them leaves the sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Loopback only: a connection to elsewhere fails at once (ENETUNREACH).
    Loopback,
    /// There is a way to everywhere, and nothing ever comes back: a connection waits until it gives up. IPv4 only.
    BlackHole,
    /// Loopback without an address of IPv6.
    Ipv4,
}

/// In which order folders list what is in them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listing {
    /// As the file system has it that the tree lies on.
    Host,
    /// By name, as bytes.
    Ascending,
    /// By name, backwards.
    Descending,
    /// In an order that goes by this number alone.
    Shuffled(u64),
}

/// One of these inputs with another value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Variation {
    /// Another host name.
    HostName(String),
    /// Another user.
    User(u32),
    /// Another shape of the network.
    Network(Shape),
    /// Another order of names.
    Listing(Listing),
}

impl Variation {
    /// Reads `INPUT=VALUE`.
    ///
    /// # Errors
    /// Says what is wrong and what is accepted.
    pub fn parse(text: &str) -> Result<Self, String> {
        let accepted = "it is `hostname=NAME`, `user=NUMBER`, `network=WORD` or `listing=WORD`";
        let Some((input, value)) = text.split_once('=') else {
            return Err(format!("`{text}` names no input and its value; {accepted}"));
        };
        match input {
            "hostname" => host_name(value).map(Self::HostName),
            "user" => match value.parse() {
                Ok(uid) if uid != NO_USER => Ok(Self::User(uid)),
                _ => Err(format!("`{value}` is no number of a user; it is from 0 to {}", NO_USER - 1)),
            },
            "network" => match value {
                "loopback" => Ok(Self::Network(Shape::Loopback)),
                "blackhole" => Ok(Self::Network(Shape::BlackHole)),
                "ipv4" => Ok(Self::Network(Shape::Ipv4)),
                _ => Err(format!("`{value}` is no shape of a network; it is loopback, blackhole or ipv4")),
            },
            "listing" => match value {
                "host" => Ok(Self::Listing(Listing::Host)),
                "ascending" => Ok(Self::Listing(Listing::Ascending)),
                "descending" => Ok(Self::Listing(Listing::Descending)),
                seed => seed.parse().map(|seed| Self::Listing(Listing::Shuffled(seed))).map_err(|_| {
                    format!(
                        "`{value}` is no order; it is host, ascending, descending, or a number to shuffle by"
                    )
                }),
            },
            _ => Err(format!("`{input}` is nothing that can be varied so; {accepted}")),
        }
    }

    /// The word for the input.
    #[must_use]
    pub fn input(&self) -> &'static str {
        match self {
            Self::HostName(_) => "hostname",
            Self::User(_) => "user",
            Self::Network(_) => "network",
            Self::Listing(_) => "listing",
        }
    }

    /// The value, as it is written.
    #[must_use]
    pub fn value(&self) -> String {
        match self {
            Self::HostName(name) => name.clone(),
            Self::User(uid) => uid.to_string(),
            Self::Network(Shape::Loopback) => "loopback".to_owned(),
            Self::Network(Shape::BlackHole) => "blackhole".to_owned(),
            Self::Network(Shape::Ipv4) => "ipv4".to_owned(),
            Self::Listing(Listing::Host) => "host".to_owned(),
            Self::Listing(Listing::Ascending) => "ascending".to_owned(),
            Self::Listing(Listing::Descending) => "descending".to_owned(),
            Self::Listing(Listing::Shuffled(seed)) => seed.to_string(),
        }
    }
}

impl fmt::Display for Variation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.input(), self.value())
    }
}

fn host_name(name: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if begins && name.len() <= HOST_NAME_MAX && name.bytes().all(is_plain) {
        Ok(name.to_owned())
    } else {
        Err(format!(
            "`{}` is no host name; it begins with a letter or digit, has only those and `-`, `.`, `_`, and at most {HOST_NAME_MAX} of them",
            name.escape_default()
        ))
    }
}

impl Guise {
    /// Gives one input another value.
    pub fn vary(&mut self, variation: &Variation) {
        match variation {
            Variation::HostName(name) => self.host_name.clone_from(name),
            Variation::User(uid) => self.uid = *uid,
            Variation::Network(shape) => self.network = *shape,
            Variation::Listing(listing) => self.listing = *listing,
        }
    }

    /// What is other than where nothing is asked: values by input.
    #[must_use]
    pub fn varied(&self) -> BTreeMap<String, String> {
        let usual = Self::default();
        let all = |guise: &Self| {
            [
                Variation::HostName(guise.host_name.clone()),
                Variation::User(guise.uid),
                Variation::Network(guise.network),
                Variation::Listing(guise.listing),
            ]
        };
        let differing = all(self).into_iter().zip(all(&usual)).filter(|(own, usual)| own != usual);
        differing.map(|(own, _)| (own.input().to_owned(), own.value())).collect()
    }

    /// The user's name.
    #[must_use]
    pub fn user_name(&self) -> &'static str {
        match self.uid {
            0 => "root",
            NOBODY => "nobody",
            _ => "check",
        }
    }

    /// The name of the user's group.
    #[must_use]
    pub fn group_name(&self) -> &'static str {
        if self.uid == NOBODY { "nogroup" } else { self.user_name() }
    }

    /// The user's home folder inside.
    #[must_use]
    pub fn home(&self) -> &'static str {
        match self.uid {
            0 => "/root",
            NOBODY => "/home/nobody",
            _ => "/home/check",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_the_rest_is_refused() {
        for text in [
            "hostname=a",
            "hostname=Build-7.example_x",
            "user=0",
            "user=65534",
            "network=loopback",
            "network=blackhole",
            "network=ipv4",
            "listing=host",
            "listing=ascending",
            "listing=descending",
            "listing=7",
        ] {
            assert_eq!(Variation::parse(text).unwrap().to_string(), text);
        }
        let long = format!("hostname={}", "a".repeat(65));
        for text in [
            "",
            "hostname",
            "hostname=",
            "hostname=-a",
            "hostname=a b",
            "hostname=\u{e4}",
            &long,
            "user=-1",
            "user=root",
            "user=4294967295",
            "network=host",
            "listing=",
            "listing=-1",
            "color=red",
        ] {
            assert!(Variation::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_what_differs_is_told() {
        let mut guise = Guise::default();
        assert!(guise.varied().is_empty());
        guise.vary(&Variation::User(0));
        guise.vary(&Variation::Network(Shape::Loopback));
        assert_eq!(guise.varied(), BTreeMap::from([("user".to_owned(), "0".to_owned())]));
        assert_eq!((guise.user_name(), guise.home()), ("root", "/root"));
    }
}
