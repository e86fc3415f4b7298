//! Installed packages in checks: fetched once by `prepare`, or found in the working tree; never written to by a check. Real
//! packages come from `.ci/tools`; the index that a preparation asks is a folder served on loopback by the test itself.

use crate::real::tool;
use crate::support::{EVERYBODY, Env, Output, Who, run};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A folder served over HTTP on loopback, for as long as this lives.
pub(crate) struct Served {
    server: Child,
    /// Where it is served.
    pub(crate) port: u16,
}

impl Served {
    pub(crate) fn new(folder: &Path) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let server = Command::new("/usr/bin/python3")
            .args(["-m", "http.server", "--bind", "127.0.0.1", &port.to_string()])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a server");
        let up = (0..600).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        assert!(up, "the server does not answer");
        Self { server, port }
    }

    /// Where it is.
    pub(crate) fn address(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// The option that lets a preparation reach it.
    pub(crate) fn allowed(&self) -> String {
        format!("--allow-host=127.0.0.1:{}", self.port)
    }

    /// Options by which pip asks this server and no other.
    fn options(&self) -> [String; 5] {
        let links = format!("PIP_FIND_LINKS={}", self.address());
        ["--env".to_owned(), "PIP_NO_INDEX=1".to_owned(), "--env".to_owned(), links, self.allowed()]
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.server.kill());
        drop(self.server.wait());
    }
}

pub(crate) fn prepare(env: &Env, served: &Served) -> Output {
    let options = served.options();
    let mut args = vec!["prepare", "--format", "json", "--runner", "python"];
    args.extend(options.iter().map(String::as_str));
    env.checkrun(&args)
}

pub(crate) fn json(env: &Env, args: &[&str]) -> serde_json::Value {
    env.checkrun(&[&["--format", "json"], args].concat()).json()
}

/// A program with dependencies and a test.
fn python_project(env: &Env) {
    env.write("requirements.txt", "requests==2.32.3\njinja2==3.1.4\nclick==8.1.7\n")
        .write("requirements-dev.txt", "pytest==8.3.4\n")
        .write("app.py", "import jinja2\n\ndef two():\n    return jinja2.Template('{{ 1 + 1 }}').render()\n")
        .write(
            "test_app.py",
            "import pytest, requests, click, app\n\ndef test_two():\n    assert app.two() == '2'\n\n\
             @pytest.mark.skip\ndef test_later():\n    pass\n",
        )
        .commit();
}

#[test]
fn a_python_project_is_prepared_once_and_checked_without_network() {
    let served = Served::new(&tool("wheels"));
    for who in EVERYBODY {
        let env = Env::of(who);
        python_project(&env);
        // Before that a check fails at once, and says what is missing.
        let before = json(&env, &["--", "pytest"]);
        let reason = before["reason"].as_str().unwrap();
        assert!(
            reason.contains("not_prepared") && reason.contains("checkrun prepare --runner python"),
            "{reason}"
        );
        let made = prepare(&env, &served).expect(0).json();
        assert_eq!(made["prepared"][0]["how"], "prepared", "{made}");
        let first = json(&env, &["--", "pytest"]);
        assert_eq!((&first["outcome"], &first["cache"]), (&"passed".into(), &"miss".into()), "{first}");
        assert_eq!(first["tests"], serde_json::json!({"passed": 1, "failed": 0, "skipped": 1}), "{first}");
        assert_eq!(first["deps"][0]["from"], "prepared");
        assert_eq!(first["deps"][0]["digest"], made["prepared"][0]["digest"]);
        assert_eq!(json(&env, &["--cached-only", "--", "pytest"])["cache"], "hit");
        // The same lock file in another tree: what was fetched serves it too, and nothing is fetched again.
        env.write("app.py", "def two():\n    return 'two'\n").commit();
        let other = json(&env, &["--", "pytest"]);
        assert_eq!((&other["outcome"], &other["tests"]["failed"]), (&"failed".into(), &1.into()), "{other}");
        assert_eq!(other["deps"], first["deps"]);
        assert_eq!(prepare(&env, &served).expect(0).json()["prepared"][0]["how"], "already");
        // Another lock file has nothing prepared for it, whether the machine has a pytest of its own or not.
        env.write("requirements.txt", "click==8.1.7\n").commit();
        let stale = json(&env, &["--", "pytest"]);
        assert_eq!(stale["deps"], serde_json::json!([]), "{stale}");
        assert_ne!(stale["outcome"], "passed", "{stale}");
    }
}

