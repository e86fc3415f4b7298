//! The check has a loopback of its own that works like any other, and reaches nothing else.

use crate::support::probe::{LEVELS, compile, facts, in_own_mounts, policy_like, probe};
use crate::support::{EVERYBODY, Env};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

// CVE-2024-27297, CVE-2025-46416 (NixOS/nix): descriptors passed over an abstract socket
#[test]
fn an_abstract_socket_of_the_host_is_out_of_reach_even_with_its_network() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let name = format!("checkrun-it-{}-{who:?}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let listener = UnixListener::bind_addr(&address).expect("listen");
        listener.set_nonblocking(true).expect("nonblocking");
        let body = format!(
            "s = socket.socket(socket.AF_UNIX)\nsay('connect', tried(s.connect, '\\0{name}'))\n\
             d = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\nsay('send', tried(d.sendto, b'x', '\\0{name}'))"
        );
        for (policy, expected) in
            [("hermetic", "ECONNREFUSED"), ("networked", "EPERM"), ("landlock", "EPERM")]
        {
            facts(&env, &["--policy", policy], &body).expect("connect", expected);
            assert!(listener.accept().is_err(), "{who:?} {policy}");
        }
    }
}

// QwenLM/qwen-code#11614: docker.sock, D-Bus and agents by path
#[test]
fn sockets_of_the_host_are_not_in_view() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("f", "").commit();
        let places = [env.path("home/agent.sock"), env.repo("own.sock"), env.path("bus.sock")];
        let listeners = places.each_ref().map(|place| {
            let listener = UnixListener::bind(place).expect("listen");
            std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o777)).expect("chmod");
            listener.set_nonblocking(true).expect("nonblocking");
            listener
        });
        let body = format!(
            "for place in {:?}:\n    s = socket.socket(socket.AF_UNIX)\n    say('at.' + place, tried(s.connect, place))\n\
             say('at.tree', os.path.exists('own.sock'))",
            places.each_ref().map(|place| place.to_str().expect("UTF-8"))
        );
        for (place, got) in facts(&env, &[], &body).starting("at.") {
            assert!(got == "ENOENT" || got == "False", "{who:?} {place} {got}");
        }
        for listener in listeners {
            assert!(listener.accept().is_err());
        }
    }
}

#[test]
fn a_policy_cannot_show_a_socket() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let place = env.path("bus.sock");
        let _listener = UnixListener::bind(&place).expect("listen");
        let shown = format!("path = \"{}\"\nwhy", place.display());
        let policy = policy_like(&env, "hermetic", &[("path = \"/usr\"\nwhy", &shown)]);
        let text = std::fs::read_to_string(&policy).expect("policy");
        std::fs::write(&policy, text + "\n[[visible]]\npath = \"/usr\"\nwhy = \"programs\"\n")
            .expect("policy");
        drop(env.checkrun(&["--policy", &policy, "--", "true"]).refused(&["bus.sock"]));
    }
}

// openai/codex#10814, phylum-dev/birdcage#32, moby/moby#46762, netblue30/firejail#7058
#[test]
fn io_uring_is_said_not_to_be_there_so_that_runtimes_fall_back() {
    for who in EVERYBODY {
        for level in LEVELS {
            let body = r#"
space = ctypes.create_string_buffer(120)
say("setup", call("io_uring_setup", 8, space))
say("enter", call("io_uring_enter", 3, 0, 0, 0, None, 0))
say("register", call("io_uring_register", 3, 0, None, 0))
"#;
            let facts = facts(&Env::of(who), level, body);
            facts.expect("setup", "ENOSYS").expect("enter", "ENOSYS").expect("register", "ENOSYS");
        }
    }
}

