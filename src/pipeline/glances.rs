//! Looks at what a set says of the host, while something else is done: a look is a system call of some microseconds, and a
//! run of a compiler leaves thousands of them to be repeated. Each group of facts is looked at where it lies, by whichever
//! thread comes to it. What is made of a difference, and content, is `comparing`'s.
#![forbid(unsafe_code)]

use crate::pipeline::contents::Look;
use crate::pipeline::hosts::{self, Same};
use crate::pipeline::inputs::Fact;
use crate::pipeline::kept_set::{Group, Item, Sort};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::sched_getaffinity;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Facts for which one more thread pays: to start one takes as long as some dozens of looks.
const MANY: usize = 256;
/// Most threads beside this one; by then they wait for each other's locks in the kernel.
const HELPERS: usize = 7;
/// Facts of a folder from which on it is opened: that, and to close it again, takes as long as some of their paths.
const SOME: usize = 4;

/// What looking came to.
#[derive(Default)]
pub(super) struct Glanced<'b> {
    /// The first that does not hold.
    pub(super) differs: Option<Unlike>,
    /// Files that are others, and whose content has to be read to tell whether they are alike; in their order where nothing
    /// differs.
    pub(super) others: Vec<Other<'b>>,
}

/// What does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Unlike {
    /// This.
    Fact(Fact),
    /// Nobody knows: the set cannot be read.
    Unreadable,
}

/// Another file than it was.
pub(super) struct Other<'b> {
    group: usize,
    pub(super) path: Vec<u8>,
    /// The value of its fact.
    pub(super) before: &'b [u8],
    pub(super) look: Look,
}

/// Does `work` and compares groups about the host meanwhile, with more threads where facts are many. Where `work` says that
/// it does not matter any more (`false`), what is left is not looked at. `newest` is the latest time that a check is shown
/// of a file of the host, in seconds.
pub(super) fn beside<'b, T>(
    groups: &[Group<'b>],
    newest: Option<i64>,
    work: impl FnOnce() -> (T, bool),
) -> (T, Glanced<'b>) {
    let next = AtomicUsize::new(0);
    // Groups from here on do not matter. They are taken in order, so what is before a difference is compared by somebody.
    let end = AtomicUsize::new(groups.len());
    let glance = || {
        let mut stand = Stand::default();
        let mut others = Vec::new();
        let mut differs = None;
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(group) = groups.get(at).filter(|_| at < end.load(Ordering::Relaxed)) else { break };
            if let Some(unlike) = stand.first_difference((at, group), newest, &mut others) {
                end.fetch_min(at, Ordering::Relaxed);
                differs = Some((at, unlike));
                break;
            }
        }
        (differs, others)
    };
    let (done, parts) = std::thread::scope(|scope| {
        // Where no thread can be had, those that there are look at them all.
        let helpers: Vec<_> = (0..helpers(groups))
            .map_while(|_| std::thread::Builder::new().spawn_scoped(scope, glance).ok())
            .collect();
        let (done, goes_on) = work();
        if !goes_on {
            end.store(0, Ordering::Relaxed);
        }
        let mut parts = vec![glance()];
        // A thread that was lost has not said what it saw.
        let lost = || (Some((0, Unlike::Unreadable)), Vec::new());
        parts.extend(helpers.into_iter().map(|helper| helper.join().unwrap_or_else(|_| lost())));
        (done, parts)
    });
    let mut glanced = Glanced::default();
    let mut first = usize::MAX;
    for (differs, others) in parts {
        glanced.others.extend(others);
        if let Some((at, unlike)) = differs.filter(|(at, _)| *at < first) {
            first = at;
            glanced.differs = Some(unlike);
        }
    }
    glanced.others.sort_by_key(|other| other.group);
    (done, glanced)
}

