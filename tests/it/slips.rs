//! What people do wrong in their first hour: each slip is answered by the line that was meant, or by what to change.

use crate::support::{EVERYBODY, Env, USER, Who, is_root, run};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn mode(path: &Path, bits: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(bits)).expect("chmod");
}

#[test]
fn a_line_that_is_not_understood_is_given_back_as_it_was_meant() {
    let env = Env::new();
    env.write("f", "x\n").commit();
    let cases: [(&[&str], &str); 12] = [
        (&["npm", "test"], "after `--`: `checkrun -- npm test`"),
        (&["--policy", "strict", "npm", "test"], "`checkrun --policy strict -- npm test`"),
        (&["--tree", "npm", "npm"], "`checkrun --tree npm -- npm`"),
        (&["go test ./..."], "`checkrun -c 'go test ./...'`"),
        (&["run", "sh", "-c", "a && b"], "`checkrun run -- sh -c 'a && b'`"),
        (&["flake", "--runs", "9", "pytest"], "`checkrun flake --runs 9 -- pytest`"),
        (&["explain", "true"], "`checkrun explain -- true`"),
        (&["reconsile", "plan.json"], "there is a command `checkrun reconcile`"),
        (&["log", "HEAD"], "`checkrun log --help` shows what it takes"),
        (&["stat", "--", "true"], "before `--` there are only options and a command of checkrun"),
        (&["--ledger", "x", "--", "true"], "it is an option of `checkrun certify`, `checkrun rollback`"),
        (&["--nothing", "--", "true"], "`checkrun run --help` lists the options of a check"),
    ];
    for (args, meant) in cases {
        let refused = env.checkrun(args).refused(&["hint:", meant]);
        assert!(!refused.err().contains("as a value"), "{}", refused.err());
    }
    // A slip in an option's name is put right by its name alone.
    let slip = env.checkrun(&["--polcy", "strict", "--", "true"]).refused(&["'--policy'"]);
    assert!(!slip.err().contains("as a value"), "{}", slip.err());
    let group = env.checkrun(&["ledger"]).refused(&["checkrun: error: a word is missing", "check  Whether"]);
    assert!(!group.err().contains("checkrun: Examples"), "{}", group.err());
    assert!(env.logged().is_empty());
}

#[test]
fn numbers_that_are_none_are_told_with_what_is_accepted() {
    let env = Env::new();
    env.commit();
    for (args, parts) in [
        (
            &["flake", "--runs", "many", "--", "true"][..],
            ["`many` is not a whole number", "from 1 to 10000000"],
        ),
        (&["flake", "--jobs", "0", "--", "true"], ["`0` is not a whole number", "from 1 to 256"]),
        (
            &["flake", "--max-runs", "1.5", "--", "true"],
            ["`1.5` is not a whole number", "from 1 to 10000000"],
        ),
        (&["reconcile", "x.json", "--jobs", "all"], ["`all` is not a whole number", "from 1 to 1024"]),
        (&["--pids", "0", "--", "true"], ["`0` is not a whole number", "1 or more"]),
        (&["--require-tests=some", "--", "true"], ["`some` is not a whole number", "1 or more"]),
    ] {
        drop(env.checkrun(args).refused(&parts));
    }
}

#[test]
fn help_is_had_by_its_word_as_well() {
    let env = Env::new();
    for (word, option) in [
        (&["help"][..], &["--help"][..]),
        (&["help", "flake"], &["flake", "--help"]),
        (&["help", "ledger", "check"], &["ledger", "check", "--help"]),
    ] {
        let told = env.checkrun(word).expect(0);
        assert_eq!(told.stdout, env.checkrun(option).expect(0).stdout, "{word:?}");
        assert!(told.out().contains("Usage:"), "{}", told.out());
    }
    drop(env.checkrun(&["help", "flke"]).refused(&["`checkrun flake`"]));
    // A command of that name is checked like any other.
    env.commit();
    drop(env.checkrun(&["--", "help"]).expect(127));
}

#[test]
fn a_command_that_was_quoted_whole_or_that_git_has_as_plain_file() {
    let env = Env::new();
    env.write("run me.sh", "#!/bin/sh\n").write("run.sh", "#!/bin/sh\necho ran\n").commit();
    let quoted = env.checkrun(&["--", "sh run.sh"]).expect(127);
    assert!(quoted.err().contains("give its words apart, or as `-c 'sh run.sh'`"), "{}", quoted.err());
    assert_eq!(env.checkrun(&["-c", "sh run.sh"]).expect(0).out(), "ran\n");
    for (args, status, told) in [
        (&["--", "A=1", "true"][..], 127, "a variable is passed by `--env 'A=1'`"),
        (
            &["--", "cd", "sub"],
            127,
            "`cd` is a word of the shell: give the whole line as one string, with `-c`",
        ),
        (&["--", "./no.sh"], 127, "the tree has no file `./no.sh`"),
        (&["--", "git", "log"], 128, "git: a check sees no `.git`"),
    ] {
        let failed = env.checkrun(args).expect(status);
        assert!(failed.err().contains(told), "{args:?}: {}", failed.err());
    }
    for (cwd, word) in [(".", "./run.sh"), (".", "./run me.sh")] {
        let plain = env.checkrun(&["--cwd", cwd, "--", word]).expect(126);
        let told = format!("is not executable: `chmod +x {}`", &word[2..]);
        assert!(plain.err().contains(&told), "{}", plain.err());
    }
    env.executable("run.sh");
    assert_eq!(env.checkrun(&["--", "./run.sh"]).expect(0).out(), "ran\n");
}

