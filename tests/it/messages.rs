//! Bad input: each kind is refused with status 125, a text that says what is wrong and where, and nothing stored.

use crate::support::{EVERYBODY, Env, USER, Who, run};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

// kryptobaseddev/cleo#1404: outside of a checkout a key that never changes could hold a pass.
#[test]
fn trees_that_cannot_be_had() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let unborn = env.checkrun(&["--tree", "HEAD", "--", "true"]);
        drop(unborn.refused(&["`HEAD` names no revision of this repository", "no commit yet", "hint:"]));
        env.write("f", "x\n").write("sub/g", "g\n").commit();
        for (revision, parts) in [
            ("no-such-branch", ["`no-such-branch` names no revision", "hint: give a commit"]),
            ("HEAD~7", ["`HEAD~7` names no revision", "hint:"]),
            ("0123456789012345678901234567890123456789", ["012345678901234567890123456789", "hint:"]),
            ("HEAD:nowhere", ["`HEAD:nowhere` names no revision", "hint:"]),
            ("HEAD:f", ["`HEAD:f` is a file", "hint:"]),
            ("HEAD..main", ["`HEAD..main` names no revision", "range"]),
            ("", ["names no revision", "it is empty"]),
        ] {
            drop(env.checkrun(&["--tree", revision, "--", "true"]).refused(&parts));
        }
        let outside = run(env.command(&["--", "true"]).current_dir(env.path("home")));
        drop(outside.refused(&["is not in a git repository", "--dir"]));
        drop(env.checkrun(&["-C", "nowhere", "--", "true"]).refused(&["nowhere", "no such folder"]));
        drop(env.checkrun(&["--dir", "nowhere", "--", "true"]).refused(&["nowhere"]));
        assert!(env.logged().is_empty());
    }
}

#[test]
fn an_ambiguous_short_id_names_what_it_may_mean() {
    let env = Env::new();
    env.write("f", "x\n").commit();
    let blob = env.git(&["rev-parse", "HEAD:f"]);
    // More trees than four digits can tell apart.
    let listing: String = (0..1500).map(|n| format!("100644 blob {blob}\tname-{n}\n\n")).collect();
    std::fs::write(env.path("home/listing"), listing).unwrap();
    let mut mktree = env.as_who("git");
    let input = std::fs::File::open(env.path("home/listing")).unwrap();
    let made =
        mktree.args(["mktree", "--batch"]).current_dir(env.path("repo")).stdin(input).output().unwrap();
    let mut ids: Vec<&str> = std::str::from_utf8(&made.stdout).unwrap().lines().collect();
    ids.sort_unstable();
    let pair = ids.windows(2).find(|pair| pair[0][..4] == pair[1][..4]).expect("two ids that begin alike");
    let short = &pair[0][..4];
    let refused = env.checkrun(&["--tree", short, "--", "true"]);
    drop(refused.refused(&[
        &format!("`{short}` is ambiguous"),
        &pair[0][..7],
        &pair[1][..7],
        "tree",
        "more digits",
    ]));
    assert!(env.logged().is_empty());
}

#[test]
fn a_tree_that_lacks_objects() {
    let env = Env::new();
    env.write("f", "x\n").write("sub/g", "g\n").commit();
    let [blob, tree] = ["HEAD:sub/g", "HEAD:sub"].map(|name| env.git(&["rev-parse", name]));
    for (id, name) in [(blob, "sub/g"), (tree, "sub")] {
        let file = env.repo(&format!(".git/objects/{}/{}", &id[..2], &id[2..]));
        let content = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        drop(env.checkrun(&["--tree", "HEAD", "--", "true"]).refused(&[&id, name, "missing", "git fetch"]));
        std::fs::write(&file, &content[..content.len() / 2]).unwrap();
        drop(env.checkrun(&["--tree", "HEAD", "--", "true"]).refused(&[&id, name, "damaged", "git fsck"]));
        std::fs::write(&file, &content).unwrap();
    }
    assert!(env.logged().is_empty());
    drop(env.checkrun(&["--tree", "HEAD", "--", "true"]).expect(0));
}

