//! Every layout that git has: whatever the repository looks like, the check finds the tree, the whole tree, and as it was
//! stored. The rows are those of docs/trees.md.

use crate::support::{EVERYBODY, Env};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};

/// Has the git program, inside, with a repository of its own and no attribute in force, say what the tree is.
const WRITE_TREE: &str = r#"
top="${TMPDIR:-/tmp}/seen"
git init -q "--object-format=$1" "$top"
printf '* -text -filter -ident -working-tree-encoding\n' >"$top/.git/info/attributes"
export GIT_DIR="$top/.git" GIT_WORK_TREE="$PWD"
git -c core.autocrlf=false add -A --force && git write-tree
"#;

/// The id that git gives to what the check sees, asked in `folder` below the test's place.
#[track_caller]
pub fn seen_in(env: &Env, folder: &str, options: &[&str]) -> String {
    let args = seeing(env, folder, options);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    env.checkrun(&args).expect(0).out().trim().to_owned()
}

/// The arguments of checkrun that ask it.
pub fn seeing(env: &Env, folder: &str, options: &[&str]) -> Vec<String> {
    let format = env.git(&["-C", env.path(folder).to_str().unwrap(), "rev-parse", "--show-object-format"]);
    let place = env.path(folder);
    let start = ["-C", place.to_str().unwrap(), "--no-cache"];
    let end = ["--", "sh", "-ec", WRITE_TREE, "sh", &format];
    [&start[..], options, &end].concat().into_iter().map(str::to_owned).collect()
}

/// Runs git in `folder` below the test's place.
#[track_caller]
fn git_in(env: &Env, folder: &str, args: &[&str]) -> String {
    let place = env.path(folder);
    env.git(&[&["-C", place.to_str().unwrap()], args].concat())
}

/// A few files of each kind.
fn fill(env: &Env) {
    env.write("a/b/c", "deep\n").write("run", "#!/bin/sh\n").executable("run").write("empty", "");
    symlink("a/b", env.repo("link")).unwrap();
}

#[test]
fn loose_packed_and_borrowed_objects_of_either_format_are_the_same_tree() {
    for who in EVERYBODY {
        for format in ["sha1", "sha256"] {
            let env = Env::of(who);
            std::fs::remove_dir_all(env.repo(".git")).unwrap();
            env.git(&["init", "-q", "-b", "main", &format!("--object-format={format}")]);
            fill(&env);
            env.commit();
            let tree = env.git(&["rev-parse", "HEAD^{tree}"]);
            assert_eq!(seen_in(&env, "repo", &["--tree", "HEAD"]), tree, "{format}, loose");
            env.git(&["gc", "-q"]);
            env.git(&["pack-refs", "--all"]);
            assert_eq!(seen_in(&env, "repo", &["--tree", "main"]), tree, "{format}, packed");
            let place = env.path("home/borrower");
            env.git(&["clone", "-q", "--shared", ".", place.to_str().unwrap()]);
            assert_eq!(git_in(&env, "home/borrower", &["count-objects"]), "0 objects, 0 kilobytes");
            assert_eq!(seen_in(&env, "home/borrower", &["--tree", "HEAD"]), tree, "{format}, borrowed");
            assert_eq!(seen_in(&env, "home/borrower", &[]), tree, "{format}, borrowed, working tree");
        }
    }
}

#[test]
fn a_shallow_clone_has_its_commit_and_says_which_it_lacks() {
    let env = Env::new();
    fill(&env);
    env.commit();
    env.write("a/b/c", "later\n").commit();
    let (from, to) = (format!("file://{}", env.path("repo").display()), env.path("home/shallow"));
    env.git(&["clone", "-q", "--depth", "1", &from, to.to_str().unwrap()]);
    assert_eq!(seen_in(&env, "home/shallow", &["--tree", "HEAD"]), env.git(&["rev-parse", "HEAD^{tree}"]));
    let to = to.to_str().unwrap();
    drop(env.checkrun(&["-C", to, "--tree", "HEAD~1", "--", "true"]).refused(&["`HEAD~1`", "hint: "]));
}

