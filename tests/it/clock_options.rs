//! What options, policies and a repository's settings say of the clock, in which order, and what is refused.

use crate::support::{EVERYBODY, Env};
use std::path::Path;

/// The clock's seconds at the start, cut to the minute, so that a slow start does not matter.
#[track_caller]
fn minute(env: &Env, options: &[&str]) -> String {
    let output = env.checkrun(&[options, &["--", "date", "+%Y-%m-%dT%H:%M"]].concat()).expect(0);
    output.out().trim().to_owned()
}

#[test]
fn the_default_is_the_policys_constant_and_other_commits_keep_it() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("f", "1").commit();
        assert_eq!(minute(&env, &[]), "2026-01-01T00:00");
        let result = env.sh("echo $SOURCE_DATE_EPOCH").json();
        assert_eq!(result["tail"], "1767225600\n");
        assert_eq!(result["clock"], serde_json::json!({"mode": "ticking", "start": "2026-01-01T00:00:00Z"}));
        assert_eq!(result["sandbox"]["layers"]["clock"], "enforced");
        env.commit();
        assert_eq!(env.sh("echo $SOURCE_DATE_EPOCH").json()["cache"], "hit");
    }
}

#[test]
fn the_command_line_comes_before_the_repository_and_that_before_the_policy() {
    let env = Env::new();
    env.write(".checkrun.toml", "format = 1\n[clock]\nstart = \"2010-10-10T10:10:00Z\"\nmode = \"frozen\"\n")
        .commit();
    assert_eq!(minute(&env, &[]), "2010-10-10T10:10");
    assert_eq!(minute(&env, &["--clock", "2011-11-11T11:11:00+01:00"]), "2011-11-11T10:11");
    let result =
        env.checkrun(&["--format", "json", "--clock-mode", "ticking", "--", "true"]).expect(0).json();
    assert_eq!(result["clock"], serde_json::json!({"mode": "ticking", "start": "2010-10-10T10:10:00Z"}));
    let result = env.checkrun(&["--format", "json", "--clock", "commit", "--", "true"]).expect(0).json();
    assert_eq!(result["clock"], serde_json::json!({"mode": "frozen", "start": "2020-01-01T00:00:00Z"}));
}

/// The date of a commit moves with each commit, unlike the default.
#[test]
fn the_commits_date_is_the_committers_and_part_of_the_key() {
    let env = Env::new();
    env.write("f", "1").commit();
    let first = ["--clock", "commit", "--format", "json", "--", "true"];
    assert_eq!(env.checkrun(&first).expect(0).json()["clock"]["start"], "2020-01-01T00:00:00Z");
    assert_eq!(env.checkrun(&first).expect(0).json()["cache"], "hit");
    // The same instant is the same key, however it is named.
    let named =
        env.checkrun(&["--clock", "2020-01-01T00:00:00Z", "--format", "json", "--", "true"]).expect(0).json();
    assert_eq!(named["cache"], "hit");
    let mut git = env.as_who("git");
    git.args(["commit", "-q", "--allow-empty", "-m", "later"]).current_dir(env.path("repo"));
    git.env("GIT_COMMITTER_DATE", "2021-02-03T04:05:06+02:00").env("GIT_AUTHOR_DATE", "1999-01-01T00:00:00Z");
    assert!(git.status().expect("git").success());
    let later = env.checkrun(&first).expect(0).json();
    assert_eq!((&later["clock"]["start"], &later["cache"]), (&"2021-02-03T02:05:06Z".into(), &"miss".into()));
    assert_eq!(minute(&env, &["--clock", "commit", "--tree", "HEAD~1"]), "2020-01-01T00:00");
    env.git(&["tag", "-a", "-m", "a tag", "v1"]);
    assert_eq!(minute(&env, &["--clock", "commit", "--tree", "v1"]), "2021-02-03T02:05");
    env.write(".checkrun.toml", "format = 1\n[clock]\nstart = \"commit\"\n").commit();
    assert_eq!(minute(&env, &[]), "2020-01-01T00:00");
}

#[test]
fn a_commits_date_without_a_commit_is_refused_with_what_to_do() {
    let env = Env::new();
    env.write("f", "1").write("sub/g", "2").commit();
    let tree = env.git(&["rev-parse", "HEAD^{tree}"]);
    let hint = "give `--clock` an instant";
    let commit = ["--clock", "commit"];
    let refused = |options: &[&str], why: &str| {
        for command in [&["run"][..], &["explain"]] {
            drop(env.checkrun(&[command, &commit, options, &["--", "true"]].concat()).refused(&[why, hint]));
        }
    };
    refused(&["--tree", &tree], "a tree that is named without its commit");
    refused(&["--tree", "HEAD:sub"], "a tree that is named without its commit");
    refused(&["--dir", "sub"], "a plain folder has no commit");
    env.write("f", "changed");
    refused(&[], "a state that no commit has");
    env.git(&["add", "f"]);
    refused(&["--staged"], "a state that no commit has");
    assert_eq!(minute(&env, &["--clock", "commit", "--tree", "HEAD"]), "2020-01-01T00:00");
    // The repository may ask for it as well, and then the same holds.
    env.write(".checkrun.toml", "format = 1\n[clock]\nstart = \"commit\"\n");
    drop(env.checkrun(&["--", "true"]).refused(&["a state that no commit has", hint]));
    assert_eq!(minute(&env, &["--clock", "2001-01-01T00:00:00Z"]), "2001-01-01T00:00");
}

