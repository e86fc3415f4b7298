# Processes: those of the host, privileges, terminals, objects that System V and POSIX share, namespaces, the kernel itself.
def processes(name, cites="", bare="never"):
    return attempt("processes", name, cites, bare)

NS = {"mnt": NEWNS, "uts": NEWUTS, "ipc": NEWIPC, "pid": NEWPID, "cgroup": NEWCGROUP, "time": NEWTIME, "user": NEWUSER}
at = lambda name: PLACE + "/" + name

@processes("signal-a-process-of-the-host", "", "user")
def _():
    os.kill(PID, signal.SIGUSR1)
    return "signalled"
@processes("signal-everything", "containers/bubblewrap#700")
def _():
    signal.signal(signal.SIGUSR1, signal.SIG_IGN); os.kill(-1, signal.SIGUSR1)
@processes("signal-its-group", "", "user")
def _():
    os.killpg(os.getpgid(PID), signal.SIGUSR1)
    return "signalled"
@processes("signal-by-thread", "", "user")
def _(): return got(sys_call(200, PID, signal.SIGUSR1) == 0)
@processes("signal-with-a-value", "", "user")
def _():
    info = text(struct.pack("iiiixxxxQ", signal.SIGUSR1, 0, -1, 0, 0) + bytes(96))
    return got(sys_call(129, PID, signal.SIGUSR1, info) == 0)
@processes("signal-by-descriptor", "", "user")
def _():
    sys_call(424, os.pidfd_open(PID), signal.SIGUSR1, None, 0)
    return "signalled"
@processes("signal-by-ready-input", "CVE-2025-21830 (Landlock and file owners)", "user")
def _():
    a, b = socket.socketpair(); fcntl.fcntl(a, 10, signal.SIGUSR1); fcntl.fcntl(a, 8, PID)
    fcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK); b.send(b"x"); time.sleep(0.1)
    # Inside, whether a signal came of it is heard by the host.
    return got(fcntl.fcntl(a, 9) == PID and C["mode"] != "run", "owner set")
@processes("trace-a-process-of-the-host", "", "user")
def _():
    # Let go of by the end of this child.
    sys_call(101, 0x4206, PID, 0, 0)
    return "traced"
@processes("trace-the-sandbox", "CVE-2016-8659, CVE-2026-41163")
def _(): return first_of(lambda pid: got(sys_call(101, 0x4206, pid, 0, 0) == 0, f"traced {pid}"), others())
@processes("read-its-memory", "", "user")
def _():
    local = ctypes.create_string_buffer(8); a = text(struct.pack("QQ", ctypes.addressof(local), 8)); b = text(struct.pack("QQ", C["address"], 8))
    return got(sys_call(310, PID, a, 1, b, 1, 0) == 8)
@processes("write-its-memory", "", "user")
def _():
    local = ctypes.create_string_buffer(8); a = text(struct.pack("QQ", ctypes.addressof(local), 8)); b = text(struct.pack("QQ", C["address"], 8))
    return got(sys_call(311, PID, a, 1, b, 1, 0) == 8)
@processes("take-its-descriptor", "", "user")
def _(): return got(SECRET.encode() in os.pread(sys_call(438, os.pidfd_open(PID), 0, 0), 100, 0))
@processes("compare-with-it", "", "user")
def _(): return got(sys_call(312, os.getpid(), PID, 0, 0, 0) >= 0)
@processes("limit-its-processor-time", "", "user")
def _():
    sys_call(302, PID, 0, text(struct.pack("QQ", 100000, 2**64 - 1)), None)
    return "limited"
@processes("move-its-pages", "", "user")
def _(): return got(sys_call(279, PID, 0, None, None, None, 0) == 0)
@processes("lower-its-priority", "", "user")
def _():
    os.setpriority(os.PRIO_PROCESS, PID, 19)
    return "lowered"
@processes("pin-it-to-a-processor", "", "user")
def _():
    os.sched_setaffinity(PID, os.sched_getaffinity(PID))
    return "pinned"
@processes("robust-list-of-it", "", "user")
def _(): return got(sys_call(274, PID, ctypes.byref(ctypes.c_void_p()), ctypes.byref(ctypes.c_size_t())) == 0)
for name, flag in NS.items():
    def enter(name=name, flag=flag):
        fd = os.open(f"/proc/{PID}/ns/{name}", os.O_RDONLY)
        sys_call(308, fd, flag)
        return f"entered {name}"
    processes(f"enter-its-{name}-namespace", "CVE-2019-5736" if name == "mnt" else "", "never" if name == "user" else "root")(enter)
