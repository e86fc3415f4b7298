# The network: every family, loopback of the host, sockets of the host by name and by path. The host of these attempts is a
# network namespace of the test's own, in which a few servers answer on a few addresses.
def network(name, cites="", bare="never"):
    return attempt("network", name, cites, bare)

def answers(family, kind, address, protocol=0):
    s = socket.socket(family, kind, protocol); s.settimeout(3); s.connect(address); s.send(b"?")
    return got(SECRET.encode() in s.recv(100), f"an answer from {address}")

TCP, UDP = C["tcp"], C["udp"]
for name, family, host, cites in (("loopback", socket.AF_INET, "127.0.0.1", ""), ("loopback-6", socket.AF_INET6, "::1", ""), ("an-address", socket.AF_INET, "10.99.0.1", ""),
                                  ("metadata", socket.AF_INET, "169.254.169.254", "CVE-2019-8980 (cloud metadata)"), ("mapped", socket.AF_INET6, "::ffff:10.99.0.1", "")):
    network("tcp-to-" + name, cites, "user")(lambda family=family, host=host: answers(family, socket.SOCK_STREAM, (host, TCP)))
    network("udp-to-" + name, cites or "landlock-lsm/linux#54", "user")(lambda family=family, host=host: answers(family, socket.SOCK_DGRAM, (host, UDP)))
@network("dns", "", "user")
def _():
    query = b"\x12\x34\x01\0\0\1\0\0\0\0\0\0\6canary\7example\0\0\1\0\1"
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3); s.sendto(query, ("10.99.0.1", C["dns"]))
    return got(SECRET.encode() in s.recv(100))
@network("multipath-tcp", "landlock-lsm/linux#54", "maybe")
def _(): return answers(socket.AF_INET, socket.SOCK_STREAM, ("10.99.0.1", TCP), 262)
@network("tcp-fast-open", "landlock-lsm/linux#41", "maybe")
def _():
    s = socket.socket(); s.sendto(b"?", 0x20000000, ("10.99.0.1", TCP))
    return got(SECRET.encode() in s.recv(100))
@network("udp-lite", "landlock-lsm/linux#54", "maybe")
def _(): return got(socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136).sendto(b"?", ("10.99.0.1", UDP)))
@network("sctp", "", "maybe")
def _(): return answers(socket.AF_INET, socket.SOCK_STREAM, ("10.99.0.1", TCP), 132)
@network("raw-ip", "CVE-2020-14386", "root")
def _(): return got(socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
@network("raw-ip-6", "", "root")
def _(): return got(socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58))
@network("packets", "CVE-2020-14386, CVE-2017-7308", "root")
def _(): return got(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x300))
@network("ping", "", "maybe")
def _():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1); s.settimeout(3); s.sendto(b"\x08\0\0\0\0\0\0\1", ("10.99.0.1", 0))
    return got(s.recv(100))
@network("links-of-the-host", "", "user")
def _(): return got(any(name == "canary0" for _, name in socket.if_nameindex()))
@network("sockets-of-the-host-by-netlink", "", "user")
def _():
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4); s.settimeout(3)
    s.send(struct.pack("IHHII", 72, 20, 0x301, 1, 0) + struct.pack("BBBBI", socket.AF_INET6, 6, 0, 0, 1 << 10) + bytes(48))
    return got(struct.pack(">H", TCP) in s.recv(1 << 16))
@network("connections-in-proc", "", "user")
def _(): return got(f":{TCP:04X} " in open("/proc/net/tcp6").read())
for number, name in ((40, "vsock"), (38, "kernel-crypto"), (31, "bluetooth"), (29, "can"), (30, "tipc"), (44, "xdp"), (15, "ipsec-keys"), (21, "rds"), (24, "ppp"), (26, "llc"),
                     (39, "nfc"), (41, "kcm"), (42, "qipcrtr"), (43, "smc"), (3, "ax25"), (9, "x25"), (5, "appletalk"), (4, "ipx"), (35, "phonet"), (36, "ieee802154"), (45, "mctp"), (8, "atm"), (27, "infiniband")):
    cites = {40: "ioi/isolate 2.6", 38: "CVE-2026-31431", 30: "CVE-2021-43267", 21: "CVE-2010-3904", 29: "CVE-2010-2959"}.get(number, "")
    def family(number=number):
        def one(kind):
            sys_call(41, number, kind, 1 if number == 29 else 0)
            return f"a socket of family {number}"
        return first_of(one, (1, 2, 3, 5))
    network("family-" + name, cites, "maybe")(family)
@network("a-pair-of-tipc-sockets", "CVE-2021-43267", "maybe")
def _():
    pair = (ctypes.c_int * 2)(); sys_call(53, 30, 1, 0, pair)
    return "a pair"
@network("abstract-socket", "CVE-2024-27297, CVE-2025-46416", "user")
def _(): return answers(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + C["abstract"])
@network("abstract-datagram", "CVE-2020-15257", "user")
def _():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.sendto(b"?", "\0" + C["abstract"] + "d")
    return "sent"
@network("descriptor-from-an-abstract-socket", "CVE-2024-27297", "user")
def _():
    s = socket.socket(socket.AF_UNIX); s.settimeout(3); s.connect("\0" + C["abstract"]); s.send(b"fd")
    _, fds, _, _ = socket.recv_fds(s, 100, 1)
    return got(SECRET.encode() in os.pread(fds[0], 100, 0))
@network("socket-by-path", "QwenLM/qwen-code#11614", "user")
def _(): return answers(socket.AF_UNIX, socket.SOCK_STREAM, C["path_socket"])
@network("network-namespace-of-others", "", "root")
def _():
    sys_call(308, os.open(f"/proc/{PID}/ns/net", os.O_RDONLY), NEWNET)
    return "entered"
@network("io-uring", "openai/codex#10814, moby/moby#46762", "user")
def _(): return got(sys_call(425, 4, ctypes.create_string_buffer(120)) > 0)