// isolate 2.6: what no network namespace covers. WSL2 starts Windows programs through AF_VSOCK.
#[test]
fn families_that_no_namespace_covers_are_refused() {
    for who in EVERYBODY {
        for level in LEVELS {
            let body = r#"
for name, family in (("vsock", 40), ("alg", 38), ("packet", 17), ("bluetooth", 31), ("can", 29), ("key", 15), ("rds", 21), ("tipc", 30), ("xdp", 44), ("qipcrtr", 42)):
    for kind in (1, 2, 3, 5):
        say(f"{name}.{kind}", call("socket", family, kind, 0))
    # The kernel looks at the low half of the number only.
    say(f"{name}.high", call("socket", family | 1 << 32, 1, 0))
pair = (ctypes.c_int * 2)()
say("tipc.pair", call("socketpair", 30, 1, 0, pair))
"#;
            let facts = facts(&Env::of(who), level, body);
            for name in ["vsock", "alg", "packet", "bluetooth", "can", "key", "rds", "tipc", "xdp", "qipcrtr"]
            {
                for (key, got) in facts.starting(&format!("{name}.")) {
                    assert_eq!(got, "EAFNOSUPPORT", "{who:?} {level:?} {key}");
                }
            }
        }
    }
}

// isolate's manual page: keyrings belong to no namespace, so one run could leave a key for the next
#[test]
fn no_key_passes_from_one_run_to_the_next() {
    for who in EVERYBODY {
        for level in LEVELS {
            let env = Env::of(who);
            let body = r#"
kind, name, value = (ctypes.create_string_buffer(text) for text in (b"user", b"left", b"value"))
for ring in (-3, -4, -5):
    say(f"add.{ring}", call("add_key", kind, name, value, 5, ring))
say("search", call("request_key", kind, name, None, -4))
say("control", call("keyctl", 0, -4, 1))
"#;
            for run in ["first", "second"] {
                let mut options = level.to_vec();
                let variable = format!("RUN={run}");
                options.extend(["--env", &variable]);
                let facts = facts(&env, &options, body);
                for (key, got) in facts.starting("add.") {
                    assert_eq!(got, "ENOSYS", "{key}");
                }
                facts.expect("search", "ENOSYS").expect("control", "ENOSYS");
            }
        }
    }
}

// prefix-dev/rattler-build#2805: loopback down; a time-out of half a minute where the network is closed
#[test]
fn loopback_works_in_both_families_and_nothing_else_is_there() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let host = std::net::TcpListener::bind("127.0.0.1:0").expect("listen");
        let port = host.local_addr().expect("address").port();
        host.set_nonblocking(true).expect("nonblocking");
        let body = r#"
for family, address, name in ((socket.AF_INET, "127.0.0.1", "v4"), (socket.AF_INET6, "::1", "v6")):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        server = socket.socket(family, kind); server.bind((address, 0))
        client = socket.socket(family, kind)
        if kind == socket.SOCK_STREAM: server.listen()
        client.connect(server.getsockname()); client.send(b"hello")
        taken = server.accept()[0] if kind == socket.SOCK_STREAM else server
        say(f"{name}.{int(kind)}", taken.recv(9).decode())
say("interfaces", ",".join(name for _, name in socket.if_nameindex()))
began = time.monotonic()
for address in ("192.0.2.1", "10.0.0.1", "169.254.169.254", "2001:db8::1", "fe80::1%lo"):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        outside = socket.socket(family, kind); outside.settimeout(20)
        info = socket.getaddrinfo(address, 80, family, kind)[0][4]
        say(f"out.{address}.{int(kind)}", tried(outside.connect, info))
say("quick", time.monotonic() - began < 10)
say("host", tried(socket.socket().connect, ("127.0.0.1", PORT)))
say("multipath", tried(socket.socket, socket.AF_INET, socket.SOCK_STREAM, 262))
"#;
        let facts = facts(&env, &[], &body.replace("PORT", &port.to_string()));
        for key in ["v4.1", "v4.2", "v6.1", "v6.2"] {
            facts.expect(key, "hello");
        }
        facts
            .expect("interfaces", "lo")
            .expect("quick", "True")
            .expect("host", "ECONNREFUSED")
            .expect("multipath", "ok");
        for (address, got) in facts.starting("out.") {
            assert!(
                ["ENETUNREACH", "EADDRNOTAVAIL", "EHOSTUNREACH"].contains(&got),
                "{who:?} {address} {got}"
            );
        }
        assert!(host.accept().is_err());
    }
}

