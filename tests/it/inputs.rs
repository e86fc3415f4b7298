//! Guard `inputs`: an earlier run answers for another tree where all that it looked at is as it was, and never else.

use crate::support::{EVERYBODY, Env, Output};
use std::os::unix::fs::PermissionsExt;

fn guard(output: &Output) -> (String, String) {
    let json = output.json();
    let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
    (text("cache"), text("guard"))
}

#[track_caller]
fn hits_by_inputs(output: &Output) {
    assert_eq!(guard(output), ("hit".to_owned(), "inputs".to_owned()), "{}\n{}", output.err(), output.out());
}

#[track_caller]
fn runs(output: &Output) {
    assert_eq!(guard(output).0, "miss", "{}", output.out());
}

#[test]
fn what_was_not_looked_at_may_change_and_what_was_may_not() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("read", "1\n").write("other", "1\n").write("folder/one", "1\n").write("deep/x/y", "1\n");
        std::os::unix::fs::symlink("read", env.repo("link")).expect("symlink");
        env.commit();
        let script = "cat link; ls folder; test ! -e absent; cd deep; cat x/y";
        runs(&env.sh(script));
        // Beside all that was looked at.
        env.write("other", "2\n").write("new", "1\n").write("deep/z", "1\n");
        hits_by_inputs(&env.sh(script));
        let json = env.sh(script).json();
        assert_eq!(json["from"]["record"], 1);
        assert_ne!(json["from"]["tree"], json["tree"]);
        // Each of the things that were: content behind a link, a listing, absence, a relative path.
        env.write("read", "2\n");
        runs(&env.sh(script));
        env.write("folder/two", "1\n");
        runs(&env.sh(script));
        env.write("folder/two", "2\n");
        hits_by_inputs(&env.sh(script));
        env.write("absent", "");
        runs(&env.sh(script));
        std::fs::remove_file(env.repo("absent")).expect("rm");
        env.write("deep/x/y", "2\n");
        runs(&env.sh(script));
        std::fs::remove_file(env.repo("link")).expect("rm");
        std::os::unix::fs::symlink("other", env.repo("link")).expect("symlink");
        runs(&env.sh(script));
    }
}

#[test]
fn each_of_many_files_counts_and_those_beside_them_do_not() {
    let env = Env::new();
    // More in each folder than are compared in one go (64), and folders within folders.
    let folders = ["", "a/", "a/b/", "a/b/c/d/", "e/"];
    let name = |folder: &str, file: usize| format!("{folder}f{file:02}");
    let mut names = String::new();
    for folder in folders {
        for file in 0..70 {
            env.write(&name(folder, file), "1");
            names.extend([name(folder, file), "\n".to_owned()]);
        }
        env.write(&format!("{folder}beside"), "1");
    }
    env.write("names", names).commit();
    let script = "xargs cat <names >/dev/null";
    runs(&env.sh(script));
    for folder in folders {
        // The folder is another from now on, and what was read in it is not.
        env.write(&format!("{folder}beside"), "2");
        hits_by_inputs(&env.sh(script));
        for file in [0, 63, 64, 69] {
            let name = name(folder, file);
            env.write(&name, "2");
            let why = env.checkrun(&["explain", "--", "sh", "-c", script]).expect(0).out();
            assert!(why.contains(&format!("`{name}` was read and is another")), "{why}");
            env.write(&name, "1");
        }
        hits_by_inputs(&env.sh(script));
    }
}

#[test]
fn guard_exact_turns_it_off() {
    let env = Env::new();
    env.write("a", "1").write("b", "1").commit();
    let args = |guard: &'static str| ["--format", "json", "--guard", guard, "--", "cat", "a"];
    runs(&env.checkrun(&args("exact")));
    env.write("b", "2");
    hits_by_inputs(&env.checkrun(&args("inputs")));
    runs(&env.checkrun(&args("exact")));
}

#[test]
fn what_a_program_makes_and_reads_again_leads_to_what_it_was_made_from() {
    let env = Env::new();
    env.write("source", "1\n").write("other", "1\n").commit();
    // By a link made on the way, a hard link, and a new name.
    let script = "ln -s source soft && cat soft && ln source hard && cat hard && mv other moved && cat moved";
    runs(&env.sh(script));
    env.write("unrelated", "1\n");
    hits_by_inputs(&env.sh(script));
    env.write("source", "2\n");
    runs(&env.sh(script));
    env.write("other", "2\n");
    runs(&env.sh(script));
}

