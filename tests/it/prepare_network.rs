//! What of the network a preparation has: the hosts that its policy names, by checkrun's own proxy, and nothing else. All
//! servers here are the test's own, on this machine's loopback; hosts that are to be refused have names that nobody can
//! have (RFC 2606), so that nothing would get out if they were not.

use crate::support::{EVERYBODY, Env, Output, Who};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

/// A server that notes what it is asked: each connection's first bytes, up to an empty line.
pub(crate) struct Server {
    pub(crate) port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Answers each connection with `answer`, then sends back what else it is sent.
    pub(crate) fn new(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let noted = Arc::clone(&noted);
                std::thread::spawn(move || serve(stream, answer, &noted));
            }
        });
        Self { port, asked }
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, answer: &str, noted: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        head.push(byte[0]);
    }
    noted.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
    drop(stream.write_all(answer.as_bytes()));
    let mut buffer = [0; 1024];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        drop(stream.write_all(&buffer[..read]));
    }
}

pub(crate) const FINE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nfine!\n";

/// What the steps below stand on: one that is a Python program of the tree, with what it prints kept for the checks.
fn place(env: &Env, program: &str) {
    let folder = env.path("home/.config/checkrun/runners");
    std::fs::create_dir_all(&folder).unwrap();
    let runner = "format = 1\ndescription = \"d\"\nserves = [\"frob\"]\n[[prepare]]\nwhen = [\"lock.py\"]\n\
                  inputs = [\"*.pem\"]\nwhole_tree = true\nrun = \"mkdir got; /usr/bin/python3 -u lock.py >got/said\"\ntree = [\"got\"]\n";
    std::fs::write(folder.join("frob.toml"), runner).unwrap();
    env.write("lock.py", [HELP, program].concat()).commit();
}

/// Ways of asking for something, each with a word for what came of it. The last goes past the variables.
const HELP: &str = r#"
import os, socket, sys, urllib.request, urllib.error
PROXY = ("127.0.0.1", 3128)
def get(url, data=None):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=60) as reply:
            print(reply.status, reply.read().decode().strip())
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode().strip())
    except OSError as error:
        print(type(error).__name__, error)
def ask(text, wait=60):
    with socket.create_connection(PROXY, 60) as proxy:
        proxy.settimeout(wait)
        try:
            proxy.sendall(text.encode())
        except OSError:
            pass
        said = b""
        try:
            while more := proxy.recv(4096):
                said += more
        except OSError as error:
            said += type(error).__name__.encode()
        print(said.split(b"\r\n")[0].decode() or "nothing")
def straight(host, port):
    try:
        socket.create_connection((host, port), 5).close()
        print("got through")
    except OSError as error:
        print(type(error).__name__)
"#;

fn prepare(env: &Env, options: &[&str]) -> Output {
    env.checkrun(&[&["prepare", "--runner", "frob", "--format", "json"], options].concat())
}

/// Hosts that were refused, each with what would let it be reached.
fn refused(network: &Value) -> Vec<(&str, &str)> {
    let list = network["refused"].as_array().unwrap();
    list.iter().map(|turned| (turned["host"].as_str().unwrap(), turned["allow"].as_str().unwrap())).collect()
}

/// What the step said, one line each, as a check finds it.
fn said(env: &Env) -> Vec<String> {
    let out = env.checkrun(&["--runner", "frob", "--", "cat", "got/said"]).expect(0).out();
    out.lines().map(str::to_owned).collect()
}