// rust-lang/git2-rs#190: an object that only a fetch would bring.
#[test]
fn a_partial_clone_names_what_is_missing_and_fetches_nothing() {
    let env = Env::new();
    fill(&env);
    env.commit();
    env.git(&["config", "uploadpack.allowFilter", "true"]);
    let (from, place) = (format!("file://{}", env.path("repo").display()), env.path("home/partial"));
    let to = place.to_str().unwrap();
    env.git(&["clone", "-q", "--filter=blob:none", "--no-checkout", &from, to]);
    let canary = env.path("home/canary");
    let touch = format!("touch {};", canary.display());
    git_in(&env, "home/partial", &["config", "remote.origin.uploadpack", &touch]);
    let blob = env.git(&["rev-parse", "HEAD:a/b/c"]);
    let refused = env.checkrun(&["-C", to, "--tree", "HEAD", "--", "true"]).refused(&["missing", "hint: "]);
    assert!(!canary.exists(), "something was fetched");
    let missing =
        ["a/b/c", "run", "empty", "link"].map(|path| env.git(&["rev-parse", &format!("HEAD:{path}")]));
    assert!(missing.iter().any(|id| refused.err().contains(id)), "{}", refused.err());
    // Once it is there by the user's own doing, the tree is as any other.
    git_in(&env, "home/partial", &["config", "--unset", "remote.origin.uploadpack"]);
    git_in(&env, "home/partial", &["checkout", "-q"]);
    assert_eq!(git_in(&env, "home/partial", &["hash-object", "a/b/c"]), blob);
    assert_eq!(seen_in(&env, "home/partial", &["--tree", "HEAD"]), env.git(&["rev-parse", "HEAD^{tree}"]));
}

#[test]
fn a_bare_repository_has_commits_and_no_working_tree() {
    let env = Env::new();
    fill(&env);
    env.commit();
    let bare = env.path("home/bare.git");
    let to = bare.to_str().unwrap();
    env.git(&["clone", "-q", "--bare", ".", to]);
    assert_eq!(seen_in(&env, "home/bare.git", &["--tree", "main"]), env.git(&["rev-parse", "main^{tree}"]));
    assert_eq!(seen_in(&env, "home/bare.git", &["--tree", "main:a"]), env.git(&["rev-parse", "main:a"]));
    for options in [&[][..], &["--staged"]] {
        let args = [&["-C", to], options, &["--", "true"]].concat();
        drop(env.checkrun(&args).refused(&["is a bare repository", "hint: "]));
    }
}

// elizaOS/eliza#23905, openclaw/crabbox#1241: a gate that passes having looked at 2 of 320 files.
#[test]
fn a_sparse_checkout_is_checked_whole() {
    for options in [&["--cone"][..], &["--cone", "--sparse-index"], &["--no-cone"]] {
        let env = Env::new();
        fill(&env);
        env.write("far/away", "x").commit();
        let tree = env.git(&["rev-parse", "HEAD^{tree}"]);
        env.git(&[&["sparse-checkout", "set"], options, &["a"]].concat());
        assert!(!env.repo("far").exists());
        for from in [&[][..], &["--staged"], &["--tree", "HEAD"]] {
            assert_eq!(seen_in(&env, "repo", from), tree, "{options:?} {from:?}");
        }
        env.write("a/b/c", "edited");
        let edited = env.sh("cat a/b/c far/away").expect(0).json();
        assert_eq!(edited["tail"], "editedx", "{options:?}");
    }
}

#[test]
fn nothing_at_all_is_a_tree_too() {
    let env = Env::new();
    let empty = env.git(&["hash-object", "-t", "tree", "/dev/null"]);
    for options in [&[][..], &["--staged"], &["--tree", &empty]] {
        assert_eq!(seen_in(&env, "repo", options), empty, "{options:?}");
    }
    drop(env.checkrun(&["--tree", "HEAD", "--", "true"]).refused(&["no commit yet", "hint: "]));
    // Before the first commit there is a working tree all the same.
    env.write("new", "x");
    let unborn = env.sh("cat new").expect(0).json();
    assert_eq!((unborn["tail"].as_str(), unborn["dirty"].as_bool()), (Some("x"), Some(true)));
    assert!(unborn["commit"].is_null());
}

#[test]
fn a_merge_with_conflicts_is_refused_by_name_and_its_commits_are_not() {
    let env = Env::new();
    env.write("both", "base\n").commit();
    env.git(&["checkout", "-q", "-b", "side"]);
    env.write("both", "theirs\n").commit();
    env.git(&["checkout", "-q", "main"]);
    env.write("both", "ours\n").commit();
    let merged =
        env.as_who("git").args(["merge", "-q", "side"]).current_dir(env.path("repo")).output().unwrap();
    assert!(!merged.status.success());
    for options in [&[][..], &["--staged"]] {
        let args = [options, &["--", "true"]].concat();
        drop(env.checkrun(&args).refused(&["conflict", "`both`", "hint: "]));
    }
    assert_eq!(env.checkrun(&["--tree", "HEAD", "--", "cat", "both"]).expect(0).out(), "ours\n");
    assert_eq!(env.checkrun(&["--tree", "side", "--", "cat", "both"]).expect(0).out(), "theirs\n");
    env.write("both", "resolved\n");
    env.git(&["add", "both"]);
    assert_eq!(env.checkrun(&["--", "cat", "both"]).expect(0).out(), "resolved\n");
}

