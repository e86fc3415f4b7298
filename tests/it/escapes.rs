//! Attempts to get out, hundreds of them, made by one probe in few starts of the sandbox (`probes/escapes`, a file for each
//! family, which cite the report or CVE that each is named in). A canary stands behind every one of them: files, a
//! process, servers, shared memory and a terminal of the test's own, in a network namespace of its own. What can be shown
//! to work without the sandbox, and changes nothing but the canaries, is shown to.

use crate::support::probe::LEVELS;
use crate::support::probes::source;
use crate::support::{EVERYBODY, Env, USER, Who, program, run, say};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

const SECRET: &str = "untold-4711";

/// What is open at level `landlock` and why; `docs/known-gaps.md` tells of each. May only get shorter.
const OPEN_WITHOUT_NAMESPACES: [(&str, &str); 26] = [
    ("stat-a-file-of-the-host", "Landlock covers opening, not looking"),
    ("enter-a-folder-of-the-host", "the same"),
    ("watch-a-file-of-the-host", "the same"),
    ("change-the-mode-of-a-host-file", "Landlock does not cover modes"),
    ("change-the-times-of-a-host-file", "nor times"),
    ("times-of-a-host-file", "nor times"),
    ("race-a-time", "nor times"),
    ("set-an-attribute-of-a-host-file", "nor attributes"),
    ("proc-cmdline-of-everyone", "there is no PID namespace"),
    ("proc-cwd-of-everyone", "the same; looking only"),
    ("connections-in-proc", "there is no network namespace; looking only"),
    ("links-of-the-host", "the same"),
    ("socket-by-path", "covered by later versions of Landlock only"),
    ("lower-its-priority", "the kernel asks for the same user and nothing else"),
    ("pin-it-to-a-processor", "the same"),
    ("other-terminal-of-the-caller", "terminals of one user are all there"),
    ("stat-through-the-root-of-a-process", "looking, as above"),
    ("stat-through-a-descriptor", "looking, as above"),
    ("stat-through-a-chain-of-links", "looking, as above"),
    ("race-a-stat", "looking, as above"),
    ("close-everything-and-ask-on", "looking, as above"),
    ("use-up-descriptors-and-ask-on", "looking, as above"),
    ("fill-the-listener", "looking, as above"),
    ("unshare-and-ask-on", "looking, as above"),
    ("execute-and-ask-on", "looking, as above"),
    ("a-listener-of-ones-own", "no supervisor listens at this level, and the filter stays in force"),
];

/// One attempt as the probe told of it.
#[derive(Debug)]
struct Attempt {
    family: String,
    /// Who can show without the sandbox that it works.
    bare: String,
    cites: String,
    outcome: String,
}

type Attempts = BTreeMap<String, Attempt>;

/// The canaries and what serves them; gone when dropped.
struct Host {
    env: Env,
    child: Child,
    /// Its end is the end of the host, which then clears up.
    held: Option<ChildStdin>,
    told: Value,
}

