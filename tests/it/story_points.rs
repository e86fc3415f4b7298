//! The same story, killed before each single change that a command makes to files, locks, references or processes: strace
//! kills the program as it enters the Nth call of a kind, for each kind and each N. After each kill a fresh process must
//! find the right step, and the same command, said again, must come to the end that it would have come to.

use crate::story::{
    Checks, begin, call, certify, first_file, id, is_kept, is_long, look_afresh, look_by_directory,
    second_file,
};
use crate::support::{EVERYBODY, Env, Who, program, say};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};

/// Calls that change something outside of the program itself. What SQLite does to its own files is `crashes`' part. A
/// call that a machine does not have is passed over.
const CHANGES: &str = "?write,?mkdir,?mkdirat,?rename,?renameat,?renameat2,?unlink,?unlinkat,?fsync,?fdatasync,?clone,\
    ?clone3,?vfork,?link,?linkat,?symlink,?symlinkat,?fchmod,?chmod,?rmdir,?flock";

/// Who is tried: both in a long run, else one of them.
fn callers(short: Who) -> Vec<Who> {
    if is_long() { EVERYBODY.to_vec() } else { vec![short] }
}

/// checkrun under strace, in a process group of its own.
fn traced(env: &Env, args: &[&str], options: &[&str]) -> Command {
    let mut words: Vec<&str> = options.to_vec();
    words.push(program().to_str().expect("a path in UTF-8"));
    words.extend(args);
    let checkrun = env.command(args);
    let mut command = env.as_who("strace");
    for (name, value) in checkrun.get_envs() {
        command.env(name, value.expect("a value"));
    }
    command.args(words).current_dir(env.path("repo")).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Kinds of calls that the command makes.
fn kinds(env: &Env, args: &[&str]) -> BTreeSet<String> {
    let told = env.path("home").join("calls");
    let status =
        traced(env, args, &["-qq", "-o", told.to_str().unwrap(), "-e", &format!("trace={CHANGES}")]).status();
    assert!(status.expect("strace").code().is_some(), "{args:?} under strace");
    let text = std::fs::read_to_string(&told).expect("what strace wrote");
    text.lines()
        .filter(|line| !line.starts_with(['-', '+']))
        .filter_map(|line| line.split_once('('))
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// Runs the command and kills it, and whatever it has started, as it makes its Nth call of that kind; false where it
/// does not make so many.
fn killed_at(env: &Env, args: &[&str], kind: &str, nth: usize) -> bool {
    let inject = format!("inject={kind}:signal=KILL:when={nth}");
    let trace = format!("trace={kind}");
    let mut child =
        traced(env, args, &["-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject]).spawn().expect("strace");
    let status = child.wait().expect("wait");
    let group = format!("-{}", child.id());
    // What git was asked to do is killed with it; mostly there is nothing.
    let _nobody_left =
        Command::new("kill").args(["-9", "--", &group]).stderr(Stdio::null()).status().expect("kill");
    status.signal() == Some(9) || status.code() == Some(137)
}

fn copy(from: &Path, to: &Path) {
    drop(std::fs::remove_dir_all(to));
    let status = Command::new("cp").arg("-a").args([from, to]).status().expect("cp");
    assert!(status.success(), "{} to {}", from.display(), to.display());
}

/// Kills the command at each of its points, every time from the state as it is now; how many points there were. What
/// must hold after each kill is `after`'s to say.
fn at_each_point(env: &Env, args: &[&str], after: &dyn Fn()) -> usize {
    let (repo, saved) = (env.path("repo"), env.path("home").join("saved"));
    copy(&repo, &saved);
    let kinds = kinds(env, args);
    let mut points = 0;
    for kind in &kinds {
        for nth in 1.. {
            copy(&saved, &repo);
            if !killed_at(env, args, kind, nth) {
                break;
            }
            points += 1;
            // One in five is looked at in a clone too, which costs as much as all the rest.
            if points % 5 == 0 || is_long() {
                look_afresh(env);
            } else {
                look_by_directory(env);
            }
            after();
        }
    }
    assert!(points >= 5, "{args:?} was killed at {points} points only");
    copy(&saved, &repo);
    points
}

#[test]
fn killed_before_any_change_that_certifying_makes_it_is_certified_the_next_time_and_once() {
    for who in callers(Who::User) {
        let env = begin(who, Checks::Build);
        for number in 1..=2 {
            first_file(&env, number, "first");
            second_file(&env, number);
            certify(&env, number);
        }
        first_file(&env, 3, "first");
        second_file(&env, 3);
        look_by_directory(&env);
        let step = id(3);
        let args = ["certify", &step, "--ledger", "ledger.json", "--commit"];
        let points = at_each_point(&env, &args, &|| {
            let told = call(&env, &args, &[0]);
            assert_eq!(told["commit"].as_str(), Some(env.git(&["rev-parse", "HEAD"]).as_str()));
            let claims = env.git(&["log", "--format=%(trailers:key=Agent-Step,valueonly,separator=%x2C)"]);
            assert_eq!(
                claims.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>(),
                ["s03", "s02", "s01"]
            );
            assert_eq!(env.git(&["status", "--porcelain"]), "");
            assert_eq!(env.git(&["fsck", "--strict", "--no-dangling"]), "");
        });
        say(&format!("certify as {who:?}: killed at {points} points"));
    }
}

#[test]
fn killed_before_any_change_that_writing_makes_the_ledger_is_the_old_or_the_new_one() {
    for who in EVERYBODY {
        let env = begin(who, Checks::Build);
        first_file(&env, 1, "first");
        second_file(&env, 1);
        certify(&env, 1);
        first_file(&env, 2, "half");
        look_by_directory(&env);
        let args = ["reconcile", "ledger.json", "--write", "--hypothesis", "half of it is missing"];
        let ledger = env.repo("ledger.json");
        let old = std::fs::read(&ledger).unwrap();
        call(&env, &args, &[1]);
        let new = std::fs::read(&ledger).unwrap();
        env.write("ledger.json", &old);
        assert_ne!(old, new);
        let points = at_each_point(&env, &args, &|| {
            let found = std::fs::read(&ledger).unwrap();
            assert!(found == old || found == new, "{}", String::from_utf8_lossy(&found));
            call(&env, &args, &[1]);
            assert_eq!(std::fs::read(&ledger).unwrap(), new);
            assert!(!env.repo(".ledger.json.checkrun-new").exists());
        });
        say(&format!("reconcile --write as {who:?}: killed at {points} points"));
    }
}

#[test]
fn killed_before_any_change_that_going_back_makes_no_work_is_lost() {
    for who in callers(Who::Root) {
        let env = begin(who, Checks::Build);
        first_file(&env, 1, "first");
        second_file(&env, 1);
        certify(&env, 1);
        first_file(&env, 2, "half");
        env.write("p2/deep/er.txt", "more\n");
        look_by_directory(&env);
        let step = id(2);
        let back = ["rollback", &step, "--ledger", "ledger.json"];
        let name = "refs/checkrun/partial/r-1/s02";
        let points = at_each_point(&env, &back, &|| {
            assert!(is_kept(&env, 2, "half"));
            let told = call(&env, &back, &[0]);
            assert!(!env.repo("p2").exists() && is_kept(&env, 2, "half"));
            let ledger: Value =
                serde_json::from_slice(&std::fs::read(env.repo("ledger.json")).unwrap()).unwrap();
            assert_eq!((&ledger["steps"][1]["partial"], &told["partial"]), (&json!(name), &json!(name)));
        });
        say(&format!("rollback as {who:?}: killed at {points} points"));
        call(&env, &back, &[0]);
        let apply = ["partials", "apply", name];
        let points = at_each_point(&env, &apply, &|| {
            call(&env, &apply, &[0]);
            assert_eq!(std::fs::read_to_string(env.repo("p2/deep/er.txt")).unwrap(), "more\n");
            assert!(env.repo("p2/words.go").is_file() && is_kept(&env, 2, "half"));
        });
        say(&format!("partials apply as {who:?}: killed at {points} points"));
    }
}
