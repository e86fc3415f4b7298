//! The system call filter: allow by default, refuse what no namespace covers. Installing it is `sys`'s, deciding
//! which rules a level has is here and nowhere else.
//!
//! The program is put together at start-up, in microseconds, instead of by a general compiler:
//! parsing and compiling a profile costs other tools more than the whole sandbox (14 ms measured for one).
#![forbid(unsafe_code)]

use crate::model::layer::Level;
use crate::sandbox::filter::{ALLOW, NOTIFY, Rules, Test, errno};
use crate::sandbox::sys::Instruction;
use crate::sandbox::{path_calls, starts};

/// Terminal ioctls that push characters into a terminal's input (ioctl_tty(2), ioctl_console(2)).
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;

/// Persona values that are allowed: native, 32-bit uname, 2.6 uname, no address randomisation, and the read-only
/// query (personality(2)).
const PERSONAS: [u32; 5] = [0, 0x8, 0x002_0000, 0x004_0000, 0xffff_ffff];

/// What the filter is to do beside refusing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// The level: without namespaces the network is refused here.
    pub(super) level: Level,
    /// Whether the supervisor is to be asked about clock calls.
    pub(super) clock: bool,
    /// Whether the supervisor is to be told of path calls.
    pub(super) inputs: bool,
}

/// The filter's program.
pub(super) fn program(wanted: Wanted) -> Vec<Instruction> {
    let mut rules = Rules::default();
    refuse_whole_calls(&mut rules);
    refuse_by_argument(&mut rules, wanted.level);
    if wanted.level == Level::Full {
        // Its flags lie in memory, where no filter sees them and another thread may change them after a look. Every C library
        // goes on with clone(2) where this call is not there. Also in a run without a listener, as below.
        rules.rule(libc::SYS_clone3, errno(libc::ENOSYS));
    }
    if wanted.clock || wanted.inputs {
        tell_of_own_views(&mut rules);
    }
    if wanted.clock {
        ask_about_clocks(&mut rules);
    }
    if wanted.inputs {
        tell_of_paths(&mut rules);
    }
    // A call that is newer than the list may take a path; programs fall back where it is not there. Also in a run that is
    // not observed, so that a check meets the same kernel in both.
    let known = (wanted.level == Level::Full).then_some(path_calls::FIRST_UNKNOWN);
    rules.assemble(known)
}

fn refuse_whole_calls(rules: &mut Rules) {
    // "Not there" makes runtimes fall back (io_uring to epoll); these kernel objects belong to no namespace.
    for call in [
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_keyctl,
        libc::SYS_userfaultfd,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_modify_ldt,
    ] {
        rules.rule(call, errno(libc::ENOSYS));
    }
    // Of the machine as a whole; most need privilege that is not there, refused here as a second lock.
    for call in [
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_syslog,
        libc::SYS_kexec_load,
        libc::SYS_kexec_file_load,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_reboot,
        libc::SYS_acct,
        libc::SYS_quotactl,
        libc::SYS_open_by_handle_at,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_iopl,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_ioperm,
    ] {
        rules.rule(call, errno(libc::EPERM));
    }
}

fn refuse_by_argument(rules: &mut Rules, level: Level) {
    let families: &[i32] = match level {
        Level::Full => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
        // Landlock's own rules cover TCP only, and not by way of Multipath TCP, so without a network namespace no
        // internet socket is to be had at all.
        Level::Landlock => &[libc::AF_UNIX],
    };
    let families: Vec<u32> = families.iter().map(|family| family.unsigned_abs()).collect();
    // A pair of TIPC sockets is made by the second call.
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        rules.rule_unless(call, 0, &families, errno(libc::EAFNOSUPPORT));
    }
    if level == Level::Landlock {
        refuse_what_is_shared_by_the_machine(rules);
    }
    for request in [TIOCSTI, TIOCLINUX] {
        let test = Test { argument: 1, mask: u32::MAX, value: request };
        rules.rule_if(libc::SYS_ioctl, &[test], errno(libc::EPERM));
    }
    rules.rule_unless(libc::SYS_personality, 0, &PERSONAS, errno(libc::EPERM));
}

/// What namespaces of IPC and of processes cover at the other level, and Landlock does not: memory, semaphores and queues
/// of the caller's other programs, which are found by number, and the limits of the caller's other processes, one of which
/// is the time after which a process is killed (prlimit(2)).
fn refuse_what_is_shared_by_the_machine(rules: &mut Rules) {
    for call in [
        libc::SYS_shmget,
        libc::SYS_shmat,
        libc::SYS_shmctl,
        libc::SYS_semget,
        libc::SYS_semop,
        libc::SYS_semtimedop,
        libc::SYS_semctl,
        libc::SYS_msgget,
        libc::SYS_msgsnd,
        libc::SYS_msgrcv,
        libc::SYS_msgctl,
        libc::SYS_mq_open,
        libc::SYS_mq_unlink,
    ] {
        rules.rule(call, errno(libc::ENOSYS));
    }
    rules.rule_unless(libc::SYS_prlimit64, 0, &[0], errno(libc::EPERM));
}

