//! The guides: every block in them is run as it stands, and every message that they explain is one that is given.

use crate::reconcile::{done, findings, look, steps};
use crate::support::probe::{Refusal, container_filter, worse};
use crate::support::{EVERYBODY, Env, USER, Who, program, run};
use serde_json::json;
use std::path::Path;

/// The text of one section and its title.
fn sections(text: &str) -> Vec<(&str, &str)> {
    text.split("\n## ").skip(1).filter_map(|section| section.split_once('\n')).collect()
}

/// The blocks of a section in a language that is run, with the language.
fn blocks(section: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = section;
    while let Some((_, after)) = rest.split_once("\n```") {
        let (language, after) = after.split_once('\n').expect("a language");
        let (block, after) = after.split_once("\n```").expect("an end");
        if ["sh", "python", "js"].contains(&language) {
            found.push((language, block));
        }
        rest = after;
    }
    found
}

/// Prints what is wrong with a file for a CI system or a cluster, then each shell command in it, a line each.
const READ_YAML: &str = r#"
import sys, yaml
document = yaml.safe_load(sys.stdin)
def commands(value):
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in ("run", "script"):
                yield from ([inner] if isinstance(inner, str) else inner)
            elif name == "command":
                yield " ".join(inner)
            else:
                yield from commands(inner)
    elif isinstance(value, list):
        for inner in value: yield from commands(inner)
if "jobs" in document:
    # YAML 1.1 reads the word `on` as a truth.
    assert True in document and document["jobs"], document
    for job in document["jobs"].values():
        assert "runs-on" in job and all(("run" in step) != ("uses" in step) for step in job["steps"]), job
elif "kind" in document:
    assert document["apiVersion"] == "v1" and document["metadata"]["name"], document
    pod = document["spec"]
    for container in pod["containers"]:
        assert container["image"] and container["securityContext"]["procMount"] == "Unmasked", container
        named = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} <= named, container
else:
    for job in document.values(): assert job["script"] and job["image"], job
for command in commands(document): print(command)
"#;

/// A file for a CI system that is none would be found out on its first push.
#[test]
fn every_ci_file_is_yaml_and_its_commands_are_understood() {
    use std::io::Write;
    let text = std::fs::read_to_string(root().join("docs/guides.md")).expect("docs/guides.md");
    let bin = program().parent().expect("a folder").to_owned();
    let env = Env::of(Who::User);
    let (mut files, mut commands) = (0, 0);
    for part in text.split("\n```yaml\n").skip(1) {
        let file = part.split("\n```").next().expect("an end");
        let mut python = std::process::Command::new("/usr/bin/python3");
        python
            .args(["-c", READ_YAML])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped());
        let mut child = python.spawn().expect("python3");
        child.stdin.take().expect("piped").write_all(file.as_bytes()).expect("write");
        let output = child.wait_with_output().expect("python3");
        assert!(output.status.success(), "python3-yaml, which .ci/tools installs, or:\n{file}");
        for command in String::from_utf8(output.stdout).expect("UTF-8").lines() {
            drop(run(env.as_who("/bin/bash").args(["-n", "-c", command])).expect(0));
            let Some(words) = command.strip_prefix("checkrun ") else { continue };
            // Whether it is understood is told before anything is done.
            let mut bash = env.as_who("/bin/bash");
            bash.args(["-c", &format!("checkrun -C /no/such/folder {words}")]);
            let output = run(bash.env("PATH", format!("{}:/usr/bin:/bin", bin.display())));
            assert!(output.err().contains("no such folder"), "{command}: {}", output.err());
            commands += 1;
        }
        files += 1;
    }
    assert!(files == 3 && commands == 3, "{files} files, {commands} commands");
}

/// The table of places says which level each gives as it comes; what such places refuse is refused here.
#[test]
fn the_levels_that_the_guides_tell_are_those_that_such_places_give() {
    let text = std::fs::read_to_string(root().join("docs/guides.md")).expect("docs/guides.md");
    let level = |place: &str| {
        let row = text.lines().find(|line| line.starts_with(&format!("| {place}"))).expect("a row");
        row.split('|').nth(2).expect("a column").split('`').nth(1).expect("a level").to_owned()
    };
    for who in EVERYBODY {
        let env = Env::of(who);
        let found = |refused: &[Refusal]| worse(&env, refused, &["doctor", "--format", "json"]).json();
        let container = found(&container_filter());
        assert_eq!(container["level"], level("Docker"));
        assert_eq!(container["level"], level("Kubernetes"));
        let remedies = container["remedies"].to_string();
        assert!(remedies.contains("docker run --security-opt seccomp=unconfined …"), "{remedies}");
        // Namespaces are made, and what they are made for is refused.
        let actions = found(&[(libc::SYS_fsopen, libc::EACCES, 0)]);
        assert_eq!(actions["level"], level("GitHub Actions"));
        assert_eq!(found(&[(libc::SYS_acct, libc::EPERM, 0)])["level"], level("GitLab CI, shell"));
    }
}