#[test]
fn names_that_nobody_has() {
    let env = Env::new();
    env.commit();
    let cases: [(&[&str], &[&str]); 11] = [
        (
            &["--policy", "hermetik", "--", "true"],
            &["`hermetik`", "hermetic, strict, landlock, networked, prepare, nested", "hint:"],
        ),
        (&["--policy", "./none.toml", "--", "true"], &["none.toml"]),
        (&["--runner", "cobol", "--", "true"], &["`cobol`", "generic", "hint:"]),
        (&["policies", "hermetik"], &["`hermetik`", "hint:"]),
        (&["runners", "cobol"], &["`cobol`", "hint:"]),
        (&["show", "77"], &["no record `77`", "checkrun log"]),
        (&["show", "b3:0123456789"], &["no record", "checkrun log"]),
        (&["show", "xyz"], &["no record `xyz`"]),
        (&["show", "77", "--log"], &["no record `77`"]),
        (&["log", "--tree", "nowhere"], &["`nowhere` names no revision"]),
        (&["explain", "--tree", "nowhere", "--", "true"], &["`nowhere` names no revision"]),
    ];
    for (args, parts) in cases {
        drop(env.checkrun(args).refused(parts));
    }
    drop(env.checkrun(&["--", "true"]).expect(0));
    drop(env.checkrun(&["show", "77"]).refused(&["no record `77`", "checkrun log"]));
    drop(env.checkrun(&["show", "xyz"]).refused(&["`xyz` is not the start of a key", "6 to 64 hex digits"]));
    assert_eq!(env.logged().len(), 1);
}

#[test]
fn policy_files_with_faults_are_told_by_file_and_line() {
    let env = Env::new();
    env.commit();
    let good = include_str!("../../policies/hermetic.toml");
    let line_of =
        |text: &str, part: &str| 1 + text.lines().position(|line| line.contains(part)).expect("the line");
    for (from, to, parts) in [
        ("memory = \"8GiB\"", "memory = \"4 bananas\"", &["`4 bananas`", "4GiB"][..]),
        ("memory = \"8GiB\"", "memroy = \"8GiB\"", &["memroy", "memory"]),
        ("pids = 4096", "pids = \"many\"", &["pids"]),
        ("timeout = \"10m\"", "timeout = 10", &["timeout"]),
        ("mode = \"loopback\"", "mode = \"open\"", &["open", "loopback"]),
        ("level = \"full\"", "level = \"total\"", &["total", "full", "landlock"]),
        ("path = \"/usr\"", "path = \"usr\"", &["usr"]),
        ("path = \"/usr\"", "path = \"/usr\\u0000x\"", &["/usr\\u{0}x", "plain absolute path"]),
        ("level = \"full\"", "level = \"full", &["mine.toml"]),
        ("start = \"2026-01-01T00:00:00Z\"", "start = \"yesterday\"", &["yesterday", "2026-01-01T00:00:00Z"]),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from}");
        std::fs::write(env.path("mine.toml"), &bad).unwrap();
        let path = env.path("mine.toml").display().to_string();
        let refused = env.checkrun(&["--policy", &path, "--", "true"]).refused(parts);
        let place = format!("mine.toml:{}", line_of(&bad, to.lines().next().unwrap()));
        assert!(refused.err().contains(&place), "{to}: `{place}` is not in:\n{}", refused.err());
    }
    assert!(env.logged().is_empty());
}

#[test]
fn a_repository_s_settings_are_read_strictly_and_never_widen() {
    let env = Env::new();
    for (settings, parts) in [
        ("format = 1\n[limits]\ntimeout = \"1h\"\n", &["higher", "limits.timeout"][..]),
        ("format = 1\nnetwork = \"host\"\n", &["network"]),
        ("format = 1\npolicy = \"networked\"\n", &["networked"]),
        ("format = 1\nvisible = [\"/root\"]\n", &["visible"]),
        ("format = 99\n", &["99"]),
        ("format = 1\n[limits]\ndisk = \"4 bananas\"\n", &["4 bananas"]),
        ("form", &[".checkrun.toml"]),
        ("format = 1\n\"\\u001b[2J\" = 1\n", &["u{1b}[2J"]),
    ] {
        env.write(".checkrun.toml", settings);
        let refused = env.checkrun(&["--", "true"]).refused(parts);
        assert!(refused.err().contains(".checkrun.toml"), "{settings}: {}", refused.err());
    }
    assert!(env.logged().is_empty());
}