#[test]
fn flags_of_index_entries_mean_what_they_mean_to_git() {
    let env = Env::new();
    env.write("assumed", "committed\n").write("skipped", "committed\n").commit();
    env.git(&["update-index", "--assume-unchanged", "assumed"]);
    env.git(&["update-index", "--skip-worktree", "skipped"]);
    env.write("assumed", "edited\n").write("skipped", "edited\n").write("announced", "new\n");
    env.git(&["add", "-N", "announced"]);
    let working = env.checkrun(&["--", "sh", "-c", "cat assumed skipped announced"]).expect(0);
    assert_eq!(working.out(), "committed\ncommitted\nnew\n");
    // The index holds no content of a file that was only announced.
    let staged = env.checkrun(&["--staged", "--", "sh", "-c", "cat assumed skipped; ls announced"]).expect(2);
    assert_eq!(staged.out(), "committed\ncommitted\n");
}

#[test]
fn replaced_objects_and_grafts_do_not_count() {
    let env = Env::new();
    let first = env.write("f", "first\n").commit();
    let second = env.write("f", "second\n").commit();
    env.git(&["replace", &second, &first]);
    assert_eq!(env.checkrun(&["--tree", "HEAD", "--", "cat", "f"]).expect(0).out(), "second\n");
    env.git(&["replace", "-d", &second]);
    // A graft takes HEAD's parent away for git; a tree is the same all the same, and so is the parent.
    env.write(".git/info/grafts", format!("{second}\n"));
    assert_eq!(env.checkrun(&["--tree", "HEAD~1", "--", "cat", "f"]).expect(0).out(), "first\n");
    let blob = env.git(&["rev-parse", &format!("{second}:f")]);
    let other = env.git(&["rev-parse", &format!("{first}:f")]);
    env.git(&["replace", &blob, &other]);
    assert_eq!(env.checkrun(&["--tree", &second, "--", "cat", "f"]).expect(0).out(), "second\n");
}

// dekobon/big-code-analysis#838, netresearch/git-workflow-skill#325: files that an archive leaves out or rewrites.
// actions/runner#1246, microsoft/apm#2971, LedgerHQ/ledger-live#22151: line ends by the machine.
#[test]
fn attributes_and_line_ends_change_no_byte() {
    let env = Env::new();
    env.git(&["config", "core.autocrlf", "false"]);
    env.write("ignored.txt", "exported all the same\n")
        .write("subst.txt", "$Format:%H$ $Id$\n")
        .write("dos.txt", "one\r\ntwo\r\n")
        .write("unix.txt", "one\ntwo\n")
        .write("utf16.txt", [0xff, 0xfe, b'a', 0])
        .commit();
    let attributes = "* text eol=crlf ident\nignored.txt export-ignore\nsubst.txt export-subst\nutf16.txt \
                      working-tree-encoding=UTF-16\n";
    env.write(".gitattributes", attributes);
    env.git(&["add", ".gitattributes"]);
    env.git(&["commit", "-q", "-m", "attributes"]);
    env.git(&["config", "core.autocrlf", "true"]);
    let tree = env.git(&["rev-parse", "HEAD^{tree}"]);
    assert_eq!(seen_in(&env, "repo", &["--tree", "HEAD"]), tree);
    let script = "cat ignored.txt subst.txt dos.txt unix.txt | od -An -c | tr -d ' \\n'";
    let seen = env.checkrun(&["--tree", "HEAD", "--", "sh", "-c", script]).expect(0).out();
    assert_eq!(seen, "exportedallthesame\\n$Format:%H$$Id$\\none\\r\\ntwo\\r\\none\\ntwo\\n");
}