// openclaw/crabbox#912: a name that is allowed and stands for an address of the machine. anthropic-experimental/sandbox-runtime#88:
// secrets sent away in the names that are looked up.
#[test]
fn the_hosts_that_are_named_are_reached_and_no_others() {
    let (good, other) = (Server::new(FINE), Server::new(FINE));
    let tunnelled = Server::new("hello ");
    for who in EVERYBODY {
        let env = Env::of(who);
        let (port, closed, echo) = (good.port, other.port, tunnelled.port);
        place(
            &env,
            &format!(
                "get('http://127.0.0.1:{port}/a', b'data')\n\
                 with socket.create_connection(PROXY) as s:\n \
                 s.sendall(b'CONNECT 127.0.0.1:{echo} HTTP/1.1\\r\\n\\r\\n'); print(s.recv(99).split(b'\\r\\n')[0].decode()); \
                 s.sendall(b'x\\r\\n\\r\\n'); print(s.recv(6)); s.sendall(b'back'); print(s.recv(4))\n\
                 get('http://127.0.0.1:{closed}/')\nget('http://localhost:{closed}/')\nget('http://evil.invalid/')\n\
                 get('http://169.254.169.254/latest')\nget('http://2130706433:{closed}/')\nget('http://[::1]:{closed}/')\n\
                 ask('CONNECT evil.invalid:443 HTTP/1.1\\r\\n\\r\\n')\n\
                 straight('127.0.0.1', {closed})\nstraight('127.0.0.1', {port})\nstraight('192.0.2.1', 80)\nstraight('evil.invalid', 80)\n\
                 print([os.environ[n] for n in ('http_proxy', 'HTTPS_PROXY', 'npm_config_proxy')])\n"
            ),
        );
        let named = format!("127.0.0.1:{port}");
        let named_too = format!("127.0.0.1:{echo}");
        let options = [
            "--allow-host",
            &named,
            "--allow-host",
            &named_too,
            "--allow-host",
            &format!("localhost:{closed}"),
        ];
        let told = prepare(&env, &options).expect(0).json();
        let network = &told["prepared"][0]["network"];
        assert_eq!(network["reached"], json!([named, named_too]), "{told}");
        let refused = refused(network);
        let (by_number, by_name) = (format!("127.0.0.1:{closed}"), format!("localhost:{closed}"));
        let six = format!("[::1]:{closed}");
        let private = format!("{by_name},private");
        assert_eq!(
            refused,
            [
                (by_number.as_str(), by_number.as_str()),
                (&by_name, &private),
                ("evil.invalid:80", "evil.invalid"),
                ("169.254.169.254:80", "169.254.169.254"),
                (&six, &six),
                ("evil.invalid:443", "evil.invalid"),
            ],
            "{told}"
        );
        assert!(network["received_bytes"].as_u64().unwrap() > 60, "{told}");
        let lines = said(&env);
        let begins = [
            "200 fine!",
            "HTTP/1.1 200 ",
            "b'hello '",
            "b'back'",
            "403 ",
            "403 ",
            "403 ",
            "403 ",
            "400 ",
            "403 ",
            "HTTP/1.1 403 ",
            "ConnectionRefusedError",
            "ConnectionRefusedError",
            "OSError",
            "gaierror",
        ];
        for (line, begin) in lines.iter().zip(begins) {
            assert!(line.starts_with(begin), "`{begin}` in {lines:#?}");
        }
        assert!(lines[5].contains("an address of this machine"), "{lines:#?}");
        assert!(lines[6].contains("`--allow-host evil.invalid`"), "{lines:#?}");
        assert_eq!(lines.last().unwrap(), &format!("{:?}", ["http://127.0.0.1:3128"; 3]).replace('"', "'"));
    }
    assert!(other.asked().is_empty(), "{:?}", other.asked());
    assert!(good.asked()[0].starts_with("POST /a HTTP/1.1\r\n"), "{:?}", good.asked());
}

#[test]
fn what_a_step_was_refused_is_said_to_people_with_the_remedy() {
    let env = Env::new();
    place(&env, "get('http://evil.invalid:8080/')\nraise SystemExit(3)\n");
    let failed = env.checkrun(&["prepare", "--runner", "frob"]).expect(3);
    for part in [
        "failed, exit 3",
        "nothing is kept",
        "tried to reach evil.invalid:8080, which the policy does not name",
        "`--allow-host evil.invalid:8080` lets it be reached",
    ] {
        assert!(failed.out().contains(part), "`{part}` in {}", failed.out());
    }
    // By itself it finds no name server, and is told what would do.
    place(&env, "socket.getaddrinfo('evil.invalid', 80)\n");
    let failed = prepare(&env, &[]).expect(1).json();
    assert!(failed["prepared"][0]["reason"].as_str().unwrap().contains("HTTPS_PROXY"), "{failed}");
}

#[test]
fn a_host_that_is_down_is_named_and_nothing_is_kept() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        place(&env, &format!("get('http://localhost:{port}/')\nraise SystemExit(1)\n"));
        let failed = prepare(&env, &["--allow-host", &format!("localhost:{port},private")]).expect(1).json();
        let told = &failed["prepared"][0];
        let why = format!("network: could not reach localhost:{port}: connection refused");
        assert_eq!((&told["how"], &told["digest"]), (&json!("failed"), &Value::Null), "{failed}");
        assert_eq!(told["reason"].as_str(), Some(why.as_str()), "{failed}");
        assert!(!env.path("cache/packages").exists());
    }
}

