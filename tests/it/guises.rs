//! What a check takes its surroundings for, by `--vary`: host name, user, the shape of the network, the order of folders.

use crate::support::{EVERYBODY, Env, Who};
use serde_json::Value;

/// What a Python program prints, with an input varied; its lines.
fn lines(env: &Env, vary: &str, program: &str) -> Vec<String> {
    let told = env.python(&["--vary", vary, "--format", "json"], program).expect(0).json();
    let (input, value) = vary.split_once('=').unwrap();
    assert_eq!(told["varied"], Value::from_iter([(input, value)]), "{told}");
    crate::schemas::holds("result", std::slice::from_ref(&told));
    told["tail"].as_str().unwrap().lines().map(str::to_owned).collect()
}

const WHO: &str = "import os, pwd, grp, socket
me = pwd.getpwuid(os.getuid())
print(os.getuid(), os.getgid(), me.pw_name, grp.getgrgid(os.getgid()).gr_name)
print(os.environ['HOME'] == me.pw_dir, os.environ['USER'] == os.environ['LOGNAME'] == me.pw_name)
open(os.path.expanduser('~/made'), 'w').close(); open('/src/made', 'w').close(); open('/tmp/made', 'w').close()
print(*sorted({os.stat(path).st_uid for path in ['/src/file', '/src/made', os.path.expanduser('~/made'), '/tmp/made']}))
caps = [line.split()[1] for line in open('/proc/self/status') if line.startswith('Cap')]
print({int(it, 16) for it in caps})
";

#[test]
fn another_user_owns_what_it_should_and_may_do_no_more() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("file", "");
        for (uid, name, group) in [(0, "root", "root"), (65_534, "nobody", "nogroup"), (33, "check", "check")]
        {
            let told = lines(&env, &format!("user={uid}"), WHO);
            let expected = [
                format!("{uid} {uid} {name} {group}"),
                "True True".to_owned(),
                uid.to_string(),
                "{0}".to_owned(),
            ];
            assert_eq!(told, expected, "{who:?}");
        }
        let hostile = "mount -t tmpfs x /tmp || echo 1 > /proc/sys/net/ipv4/ip_forward || echo x > /etc/hosts || chown 33 file";
        let output = env.checkrun(&["--vary", "user=0", "--", "sh", "-c", hostile]);
        assert_ne!(output.status, 0, "{output:?}");
    }
}

#[test]
fn another_host_name_is_known_everywhere() {
    let program = "import os, socket
print(socket.gethostname(), os.uname().nodename, open('/etc/hostname').read().strip())
print(socket.gethostbyname(socket.gethostname()))";
    for who in EVERYBODY {
        let env = Env::of(who);
        for name in ["build-7", "Build-Host", &format!("{}.{}", "a".repeat(31), "b".repeat(32))] {
            let told = lines(&env, &format!("hostname={name}"), program);
            assert_eq!(told, [format!("{name} {name} {name}"), "127.0.0.1".to_owned()], "{who:?}");
        }
    }
}

const REACH: &str = "import socket, errno
def connect(host):
    try: socket.create_connection((host, 81), timeout=0.3); return 'connected'
    except socket.timeout: return 'hangs'
    except OSError as error: return errno.errorcode.get(error.errno, error)
def serve(family, host):
    try: server = socket.create_server((host, 0), family=family)
    except OSError as error: return errno.errorcode[error.errno]
    socket.create_connection(server.getsockname()[:2], timeout=9); return 'served'
print(connect('198.51.100.7'), connect('10.255.255.1'), connect('2001:db8::7'))
print(connect('127.0.0.1'), serve(socket.AF_INET, '127.0.0.1'), serve(socket.AF_INET6, '::1'))
print(*[line.split(':')[0].strip() for line in open('/proc/net/dev').readlines()[2:] if line.strip().startswith('lo:') or ' 0' not in line])
";

// psf/requests: its tests of connection timeouts want packets to vanish, and fail where a host is unreachable at once.
#[test]
fn packets_to_elsewhere_vanish_or_there_is_no_ipv6_and_loopback_stays() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let told = lines(&env, "network=blackhole", REACH);
        assert_eq!(told[..2], ["hangs hangs ENETUNREACH", "ECONNREFUSED served served"], "{who:?}");
        let told = lines(&env, "network=ipv4", REACH);
        assert_eq!(
            told[..2],
            ["ENETUNREACH ENETUNREACH EADDRNOTAVAIL", "ECONNREFUSED served EADDRNOTAVAIL"],
            "{who:?}"
        );
    }
}

