//! What this machine offers, found out by using it: each layer is tried in a throw-away process, since a flag that
//! can be set or a call that returns is no proof (some systems make the namespace and take its powers away). Shared
//! by every run and by `doctor`. No decision is made here.
#![forbid(unsafe_code)]

use crate::model::guise::CHECK_UID;
use crate::model::layer::{Layer, LayerState, Level};
use crate::sandbox::cgroup::{self, CgroupKind};
use crate::sandbox::plan::HostUser;
use crate::sandbox::wire::{At, Failure, Step};
use crate::sandbox::{SandboxError, clock, landlock_rules, supervisor, sys, trials};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;

/// The host user that a privileged caller's checks run as: a number that no distribution hands out, so that no
/// file and no process on the machine is theirs.
pub const SANDBOX_HOST_ID: u32 = 2_100_000_000;

/// What a machine, a user and a surrounding container offer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Abilities {
    /// Who a check would be on the host.
    pub user: HostUser,
    /// The state each layer would have at level `full`.
    pub layers: BTreeMap<Layer, LayerState>,
    /// Whether the tree can be an overlay; else why not.
    pub overlay: Result<(), String>,
    /// Whether system calls can be answered from outside, which the clock and observing need; else why not.
    pub listener: Result<(), String>,
    /// The Landlock ABI, 0 where there is none.
    pub landlock_abi: u32,
    /// Where groups can be made.
    pub cgroup: CgroupKind,
}

impl Abilities {
    /// The state that `layer` would have at `level`.
    #[must_use]
    pub fn state(&self, layer: Layer, level: Level) -> LayerState {
        let full = self.layers.get(&layer).cloned().unwrap_or(LayerState::Off);
        if level == Level::Full {
            return full;
        }
        match layer {
            Layer::Landlock | Layer::Seccomp | Layer::Memory | Layer::Cpus => full,
            Layer::Net => LayerState::Partial("internet sockets are refused, loopback too".to_owned()),
            Layer::Pids if self.cgroup.has("pids") => LayerState::Enforced,
            _ => LayerState::Unavailable("level `landlock` has no means for it".to_owned()),
        }
    }
}

/// Who a check is on the host: the caller, unless that is root; then a user that owns nothing. `uid_map` is the text
/// of /proc/self/uid_map, `uid` and `gid` are the caller's effective ones.
///
/// # Errors
/// Where root is the only user that there is.
pub fn host_user(uid: u32, gid: u32, uid_map: &str) -> Result<HostUser, String> {
    if uid != 0 {
        return Ok(HostUser { uid, gid, switch: false });
    }
    let extents: Vec<(u32, u32, u32)> = uid_map
        .lines()
        .filter_map(|line| {
            let mut numbers = line.split_whitespace().map(str::parse::<u32>);
            Some((numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?))
        })
        .collect();
    let mapped = |id: u32| extents.iter().any(|(first, _, count)| id >= *first && id - first < *count);
    if mapped(SANDBOX_HOST_ID) {
        return Ok(HostUser { uid: SANDBOX_HOST_ID, gid: SANDBOX_HOST_ID, switch: true });
    }
    // A container with few ids: the last one below the overflow id is the least likely to be somebody's.
    if let Some(id) = (1000..65534).rev().find(|id| mapped(*id)) {
        return Ok(HostUser { uid: id, gid: id, switch: true });
    }
    match extents.first() {
        // Root of a user namespace that maps nobody else is an ordinary user outside of it.
        Some((0, outer, _)) if *outer != 0 => Ok(HostUser { uid, gid, switch: false }),
        _ => Err("root is the only user id here, and a check is never run as the machine's root".to_owned()),
    }
}

