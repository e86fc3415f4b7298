//! What a check reads, lists and looks for, by its path calls as the filter passes them on. Only names and kinds of
//! use are noted here; what they stood for is worked out afterwards, from the tree. The calls themselves are carried
//! out by the kernel, or by `clock::files`.
//!
//! Sound means: every path that can have decided anything is noted, or the whole observation is given up (`gave_up`).
#![forbid(unsafe_code)]

use crate::sandbox::memory::{read_path, read_proc};
use crate::sandbox::sys::{self, Notification};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use std::collections::{HashMap, HashSet};

/// Its existence and type.
pub const EXISTS: u8 = 1;
/// Its content, or for a folder that it is one.
pub const CONTENT: u8 = 2;
/// For a folder, the names in it.
pub const LISTING: u8 = 4;
/// For a folder, all below it.
pub const DEEP: u8 = 8;

/// Most paths of one run; beyond them the whole tree is the input.
const PATHS_MAX: usize = 100_000;
/// Calls from this number on are newer than this file; the filter refuses them while one observes.
pub(super) const FIRST_UNKNOWN: u32 = 463;

/// Where a call has its path: the argument with the folder's descriptor, if it has one, and the one with the path.
type Place = (Option<usize>, usize);

/// One path of a call.
struct Use {
    at: Place,
    kind: u8,
    /// Whether a link at the end is the thing itself.
    nofollow: bool,
}

/// The observation of one run.
#[derive(Debug, Default)]
pub(super) struct Observer {
    /// Paths by how they were used.
    seen: HashMap<Vec<u8>, u8>,
    /// Spellings that were dealt with already.
    known: HashSet<(Vec<u8>, u8)>,
    /// Why the observation is not complete, if it is not.
    gave_up: Option<String>,
}

