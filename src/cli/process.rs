//! What a check's first process starts with, beside its environment: options that few ask for. What they come to is `request`'s.
#![forbid(unsafe_code)]

use crate::model::guise::Variation;
use crate::model::policy::Aslr;
use clap::{Args, ValueEnum};

/// Options that many commands have.
#[derive(Debug, Args)]
pub(super) struct ProcessArgs {
    /// on or off: random addresses [default: the policy's]
    #[arg(long, value_enum, value_name = "MODE", help_heading = "Sandbox")]
    pub(super) aslr: Option<AslrName>,
    /// Modes that new files lack, in octal [default: 022]
    #[arg(long, value_name = "MASK", value_parser = mask, help_heading = "Sandbox")]
    pub(super) umask: Option<u32>,
    /// Other hostname, user, network, listing (repeatable)
    ///
    /// `hostname=NAME`; `user=NUMBER`, such as 0 or 65534; `network=blackhole`, where what is sent elsewhere vanishes and
    /// connections hang, or `network=ipv4`, without IPv6; `listing=ascending`, `descending` or a number to shuffle by, the
    /// order in which the folders of the tree list what is in them. Part of the key.
    #[arg(long, value_name = "INPUT=VALUE", value_parser = Variation::parse, help_heading = "Sandbox")]
    pub(super) vary: Vec<Variation>,
}

/// `--aslr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum AslrName {
    /// As the kernel does by default
    On,
    /// The same addresses each time
    Off,
}

impl From<AslrName> for Aslr {
    fn from(name: AslrName) -> Self {
        match name {
            AslrName::On => Self::On,
            AslrName::Off => Self::Off,
        }
    }
}

/// Three digits at most, each from 0 to 7.
fn mask(text: &str) -> Result<u32, String> {
    let is_octal = (1..=4).contains(&text.len()) && text.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
    match u32::from_str_radix(text, 8) {
        Ok(mask) if is_octal && mask <= 0o777 => Ok(mask),
        _ => Err(format!("`{text}` is no mask of permissions; it is octal, from 000 to 777, such as 077")),
    }
}