#[test]
fn static_programs_threads_and_descriptors_are_seen_too() {
    // Tracers that live in the process miss these (jacereda/fsatrace#24, voidzero-dev/vite-task#587).
    let env = Env::new();
    let source = r#"
        #include <fcntl.h>
        #include <pthread.h>
        #include <stdio.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static void *reader(void *name) {
            char byte; int folder = open("folder", O_RDONLY | O_DIRECTORY);
            int fd = openat(folder, name, O_RDONLY);
            if (fd < 0 || read(fd, &byte, 1) != 1) _exit(3);
            putchar(byte);
            return 0;
        }
        int main(void) {
            pthread_t thread;
            if (pthread_create(&thread, 0, reader, "in-thread")) return 2;
            pthread_join(thread, 0);
            if (vfork() == 0) execl("folder/child", "child", (char *)0);
            /* One that is not waited for is killed in the middle of its look-ups, and nothing is claimed of those. */
            return wait(0) < 0;
        }"#;
    std::fs::write(env.path("p.c"), source).expect("write");
    let built = std::process::Command::new("gcc")
        .args(["-static", "-O1", "-o"])
        .arg(env.path("p"))
        .arg(env.path("p.c"))
        .arg("-lpthread")
        .status()
        .expect("gcc");
    assert!(built.success());
    env.write("p", std::fs::read(env.path("p")).expect("read")).executable("p");
    env.write("folder/in-thread", "1")
        .write("folder/child", "#!/bin/sh\necho 1\n")
        .executable("folder/child");
    env.write("elsewhere", "1").commit();
    let run = || env.checkrun(&["--format", "json", "--", "./p"]);
    runs(&run());
    env.write("elsewhere", "2");
    hits_by_inputs(&run());
    env.write("folder/in-thread", "2");
    runs(&run());
    env.write("folder/child", "#!/bin/sh\necho 2\n").executable("folder/child");
    runs(&run());
    std::fs::set_permissions(env.repo("p"), std::fs::Permissions::from_mode(0o644)).expect("chmod");
    runs(&run());
}

#[test]
fn a_program_that_leaves_the_view_leaves_no_set() {
    let env = Env::new();
    env.write("a", "1").write("b", "1").commit();
    let script = "unshare --user --mount true; cat a";
    runs(&env.sh(script));
    env.write("b", "2");
    runs(&env.sh(script));
}

#[test]
fn a_changed_host_file_is_a_miss_that_explain_names() {
    // golang/go#26790, mozilla/sccache#856: what was executed counts, not the name it was called by.
    let env = Env::new();
    let tools = env.path("tools/bin");
    std::fs::create_dir_all(&tools).expect("mkdir");
    let tool = tools.join("mytool");
    let put = |text: &str| {
        std::fs::write(&tool, format!("#!/bin/sh\nexec \"$(dirname \"$0\")/real\" {text}\n")).expect("write");
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    };
    let put_real = |text: &str| {
        std::fs::write(tools.join("real"), format!("#!/bin/sh\necho {text} $1\n")).expect("write");
        std::fs::set_permissions(tools.join("real"), std::fs::Permissions::from_mode(0o755)).expect("chmod");
    };
    put("x");
    put_real("one");
    env.write("a", "1").commit();
    let path = format!("{}:/usr/bin:/bin", tools.display());
    let run = |args: &[&str]| crate::support::run(env.command(args).env("PATH", &path));
    let args = ["--format", "json", "--", "mytool"];
    runs(&run(&args));
    env.write("b", "1");
    hits_by_inputs(&run(&args));
    // The shim stays, what it runs changes.
    put_real("two");
    env.write("b", "2");
    let explained = run(&["explain", "--", "mytool"]).expect(0).out();
    assert!(explained.contains("tools/bin/real was used and has changed"), "{explained}");
    let again = run(&args);
    runs(&again);
    assert!(again.json()["tail"].as_str().is_some_and(|tail| tail.contains("two")), "{}", again.out());
}

#[test]
fn inputs_are_listed_by_record_and_by_command() {
    let env = Env::new();
    env.write("a", "1").write("d/b", "1").commit();
    let told = env.checkrun(&["inputs", "--", "sh", "-c", "cat a; ls d; test -e no"]).expect(0).out();
    for line in [
        "tree: read",
        "  a\n",
        "tree: listed",
        "  d\n",
        "tree: looked for, not there",
        "  no\n",
        "host: used",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    let json = env.checkrun(&["--format", "json", "show", "1", "--inputs"]).expect(0).json();
    assert_eq!(json["tree"]["read"], serde_json::json!(["a"]));
    assert_eq!(json["scope"], serde_json::json!(["a", "d"]));
}

/// The store keeps 32 sets of one command; many runs on one tree are one of them.
#[test]
fn a_session_on_one_tree_does_not_crowd_out_what_is_known_of_others() {
    let env = Env::new();
    let ask = || env.checkrun(&["--format", "json", "--", "cat", "a"]);
    env.write("a", "first");
    ask().expect(0);
    env.write("a", "second");
    let runs = ["flake", "--format", "json", "--runs", "40", "--jobs", "2", "--", "cat", "a"];
    env.checkrun(&runs).expect(0);
    for _ in 0..40 {
        env.checkrun(&["--refresh", "--", "cat", "a"]).expect(0);
    }
    env.write("a", "first").write("beside", "");
    hits_by_inputs(&ask());
    env.write("a", "second");
    hits_by_inputs(&ask());
}

/// The store keeps 32 sets of one command, those that were of use last.
#[test]
fn what_is_used_again_and_again_is_not_forgotten_for_what_was_tried_since() {
    let env = Env::new();
    let ask = |content: String| {
        env.write("a", content);
        env.checkrun(&["--format", "json", "--", "cat", "a"])
    };
    for number in 0..3 {
        runs(&ask(number.to_string()));
    }
    for number in 3..40 {
        runs(&ask(number.to_string()));
        if number % 10 == 0 {
            // Another tree than any before, with the same input.
            env.write("beside", number.to_string());
            hits_by_inputs(&ask("1".to_owned()));
        }
    }
    env.write("beside", "the last");
    hits_by_inputs(&ask("1".to_owned()));
    runs(&ask("0".to_owned()));
}
