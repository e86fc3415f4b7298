//! Published projects whose tests hold at some dates only, and debuggers and detectors of races at work on Go programs: all
//! under the fixed clock. Where the pieces come from is in `.ci/tools`.

use crate::real::{open_tool, plant, tool};
use crate::support::{EVERYBODY, Env, Who};

fn suite_at(env: &Env, year: u32, command: &[&str]) -> (i32, String) {
    let clock = format!("{year}-06-01T00:00:00Z");
    let output = env.checkrun(&[&["--clock", &clock, "--env", "PYTHONPATH=/src", "--"], command].concat());
    (output.status, output.out() + &output.err())
}

// vacanza/holidays: tests that counted on the current year.
#[test]
fn tests_of_a_calendar_pass_in_their_own_year_and_fail_in_the_next() {
    let env = Env::of(Who::User);
    plant(&env, &tool("holidays"));
    let command = ["/usr/bin/python3", "-m", "unittest", "tests"];
    let (status, text) = suite_at(&env, 2019, &command);
    assert!(status == 0 && text.contains("Ran 456 tests"), "{text}");
    let (status, text) = suite_at(&env, 2020, &command);
    assert!(status == 1 && text.contains("FAILED (failures=3)"), "{text}");
}

// arthurdejong/python-stdnum: birth dates in numbers that come to lie in the future or past.
#[test]
fn doctests_of_personal_numbers_pass_in_2026_and_fail_in_2041() {
    for who in EVERYBODY {
        let env = Env::of(who);
        plant(&env, &tool("python-stdnum"));
        let script = "import doctest, glob, sys
options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
failed = [f for f in sorted(glob.glob('tests/*.doctest'))
          if doctest.testfile(f, module_relative=False, optionflags=options).failed]
print('failed', failed); sys.exit(bool(failed))";
        let command = ["/usr/bin/python3", "-c", script];
        let (status, text) = suite_at(&env, 2026, &command);
        assert!(status == 0 && text.contains("failed []"), "{text}");
        let (status, text) = suite_at(&env, 2041, &command);
        assert!(status == 1 && text.contains("failed ['tests/test_no_fodselsnummer.doctest'"), "{text}");
    }
}

const GO_TEST: &str = "package main

import (
	\"sync\"
	\"testing\"
	\"time\"
)

func TestClock(t *testing.T) {
	if year := time.Now().UTC().Year(); year != 2000 {
		t.Fatal(year)
	}
	var group sync.WaitGroup
	var lock sync.Mutex
	count := 0
	for i := 0; i < 50; i++ {
		group.Add(1)
		go func() { lock.Lock(); count++; lock.Unlock(); group.Done() }()
	}
	group.Wait()
	time.Sleep(10 * time.Millisecond)
}
";

fn go_program(env: &Env) {
    env.write("go.mod", "module example.org/m\n\ngo 1.20\n");
    env.write("m_test.go", GO_TEST);
    env.write(
        "main.go",
        "package main\n\nimport (\n\t\"fmt\"\n\t\"time\"\n)\n\nfunc main() {\n\tyear := time.Now().UTC().Year()\n\tfmt.Println(\"year\", year)\n}\n",
    );
    env.commit();
}

fn with_go() -> Env {
    let env = Env::of(Who::User).var("PATH", format!("{}/bin:/usr/bin:/bin", open_tool("go").display()));
    go_program(&env);
    env
}

// The race detector maps terabytes and rewrites every access.
#[test]
fn gos_race_detector_runs_under_the_fixed_clock() {
    let args =
        ["--clock", "2000-01-01T00:00:00Z", "--env", "CGO_ENABLED=1", "--", "go", "test", "-race", "./..."];
    let output = with_go().checkrun(&args).expect(0);
    assert!(output.out().starts_with("ok  \texample.org/m\t"), "{}", output.out());
}

#[test]
fn delve_stops_a_go_program_and_shows_the_fixed_year() {
    let script = "go build -gcflags='all=-N -l' -o /tmp/m . && \
                  printf 'break main.go:10\ncontinue\nprint year\ncontinue\nquit\n' > /tmp/s && \
                  dlv exec --check-go-version=false --allow-non-terminal-interactive=true --init /tmp/s /tmp/m";
    let args = ["--runner", "go", "--clock", "2000-01-01T00:00:00Z", "--", "sh", "-c", script];
    let output = with_go().checkrun(&args).expect(0);
    assert!(output.out().contains("\n2000\n"), "{}{}", output.out(), output.err());
    assert!(output.out().contains("year 2000"), "{}{}", output.out(), output.err());
}
