//! Guard `inputs` where observing is hard: odd programs, ways through /proc, sockets, and a host that changes. What is
//! right is a fresh run or a right answer; a wrong answer is what is looked for.

use crate::support::probes::compile;
use crate::support::{EVERYBODY, Env, Output, Who, run, say};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// Whether this was an answer from the record, and why what it depends on is not known, if it is not.
fn told(output: &Output) -> (bool, String) {
    let json = output.json();
    (json["cache"] == "hit", json["unobserved"].as_str().unwrap_or_default().to_owned())
}

fn hit(output: &Output) -> bool {
    told(output).0
}

#[test]
fn ways_that_lead_through_proc_are_never_taken_for_ways_to_nothing() {
    // What /proc/self is depends on who looks.
    let env = Env::new();
    symlink("/proc/self/cwd/a", env.repo("by-link")).expect("symlink");
    env.write("a", "1\n").write("other", "1\n").commit();
    let mut known = 0;
    for script in [
        "cat a",
        "cat by-link",
        "cat /proc/self/cwd/a",
        "cat //proc/self/cwd/a",
        "cat /proc/./self/cwd/a",
        "cat /proc/self/../self/cwd/a",
        "cat /proc/self/root/proc/self/cwd/a",
        "cat /proc/thread-self/cwd/a",
        "exec cat /proc/self/task/$$/cwd/a",
        "exec cat /proc/$$/cwd/a",
        "cd /proc; cat self/cwd/../src/a",
        "cd /proc/self; cat root/src/a",
        "exec 3</proc; cat /proc/self/fd/3/self/root/src/a",
        "exec 3<a; cat /dev/fd/3",
        "exec 3<a; cd /dev; cat fd/3",
        "cat /dev/stdin <a",
        "ln -s /proc/self/cwd x; cat x/a",
        "ln -s /proc x; cat x/self/cwd/a",
        "ln -s a b; ln -s /proc/self/cwd/b c; cat c",
    ] {
        let first = env.sh(script);
        env.write("other", "2\n");
        known += usize::from(hit(&env.sh(script)));
        env.write("a", "2\n");
        let second = env.sh(script);
        assert!(!hit(&second), "{script}");
        assert_ne!(first.json()["tail"], second.json()["tail"], "{script}");
        env.write("a", "1\n").write("other", "1\n");
    }
    // Plain ones are known in full: giving up everything would be right, and no use.
    assert!(known >= 4, "{known}");
}

#[test]
fn programs_that_make_observing_hard_get_no_wrong_answer() {
    for (how, known) in
        [("long", false), ("closed", true), ("threads", true), ("storm", true), ("filter", true)]
    {
        let env = Env::new();
        compile(&env, "p", "confuse.c", &["gcc", "-O1"]);
        for index in 0..100 {
            env.write(&format!("many/{index}"), "x");
        }
        env.write("input", "1").write("other", "1").commit();
        let run = || env.checkrun(&["--format", "json", "--", "./p", how]);
        let first = run().expect(0);
        assert_eq!(first.json()["tail"], "1\n", "{how}");
        env.write("other", "2");
        let beside = run();
        assert_eq!(hit(&beside), known, "{how}: {:?}", told(&beside));
        env.write("input", "2");
        let second = run();
        assert_eq!((hit(&second), &second.json()["tail"]), (false, &"2\n".into()), "{how}");
    }
}

#[test]
fn a_path_that_another_thread_changes_meanwhile_ends_the_observation() {
    // Only where the change is between our two looks; docs/known-gaps.md says what remains.
    let env = Env::new();
    compile(&env, "p", "confuse.c", &["gcc", "-O1"]);
    env.write("many/0", "a").write("many/1", "b").write("other", "1").commit();
    let run = || env.checkrun(&["--format", "json", "--", "./p", "race"]);
    let first = run().expect(0);
    say(&format!("opened as either file: {}", first.json()["tail"]));
    assert_eq!(told(&first), (false, "a path was changed while it was looked at".to_owned()));
    env.write("other", "2");
    assert!(!hit(&run()));
    let shown = env.checkrun(&["show", "1"]).expect(0).out();
    assert!(shown.contains("not known in full: a path was changed"), "{shown}");
    let inputs = env.checkrun(&["show", "1", "--inputs"]).refused(&["a path was changed"]);
    drop(inputs);
}

#[test]
fn paths_of_sockets_count_as_looked_for() {
    let env = Env::new();
    env.write("there", "1").write("other", "1").commit();
    let program = |what: &str| {
        format!(
            "import socket\ns = socket.socket(socket.AF_UNIX)\ntry:\n    {what}\nexcept OSError as e:\n    print(e.errno)"
        )
    };
    // In a mode that does not list the folder for modules.
    let run = |what: &str| {
        env.checkrun(&["--format", "json", "--", "/usr/bin/python3", "-I", "-S", "-c", &program(what)])
    };
    for what in [
        "s.connect('new')",
        "s.connect('/src/new')",
        "s.bind('new'); print('bound')",
        "s.sendto(b'x', 'new')",
    ] {
        let first = run(what).expect(0);
        env.write("other", "2");
        assert!(hit(&run(what)), "{what}");
        env.write("new", "1");
        let second = run(what).expect(0);
        assert!(!hit(&second), "{what}");
        if !what.contains("sendto") {
            assert_ne!(first.json()["tail"], second.json()["tail"], "{what}");
        }
        std::fs::remove_file(env.repo("new")).expect("rm");
        env.write("other", "1");
    }
    // Each message of a datagram socket may have an address of its own.
    let datagrams =
        run("socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendmsg([b'x'], [], 0, 'new')").expect(0);
    assert!(told(&datagrams).1.contains("datagram"), "{}", datagrams.out());
    // Others are no concern of the tree's.
    let what = "socket.create_server(('127.0.0.1', 0)); socket.socketpair(); s.bind(b'\\0abstract')";
    assert_eq!(told(&run(what).expect(0)), (false, String::new()));
    env.write("new", "1");
    assert!(hit(&run(what)));
}

