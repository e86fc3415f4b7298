//! Which tree is checked: every way of naming one, and that nothing but it is seen.

use crate::support::{EVERYBODY, Env, Who, run};
use serde_json::Value;
use std::os::unix::fs::{PermissionsExt, symlink};

/// The result of a check that prints `f` of the tree.
fn printed(env: &Env, options: &[&str]) -> Value {
    env.checkrun(&[&["--format", "json"], options, &["--", "cat", "f"]].concat()).expect(0).json()
}

#[test]
fn every_way_to_name_a_revision_leads_to_its_tree() {
    let env = Env::new();
    let first = env.write("f", "one\n").write("sub/dir/f", "deep\n").commit();
    env.git(&["tag", "light"]);
    env.git(&["tag", "-a", "-m", "x", "heavy"]);
    let second = env.write("f", "two\n").commit();
    env.git(&["branch", "topic", &first]);
    env.git(&["tag", "-a", "-m", "x", "twice", "heavy"]);
    let tree = env.git(&["rev-parse", "HEAD~1^{tree}"]);
    let sub = env.git(&["rev-parse", "HEAD:sub/dir"]);
    let short = &first[..10];
    for (revision, text, commit) in [
        (first.as_str(), "one\n", Some(&first)),
        (short, "one\n", Some(&first)),
        ("light", "one\n", Some(&first)),
        ("heavy", "one\n", Some(&first)),
        ("twice", "one\n", Some(&first)),
        ("refs/tags/light", "one\n", Some(&first)),
        ("topic", "one\n", Some(&first)),
        ("HEAD~1", "one\n", Some(&first)),
        ("HEAD^", "one\n", Some(&first)),
        ("@~1", "one\n", Some(&first)),
        ("HEAD~1^{tree}", "one\n", Some(&first)),
        (&tree, "one\n", None),
        (&tree[..12], "one\n", None),
        ("main", "two\n", Some(&second)),
        ("HEAD", "two\n", Some(&second)),
        ("main@{0}", "two\n", Some(&second)),
        ("main@{1}", "one\n", Some(&first)),
        ("HEAD^{/a commit}", "two\n", Some(&second)),
        ("HEAD:sub/dir", "deep\n", None),
        (&sub, "deep\n", None),
    ] {
        let answer = printed(&env, &["--tree", revision]);
        assert_eq!(answer["tail"], text, "{revision}");
        let peeled =
            if revision.contains(':') { revision.to_owned() } else { format!("{revision}^{{tree}}") };
        assert_eq!(answer["tree"], env.git(&["rev-parse", &peeled]).as_str(), "{revision}");
        assert_eq!(answer["commit"], commit.map_or(Value::Null, |id| id.as_str().into()), "{revision}");
        assert_eq!(answer["dirty"], false, "{revision}");
    }
    // All names of one tree are one check.
    let hits =
        ["light", "HEAD~1", &tree].map(|revision| printed(&env, &["--tree", revision])["cache"].clone());
    assert_eq!(hits, ["hit", "hit", "hit"].map(Value::from));
}

// kryptobaseddev/cleo#1452: a key over which files are dirty, not over what is in them.
#[test]
fn the_working_tree_is_what_git_would_commit_and_each_edit_is_another_tree() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("f", "clean\n").write("gone", "x").write(".gitignore", "*.log\n").commit();
        assert_eq!(printed(&env, &[])["dirty"], false);
        env.write("f", "broken\n").write("new/file", "untracked\n").write("x.log", "ignored\n");
        std::fs::remove_file(env.repo("gone")).unwrap();
        let before = env.listing(&env.repo(".git"));
        let broken = env.sh("grep -q fixed f").expect(1).json();
        assert_eq!((broken["cache"].clone(), broken["dirty"].clone()), ("miss".into(), true.into()));
        assert_eq!(broken["commit"], Value::Null);
        assert_eq!(env.listing(&env.repo(".git")), before, "the repository was written to");
        let seen = env.sh("find . -type f | sort").expect(0).json();
        assert_eq!(seen["tail"], "./.gitignore\n./f\n./new/file\n");
        env.write("f", "fixed\n");
        let fixed = env.sh("grep -q fixed f").expect(0).json();
        assert_eq!(fixed["cache"], "miss");
        assert_ne!(fixed["tree"], broken["tree"]);
        // Committed, it is the same tree and is answered.
        env.commit();
        let committed = env.sh("grep -q fixed f").expect(0).json();
        assert_eq!(
            (committed["cache"].clone(), committed["tree"].clone()),
            ("hit".into(), fixed["tree"].clone())
        );
        assert_eq!(committed["tree"], env.git(&["rev-parse", "HEAD^{tree}"]).as_str());
        assert_eq!(committed["commit"], env.git(&["rev-parse", "HEAD"]).as_str());
        assert_eq!(committed["dirty"], false);
    }
}