#[test]
fn what_a_check_does_to_its_packages_reaches_no_other_check() {
    let served = Served::new(&tool("wheels"));
    for who in EVERYBODY {
        let env = Env::of(who);
        python_project(&env);
        drop(prepare(&env, &served).expect(0));
        let poison = "cd ~/venv && for file in lib/python3*/site-packages/jinja2/__init__.py bin/pytest; do \
                      echo 'raise SystemExit(9)' >$file && grep -q 9 $file; done && rm -r lib/python3*/site-packages/click \
                      && touch lib/bogus && mv pyvenv.cfg gone && mv lib/python3* elsewhere 2>/dev/null; echo done";
        let poisoned = env.checkrun(&["--runner", "python", "--", "sh", "-ec", poison]).expect(0);
        assert_eq!(poisoned.out(), "done\n", "{}", poisoned.err());
        let after = "ls ~/venv ~/venv/lib | grep -c -e bogus -e gone; exec pytest -q";
        let clean = env.checkrun(&["--runner", "python", "--", "sh", "-c", after]).expect(0);
        assert!(clean.out().starts_with("0\n") && clean.out().contains("1 passed"), "{}", clean.out());
    }
}

#[test]
fn a_step_that_fails_keeps_nothing_and_has_its_own_status() {
    let served = Served::new(&tool("wheels"));
    let env = Env::of(Who::User);
    env.write("requirements.txt", "no-such-package-anywhere==1\n").commit();
    let failed = prepare(&env, &served).expect(1);
    let told = failed.json();
    let tail = told["prepared"][0]["tail"].as_str().unwrap();
    assert!(tail.contains("no-such-package-anywhere"), "{tail}");
    assert_eq!(
        (&told["prepared"][0]["how"], &told["prepared"][0]["digest"]),
        (&"failed".into(), &serde_json::Value::Null)
    );
    assert!(!env.path("cache/packages").exists());
    let layers = std::fs::read_dir(env.path("cache/trees")).unwrap().flatten();
    assert!(!layers.into_iter().any(|layer| layer.file_name().to_string_lossy().starts_with("deps-")));
    // Where there is nothing to prepare, that is said.
    env.git(&["rm", "-q", "requirements.txt"]);
    env.write("a", "").commit();
    drop(env.checkrun(&["prepare"]).refused(&["nothing to prepare", "requirements.txt (python)", "hint:"]));
}

#[test]
fn a_step_sees_neither_the_callers_home_nor_variables_that_were_not_passed() {
    let env = Env::of(Who::User).var("TOKEN", "secret");
    std::fs::create_dir_all(env.path("home/.config/checkrun/runners")).unwrap();
    std::fs::write(env.path("home/token"), "secret").unwrap();
    let home = env.path("home");
    let runner = format!(
        "format = 1\ndescription = \"d\"\nserves = [\"frob\"]\n[[prepare]]\nwhen = [\"lock\"]\n\
         run = \"mkdir got; env >got/env; cat {}/token >got/token || true; ls -a >got/tree\"\ntree = [\"got\"]\n",
        home.display()
    );
    std::fs::write(env.path("home/.config/checkrun/runners/frob.toml"), runner).unwrap();
    env.write("lock", "1").write("other", "2").commit();
    drop(env.checkrun(&["prepare", "--runner", "frob"]).expect(0));
    let got =
        env.checkrun(&["--runner", "frob", "--", "sh", "-c", "cat got/env got/token got/tree"]).expect(0);
    // Of the tree it saw the lock file alone, since it is keyed by no more.
    assert!(!got.out().contains("secret") && got.out().contains("lock\n"), "{}", got.out());
    assert!(!got.out().contains("other"), "{}", got.out());
}

fn copy(env: &Env, from: &Path, to: &str) {
    let to = env.repo(to);
    assert!(Command::new("cp").arg("-a").arg(from).arg(&to).status().expect("cp").success());
    if env.who() == Who::User {
        let owner = crate::support::USER.to_string();
        let chown = Command::new("chown").arg("-R").arg(owner).arg(&to).status().expect("chown");
        assert!(chown.success() || !crate::support::is_root());
    }
}

fn node_project(env: &Env) {
    let mocha = tool("mocha");
    for name in ["package.json", "package-lock.json"] {
        env.write(name, std::fs::read(mocha.join(name)).unwrap());
    }
    env.write(".gitignore", "node_modules\n").write(
        "test/a.js",
        "const assert = require('assert');\nit('one', () => assert.ok(1));\nit.skip('two', () => {});\n",
    );
    copy(env, &mocha.join("node_modules"), "node_modules");
    env.commit();
}