#[test]
fn what_tls_carries_passes_through_untouched() {
    let env = Env::new();
    let folder = env.path("tls");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("fine"), "fine!\n").unwrap();
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    openssl.args(["-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "ca.pem"]);
    let made = openssl.current_dir(&folder).output().expect("openssl");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut server = Command::new("openssl")
        .args(["s_server", "-quiet", "-WWW", "-key", "key.pem", "-cert", "ca.pem"])
        .args(["-accept", &format!("127.0.0.1:{port}")])
        .current_dir(&folder)
        .stdin(std::process::Stdio::null())
        .spawn()
        .expect("openssl");
    let up = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    env.write("ca.pem", std::fs::read(folder.join("ca.pem")).unwrap());
    place(
        &env,
        &format!(
            "import ssl\nfor ca in ('ca.pem', None):\n try:\n  \
             context = ssl.create_default_context(cafile=ca)\n  \
             print(urllib.request.urlopen('https://localhost:{port}/fine', context=context, timeout=60).read())\n \
             except OSError as error: print('CERTIFICATE_VERIFY_FAILED' in str(error))\n"
        ),
    );
    let told = prepare(&env, &["--allow-host", &format!("localhost:{port},private")]);
    drop(server.kill());
    drop(server.wait());
    assert!(up, "the server does not answer");
    drop(told.expect(0));
    assert_eq!(said(&env), ["b'fine!\\n'", "True"]);
}

#[test]
fn floods_and_crowds_of_connections_are_bounded() {
    let good = Server::new(FINE);
    let env = Env::of(Who::User);
    let port = good.port;
    place(
        &env,
        &format!(
            "ask('GET http://127.0.0.1:{port}/ HTTP/1.1\\r\\nA: ' + 'b' * (1 << 20))\n\
             ask('GET http://127.0.0.1:{port}/ HTTP/1.1\\r\\n' + 'A: b\\r\\n' * (1 << 16) + '\\r\\n')\n\
             ask('\\x16\\x03\\x01\\r\\n\\r\\n')\nask('DELETE http://127.0.0.1:{port}/ HTTP/1.1\\r\\n\\r\\n')\n\
             ask('GET /etc/passwd HTTP/1.1\\r\\n\\r\\n')\n\
             crowd = [socket.create_connection(PROXY) for _ in range(150)]\n\
             [one.sendall(b'GET') for one in crowd]\n[one.close() for one in crowd]\nget('http://127.0.0.1:{port}/')\n\
             for n in range(200):\n ask(f'CONNECT h{{n}}.invalid:443 HTTP/1.1\\r\\n\\r\\n')\n"
        ),
    );
    let told = prepare(&env, &["--allow-host", &format!("127.0.0.1:{port}")]).expect(0).json();
    let lines = said(&env);
    let begins =
        ["HTTP/1.1 431 ", "HTTP/1.1 431 ", "HTTP/1.1 400 ", "HTTP/1.1 405 ", "HTTP/1.1 400 ", "200 fine!"];
    for (line, begin) in lines.iter().zip(begins) {
        assert!(line.starts_with(begin), "`{begin}` in {lines:#?}");
    }
    assert!(
        lines[6..].iter().all(|line| line.starts_with("HTTP/1.1 403 ")) && lines.len() == 206,
        "{lines:#?}"
    );
    assert_eq!(told["prepared"][0]["network"]["refused"].as_array().unwrap().len(), 100);
}

#[test]
#[ignore = "takes minutes"]
fn a_slow_request_is_ended_and_those_behind_it_get_their_turn() {
    let good = Server::new(FINE);
    let env = Env::of(Who::User);
    let port = good.port;
    // As many as are taken at one time, none of which ever ends its request.
    place(
        &env,
        &format!(
            "crowd = [socket.create_connection(PROXY) for _ in range(64)]\n[one.sendall(b'GET') for one in crowd]\n\
             get('http://127.0.0.1:{port}/')\nprint(crowd[0].recv(99).split(b'\\r\\n')[0].decode())\n"
        ),
    );
    drop(prepare(&env, &["--allow-host", &format!("127.0.0.1:{port}")]).expect(0));
    assert_eq!(said(&env), ["200 fine!", "HTTP/1.1 408 Request Timeout"]);
}

#[test]
fn a_proxy_of_the_callers_is_gone_through_and_its_password_stays_outside() {
    let company = Server::new("HTTP/1.1 200 OK\r\n\r\n");
    for who in EVERYBODY {
        let env = Env::of(who);
        place(
            &env,
            "ask('CONNECT evil.invalid:443 HTTP/1.1\\r\\n\\r\\n')\n\
             with socket.create_connection(PROXY) as s:\n \
             s.sendall(b'CONNECT registry.invalid:443 HTTP/1.1\\r\\n\\r\\nping'); f = s.makefile('rb')\n \
             while f.readline().strip(): pass\n print(f.read(4))\n\
             print('secret' in str(os.environ))\n",
        );
        let url = format!("HTTPS_PROXY=http://user:secret@127.0.0.1:{}", company.port);
        let told = prepare(&env, &["--env", &url, "--allow-host", "registry.invalid"]).expect(0).json();
        assert_eq!(told["prepared"][0]["network"]["reached"], json!(["registry.invalid:443"]), "{told}");
        assert_eq!(said(&env), ["HTTP/1.1 403 Forbidden By Policy", "b'ping'", "False"]);
    }
    let asked = company.asked();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked.iter().all(|head| {
        head.starts_with("CONNECT registry.invalid:443 ") && head.contains("Basic dXNlcjpzZWNyZXQ=")
    }));
    let env = Env::new();
    place(&env, "print(1)\n");
    let socks = prepare(&env, &["--env", "ALL_PROXY=socks5://user:secret@127.0.0.1:9"]);
    let refused = socks.refused(&["ALL_PROXY", "another kind", "hint:", "networked"]);
    assert!(!refused.err().contains("secret"));
}

