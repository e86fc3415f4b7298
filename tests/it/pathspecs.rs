//! `--scope` and `--touches`: the same matches as git, a check that sees only those, a key that covers only those.

use crate::support::{EVERYBODY, Env, Output};
use std::process::Stdio;

/// A repository with names that tell pathspecs apart.
fn varied() -> Env {
    let env = Env::new();
    for name in [
        "a.c",
        "b.c",
        "B.C",
        "README",
        "src/a.c",
        "src/b.h",
        "src/sub/a.c",
        "src/sub/deep/a.c",
        "src/sub/deep/x.txt",
        "docs/a.txt",
        "docs/src/a.c",
        "srcs/a.c",
        "star*name/a",
        "star-name/a",
        "[x]/a",
        "x/a",
        "-dash",
        "sp ace/ü.c",
        "back\\slash",
        "Dir/UPPER.C",
        "dir/lower.c",
        "lib/.gitattributes",
        "lib/v/a.c",
        "lib/v/b.c",
        "lib/own.c",
        "q?r",
        "qxr",
        "deep/a/b/c/d/e.c",
        "nested/.hidden/x",
        ".top",
    ] {
        env.write(name, name);
    }
    env.write(
        ".gitattributes",
        "[attr]vendored linguist-vendored=yes -diff\n*.c text kind=code\nREADME -text\n",
    );
    env.write("lib/.gitattributes", "v/*.c vendored\nb.c kind=other !text\n");
    std::os::unix::fs::symlink("src", env.repo("link")).expect("symlink");
    let commit = env.commit();
    for module in ["modules/one", "src/module"] {
        env.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{commit},{module}")]);
    }
    env.git(&["commit", "-q", "-m", "modules"]);
    for module in ["modules", "modules/one", "src/module"] {
        std::fs::create_dir(env.repo(module)).expect("mkdir");
    }
    env
}