/// Insists on a /proc that shows this process under its own number. In that of another PID namespace a process of the
/// sandbox would be taken for whoever has its number there.
///
/// # Errors
/// There is none, or it is another's.
pub fn require_own_proc() -> Result<(), SandboxError> {
    let own = std::process::id().to_string();
    match std::fs::read_link("/proc/self") {
        Ok(number) if number.as_os_str() == own.as_str() => Ok(()),
        Ok(_) => Err(SandboxError::Proc { why: "is that of another PID namespace" }),
        Err(_) => Err(SandboxError::Proc { why: "is not mounted" }),
    }
}

/// Tries everything once; takes a few milliseconds.
///
/// # Errors
/// Where no process can be started to try it in, or root is the only user.
pub fn probe() -> Result<Abilities, SandboxError> {
    let uid_map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let user = host_user(uid, gid, &uid_map).map_err(|why| SandboxError::Missing {
        policy: "any".to_owned(),
        missing: vec![(Layer::User, why)],
    })?;
    let tried = try_namespaces(user)?;
    let mut layers = tried.layers;
    let landlock_abi = sys::landlock_abi().unwrap_or(0);
    layers.insert(Layer::Landlock, landlock_state(landlock_abi));
    let group = cgroup::find(Path::new("/proc/self"));
    let no_group = match &group {
        CgroupKind::None(why) => why.clone(),
        _ => "its controller is not handed to this user's groups".to_owned(),
    };
    for (layer, controller) in [(Layer::Memory, "memory"), (Layer::Cpus, "cpu"), (Layer::Pids, "pids")] {
        let state = if group.has(controller) {
            LayerState::Enforced
        } else if layer == Layer::Pids {
            LayerState::Partial("by RLIMIT_NPROC, counted per user namespace".to_owned())
        } else {
            LayerState::Unavailable(no_group.clone())
        };
        layers.insert(layer, state);
    }
    layers.insert(Layer::Disk, LayerState::Enforced);
    Ok(Abilities {
        user,
        layers,
        overlay: tried.overlay,
        listener: tried.listener,
        landlock_abi,
        cgroup: group,
    })
}

fn landlock_state(abi: u32) -> LayerState {
    let lacks = landlock_rules::lacks(abi);
    if abi == 0 {
        LayerState::Unavailable("the kernel has no Landlock, or `lsm=` at boot leaves it out".to_owned())
    } else if lacks.is_empty() {
        LayerState::Enforced
    } else {
        LayerState::Partial(format!("ABI {abi} lacks {}", lacks.join(", ")))
    }
}

/// What the throw-away process found.
#[derive(Serialize, Deserialize)]
struct Tried {
    layers: BTreeMap<Layer, LayerState>,
    overlay: Result<(), String>,
    listener: Result<(), String>,
}

fn try_namespaces(user: HostUser) -> Result<Tried, SandboxError> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).at(Step::Channel, "pipe")?;
    match sys::fork().at(Step::Fork, "probe")? {
        sys::Forked::Child => {
            drop(read);
            let text = serde_json::to_vec(&try_in_child(user)).unwrap_or_default();
            let _ = rustix::io::write(&write, &text);
            sys::exit_now(0)
        }
        sys::Forked::Parent(pid) => {
            drop(write);
            let mut text = Vec::new();
            drop(std::fs::File::from(read).read_to_end(&mut text));
            drop(sys::wait(pid, true));
            serde_json::from_slice(&text).map_err(|_| SandboxError::Lost)
        }
    }
}