#[test]
fn commits_with_impossible_dates_are_refused() {
    let env = Env::new();
    env.write("f", "1");
    env.git(&["add", "f"]);
    let tree = env.git(&["write-tree"]);
    let commit = |date: &str| {
        let path = env.path("commit");
        std::fs::write(
            &path,
            format!("tree {tree}\nauthor A <a@b> 0 +0000\ncommitter C <c@d> {date}\n\nx\n"),
        )
        .expect("a file");
        env.git(&["hash-object", "-t", "commit", "-w", "--literally", path.to_str().expect("UTF-8")])
    };
    for (date, why) in [
        ("-5 +0000", "outside the years 1970 to 2262"),
        ("99999999999 +0000", "outside the years 1970 to 2262"),
        ("yesterday", "cannot be read"),
    ] {
        drop(env.checkrun(&["--clock", "commit", "--tree", &commit(date), "--", "true"]).refused(&[why]));
    }
}

#[test]
fn instants_that_make_no_sense_are_refused_wherever_they_stand() {
    let env = Env::new();
    env.write("f", "1").commit();
    for (instant, why) in [
        ("tomorrow", "is not an instant"),
        ("2026-01-01", "is not an instant"),
        ("2026-01-01T00:00:00", "is not an instant"),
        ("2026-13-01T00:00:00Z", "is not an instant"),
        ("", "is not an instant"),
        ("@0", "is not an instant"),
        ("1969-12-31T23:59:59Z", "outside the years 1970 to 2262"),
        ("2300-01-01T00:00:00Z", "outside the years 1970 to 2262"),
        ("2026-01-01T00:00:00.5Z", "fraction of a second"),
    ] {
        drop(env.checkrun(&["--clock", instant, "--", "true"]).refused(&[why]));
        env.write(".checkrun.toml", format!("format = 1\n[clock]\nstart = \"{instant}\"\n"));
        drop(env.checkrun(&["--", "true"]).refused(&[".checkrun.toml:3:9", "clock.start", why]));
        std::fs::remove_file(env.repo(".checkrun.toml")).expect("rm");
    }
    drop(env.checkrun(&["--clock-mode", "sideways", "--", "true"]).refused(&["sideways"]));
    env.write(".checkrun.toml", "format = 1\n[clock]\nmode = \"host\"\n");
    // A repository may not widen what the check sees.
    drop(env.checkrun(&["--", "true"]).refused(&["clock.mode", "`host` is not known here"]));
    env.write(".checkrun.toml", "format = 1\n[clock]\nstart = \"host\"\n");
    drop(env.checkrun(&["--", "true"]).refused(&["clock.start", "`host` is not an instant"]));
}

#[test]
fn the_hosts_clock_is_shown_on_request_and_never_cached() {
    let env = Env::new();
    env.write("f", "1").commit();
    let real =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    for _ in 0..2 {
        let result = env.checkrun(&[
            "--clock",
            "host",
            "--format",
            "json",
            "--",
            "sh",
            "-c",
            "date +%s; echo \"[$SOURCE_DATE_EPOCH]\"",
        ]);
        let result = result.expect(0).json();
        assert_eq!(result["cache"], "miss");
        assert_eq!(result["clock"]["mode"], "host");
        assert_eq!(result["sandbox"]["layers"]["clock"], "off");
        let tail = result["tail"].as_str().expect("a tail").to_owned();
        let (seconds, rest) = tail.split_once('\n').expect("two lines");
        let seconds: u64 = seconds.parse().expect("seconds");
        assert!((real..real + 300).contains(&seconds), "{seconds} {real}");
        assert_eq!(rest, "[]\n");
    }
    drop(env.checkrun(&["--clock", "host", "--cached-only", "--", "true"]).refused(&["the host's clock"]));
    drop(
        env.checkrun(&["--clock", "host", "--clock-mode", "frozen", "--", "true"])
            .refused(&["no effect on the host's clock"]),
    );
}

