//! What a key holds and what it leaves out: no check is answered by another one's result, and none is run again for
//! what does not matter to it.

use crate::support::{EVERYBODY, Env, Output, Who, run};
use std::os::linux::net::SocketAddrExt;

/// Key and cache of a result.
fn of(output: &Output) -> (String, String) {
    let answer = output.json();
    let text = |name: &str| answer[name].as_str().expect("a text").to_owned();
    (text("key"), text("cache"))
}

// git-branchless shares one record between `cat a/b` and `cat a b` (arxanas/git-branchless#1629).
#[test]
fn words_are_never_run_together() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("a/b", "x\n").commit();
        drop(env.checkrun(&["--", "cat", "a/b"]).expect(0));
        let second = env.checkrun(&["--", "cat", "a", "b"]).expect(1);
        assert!(second.err().contains("failed, exit 1 (ran)"), "{}", second.err());
        let json =
            |words: &[&str]| of(&env.checkrun(&[&["--format", "json", "--"], words].concat()).expect(0));
        let keys = [
            json(&["printf", "%s", "a b"]),
            json(&["printf", "%s", "a", "b"]),
            json(&["printf", "%s", "a b", ""]),
            json(&["printf", "%sa", " b"]),
        ];
        for (index, (key, cache)) in keys.iter().enumerate() {
            assert_eq!(cache, "miss", "{index}");
            assert!(keys.iter().skip(index + 1).all(|(other, _)| other != key), "{index}");
        }
    }
}

// moonrepo/moon sorts arguments before it hashes them.
#[test]
fn the_order_of_words_counts() {
    let env = Env::new();
    env.commit();
    drop(env.checkrun(&["--", "test", "1", "-lt", "2"]).expect(0));
    let second = env.checkrun(&["--", "test", "2", "-lt", "1"]).expect(1);
    assert!(second.err().contains("(ran)"), "{}", second.err());
}

#[test]
fn a_string_of_words_is_the_same_check_as_the_list() {
    let env = Env::new();
    env.commit();
    let list = of(&env.checkrun(&["--format", "json", "--", "echo", "a b", "c"]).expect(0));
    let string = of(&env.checkrun(&["--format", "json", "-c", "echo 'a b' c"]).expect(0));
    assert_eq!((list.0, "hit".to_owned()), string);
    let shell = env.checkrun(&["--format", "json", "-c", "echo 'a b' c && true"]).expect(0).json();
    assert_eq!(shell["argv"], serde_json::json!(["sh", "-c", "echo 'a b' c && true"]));
    assert_eq!(shell["cache"], "miss");
}

// golang/go#65436, #66213, #60052, #59849: variables that are read and not keyed.
#[test]
fn a_variable_is_seen_only_if_it_is_passed_and_is_then_part_of_the_key() {
    let env = Env::new().var("GODEBUG", "madvdontneed=1").var("TZ", "Asia/Tokyo").var("SECRET", "s3cret");
    env.commit();
    let script = "echo \"[${GODEBUG-absent}] [$TZ] [${SECRET-absent}] [${EMPTY-absent}]\"";
    let with = |options: &[&str]| {
        let args = [&["--format", "json"], options, &["--", "sh", "-c", script]].concat();
        let answer = env.checkrun(&args).expect(0).json();
        (
            answer["tail"].as_str().unwrap().to_owned(),
            answer["key"].as_str().unwrap().to_owned(),
            answer["cache"].clone(),
        )
    };
    let plain = with(&[]);
    assert_eq!(plain.0, "[absent] [UTC] [absent] [absent]\n");
    let passed = with(&["--env", "GODEBUG", "--env", "TZ=Europe/Rome"]);
    assert_eq!(passed.0, "[madvdontneed=1] [Europe/Rome] [absent] [absent]\n");
    let other = with(&["--env", "GODEBUG=x", "--env", "TZ=Europe/Rome"]);
    assert_eq!((other.0.as_str(), &other.2), ("[x] [Europe/Rome] [absent] [absent]\n", &"miss".into()));
    // Empty is not absent, and what the caller does not have is absent.
    let empty = with(&["--env", "EMPTY="]);
    assert_eq!((empty.0.as_str(), &empty.2), ("[absent] [UTC] [absent] []\n", &"miss".into()));
    assert_eq!(with(&["--env", "NOBODY_HAS_THIS"]), (plain.0, plain.1.clone(), "hit".into()));
    // A set: the order is no matter.
    let twice = with(&["--env", "A=1", "--env", "B=2"]);
    assert_eq!(with(&["--env", "B=2", "--env", "A=1"]), (twice.0, twice.1, "hit".into()));
    let keys = [plain.1, passed.1, other.1, empty.1];
    assert!((0..4).all(|at| !keys[at + 1..].contains(&keys[at])), "{keys:?}");
    // What was passed is kept as a digest only.
    drop(with(&["--env", "TOKEN=t0p-s3cret"]));
    let mut everything = Vec::new();
    for (path, ..) in env.listing(&env.path("cache")) {
        everything.extend(std::fs::read(path).unwrap_or_default());
    }
    let holds = |text: &[u8]| everything.windows(text.len()).any(|window| window == text);
    assert!(holds(b"[absent] [UTC]"), "records are not where they were looked for");
    assert!(!holds(b"t0p-s3cret"), "the value of a variable is kept");
}

