//! Control groups: limits on memory, processes and processor time over a whole run, by whichever hierarchy the
//! machine lets us use. Reading what was used; nothing about what to do when a limit is hit.
#![forbid(unsafe_code)]

mod finding;

pub(super) use finding::find;

use crate::model::policy::Limits;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// How limits can be enforced here, found by trying (see `find`).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CgroupKind {
    /// A group of the unified hierarchy below which we may make groups, with these controllers handed down.
    V2 {
        /// The parent folder.
        parent: PathBuf,
        /// Controllers that children get.
        controllers: Vec<String>,
    },
    /// Folders of the old hierarchies below which we may make groups.
    V1 {
        /// Of the memory controller.
        memory: Option<PathBuf>,
        /// Of the pids controller.
        pids: Option<PathBuf>,
        /// Of the cpu controller.
        cpu: Option<PathBuf>,
    },
    /// None; the text says what stands in the way.
    None(String),
}

impl CgroupKind {
    /// Whether `controller` (`memory`, `pids`, `cpu`) can be limited.
    #[must_use]
    pub fn has(&self, controller: &str) -> bool {
        match self {
            Self::V2 { controllers, .. } => controllers.iter().any(|it| it == controller),
            Self::V1 { memory, pids, cpu } => match controller {
                "memory" => memory.is_some(),
                "pids" => pids.is_some(),
                "cpu" => cpu.is_some(),
                _ => false,
            },
            Self::None(_) => false,
        }
    }
}

/// What a group has counted.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Counted {
    /// The kernel has killed a process for want of memory within the limit.
    pub(super) ran_out_of_memory: bool,
    /// A process was refused by the limit.
    pub(super) ran_out_of_pids: bool,
    /// The most memory the group held, in bytes.
    pub(super) peak_memory: Option<u64>,
}

/// The groups of one run. Dropped, it kills what is left in them and removes them.
#[derive(Debug)]
pub(super) struct Group {
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    folders: Vec<PathBuf>,
    unified: bool,
    /// Tells of a lack of memory: an eventfd on the old hierarchy, the events file on the new one.
    pub(super) alarm: Option<OwnedFd>,
}

impl Group {
    /// Makes the groups and sets the limits.
    ///
    /// # Errors
    /// Where a folder cannot be made or a limit is refused; the message names the file.
    pub(super) fn create(kind: &CgroupKind, limits: &Limits, name: &str) -> io::Result<Option<Self>> {
        let mut group = match kind {
            CgroupKind::None(_) => return Ok(None),
            CgroupKind::V2 { parent, .. } => {
                // Nothing to do but where a group was made anew since it was found.
                drop(finding::handed_down(parent));
                let folder = parent.join(name);
                Self {
                    memory: Some(folder.clone()),
                    pids: Some(folder.clone()),
                    folders: vec![folder],
                    unified: true,
                    alarm: None,
                }
            }
            CgroupKind::V1 { memory, pids, cpu } => {
                let mut folders: Vec<PathBuf> = Vec::new();
                // A hierarchy in which nothing is limited gets no group: each costs a system call or three.
                let wanted = [
                    memory.as_ref().filter(|_| limits.memory.is_some()),
                    pids.as_ref().filter(|_| limits.pids.is_some()),
                    cpu.as_ref().filter(|_| limits.cpus_milli.is_some()),
                ];
                for parent in wanted.into_iter().flatten() {
                    let folder = parent.join(name);
                    if !folders.contains(&folder) {
                        folders.push(folder);
                    }
                }
                let named = |parent: Option<&PathBuf>| parent.map(|parent| parent.join(name));
                Self {
                    memory: named(wanted[0]),
                    pids: named(wanted[1]),
                    folders,
                    unified: false,
                    alarm: None,
                }
            }
        };
        for folder in &group.folders {
            fs::create_dir(folder).map_err(|error| named(folder, &error))?;
        }
        group.limit(kind, limits)?;
        group.alarm = group.watch_memory();
        Ok(Some(group))
    }

    fn limit(&self, kind: &CgroupKind, limits: &Limits) -> io::Result<()> {
        if let (Some(folder), Some(memory), true) = (&self.memory, limits.memory, kind.has("memory")) {
            let bytes = memory.0.to_string();
            if self.unified {
                write(folder, "memory.max", &bytes)?;
                // Without swap of its own a run cannot evade its limit; kernels without swap lack the file.
                optional(write(folder, "memory.swap.max", "0"))?;
                write(folder, "memory.oom.group", "1")?;
            } else {
                write(folder, "memory.limit_in_bytes", &bytes)?;
                optional(write(folder, "memory.memsw.limit_in_bytes", &bytes))?;
            }
        }
        if let (Some(folder), Some(pids), true) = (&self.pids, limits.pids, kind.has("pids")) {
            // One more for our init, which is in the group too.
            write(folder, "pids.max", &pids.saturating_add(1).to_string())?;
        }
        if let (Some(milli), true) = (limits.cpus_milli, kind.has("cpu")) {
            let quota = (u64::from(milli) * 100).max(1000).to_string();
            let folder = self.folders.last().map_or_else(PathBuf::new, Clone::clone);
            if self.unified {
                write(&folder, "cpu.max", &format!("{quota} 100000"))?;
            } else {
                write(&folder, "cpu.cfs_period_us", "100000")?;
                write(&folder, "cpu.cfs_quota_us", &quota)?;
            }
        }
        Ok(())
    }