/// Calls after which paths of the one that asked may no longer be ours.
fn tell_of_own_views(rules: &mut Rules) {
    for call in [
        libc::SYS_chroot,
        libc::SYS_pivot_root,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_mount,
        libc::SYS_move_mount,
    ] {
        rules.rule(call, NOTIFY);
    }
    for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNS] {
        let bit = flag.unsigned_abs();
        rules.rule_if(libc::SYS_clone, &[Test { argument: 0, mask: bit, value: bit }], NOTIFY);
    }
}

/// Calls that the supervisor answers while the clock is fixed: each only where its arguments speak of a wall clock,
/// so that monotonic time stays native. `clock` says what becomes of them.
fn ask_about_clocks(rules: &mut Rules) {
    let is = |argument, value| Test { argument, mask: u32::MAX, value };
    let has = |argument, bit| Test { argument, mask: bit, value: bit };
    // Waits without a time limit, which are the most: a condition variable's wait names the wall clock all the same.
    rules.rule_if_null(libc::SYS_futex, 3, ALLOW);
    for call in [libc::SYS_mq_timedsend, libc::SYS_mq_timedreceive, SYS_FUTEX_WAIT] {
        rules.rule_if_null(call, 4, ALLOW);
    }
    // CLOCK_REALTIME, CLOCK_REALTIME_COARSE, CLOCK_REALTIME_ALARM and CLOCK_TAI (linux/time.h).
    for clock in [0, 5, 8, 11] {
        rules.rule_if(libc::SYS_clock_gettime, &[is(0, clock)], NOTIFY);
        rules.rule_if(libc::SYS_clock_nanosleep, &[is(0, clock), has(1, 1)], NOTIFY); // TIMER_ABSTIME
        rules.rule_if(libc::SYS_futex_waitv, &[is(4, clock)], NOTIFY);
        rules.rule_if(SYS_FUTEX_WAIT, &[is(5, clock)], NOTIFY);
    }
    rules.rule_if(libc::SYS_timer_settime, &[has(1, 1)], NOTIFY); // TIMER_ABSTIME
    rules.rule_if(libc::SYS_timerfd_settime, &[has(1, 1)], NOTIFY); // TFD_TIMER_ABSTIME
    rules.rule_if(libc::SYS_futex, &[has(1, 0x100)], NOTIFY); // FUTEX_CLOCK_REALTIME
    // FUTEX_LOCK_PI takes a wall clock instant without saying so; the mask leaves out FUTEX_PRIVATE_FLAG.
    rules.rule_if(libc::SYS_futex, &[Test { argument: 1, mask: 0x7f, value: 6 }], NOTIFY);
    for call in [
        libc::SYS_gettimeofday,
        libc::SYS_adjtimex,
        libc::SYS_clock_adjtime,
        libc::SYS_mq_timedsend,
        libc::SYS_mq_timedreceive,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_time,
        // File times, shown and set.
        libc::SYS_fstat,
        libc::SYS_newfstatat,
        libc::SYS_statx,
        libc::SYS_utimensat,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_stat,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lstat,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_futimesat,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utimes,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utime,
    ] {
        rules.rule(call, NOTIFY);
    }
    starts::ask(rules);
}

/// Calls that tell what a check reads, lists and looks for; `observer` says what becomes of them.
fn tell_of_paths(rules: &mut Rules) {
    for call in path_calls::calls() {
        rules.rule(call, NOTIFY);
    }
    // Sockets have paths too: in the address of a message, if it has one, or of each message of a datagram socket.
    rules.rule_if_null(libc::SYS_sendto, 4, ALLOW);
    rules.rule(libc::SYS_sendto, NOTIFY);
    let unix = Test { argument: 0, mask: u32::MAX, value: libc::AF_UNIX.unsigned_abs() };
    for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW] {
        let kind = Test { argument: 1, mask: 0xf, value: kind.unsigned_abs() };
        for call in [libc::SYS_socket, libc::SYS_socketpair] {
            rules.rule_if(call, &[unix, kind], NOTIFY);
        }
    }
}

