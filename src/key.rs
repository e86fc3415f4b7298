//! What a check is known by: the canonical encoding of an [`Action`] (its pre-image), the digest of it (its key) and
//! the coarser digests under which related records are found. Reading a pre-image back is `listing`'s.
//!
//! Nothing here opens a file, reads a clock or looks at the caller's environment: two equal actions have equal keys
//! wherever and whenever they are asked. Not part of a key: the commit, whether the tree is dirty, names and
//! descriptions of policies and runners, the reasons given for allowances, dates, and every place on the host that the
//! check does not see at that same place.
#![forbid(unsafe_code)]

mod listing;

pub use listing::{Asked, Difference, Field, Value, argv_of, asked, differences, fields};

use crate::model::check::{Action, Guard};
use crate::model::digest::{ActionKey, Digest};
use crate::model::layer::{Layer, Need};
use crate::model::policy::{Clock, GitView, Network, Policy, UMASK};
use crate::model::runner::{Bind, ResolvedRunner};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Version of the encoding, its first byte. It goes up whenever equal actions would get another pre-image, and whenever
/// checkrun changes what a check sees in a way that no field below tells.
///
/// - 1: first.
/// - 2: whether submodules and LFS files have their content.
pub const KEY_VERSION: u8 = 2;

/// A key and the bytes that it is the digest of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keyed {
    /// BLAKE3 of the pre-image.
    pub key: ActionKey,
    /// The canonical encoding: [`KEY_VERSION`], then named fields (see [`fields`]). Values of variables that the caller
    /// passed in are in it as digests only, since it is kept on disk.
    pub preimage: Vec<u8>,
}

/// Encodes everything that a result depends on.
#[must_use]
pub fn key_of(action: &Action) -> Keyed {
    let mut listing = Listing::new();
    listing.text("object_format", action.tree.format.name());
    listing.text("guard", action.guard.name());
    match (action.guard, &action.touched) {
        (Guard::Touches, Some(touched)) => listing.text("touched", &touched.hex()),
        // Without the id of the touched entries nothing narrower than the whole tree may stand for it.
        _ => listing.text("tree", &action.tree.tree.hex()),
    }
    without_tree(action, &mut listing);
    let preimage = listing.bytes;
    Keyed { key: ActionKey(Digest::of(&preimage)), preimage }
}

/// The digest of all but the tree: records that share it differ from each other in their trees only.
#[must_use]
pub fn weak_key(action: &Action) -> Digest {
    let mut listing = Listing::new();
    listing.text("kind", "weak");
    without_tree(action, &mut listing);
    Digest::of(&listing.bytes)
}

/// The digest of all but the tree and what identifies the toolchain: under it lie the sets of observed inputs, which say
/// themselves what of tree and host they depend on.
#[must_use]
pub fn inputs_key(action: &Action) -> Digest {
    let mut without = action.clone();
    without.runner.identity.clear();
    without.runner.toolchain.clear();
    let mut listing = Listing::new();
    listing.text("kind", "inputs");
    without_tree(&without, &mut listing);
    // A set names files by their place on the host. What of the host is shown at another place may be another folder next
    // time, of which the set says nothing.
    let moved = action.runner.binds.iter().filter(|bind| bind.host != bind.inside);
    let mut hosts: Vec<&[u8]> = moved.map(|bind| bind.host.as_os_str().as_bytes()).collect();
    hosts.sort_unstable();
    listing.list("runner.hosts", hosts.into_iter());
    Digest::of(&listing.bytes)
}

/// The digest of the command line and its folder alone: the widest net for an earlier record to compare with.
#[must_use]
pub fn command_key(action: &Action) -> Digest {
    let mut listing = Listing::new();
    listing.text("kind", "command");
    listing.list("argv", action.command.argv.iter().map(Vec::as_slice));
    listing.field("cwd", &action.command.cwd);
    Digest::of(&listing.bytes)
}

/// The digest of all of a policy that matters to a check, its limits and clock included. Name, description and the
/// reasons for allowances are left out, and so is the order of the latter: two policies that mean the same are the
/// same.
#[must_use]
pub fn policy_digest(policy: &Policy) -> Digest {
    let mut listing = Listing::new();
    listing.text("kind", "policy");
    of_policy(policy, &mut listing);
    Digest::of(&listing.bytes)
}