#[test]
fn the_working_trees_own_packages_are_used_where_that_is_asked_for() {
    for who in EVERYBODY {
        let env = Env::of(who);
        node_project(&env);
        let found = ["--deps", "found", "--", "npm", "test"];
        let first = json(&env, &found);
        assert_eq!(first["tests"], serde_json::json!({"passed": 1, "failed": 0, "skipped": 1}), "{first}");
        assert_eq!(
            (&first["deps"][0]["from"], &first["deps"][0]["name"]),
            (&"found".into(), &"node_modules".into())
        );
        assert_eq!(json(&env, &found)["cache"], "hit");
        // Its programs are on PATH.
        assert_eq!(json(&env, &["--deps", "found", "--", "mocha"])["outcome"], "passed");
        // Without being asked for they are not there.
        assert_eq!(json(&env, &["--", "npm", "test"])["outcome"], "failed");
        // Content is in the key, whatever size and time say.
        let file = env.repo("node_modules/mocha/bin/mocha.js");
        let (good, times) =
            (std::fs::read(&file).unwrap(), std::fs::metadata(&file).unwrap().modified().unwrap());
        let mut bad = b"throw 1;//".to_vec();
        bad.extend(&good[bad.len()..]);
        let write = |bytes: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            std::fs::File::options().write(true).open(&file).unwrap().set_modified(times).unwrap();
        };
        write(&bad);
        let broken = json(&env, &found);
        assert_eq!((&broken["outcome"], &broken["cache"]), (&"failed".into(), &"miss".into()), "{broken}");
        write(&good);
        let again = json(&env, &found);
        assert_eq!((&again["cache"], &again["key"]), (&"hit".into(), &first["key"]), "{again}");
        // A check's own copy is its own to change; the caller's stays.
        let spoil =
            "echo bogus >node_modules/mocha/package.json; rm -r node_modules/.bin; touch node_modules/x";
        let args = ["--deps", "found", "--runner", "node", "--", "sh", "-ec", spoil];
        drop(env.checkrun(&args).expect(0));
        assert!(env.repo("node_modules/.bin/mocha").exists() && !env.repo("node_modules/x").exists());
        assert_eq!(json(&env, &["--deps", "found", "--refresh", "--", "npm", "test"])["outcome"], "passed");
    }
}

/// A virtual environment with one package and one console script, as installers write them.
fn environment(env: &Env) {
    env.write("test_it.py", "import unittest, sys, one\n\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual((one.X, sys.prefix), (1, '/src/.venv'))\n");
    env.write(".gitignore", ".venv\n").commit();
    let made = run(env
        .as_who("/usr/bin/python3")
        .args(["-m", "venv", "--without-pip", ".venv"])
        .current_dir(env.repo("")));
    drop(made.expect(0));
    let packages = std::fs::read_dir(env.repo(".venv/lib")).unwrap().next().unwrap().unwrap().path();
    let packages = packages.strip_prefix(env.repo("")).unwrap().join("site-packages");
    env.write(packages.join("one.py").to_str().unwrap(), "X = 1\n");
    let script = format!(
        "#!{}\nimport one, sys\nprint(one.X, sys.executable)\n",
        env.repo(".venv/bin/python3").display()
    );
    env.write(".venv/bin/tell", script).executable(".venv/bin/tell");
}

#[test]
fn a_virtual_environment_works_at_its_new_place_and_its_old_one_does_not_matter() {
    let mut keys = Vec::new();
    for _ in 0..2 {
        let env = Env::of(Who::User);
        environment(&env);
        let told = env.checkrun(&["--deps", "found", "--runner", "python", "--", "tell"]).expect(0);
        assert_eq!(told.out(), "1 /src/.venv/bin/python3\n");
        let result = json(&env, &["--deps", "found", "--", "python", "-m", "unittest"]);
        assert_eq!(
            (&result["outcome"], &result["tests"]["passed"]),
            (&"passed".into(), &1.into()),
            "{result}"
        );
        keys.push(result["key"].clone());
    }
    // Two checkouts in different places.
    assert_eq!(keys[0], keys[1]);
}

#[test]
fn what_is_not_found_is_said_with_what_was_looked_for() {
    let env = Env::new();
    env.write("a", "").commit();
    drop(env.checkrun(&["--deps", "found", "--", "npm", "test"]).refused(&["`node_modules`", "hint:"]));
    drop(env.checkrun(&["--deps", "found", "--", "true"]).refused(&["`generic` names no folders", "hint:"]));
}