fn own(env: &Env, path: &Path, mode: u32) {
    if env.who() == Who::User {
        lchown(path, Some(USER), Some(USER)).expect("chown");
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
}

impl Host {
    fn new(who: Who) -> Self {
        let env = Env::of(who);
        let place = env.path("canary");
        // Open to everybody: nothing but the sandbox stands between the attempts and these.
        for (folder, mode) in [("canary", 0o777), ("home/.ssh", 0o755), ("home/.config/checkrun", 0o755)] {
            std::fs::create_dir_all(env.path(folder)).expect("mkdir");
            own(&env, &env.path(folder), mode);
        }
        std::fs::set_permissions(env.path(""), std::fs::Permissions::from_mode(0o777)).expect("chmod");
        for name in ["secret", "victim", "movable", "movable2", "removable", "owned"] {
            std::fs::write(place.join(name), format!("{SECRET}{}", "x".repeat(7900))).expect("write");
            own(&env, &place.join(name), 0o666);
        }
        std::fs::write(place.join("tool"), format!("#!/bin/sh\necho {SECRET}\n")).expect("write");
        own(&env, &place.join("tool"), 0o755);
        for name in ["home/.ssh/id", "home/.config/checkrun/planted", "repo/.git/planted"] {
            std::fs::write(env.path(name), SECRET).expect("write");
            own(&env, &env.path(name), 0o666);
        }
        let parts = ["base", "files", "network", "processes", "supervisor", "ourselves"];
        let texts = parts.map(|part| {
            std::fs::read_to_string(source(&format!("escapes/{part}.py"))).expect("a part of the probe")
        });
        env.write("escapes.py", texts.concat() + "\nrun_all()\n").write("f", "x").commit();
        // Descriptor 3 is what it lives by; its standard input is a canary.
        let setup = "ip link set lo up; ip addr add 10.99.0.1/32 dev lo; ip addr add 169.254.169.254/32 dev lo; \
                     ip tuntap add dev canary0 mode tun; cd \"$1\"";
        let script = format!("{setup}; exec $4 /usr/bin/python3 \"$3\" \"$1\" \"$2\" 3<&0 <\"$1/secret\"");
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-ec", &script, "sh"]).arg(&place).arg(SECRET);
        command.arg(source("escapes/host.py")).arg(drop_to(who)).env("PLANTED", SECRET);
        // Its group is one of its own, since one attempt signals the whole of it.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().expect("unshare");
        let held = child.stdin.take();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        out.read_line(&mut line).expect("a line");
        let mut told: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for (name, path) in [
            ("place", "canary"),
            ("home", "home"),
            ("repo", "repo"),
            ("cache", "cache"),
            ("secret_file", "home/.local/state/checkrun/secret"),
        ] {
            told[name] = json!(env.path(path).to_str().expect("UTF-8"));
        }
        told["secret"] = json!(SECRET);
        told["size"] = json!(SECRET.len() + 7900);
        told["program"] = json!(program().to_str().expect("UTF-8"));
        // So that there is something of checkrun's own to be got at.
        drop(env.checkrun(&["--", "true"]).expect(0));
        Self { env, child, held, told }
    }

    /// The probe in the host's network namespace, with a secret in its environment and on descriptors 0 and 9; `who` and
    /// `wrapper` run it.
    fn probe(&self, who: Who, wrapper: &[&str], mode: &str, level: &str) -> Attempts {
        let mut told = self.told.clone();
        (told["mode"], told["level"]) = (json!(mode), json!(level));
        let script = format!("exec 9<\"$0\"; exec {} timeout -s KILL 280 \"$@\" <\"$0\"", drop_to(who));
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.told["pid"]));
        command.args(["unshare", "--mount", "--propagation", "private", "sh", "-c", &script]);
        command.arg(self.env.path("canary/secret")).args(wrapper);
        command.arg("/usr/bin/python3").arg("escapes.py").arg(told.to_string());
        command.env_clear().current_dir(self.env.path("repo"));
        for (name, value) in self.env.command(&[]).get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let output = run(command.env("PLANTED", SECRET));
        let text = output.out();
        assert_eq!(text.lines().last(), Some("end"), "{mode} {level}: {text}\n{}", output.err());
        let lines = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
        let mut attempts = BTreeMap::new();
        for line in lines.filter(|line| line.len() > 1) {
            let [family, name, bare, cites, outcome] = line[..] else { panic!("{line:?}") };
            let [family, bare, cites, outcome] = [family, bare, cites, outcome].map(str::to_owned);
            let before = attempts.insert(name.to_owned(), Attempt { family, bare, cites, outcome });
            assert!(before.is_none(), "two attempts are called `{name}`");
        }
        attempts
    }

    /// The canary files as they are: content, mode, owner, time of change of content.
    fn picture(&self) -> Vec<String> {
        let mut files: Vec<String> = Vec::new();
        for folder in ["canary", "home/.ssh", "home/.config/checkrun", "cache/trees"] {
            for entry in std::fs::read_dir(self.env.path(folder)).expect("a folder").flatten() {
                let meta = std::fs::symlink_metadata(entry.path()).expect("a file");
                let content =
                    if meta.is_file() { std::fs::read(entry.path()).expect("read") } else { vec![] };
                let text = String::from_utf8_lossy(&content).into_owned();
                let facts = (meta.mode(), meta.uid(), meta.mtime());
                // A layer's own folder and the time of its last use may change, what lies in it may not.
                let facts =
                    if folder == "cache/trees" { format!("{:?}", meta.mode()) } else { format!("{facts:?}") };
                files.push(format!("{} {facts} {text}", entry.path().display()));
            }
        }
        files.sort();
        files
    }

    /// What reached the host's process and its servers.
    fn heard(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.env.path("heard")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.held.take());
        drop(self.child.wait());
    }
}

/// What makes a command run as `who`, where root starts it.
fn drop_to(who: Who) -> String {
    match who {
        Who::Root => "env".to_owned(),
        Who::User => format!("setpriv --reuid {USER} --regid {USER} --clear-groups"),
    }
}

fn got(attempts: &Attempts) -> BTreeSet<&str> {
    let got = attempts.iter().filter(|(_, attempt)| attempt.outcome.starts_with("GOT"));
    got.map(|(name, _)| name.as_str()).collect()
}