/// The tree of what `git ls-files` says that the pathspecs match, asked in `folder`; nothing if git says that there is
/// no such thing. The two questions are asked apart: with `--error-unmatch` git passes over a pathspec that has matched a name
/// letter by letter, and so lists less.
fn tree_by_git(env: &Env, folder: &str, pathspecs: &[&str]) -> Option<String> {
    let index = env.path("home/other-index");
    drop(std::fs::remove_file(&index));
    let script = r#"set -e; top=$(git rev-parse --show-toplevel); git ls-files --error-unmatch -- "$@" >"$OUT"
        git ls-files -s -z --full-name -- "$@" >"$OUT"
        cd "$top"; test -s "$OUT"; GIT_INDEX_FILE=$INDEX git update-index -z --index-info <"$OUT"; GIT_INDEX_FILE=$INDEX git write-tree"#;
    let mut git = env.as_who("sh");
    git.args(["-c", script, "sh"]).args(pathspecs).current_dir(env.repo(folder)).stdin(Stdio::null());
    let output = git.env("INDEX", &index).env("OUT", env.path("home/listed")).output().expect("sh");
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn explained(env: &Env, options: &[&str], pathspecs: &[&str]) -> Output {
    let mut args = vec!["explain", "--format", "json"];
    args.extend(options);
    let scopes: Vec<String> = pathspecs.iter().map(|pathspec| format!("--scope={pathspec}")).collect();
    args.extend(scopes.iter().map(String::as_str));
    args.extend(["--", "true"]);
    env.checkrun(&args)
}

const PATHSPECS: &[&[&str]] = &[
    &["src"],
    &["src/"],
    &["src/*.c"],
    &["*.c"],
    &["*"],
    &["."],
    &["./src"],
    &["src/../docs"],
    &["src/sub/deep"],
    &[":(glob)*.c"],
    &[":(glob)**/*.c"],
    &[":(glob)src/**"],
    &[":(glob)src/**/a.c"],
    &[":(glob)src/*/a.c"],
    &[":(glob)**/deep/**"],
    &[":(glob)**"],
    &[":(glob)src/*"],
    &["src/**"],
    &["**/a.c"],
    &["src/**/a.c"],
    &[":(literal)star*name"],
    &["star*name"],
    &[":(literal)[x]"],
    &["[x]"],
    &["[[]x]"],
    &["[!a]*"],
    &["q?r"],
    &["q\\?r"],
    &["back\\\\slash"],
    &[":(literal)back\\slash"],
    &[":(icase)DIR"],
    &[":(icase)*.C"],
    &[":(icase)readme"],
    &[":(icase,glob)**/A.c"],
    &[":!docs"],
    &[":^docs"],
    &[":(exclude)*.c"],
    &["src", ":!src/sub"],
    &["src", ":!*.h"],
    &[":!src", "src"],
    &["*.c", ":!:(glob)src/**"],
    &[":/"],
    &[":/src"],
    &[":(top)docs"],
    &[":(top,glob)*.c"],
    &[":(top,exclude)src"],
    &[":"],
    &[":!/docs"],
    &["./-dash"],
    &["-dash"],
    &["sp ace"],
    &["sp ace/ü.c"],
    &["link"],
    &["link/"],
    &["link/a.c"],
    &["modules/one"],
    &["modules/one/"],
    &["modules"],
    &["src/module"],
    &["src/mod*"],
    &["src/mod*/"],
    &["sr*/"],
    &["README/"],
    &["README/x"],
    &["nope"],
    &["src", "nope"],
    &["nope*"],
    &["src", ":!nope"],
    &["src", ":!src"],
    &["dir", "Dir"],
    &["dir/LOWER.C"],
    &["deep/a/b"],
    &["deep/*/d"],
    &["deep/*/d/e.c"],
    &[":!:(glob)src/**"],
    &[":/:(x)"],
    &[":/!docs"],
    &["../src"],
    &[".."],
    &["../.."],
    &[":!."],
    &["src/."],
    &["./"],
    &[":(top)."],
    &[":/./src"],
    &["src", ":!/./src"],
    &[":/src/../docs"],
    &[":(icase)."],
    &["src*"],
    &[":(icase)SRC/A.C"],
    &[":(icase)SRC"],
    &["src", ":!:(icase)SRC/SUB"],
    &[":(glob,icase)S*/*.C"],
    &[":(glob)[!.]*"],
    &["[[:alpha:]]*.c"],
    &["d*"],
    &["s*c"],
    &["?.c"],
    &[".top"],
    &[".*"],
    &["nested"],
    &["nested/.hidden"],
    &[":(attr:kind=code)"],
    &[":(attr:kind=other)lib"],
    &[":(attr:-text)"],
    &[":(attr:text)*.c"],
    &[":(attr:!text)src"],
    &[":(attr:vendored)"],
    &[":(attr:linguist-vendored=yes)"],
    &[":(attr:kind=code)lib", ":!lib/own.c"],
    &[":(attr:!kind)"],
    &[":(attr:text kind=code)src"],
    &[":(exclude,attr:kind=code)"],
];

// Every one of these has been got wrong by tools that match "like git": `*` that stops at a slash, excludes that need
// an include, attributes that are read from the checkout.
#[test]
fn scopes_match_what_git_ls_files_matches() {
    let env = varied();
    let mut differing = Vec::new();
    for folder in ["", "src", "docs/src", "deep/a"] {
        for pathspecs in PATHSPECS {
            let expected = tree_by_git(&env, folder, pathspecs);
            let place = env.repo(folder);
            // A listing in memory is searched in another way than tree objects are; the root tells them apart enough.
            let trees: &[&[&str]] =
                if folder.is_empty() { &[&["--tree", "HEAD"], &[]] } else { &[&["--tree", "HEAD"]] };
            for options in trees {
                let mut options = options.to_vec();
                let place = place.to_str().expect("a path");
                options.extend(["-C", place]);
                let found = explained(&env, &options, pathspecs);
                let tree =
                    (found.status == 0).then(|| found.json()["tree"].as_str().unwrap_or_default().to_owned());
                if tree != expected || !matches!(found.status, 0 | 125) {
                    differing.push(format!(
                        "{pathspecs:?} in `{folder}` {options:?}: {tree:?}, git {expected:?}\n{}",
                        found.err()
                    ));
                }
            }
        }
    }
    assert!(differing.is_empty(), "{} differ:\n{}", differing.len(), differing.join("\n"));
}

#[test]
fn only_what_is_in_scope_exists_and_counts() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("a/x", "1").write("a/y", "1").write("b/z", "1").commit();
        let check = [
            "--scope",
            "a",
            "--scope",
            ":!a/y",
            "--format",
            "json",
            "--",
            "sh",
            "-c",
            "find . -type f; cat a/x",
        ];
        let first = env.checkrun(&check).expect(0).json();
        assert_eq!(first["tail"], "./a/x\n1");
        assert_eq!(first["tree"].as_str(), tree_by_git(&env, "", &["a", ":!a/y"]).as_deref());
        assert_eq!((&first["scope"], &first["guard"]), (&serde_json::json!(["a", ":!a/y"]), &"exact".into()));
        env.write("b/z", "2").write("a/y", "2").write("new", "x").commit();
        assert_eq!(env.checkrun(&check).expect(0).json()["cache"], "hit");
        env.write("a/x", "2");
        assert_eq!(env.checkrun(&check).expect(0).json()["cache"], "miss");
    }
}