#[test]
fn the_index_is_checked_as_it_is_staged() {
    let env = Env::new();
    env.write("f", "committed\n").commit();
    env.write("f", "staged\n");
    env.git(&["add", "f"]);
    env.write("f", "edited\n").write("untracked", "x");
    let staged = printed(&env, &["--staged"]);
    assert_eq!(staged["tail"], "staged\n");
    assert_eq!(staged["tree"], env.git(&["write-tree"]).as_str());
    assert_eq!(printed(&env, &[])["tail"], "edited\n");
    assert_eq!(printed(&env, &["--tree", "HEAD"])["tail"], "committed\n");
}

#[test]
fn a_plain_folder_needs_no_repository() {
    let env = Env::new();
    let plain = env.path("home/plain");
    std::fs::create_dir_all(plain.join("sub")).unwrap();
    std::fs::write(plain.join("f"), "plain\n").unwrap();
    std::fs::write(plain.join(".gitignore"), "g\n").unwrap();
    let args = ["--format", "json", "--dir", "plain", "--", "cat", "f"];
    let answer = run(env.command(&args).current_dir(env.path("home"))).expect(0).json();
    assert_eq!(answer["tail"], "plain\n");
    assert_eq!((answer["commit"].clone(), answer["dirty"].clone()), (Value::Null, true.into()));
    let absolute = printed(&env, &["--dir", plain.to_str().unwrap()]);
    assert_eq!((absolute["cache"].clone(), absolute["tree"].clone()), ("hit".into(), answer["tree"].clone()));
    std::fs::write(plain.join("f"), "other\n").unwrap();
    assert_eq!(printed(&env, &["--dir", plain.to_str().unwrap()])["tail"], "other\n");
}

#[test]
fn c_and_cwd_say_where_from_and_where_in() {
    let env = Env::new();
    env.write("f", "root\n").write("sub/dir/f", "deep\n").commit();
    let from_home = |options: &[&str]| {
        let args = [options, &["--", "sh", "-c", "pwd; cat f"]].concat();
        let output = run(env.command(&args).current_dir(env.path("home"))).expect(0);
        output.out()
    };
    assert_eq!(from_home(&["-C", "../repo"]), "/src\nroot\n");
    // Started further down it is still the whole tree, from its root.
    assert_eq!(from_home(&["-C", "../repo/sub"]), "/src\nroot\n");
    assert_eq!(
        from_home(&["-C", env.repo("").to_str().unwrap(), "--cwd", "sub/dir"]),
        "/src/sub/dir\ndeep\n"
    );
    assert_eq!(printed(&env, &["--cwd", "sub/dir"])["cwd"], "sub/dir");
    assert_eq!(printed(&env, &["--cwd", "./sub/../sub/dir/"])["cache"], "hit");
    assert_eq!(printed(&env, &["--cwd", "."])["cwd"], ".");
}

// moonrepo/moon#481, nrwl/nx#20216, vercel/turborepo#2275: an ignored file is read and not part of the key.
// pytest-dev/pytest#590: what another tree left behind decides.
#[test]
fn leftovers_and_ignored_files_are_not_there() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write(".gitignore", "*.pyc\n.env\nout/\n").write("x.py", "pass\n").commit();
        env.write(".env", "KEY=1\n").write("y.pyc", "stale").write("out/lib", "built");
        let bare =
            "test ! -e .env && test ! -e y.pyc && test ! -e out && test ! -e made && test ! -e /tmp/made";
        drop(env.sh(&format!("{bare} && test ! -e ~/made")).expect(0));
        // What one run leaves, another one of the same tree does not find.
        let leave = format!("{bare} && mkdir out && touch y.pyc made /tmp/made ~/made /dev/shm/made");
        for _ in 0..2 {
            let args = ["--refresh", "--", "sh", "-c", &leave];
            drop(env.checkrun(&args).expect(0));
        }
        env.write("x.py", "").commit();
        drop(env.sh(&format!("{bare} && test ! -e /dev/shm/made")).expect(0));
    }
}

// golang/go#26790, voidzero-dev/vite-task#248, moonrepo/moon#1959: a check that changes its own inputs.
#[test]
fn a_check_that_rewrites_its_tree_changes_nothing_but_its_own_view() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("f", "original\n").write("sub/g", "g\n").commit();
        let rewrite = "cat f; echo changed >f; rm -r sub; chmod 777 .; touch new; cat f";
        for cache in ["miss", "refreshed"] {
            let options: &[&str] = if cache == "miss" { &[] } else { &["--refresh"] };
            let args = [&["--format", "json"], options, &["--", "sh", "-c", rewrite]].concat();
            let answer = env.checkrun(&args).expect(0).json();
            assert_eq!(
                (answer["cache"].clone(), answer["tail"].clone()),
                (cache.into(), "original\nchanged\n".into())
            );
        }
        let after = env.sh("cat f sub/g; ls; stat -c %a .").expect(0).json();
        assert_eq!(after["tail"], "original\ng\nf\nsub\n755\n");
        assert_eq!(std::fs::read_to_string(env.repo("f")).unwrap(), "original\n");
        assert_eq!(env.git(&["status", "--porcelain"]), "");
    }
}