/// Looks up what every program looks up, by the C library's own means.
const LOOKUPS: &str = r#"
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <arpa/inet.h>
static void look(const char *name, int family) {
    struct addrinfo hints = {.ai_family = family, .ai_socktype = SOCK_STREAM}, *got;
    char text[64] = "?";
    int error = getaddrinfo(name, "http", &hints, &got);
    if (error) { printf("%s.%d error:%d\n", name, family == AF_INET6 ? 6 : 4, error); return; }
    void *address = family == AF_INET6 ? (void *)&((struct sockaddr_in6 *)got->ai_addr)->sin6_addr
                                       : (void *)&((struct sockaddr_in *)got->ai_addr)->sin_addr;
    int port = ntohs(((struct sockaddr_in *)got->ai_addr)->sin_port);
    inet_ntop(family, address, text, sizeof text);
    printf("%s.%d %s:%d\n", name, family == AF_INET6 ? 6 : 4, text, port);
}
int main(void) {
    char own[64];
    gethostname(own, sizeof own);
    printf("own %s\n", own);
    look("localhost", AF_INET); look("localhost", AF_INET6); look(own, AF_INET); look(own, AF_INET6);
    struct protoent *tcp = getprotobyname("tcp");
    printf("tcp %d\n", tcp ? tcp->p_proto : -1);
    struct servent *https = getservbyname("https", "tcp");
    printf("https %d\n", https ? ntohs(https->s_port) : -1);
    return 0;
}
"#;

// docker/sbx-releases#309, inclusionAI/AKernel#31, NixOS/nix#1238, brioche-dev/brioche#459
#[test]
fn local_names_protocols_and_services_are_known() {
    for who in EVERYBODY {
        let env = Env::of(who);
        for (compiler, flags) in [("gcc", &[][..]), ("musl-gcc", &["-static"][..])] {
            compile(&env, compiler, "lookups", flags, LOOKUPS);
            env.commit();
            let output = env.checkrun(&["--", "./lookups"]).expect(0);
            let facts = crate::support::probe::Facts::of(&output.out());
            facts
                .expect("own", "checkrun")
                .expect("localhost.4", "127.0.0.1:80")
                .expect("localhost.6", "::1:80");
            facts.expect("checkrun.4", "127.0.0.1:80").expect("checkrun.6", "::1:80");
            facts.expect("tcp", "6").expect("https", "443");
        }
    }
}

// gi-dellav/zerostack#115, akitaonrails/ai-jail#93, fencesandbox/fence#31, systemd/mkosi#4333
#[test]
fn the_hosts_resolver_configuration_is_of_no_account() {
    for who in EVERYBODY {
        let targets =
            ["/run/systemd/resolve/stub-resolv.conf", "/mnt/none", "resolv.conf", "../etc/other", ""];
        for target in targets {
            let env = Env::of(who);
            let layers = env.path("layers");
            let make =
                if target.is_empty() { String::new() } else { format!("ln -s {target} /etc/resolv.conf") };
            // An overlay over /etc, seen by this test alone.
            let setup = format!(
                "mkdir {0}; mount -t tmpfs none {0}; mkdir {0}/upper {0}/work\n\
                 mount -t overlay -o lowerdir=/etc,upperdir={0}/upper,workdir={0}/work none /etc\n\
                 rm -f /etc/resolv.conf; {make}",
                layers.display()
            );
            let body = "began = time.monotonic()\n\
                        try: socket.getaddrinfo('example.org', 80); say('found', True)\n\
                        except socket.gaierror as error: say('found', False)\n\
                        say('quick', time.monotonic() - began < 5)\n\
                        say('local', socket.gethostbyname('localhost'))";
            let args = ["--", "/usr/bin/python3", "-c", &probe(body)];
            let output = in_own_mounts(&env, &setup, &args).expect(0);
            let facts = crate::support::probe::Facts::of(&output.out());
            facts.expect("found", "False").expect("quick", "True").expect("local", "127.0.0.1");
        }
    }
}

