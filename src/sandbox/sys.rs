//! Every `unsafe` block of the crate: thin, safe functions over system calls that no wrapper covers safely. No
//! policy, no path decision and no message belongs here.
#![expect(unsafe_code, reason = "the one file meant for it; each block states its invariants")]

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ffi::{CStr, CString};
use std::io;

/// Turns the -1 of a libc call into the error that errno names.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// As [`check`], for raw system calls.
fn check_long(result: libc::c_long) -> io::Result<libc::c_long> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Which side of a fork one is on.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum Forked {
    /// The new process.
    Child,
    /// The old one, with the new one's pid as this pid namespace numbers it.
    Parent(i32),
}

/// Forks, provided that this process has one thread (fork(2), pthread_atfork(3)): only then may the child go on as
/// an ordinary program, with allocation and locks in working order.
///
/// # Errors
/// `EBUSY` (as an `io::Error`) where there is more than one thread; else what fork(2) says.
pub(super) fn fork() -> io::Result<Forked> {
    if thread_count()? != 1 {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    // SAFETY: the process has exactly one thread (checked above, and nothing in between can start one), so no lock
    // can be held by a thread that the child lacks; the child's memory is a plain copy.
    let pid = unsafe { libc::fork() };
    Ok(match check(pid)? {
        0 => Forked::Child,
        pid => Forked::Parent(pid),
    })
}

/// Threads of this process, from the link count of /proc/self/task (proc(5): one sub-folder per thread).
fn thread_count() -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    match std::fs::metadata("/proc/self/task") {
        Ok(meta) => Ok(meta.nlink().saturating_sub(2)),
        Err(error) => Err(error),
    }
}

/// Ends this process without running exit handlers, which belong to the process it was forked from (_exit(2)).
pub(super) fn exit_now(status: i32) -> ! {
    // SAFETY: _exit takes any status, touches no memory of ours and does not return.
    unsafe { libc::_exit(status) }
}

/// unshare(2) with raw `CLONE_NEW…` flags.
///
/// # Errors
/// What unshare(2) says.
pub(super) fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: only namespace flags are passed by our callers, none of which affects memory or descriptors; the call
    // takes no pointer.
    check(unsafe { libc::unshare(flags) }).map(drop)
}

/// prctl(2) for the options that take plain numbers.
///
/// # Errors
/// What prctl(2) says.
pub(super) fn prctl(option: libc::c_int, argument: libc::c_ulong) -> io::Result<libc::c_int> {
    // SAFETY: our callers pass options whose arguments are numbers, never addresses; unused arguments are zero, as
    // the kernel demands for some of them.
    check(unsafe {
        libc::prctl(option, argument, 0 as libc::c_ulong, 0 as libc::c_ulong, 0 as libc::c_ulong)
    })
}

/// Sets the name shown by ps (PR_SET_NAME, at most 15 bytes).
///
/// # Errors
/// What prctl(2) says.
pub(super) fn set_name(name: &CStr) -> io::Result<()> {
    // SAFETY: `name` is NUL-terminated and lives across the call; the kernel copies at most 16 bytes up to the NUL.
    check(unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) }).map(drop)
}

/// Becomes `uid` and `gid` in all three places and leaves every supplementary group; needs privilege.
///
/// # Errors
/// What setgroups(2), setresgid(2) or setresuid(2) says.
pub(super) fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: a count of zero reads no memory, so the null pointer is never followed.
    check(unsafe { libc::setgroups(0, std::ptr::null()) })?;
    // SAFETY: plain numbers, no memory.
    check(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: plain numbers, no memory.
    check(unsafe { libc::setresuid(uid, uid, uid) }).map(drop)
}

/// Drops every capability from the bounding set: none can be had again once the others are dropped (capabilities(7)).
pub(super) fn bound_capabilities() {
    for capability in 0..64 {
        // EINVAL: the kernel knows no capability of that number, nor any above it.
        if prctl(libc::PR_CAPBSET_DROP, capability).is_err() {
            break;
        }
    }
}

/// Drops every capability that this process has: ambient, effective, permitted and inheritable (capabilities(7)).
///
/// # Errors
/// What prctl(2) or capset(2) says.
pub(super) fn drop_capabilities() -> io::Result<()> {
    // SAFETY: the ambient set is cleared as a whole; all further arguments are zero as prctl(2) demands.
    check(unsafe {
        libc::prctl(
            libc::PR_CAP_AMBIENT,
            libc::c_ulong::from(libc::PR_CAP_AMBIENT_CLEAR_ALL.unsigned_abs()),
            0 as libc::c_ulong,
            0 as libc::c_ulong,
            0 as libc::c_ulong,
        )
    })?;
    keep_capabilities(0)
}