#[test]
fn preparing_without_the_toolchain_says_how_it_is_to_be_had() {
    let env = Env::new();
    env.write("lock", "x\n").commit();
    let runners = env.path("home/.config/checkrun/runners");
    std::fs::create_dir_all(&runners).expect("mkdir");
    let runner = "format = 1\ndescription = \"a test's\"\nserves = [\"no-such-tool\"]\n[toolchain]\nprogram = \"no-such-tool\"\n\
                  [install]\nno-such-tool = \"have it from its makers\"\n\
                  [[prepare]]\nwhen = [\"lock\"]\nrun = \"no-such-tool fetch\"\ntree = [\"deps\"]\n";
    std::fs::write(runners.join("a-test.toml"), runner).expect("a runner");
    let failed = env.checkrun(&["prepare"]).expect(127);
    let told = "missing: `no-such-tool` is not on your PATH; have it from its makers";
    assert!(failed.out().contains(told), "{}{}", failed.out(), failed.err());
}

#[test]
fn names_of_nothing_are_refused_with_what_they_stand_for() {
    let env = Env::new();
    env.commit();
    drop(env.checkrun(&["--", "true"]).expect(0));
    let cases: [(&[&str], &str); 5] = [
        (&["reconcile", "no.json"], "hint: a ledger is a JSON file with a list of `steps`"),
        (&["show", "xyz"], "hint: `checkrun log` lists keys"),
        (&["--dir", "no", "--", "true"], "hint: relative names count from"),
        (&["--policy", "./no.toml", "--", "true"], "`checkrun policies` shows what is known by its name"),
        (&["-C", "no", "--", "true"], "hint: `-C` takes a folder"),
    ];
    for (args, hint) in cases {
        drop(env.checkrun(args).refused(&[hint]));
    }
}

// As after `su` without `-`, or in a container whose user has no home.
#[test]
fn a_home_or_a_cache_of_somebody_else_is_told_as_that() {
    let env = Env::of(Who::User);
    env.write("f", "x\n").commit();
    let others = env.path("others");
    for folder in [others.clone(), others.join(".config"), others.join(".config/checkrun")] {
        std::fs::create_dir(&folder).expect("mkdir");
    }
    if is_root() {
        std::os::unix::fs::chown(&others, Some(USER), Some(USER)).expect("chown");
    }
    mode(&others.join(".config/checkrun"), 0o000);
    if is_root() {
        std::os::unix::fs::chown(others.join(".config/checkrun"), Some(USER), Some(USER)).expect("chown");
    }
    let at = |name: &str, value: &Path| run(env.command(&["--", "cat", "f"]).env(name, value));
    drop(at("HOME", &others).refused(&["Permission denied", "hint: what is yours is looked for below HOME"]));
    drop(
        at("CHECKRUN_CACHE_DIR", Path::new("here")).refused(&["absolute path", "hint: `CHECKRUN_CACHE_DIR="]),
    );
    mode(&others.join(".config/checkrun"), 0o755);
    // The folder above it may not be written to.
    let narrow = env.path("narrow");
    std::fs::create_dir(&narrow).expect("mkdir");
    mode(&narrow, 0o555);
    drop(at("CHECKRUN_CACHE_DIR", &narrow.join("cache")).refused(&[
        "narrow/cache",
        "Permission denied",
        "hint: set CHECKRUN_CACHE_DIR to a folder of your own that you may write to",
    ]));
    drop(at("XDG_STATE_HOME", &narrow).refused(&["Permission denied", "XDG_STATE_HOME", "`--no-cache`"]));
    for home in ["", "relative"] {
        let mut command = env.command(&["--", "cat", "f"]);
        command.env("HOME", home).env_remove("CHECKRUN_CACHE_DIR");
        drop(run(&mut command).refused(&["HOME is not set to an absolute path", "hint: set HOME"]));
    }
}

#[test]
fn a_repository_that_may_not_be_read_is_not_told_as_none() {
    let env = Env::of(Who::User);
    env.write("f", "x\n").commit();
    mode(&env.repo(".git"), 0o000);
    let refused = env.checkrun(&["--", "true"]);
    mode(&env.repo(".git"), 0o755);
    drop(refused.refused(&["look for a git repository", "Permission denied", "hint:"]));
    drop(env.checkrun(&["--", "true"]).expect(0));
}

// A container's image that was entered by chroot; bubblewrap has the same: containers/bubblewrap#505.
#[test]
fn in_a_chroot_doctor_says_so_and_its_status_is_not_success() {
    let env = Env::of(Who::Root);
    env.commit();
    let root = env.path("root");
    std::fs::create_dir(&root).expect("mkdir");
    let enter = "R=$1; shift; cd \"$R\" || exit 9; for d in usr proc sys dev tmp; do mkdir $d && mount --rbind /$d $d || exit 9; done
                 for d in lib lib64 bin; do ln -s usr/$d $d; done; cp \"$1\" checkrun; shift; exec chroot . /checkrun \"$@\"";
    let wrapper = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        enter,
        "sh",
        root.to_str().expect("UTF-8"),
    ];
    let doctor = run(&mut env.wrapped(&wrapper, &["doctor"])).expect(1);
    let told = doctor.out().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("level landlock") && told.contains("this is a chroot"), "{told}");
    assert!(told.contains("mend systemd-nspawn -D FOLDER"), "{told}");
    assert!(
        doctor.out().lines().count() <= 24 && doctor.out().lines().all(|line| line.len() <= 80),
        "{told}"
    );
    for who in EVERYBODY {
        drop(Env::of(who).checkrun(&["doctor"]).expect(0));
    }
}