// What the host's own sockets see: nothing, whichever way a datagram is sent.
#[test]
fn nothing_that_vanishes_arrives_at_the_host() {
    let env = Env::of(Who::Root);
    let host = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    host.set_nonblocking(true).unwrap();
    let port = host.local_addr().unwrap().port();
    let program = format!(
        "import socket
for host in ['127.0.0.1', '192.0.2.2', '10.0.0.1', '255.255.255.255', '224.0.0.1', '169.254.1.1']:
    try:
        it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        it.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        it.sendto(b'out', (host, {port}))
    except OSError as error: print(error)
try: it.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'eth0')
except OSError as error: print(type(error).__name__)"
    );
    lines(&env, "network=blackhole", &program);
    assert_eq!(host.recv(&mut [0; 9]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn folders_list_in_the_order_that_is_asked_for() {
    let program = "import os
for folder in ['.', 'sub', 'sub/d']: print(*os.listdir(folder))
print(os.stat('sub').st_mtime == os.stat('zed').st_mtime, os.readlink('link'), os.access('run', os.X_OK), open('zed').read())";
    for who in EVERYBODY {
        let env = Env::of(who);
        for name in ["zed", "alpha", "Mid", "b2", "sub/3", "sub/1", "sub/2", "sub/d/x", "sub/d/y", "run"] {
            env.write(name, name);
        }
        env.executable("run");
        std::os::unix::fs::symlink("nowhere", env.repo("link")).unwrap();
        env.commit();
        let options = |vary: &str| lines(&env, vary, program);
        let names = ["Mid", "alpha", "b2", "link", "run", "sub", "zed"];
        let told = options("listing=ascending");
        assert_eq!(told, [&names.join(" "), "1 2 3 d", "x y", "True nowhere True zed"], "{who:?}");
        let mut backwards = names;
        backwards.reverse();
        let told = options("listing=descending");
        assert_eq!(told, [&backwards.join(" "), "d 3 2 1", "y x", "True nowhere True zed"], "{who:?}");
        let (one, other) = (options("listing=1"), options("listing=2"));
        assert_ne!(one, other);
        assert_eq!(one, options("listing=1"), "the same number is the same order");
        let mut same: Vec<&str> = one[0].split(' ').collect();
        same.sort_unstable();
        assert_eq!(same, names);
    }
}

#[test]
fn what_is_varied_is_part_of_the_key_and_told_in_the_record() {
    let env = Env::new();
    let run = |options: &[&str]| {
        env.checkrun(&[options, &["--format", "json", "--", "true"]].concat()).expect(0).json()
    };
    let plain = run(&[]);
    assert!(plain.get("varied").is_none(), "{plain}");
    let varied = run(&["--vary", "user=0", "--vary", "hostname=x"]);
    assert_eq!((&varied["cache"], &varied["varied"]["hostname"]), (&"miss".into(), &"x".into()), "{varied}");
    assert_eq!(run(&["--vary", "hostname=x", "--vary", "user=0"])["cache"], "hit");
    // The usual values are the usual check.
    let usual = ["hostname=checkrun", "user=1000", "network=loopback", "listing=host"];
    let usual: Vec<&str> = usual.iter().flat_map(|value| ["--vary", value]).collect();
    assert_eq!(run(&usual)["cache"], "hit");
    let shown = env.checkrun(&["show", varied["key"].as_str().unwrap()]).expect(0).out();
    assert!(shown.contains("user=0") && shown.contains("hostname=x"), "{shown}");
    let why = env.checkrun(&["explain", "--vary", "user=0", "--", "true"]).expect(0).out();
    assert!(why.contains("varied"), "{why}");
}

#[test]
fn what_cannot_be_varied_is_refused() {
    let env = Env::new();
    let run = |options: &[&str]| env.checkrun(&[options, &["--", "true"]].concat());
    for vary in ["hostname=x", "user=0", "network=ipv4", "listing=1"] {
        let word = vary.split('=').next().unwrap();
        run(&["--policy", "landlock", "--vary", vary]).refused(&[word, "no namespaces", "--vary"]);
    }
    run(&["--policy", "networked", "--vary", "network=blackhole"]).refused(&["network", "host's own"]);
    for (vary, accepted) in [
        ("hostname", "hostname=NAME"),
        ("colour=red", "listing=WORD"),
        ("hostname=a b", "at most 64"),
        ("user=4294967295", "from 0 to"),
        ("network=wide", "blackhole"),
        ("listing=random", "descending"),
    ] {
        run(&["--vary", vary]).refused(&[vary.split('=').next_back().unwrap(), accepted]);
    }
}
