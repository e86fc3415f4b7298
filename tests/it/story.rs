//! The story that ledgers are for: a run of twelve steps that is killed wherever it can be, and a fresh process that has
//! only the directory, or only a clone, and must find the right step, redo nothing, skip nothing and lose no file.
//!
//! `CHECKRUN_STORY_KILLS` is how many kills at random moments there are (20 by default; 200 and more for a long run),
//! `CHECKRUN_STORY_SEED` which moments.

use crate::reconcile::{findings, look, put, steps};
use crate::support::{Env, run};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const STEPS: usize = 12;
const STRANGER: &str = "somebody's own notes\n";

fn id(number: usize) -> String {
    format!("s{number:02}")
}

fn first_file(env: &Env, number: usize, text: &str) {
    env.write(&format!("d{number}/a"), format!("package d{number} // {text}\n"));
}

fn second_file(env: &Env, number: usize) {
    env.write(&format!("d{number}/b"), "done\n");
}

/// The first step that does not hold, read off the files themselves.
fn truth(env: &Env) -> Option<usize> {
    (1..=STEPS).find(|number| {
        let second = std::fs::read_to_string(env.repo(&format!("d{number}/b"))).unwrap_or_default();
        !env.repo(&format!("d{number}/a")).is_file() || !second.contains("done")
    })
}

fn begin() -> Env {
    let env = Env::new();
    let mut ledger = steps(STEPS);
    ledger["run"] = json!("r-1");
    put(&env, &ledger);
    env.write("go.mod", "module example.org/story\n").write("README", "x\n").commit();
    env.write("notes", STRANGER);
    env.write(".git/info/exclude", "/notes\n");
    env
}

/// One call of a harness, which heeds the hint about a lock that a killed git has left.
fn call(env: &Env, args: &[&str], statuses: &[i32]) -> Value {
    for _ in 0..5 {
        let output = env.checkrun(&[args, &["--format", "json"]].concat());
        let text = output.err();
        let lock = text.split('\'').find(|part| part.ends_with(".lock"));
        match lock {
            Some(lock) if output.status == 125 => {
                assert!(text.contains("remove that file and do the same again"), "{text}");
                std::fs::remove_file(lock).unwrap_or_else(|error| panic!("{lock}: {error}"));
            }
            _ => {
                assert!(statuses.contains(&output.status), "{args:?} gave {}:\n{text}", output.status);
                return output.json();
            }
        }
    }
    panic!("{args:?}: locks without end");
}

fn certify(env: &Env, number: usize) -> Value {
    call(env, &["certify", &id(number), "--ledger", "ledger.json", "--commit"], &[0])
}

/// What must hold whenever a fresh process looks: by the directory, and by a clone.
fn look_afresh(env: &Env) {
    let expected = truth(env).map(id);
    let report = look(env, &["ledger.json"]).expect(i32::from(expected.is_some())).json();
    assert_eq!(report["first_uncertified"], json!(expected), "{report}");
    let holds = truth(env).map_or(STEPS, |number| number - 1);
    assert_eq!(findings(&report).iter().filter(|finding| **finding == "certified").count(), holds);
    assert_eq!(std::fs::read_to_string(env.repo("notes")).unwrap(), STRANGER);
    // What was certified and committed is as it was committed.
    let log = env.git(&["log", "--format=%B"]);
    let committed =
        (1..=STEPS).filter(|number| log.contains(&format!("Agent-Step: {}\n", id(*number)))).count();
    assert!(committed == holds || committed + 1 == holds, "{committed} of {holds}:\n{log}");
    if committed > 0 {
        let paths: Vec<String> =
            (1..=committed).flat_map(|number| [format!("d{number}/a"), format!("d{number}/b")]).collect();
        let names: Vec<String> = paths.iter().map(|path| format!("HEAD:{path}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let here: String =
            paths.iter().map(|path| std::fs::read_to_string(env.repo(path)).unwrap()).collect();
        assert_eq!(env.git(&[&["show"], &names[..]].concat()), here.trim_end());
        let clone = env.path("home").join("clone");
        drop(std::fs::remove_dir_all(&clone));
        env.git(&["clone", "-q", ".", clone.to_str().unwrap()]);
        let mut command = env.command(&["reconcile", "--from-history", "HEAD", "--format", "json"]);
        let report = run(command.current_dir(&clone)).expect(0).json();
        assert_eq!(report["steps"].as_array().unwrap().len(), committed);
        let mut command = env.command(&["reconcile", "ledger.json", "--format", "json"]);
        let report = run(command.current_dir(&clone)).json();
        let next = (committed < STEPS).then(|| id(committed + 1));
        assert_eq!(report["first_uncertified"], json!(next), "{report}");
    }
}

/// Each step is committed once, in order, and nothing is broken or left over.
fn end(env: &Env) {
    look_afresh(env);
    let log = env.git(&["log", "--reverse", "--format=%(trailers:key=Agent-Step,valueonly,separator=%x2C)"]);
    let claimed: Vec<&str> = log.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(claimed, (1..=STEPS).map(id).collect::<Vec<_>>());
    assert_eq!(env.git(&["status", "--porcelain"]), "");
    assert_eq!(env.git(&["fsck", "--strict", "--no-dangling"]), "");
    assert!(!env.repo(".ledger.json.checkrun-new").exists());
}

#[test]
fn wherever_a_run_of_twelve_steps_is_killed_the_right_step_is_found() {
    let env = begin();
    for number in 1..=STEPS {
        // Before the edits.
        look_afresh(&env);
        first_file(&env, number, "first");
        // Between two files; then finished by the next process, or gone back from and done again.
        look_afresh(&env);
        if number % 4 == 0 {
            call(&env, &["rollback", &id(number), "--ledger", "ledger.json"], &[0]);
            look_afresh(&env);
            first_file(&env, number, "second");
        }
        second_file(&env, number);
        // After the edits, before the check.
        look_afresh(&env);
        match number % 6 {
            // After the check, before the record.
            0 => drop(env.checkrun(&["-q", "-c", &format!("test -f d{number}/a")]).expect(0)),
            // After the record, before the commit.
            1 => drop(call(&env, &["certify", &id(number), "--ledger", "ledger.json"], &[0])),
            // While the ledger is written.
            2 => drop(env.write(".ledger.json.checkrun-new", "{\"task\": \"mo")),
            // During the commit: the branch is moved, and the index is not.
            3 => {
                certify(&env, number);
                env.git(&["read-tree", "HEAD~1"]);
            }
            // During the commit: the commit is made, and no branch leads to it.
            4 => {
                let before = env.git(&["rev-parse", "HEAD"]);
                certify(&env, number);
                env.git(&["update-ref", "HEAD", &before]);
                env.git(&["read-tree", "HEAD"]);
            }
            _ => {}
        }
        look_afresh(&env);
        certify(&env, number);
    }
    end(&env);
    let listed = call(&env, &["partials"], &[0]);
    let steps: Vec<&Value> =
        listed["partials"].as_array().unwrap().iter().map(|partial| &partial["step"]).collect();
    assert_eq!(steps, ["s04", "s08", "s12"]);
}

/// Numbers that look random and are the same for each seed (Knuth's MMIX constants).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }
}

fn number_from(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")),
        Err(_) => default,
    }
}