/// Keeps only the capabilities of `mask` (bit 19 is CAP_SYS_PTRACE) of those that are permitted, effective at once.
///
/// # Errors
/// What capset(2) says.
pub(super) fn keep_capabilities(mask: u32) -> io::Result<()> {
    // The version-3 header and its two data structs (linux/capability.h): effective, permitted, inheritable, low
    // halves first; capabilities above 31 are dropped.
    let header: [u32; 2] = [0x2008_0522, 0];
    let data: [u32; 6] = [mask, mask, 0, 0, 0, 0];
    // SAFETY: `header` has the layout of struct __user_cap_header_struct (version, pid 0 = self), `data` that of two
    // struct __user_cap_data_struct; both outlive the call and the kernel only reads them.
    check_long(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) }).map(drop)
}

/// Replaces this program (execve(2)); returns only the error.
#[must_use]
pub(super) fn execute(program: &CStr, argv: &[CString], envp: &[CString]) -> io::Error {
    let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
        list.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (argv, envp) = (pointers(argv), pointers(envp));
    // SAFETY: both arrays end in a null pointer and every other element points to a NUL-terminated string owned by
    // the caller's slices, which outlive the call; execve either does not return or leaves them unchanged.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    io::Error::last_os_error()
}

/// Closes every descriptor above 2 but those of `keep` (close_range(2), Linux 5.9): whatever was inherited from who
/// knows whom ends here.
///
/// # Errors
/// What close_range(2) says.
pub(super) fn keep_only(keep: &[RawFd]) -> io::Result<()> {
    let mut keep: Vec<u32> =
        keep.iter().filter_map(|fd| u32::try_from(*fd).ok()).filter(|fd| *fd > 2).collect();
    keep.sort_unstable();
    keep.push(u32::MAX);
    let mut first = 3;
    for fd in keep {
        if fd > first {
            // SAFETY: closing is only unsound for descriptors that an owner in this process still uses; callers are
            // forked children that list what they keep, use nothing else afterwards, and end by exec or _exit
            // without running destructors.
            check_long(unsafe { libc::syscall(libc::SYS_close_range, first, fd - 1, 0) })?;
        }
        first = fd.saturating_add(1);
    }
    Ok(())
}

/// Blocks every signal, or `keep_open` only, in this thread; a forked child inherits it (sigprocmask(2)).
///
/// # Errors
/// What sigprocmask(2) says.
pub(super) fn block_signals(signals: &[i32]) -> io::Result<()> {
    let set = signal_set(signals);
    // SAFETY: `set` is an initialised sigset_t; the old set is not asked for.
    check(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) }).map(drop)
}

/// Puts every signal back to its default action, which children inherit: what a program expects to start with. Rust's
/// runtime ignores SIGPIPE and that would be inherited across exec (signal(7)).
pub(super) fn default_signals() {
    // A kernel sigaction of SIG_DFL, no flags and an empty mask is all zeroes on every architecture, and no longer.
    let default = [0_u64; 4];
    for signal in 1..=64_i64 {
        // By the raw call: libc keeps two real-time signals to itself, and a caller may have ignored those too.
        // SAFETY: `default` is readable and at least as long as the kernel's sigaction; the old one is not asked for;
        // the size is that of the kernel's signal set. SIGKILL and SIGSTOP are refused without effect.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                std::ptr::null_mut::<u64>(),
                8_usize,
            )
        };
    }
}

/// Unblocks every signal.
///
/// # Errors
/// What sigprocmask(2) says.
pub(super) fn unblock_signals() -> io::Result<()> {
    let set = signal_set(&[]);
    // SAFETY: `set` is an initialised, empty sigset_t; the old set is not asked for.
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) }).map(drop)
}

fn signal_set(signals: &[i32]) -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the whole set that it is given.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: initialised by the call above.
    let mut set = unsafe { set.assume_init() };
    for signal in signals {
        // SAFETY: `set` is initialised; a number that is no signal is refused without effect.
        unsafe { libc::sigaddset(&raw mut set, *signal) };
    }
    set
}

/// A descriptor that becomes readable when one of `signals`, which must be blocked, is pending (signalfd(2)).
///
/// # Errors
/// What signalfd(2) says.
pub(super) fn signal_descriptor(signals: &[i32]) -> io::Result<OwnedFd> {
    let set = signal_set(signals);
    // SAFETY: `set` is initialised and only read; -1 asks for a new descriptor.
    let fd = check(unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) })?;
    // SAFETY: the kernel has just given us this descriptor and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes one pending signal from a [`signal_descriptor`].