impl Observer {
    /// Notes what a waiting call looks at.
    pub(super) fn see(&mut self, call: &Notification, proc: BorrowedFd<'_>) {
        if self.gave_up.is_some() {
            return;
        }
        let number = libc::c_long::from(call.number);
        if let Some(why) = leaves(number, call) {
            self.gave_up = Some(why.to_owned());
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if number == libc::SYS_arch_prctl {
            self.program(call, proc);
            return;
        }
        let (uses, moves) = uses_of(number, call);
        for used in uses {
            self.note(call, proc, &used);
        }
        if moves {
            // From here on the same spelling may lead elsewhere.
            self.known.clear();
        }
        if self.seen.len() > PATHS_MAX {
            self.gave_up = Some(format!("more than {PATHS_MAX} paths"));
        }
    }

    /// A program has started: its file, its interpreter's and its loader's were read by the kernel.
    fn program(&mut self, call: &Notification, proc: BorrowedFd<'_>) {
        let maps = read_proc(proc, call.pid, "maps");
        let Ok(maps) = maps else {
            // Killed meanwhile, it decides nothing any more.
            return;
        };
        for line in maps.split(|byte| *byte == b'\n') {
            if let Some(at) = line.iter().position(|byte| *byte == b'/') {
                self.add(line[at..].to_vec(), CONTENT);
            }
        }
    }

    fn add(&mut self, path: Vec<u8>, kind: u8) {
        *self.seen.entry(path).or_default() |= kind;
    }

    fn note(&mut self, call: &Notification, proc: BorrowedFd<'_>, used: &Use) {
        let argument = |index: usize| call.arguments.get(index).copied().unwrap_or(0);
        let at = argument(used.at.1);
        if at == 0 {
            return;
        }
        let Some(path) = read_path(call.pid, at) else { return };
        let folder = used.at.0.map(|index| low(argument(index))).filter(|fd| *fd != libc::AT_FDCWD);
        if path.is_empty() {
            // The descriptor itself, which was noted when it was opened.
            return;
        }
        let Some((spelt, way)) = self.spelling(call, proc, folder, &path) else { return };
        let mark = used.kind | if used.nofollow { 0x80 } else { 0 };
        if !self.known.insert((spelt.clone(), mark)) {
            return;
        }
        match real_path(proc, &way, used.nofollow) {
            Some(real) => {
                if real != spelt {
                    // Links or dots on the way; the spelling is followed through the tree's own links afterwards.
                    self.add(spelt, EXISTS);
                }
                self.add(real, used.kind);
            }
            None => self.absent(call, proc, folder, &path, spelt, used.kind),
        }
    }

    /// The full path as spelt, and the way by which the supervisor gets there.
    fn spelling(
        &mut self,
        call: &Notification,
        proc: BorrowedFd<'_>,
        folder: Option<i32>,
        path: &[u8],
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        if path.first() == Some(&b'/') {
            let way = self.own_view(call, path)?;
            return Some((path.to_vec(), way));
        }
        let base = folder.map_or_else(|| format!("{}/cwd", call.pid), |fd| format!("{}/fd/{fd}", call.pid));
        let place = rustix::fs::readlinkat(proc, base.as_str(), Vec::new()).ok()?;
        let spelt = [place.to_bytes(), b"/", path].concat();
        Some((spelt, [base.as_bytes(), b"/", path].concat()))
    }

    /// Links below /proc/self and /dev/fd lead to whoever looks, so they are looked at by way of the caller's own entry.
    fn own_view(&mut self, call: &Notification, path: &[u8]) -> Option<Vec<u8>> {
        for (prefix, own) in [
            (&b"/proc/self/"[..], ""),
            (b"/proc/thread-self/", ""),
            (b"/dev/fd/", "fd/"),
        ] {
            if let Some(rest) = path.strip_prefix(prefix) {
                return Some([format!("{}/{own}", call.pid).as_bytes(), rest].concat());
            }
        }
        if path.starts_with(b"/proc/") {
            let leads_on = [&b"/cwd"[..], b"/root", b"/fd/", b"/exe", b"/map_files"];
            if leads_on.iter().any(|part| path.windows(part.len()).any(|window| window == *part)) {
                self.gave_up = Some("a file was reached by another process's entry in /proc".to_owned());
            }
            return None;
        }
        Some(path.to_vec())
    }

    /// Nothing is there, or it cannot be reached: noted as looked for below the deepest folder that is there.
    fn absent(
        &mut self,
        call: &Notification,
        proc: BorrowedFd<'_>,
        folder: Option<i32>,
        path: &[u8],
        spelt: Vec<u8>,
        kind: u8,
    ) {
        let mut end = path.len();
        while let Some(slash) = path[..end].iter().rposition(|byte| *byte == b'/') {
            end = slash;
            if end == 0 {
                break;
            }
            if let Some((_, way)) = self.spelling(call, proc, folder, &path[..end])
                && let Some(real) = real_path(proc, &way, false)
            {
                let rest = path[end..].to_vec();
                self.add([real, rest].concat(), kind);
                break;
            }
        }
        self.add(spelt, kind);
    }

    /// All that was seen: a kind, a length and a path each; or why it is not complete.
    pub(super) fn finish(self) -> Result<Vec<u8>, String> {
        if let Some(why) = self.gave_up {
            return Err(why);
        }
        let mut bytes = Vec::new();
        for (path, kind) in self.seen {
            bytes.push(kind);
            bytes.extend(u32::try_from(path.len()).unwrap_or(0).to_le_bytes());
            bytes.extend(path);
        }
        Ok(bytes)
    }
}

/// Reads what [`Observer::finish`] wrote; `None` where it is cut.
#[must_use]
pub fn read_observation(mut bytes: &[u8]) -> Option<Vec<(Vec<u8>, u8)>> {
    let mut all = Vec::new();
    while let Some((kind, rest)) = bytes.split_first() {
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        all.push((rest.get(..length)?.to_vec(), *kind));
        bytes = rest.get(length..)?;
    }
    Some(all)
}

/// Where a path really leads, as the supervisor's root shows it; `None` where nothing is there.
fn real_path(proc: BorrowedFd<'_>, way: &[u8], nofollow: bool) -> Option<Vec<u8>> {
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    if nofollow {
        flags |= OFlags::NOFOLLOW;
    }
    let found: OwnedFd = rustix::fs::openat(proc, way, flags, rustix::fs::Mode::empty()).ok()?;
    let name = rustix::fs::readlinkat(proc, format!("self/fd/{}", found.as_raw_fd()), Vec::new()).ok()?;
    Some(name.into_bytes())
}

fn low(value: u64) -> i32 {
    u32::try_from(value & 0xffff_ffff).unwrap_or(0).cast_signed()
}

/// Calls after which paths mean something else, or may; the observation ends there.
fn leaves(number: libc::c_long, call: &Notification) -> Option<&'static str> {
    let own = u64::from((libc::CLONE_NEWUSER | libc::CLONE_NEWNS).unsigned_abs());
    let flags = match number {
        libc::SYS_unshare | libc::SYS_clone => call.arguments[0],
        // struct clone_args begins with the flags (clone(2)).
        libc::SYS_clone3 => {
            let mut bytes = [0; 8];
            match sys::read_memory(call.pid, call.arguments[0], &mut bytes) {
                Ok(8) => u64::from_ne_bytes(bytes),
                _ => own,
            }
        }
        libc::SYS_setns | libc::SYS_chroot => own,
        _ => 0,
    };
    (flags & own != 0).then_some("a program made a namespace or a root of its own")
}

/// How an open uses a file: one that is emptied or made is only looked for.
fn open_kind(flags: u64) -> u8 {
    let has = |bits: libc::c_int| flags & u64::from(bits.unsigned_abs()) != 0;
    let fresh = has(libc::O_TRUNC) || (has(libc::O_CREAT) && has(libc::O_EXCL));
    if fresh { EXISTS } else { CONTENT | LISTING }
}

