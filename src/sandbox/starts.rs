//! The calls by which a program that has just started is known: made before `main` and before any clock is read, by every
//! libc and by the Go runtime. What is done then is `clock`'s and `observer`'s.
//!
//! Such a call may come again later in a program's life; nothing may rest on its being the first.
#![forbid(unsafe_code)]

use crate::sandbox::filter::{NOTIFY, Rules, Test};
use crate::sandbox::sys::Notification;

/// Has the supervisor asked about them.
///
/// The thread pointer is set once by a call of its own (ARCH_SET_FS, arch_prctl(2)).
#[cfg(target_arch = "x86_64")]
pub(super) fn ask(rules: &mut Rules) {
    rules.rule_if(libc::SYS_arch_prctl, &[Test { argument: 0, mask: u32::MAX, value: 0x1002 }], NOTIFY);
}

/// Whether a call that waits is one of them.
#[cfg(target_arch = "x86_64")]
pub(super) fn is_one(call: &Notification) -> bool {
    libc::c_long::from(call.number) == libc::SYS_arch_prctl
}

/// Has the supervisor asked about them.
///
/// The thread pointer is set without a call, so others stand for it. musl, and glibc since 2.34, tell where the thread's
/// number is to be cleared. glibc of any version asks first of all where its heap ends, and mostly once more when memory is
/// first allocated; a signal that comes just then makes it take memory elsewhere, and nothing else. A Go program without a
/// C library asks which processors it has, with room for 65,536 (runtime/os_linux.go).
#[cfg(target_arch = "aarch64")]
pub(super) fn ask(rules: &mut Rules) {
    // A thread of older musl takes the place back when it ends and nobody waits for it.
    rules.rule_if_null(libc::SYS_set_tid_address, 0, crate::sandbox::filter::ALLOW);
    rules.rule(libc::SYS_set_tid_address, NOTIFY);
    rules.rule_if_null(libc::SYS_brk, 0, NOTIFY);
    rules.rule_if(libc::SYS_sched_getaffinity, &[Test { argument: 1, mask: u32::MAX, value: 8192 }], NOTIFY);
}

/// Whether a call that waits is one of them.
#[cfg(target_arch = "aarch64")]
pub(super) fn is_one(call: &Notification) -> bool {
    let number = libc::c_long::from(call.number);
    [libc::SYS_set_tid_address, libc::SYS_brk, libc::SYS_sched_getaffinity].contains(&number)
}