fn without_tree(action: &Action, listing: &mut Listing) {
    let command = &action.command;
    listing.set("scope", &action.scope);
    listing.text("submodules", if action.filled.submodules { "content" } else { "empty" });
    listing.text("lfs", if action.filled.lfs { "content" } else { "pointers" });
    listing.set("touches", &action.touches);
    listing.list("argv", command.argv.iter().map(Vec::as_slice));
    listing.field("cwd", &command.cwd);
    let sealed: BTreeMap<&[u8], [u8; 32]> =
        command.env.iter().map(|(name, value)| (name.as_slice(), Digest::of(value).0)).collect();
    listing.pairs("env", sealed.iter().map(|(name, value)| (*name, value.as_slice())));
    listing.number("require_tests", command.require_tests);
    listing.text("os", std::env::consts::OS);
    listing.text("arch", std::env::consts::ARCH);
    listing.text("level", action.level.name());
    listing.pairs(
        "layers",
        action.layers.iter().map(|(layer, word)| (layer.name().as_bytes(), word.as_bytes())),
    );
    if !action.deps.is_empty() {
        // Without any the field is left out: such a check is the same as ever.
        let mut deps: Vec<[u8; 32]> = action.deps.iter().map(|layer| layer.digest.0).collect();
        deps.sort_unstable();
        listing.list("deps", deps.iter().map(<[u8; 32]>::as_slice));
    }
    of_policy(&action.policy, listing);
    of_runner(&action.runner, &action.policy, listing);
}

fn of_policy(policy: &Policy, listing: &mut Listing) {
    listing.text("policy.level", policy.level.name());
    listing.text("policy.network", policy.network.name());
    if policy.network == Network::Hosts {
        let each = policy
            .hosts
            .iter()
            .map(|named| format!("{}{}", named.rule, if named.rule.private { ",private" } else { "" }));
        let hosts: BTreeSet<String> = each.collect();
        listing.list("policy.hosts", hosts.iter().map(String::as_bytes));
    }
    let needs: BTreeMap<Layer, &str> =
        policy.layers.iter().filter_map(|(layer, need)| Some((*layer, need_word(*need)?))).collect();
    listing
        .pairs("policy.layers", needs.iter().map(|(layer, need)| (layer.name().as_bytes(), need.as_bytes())));
    let limits = &policy.limits;
    listing.text("policy.timeout", &limits.timeout.as_nanos().to_string());
    listing.number("policy.memory", limits.memory.map(|bytes| bytes.0));
    listing.number("policy.pids", limits.pids);
    listing.number("policy.cpus_milli", limits.cpus_milli.map(u64::from));
    listing.number("policy.disk", Some(limits.disk.0));
    listing.number("policy.output", Some(limits.output.0));
    listing.text("policy.aslr", policy.aslr.name());
    // What is as it always was is not said, so that results from before there was a choice still answer.
    if policy.umask != UMASK {
        listing.text("policy.umask", &format!("{:03o}", policy.umask));
    }
    let varied = policy.guise.varied();
    if !varied.is_empty() {
        let pairs = varied.iter().map(|(input, value)| (input.as_bytes(), value.as_bytes()));
        listing.pairs("policy.varied", pairs);
    }
    match policy.clock {
        Clock::Fixed { start, mode } => {
            listing.text("policy.clock", mode.name());
            listing.text("policy.clock_start", &start.to_string());
        }
        Clock::Commit { mode } => {
            listing.text("policy.clock", mode.name());
            listing.text("policy.clock_start", "commit");
        }
        Clock::Host => listing.text("policy.clock", "host"),
    }
    listing.text(
        "policy.git",
        match policy.git {
            GitView::None => "none",
            GitView::Synthetic => "synthetic",
        },
    );
    let mut visible: BTreeMap<&[u8], bool> = BTreeMap::new();
    for entry in &policy.visible {
        // Named twice, a path is optional only if both entries say so.
        let optional = visible.entry(entry.path.as_os_str().as_bytes()).or_insert(true);
        *optional &= entry.optional;
    }
    listing.pairs(
        "policy.visible",
        visible.iter().map(|(path, optional)| {
            (*path, if *optional { b"optional".as_slice() } else { b"required".as_slice() })
        }),
    );
}