#[test]
fn a_pathspec_that_matches_nothing_is_named() {
    let env = Env::new();
    env.write("a/x", "1").commit();
    for option in ["--scope", "--touches"] {
        drop(
            env.checkrun(&[option, "a", option, "nope/*.c", "--", "true"])
                .refused(&["`nope/*.c` matches nothing"]),
        );
        drop(env.checkrun(&[option, "a", option, ":!a", "--", "true"]).refused(&["matches nothing"]));
        drop(env.checkrun(&[option, ":(wrong)a", "--", "true"]).refused(&["`:(wrong)a`", "wrong"]));
        drop(env.checkrun(&[option, "../out", "--", "true"]).refused(&["`../out`"]));
        drop(env.checkrun(&[option, "", "--", "true"]).refused(&["empty"]));
    }
    assert_eq!(env.checkrun(&["log"]).expect(0).out(), "");
}

#[test]
fn touches_is_the_callers_word_and_the_record_says_so() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("a/x", "1").write("b/z", "1").commit();
        let check = ["--touches", "a", "--format", "json", "--", "cat", "a/x", "b/z"];
        let first = env.checkrun(&check).expect(0).json();
        assert_eq!((&first["guard"], &first["tail"]), (&"touches".into(), &"11".into()));
        assert_eq!(
            (&first["touches"], &first["from"]),
            (&serde_json::json!(["a"]), &serde_json::Value::Null)
        );
        env.write("b/z", "2").commit();
        let second = env.checkrun(&check).expect(0).json();
        assert_eq!((&second["cache"], &second["guard"]), (&"hit".into(), &"touches".into()));
        assert_eq!((&second["from"]["tree"], &second["tail"]), (&first["tree"], &"11".into()));
        assert_eq!(second["tree"].as_str(), Some(env.git(&["rev-parse", "HEAD^{tree}"]).as_str()));
        // What was vouched for by one caller answers no other.
        assert_eq!(
            env.checkrun(&["--format", "json", "--", "cat", "a/x", "b/z"]).expect(0).json()["cache"],
            "miss"
        );
        let record = env.checkrun(&["show", "1", "--format", "json"]).expect(0).json();
        assert_eq!((&record["guard"], &record["touches"]), (&"touches".into(), &serde_json::json!(["a"])));
        assert!(env.checkrun(&["show", "1"]).expect(0).out().contains("guard    touches\n"));
        env.write("a/x", "3");
        let third = env.checkrun(&check).expect(0).json();
        assert_eq!((&third["cache"], &third["tail"]), (&"miss".into(), &"32".into()));
    }
}

#[test]
fn the_repositorys_own_settings_count_out_of_scope() {
    let env = Env::new();
    env.write("a/x", "1").write(".checkrun.toml", "format = 1\n[limits]\ntimeout = \"7s\"\n").commit();
    let key = |options: &[&str]| explained(&env, options, &["a"]).expect(0).json()["key"].clone();
    let before = key(&[]);
    env.write(".checkrun.toml", "format = 1\n[limits]\ntimeout = \"8s\"\n");
    assert_ne!(key(&[]), before);
}