///
/// # Errors
/// What read(2) says, save that nothing pending is `Ok(None)`.
pub(super) fn take_signal(fd: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    // struct signalfd_siginfo is 128 bytes and begins with the signal number (signalfd(2)).
    let mut info = [0_u8; 128];
    match rustix::io::read(fd, &mut info) {
        Ok(128) => Ok(i32::try_from(u32::from_ne_bytes([info[0], info[1], info[2], info[3]])).ok()),
        Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What wait4(2) tells of a child.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waited {
    /// Which child.
    pub(super) pid: i32,
    /// Its exit status, or the signal it died of.
    pub(super) ending: Result<i32, i32>,
    /// Its user time and that of the children it waited for, in microseconds.
    pub(super) user_us: u64,
    /// Its system time and that of the children it waited for, in microseconds.
    pub(super) sys_us: u64,
    /// The largest resident set among them, in KiB.
    pub(super) max_rss_kib: u64,
}

/// Waits for a child (`-1`: any); `hang` says whether to wait until there is one.
///
/// # Errors
/// What wait4(2) says; `ECHILD` where there is no child at all.
pub(super) fn wait(pid: i32, hang: bool) -> io::Result<Option<Waited>> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    let options = if hang { 0 } else { libc::WNOHANG };
    // SAFETY: both pointers are valid for writes of their types for the length of the call.
    let got = check(unsafe { libc::wait4(pid, &raw mut status, options, usage.as_mut_ptr()) })?;
    if got == 0 {
        return Ok(None);
    }
    // SAFETY: zeroed above, which is a valid rusage, and filled by the kernel where it returned a child.
    let usage = unsafe { usage.assume_init() };
    let ending =
        if libc::WIFSIGNALED(status) { Err(libc::WTERMSIG(status)) } else { Ok(libc::WEXITSTATUS(status)) };
    Ok(Some(Waited { pid: got, ending, ..waited(&usage) }))
}

fn waited(usage: &libc::rusage) -> Waited {
    let micros = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
    };
    Waited {
        pid: 0,
        ending: Ok(0),
        user_us: micros(usage.ru_utime),
        sys_us: micros(usage.ru_stime),
        max_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
    }
}

/// What all children that were waited for used together (getrusage(2), RUSAGE_CHILDREN): for a process that has
/// the children of one run only.
///
/// # Errors
/// What getrusage(2) says.
pub(super) fn children_usage() -> io::Result<Waited> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is valid for a write of a rusage for the length of the call.
    check(unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) })?;
    // SAFETY: zeroed above, which is a valid rusage, and filled by the call.
    Ok(waited(&unsafe { usage.assume_init() }))
}

/// kill(2), where the number is known to be right: a process of our own namespace, its group, or all of them.
///
/// # Errors
/// What kill(2) says.
pub(super) fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: plain numbers, no memory.
    check(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// struct mount_attr (mount_setattr(2), Linux 5.12).
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Sets `MOUNT_ATTR_…` bits on a mount, and on all beneath it if `recursive` (mount_setattr(2), Linux 5.12).
///
/// # Errors
/// What mount_setattr(2) says.
pub(super) fn set_mount_attributes(mount: BorrowedFd<'_>, set: u64, recursive: bool) -> io::Result<()> {
    let attributes = MountAttributes { set, clear: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is an empty C string, `attributes` has the kernel's layout and outlives the call, and the size
    // passed is its own.
    check_long(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    })
    .map(drop)
}

/// `SIOCSIFFLAGS` (linux/sockios.h), in the type that this C library's ioctl(2) takes.
const SET_INTERFACE_FLAGS: libc::Ioctl = 0x8914;

/// Brings the loopback interface of this network namespace up (netdevice(7)); the kernel then gives it 127.0.0.1
/// and, where IPv6 is built in, ::1.
///
/// # Errors
/// What socket(2) or ioctl(2) says.
pub(super) fn bring_loopback_up() -> io::Result<()> {
    // SAFETY: plain numbers; a new descriptor comes back.
    let fd = check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel has just given us this descriptor and nobody else knows of it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all-zero bytes are a valid ifreq (an array of chars and a union of plain data).
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(b"lo\0") {
        *slot = libc::c_char::try_from(*byte).unwrap_or(0);
    }
    // IFF_UP 0x1 and IFF_RUNNING 0x40 fit a short (netdevice(7)).
    request.ifr_ifru.ifru_flags = 0x41;
    // SAFETY: SIOCSIFFLAGS reads a struct ifreq, which `request` is, with its name NUL-terminated.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), SET_INTERFACE_FLAGS, &raw const request) }).map(drop)
}

/// One instruction of a classic BPF program (struct sock_filter).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    /// Operation.
    pub(super) code: u16,
    /// Instructions to skip where a test holds.
    pub(super) jump_true: u8,
    /// Instructions to skip where it does not.
    pub(super) jump_false: u8,
    /// Operand.
    pub(super) operand: u32,
}

