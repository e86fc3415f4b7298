//! Content that a tree only names: submodules and files that LFS keeps elsewhere. Left out by default, and said so; put in
//! where that is asked for, from what is here, or refused by name.

use crate::support::{EVERYBODY, Env};
use std::path::PathBuf;

/// A repository of a few files, committed, beside the test's own; its path.
fn other(env: &Env, name: &str, files: &[(&str, &str)]) -> String {
    let place = env.path(&format!("home/{name}"));
    env.git(&["init", "-q", "-b", "main", place.to_str().unwrap()]);
    for (file, content) in files {
        std::fs::write(place.join(file), content).unwrap();
    }
    commit_in(env, name);
    place.to_str().unwrap().to_owned()
}

fn commit_in(env: &Env, name: &str) {
    let place = env.path(&format!("home/{name}"));
    env.git(&["-C", place.to_str().unwrap(), "add", "-A"]);
    env.git(&["-C", place.to_str().unwrap(), "commit", "-q", "-m", "x"]);
}

fn add(env: &Env, folder: &str, url: &str, path: &str) {
    let place = env.path(folder);
    let allow = "protocol.file.allow=always";
    env.git(&["-C", place.to_str().unwrap(), "-c", allow, "submodule", "--quiet", "add", url, path]);
}

/// A repository with a submodule that has one of its own.
fn nested(who: crate::support::Who) -> Env {
    let env = Env::of(who);
    let inner = other(&env, "inner", &[("deep", "from the inner one\n")]);
    let outer = other(&env, "outer", &[("file", "from the outer one\n")]);
    add(&env, "home/outer", &inner, "within/inner");
    commit_in(&env, "outer");
    add(&env, "repo", &outer, "lib/outer");
    env.write("f", "own\n").commit();
    let allow = "protocol.file.allow=always";
    env.git(&["-c", allow, "submodule", "--quiet", "update", "--init", "--recursive"]);
    env
}

const SHOW: &str = "find . -type f ! -name .gitmodules | sort; ls -A lib/outer | wc -l";

// moonrepo/moon#652, vercel/turborepo#5521, NixOS/nix#6633: gitlinks that break hashing or are empty without a word.
#[test]
fn submodules_are_empty_folders_and_the_record_says_how_many() {
    let env = nested(crate::support::Who::User);
    for options in [&["--tree", "HEAD"][..], &["--staged"], &[]] {
        let args = [&["--format", "json"], options, &["--", "sh", "-c", SHOW]].concat();
        let seen = env.checkrun(&args).expect(0).json();
        assert_eq!(seen["tail"], "./f\n0\n", "{options:?}");
        assert_eq!(seen["tree"], env.git(&["rev-parse", "HEAD^{tree}"]).as_str());
        assert_eq!(seen["foreign"]["empty_submodules"], 1, "{options:?}");
        assert_eq!(seen["foreign"]["submodules"], false, "{options:?}");
    }
    let told = env.checkrun(&["--tree", "HEAD", "--", "sh", "-c", SHOW]).expect(0);
    assert!(
        told.err().contains("(cached, exact)") && told.err().contains("1 submodule left empty"),
        "{}",
        told.err()
    );
    let shown = env.checkrun(&["log"]).expect(0);
    let number = shown.out().split_whitespace().next().unwrap().to_owned();
    assert!(env.checkrun(&["show", &number]).expect(0).out().contains("1 submodule left empty"));
}

#[test]
fn submodules_have_the_content_of_their_commits_where_that_is_asked_for() {
    for who in EVERYBODY {
        let env = nested(who);
        let whole = "./f\n./lib/outer/file\n./lib/outer/within/inner/deep\n";
        // What stands in the checkout does not matter, only the commit that is pinned.
        std::fs::write(env.repo("lib/outer/file"), "edited").unwrap();
        std::fs::write(env.repo("lib/outer/new"), "new").unwrap();
        let script =
            "find . -type f ! -name .gitmodules | sort; cat lib/outer/file lib/outer/within/inner/deep";
        let expected = format!("{whole}from the outer one\nfrom the inner one\n");
        for options in [&["--tree", "HEAD"][..], &["--staged"], &[]] {
            let args = [&["--format", "json", "--submodules"], options, &["--", "sh", "-c", script]].concat();
            let seen = env.checkrun(&args).expect(0).json();
            assert_eq!(seen["tail"], expected.as_str(), "{options:?}");
            assert_eq!(seen["foreign"]["submodules"], true);
            assert_eq!(seen["foreign"]["empty_submodules"], 0);
        }
        // A key of its own, which explain tells apart.
        let told = env.checkrun(&["explain", "--tree", "HEAD", "--", "sh", "-c", script]).expect(0);
        assert!(told.out().contains("submodules"), "{}", told.out());
        // The folder may be where the command starts, and what is out of scope need not be here.
        let args = ["--submodules", "--tree", "HEAD", "--cwd", "lib/outer", "--", "ls"];
        assert_eq!(env.checkrun(&args).expect(0).out(), "file\nwithin\n");
        // Deinitialised, it is still among the repositories that git keeps; gone from there, it is named.
        env.git(&["submodule", "--quiet", "deinit", "--force", "--all"]);
        let again = ["--submodules", "--no-cache", "--tree", "HEAD", "--", "sh", "-c", script];
        assert_eq!(env.checkrun(&again).expect(0).out(), expected);
        std::fs::remove_dir_all(env.repo(".git/modules/lib/outer/modules")).unwrap();
        let inner = env.path("home/inner");
        let commit = env.git(&["-C", inner.to_str().unwrap(), "rev-parse", "HEAD"]);
        let refused = env.checkrun(&again).refused(&["`lib/outer/within/inner`", &commit, "hint: "]);
        assert!(refused.err().contains("git submodule update"), "{}", refused.err());
        let scoped = ["--submodules", "--scope", "f", "--tree", "HEAD", "--", "ls"];
        assert_eq!(env.checkrun(&scoped).expect(0).out(), "f\n");
    }
}