@processes("enter-its-namespaces-by-descriptor", "", "root")
def _(): return got(sys_call(308, os.pidfd_open(PID), NEWUTS) == 0)
for name, flag in NS.items():
    def clone(flag=flag):
        args = text(struct.pack("QQQQQQQQ", flag, 0, 0, 0, signal.SIGCHLD, 0, 0, 0))
        child = sys_call(435, args, 64)
        if child == 0: os._exit(0)
        os.waitpid(child, 0)
        return "cloned"
    if name != "user":
        processes(f"clone3-with-{name}", "", "root")(clone)
@processes("keyring-of-the-user", "ioi/isolate, opencontainers/runc", "user")
def _():
    # The host's user keyring is searched by name; the one of a test lasts as long as its host.
    key = sys_call(250, 10, -4, text("user"), text(C["key"]), 0); buffer = ctypes.create_string_buffer(100)
    sys_call(250, 11, key, buffer, 100)
    return got(SECRET.encode() in buffer.raw)
@processes("keyring-of-a-session-joined", "opencontainers/runc#582", "maybe")
def _(): return got(sys_call(250, 1, None) > 0)
@processes("keyring-request", "CVE-2016-0728", "user")
def _():
    try: return got(sys_call(249, text("user"), text(C["key"] + "none"), None, 0))
    except OSError as error: return got(error.errno == errno.ENOKEY, "the keyring answered")
@processes("shared-memory-of-system-v", "", "user")
def _():
    LIBC.shmat.restype = ctypes.c_void_p
    place = LIBC.shmat(sys_call(29, C["ipc"], 0, 0), None, 0)
    return got(place not in (None, 2**64 - 1) and ctypes.string_at(place, len(SECRET)).decode() == SECRET)
@processes("semaphores-of-system-v", "", "user")
def _(): return got(sys_call(64, C["ipc"], 0, 0) >= 0)
@processes("message-queue-of-system-v", "", "user")
def _():
    queue = sys_call(68, C["ipc"], 0); sys_call(69, queue, text(struct.pack("q", 7) + b"x"), 1, 0o4000)
    return "sent"
@processes("message-queue-of-posix", "", "user")
def _(): return got(sys_call(240, text(C["queue"]), os.O_RDWR | os.O_NONBLOCK, 0, None) >= 0)
for name, request in (("plain", 0x5412), ("with-high-bits", 0x5412 | 1 << 32)):
    def inject(request=request):
        main, side = os.openpty(); os.setsid(); fcntl.ioctl(side, 0x540e, 0)
        LIBC.syscall(ctypes.c_long(16), ctypes.c_long(side), ctypes.c_long(request), text("x"))
        ctypes.set_errno(0)
        sys_call(16, side, request, text("x"))
        return "a character pushed"
    processes("push-into-a-terminal-" + name, "CVE-2017-5226" if name == "plain" else "CVE-2019-10063", "maybe")(inject)
@processes("paste-into-the-console", "CVE-2023-28100")
def _(): return got(sys_call(16, 0, 0x541c, text("\3")) >= 0)
@processes("terminal-of-the-caller", "CVE-2017-5226")
def _(): return opens("/dev/tty", os.O_RDWR)
@processes("other-terminal-of-the-caller", "CVE-2025-52565", "user")
def _(): return opens(C["terminal"], os.O_RDWR)
@processes("push-into-the-callers-other-terminal", "CVE-2017-5226")
def _(): return got(sys_call(16, os.open(C["terminal"], os.O_RDWR | os.O_NOCTTY), 0x5412, text("x")) >= 0)
@processes("console", "CVE-2023-28100", "root")
def _(): return first_of(lambda name: opens(name, os.O_WRONLY | os.O_NOCTTY), ("/dev/console", "/dev/tty0", "/dev/tty1"))
@processes("become-root", "", "root")
def _():
    os.setuid(0)
    return "root"
@processes("become-somebody-else", "", "root")
def _():
    os.setresuid(4242, 4242, 4242)
    return "uid 4242"
@processes("join-a-group", "CVE-2018-7169", "root")
def _():
    os.setgroups([0])
    return "groups"
@processes("setuid-program", "CVE-2021-4034 (pkexec)")
def _():
    for program in ("/usr/bin/su", "/usr/bin/mount", "/usr/bin/passwd", "/usr/bin/newgrp", "/usr/bin/chsh"):
        if os.path.exists(program) and os.stat(program).st_mode & stat.S_ISUID:
            child = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            ids = open(f"/proc/{child.pid}/status").read().split("Uid:")[1].split()[:4]; child.kill(); child.wait()
            if ids[1] == "0": return program
@processes("setuid-of-ones-own", "CVE-2020-5291", "root")
def _():
    open("p", "w").close(); os.chown("p", 0, 0); os.chmod("p", 0o4755)
    return "a program of root's"
@processes("capability-on-a-file", "CVE-2018-18955", "root")
def _():
    open("p", "w").close(); os.setxattr("p", "security.capability", struct.pack("<IIIII", 0x02000001, 0xffffffff, 0, 0, 0))
    return "capabilities"
