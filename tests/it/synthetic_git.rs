//! The `.git` of a check: none by default; a made-up repository of one commit where the policy says so.

use crate::support::{EVERYBODY, Env, Who};
use std::os::unix::fs::symlink;

/// The usual policy with a repository inside.
fn with_policy(who: Who) -> Env {
    let env = Env::of(who);
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/policies/hermetic.toml")).unwrap();
    let changed = text.replace("view = \"none\"", "view = \"synthetic\"\nwhy = \"build stamps\"");
    assert_ne!(text, changed);
    std::fs::write(env.path("home/policy.toml"), changed).unwrap();
    env.write("f", "one\n").write("run", "#!/bin/sh\n").executable("run").write("empty", "");
    env.write("a/b/c", "x")
        .write("a-b", "y")
        .write("a.b", "z")
        .write(&format!("d/{}", "l".repeat(250)), "long\n");
    env.write(".gitattributes", "* text eol=crlf\n*.bin filter=lfs\n")
        .write(".gitignore", "f\n")
        .write("l.bin", "p");
    symlink("../nowhere", env.repo("a/link")).unwrap();
    env.git(&["add", "-A", "--force"]);
    env.commit();
    env
}

#[track_caller]
fn inside(env: &Env, options: &[&str], script: &str) -> String {
    let policy = env.path("home/policy.toml");
    let args = [&["--policy", policy.to_str().unwrap()], options, &["--", "sh", "-ec", script]].concat();
    env.checkrun(&args).expect(0).out()
}

// mattpocock/sandcastle#227, axoflow/axosyslog#1157, jj-vcs/jj#10156: a `.git` that points out of the sandbox, or is missing.
#[test]
fn git_works_in_a_made_up_repository() {
    for who in EVERYBODY {
        let env = with_policy(who);
        let tree = env.git(&["rev-parse", "HEAD^{tree}"]);
        let secret = env.git(&["rev-parse", "HEAD"]);
        for (options, tree) in [(&["--tree", "HEAD"][..], tree.clone()), (&[], tree.clone())] {
            let script = "git status --porcelain --ignored; git rev-parse 'HEAD^{tree}'; git fsck --strict --no-dangling \
                          2>&1; git rev-list --all --count; git show HEAD:f; git diff HEAD --stat; git ls-files -s | git \
                          hash-object --stdin; git branch --show-current";
            let listing = env.git(&["-c", "core.pager=cat", "ls-files", "-s"]) + "\n";
            std::fs::write(env.path("home/listing"), listing).unwrap();
            let listing =
                env.git(&["hash-object", "--no-filters", env.path("home/listing").to_str().unwrap()]);
            let seen = inside(&env, options, script);
            assert_eq!(seen, format!("{tree}\n1\none\n{listing}\nmain\n"), "{options:?}");
        }
        let stamp = inside(
            &env,
            &["--tree", "HEAD"],
            "git describe --always --dirty; git log --format='%an %ad %s' --date=unix",
        );
        let (id, log) = stamp.split_once('\n').unwrap();
        assert!(
            id.len() >= 7 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) && !secret.starts_with(id),
            "{stamp}"
        );
        assert_eq!(log, "checkrun 1767222000 The tree under check\n");
        // Another commit of the same tree, another repository, the same stamp.
        env.git(&["commit", "-q", "--amend", "-m", "otherwise"]);
        let again = inside(&env, &["--tree", "HEAD", "--no-cache"], "git describe --always --dirty");
        assert_eq!(again.trim(), id);
        assert!(
            !inside(&env, &["--tree", "HEAD", "--no-cache"], "cat .git/HEAD .git/config; ls .git/refs/heads")
                .contains("origin")
        );
        // Edits are seen as edits, also such as keep the size, and can be committed; nothing of it stays.
        let edit = "printf 'two\\n' >f; git status --porcelain; git -c user.name=x -c user.email=x@y commit -qam edit; git status \
                    --porcelain; git rev-list --count HEAD";
        for _ in 0..2 {
            assert_eq!(inside(&env, &["--tree", "HEAD", "--no-cache"], edit), " M f\n2\n");
        }
        assert_eq!(inside(&env, &["--tree", "HEAD", "--no-cache"], "git status --porcelain"), "");
    }
}

#[test]
fn there_is_no_repository_unless_the_policy_shows_one() {
    let env = with_policy(Who::User);
    let seen =
        env.checkrun(&["--tree", "HEAD", "--", "sh", "-c", "ls -A; git status 2>&1; git rev-parse 2>&1"]);
    assert!(
        seen.out().contains("not a git repository") && !seen.out().contains("\n.git\n"),
        "{}",
        seen.out()
    );
}

#[test]
fn parts_dirty_trees_submodules_and_sha256_have_a_repository_too() {
    let env = with_policy(Who::User);
    let script = "git status --porcelain --ignored; git rev-parse 'HEAD^{tree}'; git fsck 2>&1";
    let part = inside(&env, &["--tree", "HEAD", "--scope", "a"], script);
    assert_eq!(part.trim(), env.git(&["rev-parse", &cut_to_a(&env).to_string()]));
    env.write("a/b/c", "edited").write("new", "x");
    env.git(&["add", "-A"]);
    assert_eq!(inside(&env, &[], script).trim(), env.git(&["write-tree"]));
    let commit = env.commit();
    env.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{commit},modules/one")]);
    assert_eq!(inside(&env, &["--staged"], script).trim(), env.git(&["write-tree"]));
    std::fs::remove_dir_all(env.repo(".git")).unwrap();
    env.git(&["init", "-q", "-b", "main", "--object-format=sha256"]);
    env.commit();
    assert_eq!(inside(&env, &["--tree", "HEAD"], script).trim(), env.git(&["rev-parse", "HEAD^{tree}"]));
}

/// The tree that has only the folder `a`, as git makes it.
fn cut_to_a(env: &Env) -> String {
    let inner = env.git(&["rev-parse", "HEAD:a"]);
    let line = format!("printf '040000 tree {inner}\\ta\\n' | git mktree");
    let output = env.as_who("sh").args(["-c", &line]).current_dir(env.path("repo")).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// What is read of the repository depends on the whole tree, so no observed inputs may answer for another one.
#[test]
fn a_stamp_is_no_answer_for_another_tree() {
    let env = with_policy(Who::User);
    let stamp = || inside(&env, &[], "git describe --always");
    let first = stamp();
    env.write("unrelated", "x");
    let second = stamp();
    assert_ne!(first, second);
    // A check that does not look at it is answered by its inputs as ever.
    let policy = env.path("home/policy.toml");
    let plain = || {
        env.checkrun(&["--format", "json", "--policy", policy.to_str().unwrap(), "--", "cat", "a/b/c"])
            .expect(0)
            .json()
    };
    assert_eq!(plain()["cache"], "miss");
    env.write("unrelated", "y");
    let answered = plain();
    assert_eq!((&answered["cache"], &answered["guard"]), (&"hit".into(), &"inputs".into()));
}