/// futex_wait(2), Linux 6.7.
const SYS_FUTEX_WAIT: libc::c_long = 455;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::filter::{
        AND, ARCHITECTURE, JUMP_ALWAYS, JUMP_AT_LEAST, JUMP_EQUAL, LOAD_WORD, NATIVE, NUMBER, RETURN,
    };

    /// Runs a program as the kernel would, over a call's number and arguments.
    fn judge(program: &[Instruction], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let word = |offset: u32| match offset {
            NUMBER => number,
            ARCHITECTURE => architecture,
            at => {
                let argument = arguments[usize::try_from((at - 16) / 8).unwrap()];
                u32::try_from(argument >> (8 * (at % 8)) & 0xffff_ffff).unwrap()
            }
        };
        let (mut at, mut accumulator) = (0_usize, 0_u32);
        loop {
            let it = program[at];
            at += 1;
            let jump = |holds: bool| usize::from(if holds { it.jump_true } else { it.jump_false });
            match it.code {
                LOAD_WORD => accumulator = word(it.operand),
                JUMP_ALWAYS => at += usize::try_from(it.operand).unwrap(),
                AND => accumulator &= it.operand,
                JUMP_EQUAL => at += jump(accumulator == it.operand),
                JUMP_AT_LEAST => at += jump(accumulator >= it.operand),
                RETURN => return it.operand,
                other => panic!("operation {other:#x}"),
            }
        }
    }

    #[test]
    fn the_filter_judges_as_its_rules_say() {
        let full = program(Wanted { level: Level::Full, clock: false, inputs: false });
        let landlock = program(Wanted { level: Level::Landlock, clock: false, inputs: false });
        let call = |program: &[Instruction], nr: libc::c_long, first: u64, second: u64| {
            judge(program, NATIVE, u32::try_from(nr).unwrap(), [first, second, 0, 0, 0, 0])
        };
        assert_eq!(call(&full, libc::SYS_read, 0, 0), ALLOW);
        assert_eq!(call(&full, libc::SYS_io_uring_setup, 0, 0), errno(libc::ENOSYS));
        assert_eq!(call(&full, libc::SYS_bpf, 0, 0), errno(libc::EPERM));
        for (family, in_full, in_landlock) in [
            (1, true, true),
            (2, true, false),
            (10, true, false),
            (16, true, false),
            (40, false, false),
            (38, false, false),
        ] {
            let expect = |allowed| if allowed { ALLOW } else { errno(libc::EAFNOSUPPORT) };
            assert_eq!(call(&full, libc::SYS_socket, family, 1), expect(in_full), "{family}");
            assert_eq!(call(&landlock, libc::SYS_socket, family, 1), expect(in_landlock), "{family}");
        }
        assert_eq!(call(&full, libc::SYS_ioctl, 0, 0x5401), ALLOW);
        assert_eq!(call(&full, libc::SYS_ioctl, 0, 0x5412), errno(libc::EPERM));
        assert_eq!(call(&full, libc::SYS_ioctl, 0, 0xdead_0000_5412), errno(libc::EPERM));
        assert_eq!(call(&full, libc::SYS_ioctl, 0, 0x541c), errno(libc::EPERM));
        assert_eq!(call(&full, libc::SYS_personality, 0x40000, 0), ALLOW);
        assert_eq!(call(&full, libc::SYS_personality, 0xffff_ffff, 0), ALLOW);
        assert_eq!(call(&full, libc::SYS_personality, 0x0040_0000, 0), errno(libc::EPERM));
        assert_eq!(judge(&full, 0x4000_0003, 1, [0; 6]), errno(libc::ENOSYS));
        assert_eq!(judge(&full, NATIVE, 0x4000_0000 + 41, [0; 6]), errno(libc::ENOSYS));
        assert_eq!(judge(&full, NATIVE, 4000, [0; 6]), errno(libc::ENOSYS));
        assert_eq!(judge(&landlock, NATIVE, 4000, [0; 6]), ALLOW, "the kernel itself answers ENOSYS");
        assert_eq!(judge(&landlock, NATIVE, 0x4000_0000 + 41, [0; 6]), errno(libc::ENOSYS));
    }

    #[test]
    fn only_wall_clocks_and_waits_that_can_end_are_asked_about() {
        let clock = program(Wanted { level: Level::Full, clock: true, inputs: false });
        let call = |nr: libc::c_long, arguments| judge(&clock, NATIVE, u32::try_from(nr).unwrap(), arguments);
        for (id, expect) in [
            (0, NOTIFY),
            (1, ALLOW),
            (2, ALLOW),
            (5, NOTIFY),
            (6, ALLOW),
            (7, ALLOW),
            (8, NOTIFY),
            (11, NOTIFY),
        ] {
            assert_eq!(call(libc::SYS_clock_gettime, [id, 1, 0, 0, 0, 0]), expect, "{id}");
        }
        assert_eq!(call(libc::SYS_clock_nanosleep, [0, 0, 1, 1, 0, 0]), ALLOW, "a span");
        assert_eq!(call(libc::SYS_clock_nanosleep, [0, 1, 1, 1, 0, 0]), NOTIFY);
        for (operation, time, expect) in [
            (0x189, 0, ALLOW),
            (0x189, 8, NOTIFY),
            (0x189, 1 << 32, NOTIFY),
            (0x89, 8, ALLOW),
            (0x86, 0, ALLOW),
            (0x86, 8, NOTIFY),
            (0x80, 8, ALLOW),
        ] {
            assert_eq!(
                call(libc::SYS_futex, [8, operation, 0, time, 0, 0]),
                expect,
                "{operation:#x} {time:#x}"
            );
        }
        assert_eq!(call(libc::SYS_mq_timedreceive, [3, 8, 1, 0, 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_mq_timedreceive, [3, 8, 1, 0, 8, 0]), NOTIFY);
        assert_eq!(call(libc::SYS_exit_group, [0; 6]), ALLOW);
        assert_eq!(call(libc::SYS_clone3, [0; 6]), errno(libc::ENOSYS));
        assert_eq!(call(libc::SYS_clone, [0x11, 0, 0, 0, 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_clone, [0x1000_0011, 0, 0, 0, 0, 0]), NOTIFY, "CLONE_NEWUSER");
    }
}