/// The paths of a call and how each is used, and whether the call can change where paths lead.
fn uses_of(number: libc::c_long, call: &Notification) -> (Vec<Use>, bool) {
    let [_, second, third, fourth, fifth, _] = call.arguments;
    let follow = |folder: Option<usize>, path: usize, kind: u8| vec![Use { at: (folder, path), kind, nofollow: false }];
    let itself = |folder: Option<usize>, path: usize, kind: u8| vec![Use { at: (folder, path), kind, nofollow: true }];
    let by_flag = |folder: Option<usize>, path: usize, kind: u8, flags: u64| {
        let nofollow = low(flags) & libc::AT_SYMLINK_NOFOLLOW != 0;
        vec![Use { at: (folder, path), kind, nofollow }]
    };
    let open = |folder: Option<usize>, path: usize, flags: u64| {
        let nofollow = flags & u64::from(libc::O_NOFOLLOW.unsigned_abs()) != 0;
        vec![Use { at: (folder, path), kind: open_kind(flags), nofollow }]
    };
    let both = |a: Vec<Use>, b: Vec<Use>| a.into_iter().chain(b).collect::<Vec<_>>();
    let whole = CONTENT | DEEP;
    let (here, first) = (Some(0), Some(2));
    match number {
        libc::SYS_openat => (open(here, 1, third), false),
        libc::SYS_openat2 => {
            let mut bytes = [0; 8];
            let read = sys::read_memory(call.pid, third, &mut bytes);
            // Flags that cannot be read make the call fail; taken for the widest use.
            let flags = if matches!(read, Ok(8)) { u64::from_ne_bytes(bytes) } else { 0 };
            (open(here, 1, flags), false)
        }
        libc::SYS_newfstatat => (by_flag(here, 1, CONTENT, fourth), false),
        libc::SYS_statx => (by_flag(here, 1, CONTENT, third), false),
        libc::SYS_faccessat | SYS_FACCESSAT2 => (follow(here, 1, EXISTS), false),
        libc::SYS_readlinkat => (itself(here, 1, CONTENT), false),
        libc::SYS_execve => (follow(None, 0, CONTENT), false),
        libc::SYS_execveat => (by_flag(here, 1, CONTENT, fifth), false),
        libc::SYS_chdir | libc::SYS_statfs => (follow(None, 0, EXISTS), false),
        libc::SYS_truncate | libc::SYS_getxattr | libc::SYS_listxattr => (follow(None, 0, CONTENT), false),
        libc::SYS_setxattr | libc::SYS_removexattr => (follow(None, 0, CONTENT), false),
        libc::SYS_lgetxattr | libc::SYS_llistxattr | libc::SYS_lsetxattr | libc::SYS_lremovexattr => {
            (itself(None, 0, CONTENT), false)
        }
        libc::SYS_mkdirat | libc::SYS_mknodat => (itself(here, 1, EXISTS), true),
        // A folder can be removed only when nothing is in it.
        libc::SYS_unlinkat => (itself(here, 1, EXISTS | LISTING), true),
        libc::SYS_renameat | libc::SYS_renameat2 => (both(itself(here, 1, whole), itself(first, 3, whole)), true),
        libc::SYS_linkat => {
            let followed = low(fifth) & libc::AT_SYMLINK_FOLLOW != 0;
            let old = if followed { follow(here, 1, CONTENT) } else { itself(here, 1, CONTENT) };
            (both(old, itself(first, 3, EXISTS)), true)
        }
        libc::SYS_symlinkat => (itself(Some(1), 2, EXISTS), true),
        libc::SYS_fchmodat | SYS_FCHMODAT2 | libc::SYS_name_to_handle_at => (follow(here, 1, CONTENT), false),
        libc::SYS_fchownat | libc::SYS_utimensat => (follow(here, 1, EXISTS), false),
        libc::SYS_inotify_add_watch => (follow(None, 1, whole | LISTING), false),
        _ => old_uses(number, (second, third), &follow, &itself),
    }
}

