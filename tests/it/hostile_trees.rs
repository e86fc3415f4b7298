//! Trees that were made to do harm, and trees of uncommon size: refused by name, or laid out as any other.

use crate::support::{EVERYBODY, Env};
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

/// Writes an object that git itself would not make.
#[track_caller]
fn object(env: &Env, kind: &str, bytes: &[u8]) -> String {
    let mut git = env.as_who("git");
    git.args(["hash-object", "-t", kind, "-w", "--stdin", "--literally"]).current_dir(env.path("repo"));
    let mut child = git.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("git");
    child.stdin.take().expect("a pipe").write_all(bytes).expect("written");
    let output = child.wait_with_output().expect("git");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("an id").trim().to_owned()
}

fn entry(mode: &str, name: &[u8], id: &str) -> Vec<u8> {
    let id: Vec<u8> =
        (0..id.len()).step_by(2).map(|at| u8::from_str_radix(&id[at..at + 2], 16).expect("hex")).collect();
    [mode.as_bytes(), b" ", name, b"\0", &id].concat()
}

/// Everything on disk in the folder of layers, and what a tree that leaves its folder would have written.
fn written(env: &Env) -> Vec<PathBuf> {
    let trees = std::fs::read_dir(env.path("cache/trees")).into_iter().flatten().flatten();
    let beside =
        ["cache/trees/escaped", "cache/escaped", "escaped", "home/escaped"].map(|name| env.path(name));
    trees.map(|entry| entry.path()).chain(beside.into_iter().filter(|path| path.exists())).collect()
}

// CVE-2014-9390, CVE-2021-21300 of git: entries that leave the tree, and links that a folder is written through.
#[test]
fn hostile_entries_are_refused_by_name_and_nothing_is_written() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let blob = object(&env, "blob", b"escaped");
        let inner = object(&env, "tree", &entry("100644", b"escaped", &blob));
        let commit = env.write("f", "x").commit();
        for name in [&b".."[..], b".", b".git", b".GIT", b"a/b", b"../escaped", b"/escaped", b""] {
            for (mode, id) in [("100644", &blob), ("40000", &inner), ("120000", &blob), ("160000", &commit)] {
                let made = object(&env, "tree", &entry(mode, name, id));
                let below = object(&env, "tree", &entry("40000", b"sub", &made));
                let refused = env.checkrun(&["--tree", &below, "--", "true"]).expect(125);
                let (shown, text) = (String::from_utf8_lossy(name), refused.err());
                assert!(text.contains("refused") || text.contains("damaged"), "{mode} {shown}: {text}");
                assert!(
                    text.contains(&format!("sub/{shown}")) || text.contains("`sub`"),
                    "{mode} {shown}: {text}"
                );
                assert_eq!(written(&env), Vec::<PathBuf>::new(), "{mode} {shown}");
            }
        }
        // One name for two things, also where other names stand between them: a link that a folder would be written through.
        let escape = object(&env, "blob", b"../../..");
        for pair in [("120000", "40000"), ("100644", "40000"), ("100644", "120000"), ("160000", "40000")] {
            let id = |mode: &str| match mode {
                "40000" => inner.clone(),
                "120000" => escape.clone(),
                "160000" => commit.clone(),
                _ => blob.clone(),
            };
            let bytes = [
                entry(pair.0, b"a", &id(pair.0)),
                entry("100644", b"a-b", &blob),
                entry(pair.1, b"a", &id(pair.1)),
            ];
            let made = object(&env, "tree", &bytes.concat());
            drop(env.checkrun(&["--tree", &made, "--", "true"]).refused(&["`a`", "twice", "refused"]));
            assert_eq!(written(&env), Vec::<PathBuf>::new(), "{pair:?}");
        }
    }
}

/// `CHECKRUN_TEST_ENTRIES` is how many; 100000 takes a minute where disks are slow.
#[test]
fn a_folder_may_hold_very_many_entries() {
    let count: u32 =
        std::env::var("CHECKRUN_TEST_ENTRIES").map_or(15_000, |count| count.parse().expect("a number"));
    let env = Env::new();
    let blob = object(&env, "blob", b"one of many\n");
    let mut bytes = Vec::new();
    for number in 0..count {
        bytes.extend(entry("100644", format!("f{number:06}").as_bytes(), &blob));
    }
    let inner = object(&env, "tree", &bytes);
    let tree = object(&env, "tree", &entry("40000", b"many", &inner));
    let script = "ls -U many | wc -l; cat many/f0000* many/f0149* | sort -u | wc -l; ls many | tail -n 1";
    let seen = env.checkrun(&["--tree", &tree, "--", "sh", "-c", script]).expect(0).out();
    let last = format!("f{:06}", count - 1);
    assert_eq!(seen.split_whitespace().collect::<Vec<_>>(), [&count.to_string(), "1", &last]);
}

/// `CHECKRUN_TEST_BLOB` is the size in bytes; 2147483649 is one more than 31 bits hold, and takes a minute.
#[test]
fn a_blob_may_be_larger_than_most_memory_is_meant_for() {
    let size: u64 =
        std::env::var("CHECKRUN_TEST_BLOB").map_or(40_000_001, |size| size.parse().expect("bytes"));
    let env = Env::new();
    let file = std::fs::File::create(env.repo("large")).expect("a file");
    file.set_len(size - 1).expect("a length");
    std::os::unix::fs::FileExt::write_all_at(&file, b"!", size - 1).expect("written");
    drop(file);
    let script = "stat -c %s large; tail -c 1 large; git hash-object large";
    for options in [&[][..], &["--tree", "HEAD"]] {
        let args = [options, &["--disk", "8GiB", "--", "sh", "-c", script]].concat();
        let seen = if options.is_empty() {
            env.checkrun(&args).expect(0)
        } else {
            env.commit();
            // Nothing of the working tree's own copy may answer.
            drop(env.checkrun(&["gc", "--max-size", "1B"]).expect(0));
            env.checkrun(&args).expect(0)
        };
        assert_eq!(seen.out(), format!("{size}\n!{}\n", env.git(&["hash-object", "large"])), "{options:?}");
    }
}

#[test]
fn paths_longer_than_a_call_takes_are_laid_out_and_copied() {
    const WALK: &str = r#"
import os
part, depth = 'p' * 200, 0
at = os.open('.', os.O_RDONLY)
while True:
    try: below = os.open(part, os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
    except FileNotFoundError: break
    os.close(at); at = below; depth += 1
print(depth, os.read(os.open('file', os.O_RDONLY, dir_fd=at), 99).decode(), os.readlink('link', dir_fd=at))
os.unlink('file', dir_fd=at)
"#;
    for who in EVERYBODY {
        let env = Env::of(who);
        let (blob, target) = (object(&env, "blob", b"at the end"), object(&env, "blob", b"../file"));
        let mut tree = object(
            &env,
            "tree",
            &[entry("100644", b"file", &blob), entry("120000", b"link", &target)].concat(),
        );
        for _ in 0..60 {
            tree = object(&env, "tree", &entry("40000", "p".repeat(200).as_bytes(), &tree));
        }
        for options in [&["--tree", &tree][..], &["--tree", &tree, "--policy", "landlock"]] {
            let seen = env.python(options, WALK).expect(0);
            assert_eq!(seen.out(), "60 at the end ../file\n", "{options:?}");
        }
        // As much is read from the disk, where no path of the whole leads there.
        drop(env.checkrun(&["gc", "--max-size", "1B"]).expect(0));
        let gone = std::fs::read_dir(env.path("cache/trees")).expect("a folder").count();
        assert_eq!(gone, 0, "a deep layer stays behind");
    }
}
