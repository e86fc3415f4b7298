# The host that attempts are made on: processes, sockets, shared objects and a terminal, all of them the test's own. Prints
# one JSON object when all is there, appends a line to `log` for all that it hears, and ends when its input does.
import ctypes, json, os, signal, socket, struct, sys, threading, time

place, secret = sys.argv[1:]
LIBC = ctypes.CDLL(None, use_errno=True); LIBC.syscall.restype = ctypes.c_long
def heard(what): os.write(log, (what + "\n").encode())
log = os.open(place + "/../heard", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
signal.signal(signal.SIGUSR1, lambda *_: heard("signal"))
def serve(s, what):
    def one(c):
        try:
            data = c.recv(100); heard(what)
            if data == b"fd": socket.send_fds(c, [b"x"], [os.open(place + "/secret", os.O_RDONLY)])
            else: c.send(secret.encode())
        except OSError: pass
    while True:
        c, _ = s.accept(); threading.Thread(target=one, args=(c,), daemon=True).start()
def echo(s, what):
    while True:
        _, sender = s.recvfrom(100); heard(what)
        if sender: s.sendto(secret.encode(), sender)
def start(function, *args): threading.Thread(target=function, args=args, daemon=True).start()
def listening(family, kind, address):
    s = socket.socket(family, kind)
    if family == socket.AF_INET6: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    s.bind(address)
    if kind == socket.SOCK_STREAM: s.listen(100)
    return s
name = f"checkrun-{os.getpid()}"
tcp = listening(socket.AF_INET6, socket.SOCK_STREAM, ("::", 0)); udp = listening(socket.AF_INET6, socket.SOCK_DGRAM, ("::", 0)); dns = listening(socket.AF_INET, socket.SOCK_DGRAM, ("10.99.0.1", 0))
start(serve, tcp, "tcp"); start(echo, udp, "udp"); start(echo, dns, "dns")
start(serve, listening(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + name), "abstract"); start(echo, listening(socket.AF_UNIX, socket.SOCK_DGRAM, "\0" + name + "d"), "abstract")
path = place + "/../socket"; start(serve, listening(socket.AF_UNIX, socket.SOCK_STREAM, path), "path"); os.chmod(path, 0o777)
ipc = 0x43480000 + os.getpid()
memory = LIBC.shmget(ipc, 4096, 0o1666); LIBC.shmat.restype = ctypes.c_void_p
ctypes.memmove(LIBC.shmat(memory, None, 0), secret.encode(), len(secret))
semaphores, queue = LIBC.semget(ipc, 1, 0o1666), LIBC.msgget(ipc, 0o1666)
posix = LIBC.syscall(240, name.encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
key = LIBC.syscall(248, b"user", name.encode(), secret.encode(), len(secret), -4)
main, side = os.openpty(); buffer = ctypes.create_string_buffer(secret.encode())
files = []
for folder in ("/dev/shm", "/tmp"):
    file = f"{folder}/{name}"
    with open(file, "w") as f: f.write(secret)
    os.chmod(file, 0o666); files.append(file)
print(json.dumps({"pid": os.getpid(), "tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1], "dns": dns.getsockname()[1], "abstract": name, "path_socket": path, "ipc": ipc, "queue": name,
                  "key": name, "terminal": os.ttyname(side), "address": ctypes.addressof(buffer), "shm": files[0], "tmp": files[1]}), flush=True)
os.read(3, 1)
for file in files: os.remove(file)
LIBC.shmctl(memory, 0, None); LIBC.semctl(semaphores, 0, 0); LIBC.msgctl(queue, 0, None); LIBC.syscall(241, name.encode()); LIBC.syscall(250, 21, key)