@processes("raise-capabilities", "", "root")
def _():
    sys_call(126, text(struct.pack("II", 0x20080522, 0)), text(struct.pack("IIIIII", 1 << 21, 1 << 21, 0, 0, 0, 0)))
    return "CAP_SYS_ADMIN"
@processes("new-privileges-again", "")
def _():
    if sys_call(157, 39, 0, 0, 0, 0) == 0: return "not even set"
    return got(sys_call(157, 38, 0, 0, 0, 0) == 0)
@processes("root-by-chroot", "", "root")
def _():
    os.mkdir("d"); os.chroot("d")
    return "a root"
@processes("first-of-all-in-realtime", "", "root")
def _():
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    return "real time"
@processes("higher-priority", "", "root")
def _():
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    return "priority"
@processes("higher-limits", "", "maybe-root")
def _():
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    try: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))
    except ValueError: raise OSError(errno.EPERM, "not allowed")
    return "more files"
@processes("last-to-be-killed", "", "maybe-root")
def _():
    with open("/proc/self/oom_score_adj", "w") as file: file.write("-1000")
    return "never killed"
def machine_code(code):
    place = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC); place.write(code)
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(place)))()
@processes("calls-of-32-bit", "CVE-2009-0835", "maybe")
def _(): return got(machine_code(b"\xb8\x14\0\0\0\xcd\x80\xc3") > 0, "getpid by int 0x80")
@processes("calls-of-x32", "CVE-2014-0038", "maybe")
def _(): return got(sys_call(0x40000000 + 39) > 0)
@processes("local-descriptor-table", "CVE-2015-5157", "user")
def _(): return got(sys_call(154, 0, ctypes.create_string_buffer(64), 64) >= 0, "the table read")
@processes("performance-events", "CVE-2013-2094", "root")
def _(): return got(sys_call(298, text(struct.pack("IIQQQQQ", 1, 112, 0, 0, 0, 0, 0x61) + bytes(64)), 0, -1, -1, 0) >= 0)
@processes("bpf-map", "CVE-2021-3490, CVE-2020-8835", "root")
def _(): return got(sys_call(321, 0, text(struct.pack("IIIII", 2, 4, 4, 1, 0) + bytes(100)), 72) >= 0)
@processes("userfaultfd", "CVE-2021-22555", "root")
def _(): return got(sys_call(323, 0) >= 0)
@processes("persona-with-executable-data", "CVE-2009-1895", "user")
def _(): return got(sys_call(135, 0x0400000) >= 0)
@processes("ports", "", "maybe-root")
def _(): return got(sys_call(173, 0x80, 1, 1) == 0)
@processes("port-level", "", "maybe-root")
def _(): return got(sys_call(172, 3) == 0)
@processes("kernel-log", "CVE-2010-4243", "root")
def _(): return got(sys_call(103, 10, None, 0) >= 0)
for name, number, args in (("kernel-to-boot", 246, (0, 0, None, 0)), ("kernel-to-boot-by-file", 320, (-1, -1, 0, None, 0x4)), ("kernel-module", 175, (text("x"), 1, text(""))),
                           ("kernel-module-by-file", 313, (0, text(""), 0)), ("kernel-module-out", 176, (text("checkrun_none"), 0)), ("swap-on", 167, (text("swap"), 0)),
                           ("swap-off", 168, (text("/none"),)), ("accounting", 163, (text("/none"),)), ("quota", 179, (0x800001 << 8, None, 0, None)),
                           ("restart", 169, (0, 0, 0, None))):
    def refused(number=number, args=args):
        # Any answer but a refusal means that the call was looked at.
        try: sys_call(number, *args)
        except OSError as error:
            if error.errno in (errno.EPERM, errno.ENOSYS): raise
            return f"looked at: {errno.errorcode[error.errno]}"
        return "done"
    processes(name, "CVE-2022-0185" if "module" in name else "")(refused)
@processes("set-the-clock", "")
def _(): return got(sys_call(164, text(struct.pack("qq", 1, 0)), None) == 0)
@processes("set-the-clock-finely", "")
def _(): return got(sys_call(227, 0, text(struct.pack("qq", 1, 0))) == 0)
@processes("bend-the-clock", "")
def _(): return got(sys_call(159, text(struct.pack("I", 0x8000) + bytes(204))) >= 0)
@processes("name-of-the-host", "")
def _(): return got(sys_call(170, text("taken"), 5) == 0)
@processes("namespaces-nested-deeply", "CVE-2018-18955")
def _():
    own_user_namespace()
    return got(os.path.exists(f"/proc/{PID}/ns") and sys_call(308, os.open(f"/proc/{PID}/ns/mnt", 0), NEWNS) == 0)
