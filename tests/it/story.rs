//! The story that ledgers are for: a run of twelve steps on a real Go module that is killed wherever it can be, and a
//! fresh process that has only the directory, or only a clone, and must find the right step, redo nothing, skip nothing
//! and lose no file. Here are its parts and the kills at random moments; kills at each single point are `story_points`'.
//!
//! There are 20 kills at random moments by default and 200 with `CHECKRUN_LONG=1`; `CHECKRUN_STORY_KILLS` is another
//! number, `CHECKRUN_STORY_SEED` which moments.

use crate::real::{open_tool, plant, tool};
use crate::reconcile::{findings, look, put};
use crate::support::{Env, Who, run, say};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const STEPS: usize = 12;
const STRANGER: &str = "somebody's own notes\n";
/// The steps whose checks are more than a compilation of their package: compiling what tests and vet need takes half a
/// minute of a processor's time.
const TESTED: usize = 6;
const VETTED: usize = 9;

/// How much the checks of the steps do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checks {
    /// Each compiles its package.
    Build,
    /// One also runs its package's tests.
    BuildTest,
    /// One more has it vetted.
    BuildTestVet,
}

/// Whether all is wanted, however long it takes.
pub(crate) fn is_long() -> bool {
    std::env::var_os("CHECKRUN_LONG").is_some()
}

pub(crate) fn id(number: usize) -> String {
    format!("s{number:02}")
}

/// Step after step adds a package to the module, which builds on the one before.
fn ledger(checks: Checks) -> Value {
    let step = |number: usize| {
        let mut check = vec![format!("go build ./p{number}")];
        match (checks, number) {
            (Checks::BuildTest | Checks::BuildTestVet, TESTED) => check.push(format!("go test ./p{number}")),
            (Checks::BuildTestVet, VETTED) => check.push(format!("go vet ./p{number}")),
            _ => {}
        }
        let before: Vec<String> = (1..number).next_back().map(id).into_iter().collect();
        let mut step = json!({
            "id": id(number), "title": format!("move the words of part {number}"), "touches": [format!("p{number}/**")],
            "depends_on": before, "check": check, "status": "pending", "evidence": null, "attempts": 0,
        });
        if let Some(before) = before.first() {
            step["rollback_to"] = json!(before);
        }
        step
    };
    let steps: Vec<Value> = (1..=STEPS).map(step).collect();
    json!({"task": "split the module", "plan_version": 3, "run": "r-1", "steps": steps})
}

fn first_text(number: usize, text: &str) -> String {
    let module = "github.com/kballard/go-shellquote";
    let (import, before) = match number {
        1 => (String::new(), "[]string(nil)".to_owned()),
        _ => (format!("import before \"{module}/p{}\"\n\n", number - 1), "before.Words()".to_owned()),
    };
    format!(
        "// Package p{number} has the words of part {number}, {text}.\npackage p{number}\n\n{import}\
         // Words gives them and those before.\nfunc Words() []string {{ return append({before}, own()) }}\n"
    )
}

/// The first file of a step, which does not compile without the second.
pub(crate) fn first_file(env: &Env, number: usize, text: &str) {
    env.write(&format!("p{number}/words.go"), first_text(number, text));
}

pub(crate) fn second_file(env: &Env, number: usize) {
    if number == TESTED {
        let test = format!(
            "package p{number}\n\nimport \"testing\"\n\nfunc TestWords(t *testing.T) {{\n\
             \tif got := len(Words()); got != {number} {{\n\t\tt.Fatal(got)\n\t}}\n}}\n"
        );
        env.write(&format!("p{number}/words_test.go"), test);
    }
    let text = format!("package p{number}\n\nfunc own() string {{ return \"{number}\" }}\n");
    env.write(&format!("p{number}/own.go"), text);
}

