//! Where control groups can be made: found by trying, on either hierarchy. What is done with them is the module's above.
#![forbid(unsafe_code)]

use crate::sandbox::cgroup::CgroupKind;
use std::fs;
use std::path::{Path, PathBuf};

/// Finds where groups can be made. `proc_self` and `root` are /proc/self and / but for tests.
#[must_use]
pub(in crate::sandbox) fn find(proc_self: &Path) -> CgroupKind {
    let mounts = fs::read_to_string(proc_self.join("mountinfo")).unwrap_or_default();
    let own = fs::read_to_string(proc_self.join("cgroup")).unwrap_or_default();
    if let Some(kind) = find_v2(&mounts, &own) {
        return kind;
    }
    let controller = |name: &str| find_v1(&mounts, &own, name);
    let (memory, pids, cpu) = (controller("memory"), controller("pids"), controller("cpu"));
    if memory.is_none() && pids.is_none() && cpu.is_none() {
        let why = if mounts.contains(" cgroup") {
            "no control group that this user may make groups in; under systemd: `systemd-run --user --scope -p Delegate=yes checkrun …`"
        } else {
            "no control group file system is mounted"
        };
        return CgroupKind::None(why.to_owned());
    }
    CgroupKind::V1 { memory, pids, cpu }
}

/// Walks up from our own group to the first in which a group with the memory and pids controllers can be made and
/// to which processes may be moved (cgroups(7), delegation: the common ancestor must be writable too).
fn find_v2(mounts: &str, own: &str) -> Option<CgroupKind> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let (mount_root, place) = mount_of(mounts, |kind, _| kind == "cgroup2")?;
    let relative = Path::new(path).strip_prefix(&mount_root).ok()?;
    let mut folder = place.join(relative);
    loop {
        let controllers = handed_down(&folder);
        if !controllers.is_empty() && may_make_groups(&folder) {
            return Some(CgroupKind::V2 { parent: folder, controllers });
        }
        if folder == place || !folder.pop() {
            return None;
        }
    }
}

/// The controllers that groups below this one get, among them memory or pids; empty where they get neither. Where that is
/// for us to change it is changed: in a group that is ours, with nobody in it or ourselves alone, who then move
/// to a group below, since a group that hands controllers down has no members (cgroups(7), no internal processes).
pub(super) fn handed_down(folder: &Path) -> Vec<String> {
    let read = |file: &str| -> Vec<String> {
        let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect()
    };
    let serves = |controllers: &[String]| controllers.iter().any(|it| it == "memory" || it == "pids");
    let handed = read("cgroup.subtree_control");
    if serves(&handed) {
        return handed;
    }
    let mut there = read("cgroup.controllers");
    there.retain(|it| ["cpu", "memory", "pids"].contains(&it.as_str()));
    // The machine's own first group, which has no type, is its administrator's to arrange.
    if !serves(&there) || !folder.join("cgroup.type").exists() {
        return Vec::new();
    }
    let own = std::process::id().to_string();
    match read("cgroup.procs").as_slice() {
        [] => {}
        [alone] if *alone == own => {
            let below = folder.join(format!("checkrun-{own}-self"));
            if fs::create_dir(&below).is_err() || fs::write(below.join("cgroup.procs"), "0").is_err() {
                drop(fs::remove_dir(&below));
                return Vec::new();
            }
        }
        _ => return Vec::new(),
    }
    let wish: Vec<String> = there.iter().map(|it| format!("+{it}")).collect();
    drop(fs::write(folder.join("cgroup.subtree_control"), wish.join(" ")));
    let handed = read("cgroup.subtree_control");
    if serves(&handed) { handed } else { Vec::new() }
}

fn find_v1(mounts: &str, own: &str, controller: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let named = parts.nth(1)?.split(',').any(|it| it == controller);
        named.then(|| parts.next()).flatten()
    })?;
    let named = |kind: &str, options: &str| kind == "cgroup" && options.split(',').any(|it| it == controller);
    let (mount_root, place) = mount_of(mounts, named)?;
    let folder = match Path::new(path).strip_prefix(&mount_root) {
        Ok(relative) => place.join(relative),
        // In a container the path may be the host's while the mount shows only our part of it.
        Err(_) => place,
    };
    may_make_groups(&folder).then_some(folder)
}

/// Root and place of the first mount that fits (proc(5), mountinfo: fields 4 and 5, then type and super options
/// behind the lone dash).
fn mount_of(mounts: &str, fits: impl Fn(&str, &str) -> bool) -> Option<(PathBuf, PathBuf)> {
    mounts.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let mut back = back.split(' ');
        let (kind, options) = (back.next()?, back.nth(1)?);
        let mut front = front.split(' ').skip(3);
        fits(kind, options).then(|| Some((PathBuf::from(front.next()?), PathBuf::from(front.next()?))))?
    })
}

/// By making one and removing it.
fn may_make_groups(folder: &Path) -> bool {
    let trial = folder.join(format!("checkrun-probe-{}", std::process::id()));
    if fs::create_dir(&trial).is_err() {
        return false;
    }
    let writable = fs::OpenOptions::new().write(true).open(trial.join("cgroup.procs")).is_ok();
    fs::remove_dir(&trial).is_ok() && writable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_by_field() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                      31 23 0:27 /docker/x /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let memory =
            mount_of(mounts, |kind, options| kind == "cgroup" && options.split(',').any(|it| it == "memory"));
        assert_eq!(memory, Some((PathBuf::from("/"), PathBuf::from("/sys/fs/cgroup/memory"))));
        let unified = mount_of(mounts, |kind, _| kind == "cgroup2");
        assert_eq!(unified, Some((PathBuf::from("/docker/x"), PathBuf::from("/sys/fs/cgroup/unified"))));
        assert_eq!(mount_of("", |_, _| true), None);
    }
}