#[test]
fn command_lines_that_make_no_sense() {
    let env = Env::new();
    env.write("f", "x\n").write("sub/g", "g\n").commit();
    let cases: [(&[&str], &[&str]); 22] = [
        (&[], &["no command to check", "`checkrun -- go test ./...`"]),
        (&["run"], &["no command to check"]),
        (&["--"], &["no command to check"]),
        (&["--", ""], &["no command to check"]),
        (&["-c", "  "], &["no command to check"]),
        (&["-c", "true", "--", "true"], &["cannot be used with"]),
        (&["go", "test"], &["after `--`"]),
        (&["--memory", "4 bananas", "--", "true"], &["`4 bananas` is not a size", "4GiB"]),
        (&["--timeout", "soon", "--", "true"], &["`soon` is not a duration", "10m"]),
        (&["--timeout", "0s", "--", "true"], &["0s"]),
        (&["--cpus", "none", "--", "true"], &["`none` is not a number of processors"]),
        (&["--pids", "0", "--", "true"], &["--pids"]),
        (&["--disk", "0", "--", "true"], &["nothing at all"]),
        (&["--require-tests=0", "--", "true"], &["--require-tests"]),
        (&["--cwd", "nowhere", "--", "true"], &["has no folder `nowhere`", "hint:"]),
        (&["--cwd", "f", "--", "true"], &["has no folder `f`"]),
        (&["--cwd", "..", "--", "true"], &["leads out of the tree"]),
        (&["--cwd", "sub/../..", "--", "true"], &["leads out of the tree"]),
        (&["--cwd", "/src", "--", "true"], &["leads out of the tree"]),
        (&["--env", "=x", "--", "true"], &["NAME=VALUE"]),
        (
            &["--output", "nowhere/x.json", "--", "touch", "/tmp/ran"],
            &["nowhere/x.json", "folder must exist"],
        ),
        (&["--log", "nowhere/x.log", "--", "true"], &["nowhere/x.log"]),
    ];
    for (args, parts) in cases {
        drop(env.checkrun(args).refused(parts));
    }
    let pairs = [
        ["--staged", "--dir=."],
        ["--tree=HEAD", "--staged"],
        ["--refresh", "--no-cache"],
        ["--no-cache", "--cached-only"],
    ];
    for pair in pairs {
        drop(env.checkrun(&[pair[0], pair[1], "--", "true"]).refused(&["cannot be used with"]));
    }
    assert!(env.logged().is_empty());
}

#[test]
fn a_memory_limit_that_cannot_be_enforced() {
    let env = Env::of(Who::Root);
    env.commit();
    let args = ["--memory", "1GiB", "--", "true"];
    let without =
        ["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /sys/fs/cgroup && exec \"$0\" \"$@\""];
    drop(run(&mut env.wrapped(&without, &args)).refused(&["memory", "control group", "checkrun doctor"]));
    assert!(env.logged().is_empty());
    drop(env.checkrun(&args).expect(0));
}