// openai/codex#24943, #33793, #2309, #4497: sockets of all ordinary kinds, as test suites use them
#[test]
fn ordinary_sockets_work_with_the_network_closed() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let program = r#"
import asyncio, concurrent.futures, http.server, multiprocessing, os, socket, threading, urllib.request
def double(number): return 2 * number
async def wake():
    loop = asyncio.get_running_loop()
    waiting = loop.create_future()
    threading.Thread(target=lambda: loop.call_soon_threadsafe(waiting.set_result, "woken")).start()
    return await waiting
if __name__ == "__main__":
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        a, b = socket.socketpair(socket.AF_UNIX, kind); a.send(b"x"); print("pair", b.recv(1))
        path = f"/tmp/{int(kind)}"
        server = socket.socket(socket.AF_UNIX, kind); server.bind(path)
        if kind != socket.SOCK_DGRAM: server.listen()
        client = socket.socket(socket.AF_UNIX, kind); client.connect(path); client.send(b"y")
        print("path", (server if kind == socket.SOCK_DGRAM else server.accept()[0]).recv(1))
        server = socket.socket(socket.AF_UNIX, kind); server.bind(f"\0own{int(kind)}")
    a, b = socket.socketpair(); socket.send_fds(a, [b"fd"], [0]); print("rights", len(socket.recv_fds(b, 9, 1)[1]))
    print(asyncio.run(wake()))
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool: print(method, list(pool.map(double, [1, 2])))
    server = http.server.HTTPServer(("localhost", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in ("localhost", "127.0.0.1", "checkrun"):
        print("http", urllib.request.urlopen(f"http://{name}:{server.server_port}/probe.py").status)
"#;
        env.write("probe.py", program).commit();
        let output = env.checkrun(&["--", "/usr/bin/python3", "probe.py"]).expect(0);
        let text = output.out();
        for (line, times) in [
            ("pair b'x'", 3),
            ("path b'y'", 3),
            ("rights 1", 1),
            ("woken", 1),
            ("[2, 4]", 3),
            ("http 200", 3),
        ] {
            assert_eq!(text.matches(line).count(), times, "{who:?} {line}\n{text}\n{}", output.err());
        }
        assert!(output.took < Duration::from_secs(60), "{:?}", output.took);
    }
}

// google's and others' runtimes look names up by themselves
#[test]
fn other_runtimes_find_localhost_too() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write(
            "probe.js",
            "const net = require('net'), dns = require('dns');\n\
             dns.lookup('localhost', {all: true}, (error, got) => console.log(error, JSON.stringify(got)));\n\
             const server = net.createServer(s => s.end('hello')).listen(0, 'localhost', () =>\n\
               net.connect(server.address().port, 'localhost').on('data', d => { console.log(String(d)); server.close(); }));",
        );
        env.write(
            "Probe.java",
            "import java.net.*;\npublic class Probe { public static void main(String[] a) throws Exception {\n\
             for (InetAddress it : InetAddress.getAllByName(\"localhost\")) System.out.println(it.getHostAddress());\n\
             System.out.println(InetAddress.getLocalHost().getHostName() + \" \" + System.getProperty(\"user.home\") + \" \" + System.getProperty(\"user.name\"));\n\
             ServerSocket server = new ServerSocket(0); new Socket(\"localhost\", server.getLocalPort()).close(); server.accept(); } }",
        );
        env.commit();
        let node = env.checkrun(&["--", "/usr/bin/node", "probe.js"]).expect(0);
        assert!(
            node.out().contains("127.0.0.1") && node.out().contains("::1") && node.out().contains("hello"),
            "{}",
            node.out()
        );
        let java = env.checkrun(&["--", "/usr/bin/java", "Probe.java"]).expect(0);
        assert!(
            java.out().contains("127.0.0.1\n") && java.out().contains("checkrun /home/check check\n"),
            "{}",
            java.out()
        );
    }
}