// CVE-2018-11235 of git: a submodule's name that leads out of the folder of repositories.
#[test]
fn a_submodule_name_leads_nowhere_else() {
    let env = Env::new();
    let evil = other(&env, "evil", &[("file", "out of reach\n")]);
    let commit = env.git(&["-C", &evil, "rev-parse", "HEAD"]);
    env.write(".gitmodules", "[submodule \"../../../home/evil\"]\n\tpath = sub\n\turl = ./x\n");
    env.git(&["add", "-A"]);
    env.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{commit},sub")]);
    env.git(&["commit", "-q", "-m", "x"]);
    drop(env.checkrun(&["--submodules", "--tree", "HEAD", "--", "true"]).refused(&["`sub`", &commit]));
}

fn sha256(content: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content).unwrap();
    let output = std::process::Command::new("sha256sum").arg(file.path()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).split(' ').next().unwrap().to_owned()
}

/// Puts content into the store that LFS keeps beside a repository, under any name; the file's place.
fn store(env: &Env, oid: &str, content: &[u8]) -> PathBuf {
    let folder = env.repo(&format!(".git/lfs/objects/{}/{}", &oid[..2], &oid[2..4]));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(oid), content).unwrap();
    folder.join(oid)
}

fn pointer(oid: &str, size: usize) -> String {
    format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n")
}

#[test]
fn lfs_files_are_pointers_and_have_their_content_where_that_is_asked_for() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let content: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let oid = sha256(&content);
        env.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
            .write("a/large.bin", pointer(&oid, content.len()))
            .write("plain.bin", "content of its own\n")
            .write("pointer.txt", pointer(&oid, content.len()))
            .commit();
        let script = "cat a/large.bin | sha256sum; wc -c <pointer.txt; cat plain.bin";
        let text = pointer(&oid, content.len());
        let as_pointer = format!("{}  -\n{}\ncontent of its own\n", sha256(text.as_bytes()), text.len());
        for options in [&["--tree", "HEAD"][..], &[]] {
            let args = [&["--format", "json"], options, &["--", "sh", "-c", script]].concat();
            let seen = env.checkrun(&args).expect(0).json();
            assert_eq!(seen["tail"], as_pointer.as_str(), "{options:?}");
            assert_eq!(
                (&seen["foreign"]["lfs"], &seen["foreign"]["lfs_pointers"]),
                (&false.into(), &1.into())
            );
        }
        let told = env.checkrun(&["--tree", "HEAD", "--", "sh", "-c", script]).expect(0);
        assert!(told.err().contains("1 LFS file left as a pointer"), "{}", told.err());

        let lfs = ["--lfs", "--format", "json", "--tree", "HEAD", "--", "sh", "-c", script];
        let refused = env.checkrun(&lfs).refused(&["`a/large.bin`", &oid, "hint: "]);
        assert!(refused.err().contains("git lfs fetch"), "{}", refused.err());
        let place = store(&env, &oid, b"something else");
        drop(env.checkrun(&lfs).refused(&["`a/large.bin`", &oid, "damaged"]));
        std::fs::write(&place, &content).unwrap();
        let seen = env.checkrun(&lfs).expect(0).json();
        let in_full = format!("{oid}  -\n{}\ncontent of its own\n", text.len());
        assert_eq!(seen["tail"], in_full.as_str());
        assert_eq!((&seen["foreign"]["lfs"], &seen["foreign"]["lfs_pointers"]), (&true.into(), &0.into()));
        assert_eq!(
            (&seen["commit"], &seen["dirty"]),
            (&env.git(&["rev-parse", "HEAD"]).into(), &false.into())
        );
        // The store may go once it is on record, and it is looked at again where something is to be run.
        std::fs::remove_file(&place).unwrap();
        drop(env.checkrun(&["--lfs", "--tree", "HEAD", "--", "true"]).refused(&["`a/large.bin`"]));
    }
}
