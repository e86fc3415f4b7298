//! The calls that take paths: where each has them and how it uses what they name. A table and nothing else.
#![forbid(unsafe_code)]

use crate::sandbox::observer::{CONTENT, DEEP, EXISTS, LISTING};
use crate::sandbox::sys::{self, Notification};

/// Calls from this number on are newer than this file; the filter refuses them.
pub(super) const FIRST_UNKNOWN: u32 = 463;

/// Where a call has its path: the argument with the folder's descriptor, if it has one, and the one with the path.
pub(super) type Place = (Option<usize>, usize);

/// One path of a call.
pub(super) struct Use {
    /// Where the path is.
    pub(super) at: Place,
    /// Bits of `observer`.
    pub(super) kind: u8,
    /// Whether a link at the end is the thing itself.
    pub(super) nofollow: bool,
    /// Whether it is started as a program.
    pub(super) executes: bool,
}

/// The low half of an argument, as the kernel takes an int.
pub(super) fn low(value: u64) -> i32 {
    u32::try_from(value & 0xffff_ffff).unwrap_or(0).cast_signed()
}

/// Calls after which paths mean something else, or may; the observation ends there.
pub(super) fn leaves(number: libc::c_long, call: &Notification) -> Option<&'static str> {
    let own = u64::from((libc::CLONE_NEWUSER | libc::CLONE_NEWNS).unsigned_abs());
    let flags = match number {
        libc::SYS_unshare | libc::SYS_clone => call.arguments[0],
        libc::SYS_setns | libc::SYS_chroot => own,
        _ => 0,
    };
    if makes_datagrams(number, call) {
        return Some("a program made a datagram socket of the UNIX family");
    }
    (flags & own != 0).then_some("a program made a namespace or a root of its own")
}

/// Each message of such a socket may go to another path, by a call that is not followed since too many make it for other
/// ends (sendmsg(2)); streams take none (unix(7)).
fn makes_datagrams(number: libc::c_long, call: &Notification) -> bool {
    let [family, kind, ..] = call.arguments;
    matches!(number, libc::SYS_socket | libc::SYS_socketpair)
        && low(family) == libc::AF_UNIX
        && matches!(low(kind) & 0xf, libc::SOCK_DGRAM | libc::SOCK_RAW)
}

/// How an open uses a file: one that is emptied or made is only looked for.
fn open_kind(flags: u64) -> u8 {
    let has = |bits: libc::c_int| flags & u64::from(bits.unsigned_abs()) != 0;
    let fresh = has(libc::O_TRUNC) || (has(libc::O_CREAT) && has(libc::O_EXCL));
    if fresh { EXISTS } else { CONTENT | LISTING }
}

/// The paths of a call and how each is used, and whether the call can change where paths lead.
pub(super) fn uses_of(number: libc::c_long, call: &Notification) -> (Vec<Use>, bool) {
    let [_, second, third, fourth, fifth, _] = call.arguments;
    let follow = |folder: Option<usize>, path: usize, kind: u8| {
        vec![Use { at: (folder, path), kind, nofollow: false, executes: false }]
    };
    let itself = |folder: Option<usize>, path: usize, kind: u8| {
        vec![Use { at: (folder, path), kind, nofollow: true, executes: false }]
    };
    let by_flag = |folder: Option<usize>, path: usize, kind: u8, flags: u64| {
        let nofollow = low(flags) & libc::AT_SYMLINK_NOFOLLOW != 0;
        vec![Use { at: (folder, path), kind, nofollow, executes: false }]
    };
    let open = |folder: Option<usize>, path: usize, flags: u64| {
        let nofollow = flags & u64::from(libc::O_NOFOLLOW.unsigned_abs()) != 0;
        vec![Use { at: (folder, path), kind: open_kind(flags), nofollow, executes: false }]
    };
    let started = |mut uses: Vec<Use>| {
        uses.iter_mut().for_each(|used| used.executes = true);
        uses
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
        libc::SYS_execve => (started(follow(None, 0, CONTENT)), false),
        libc::SYS_execveat => (started(by_flag(here, 1, CONTENT, fifth)), false),
        libc::SYS_open_tree => (by_flag(here, 1, CONTENT | LISTING, third), false),
        libc::SYS_chdir | libc::SYS_statfs => (follow(None, 0, EXISTS), false),
        libc::SYS_truncate | libc::SYS_getxattr | libc::SYS_listxattr => (follow(None, 0, CONTENT), false),
        libc::SYS_setxattr | libc::SYS_removexattr => (follow(None, 0, CONTENT), false),
        libc::SYS_lgetxattr | libc::SYS_llistxattr | libc::SYS_lsetxattr | libc::SYS_lremovexattr => {
            (itself(None, 0, CONTENT), false)
        }
        libc::SYS_mkdirat | libc::SYS_mknodat => (itself(here, 1, EXISTS), true),
        // A folder can be removed only when nothing is in it.
        libc::SYS_unlinkat => (itself(here, 1, EXISTS | LISTING), true),
        libc::SYS_renameat | libc::SYS_renameat2 => {
            (both(itself(here, 1, whole), itself(first, 3, whole)), true)
        }
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
        libc::SYS_access | libc::SYS_chown | libc::SYS_utime | libc::SYS_utimes => {
            (follow(None, 0, EXISTS), false)
        }
        libc::SYS_lchown => (itself(None, 0, EXISTS), false),
        libc::SYS_futimesat => (follow(Some(0), 1, EXISTS), false),
        libc::SYS_mkdir | libc::SYS_mknod => (itself(None, 0, EXISTS), true),
        libc::SYS_rmdir | libc::SYS_unlink => (itself(None, 0, EXISTS | LISTING), true),
        libc::SYS_symlink => (itself(None, 1, EXISTS), true),
        libc::SYS_link => {
            (itself(None, 0, CONTENT).into_iter().chain(itself(None, 1, EXISTS)).collect(), true)
        }
        libc::SYS_rename => {
            (itself(None, 0, whole).into_iter().chain(itself(None, 1, whole)).collect(), true)
        }
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

/// All calls that `Observer::see` wants to know of, whatever their arguments.
pub(super) fn calls() -> Vec<libc::c_long> {
    let all = [
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
        libc::SYS_open_tree,
        libc::SYS_bind,
        libc::SYS_connect,
    ];
    all.into_iter().chain(OLD_CALLS).collect()
}

/// Those among them without a folder's descriptor.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: [libc::c_long; 19] = [
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
];

#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: [libc::c_long; 0] = [];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_that_empty_or_make_a_file_do_not_read_it() {
        let bits = |flags: libc::c_int| u64::from(flags.unsigned_abs());
        assert_eq!(open_kind(bits(libc::O_RDONLY)), CONTENT | LISTING);
        assert_eq!(open_kind(bits(libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC)), EXISTS);
        assert_eq!(open_kind(bits(libc::O_RDWR | libc::O_CREAT)), CONTENT | LISTING);
    }
}