/// The first step that does not hold, read off the files themselves.
fn truth(env: &Env) -> Option<usize> {
    (1..=STEPS).find(|number| {
        let second = std::fs::read_to_string(env.repo(&format!("p{number}/own.go"))).unwrap_or_default();
        !env.repo(&format!("p{number}/words.go")).is_file() || !second.contains("func own() string {")
    })
}

pub(crate) fn begin(who: Who, checks: Checks) -> Env {
    let path = format!("{}/bin:/usr/bin:/bin", open_tool("go").display());
    let env = Env::of(who).var("PATH", path);
    put(&env, &ledger(checks));
    plant(&env, &tool("go-shellquote"));
    env.write("notes", STRANGER);
    env.write(".git/info/exclude", "/notes\n");
    env
}

/// One call of a harness, which heeds the hint about a lock that a killed git has left.
pub(crate) fn call(env: &Env, args: &[&str], statuses: &[i32]) -> Value {
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

pub(crate) fn certify(env: &Env, number: usize) -> Value {
    call(env, &["certify", &id(number), "--ledger", "ledger.json", "--commit"], &[0])
}

/// What must hold whenever a fresh process looks: by the directory, and by a clone.
pub(crate) fn look_afresh(env: &Env) {
    let committed = look_by_directory(env);
    look_by_clone(env, committed);
}

/// The same by the directory alone; the number of steps that are committed.
pub(crate) fn look_by_directory(env: &Env) -> usize {
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
    let paths: Vec<String> = (1..=committed)
        .flat_map(|number| [format!("p{number}/words.go"), format!("p{number}/own.go")])
        .collect();
    if !paths.is_empty() {
        let names: Vec<String> = paths.iter().map(|path| format!("HEAD:{path}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let here: String =
            paths.iter().map(|path| std::fs::read_to_string(env.repo(path)).unwrap()).collect();
        assert_eq!(env.git(&[&["show"], &names[..]].concat()), here.trim_end());
    }
    committed
}

fn look_by_clone(env: &Env, committed: usize) {
    let clone = env.path("home").join("clone");
    drop(std::fs::remove_dir_all(&clone));
    env.git(&["clone", "-q", ".", clone.to_str().unwrap()]);
    if committed > 0 {
        let mut command = env.command(&["reconcile", "--from-history", "HEAD", "--format", "json"]);
        let report = run(command.current_dir(&clone)).expect(0).json();
        assert_eq!(report["steps"].as_array().unwrap().len(), committed);
    }
    let mut command = env.command(&["reconcile", "ledger.json", "--format", "json"]);
    let report = run(command.current_dir(&clone)).json();
    let next = (committed < STEPS).then(|| id(committed + 1));
    assert_eq!(report["first_uncertified"], json!(next), "{report}");
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
    let env = begin(Who::User, if is_long() { Checks::BuildTestVet } else { Checks::BuildTest });
    for number in 1..=STEPS {
        // Before the edits.
        look_afresh(&env);
        first_file(&env, number, "first");
        // Between two files; then finished by the next process, or gone back from and done again.
        look_by_directory(&env);
        if number % 4 == 0 {
            call(&env, &["rollback", &id(number), "--ledger", "ledger.json"], &[0]);
            look_afresh(&env);
            first_file(&env, number, "second");
        }
        second_file(&env, number);
        // After the edits, before the check.
        look_by_directory(&env);
        match number % 6 {
            // After the check, before the record.
            0 => drop(env.checkrun(&["-q", "-c", &format!("go build ./p{number}")]).expect(0)),
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
pub(crate) fn is_kept(env: &Env, number: usize, text: &str) -> bool {
    let path = format!("p{number}/words.go");
    let wanted = first_text(number, text);
    if std::fs::read_to_string(env.repo(&path)).is_ok_and(|found| found == wanted) {
        return true;
    }
    let names = format!("refs/checkrun/partial/r-1/{}*", id(number));
    let kept = env.git(&["for-each-ref", "--format=%(refname)", &names]);
    kept.lines().any(|name| env.git(&["show", &format!("{name}:{path}")]) == wanted.trim_end())
}

/// Kills at random moments, and what was being done then.
struct Killer {
    dice: Dice,
    wanted: u64,
    kills: [u64; 3],
}

const CERTIFY: usize = 0;
const ROLLBACK: usize = 1;
const WRITE: usize = 2;

impl Killer {
    fn all(&self) -> u64 {
        self.kills.iter().sum()
    }

    /// One kill, within so long, unless there were enough; how long the command was left alone at most.
    fn strike(&mut self, env: &Env, what: usize, args: &[&str], most: Duration) -> Duration {
        let began = Instant::now();
        if self.all() < self.wanted {
            self.kills[what] += u64::from(kill_during(env, args, most, &mut self.dice));
        }
        began.elapsed()
    }
}

#[test]
fn killed_at_random_moments_nothing_is_lost_redone_or_skipped() {
    let is_long = is_long();
    let mut killer = Killer {
        dice: Dice(number_from("CHECKRUN_STORY_SEED", 7)),
        wanted: number_from("CHECKRUN_STORY_KILLS", if is_long { 200 } else { 20 }),
        kills: [0; 3],
    };
    let checks = if is_long { Checks::BuildTestVet } else { Checks::Build };
    let mut rounds = 0;
    while killer.all() < killer.wanted {
        let env = begin([Who::User, Who::Root][rounds % 2], checks);
        rounds += 1;
        for number in 1..=STEPS {
            step_under_fire(&env, number, &mut killer);
            // A short run ends with its last kill; a long one sees that round to the end too.
            if number == STEPS {
                end(&env);
            } else if !is_long && killer.all() >= killer.wanted {
                break;
            }
        }
    }
    let [certify, rollback, write] = killer.kills;
    say(&format!(
        "{rounds} rounds, killed: {certify} certify, {rollback} rollback, {write} reconcile --write"
    ));
}

fn step_under_fire(env: &Env, number: usize, killer: &mut Killer) {
    let step = id(number);
    let goes_back = ["rollback", &step, "--ledger", "ledger.json"];
    let certifies = ["certify", &step, "--ledger", "ledger.json", "--commit"];
    let writes = ["reconcile", "ledger.json", "--write", "--hypothesis", "half of it is missing"];
    let text = format!("half {}", killer.all());
    first_file(env, number, &text);
    if number % 3 == 1 {
        // What fails is run and written down.
        killer.strike(env, WRITE, &writes, Duration::from_millis(700));
        look_by_directory(env);
        killer.strike(env, WRITE, &writes, Duration::from_millis(300));
        look_by_directory(env);
        call(env, &writes, &[1]);
    }
    if number.is_multiple_of(3) {
        let began = Instant::now();
        call(env, &[&goes_back[..], &["--dry-run"]].concat(), &[0]);
        killer.strike(env, ROLLBACK, &goes_back, began.elapsed() * 2);
        assert!(is_kept(env, number, &text), "{text} is lost");
        look_afresh(env);
        call(env, &goes_back, &[0]);
        assert!(!env.repo(&format!("p{number}")).exists() && is_kept(env, number, &text));
        first_file(env, number, "again");
    }
    second_file(env, number);
    // The first kill is mostly while the check runs. Looking finishes the check, so the second one is after it.
    let most = killer.strike(env, CERTIFY, &certifies, Duration::from_millis(900));
    look_afresh(env);
    killer.strike(
        env,
        CERTIFY,
        &certifies,
        most.clamp(Duration::from_millis(100), Duration::from_millis(400)),
    );
    look_afresh(env);
    if number % 3 == 2 {
        killer.strike(env, WRITE, &writes, Duration::from_millis(300));
        // Whoever comes next goes by what does not hold. Certified once more, the step would get a second commit, for
        // what was written into the ledger since.
        if look_by_directory(env) == number {
            return;
        }
    }
    certify(env, number);
}
