//! The system call filter: allow by default, refuse what no namespace covers. Installing it is `sys`'s, deciding
//! which rules a level has is here and nowhere else.
//!
//! The program is built by a few hundred additions at start-up, microseconds, instead of by a general compiler:
//! parsing and compiling a profile costs other tools more than the whole sandbox (14 ms measured for one).
#![forbid(unsafe_code)]

use crate::model::layer::Level;
use crate::sandbox::path_calls;
use crate::sandbox::sys::Instruction;

// Classic BPF operations (linux/bpf_common.h) and return values (seccomp(2)).
const LOAD_WORD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
const NOTIFY: u32 = 0x7fc0_0000;

// Offsets in struct seccomp_data (linux/seccomp.h): the low halves of the arguments on a little-endian machine.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const fn argument_low(index: u32) -> u32 {
    16 + 8 * index
}

#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xc000_003e; // AUDIT_ARCH_X86_64
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xc000_00b7; // AUDIT_ARCH_AARCH64

/// Terminal ioctls that push characters into a terminal's input (ioctl_tty(2), ioctl_console(2)).
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;

/// Persona values that are allowed: native, 32-bit uname, 2.6 uname, no address randomisation, and the read-only
/// query (personality(2)).
const PERSONAS: [u32; 5] = [0, 0x8, 0x002_0000, 0x004_0000, 0xffff_ffff];

/// A test of one argument's low half.
#[derive(Clone, Copy)]
struct Test {
    argument: u32,
    mask: u32,
    value: u32,
}

/// Builds a filter, one rule after the other; the first that fits decides.
#[derive(Default)]
struct Program {
    code: Vec<Instruction>,
}

impl Program {
    fn push(&mut self, code: u16, operand: u32, jump_true: u8, jump_false: u8) {
        self.code.push(Instruction { code, jump_true, jump_false, operand });
    }

    /// Whatever the arguments are.
    fn rule(&mut self, call: libc::c_long, action: u32) {
        self.push(JUMP_EQUAL, number(call), 0, 1);
        self.push(RETURN, action, 0, 0);
    }

    /// Where every test holds. The high halves of the arguments are not looked at: all arguments tested here are
    /// 32-bit in the kernel, which ignores the rest (a filter that compared all 64 bits could be walked around).
    fn rule_if(&mut self, call: libc::c_long, tests: &[Test], action: u32) {
        let body = u8::try_from(tests.len() * 3 + 2).unwrap_or(u8::MAX);
        self.push(JUMP_EQUAL, number(call), 0, body);
        let mut left = body;
        for test in tests {
            self.push(LOAD_WORD, argument_low(test.argument), 0, 0);
            self.push(AND, test.mask, 0, 0);
            left -= 3;
            // On a mismatch skip to the reload below.
            self.push(JUMP_EQUAL, test.value, 0, left - 1);
        }
        self.push(RETURN, action, 0, 0);
        self.push(LOAD_WORD, NUMBER, 0, 0);
    }

    /// Where a pointer, all 64 bits of it, is null.
    fn rule_if_null(&mut self, call: libc::c_long, argument: u32, action: u32) {
        self.push(JUMP_EQUAL, number(call), 0, 6);
        self.push(LOAD_WORD, argument_low(argument), 0, 0);
        self.push(JUMP_EQUAL, 0, 0, 3);
        self.push(LOAD_WORD, argument_low(argument) + 4, 0, 0);
        self.push(JUMP_EQUAL, 0, 0, 1);
        self.push(RETURN, action, 0, 0);
        self.push(LOAD_WORD, NUMBER, 0, 0);
    }

    /// Where the argument is none of `values`.
    fn rule_unless(&mut self, call: libc::c_long, argument: u32, values: &[u32], action: u32) {
        let count = u8::try_from(values.len()).unwrap_or(u8::MAX);
        self.push(JUMP_EQUAL, number(call), 0, count + 3);
        self.push(LOAD_WORD, argument_low(argument), 0, 0);
        for (index, value) in values.iter().enumerate() {
            let skip = count - u8::try_from(index).unwrap_or(0);
            self.push(JUMP_EQUAL, *value, skip, 0);
        }
        self.push(RETURN, action, 0, 0);
        self.push(LOAD_WORD, NUMBER, 0, 0);
    }
}

/// System call numbers are small and positive on every architecture.
fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

const fn errno(number: i32) -> u32 {
    ERRNO | number.unsigned_abs()
}

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
    let mut program = Program::default();
    // A call by another architecture's table would be judged by the wrong numbers.
    program.push(LOAD_WORD, ARCHITECTURE, 0, 0);
    program.push(JUMP_EQUAL, NATIVE, 1, 0);
    program.push(RETURN, errno(libc::ENOSYS), 0, 0);
    program.push(LOAD_WORD, NUMBER, 0, 0);
    // The x32 table of x86-64 sets bit 30; no native call has a number that large.
    program.push(JUMP_AT_LEAST, 0x4000_0000, 0, 1);
    program.push(RETURN, errno(libc::ENOSYS), 0, 0);
    refuse_whole_calls(&mut program);
    refuse_by_argument(&mut program, wanted.level);
    if wanted.clock {
        ask_about_clocks(&mut program);
    }
    if wanted.inputs {
        tell_of_paths(&mut program);
    }
    program.push(RETURN, ALLOW, 0, 0);
    program.code
}