#[test]
fn only_the_caller_widens_and_what_cannot_be_kept_is_refused() {
    let good = Server::new(FINE);
    let named = format!("127.0.0.1:{}", good.port);
    let env = Env::new();
    place(&env, &format!("get('http://{named}/')\n"));
    // Where everything can be reached, or nothing, a host has nothing to add to.
    let hint = ["`--allow-host` has no effect", "hint:"];
    drop(prepare(&env, &["--policy", "networked", "--allow-host", &named]).refused(&hint));
    // Level `landlock` has no network of its own, so that no host could be kept to.
    drop(prepare(&env, &["--policy", "landlock"]).refused(&["level `full`", "hint:"]));
    for wrong in ["a b", "127.1", "*", "a:99999"] {
        drop(prepare(&env, &["--allow-host", wrong]).refused(&["--allow-host"]));
    }
    // A policy of the caller's own, for a check as well; what it showed is never used again.
    let own = include_str!("../../policies/hermetic.toml").replace(
        "mode = \"loopback\"",
        &format!("mode = \"hosts\"\nwhy = \"w\"\n[[network.host]]\nname = \"{named}\"\nwhy = \"w\""),
    );
    std::fs::create_dir_all(env.path("home/.config/checkrun/policies")).unwrap();
    let policy = env.path("home/.config/checkrun/policies/own.toml");
    std::fs::write(&policy, &own).unwrap();
    drop(prepare(&env, &["--policy", "own"]).expect(0));
    assert_eq!(said(&env), ["200 fine!"]);
    let check = ["--format", "json", "--policy", "own", "--", "/usr/bin/python3", "lock.py"];
    for _ in 0..2 {
        assert_eq!(env.checkrun(&check).expect(0).json()["cache"], "miss");
    }
    assert_eq!(good.asked().len(), 3);
    for (from, to, part) in [
        ("level = \"full\"", "level = \"landlock\"", "must be `full`"),
        ("mode = \"hosts\"", "mode = \"loopback\"", "key `network.host`"),
        ("[layers.net]\nneed = \"require\"", "[layers.net]\nneed = \"prefer\"\nwhy = \"w\"", "layer `net`"),
        (&format!("name = \"{named}\""), "name = \"*.org\"", "too wide"),
        (&format!("name = \"{named}\"\nwhy = \"w\""), &format!("name = \"{named}\""), "why"),
    ] {
        assert!(own.contains(from), "{from}");
        std::fs::write(&policy, own.replace(from, to)).unwrap();
        drop(prepare(&env, &["--policy", "own"]).refused(&[part]));
    }
    // What a repository says is about its checks; a preparation goes by the caller's policy alone.
    env.write(".checkrun.toml", "format = 1\npolicy = \"strict\"\nnetwork = \"loopback\"\n").commit();
    drop(prepare(&env, &["--refresh", "--allow-host", &named]).expect(0));
    assert_eq!(good.asked().len(), 4);
    env.write(".checkrun.toml", "format = 1\npolicy = \"prepare\"\n").commit();
    drop(env.checkrun(&["--", "true"]).refused(&[".checkrun.toml", "policy"]));
}