fn try_in_child(user: HostUser) -> Tried {
    let mut layers = BTreeMap::new();
    let mut overlay = Err("no mount namespace".to_owned());
    let entered = enter_user_namespace(user);
    let user_state = match &entered {
        Ok(()) => LayerState::Enforced,
        Err(failure) => LayerState::Unavailable(why_no_namespaces(failure, user)),
    };
    layers.insert(Layer::User, user_state);
    // Before there is a PID namespace, whose first process our helper would be.
    let vdso = clock::possible();
    for (layer, flag) in [
        (Layer::Mount, libc::CLONE_NEWNS),
        (Layer::Net, libc::CLONE_NEWNET),
        (Layer::Ipc, libc::CLONE_NEWIPC),
        (Layer::Uts, libc::CLONE_NEWUTS),
        (Layer::Cgroup, libc::CLONE_NEWCGROUP),
        (Layer::Time, libc::CLONE_NEWTIME),
        (Layer::Pid, libc::CLONE_NEWPID),
    ] {
        let state = if entered.is_err() {
            LayerState::Unavailable("no user namespace".to_owned())
        } else {
            match sys::unshare(flag) {
                Ok(()) => use_namespace(layer, &mut overlay),
                Err(error) => LayerState::Unavailable(error.to_string()),
            }
        };
        layers.insert(layer, state);
    }
    let listener = try_listener();
    let clock = vdso.and_then(|()| listener.clone());
    layers.insert(Layer::Clock, clock.map_or_else(LayerState::Unavailable, |()| LayerState::Enforced));
    layers.insert(Layer::Seccomp, try_filter());
    Tried { layers, overlay, listener }
}

fn enter_user_namespace(user: HostUser) -> Result<(), Failure> {
    if user.switch {
        sys::become_user(user.uid, user.gid).at(Step::SwitchUser, "")?;
        sys::prctl(libc::PR_SET_DUMPABLE, 1).at(Step::SwitchUser, "")?;
    }
    sys::unshare(libc::CLONE_NEWUSER).at(Step::Namespaces, "")?;
    supervisor::map_user(CHECK_UID, user.uid, user.gid)
}

/// Does with a namespace what a run would.
fn use_namespace(layer: Layer, overlay: &mut Result<(), String>) -> LayerState {
    let used: Result<(), String> = match layer {
        Layer::Mount => {
            let (mounted, overlaid) = trials::try_mounts();
            *overlay = overlaid;
            mounted.map_err(|error| {
                let cause = if restricted_by_apparmor() {
                    APPARMOR
                } else {
                    "a security module may take its powers away, or Landlock forbids it: inside another checkrun its `--policy nested` lets you"
                };
                format!("it can be made but not used, mounting is refused ({error}); {cause}")
            })
        }
        Layer::Net => {
            sys::bring_loopback_up().map_err(|error| format!("loopback cannot be brought up: {error}"))
        }
        Layer::Uts => rustix::system::sethostname(b"checkrun").map_err(|error| error.to_string()),
        Layer::Pid => return try_proc(),
        _ => Ok(()),
    };
    used.map_or_else(LayerState::Unavailable, |()| LayerState::Enforced)
}

/// A process of the new PID namespace mounts its /proc.
fn try_proc() -> LayerState {
    match sys::fork() {
        Ok(sys::Forked::Child) => sys::exit_now(match trials::try_proc() {
            Ok(true) => 0,
            Ok(false) => 1,
            Err(_) => 2,
        }),
        Ok(sys::Forked::Parent(pid)) => match sys::wait(pid, true).ok().flatten().map(|waited| waited.ending) {
            Some(Ok(0)) => LayerState::Enforced,
            Some(Ok(1)) => LayerState::Partial(
                "/proc shows processes only, since the one outside is partly covered (a container's mask)".to_owned(),
            ),
            _ => LayerState::Unavailable(
                "/proc cannot be mounted since the one outside is partly covered; in Docker: `--security-opt systempaths=unconfined`"
                    .to_owned(),
            ),
        },
        Err(error) => LayerState::Unavailable(error.to_string()),
    }
}

/// A filter that lets everything pass.
const ALLOW_ALL: [sys::Instruction; 1] =
    [sys::Instruction { code: 0x06, jump_true: 0, jump_false: 0, operand: 0x7fff_0000 }];

fn try_filter() -> LayerState {
    let tried = sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1).and_then(|_| sys::install_filter(&ALLOW_ALL, 0));
    match tried {
        Ok(_) => LayerState::Enforced,
        Err(error) => LayerState::Unavailable(format!("seccomp filters are refused: {error}")),
    }
}