/// Calls without a folder's descriptor, which newer architectures lack.
#[cfg(target_arch = "x86_64")]
fn old_uses(
    number: libc::c_long,
    (second, _third): (u64, u64),
    follow: &dyn Fn(Option<usize>, usize, u8) -> Vec<Use>,
    itself: &dyn Fn(Option<usize>, usize, u8) -> Vec<Use>,
) -> (Vec<Use>, bool) {
    let whole = CONTENT | DEEP;
    match number {
        libc::SYS_open => (follow(None, 0, open_kind(second)), false),
        libc::SYS_creat => (follow(None, 0, EXISTS), false),
        libc::SYS_stat | libc::SYS_chmod => (follow(None, 0, CONTENT), false),
        libc::SYS_lstat | libc::SYS_readlink => (itself(None, 0, CONTENT), false),
        libc::SYS_access | libc::SYS_chown | libc::SYS_utime | libc::SYS_utimes => (follow(None, 0, EXISTS), false),
        libc::SYS_lchown => (itself(None, 0, EXISTS), false),
        libc::SYS_futimesat => (follow(Some(0), 1, EXISTS), false),
        libc::SYS_mkdir | libc::SYS_mknod => (itself(None, 0, EXISTS), true),
        libc::SYS_rmdir | libc::SYS_unlink => (itself(None, 0, EXISTS | LISTING), true),
        libc::SYS_symlink => (itself(None, 1, EXISTS), true),
        libc::SYS_link => (itself(None, 0, CONTENT).into_iter().chain(itself(None, 1, EXISTS)).collect(), true),
        libc::SYS_rename => (itself(None, 0, whole).into_iter().chain(itself(None, 1, whole)).collect(), true),
        _ => (Vec::new(), false),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn old_uses(
    _: libc::c_long,
    _: (u64, u64),
    _: &dyn Fn(Option<usize>, usize, u8) -> Vec<Use>,
    _: &dyn Fn(Option<usize>, usize, u8) -> Vec<Use>,
) -> (Vec<Use>, bool) {
    (Vec::new(), false)
}

/// faccessat2(2), Linux 5.8, and fchmodat2(2), Linux 6.6.
const SYS_FACCESSAT2: libc::c_long = 439;
const SYS_FCHMODAT2: libc::c_long = 452;

/// All calls that [`Observer::see`] wants to know of, whatever their arguments.
pub(super) fn calls() -> Vec<libc::c_long> {
    let mut all = vec![
        libc::SYS_openat,
        libc::SYS_openat2,
        libc::SYS_newfstatat,
        libc::SYS_statx,
        libc::SYS_faccessat,
        SYS_FACCESSAT2,
        libc::SYS_readlinkat,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_chdir,
        libc::SYS_statfs,
        libc::SYS_truncate,
        libc::SYS_getxattr,
        libc::SYS_listxattr,
        libc::SYS_setxattr,
        libc::SYS_removexattr,
        libc::SYS_lgetxattr,
        libc::SYS_llistxattr,
        libc::SYS_lsetxattr,
        libc::SYS_lremovexattr,
        libc::SYS_mkdirat,
        libc::SYS_mknodat,
        libc::SYS_unlinkat,
        libc::SYS_renameat,
        libc::SYS_renameat2,
        libc::SYS_linkat,
        libc::SYS_symlinkat,
        libc::SYS_fchmodat,
        SYS_FCHMODAT2,
        libc::SYS_name_to_handle_at,
        libc::SYS_fchownat,
        libc::SYS_utimensat,
        libc::SYS_inotify_add_watch,
        libc::SYS_unshare,
        libc::SYS_clone3,
        libc::SYS_setns,
        libc::SYS_chroot,
    ];
    #[cfg(target_arch = "x86_64")]
    all.extend([
        libc::SYS_open,
        libc::SYS_creat,
        libc::SYS_stat,
        libc::SYS_chmod,
        libc::SYS_lstat,
        libc::SYS_readlink,
        libc::SYS_access,
        libc::SYS_chown,
        libc::SYS_utime,
        libc::SYS_utimes,
        libc::SYS_lchown,
        libc::SYS_futimesat,
        libc::SYS_mkdir,
        libc::SYS_mknod,
        libc::SYS_rmdir,
        libc::SYS_unlink,
        libc::SYS_symlink,
        libc::SYS_link,
        libc::SYS_rename,
    ]);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observation_reads_back() {
        let mut observer = Observer::default();
        observer.add(b"/src/a".to_vec(), CONTENT);
        observer.add(b"/src/a".to_vec(), EXISTS);
        observer.add(b"/src/\xff".to_vec(), LISTING);
        let bytes = observer.finish().unwrap();
        let mut read = read_observation(&bytes).unwrap();
        read.sort();
        assert_eq!(read, vec![(b"/src/a".to_vec(), 3), (b"/src/\xff".to_vec(), 4)]);
        assert_eq!(read_observation(&bytes[..bytes.len() - 1]), None);
    }

    #[test]
    fn opens_that_empty_or_make_a_file_do_not_read_it() {
        let bits = |flags: libc::c_int| u64::from(flags.unsigned_abs());
        assert_eq!(open_kind(bits(libc::O_RDONLY)), CONTENT | LISTING);
        assert_eq!(open_kind(bits(libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC)), EXISTS);
        assert_eq!(open_kind(bits(libc::O_RDWR | libc::O_CREAT)), CONTENT | LISTING);
    }
}