/// A folder of tools on the host, put there whole and shown to a check by way of PATH.
struct Tools<'e> {
    env: &'e Env,
}

impl<'e> Tools<'e> {
    fn new(env: &'e Env) -> Self {
        std::fs::create_dir_all(env.path("tools/bin")).expect("mkdir");
        Self { env }
    }

    fn folder(&self) -> std::path::PathBuf {
        self.env.path("tools/bin")
    }

    /// Writes a tool as an installer does: a new file that takes the place of the old one.
    fn install(&self, name: &str, content: &str) {
        let (new, to) = (self.folder().join("new"), self.folder().join(name));
        std::fs::write(&new, content).expect("write");
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).expect("chmod");
        std::fs::rename(new, to).expect("mv");
        // Two ticks of the clock: what changes within the tick in which a run begins may have changed within the run.
        std::thread::sleep(std::time::Duration::from_millis(25));
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.env.command(args);
        command.env("PATH", format!("{}:/usr/bin:/bin", self.folder().display()));
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        run(&mut self.command(args))
    }
}

#[test]
fn the_same_tool_installed_again_still_answers() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let tools = Tools::new(&env);
        let text = "#!/bin/sh\ncat a \"$(dirname \"$0\")/data\"\n";
        tools.install("mytool", text);
        tools.install("data", "1\n");
        env.write("a", "1").write("b", "1").commit();
        let args = ["--format", "json", "--", "mytool"];
        assert!(!hit(&tools.run(&args)));
        env.write("b", "2");
        assert!(hit(&tools.run(&args)));
        for _ in 0..2 {
            tools.install("mytool", text);
            tools.install("data", "1\n");
            env.write("b", format!("{}", text.len()));
            for _ in 0..2 {
                let answered = tools.run(&args);
                assert!(hit(&answered), "{who:?}: {}", answered.err());
                assert_eq!(answered.json()["guard"], "inputs");
            }
        }
        // Of the same length, and with other rights.
        tools.install("data", "2\n");
        assert!(!hit(&tools.run(&args)));
        std::fs::set_permissions(tools.folder().join("data"), std::fs::Permissions::from_mode(0o744))
            .expect("chmod");
        env.write("b", "4");
        assert!(!hit(&tools.run(&args)));
    }
}

#[test]
fn a_link_of_the_host_that_leads_elsewhere_is_a_miss() {
    // What a script's first line names is looked up by the kernel, link by link.
    let env = Env::of(Who::User);
    let tools = Tools::new(&env);
    tools.install("mytool", "#!/bin/sh\nexec ./script\n");
    let (interpreter, first_line) =
        (tools.folder().join("sh-here"), format!("#!{}/sh-here\n", tools.folder().display()));
    symlink("/usr/bin/dash", &interpreter).expect("symlink");
    env.write("script", format!("{first_line}echo \"${{BASH_VERSION:+bash}}\"\n")).executable("script");
    env.write("b", "1").commit();
    std::thread::sleep(std::time::Duration::from_millis(25));
    let args = ["--format", "json", "--", "mytool"];
    assert_eq!(tools.run(&args).json()["tail"], "\n");
    env.write("b", "2");
    let again = tools.run(&args);
    assert!(hit(&again), "{:?}", told(&again));
    std::fs::remove_file(&interpreter).expect("rm");
    symlink("/usr/bin/bash", &interpreter).expect("symlink");
    env.write("b", "3");
    let other = tools.run(&args);
    assert_eq!((hit(&other), &other.json()["tail"]), (false, &"bash\n".into()));
}

#[test]
fn a_host_file_that_changes_while_the_check_runs_leaves_no_set() {
    // golang/go#26790: results filed under what was there afterwards.
    let env = Env::of(Who::User);
    let tools = Tools::new(&env);
    let (data, ready) = (tools.folder().join("data"), tools.folder().join("ready"));
    tools.install("data", "1\n");
    tools.install(
        "mytool",
        "#!/bin/sh\nd=$(dirname \"$0\")\ncat $d/data\nwhile ! test -e $d/ready; do sleep 0.05; done\n",
    );
    env.write("b", "1").commit();
    let mut running =
        tools.command(&["--", "mytool"]).stdout(std::process::Stdio::piped()).spawn().expect("checkrun");
    let mut line = String::new();
    let mut out = std::io::BufReader::new(running.stdout.take().expect("stdout"));
    std::io::BufRead::read_line(&mut out, &mut line).expect("a line");
    assert_eq!(line, "1\n");
    std::fs::write(&data, "2\n").expect("write");
    std::fs::write(&ready, "").expect("write");
    assert!(running.wait().expect("wait").success());
    let shown = env.checkrun(&["show", "1"]).expect(0).out();
    assert!(shown.contains("changed while the check ran"), "{shown}");
    env.write("b", "2");
    std::thread::sleep(std::time::Duration::from_millis(25));
    let second = tools.run(&["--format", "json", "--", "mytool"]);
    assert_eq!((hit(&second), &second.json()["tail"]), (false, &"2\n".into()));
    assert!(Path::new(&data).exists());
}