fn refuse_whole_calls(program: &mut Program) {
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
        program.rule(call, errno(libc::ENOSYS));
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
        program.rule(call, errno(libc::EPERM));
    }
}

fn refuse_by_argument(program: &mut Program, level: Level) {
    let families: &[i32] = match level {
        Level::Full => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
        // Landlock's own rules cover TCP only, and not by way of Multipath TCP, so without a network namespace no
        // internet socket is to be had at all.
        Level::Landlock => &[libc::AF_UNIX],
    };
    let families: Vec<u32> = families.iter().map(|family| family.unsigned_abs()).collect();
    program.rule_unless(libc::SYS_socket, 0, &families, errno(libc::EAFNOSUPPORT));
    for request in [TIOCSTI, TIOCLINUX] {
        let test = Test { argument: 1, mask: u32::MAX, value: request };
        program.rule_if(libc::SYS_ioctl, &[test], errno(libc::EPERM));
    }
    program.rule_unless(libc::SYS_personality, 0, &PERSONAS, errno(libc::EPERM));
}

/// Calls that the supervisor answers while the clock is fixed: each only where its arguments speak of a wall clock,
/// so that monotonic time stays native. `clock` says what becomes of them.
fn ask_about_clocks(program: &mut Program) {
    let is = |argument, value| Test { argument, mask: u32::MAX, value };
    let has = |argument, bit| Test { argument, mask: bit, value: bit };
    // Waits without a time limit, which are the most: a condition variable's wait names the wall clock all the same.
    program.rule_if_null(libc::SYS_futex, 3, ALLOW);
    for call in [libc::SYS_mq_timedsend, libc::SYS_mq_timedreceive, SYS_FUTEX_WAIT] {
        program.rule_if_null(call, 4, ALLOW);
    }
    // CLOCK_REALTIME, CLOCK_REALTIME_COARSE, CLOCK_REALTIME_ALARM and CLOCK_TAI (linux/time.h).
    for clock in [0, 5, 8, 11] {
        program.rule_if(libc::SYS_clock_gettime, &[is(0, clock)], NOTIFY);
        program.rule_if(libc::SYS_clock_nanosleep, &[is(0, clock), has(1, 1)], NOTIFY); // TIMER_ABSTIME
        program.rule_if(libc::SYS_futex_waitv, &[is(4, clock)], NOTIFY);
        program.rule_if(SYS_FUTEX_WAIT, &[is(5, clock)], NOTIFY);
    }
    program.rule_if(libc::SYS_timer_settime, &[has(1, 1)], NOTIFY); // TIMER_ABSTIME
    program.rule_if(libc::SYS_timerfd_settime, &[has(1, 1)], NOTIFY); // TFD_TIMER_ABSTIME
    program.rule_if(libc::SYS_futex, &[has(1, 0x100)], NOTIFY); // FUTEX_CLOCK_REALTIME
    // FUTEX_LOCK_PI takes a wall clock instant without saying so; the mask leaves out FUTEX_PRIVATE_FLAG.
    program.rule_if(libc::SYS_futex, &[Test { argument: 1, mask: 0x7f, value: 6 }], NOTIFY);
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
        program.rule(call, NOTIFY);
    }
    // The thread pointer is set once by every libc and by the Go runtime, before `main` (ARCH_SET_FS, arch_prctl(2)).
    #[cfg(target_arch = "x86_64")]
    program.rule_if(libc::SYS_arch_prctl, &[is(0, 0x1002)], NOTIFY);
}

/// Calls that tell what a check reads, lists and looks for; `observer` says what becomes of them.
fn tell_of_paths(program: &mut Program) {
    for call in path_calls::calls() {
        program.rule(call, NOTIFY);
    }
    for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNS] {
        let bit = flag.unsigned_abs();
        program.rule_if(libc::SYS_clone, &[Test { argument: 0, mask: bit, value: bit }], NOTIFY);
    }
    // A call that is newer than the list may take a path; programs fall back where it is not there.
    program.push(JUMP_AT_LEAST, path_calls::FIRST_UNKNOWN, 0, 1);
    program.push(RETURN, errno(libc::ENOSYS), 0, 0);
}

/// futex_wait(2), Linux 6.7.
const SYS_FUTEX_WAIT: libc::c_long = 455;

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(judge(&full, NATIVE, 4000, [0; 6]), ALLOW, "the kernel itself answers ENOSYS");
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
    }
}