/// Installs a seccomp filter on this thread (seccomp(2)); with `SECCOMP_FILTER_FLAG_NEW_LISTENER` among `flags` the
/// listener's descriptor comes back. `no_new_privs` must be set, or the thread privileged.
///
/// # Errors
/// What seccomp(2) says.
pub(super) fn install_filter(program: &[Instruction], flags: libc::c_ulong) -> io::Result<Option<OwnedFd>> {
    let len =
        libc::c_ushort::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let fprog = libc::sock_fprog { len, filter: program.as_ptr().cast::<libc::sock_filter>().cast_mut() };
    // SAFETY: `Instruction` has the layout of struct sock_filter (same four fields, repr(C)); `len` is the slice's
    // own length; the kernel copies the program and does not keep or write through the pointer.
    let result = check_long(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const fprog)
    })?;
    if flags & libc::SECCOMP_FILTER_FLAG_NEW_LISTENER == 0 {
        return Ok(None);
    }
    let fd = RawFd::try_from(result).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: with that flag a non-negative result is a descriptor that the kernel has just made for us.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// personality(2); `0xffff_ffff` only reads. Returns the one before.
///
/// # Errors
/// What personality(2) says.
pub(super) fn personality(persona: libc::c_ulong) -> io::Result<libc::c_int> {
    // SAFETY: plain number, no memory.
    check(unsafe { libc::personality(persona) })
}

/// Makes `fd` the descriptor `number`, without close-on-exec (dup2(2)): for a process about to exec.
///
/// # Errors
/// What dup2(2) says.
pub(super) fn place_descriptor(fd: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    // SAFETY: used for 0, 1 and 2 only, in a child about to exec, where nothing owns those numbers as OwnedFd.
    check(unsafe { libc::dup2(fd.as_fd().as_raw_fd(), number) }).map(drop)
}

/// The Landlock ABI that the kernel offers (landlock(7)), or why there is none: ENOSYS (not built in), EOPNOTSUPP
/// (switched off at boot).
///
/// # Errors
/// What landlock_create_ruleset(2) says.
pub(super) fn landlock_abi() -> io::Result<u32> {
    const CREATE_RULESET_VERSION: libc::c_uint = 1;
    // SAFETY: with the version flag the attribute pointer must be null and the size zero; nothing is read.
    let abi = check_long(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            CREATE_RULESET_VERSION,
        )
    })?;
    Ok(u32::try_from(abi).unwrap_or(0))
}

/// The machine code of the clock's new functions (clock/vdso/*.s) and the places in it that are filled in.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockStub {
    /// All of it; `clock_gettime` is at its start.
    pub(super) code: &'static [u8],
    /// Where the displaced instructions go: sixteen bytes, then a jump.
    pub(super) original: usize,
    /// Where `gettimeofday` is.
    pub(super) gettimeofday: usize,
    /// Where `time` is, where the vDSO has such a function.
    pub(super) time: Option<usize>,
    /// Eight bytes: seconds to add.
    pub(super) seconds: usize,
    /// Eight bytes: nanoseconds to add.
    pub(super) nanoseconds: usize,
    /// Eight bytes: not zero to make a system call instead.
    pub(super) by_syscall: usize,
}

mod stub {
    #[cfg(target_arch = "aarch64")]
    std::arch::global_asm!(include_str!("clock/vdso/aarch64.s"));
    #[cfg(target_arch = "x86_64")]
    std::arch::global_asm!(include_str!("clock/vdso/x86_64.s"));
    unsafe extern "C" {
        pub(super) static checkrun_stub_start: u8;
        pub(super) static checkrun_stub_original: u8;
        pub(super) static checkrun_stub_gettimeofday: u8;
        #[cfg(target_arch = "x86_64")]
        pub(super) static checkrun_stub_time: u8;
        pub(super) static checkrun_stub_seconds: u8;
        pub(super) static checkrun_stub_nanoseconds: u8;
        pub(super) static checkrun_stub_by_syscall: u8;
        pub(super) static checkrun_stub_end: u8;
    }
}