    fn watch_memory(&self) -> Option<OwnedFd> {
        let folder = self.memory.as_ref()?;
        if self.unified {
            return fs::File::open(folder.join("memory.events")).ok().map(OwnedFd::from);
        }
        let alarm = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
        let control = fs::File::open(folder.join("memory.oom_control")).ok()?;
        write(folder, "cgroup.event_control", &format!("{} {}", alarm.as_raw_fd(), control.as_raw_fd()))
            .ok()?;
        Some(alarm)
    }

    /// Moves a process in, where it cannot enter by itself; those it starts later follow.
    ///
    /// # Errors
    /// What write(2) says, with the file named.
    pub(super) fn add(&self, pid: i32) -> io::Result<()> {
        if !self.unified {
            return Ok(());
        }
        self.folders.iter().try_for_each(|folder| write(folder, "cgroup.procs", &pid.to_string()))
    }

    /// Lists of members by which a process with one thread enters by itself (see [`enter`]), on the old hierarchies.
    /// To move another, or a whole process, the kernel waits until no process of the machine forks or ends, which takes
    /// milliseconds; for the calling thread alone it does not (`cgroup_procs_write_start` in kernel/cgroup/cgroup.c).
    ///
    /// # Errors
    /// What open(2) says, with the file named.
    pub(super) fn doors(&self) -> io::Result<Vec<OwnedFd>> {
        let open = |folder: &PathBuf| {
            let path = folder.join("tasks");
            let file = fs::OpenOptions::new().write(true).open(&path);
            file.map(OwnedFd::from).map_err(|error| named(&path, &error))
        };
        let folders = if self.unified { &[] } else { self.folders.as_slice() };
        folders.iter().map(open).collect()
    }

    /// What the group has counted so far.
    pub(super) fn counted(&self) -> Counted {
        Counted {
            ran_out_of_memory: self.ran_out_of_memory(),
            ran_out_of_pids: self.ran_out_of_pids(),
            peak_memory: self.peak_memory(),
        }
    }

    /// True once the kernel has killed a process for want of memory within the limit.
    fn ran_out_of_memory(&self) -> bool {
        let Some(folder) = &self.memory else { return false };
        let file = if self.unified { "memory.events" } else { "memory.oom_control" };
        counter(folder, file, "oom_kill") > 0
    }

    /// True where the group wants more memory than it may have, or a process of it was killed for that.
    pub(super) fn is_out_of_memory(&self) -> bool {
        // The old hierarchy raises its alarm before it kills (memory.oom_control: under_oom).
        let stuck =
            |folder: &PathBuf| !self.unified && counter(folder, "memory.oom_control", "under_oom") > 0;
        self.ran_out_of_memory() || self.memory.as_ref().is_some_and(stuck)
    }

    /// True once a process was refused by the limit.
    fn ran_out_of_pids(&self) -> bool {
        self.pids.as_ref().is_some_and(|folder| counter(folder, "pids.events", "max") > 0)
    }

    /// The most memory the group held, in bytes.
    fn peak_memory(&self) -> Option<u64> {
        let file = if self.unified { "memory.peak" } else { "memory.max_usage_in_bytes" };
        fs::read_to_string(self.memory.as_ref()?.join(file)).ok()?.trim().parse().ok()
    }
}

/// Enters the group that a list of members belongs to, with the calling thread and all that it starts later.
///
/// # Errors
/// What write(2) says.
pub(super) fn enter(door: &OwnedFd) -> io::Result<()> {
    rustix::io::write(door, b"0").map(drop).map_err(Into::into)
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.unified {
            for folder in &self.folders {
                // Linux 5.14; without it the PID namespace's end has killed everything already.
                drop(write(folder, "cgroup.kill", "1"));
            }
        }
        for folder in &self.folders {
            for _ in 0..200 {
                match fs::remove_dir(folder) {
                    Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                    _ => break,
                }
            }
        }
    }
}

/// Removes groups of checkruns that were killed (see [`sweep_below`]) beside those of this kind.
pub(super) fn sweep(kind: &CgroupKind) {
    let parents = match kind {
        CgroupKind::V2 { parent, .. } => [Some(parent), None, None],
        CgroupKind::V1 { memory, pids, cpu } => [memory.as_ref(), pids.as_ref(), cpu.as_ref()],
        CgroupKind::None(_) => [None; 3],
    };
    parents.into_iter().flatten().for_each(|parent| sweep_below(parent));
}

/// Removes the groups that are named by a pid that is no more. A group with processes in it cannot be removed (rmdir
/// gives EBUSY), so nothing alive is ever hit.
fn sweep_below(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.strip_prefix("checkrun-")?.split('-').next()?.parse::<i32>().ok());
        if let Some(pid) = pid
            && !Path::new("/proc").join(pid.to_string()).exists()
        {
            drop(fs::remove_dir(entry.path()));
        }
    }
}

fn counter(folder: &Path, file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
}

fn write(folder: &Path, file: &str, text: &str) -> io::Result<()> {
    let path = folder.join(file);
    fs::write(&path, text).map_err(|error| named(&path, &error))
}

fn optional(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
