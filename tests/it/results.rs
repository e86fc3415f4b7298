//! Files of test results that a check leaves: counted where nothing was printed, told by name in `flake`, and harmless
//! whatever the check makes of them.

use crate::support::{EVERYBODY, Env};
use serde_json::{Value, json};

/// Both levels.
const LEVELS: [&[&str]; 2] = [&[], &["--policy", "landlock"]];

/// A file as runners write it.
fn junit(name: &str, cases: &str) -> String {
    format!(
        "import os\nos.makedirs('reports', exist_ok=True)\nopen('reports/{name}.xml', 'w').write('''<?xml version=\"1.0\"?>\
         <testsuites><testsuite name=\"s\">{cases}</testsuite></testsuites>''')\n"
    )
}

fn check(env: &Env, options: &[&str], program: &str) -> Value {
    let args =
        [&["--format", "json", "--no-cache"], options, &["--", "/usr/bin/python3", "-c", program]].concat();
    env.checkrun(&args).json()
}

const THREE: &str = "<testcase classname=\"a\" name=\"one\"/><testcase classname=\"a\" name=\"two\"><failure>no</failure></testcase>\
                     <testcase classname=\"a\" name=\"three\"><skipped/></testcase>";

#[test]
fn results_in_files_are_counted_and_can_only_make_a_verdict_worse() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("a", "").commit();
        for level in LEVELS {
            let program = junit("a", THREE);
            let result = check(&env, level, &program);
            assert_eq!(result["tests"], json!({"passed": 1, "failed": 1, "skipped": 1}), "{result}");
            // The exit status is the authority.
            assert_eq!(
                (&result["outcome"], &result["summary"]),
                (&"passed".into(), &"1 passed, 1 failed, 1 skipped".into())
            );
            let enough = check(&env, &[level, &["--require-tests=2"]].concat(), &program);
            assert_eq!(enough["outcome"], "passed", "{enough}");
            let few = check(&env, &[level, &["--require-tests=3"]].concat(), &program);
            assert_eq!(few["outcome"], "failed", "{few}");
            // What is printed is the same tests once more.
            let both = check(&env, level, &format!("{program}print('=== 2 passed in 0.1s ===')"));
            assert_eq!(both["tests"], json!({"passed": 2, "failed": 0, "skipped": 0}), "{both}");
        }
    }
}

#[test]
fn results_that_the_tree_itself_has_are_no_results_of_the_run() {
    let env = Env::new();
    env.write("reports/old.xml", "<testsuite><testcase name='old'/></testsuite>").commit();
    for level in LEVELS {
        for program in ["pass", "import os; os.utime('reports/old.xml')"] {
            let result = check(&env, level, program);
            assert_eq!(result["tests"], Value::Null, "{result}");
        }
    }
}

#[test]
fn hostile_results_lead_nowhere_and_cost_little() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("a", "").commit();
        let secret = env.path("home/secret.xml");
        std::fs::write(&secret, "<testsuite><testcase name='secret'/></testsuite>").unwrap();
        let good = "open('junit.xml', 'w').write('<testsuite><testcase name=\"a\"/></testsuite>')\n";
        let hostile = format!(
            "import os\nos.mkdir('reports')\nos.symlink('{secret}', 'reports/link.xml')\nos.symlink('/', 'test-results')\n\
             os.symlink('{secret}', 'junit-b.xml')\nos.mkfifo('reports/pipe.xml')\nos.mkdir('reports/folder.xml')\n\
             os.truncate(os.open('reports/huge.xml', os.O_RDWR | os.O_CREAT), 1 << 31)\n\
             open('reports/bomb.xml', 'w').write('<!DOCTYPE a [<!ENTITY x \"' + 'x' * 99999 + '\">]><testsuite><testcase name=\"' + '&x;' * 99999 + '\">')\n\
             open('reports/deep.xml', 'w').write('<testsuite>' + '<testcase>' * 99999)\n\
             open('reports/bytes.xml', 'wb').write(bytes(range(256)) * 999 + b'<testsuite><testcase name=')\n\
             for number in range(2500): open(f'reports/n{{number}}.xml', 'w')\n\
             open('reports/mine.xml', 'w').close(); os.chmod('reports/mine.xml', 0)\n",
            secret = secret.display()
        );
        for level in LEVELS {
            let result = check(&env, level, &format!("{hostile}{good}"));
            assert_eq!(result["outcome"], "passed", "{result}");
            assert_eq!(result["tests"], json!({"passed": 1, "failed": 0, "skipped": 0}), "{result}");
        }
        // A folder without end, and one that may not be entered.
        let endless = "import os\nos.mkdir('reports')\nos.chdir('reports')\nfor _ in range(300):\n    os.mkdir('d'); os.chdir('d')\n";
        assert_eq!(check(&env, &[], endless)["outcome"], "passed");
        let closed = format!("{}os.chmod('reports', 0)", junit("a", THREE));
        assert_eq!(check(&env, &[], &closed)["tests"], Value::Null);
    }
}

#[test]
fn each_test_in_a_file_is_known_by_name_when_a_check_is_repeated() {
    let env = Env::new();
    let cases = "<testcase classname=\"a\" name=\"always\"/><testcase classname=\"a\" name=\"sometimes\">' + ('' if \
                 os.urandom(1)[0] < 128 else '<failure/>') + '</testcase>";
    let program = junit("a", cases).replace("'''", "'");
    env.write("suite.py", program).commit();
    let told = env
        .checkrun(&["flake", "--format", "json", "--runs", "24", "--", "/usr/bin/python3", "suite.py"])
        .json();
    assert_eq!(told["tests"]["seen"], 2, "{told}");
    assert_eq!(told["tests"]["list"][0]["id"], "a::sometimes", "{told}");
    assert_eq!(told["tests"]["list"][0]["verdict"], "flaky", "{told}");
}

#[test]
fn a_runner_names_its_own_files() {
    let env = Env::new();
    std::fs::create_dir_all(env.path("home/.config/checkrun/runners")).unwrap();
    let runner = |results: &str| {
        let text = format!("format = 1\ndescription = \"d\"\nserves = [\"frob\"]\nresults = [{results}]\n");
        std::fs::write(env.path("home/.config/checkrun/runners/frob.toml"), text).unwrap();
    };
    env.write("m/a", "").commit();
    runner("\"out/*.xml\"");
    let write = "mkdir out n; echo '<testsuite><testcase name=\"a\"/></testsuite>' | tee out/a.xml >n/a.xml";
    let frob = |extra: &[&str]| {
        let args = [&["--format", "json", "--runner", "frob"], extra, &["--", "sh", "-c", write]].concat();
        env.checkrun(&args)
    };
    assert_eq!(frob(&[]).json()["tests"]["passed"], 1);
    assert_eq!(frob(&["--cwd", "m"]).json()["tests"]["passed"], 1);
    runner("\"*/a.xml\"");
    assert_eq!(frob(&[]).json()["tests"]["passed"], 2);
    runner("\"../a.xml\"");
    drop(frob(&[]).refused(&["results", "`../a.xml`"]));
}
