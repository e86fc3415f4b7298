//! What a check used of the host, as facts: which links lead there, what each file was, and whether it is that file still
//! or one with the same content. What a fact is and how the tree's are compared is `inputs`'.
#![forbid(unsafe_code)]

use crate::model::digest::Digest;
use crate::model::runner::Bind;
use crate::pipeline::contents::{Contents, Look, Looks};
use crate::pipeline::inputs::{Fact, below_tree, normal};
use crate::pipeline::links::Way;
use crate::sandbox::observer::{DEEP, LISTING};
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// An instant: seconds and nanoseconds since 1970.
pub(super) type Instant = (i64, i64);

/// Turns paths outside of the tree into facts about the host.
pub(super) struct Hosts<'a> {
    binds: &'a [Bind],
    /// When the run began, by the clock that file systems use.
    since: Instant,
    looks: Looks,
    /// Places that were looked at, each with its text if it is a link.
    links: HashMap<PathBuf, Option<Vec<u8>>>,
    /// When a folder last changed, for things that are missing in it.
    above: HashMap<PathBuf, Option<Instant>>,
    /// Something that changed while the check ran, so that nobody knows which of the two it saw.
    changed: Option<PathBuf>,
}

impl<'a> Hosts<'a> {
    pub(super) fn new(binds: &'a [Bind], since: Instant) -> Self {
        Self {
            binds,
            since,
            looks: Looks::default(),
            links: HashMap::new(),
            above: HashMap::new(),
            changed: None,
        }
    }

    /// What changed on the host while the check ran, if anything that it looked at did.
    pub(super) fn changed(&self) -> Option<&Path> {
        self.changed.as_deref()
    }

    /// Notes what a path, taken apart, stands for on the host, and each link on the way there.
    pub(super) fn note(&mut self, parts: &[&[u8]], kind: u8, facts: &mut BTreeSet<Fact>) {
        let mut way = Way::new(parts);
        while way.step() {
            let Some(host) = self.on_host(&way.at) else { continue };
            let Some(target) = self.link(&host) else { continue };
            facts.insert(Fact::HostLink(bytes(&host), target.clone()));
            if !way.follow(&normal(&target), target.first() == Some(&b'/')) {
                return;
            }
        }
        let at = way.at;
        let end: Vec<&[u8]> = at.iter().map(Vec::as_slice).collect();
        if below_tree(&end).is_none()
            && let Some(host) = self.on_host(&at)
        {
            let fact = self.fact(&host, kind);
            facts.insert(fact);
        }
    }

    /// Where the host has what the check sees at a place; `None` where it does not see the host there.
    fn on_host(&self, parts: &[Vec<u8>]) -> Option<PathBuf> {
        let inside = [&b"/"[..], &parts.join(&b'/')].concat();
        let inside = Path::new(OsStr::from_bytes(&inside));
        let shown = self.binds.iter().filter(|bind| inside.starts_with(&bind.inside));
        let bind = shown.max_by_key(|bind| bind.inside.as_os_str().len())?;
        let rest = inside.strip_prefix(&bind.inside).ok()?;
        Some(if rest.as_os_str().is_empty() { bind.host.clone() } else { bind.host.join(rest) })
    }

    fn link(&mut self, host: &Path) -> Option<Vec<u8>> {
        if let Some(known) = self.links.get(host) {
            return known.clone();
        }
        let target = std::fs::read_link(host).ok().map(|target| target.as_os_str().as_bytes().to_vec());
        self.links.insert(host.to_owned(), target.clone());
        target
    }

    fn fact(&mut self, host: &Path, kind: u8) -> Fact {
        let name = bytes(host);
        let Some(look) = self.looks.at(host) else {
            self.missing(host);
            return Fact::HostAbsent(name);
        };
        if look.is_folder() && kind & (LISTING | DEEP) == 0 {
            // Its other time changes with all that is put into it, which does not matter here.
            if look.born.is_none_or(|born| born >= self.since) && look.ctime >= self.since {
                self.changed = Some(host.to_owned());
            }
            return Fact::HostFolder(name);
        }
        if look.ctime >= self.since {
            self.changed = Some(host.to_owned());
        }
        Fact::HostStamp(name, look.stamp().to_vec())
    }

    /// Something is not there; it may have been while the check ran if the folder that it would be in has changed.
    fn missing(&mut self, host: &Path) {
        for folder in host.ancestors().skip(1) {
            let looks = &mut self.looks;
            let changed = *self
                .above
                .entry(folder.to_owned())
                .or_insert_with(|| looks.at(folder).map(|look| look.ctime));
            if let Some(changed) = changed {
                if changed >= self.since {
                    self.changed = Some(folder.to_owned());
                }
                return;
            }
        }
    }
}

/// Adds to each host file's stamp what its content is, as far as `contents` may read.
pub(super) fn with_contents(facts: BTreeSet<Fact>, contents: &mut Contents<'_>) -> BTreeSet<Fact> {
    let mut looks = Looks::default();
    let stamped = facts.iter().filter_map(|fact| match fact {
        Fact::HostStamp(path, _) => looks.at(&host_path(path)),
        _ => None,
    });
    let stamped: Vec<Look> = stamped.collect();
    contents.recall(&stamped);
    let mut looks = Looks::default();
    let mut with = |fact: Fact| match fact {
        Fact::HostStamp(path, mut value) => {
            let host = host_path(&path);
            if let Some(look) = looks.at(&host).filter(|look| value == look.stamp())
                && let Some(likeness) = contents.likeness(&host, &look)
            {
                value.extend(likeness.0);
            }
            Fact::HostStamp(path, value)
        }
        other => other,
    };
    facts.into_iter().map(&mut with).collect()
}

/// How a host file compares with what it was.
pub(super) enum Same {
    /// It is that very file.
    Yes,
    /// It is another; whether it is alike has to be read.
    Perhaps,
    /// It is not.
    No,
}

/// Compares what is at a place of the host with its stamp. `newest` is the latest time that the check is shown of a file
/// of the host, in seconds.
pub(super) fn compare(look: &Look, before: &[u8], newest: Option<i64>) -> Same {
    let (stamp, likeness) = before.split_at(before.len().min(Look::STAMP));
    if look.stamp() == stamp {
        Same::Yes
    } else if likeness.is_empty() || !look.may_be_like(stamp, newest) {
        Same::No
    } else {
        Same::Perhaps
    }
}

/// The stamp with which a file that is alike is recognised from now on; `None` where it is not alike.
pub(super) fn alike(contents: &mut Contents<'_>, path: &[u8], before: &[u8], look: &Look) -> Option<Vec<u8>> {
    let likeness: Digest = contents.likeness(&host_path(path), look)?;
    let new = [&look.stamp()[..], &likeness.0].concat();
    (before.get(Look::STAMP..) == new.get(Look::STAMP..)).then_some(new)
}

pub(super) fn host_path(path: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path))
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}