#[test]
fn names_are_bytes() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let long = "l".repeat(255);
        let names: [&[u8]; 12] = [
            b"\xff\xfe",
            b"new\nline",
            b"-rf",
            b"--help",
            b" ",
            b"tab\there",
            b"\"quoted\" \\back",
            b"*?[x]",
            b":(top)x",
            "\u{e9}\u{1f600}".as_bytes(),
            b".gitx",
            long.as_bytes(),
        ];
        for name in names {
            let path = env.repo("odd").join(OsStr::from_bytes(name));
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join(OsStr::from_bytes(name)), name).unwrap();
        }
        // Names that differ in case only, and names that some file systems take for one another.
        for name in ["twin", "Twin", "TWIN/x", "e\u{301}", "\u{e9}"] {
            env.write(&format!("case/{name}"), name);
        }
        env.commit();
        let tree = env.git(&["rev-parse", "HEAD^{tree}"]);
        assert_eq!(seen_in(&env, "repo", &["--tree", "HEAD"]), tree);
        assert_eq!(seen_in(&env, "repo", &[]), tree);
        assert_eq!(seen_in(&env, "repo", &["--tree", "HEAD", "--policy", "landlock"]), tree);
        let staged = seen_in(&env, "repo", &["--staged"]);
        assert_eq!(staged, tree);
    }
}

#[test]
fn a_plain_folder_takes_the_same_path() {
    let env = Env::new();
    fill(&env);
    env.write("d/.hidden", "x").write("d/-odd\nname", "y").commit();
    let tree = env.git(&["rev-parse", "HEAD^{tree}"]);
    std::fs::set_permissions(env.repo("empty"), PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::create_dir(env.repo("no-files")).unwrap();
    // A link to a folder is a link, `.git` is no part of it, and an empty folder is none either.
    let place = env.path("repo");
    assert_eq!(seen_in(&env, "repo", &["--dir", place.to_str().unwrap()]), tree);
    let kept =
        env.checkrun(&["--format", "json", "--dir", place.to_str().unwrap(), "--", "true"]).expect(0).json();
    assert_eq!(kept["tree"], tree.as_str());
    std::os::unix::net::UnixListener::bind(env.repo("socket")).unwrap();
    drop(env.checkrun(&["--dir", place.to_str().unwrap(), "--", "true"]).refused(&["socket", "is a socket"]));
}

/// As `git add -A` would take it, were it a repository; and whole where that is asked for.
#[test]
fn of_a_plain_folder_what_its_own_rules_ignore_is_left_out_unless_asked_for() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write(".gitignore", "*.log\n/out/\n!kept.log\nd/*\n!d/in\n")
            .write("a.log", "1")
            .write("kept.log", "2");
        env.write("out/x", "3").write("s/out/x", "4").write("d/gone", "5").write("d/in/y", "6");
        env.write("s/.gitignore", "secret\n!*.log\n")
            .write("s/secret", "7")
            .write("s/b.log", "8")
            .write("secret", "9");
        env.git(&["add", "-A"]);
        let tree = env.git(&["write-tree"]);
        let plain = env.path("plain");
        let copied = std::process::Command::new("cp").arg("-a").arg(env.path("repo")).arg(&plain).status();
        assert!(copied.unwrap().success());
        std::fs::remove_dir_all(plain.join(".git")).unwrap();
        let dir = ["--dir", plain.to_str().unwrap()];
        assert_eq!(seen_in(&env, "repo", &dir), tree);
        let listed = |more: &[&str]| {
            let find = ["-q", "--", "sh", "-c", "find . -type f | sort | tr '\\n' ' '"];
            env.checkrun(&[&dir[..], more, &find].concat()).expect(0).out()
        };
        assert_eq!(
            listed(&[]),
            "./.gitignore ./d/in/y ./kept.log ./s/.gitignore ./s/b.log ./s/out/x ./secret "
        );
        assert_eq!(
            listed(&["--ignored"]),
            "./.gitignore ./a.log ./d/gone ./d/in/y ./kept.log ./out/x ./s/.gitignore ./s/b.log ./s/out/x ./s/secret ./secret "
        );
        drop(env.checkrun(&["--ignored", "--", "true"]).refused(&["--dir"]));
        std::fs::remove_file(plain.join("s/.gitignore")).unwrap();
        assert!(
            std::process::Command::new("mkfifo").arg(plain.join("s/.gitignore")).status().unwrap().success()
        );
        drop(
            env.checkrun(&[&dir[..], &["--", "true"]].concat()).refused(&["s/.gitignore", "is a named pipe"]),
        );
        std::fs::remove_file(env.repo("s/.gitignore")).unwrap();
        env.git(&["rm", "-q", "--cached", "s/.gitignore"]);
        assert!(
            std::process::Command::new("mkfifo").arg(env.repo("s/.gitignore")).status().unwrap().success()
        );
        drop(env.checkrun(&["--", "true"]).refused(&["s/.gitignore", "is a named pipe"]));
    }
}
