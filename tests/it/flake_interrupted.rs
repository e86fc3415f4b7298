//! An experiment on a flaky check that somebody ends: what was found out by then is told, and no more than that.

use crate::flake::{interrupted, records};
use crate::support::{EVERYBODY, Env};
use serde_json::Value;

/// `flake --explain` on a shell script, ended as soon as it has come so far; json.
fn ended(env: &Env, options: &[&str], script: &str, is_time: &dyn Fn() -> bool, how: (&str, bool)) -> Value {
    let args = [&["flake", "--explain", "--format", "json"], options, &["--", "sh", "-c", script]].concat();
    let (signal, status) = if how.0 == "-TERM" { (15, 143) } else { (2, 130) };
    let told = interrupted(env, &args, is_time, how).expect(status).json();
    crate::schemas::holds("flake_explained", std::slice::from_ref(&told));
    assert_eq!(told["interrupted"], signal, "{told}");
    // At the full level there is not even one during a run.
    let left = std::fs::read_dir(env.path("cache/runs")).map_or(0, |folder| folder.count());
    assert_eq!(left, 0, "folders of runs are left");
    told
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

fn all(tally: &Value) -> u64 {
    number(&tally["passed"]) + number(&tally["failed"])
}

/// Whether a process of these words runs; `sleep` in a sandbox is seen from outside too.
fn is_asleep(mark: &str) -> bool {
    let words = format!("sleep\0{mark}\0");
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.into_iter()
        .any(|entry| std::fs::read(entry.path().join("cmdline")).is_ok_and(|it| it == words.as_bytes()))
}

#[test]
fn what_was_screened_by_then_is_told_with_its_counts_and_no_cause() {
    for who in EVERYBODY {
        for how in [("-INT", true), ("-INT", false), ("-TERM", false)] {
            let env = Env::of(who);
            // With one of the two masks it fails, with the other it never ends: eight of these are all that runs then.
            let script = "case $(umask) in 0077) exec sleep 600;; 0000) exit 1;; esac";
            let options = ["--axis", "umask", "--jobs", "8"];
            let told = ended(&env, &options, script, &|| records(&env) >= 25, how);
            assert_eq!((&told["cause"], &told["causes"]), (&Value::Null, &serde_json::json!([])), "{told}");
            assert!(told["fails"].is_null() && told["passes"].is_null(), "{told}");
            assert_eq!(told["during"], "screen");
            assert_eq!((number(&told["base"]["passed"]), number(&told["base"]["failed"])), (20, 0), "{told}");
            let [slow, failing] = &told["arms"].as_array().unwrap()[..] else { panic!("{told}") };
            assert_eq!((all(&slow["screened"]), &slow["suspect"]), (0, &false.into()), "{told}");
            assert_eq!((number(&failing["screened"]["passed"]), &failing["suspect"]), (0, &true.into()));
            assert!(failing["confirmed"].is_null() && failing["significant"] == false, "{told}");
            let runs = number(&told["runs"]);
            assert_eq!(20 + number(&failing["screened"]["failed"]), runs, "{told}");
            assert_eq!(
                u64::try_from(records(&env)).unwrap(),
                runs,
                "what ran is on record, and nothing else"
            );
        }
    }
}

#[test]
fn a_suspect_that_is_still_run_again_is_no_cause() {
    for who in EVERYBODY {
        let env = Env::of(who);
        // Twenty runs as it is and sixteen to screen by; the twenty to confirm by take ten seconds and more.
        let script = "test $(umask) = 0022 || test $(umask) = 0000 || { sleep 5; exit 1; }";
        let options = ["--axis", "umask", "--jobs", "8"];
        let told = ended(&env, &options, script, &|| records(&env) >= 38, ("-INT", true));
        assert_eq!((&told["cause"], &told["during"]), (&Value::Null, &"confirm".into()), "{told}");
        let [suspect, other] = &told["arms"].as_array().unwrap()[..] else { panic!("{told}") };
        assert_eq!((all(&other["screened"]), &other["suspect"]), (8, &false.into()), "{told}");
        assert_eq!((number(&suspect["screened"]["failed"]), &suspect["suspect"]), (8, &true.into()));
        assert!(suspect["chance"].is_null() && suspect["significant"] == false, "{told}");
        let (again, beside) = (all(&suspect["confirmed"]), all(&suspect["beside"]));
        assert!(beside > 0 && again + beside < 20, "{told}");
        // The runs beside count for the check as it is.
        assert_eq!(all(&told["base"]), 20 + beside, "{told}");
        assert_eq!(u64::try_from(records(&env)).unwrap(), number(&told["runs"]));
    }
}

#[test]
fn a_cause_that_was_confirmed_before_is_named() {
    let env = Env::new();
    let mark = format!("{}.25", 87_000 + std::process::id() % 1000);
    // Only to find the edge does the clock stand still; there it never ends.
    let script = format!(
        "now=$(date +%s) one=$(date +%s%N) other=$(date +%s%N); test $((other - one)) -gt 100000 || exec sleep {mark}
         test $now -lt 1893456000"
    );
    let options = ["--axis", "clock", "--jobs", "4"];
    let told = ended(&env, &options, &script, &|| is_asleep(&mark), ("-INT", true));
    assert_eq!((&told["cause"], &told["during"]), (&"date".into(), &"edges".into()), "{told}");
    assert_eq!(told["edges"], serde_json::json!([]), "{told}");
    assert!(told["fails"][0].as_str().unwrap().contains("--clock 20"), "{told}");
}

#[test]
fn people_are_told_what_was_going_on_and_what_is_suspected() {
    let env = Env::new();
    let args = ["flake", "--explain", "--jobs", "1", "--", "sleep", "1"];
    let told = interrupted(&env, &args, &|| records(&env) >= 2, ("-TERM", false)).expect(143);
    assert!(told.out().starts_with("interrupted by signal 15 before a cause was confirmed\n"), "{told:?}");
    for part in ["as it is: 0 of ", "while the check was run as it is", "turned: nothing; "] {
        assert!(told.out().contains(part), "{part}: {told:?}");
    }
    assert!(!told.out().contains("cause:") && !told.out().contains("no cause"), "{told:?}");
    let page = env.path("home/why.html");
    let html = page.to_str().unwrap();
    let script = "case $(umask) in 0077) exec sleep 600;; 0000) exit 1;; esac";
    let start = ["flake", "--explain", "--axis", "umask", "--jobs", "8", "--html", html];
    let args = [&start[..], &["--", "sh", "-c", script]].concat();
    // Those of the first session are on record too.
    let before = records(&env);
    let told = interrupted(&env, &args, &|| records(&env) >= before + 25, ("-INT", true)).expect(130);
    let lines = [
        "  as it is: 0 of 20 runs failed\n",
        "  interrupted by signal 2 while one input after the other was turned\n",
        "  suspected, not confirmed: --umask 000: ",
    ];
    for line in lines {
        assert!(told.out().contains(line), "{line}: {told:?}");
    }
    assert!(
        !told.out().contains("cause:") && !told.out().contains("before the check was started"),
        "{told:?}"
    );
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("Not settled") && page.contains("suspected, not confirmed: --umask 000"), "{page}");
}