/// Ubuntu 24.04, as GitHub's machines have it: the setting is there, and mounting is refused.
#[test]
fn where_apparmor_stands_in_the_way_doctor_gives_the_line_that_the_guides_give() {
    let text = std::fs::read_to_string(root().join("docs/guides.md")).expect("docs/guides.md");
    let env = Env::of(Who::User);
    let rules = serde_json::to_string(&[(libc::SYS_fsopen, libc::EACCES, 0)]).expect("rules");
    let stand_in =
        std::fs::read_to_string(root().join("tests/it/support/stand_in.py")).expect("the stand-in");
    let setup = "mount -t tmpfs none /proc/sys/kernel\necho 1 > /proc/sys/kernel/apparmor_restrict_unprivileged_userns\n\
                 exec setpriv --reuid $0 --regid $0 --clear-groups \"$@\"";
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", setup, &USER.to_string()]);
    command.args(["/usr/bin/python3", "-c", &stand_in, &rules]).arg(program()).arg("doctor");
    command.env_clear().env("HOME", env.path("home")).env("CHECKRUN_CACHE_DIR", env.path("cache"));
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").current_dir(env.path("repo"));
    let told = run(&mut command).out();
    let line = "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0";
    assert!(told.contains(&format!("mend       {line}")) && text.contains(line), "{told}");
    assert!(told.lines().count() <= 24 && told.lines().all(|line| line.len() <= 80), "{told}");
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_block_of_the_guides_does_what_it_says() {
    let text = std::fs::read_to_string(root().join("docs/guides.md")).expect("docs/guides.md");
    let bin = program().parent().expect("a folder").to_owned();
    let mut count = 0;
    for (title, section) in sections(&text) {
        let env = Env::of(Who::User);
        env.write("tests/__init__.py", "");
        env.write(
            "tests/test_sum.py",
            "import unittest\n\nclass Sums(unittest.TestCase):\n    def test_two(self):\n        self.assertEqual(1 + 1, 2)\n",
        );
        env.commit();
        env.write("README", "sums\n").commit();
        for (language, block) in blocks(section) {
            let (interpreter, flag) = match language {
                "sh" => ("/bin/bash", "-euc"),
                "python" => ("/usr/bin/python3", "-c"),
                _ => ("node", "-e"),
            };
            let mut command = env.as_who(interpreter);
            command.args([flag, block]).current_dir(env.path("repo"));
            command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()));
            let output = run(&mut command);
            assert_eq!(output.status, 0, "{title}: {block}\n{}{}", output.out(), output.err());
            count += 1;
        }
    }
    assert!(count >= 13, "{count} blocks were run");
}

/// A run whose first step is done and not written down, whose second is half done, and whose third is claimed.
#[test]
fn the_lines_for_a_harness_finish_a_run_that_was_killed() {
    let text = std::fs::read_to_string(root().join("README.md")).expect("README.md");
    let sections = sections(&text);
    let (_, section) = sections.iter().find(|(title, _)| *title == "For a harness").expect("the section");
    let blocks = blocks(section);
    assert_eq!(blocks.iter().map(|(language, _)| *language).collect::<Vec<_>>(), ["sh", "python"]);
    for (who, (language, block)) in
        EVERYBODY.into_iter().flat_map(|who| blocks.iter().map(move |block| (who, block)))
    {
        let (interpreter, work) = match *language {
            "sh" => ("/bin/sh", "work_on() { d=d${1#s0}; mkdir -p $d; echo x > $d/a; echo done > $d/b; }\n"),
            _ => (
                "/usr/bin/python3",
                "import os\ndef work_on(step):\n    d = 'd' + step[2:]\n    os.makedirs(d, exist_ok=True)\n    \
                 open(d + '/a', 'w').write('x')\n    open(d + '/b', 'w').write('done')\n",
            ),
        };
        let env = Env::of(who);
        let mut ledger = steps(3);
        ledger["steps"][2]["status"] = json!("passed");
        env.write("plan.json", serde_json::to_string_pretty(&ledger).unwrap()).write("README", "x\n");
        env.write(".gitignore", "/report.json\n").commit();
        done(&env, 1);
        let bin = program().parent().expect("a folder");
        let work_through = |work: &str| {
            let mut command = env.as_who(interpreter);
            command.args(["-c", &format!("{work}{block}")]).current_dir(env.path("repo"));
            command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()));
            command.env("CHECKRUN_CACHE_DIR", env.path("cache"));
            run(&mut command)
        };
        // Killed as it works on the second step, after one of its files.
        let killed = work
            .replace("echo done >", "kill -9 $$; echo done >")
            .replace("    open(d + '/b'", "    os.kill(os.getpid(), 9); open(d + '/b'");
        assert_ne!(killed, work);
        assert_eq!(work_through(&killed).status, 137, "{block}");
        let report = look(&env, &["plan.json"]).expect(1).json();
        assert_eq!(
            (findings(&report), &report["leftovers"]["under_touches"][0]["path"]),
            (vec!["certified", "uncertified", "blocked"], &json!("d2/a"))
        );
        let output = work_through(work);
        assert_eq!(output.status, 0, "{block}\n{}{}", output.out(), output.err());
        assert_eq!(findings(&look(&env, &["plan.json"]).expect(0).json()), ["certified"; 3]);
        let claims =
            env.git(&["log", "--reverse", "--format=%(trailers:key=Agent-Step,valueonly,separator=%x2C)"]);
        assert_eq!(claims.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>(), ["s01", "s02", "s03"]);
        assert_eq!(
            env.git(&["for-each-ref", "--format=%(refname)", "refs/checkrun"]),
            "refs/checkrun/partial/run/s02"
        );
        assert_eq!(env.git(&["status", "--porcelain"]), "");
    }
}

#[test]
fn every_message_that_the_guides_explain_is_one_that_is_given() {
    let text = std::fs::read_to_string(root().join("docs/guides.md")).expect("docs/guides.md");
    let (_, section) = text.split_once("\n## When something is in the way\n").expect("the section");
    // Of curl, which is what a check without network mostly shows.
    let foreign = ["Could not resolve host"];
    let source: String =
        files(&root().join("src")).iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect();
    let messages: Vec<&str> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(message, _)| message))
        .filter(|message| !foreign.contains(message))
        .collect();
    assert!(messages.len() >= 7, "{messages:?}");
    for message in messages {
        assert!(source.contains(message), "nothing says `{message}`");
    }
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}
