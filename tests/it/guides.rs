//! The guides: every block in them is run as it stands, and every message that they explain is one that is given.

use crate::support::{Env, Who, program, run};
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