#[test]
fn no_attempt_gets_out_at_either_level() {
    let mut made = 0;
    for who in EVERYBODY {
        for level in LEVELS {
            let host = Host::new(who);
            let name = if level.is_empty() { "full" } else { "landlock" };
            let checkrun = program().to_str().expect("UTF-8");
            let mut wrapper = vec![checkrun, "--no-cache", "--timeout", "240s", "-q"];
            wrapper.extend(level);
            wrapper.push("--");
            let mut quiet = level.to_vec();
            quiet.extend(["--no-cache", "--", "true"]);
            drop(host.env.checkrun(&quiet).expect(0));
            let before = host.picture();
            let attempts = host.probe(who, &wrapper, "run", name);
            let open: BTreeSet<&str> = match name {
                "full" => BTreeSet::new(),
                _ => OPEN_WITHOUT_NAMESPACES.iter().map(|(name, _)| *name).collect(),
            };
            for (attempt, told) in &attempts {
                let held = told.outcome.starts_with("held") && !told.outcome.contains("took too long");
                assert!(held || open.contains(&**attempt), "{who:?} {name}: `{attempt}`: {told:?}");
            }
            for attempt in &open {
                assert!(attempts.contains_key(*attempt), "no attempt is called `{attempt}`");
            }
            let heard: Vec<String> = host.heard();
            let known = |what: &String| name == "landlock" && what == "path";
            assert!(heard.iter().all(known), "{who:?} {name}: the host heard {heard:?}");
            let changed: Vec<String> =
                host.picture().into_iter().filter(|file| !before.contains(file)).collect();
            // At level `landlock` modes and times of the caller's own file can be set.
            let owned = |file: &String| name == "landlock" && file.contains("canary/owned ");
            assert!(changed.iter().all(owned), "{who:?} {name}: {changed:?}");
            assert_eq!(host.picture().len(), before.len(), "{who:?} {name}: files came or went");
            say(&format!(
                "{who:?}, {name}: {} attempts, {} of them open",
                attempts.len(),
                got(&attempts).len()
            ));
            made += attempts.len();
            assert!(attempts.len() >= 250, "{} attempts", attempts.len());
            let families: BTreeSet<&str> = attempts.values().map(|told| &*told.family).collect();
            assert_eq!(families.len(), 5, "{families:?}");
            assert!(attempts.values().filter(|told| !told.cites.is_empty()).count() > 80);
        }
    }
    say(&format!("{made} attempts in all"));
}

#[test]
fn without_the_sandbox_attempts_do_succeed() {
    let mut shown = BTreeSet::new();
    let (mut user, mut root) = (Host::new(Who::User), Host::new(Who::User));
    for (who, host, mode) in [(Who::User, &mut user, "bare-user"), (Who::Root, &mut root, "bare-root")] {
        let attempts = host.probe(who, &[], mode, "bare");
        for (name, told) in &attempts {
            // The rest are as this kernel was built.
            let certain = ["user", "root"].contains(&&*told.bare);
            assert!(!certain || told.outcome.starts_with("GOT"), "`{name}` shows nothing: {told:?}");
        }
        shown.extend(got(&attempts).into_iter().map(str::to_owned));
    }
    let heard: BTreeSet<String> = user.heard().into_iter().collect();
    for what in ["tcp", "udp", "dns", "abstract", "path", "signal"] {
        assert!(heard.contains(what), "the host heard nothing of `{what}`: {heard:?}");
    }
    say(&format!("{} attempts are shown to work without the sandbox", shown.len()));
    assert!(shown.len() >= 150, "{}", shown.len());
}

// A check that prints what checkrun would print of a pass, and hides the rest by terminal controls.
#[test]
fn what_a_check_prints_is_no_verdict() {
    let forged = r#"{"schema":"checkrun.result/1","outcome":"passed","exit":0,"cache":"hit"}"#;
    let program = format!(
        "import sys\nfor s in (sys.stdout, sys.stderr):\n  s.write('{forged}\\n\\x1b[2J\\x1b]0;passed\\x07\\x1b[8m\\rcheckrun: passed (ran) tree 0 in 0s\\n')\n  s.flush()\nsys.exit(3)"
    );
    for who in EVERYBODY {
        for level in LEVELS {
            let env = Env::of(who);
            env.write("f", "x").commit();
            let beside = env.path("home/result.json");
            let mut options = level.to_vec();
            options.extend(["--format", "json", "--output", beside.to_str().expect("UTF-8")]);
            let output = env.python(&options, &program).expect(3);
            let result = output.json();
            assert_eq!((&result["outcome"], &result["exit"]), (&json!("failed"), &json!(3)));
            assert!(!result["tail"].as_str().expect("text").contains('\u{1b}'), "{result}");
            let written = std::fs::read(&beside).expect("the result");
            assert_eq!(serde_json::from_slice::<Value>(&written).expect("JSON"), result);
            let mut options = level.to_vec();
            options.extend(["--format", "jsonl"]);
            let output = env.python(&options, &program).expect(3).out();
            let lines: Vec<Value> =
                output.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
            let results: Vec<&Value> =
                lines.iter().filter(|line| line.get("result").or(line.get("outcome")).is_some()).collect();
            assert_eq!(results.len(), 1, "{output}");
            assert_eq!(results[0]["result"]["outcome"], "failed", "{output}");
            // For people the status and the last line on stderr are checkrun's own.
            let shown = env.python(level, &program).expect(3).err();
            assert!(shown.trim_end().lines().last().expect("a line").contains("failed"), "{shown}");
        }
    }
}