/// Questions about system calls come by a filter with a listener, of which a process tree can have one only
/// (seccomp(2), `SECCOMP_FILTER_FLAG_NEW_LISTENER`, EBUSY).
fn try_listener() -> Result<(), String> {
    let listening = sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
        .and_then(|_| sys::install_filter(&ALLOW_ALL, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER));
    match listening {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Err(
            "another program answers system calls here already, as inside another checkrun, and there can be one only"
                .to_owned(),
        ),
        Err(error) => Err(format!("system calls cannot be answered from outside: {error}")),
    }
}

/// What Ubuntu does since 23.10, and the remedy.
const APPARMOR: &str = "AppArmor takes their powers away; `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or a profile with `userns,`";

/// Whether AppArmor lets ordinary users make user namespaces and then refuses what they are made for.
fn restricted_by_apparmor() -> bool {
    let setting = std::fs::read_to_string("/proc/sys/kernel/apparmor_restrict_unprivileged_userns");
    setting.is_ok_and(|setting| setting.trim() == "1")
}

/// What stands in the way of user namespaces, and the remedy.
fn why_no_namespaces(failure: &Failure, user: HostUser) -> String {
    let sysctl = |name: &str| std::fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default();
    let error = io::Error::from_raw_os_error(failure.errno);
    if failure.step == Step::IdMap && failure.errno == libc::EPERM && user.uid == 0 {
        return "root of this container has not the capability CAP_SETFCAP, without which no user namespace can be made from it (user_namespaces(7)); `--cap-add SETFCAP`, or start as another of its users".to_owned();
    }
    if failure.errno == libc::ENOSPC || sysctl("user/max_user_namespaces").trim() == "0" {
        return "no more user namespaces are allowed; `sysctl user.max_user_namespaces=10000`".to_owned();
    }
    if sysctl("kernel/unprivileged_userns_clone").trim() == "0" {
        return "switched off for ordinary users; `sysctl kernel.unprivileged_userns_clone=1`".to_owned();
    }
    if restricted_by_apparmor() {
        return APPARMOR.to_owned();
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2")) {
        return format!(
            "refused ({error}), most likely by the container's seccomp profile; in Docker: `--security-opt seccomp=unconfined`"
        );
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if failure.errno == libc::EPERM && is_chroot(&mounts) {
        return "this is a chroot, from which nobody can make a user namespace (user_namespaces(7)); enter the folder as a machine of its own: `systemd-nspawn -D FOLDER`".to_owned();
    }
    format!("failed to {}: {error}", failure.step)
}

/// Whether the root is a folder that nothing is mounted on, by the mounts that are seen from it (proc_pid_mountinfo(5)).
fn is_chroot(mounts: &str) -> bool {
    !mounts.is_empty() && !mounts.lines().any(|line| line.split(' ').nth(4) == Some("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chroot_is_known_by_the_lack_of_a_mount_on_its_root() {
        let proc = "30 23 0:26 / /proc rw,relatime - proc proc rw\n";
        assert!(is_chroot(proc));
        assert!(!is_chroot(&format!("{proc}23 1 254:0 / / rw,relatime - ext4 /dev/root rw\n")));
        assert!(!is_chroot(""));
    }

    #[test]
    fn the_host_user_is_never_root() {
        let whole = "         0          0 4294967295\n";
        let user = |uid, map| host_user(uid, uid, map).map(|user| (user.uid, user.switch));
        assert_eq!(user(1234, whole), Ok((1234, false)));
        assert_eq!(user(0, whole), Ok((SANDBOX_HOST_ID, true)));
        assert_eq!(user(0, "0 100000 65536"), Ok((65533, true)));
        assert_eq!(user(0, "0 100000 5000"), Ok((4999, true)));
        assert_eq!(user(0, "0 1000 1"), Ok((0, false)));
        assert!(user(0, "0 0 1").is_err());
        assert!(user(0, "").is_err());
    }
}