#[test]
fn start_and_mode_are_part_of_the_key() {
    let env = Env::new();
    env.write("f", "1").commit();
    let key = |options: &[&str]| {
        let output = env.checkrun(&[options, &["--format", "json", "--", "true"]].concat()).expect(0);
        output.json()["key"].as_str().expect("a key").to_owned()
    };
    let all = [
        key(&[]),
        key(&["--clock", "2000-01-01T00:00:00Z"]),
        key(&["--clock", "2000-01-01T00:00:01Z"]),
        key(&["--clock", "2000-01-01T00:00:00Z", "--clock-mode", "frozen"]),
        key(&["--clock", "host"]),
    ];
    let different: std::collections::BTreeSet<&String> = all.iter().collect();
    assert_eq!(different.len(), all.len(), "{all:?}");
    let explained =
        env.checkrun(&["explain", "--clock", "1999-01-01T00:00:00Z", "--", "true"]).expect(0).out();
    assert!(explained.contains("  policy.clock_start: "), "{explained}");
    assert!(explained.contains(" -> 1999-01-01T00:00:00Z\n"), "{explained}");
}

/// What the policy requires, and what the command line asks for, is had or nothing runs.
#[test]
fn a_clock_that_cannot_be_fixed_is_refused_where_it_is_required() {
    let env = Env::new();
    env.write("f", "1").commit();
    let clock = ["--policy", "landlock", "--clock", "2000-01-01T00:00:00Z", "--", "true"];
    drop(env.checkrun(&clock).refused(&["requires what this machine does not offer: clock"]));
    let preferred =
        env.checkrun(&["--policy", "landlock", "--format", "json", "--", "true"]).expect(0).json();
    let state = preferred["sandbox"]["layers"]["clock"].as_str().expect("a state").to_owned();
    assert!(state.starts_with("unavailable"), "{state}");
    for policy in ["hermetic", "strict"] {
        let text = env.checkrun(&["policies", policy]).expect(0).out();
        assert!(text.contains("[layers.clock]\nneed = \"require\""), "{text}");
    }
}

/// In a sandbox with a clock no second one can be made: there is one listener to a process tree.
#[test]
fn a_checkrun_in_a_checkrun_says_why_it_has_no_clock_of_its_own() {
    let env = Env::new();
    let program = crate::support::program();
    std::fs::copy(program, env.repo("checkrun")).expect("a copy");
    let script = "CHECKRUN_CACHE_DIR=/tmp/cache ./checkrun --dir . -- true 2>&1; echo $?";
    let output = env.checkrun(&["--", "sh", "-c", script]).expect(0);
    assert!(output.out().ends_with("125\n"), "{}", output.out());
    assert!(
        output.out().contains("clock (another program answers system calls here already"),
        "{}",
        output.out()
    );
}

#[test]
fn init_writes_settings_once_with_the_midnight_after_the_newest_commit() {
    for who in EVERYBODY {
        let env = Env::of(who);
        drop(env.checkrun(&["init"]).refused(&["HEAD"]));
        env.write("sub/f", "1").commit();
        let output = env.checkrun(&["-C", "sub", "init", "--format", "json"]).expect(0).json();
        assert_eq!(output["clock"], "2020-01-02T00:00:00Z");
        let path = env.repo(".checkrun.toml");
        assert_eq!(
            Path::new(output["path"].as_str().expect("a path")),
            path.canonicalize().expect("it is there")
        );
        let text = std::fs::read_to_string(&path).expect("the file");
        assert!(
            text.contains("start = \"2020-01-02T00:00:00Z\"") && text.matches("# ").count() > 5,
            "{text}"
        );
        assert_eq!(minute(&env, &[]), "2020-01-02T00:00");
        drop(env.checkrun(&["init"]).refused(&["is there already", "move it away"]));
        assert_eq!(std::fs::read_to_string(&path).expect("the file"), text);
    }
    let env = Env::new();
    env.write("f", "1").commit();
    std::os::unix::fs::symlink("elsewhere", env.repo(".checkrun.toml")).expect("a link");
    drop(env.checkrun(&["init"]).refused(&["is there already"]));
    assert!(!env.repo("elsewhere").exists());
    env.git(&["clone", "-q", "--bare", ".", "../home/bare"]);
    drop(env.checkrun(&["-C", "../home/bare", "init"]).refused(&["a bare repository"]));
}

/// What the self-check of `doctor` finds is what a run would.
#[test]
fn doctor_reads_the_clock_in_a_real_sandbox() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let found = env.checkrun(&["doctor", "--format", "json"]).expect(0).json();
        assert_eq!(found["layers"]["clock"]["state"], "enforced");
        let checked = found["clock_check"].as_object().expect("a self-check");
        for what in ["vdso", "raw_call", "child", "absolute_wait", "file_time"] {
            assert_eq!(checked.get(what), Some(&"ok".into()), "{what}: {found}");
        }
        let told = env.checkrun(&["doctor"]).expect(0).out();
        assert!(told.contains("vDSO ok"), "{told}");
    }
}