/// The stub for this architecture; never `None` in truth, since its labels are in order.
pub(super) fn clock_stub() -> Option<ClockStub> {
    let start = &raw const stub::checkrun_stub_start;
    let distance = |label: *const u8| label.addr().checked_sub(start.addr());
    let length = distance(&raw const stub::checkrun_stub_end)?;
    // SAFETY: start and end are labels of one read-only section of this program, in this order, so all bytes between
    // them are initialised, never written, and live as long as the program.
    let code = unsafe { std::slice::from_raw_parts(start, length) };
    Some(ClockStub {
        code,
        original: distance(&raw const stub::checkrun_stub_original)?,
        gettimeofday: distance(&raw const stub::checkrun_stub_gettimeofday)?,
        #[cfg(target_arch = "x86_64")]
        time: Some(distance(&raw const stub::checkrun_stub_time)?),
        #[cfg(target_arch = "aarch64")]
        time: None,
        seconds: distance(&raw const stub::checkrun_stub_seconds)?,
        nanoseconds: distance(&raw const stub::checkrun_stub_nanoseconds)?,
        by_syscall: distance(&raw const stub::checkrun_stub_by_syscall)?,
    })
}

/// A system call that waits for the supervisor's answer (struct seccomp_notif, seccomp_unotify(2)).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Notification {
    /// Which; to be named in the answer.
    pub(super) id: u64,
    /// The thread, as the supervisor's PID namespace numbers it.
    pub(super) pid: u32,
    flags: u32,
    /// The call's number.
    pub(super) number: i32,
    architecture: u32,
    /// Where the call was made from.
    pub(super) instruction: u64,
    /// Its arguments.
    pub(super) arguments: [u64; 6],
}

/// struct seccomp_notif_resp.
#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// What becomes of a call that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The kernel carries it out.
    Continue,
    /// It returns this.
    Return(i64),
    /// It fails with this errno.
    Fail(i32),
}

const NOTIFY_RECEIVE: libc::Ioctl = 0xc050_2100_u32 as libc::Ioctl;
const NOTIFY_SEND: libc::Ioctl = 0xc018_2101_u32 as libc::Ioctl;
const NOTIFY_VALID: libc::Ioctl = 0x4008_2102_u32 as libc::Ioctl;

/// Takes the next waiting call (SECCOMP_IOCTL_NOTIF_RECV); blocks where there is none.
///
/// # Errors
/// ENOENT where the caller was killed meanwhile or no process is left; EINTR.
pub(super) fn receive_notification(listener: BorrowedFd<'_>) -> io::Result<Notification> {
    let mut notification = Notification::default();
    // SAFETY: `Notification` has the layout of struct seccomp_notif (80 bytes: id, pid, flags, then struct
    // seccomp_data), is zeroed as the call demands, and is valid for the write.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), NOTIFY_RECEIVE, &raw mut notification) })?;
    Ok(notification)
}

/// Answers a waiting call (SECCOMP_IOCTL_NOTIF_SEND).
///
/// # Errors
/// ENOENT where the call is no longer waiting: its thread died or a signal interrupted it.
pub(super) fn answer_notification(listener: BorrowedFd<'_>, id: u64, verdict: Verdict) -> io::Result<()> {
    // SECCOMP_USER_NOTIF_FLAG_CONTINUE is 1.
    let response = match verdict {
        Verdict::Continue => Response { id, value: 0, error: 0, flags: 1 },
        Verdict::Return(value) => Response { id, value, error: 0, flags: 0 },
        Verdict::Fail(errno) => Response { id, value: 0, error: -errno, flags: 0 },
    };
    // SAFETY: `Response` has the layout of struct seccomp_notif_resp (24 bytes) and the kernel only reads it.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), NOTIFY_SEND, &raw const response) }).map(drop)
}

/// Asks the kernel to hand the processor back and forth between a waiting thread and whoever answers it, instead of
/// waking each on another one (SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP, Linux 6.6).
///
/// # Errors
/// EINVAL or ENOTTY on older kernels, which then do as before.
pub(super) fn wake_in_step(listener: BorrowedFd<'_>) -> io::Result<()> {
    const NOTIFY_SET_FLAGS: libc::Ioctl = 0x4008_2104_u32 as libc::Ioctl;
    const SYNC_WAKE_UP: libc::c_ulong = 1;
    // SAFETY: the argument is a plain number.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), NOTIFY_SET_FLAGS, SYNC_WAKE_UP) }).map(drop)
}