// voidzero-dev/vite-plus#2636: a fault of the cache layer, nothing is run, and the status is 0.
#[test]
fn a_cache_folder_that_is_of_no_use() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("f", "x\n").commit();
        let at = |place: &Path, options: &[&str]| {
            let args = [options, &["--", "cat", "f"]].concat();
            run(env.command(&args).env("CHECKRUN_CACHE_DIR", place))
        };
        let file = env.path("home/file");
        std::fs::write(&file, "").unwrap();
        let foreign = env.path("foreign");
        std::fs::create_dir(&foreign).unwrap();
        let stranger = USER + 1;
        std::os::unix::fs::chown(&foreign, Some(stranger), Some(stranger)).unwrap();
        std::fs::set_permissions(&foreign, std::fs::Permissions::from_mode(0o777)).unwrap();
        let mut cases = vec![
            (file.clone(), "is not a folder"),
            (file.join("below"), "is not a folder"),
            (foreign.clone(), "belongs to user 1548"),
            ("relative".into(), "must be an absolute path"),
        ];
        if who == Who::User {
            let unwritable = env.path("unwritable");
            std::fs::create_dir(&unwritable).unwrap();
            std::fs::set_permissions(&unwritable, std::fs::Permissions::from_mode(0o555)).unwrap();
            std::os::unix::fs::chown(&unwritable, Some(USER), Some(USER)).unwrap();
            cases.push((unwritable, "Permission denied"));
        }
        for (place, text) in cases {
            for options in [&[][..], &["--refresh"]] {
                let refused = at(&place, options).refused(&[text]);
                assert!(place.is_relative() || refused.err().contains("hint:"), "{}", refused.err());
            }
            if place.is_absolute() {
                // As the hint says.
                assert_eq!(at(&place, &["--no-cache"]).expect(0).out(), "x\n", "{}", place.display());
            }
        }
        assert_eq!(
            std::fs::read_dir(&foreign).unwrap().count(),
            0,
            "something was put into another's folder"
        );
    }
}

#[test]
fn an_unreadable_database_is_left_alone() {
    let env = Env::new();
    env.commit();
    drop(env.sh("exit 3").expect(3));
    let whole = std::fs::read(env.database()).unwrap();
    std::fs::set_permissions(env.database(), std::fs::Permissions::from_mode(0o0)).unwrap();
    drop(env.sh("exit 3").refused(&["no access to the records", "hint:"]));
    std::fs::set_permissions(env.database(), std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(std::fs::read(env.database()).unwrap(), whole);
    assert_eq!(env.sh("exit 3").expect(3).json()["cache"], "hit");
}

#[test]
fn a_full_cache_costs_the_record_and_never_the_verdict() {
    let env = Env::of(Who::Root);
    env.write("f", "x\n").commit();
    let place = env.path("cache").display().to_string();
    for fill in [
        "head -c 64M /dev/zero >\"$P/fill\" 2>/dev/null",
        "mkdir \"$P/trees\"; head -c 64M /dev/zero >\"$P/fill\" 2>/dev/null",
    ] {
        let first = format!(
            "P={place}; mount -t tmpfs -o size=1m none \"$P\"; {fill}; \"$0\" \"$@\"; s=$?; exec sh -c \"exit $s\""
        );
        let wrapper = ["unshare", "--mount", "sh", "-c", &first];
        let output = run(&mut env.wrapped(&wrapper, &["--", "sh", "-c", "cat f; exit 3"])).expect(3);
        assert_eq!(output.out(), "x\n");
        let warnings = output.err().lines().filter(|line| line.contains("warning:")).count();
        assert_eq!(warnings, 1, "{}", output.err());
        assert!(
            output.err().contains("not recorded") && output.err().contains("failed, exit 3 (ran)"),
            "{}",
            output.err()
        );
        let quiet = run(&mut env.wrapped(&wrapper, &["--no-cache", "--", "cat", "f"])).expect(0);
        assert!(!quiet.err().contains("warning"), "{}", quiet.err());
    }
}

#[test]
fn what_cannot_be_executed_says_so() {
    let env = Env::new();
    env.write("folder/x", "").write("plain", "no program\n").commit();
    for (command, status, text) in [
        ("./folder", 126, "not_executable"),
        ("/usr", 126, "not_executable"),
        ("./plain", 126, "not_executable"),
        ("no-such-tool", 127, "not_found"),
        ("./absent", 127, "not_found"),
    ] {
        let output = env.checkrun(&["--", command]).expect(status);
        assert!(
            output.err().contains("not started") && output.err().contains(text),
            "{command}: {}",
            output.err()
        );
    }
}