/// How many threads beside this one are worth it.
fn helpers(groups: &[Group<'_>]) -> usize {
    let facts: usize = groups.iter().map(|group| group.items().count()).sum();
    if facts < MANY {
        return 0;
    }
    // With one processor, one more thread is one more to wait for.
    let processors = sched_getaffinity(None).map_or(1, |set| set.count());
    (facts / MANY).min(usize::try_from(processors).unwrap_or(1).saturating_sub(1)).min(HELPERS)
}

/// Where a thread looks from.
#[derive(Default)]
struct Stand<'b> {
    folder: Option<(&'b [u8], OwnedFd)>,
    path: Vec<u8>,
}

impl<'b> Stand<'b> {
    /// The first fact of a group that does not hold, which may be that its rest cannot be read.
    fn first_difference(
        &mut self,
        (at, group): (usize, &Group<'b>),
        newest: Option<i64>,
        others: &mut Vec<Other<'b>>,
    ) -> Option<Unlike> {
        if self.folder.as_ref().is_none_or(|(known, _)| *known != group.folder) {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let pays = group.items().nth(SOME - 1).is_some();
            // Where it cannot be opened, each name says by itself why not.
            let opened = pays.then(|| rustix::fs::open(group.folder, flags, Mode::empty()).ok()).flatten();
            self.folder = opened.map(|fd| (group.folder, fd));
        }
        for item in group.items() {
            let Some(item) = item else { return Some(Unlike::Unreadable) };
            match self.compare(group, &item, newest) {
                (Same::Yes, _) => {}
                (Same::Perhaps, Some(look)) => {
                    let path = group.path(item.name);
                    others.push(Other { group: at, path, before: item.value, look });
                }
                (Same::Perhaps | Same::No, _) => {
                    return Some(group.fact(&item).map_or(Unlike::Unreadable, Unlike::Fact));
                }
            }
        }
        None
    }

    fn compare(&mut self, group: &Group<'b>, item: &Item<'b>, newest: Option<i64>) -> (Same, Option<Look>) {
        let (above, name) = match &self.folder {
            Some((_, fd)) if !item.name.is_empty() => (fd.as_fd(), item.name),
            _ => {
                self.path.clear();
                self.path.extend_from_slice(group.folder);
                self.path.extend_from_slice(item.name);
                (CWD, self.path.as_slice())
            }
        };
        let is = |holds| if holds { Same::Yes } else { Same::No };
        if group.sort == Sort::HostLink {
            return (is(leads_to(above, name, item.value)), None);
        }
        match (group.sort, Look::from(above, name)) {
            (Sort::HostAbsent, look) => (is(look.is_err_and(is_nothing)), None),
            (Sort::HostFolder, Ok(look)) => (is(look.is_folder()), None),
            (Sort::HostStamp, Ok(look)) => (hosts::compare(&look, item.value, newest), Some(look)),
            // Nothing is there; and facts about the tree are not here.
            _ => (Same::No, None),
        }
    }
}

/// Whether an error says that nothing can be found at a path, and not that looking failed.
fn is_nothing(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::PERM | Errno::NAMETOOLONG
    )
}

fn leads_to(above: BorrowedFd<'_>, name: &[u8], before: &[u8]) -> bool {
    rustix::fs::readlinkat(above, name, Vec::new()).is_ok_and(|now| now.as_bytes() == before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::contents::Looks;
    use crate::pipeline::kept_set::{KeptSet, encode_unplaced};
    use std::collections::BTreeSet;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    fn looked_at(facts: &BTreeSet<Fact>, goes_on: bool) -> (Option<Unlike>, Vec<Vec<u8>>) {
        let bytes = encode_unplaced(facts).unwrap();
        let set = KeptSet::read(&bytes).expect("whole");
        let (done, glanced) = beside(set.parts().1, None, || (7, goes_on));
        assert_eq!(done, 7);
        (glanced.differs, glanced.others.into_iter().map(|other| other.path).collect())
    }

    fn stamp(path: &Path) -> Fact {
        let look = Looks::default().at(path).expect("it was made");
        Fact::HostStamp(path.as_os_str().as_bytes().to_vec(), look.stamp().to_vec())
    }

    /// Folders of one, few and many files, with things that are missing, and links.
    fn some_files(top: &Path) -> BTreeSet<Fact> {
        let mut facts = BTreeSet::new();
        for (folder, count) in [1, 3, 4, 64, 65, 200, 300].into_iter().enumerate() {
            let folder = top.join(format!("d{folder}"));
            std::fs::create_dir(&folder).unwrap();
            for file in 0..count {
                let path = folder.join(format!("f{file}"));
                std::fs::write(&path, "x").unwrap();
                facts.insert(stamp(&path));
            }
            std::os::unix::fs::symlink("nowhere", folder.join("link")).unwrap();
            let bytes = |name: &str| folder.join(name).as_os_str().as_bytes().to_vec();
            facts.insert(Fact::HostLink(bytes("link"), b"nowhere".to_vec()));
            facts.extend([Fact::HostAbsent(bytes("none")), Fact::HostAbsent(bytes("f0/none"))]);
            facts.insert(Fact::HostFolder(folder.as_os_str().as_bytes().to_vec()));
        }
        facts.insert(Fact::HostFolder(b"/".to_vec()));
        facts
    }

    #[test]
    fn whatever_differs_is_found_also_at_the_end_of_each_group() {
        let top = tempfile::tempdir().unwrap();
        let facts = some_files(top.path());
        assert_eq!(looked_at(&facts, true), (None, Vec::new()));
        let bytes = encode_unplaced(&facts).unwrap();
        let set = KeptSet::read(&bytes).unwrap();
        assert!(set.parts().1.len() > 20);
        for group in set.parts().1 {
            let items: Vec<_> = group.items().map(Option::unwrap).collect();
            for item in [items.first().unwrap(), items.last().unwrap()] {
                let was = group.fact(item).unwrap();
                let path = group.path(item.name);
                let wrong = match &was {
                    Fact::HostStamp(path, stamp) => {
                        let mut stamp = stamp.clone();
                        stamp[63] ^= 1;
                        Fact::HostStamp(path.clone(), stamp)
                    }
                    Fact::HostLink(path, _) => Fact::HostLink(path.clone(), b"elsewhere".to_vec()),
                    Fact::HostAbsent(_) if path.ends_with(b"f0/none") => continue,
                    Fact::HostAbsent(_) => {
                        Fact::HostAbsent([path.strip_suffix(b"none").unwrap(), b"f0"].concat())
                    }
                    _ if path == b"/" => continue,
                    _ => Fact::HostFolder([&path[..], b"/f0"].concat()),
                };
                let mut changed = facts.clone();
                changed.remove(&was);
                changed.insert(wrong.clone());
                assert_eq!(looked_at(&changed, true), (Some(Unlike::Fact(wrong)), Vec::new()));
            }
        }
    }

    #[test]
    fn of_several_differences_the_first_is_told_and_none_where_it_does_not_matter() {
        let top = tempfile::tempdir().unwrap();
        let mut facts = some_files(top.path());
        let path = |name: &str| top.path().join(name).as_os_str().as_bytes().to_vec();
        for name in ["d6/f99", "d4/f5", "d5/f7"] {
            facts.remove(&stamp(&top.path().join(name)));
            facts.insert(Fact::HostStamp(path(name), vec![0; Look::STAMP]));
        }
        let first = Fact::HostStamp(path("d4/f5"), vec![0; Look::STAMP]);
        for _ in 0..20 {
            assert_eq!(looked_at(&facts, true).0, Some(Unlike::Fact(first.clone())));
        }
        looked_at(&facts, false);
    }

    #[test]
    fn a_file_in_the_place_of_another_is_left_to_be_read() {
        let top = tempfile::tempdir().unwrap();
        let mut facts = some_files(top.path());
        let mut expected = Vec::new();
        for name in ["d3/f9", "d5/f7"] {
            let fact = stamp(&top.path().join(name));
            facts.remove(&fact);
            let Fact::HostStamp(path, mut stamp) = fact else { unreachable!() };
            // Another inode, and what it must be like.
            stamp[8] ^= 1;
            stamp.extend([5; 32]);
            expected.push(path.clone());
            facts.insert(Fact::HostStamp(path, stamp));
        }
        assert_eq!(looked_at(&facts, true), (None, expected));
    }

    #[test]
    fn a_set_that_cannot_be_read_to_its_end_does_not_hold() {
        let facts: BTreeSet<Fact> =
            [Fact::HostAbsent(b"/no/a".to_vec()), Fact::HostAbsent(b"/no/b".to_vec())].into();
        let mut bytes = encode_unplaced(&facts).unwrap();
        // The last name is said to be longer than its group.
        let at = bytes.len() - 3;
        bytes[at] = 9;
        let set = KeptSet::read(&bytes).expect("its groups are whole");
        assert_eq!(beside(set.parts().1, None, || ((), true)).1.differs, Some(Unlike::Unreadable));
    }
}
