//! The guides: every block in them is run as it stands, and every message that they explain is one that is given.

use crate::reconcile::{done, findings, look, steps};
use crate::support::{EVERYBODY, Env, Who, program, run};
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