// letta-ai/letta-code#4509, PostHog/posthog#78079, helix-editor/helix#15594: hooks and filters run outside the sandbox.
#[test]
fn no_hook_no_filter_and_no_monitor_is_run() {
    let env = Env::new();
    env.write("f", "raw\n")
        .write(".gitattributes", "* filter=evil text eol=crlf ident\n")
        .write("i", "$Id$\n")
        .commit();
    let canary = env.path("home/canary");
    let touch = format!("sh -c 'touch {}; cat'", canary.display());
    for (name, value) in [
        ("filter.evil.clean", touch.as_str()),
        ("filter.evil.smudge", &touch),
        ("filter.evil.process", &touch),
        ("filter.evil.required", "true"),
        ("core.fsmonitor", &touch),
        ("core.autocrlf", "true"),
        ("core.hooksPath", env.path("home/hooks").to_str().unwrap()),
    ] {
        env.git(&["config", name, value]);
    }
    std::fs::create_dir(env.path("home/hooks")).unwrap();
    for hook in
        ["post-checkout", "post-index-change", "pre-commit", "fsmonitor-watchman", "reference-transaction"]
    {
        for folder in [env.path("home/hooks"), env.repo(".git/hooks")] {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(hook), format!("#!/bin/sh\ntouch {}\n", canary.display())).unwrap();
            std::fs::set_permissions(folder.join(hook), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
    for options in [&["--tree", "HEAD"][..], &["--staged"], &[]] {
        let args = [options, &["--", "sh", "-c", "cat f i"]].concat();
        assert_eq!(env.checkrun(&args).expect(0).out(), "raw\n$Id$\n", "{options:?}");
        env.write("new", "an edit, so that the working tree is looked at\n");
    }
    assert!(!canary.exists());
}

// vercel/turborepo#531, #13218, #13246; bazelbuild/bazel#4840, #25671: links followed, flattened or skipped.
#[test]
fn links_stay_links_lead_nowhere_else_and_modes_are_those_of_git() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("dir/file", "x\n")
            .write("run.sh", "#!/bin/sh\necho ran\n")
            .executable("run.sh")
            .write("data", "d");
        let secret = env.path("home/secret");
        std::fs::write(&secret, "the host's\n").unwrap();
        let up = format!("../../../../../../../../../..{}", secret.display());
        let links = [
            ("to-dir", "dir"),
            ("dangling", "no/where"),
            ("absolute", secret.to_str().unwrap()),
            ("up", &up),
        ];
        for (name, target) in links {
            symlink(target, env.repo(name)).unwrap();
        }
        env.commit();
        let script = "for l in to-dir dangling absolute up; do readlink $l; done; cat to-dir/file; ./run.sh\n\
            stat -c '%n %a' data run.sh dir; cat absolute up 2>/dev/null; ls -d dangling";
        let mut expected: String = links.iter().map(|(_, target)| format!("{target}\n")).collect();
        expected.push_str("x\nran\ndata 644\nrun.sh 755\ndir 755\ndangling\n");
        for umask in ["077", "000"] {
            let args = ["--no-cache", "--tree", "HEAD", "--", "sh", "-c", script];
            let output = run(&mut env.after(&format!("umask {umask}"), &args)).expect(0);
            assert_eq!(output.out(), expected, "umask {umask}");
            // The next one lays the tree out again.
            std::fs::remove_dir_all(env.path("cache/trees")).unwrap();
        }
    }
}

// kryptobaseddev/cleo#1220, #1226, #1230; nbramia/LifeOS#978: evidence measured on the checkout that others share.
#[test]
fn a_linked_worktree_is_its_own_and_every_answer_names_its_tree() {
    let env = Env::of(Who::User);
    env.write("f", "good\n").commit();
    env.git(&["worktree", "add", "-q", "../home/linked"]);
    env.write("f", "bad\n").write("junk", "x");
    let check = |folder: &str, args: &[&str]| run(env.command(args).current_dir(env.path(folder)));
    let args = ["--", "grep", "-q", "good", "f"];
    let linked = check("home/linked", &args).expect(0);
    let tree = env.git(&["rev-parse", "HEAD^{tree}"]);
    assert!(linked.err().contains(&format!("tree {}", &tree[..12])), "{}", linked.err());
    assert_eq!(
        check("home/linked", &["--format", "json", "--", "grep", "-q", "good", "f"]).expect(0).json()["tree"],
        tree.as_str()
    );
    let main = check("repo", &args).expect(1);
    assert!(
        main.err().contains("failed, exit 1 (ran)") && !main.err().contains(&tree[..12]),
        "{}",
        main.err()
    );
}