/// Starts checkrun and kills it, and whatever of git it has started, at a moment within `most`; whether it was still
/// at work then.
fn kill_during(env: &Env, args: &[&str], most: Duration, dice: &mut Dice) -> bool {
    let mut command = env.command(args);
    let mut child =
        command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("checkrun");
    std::thread::sleep(Duration::from_micros(dice.below(u64::try_from(most.as_micros()).unwrap())));
    let was_running = child.try_wait().expect("wait").is_none();
    let group = format!("-{}", child.id());
    let killed = Command::new("kill").args(["-9", "--", &group]).stderr(Stdio::null()).status();
    assert!(killed.expect("kill").success() || !was_running);
    child.wait().expect("wait");
    was_running
}

/// Whether a text of a step's first file is on disk or in what was put away.
fn is_kept(env: &Env, number: usize, text: &str) -> bool {
    let path = format!("d{number}/a");
    let wanted = format!("package d{number} // {text}");
    if std::fs::read_to_string(env.repo(&path)).is_ok_and(|found| found.trim_end() == wanted) {
        return true;
    }
    let names = format!("refs/checkrun/partial/r-1/{}*", id(number));
    let kept = env.git(&["for-each-ref", "--format=%(refname)", &names]);
    kept.lines().any(|name| env.git(&["show", &format!("{name}:{path}")]) == wanted)
}

#[test]
fn killed_at_random_moments_nothing_is_lost_redone_or_skipped() {
    let wanted = number_from("CHECKRUN_STORY_KILLS", 20);
    let mut dice = Dice(number_from("CHECKRUN_STORY_SEED", 7));
    let mut kills = 0;
    while kills < wanted {
        let env = begin();
        for number in 1..=STEPS {
            let goes_back = ["rollback", &id(number), "--ledger", "ledger.json"].map(str::to_owned);
            let certifies =
                ["certify", &id(number), "--ledger", "ledger.json", "--commit"].map(str::to_owned);
            let goes_back: Vec<&str> = goes_back.iter().map(String::as_str).collect();
            let certifies: Vec<&str> = certifies.iter().map(String::as_str).collect();
            let text = format!("half {kills}");
            first_file(&env, number, &text);
            if number % 3 == 0 && kills < wanted {
                let began = Instant::now();
                call(&env, &[&goes_back[..], &["--dry-run"]].concat(), &[0]);
                let most = began.elapsed() * 2;
                kills += u64::from(kill_during(&env, &goes_back, most, &mut dice));
                assert!(is_kept(&env, number, &text), "{text} is lost");
                look_afresh(&env);
                call(&env, &goes_back, &[0]);
                assert!(!env.repo(&format!("d{number}")).exists() && is_kept(&env, number, &text));
                first_file(&env, number, "again");
            }
            second_file(&env, number);
            let mut most = Duration::from_millis(700);
            for _ in 0..2 {
                if kills < wanted {
                    let began = Instant::now();
                    kills += u64::from(kill_during(&env, &certifies, most, &mut dice));
                    most = began.elapsed().max(Duration::from_millis(100));
                    look_afresh(&env);
                }
            }
            certify(&env, number);
        }
        end(&env);
    }
}