#[test]
fn a_check_that_failed_and_looked_for_the_network_says_so() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("a", "").commit();
        let reach = |call: &str| format!("import socket\nsocket.{call}");
        for (program, told) in [
            (reach("getaddrinfo('example.org', 80)"), true),
            (reach("create_connection(('192.0.2.1', 80))"), true),
            (reach("create_connection(('2001:db8::1', 80))"), true),
            (reach("create_connection(('127.0.0.1', 9))"), false),
            ("raise SystemExit(1)".to_owned(), false),
        ] {
            let result = json(&env, &["--", "/usr/bin/python3", "-c", &program]);
            assert_eq!(result["exit"], 1, "{program}: {result}");
            let said = result["reason"]
                .as_str()
                .is_some_and(|reason| reason.starts_with("network: ") && reason.contains("prepare"));
            assert_eq!(said, told, "{program}: {result}");
        }
        // What passes all the same has nothing to explain.
        let quiet = "import socket\ntry: socket.getaddrinfo('example.org', 80)\nexcept OSError: pass";
        assert_eq!(json(&env, &["--", "/usr/bin/python3", "-c", quiet])["reason"], serde_json::Value::Null);
    }
}

/// The runner that docs/runners.md shows, word for word.
#[test]
fn the_runner_of_the_documentation_serves_another_ecosystem() {
    let page = include_str!("../../docs/runners.md");
    let text = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a runner");
    let env = Env::of(Who::User);
    std::fs::create_dir_all(env.path("home/.config/checkrun/runners")).unwrap();
    std::fs::write(env.path("home/.config/checkrun/runners/perl.toml"), text).unwrap();
    env.write("cpanfile", "requires 'Sample';\n").write("lib/A.pm", "package A; sub two { 2 } 1;\n");
    env.write("vendor/Sample.pm", "package Sample; sub x { 1 } 1;\n");
    env.write("t/a.t", "use Test::More;\nuse A; ok(A::two() == 2, 'two');\nSKIP: { skip 'later', 1; ok(1) }\ndone_testing;\n");
    env.commit();
    let result = json(&env, &["--require-tests", "--", "prove", "-l", "-v"]);
    assert_eq!(result["outcome"], "passed", "{result}");
    assert_eq!(result["tests"], serde_json::json!({"passed": 1, "failed": 0, "skipped": 1}), "{result}");
    assert_eq!(result["runner"]["name"], "perl");
}

#[test]
fn a_folder_that_is_a_link_out_of_the_tree_is_not_taken() {
    let env = Env::of(Who::User);
    std::fs::create_dir(env.path("home/private")).unwrap();
    std::os::unix::fs::symlink(env.path("home/private"), env.repo("node_modules")).unwrap();
    env.write("a", "").commit();
    drop(env.checkrun(&["--deps", "found", "--", "npm", "test"]).refused(&["`node_modules`"]));
}

/// Which files of a tree a step is kept under is worked out once: a folder that has gone from the repository since, and
/// that neither the step nor the check reads, is not missed.
#[test]
fn the_inputs_of_a_step_are_looked_for_once_in_each_tree() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let runner = "format = 1\ndescription = 'x'\nserves = ['frob']\n[[prepare]]\nwhen = ['frob.lock']\n\
            inputs = ['*.part']\nrun = 'mkdir deps; cat frob.lock a/*.part >deps/x'\ntree = ['deps']\n";
        std::fs::create_dir_all(env.path("home/.config/checkrun/runners")).unwrap();
        std::fs::write(env.path("home/.config/checkrun/runners/frob.toml"), runner).unwrap();
        env.write("frob.lock", "one ").write("a/b.part", "two").write("deep/er/f", "").commit();
        drop(env.checkrun(&["prepare", "--runner", "frob", "--policy", "hermetic"]).expect(0));
        let check = |more: &[&str], text: &str| {
            let test = format!("test \"$(cat deps/x)\" = '{text}'");
            let args =
                [more, &["--runner", "frob", "--tree", "HEAD", "--guard", "exact", "--", "sh", "-c", &test]];
            env.checkrun(&args.concat())
        };
        drop(check(&[], "one two").expect(0));
        let tree = env.git(&["rev-parse", "HEAD:deep"]);
        let (object, away) =
            (env.repo(&format!(".git/objects/{}/{}", &tree[..2], &tree[2..])), env.path("away"));
        std::fs::rename(&object, &away).unwrap();
        drop(check(&["--cached-only"], "one two").expect(0));
        // It is that note which spares the listing.
        std::fs::remove_dir_all(env.path("cache/step-inputs")).unwrap();
        drop(check(&["--cached-only"], "one two").refused(&[&tree[..12]]));
        std::fs::rename(&away, &object).unwrap();
        // Another input is another preparation, which is not there yet.
        env.write("a/b.part", "three").commit();
        drop(check(&[], "one two").expect(1));
    }
}