// bazelbuild/bazel#2853 (USER and PATH poison the key, so that nothing ever hits), #3265 (TZ).
#[test]
fn who_and_where_the_caller_is_does_not_count() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let state = env.path("home/state");
        env.write("f", "x\n").commit();
        let args = [
            "--format",
            "json",
            "--",
            "sh",
            "-c",
            "cat f; id -un; hostname; echo $HOME $PWD $TZ $LANG $USER",
        ];
        let with = |changes: &[(&str, &str)]| {
            let mut command = env.command(&args);
            command.env("XDG_STATE_HOME", &state).envs(changes.iter().copied());
            run(&mut command).expect(0)
        };
        let first = with(&[]);
        assert_eq!(of(&first).1, "miss");
        assert_eq!(first.json()["tail"], "x\ncheck\ncheckrun\n/home/check /src UTC C.UTF-8 check\n");
        let changes: [&[(&str, &str)]; 6] = [
            &[("USER", "someone"), ("LOGNAME", "someone")],
            &[("HOME", "/var/empty")],
            &[("LANG", "de_DE.UTF-8"), ("LC_ALL", "tr_TR"), ("TZ", "Asia/Tokyo")],
            &[("TERM", "xterm-256color"), ("COLUMNS", "40"), ("CI", "true")],
            &[("PATH", "/opt/none:/bin:/usr/bin")],
            &[("LD_LIBRARY_PATH", "/opt"), ("PYTHONPATH", "/opt"), ("MAKEFLAGS", "-j9")],
        ];
        for change in changes {
            assert_eq!(of(&with(change)), (of(&first).0, "hit".to_owned()), "{change:?}");
        }
    }
}

#[test]
fn the_machine_s_name_and_the_place_of_the_checkout_do_not_count() {
    let env = Env::of(Who::Root);
    env.write("f", "x\n").commit();
    let args = ["--format", "json", "--", "sh", "-c", "cat f; hostname; pwd"];
    let first = env.checkrun(&args).expect(0);
    env.git(&["clone", "-q", ".", "../other"]);
    let moved = run(env.command(&args).current_dir(env.path("other"))).expect(0);
    assert_eq!(of(&moved), (of(&first).0, "hit".to_owned()));
    let wrapper = ["unshare", "--uts", "sh", "-c", "hostname another-machine && exec \"$0\" \"$@\""];
    let mut unshare = env.wrapped(&wrapper, &args);
    assert_eq!(of(&run(&mut unshare).expect(0)), (of(&first).0, "hit".to_owned()));
}