/// Whether the call is still waiting (SECCOMP_IOCTL_NOTIF_ID_VALID), and so its thread the one it was.
pub(super) fn is_waiting(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads one u64 through the pointer.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), NOTIFY_VALID, &raw const id) }).is_ok()
}

/// The wall clock by the system call itself, past the vDSO: seconds and nanoseconds.
///
/// # Errors
/// What clock_gettime(2) says.
pub(super) fn raw_wall_clock() -> io::Result<(i64, i64)> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec, valid for the write.
    check_long(unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_REALTIME, &raw mut time) })?;
    Ok((time.tv_sec, time.tv_nsec))
}

/// Makes SIGCHLD interrupt blocking calls (EINTR) and do nothing else, and lets it through.
///
/// # Errors
/// What sigaction(2) says.
pub(super) fn let_children_interrupt() -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: all-zero bytes are a valid sigaction: default handler, empty mask, no flags (so no SA_RESTART).
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int) = nothing;
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: the handler does nothing, which is async-signal-safe; `action` outlives the call.
    check(unsafe { libc::sigaction(libc::SIGCHLD, &raw const action, std::ptr::null_mut()) })?;
    let set = signal_set(&[libc::SIGCHLD]);
    // SAFETY: `set` is an initialised sigset_t; the old set is not asked for.
    check(unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) }).map(drop)
}

/// A copy of another process's descriptor (pidfd_getfd(2), Linux 5.6).
///
/// # Errors
/// What pidfd_getfd(2) says.
pub(super) fn copy_descriptor(pidfd: BorrowedFd<'_>, number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers, no memory.
    let fd = check_long(unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number, 0) })?;
    let fd = RawFd::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the kernel has just given us this descriptor and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Reads memory of another process into `buffer`; the number of bytes that could be read (process_vm_readv(2)).
///
/// # Errors
/// What process_vm_readv(2) says.
pub(super) fn read_memory(pid: u32, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let address = usize::try_from(at).map_err(|_| io::Error::from_raw_os_error(libc::EFAULT))?;
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: buffer.len() };
    // SAFETY: `local` describes `buffer`, valid for writes of its length; `remote` is an address in the other process,
    // which only the kernel follows; one vector each, as counted.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// Writes `bytes` into the memory of another process, all of them (process_vm_writev(2)).
///
/// # Errors
/// What process_vm_writev(2) says; EFAULT where only a part could be written.
pub(super) fn write_memory(pid: u32, at: u64, bytes: &[u8]) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let address = usize::try_from(at).map_err(|_| io::Error::from_raw_os_error(libc::EFAULT))?;
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: bytes.len() };
    // SAFETY: `local` describes `bytes`, which the kernel only reads; `remote` is an address in the other process,
    // which only the kernel follows; one vector each, as counted.
    let written = unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) };
    match usize::try_from(written) {
        Ok(count) if count == bytes.len() => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// newfstatat(2) with the kernel's own struct stat, as bytes.
///
/// # Errors
/// What newfstatat(2) says.
pub(super) fn stat_bytes(
    at: BorrowedFd<'_>,
    path: &CStr,
    flags: i32,
) -> io::Result<[u8; size_of::<libc::stat>()]> {
    let mut bytes = [0; size_of::<libc::stat>()];
    // SAFETY: `path` is NUL-terminated; `bytes` is as large as the struct that the kernel fills in, and any bytes are
    // valid in it.
    check_long(unsafe {
        libc::syscall(libc::SYS_newfstatat, at.as_raw_fd(), path.as_ptr(), bytes.as_mut_ptr(), flags)
    })?;
    Ok(bytes)
}

/// statx(2) with the kernel's own struct statx, as bytes (Linux 4.11; 256 bytes in every version).
///
/// # Errors
/// What statx(2) says.
pub(super) fn statx_bytes(at: BorrowedFd<'_>, path: &CStr, flags: i32, mask: u32) -> io::Result<[u8; 256]> {
    let mut bytes = [0; 256];
    // SAFETY: `path` is NUL-terminated; `bytes` is as large as struct statx is and will be, and any bytes are valid in
    // it.
    check_long(unsafe {
        libc::syscall(libc::SYS_statx, at.as_raw_fd(), path.as_ptr(), flags, mask, bytes.as_mut_ptr())
    })?;
    Ok(bytes)
}
