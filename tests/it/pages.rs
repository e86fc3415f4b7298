//! What pages of CI systems show: annotations and step summaries for GitHub's runner, JUnit XML for everybody else's.

use crate::support::Env;
use std::process::Command;

// actions/toolkit, CVE-2020-15228: what a program prints is taken as commands of the workflow.
#[test]
fn githubs_runner_gets_annotations_and_takes_no_command_from_a_check() {
    let env = Env::new();
    env.write("f", "").commit();
    let summary = env.path("home/summary.md");
    let env = env.var("GITHUB_STEP_SUMMARY", summary.to_str().expect("UTF-8"));
    let script = "echo '::set-env name=PATH::/tmp'; echo '::error::x' >&2; printf 'no end'; exit 3";
    for how in ["(ran)", "(cached, exact)"] {
        let output = env.checkrun(&["--format", "github", "--", "sh", "-c", script]).expect(3);
        let out = output.out();
        let lines: Vec<&str> = out.lines().collect();
        let token = lines[0].strip_prefix("::stop-commands::").expect("commands are stopped first");
        assert!(token.len() == 32 && !out[20..].starts_with(token), "{out}");
        assert_eq!(
            lines.iter().position(|line| *line == format!("::{token}::")),
            Some(lines.len() - 2),
            "{out}"
        );
        let between = lines[1..lines.len() - 2].join("\n");
        assert!(between.contains("::set-env name=PATH::/tmp") && between.contains("no end"), "{out}");
        let last = lines[lines.len() - 1];
        assert!(last.starts_with("::error title=sh -c ") && last.contains(how), "{last}");
        assert!(last.contains("failed, exit 3") && last.contains("%0A"), "{last}");
        assert!(!output.err().contains("::"), "{}", output.err());
    }
    // Both runs added to the file, and so does a check that passes.
    drop(env.checkrun(&["--format", "github", "--", "true"]).expect(0));
    let text = std::fs::read_to_string(&summary).expect("a summary");
    assert_eq!((text.matches("### ❌").count(), text.matches("### ✅ ` true `").count()), (2, 1), "{text}");
    // Other formats leave the file alone.
    drop(env.checkrun(&["--", "true"]).expect(0));
    assert_eq!(std::fs::read_to_string(&summary).expect("a summary"), text);
    // Tokens are new each time.
    let first = |env: &Env| {
        env.checkrun(&["--format", "github", "--", "sh", "-c", script])
            .out()
            .lines()
            .next()
            .map(str::to_owned)
    };
    assert_ne!(first(&env), first(&env));
}

#[test]
fn a_junit_report_is_xml_whatever_a_check_prints() {
    let env = Env::new();
    env.write("f", "").commit();
    let file = env.path("home/report.xml");
    let to = file.to_str().expect("UTF-8");
    let read = |script: &str| {
        let program = "import sys, xml.etree.ElementTree as t
suite = t.parse(sys.argv[1]).getroot().find('testsuite'); case = suite.find('testcase')
print(suite.get('failures'), suite.get('errors'), case.get('name'), [(c.tag, c.get('type'), c.text) for c in case])";
        drop(env.checkrun(&["--junit", to, "--timeout", "1s", "--", "sh", "-c", script]));
        let output = Command::new("/usr/bin/python3").args(["-c", program, to]).output().expect("python3");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    assert_eq!(read("true"), "0 0 sh -c true []\n");
    let failed = read("printf '<a>&\\033[1m\\001 ]]>\\n'; exit 1");
    // Colours and control characters are no part of a tail.
    assert!(
        failed.starts_with("1 0 ") && failed.contains("('failure', 'failed', '<a>& ]]>\\n')"),
        "{failed}"
    );
    let late = read("sleep 9");
    assert!(late.starts_with("0 1 ") && late.contains("('error', 'timed_out'"), "{late}");
    drop(env.checkrun(&["--junit", "/no/such/folder/x", "--", "true"]).refused(&["/no/such/folder/x"]));
}