fn of_runner(runner: &ResolvedRunner, policy: &Policy, listing: &mut Listing) {
    listing.text("runner.digest", &runner.digest.to_string());
    listing.text("runner.toolchain", &runner.toolchain);
    let mut identity: Vec<(Vec<u8>, [u8; 32])> = runner
        .identity
        .iter()
        .map(|(path, digest)| (place_inside(path, &runner.binds, policy), digest.0))
        .collect();
    identity.sort();
    listing.pairs(
        "runner.identity",
        identity.iter().map(|(place, digest)| (place.as_slice(), digest.as_slice())),
    );
    let mut binds: Vec<&[u8]> = runner.binds.iter().map(|bind| bind.inside.as_os_str().as_bytes()).collect();
    binds.sort_unstable();
    listing.list("runner.binds", binds.into_iter());
    listing.list("runner.path", runner.path.iter().map(|path| path.as_os_str().as_bytes()));
    listing.pairs("runner.env", runner.env.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
}

/// Where the check sees a host file. A file that it does not see keeps only its own name: the folder that it lies in on
/// this machine must not decide.
fn place_inside(path: &Path, binds: &[Bind], policy: &Policy) -> Vec<u8> {
    let bind = binds
        .iter()
        .filter(|bind| path.starts_with(&bind.host))
        .max_by_key(|bind| bind.host.as_os_str().len());
    if let Some(bind) = bind {
        let rest = path.strip_prefix(&bind.host).unwrap_or(Path::new(""));
        let place = if rest.as_os_str().is_empty() { bind.inside.clone() } else { bind.inside.join(rest) };
        return place.as_os_str().as_bytes().to_vec();
    }
    if policy.visible.iter().any(|entry| path.starts_with(&entry.path)) {
        return path.as_os_str().as_bytes().to_vec();
    }
    path.file_name().unwrap_or_default().as_bytes().to_vec()
}

/// `Off` has no word: a layer that is off and a layer that is not named mean the same.
fn need_word(need: Need) -> Option<&'static str> {
    match need {
        Need::Require => Some("require"),
        Need::Prefer => Some("prefer"),
        Need::Off => None,
    }
}

/// Bytes in the making. Every name and value is preceded by its length and every value by its kind, so that no two
/// different lists of fields have the same bytes.
struct Listing {
    bytes: Vec<u8>,
}

impl Listing {
    fn new() -> Self {
        let mut bytes = Vec::with_capacity(2048);
        bytes.push(KEY_VERSION);
        Self { bytes }
    }

    fn head(&mut self, name: &str, kind: u8) {
        self.counted(name.as_bytes());
        self.bytes.push(kind);
    }

    fn field(&mut self, name: &str, value: &[u8]) {
        self.head(name, listing::KIND_BYTES);
        self.counted(value);
    }

    fn text(&mut self, name: &str, value: &str) {
        self.field(name, value.as_bytes());
    }

    fn number(&mut self, name: &str, value: Option<u64>) {
        match value {
            Some(value) => self.text(name, &value.to_string()),
            None => self.head(name, listing::KIND_ABSENT),
        }
    }

    /// Texts whose order and repetition mean nothing.
    fn set(&mut self, name: &str, values: &[String]) {
        let mut values: Vec<&[u8]> = values.iter().map(String::as_bytes).collect();
        values.sort_unstable();
        values.dedup();
        self.list(name, values.into_iter());
    }

    fn list<'a>(&mut self, name: &str, values: impl ExactSizeIterator<Item = &'a [u8]>) {
        self.head(name, listing::KIND_LIST);
        self.length(values.len());
        for value in values {
            self.counted(value);
        }
    }

    fn pairs<'a>(&mut self, name: &str, values: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])>) {
        self.head(name, listing::KIND_PAIRS);
        self.length(values.len());
        for (left, right) in values {
            self.counted(left);
            self.counted(right);
        }
    }

    fn counted(&mut self, value: &[u8]) {
        self.length(value.len());
        self.bytes.extend_from_slice(value);
    }

    /// A length in LEB128: seven bits a byte, lowest first, the top bit set on all but the last.
    fn length(&mut self, mut length: usize) {
        loop {
            let low = u8::try_from(length & 0x7f).unwrap_or(0);
            length >>= 7;
            if length == 0 {
                self.bytes.push(low);
                return;
            }
            self.bytes.push(low | 0x80);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