// bazelbuild/bazel#30576: a lowered timeout still yields the old pass.
#[test]
fn limits_are_part_of_the_key() {
    let env = Env::new();
    env.commit();
    let check =
        |timeout: &str| env.checkrun(&["--format", "json", "--timeout", timeout, "--", "sleep", "1.2"]);
    let slow = check("1s").expect(124);
    assert_eq!(slow.json()["outcome"], "timed_out");
    let long = check("60s").expect(0);
    assert_eq!(of(&long).1, "miss");
    // And the other way about: what passed with more time does not answer for less.
    assert_eq!(of(&check("1s").expect(124)), (of(&slow).0, "miss".to_owned()));
    assert_eq!(of(&check("1m").expect(0)), (of(&long).0, "hit".to_owned()));
    for limit in [["--disk", "1GiB"], ["--pids", "77"], ["--output-limit", "1MiB"]] {
        let other =
            env.checkrun(&["--format", "json", limit[0], limit[1], "--timeout", "60s", "--", "sleep", "1.2"]);
        let (key, cache) = of(&other.expect(0));
        assert_eq!(cache, "miss", "{limit:?}");
        assert_ne!(key, of(&long).0, "{limit:?}");
    }
}

// moonrepo/moon#1172: a changed configuration is not seen.
#[test]
fn the_policy_counts_by_what_it_says_and_not_by_its_name() {
    let env = Env::new();
    env.commit();
    let hermetic = include_str!("../../policies/hermetic.toml");
    let check =
        |policy: &str| of(&env.checkrun(&["--format", "json", "--policy", policy, "--", "true"]).expect(0));
    let built_in = check("hermetic");
    std::fs::write(env.path("mine.toml"), hermetic.replace("description = \"", "description = \"My own: "))
        .unwrap();
    let mine = env.path("mine.toml").display().to_string();
    assert_eq!(check(&mine), (built_in.0.clone(), "hit".to_owned()));
    let narrow = hermetic.replace("disk = \"4GiB\"", "disk = \"3GiB\"");
    assert_ne!(narrow, hermetic);
    std::fs::write(env.path("mine.toml"), narrow).unwrap();
    let (key, cache) = check(&mine);
    assert_eq!(cache, "miss");
    assert_ne!(key, built_in.0);
    // The repository's own settings are part of its tree and tighten further.
    env.write(".checkrun.toml", "format = 1\n[limits]\ndisk = \"2MiB\"\n").commit();
    let full = env.checkrun(&["--format", "json", "--", "head", "-c", "4M", "/dev/zero"]).expect(0).json();
    assert_eq!(full["outcome"], "passed");
    let full = env.sh("head -c 4M /dev/zero >big").expect(1).json();
    assert_eq!(full["outcome"], "disk_full");
}

// os-factory/har#190: a green run bound to a tree, while the service that it talked to was shared.
#[test]
fn services_of_the_host_are_out_of_reach_and_where_they_are_not_nothing_is_reused() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.commit();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let name = format!("checkrun-it-{port}");
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
        let _abstract = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
        let program = format!(
            "import socket\n\
             def reach(family, address):\n\
             \x20   try: socket.socket(family).connect(address)\n\
             \x20   except OSError: return 'no'\n\
             \x20   return 'yes'\n\
             print(reach(socket.AF_INET, ('127.0.0.1', {port})), reach(socket.AF_UNIX, '\\0{name}'))"
        );
        let check = |options: &[&str]| {
            env.python(&[&["--format", "json"], options].concat(), &program).expect(0).json()
        };
        assert_eq!(check(&[])["tail"], "no no\n");
        assert_eq!(check(&[])["cache"], "hit");
        for _ in 0..2 {
            let open = check(&["--policy", "networked"]);
            assert_eq!((open["tail"].clone(), open["cache"].clone()), ("yes no\n".into(), "miss".into()));
        }
        let refused = env.python(&["--cached-only", "--policy", "networked"], &program);
        drop(refused.refused(&["never reused"]));
        // Nothing of them answers for a closed sandbox.
        drop(listener);
        assert_eq!(check(&[])["tail"], "no no\n");
    }
}
