//! Guard `inputs` on real checks of five languages, in a repository that changes at random, one entry at a time: no
//! answer from the record may ever be another than that of a fresh run, and nearly all that a check does not depend on
//! must be answered. 30 changes in all as a rule, 300 with `CHECKRUN_LONG` set.

use crate::real::open_tool;
use crate::support::probes::must;
use crate::support::{Env, Who, say};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Go's build cache is in the repository: compiling the standard library anew would take half a minute each time.
const GO_CACHE: &str = "go-cache/";

/// A small generator with a stated seed, so that a failure can be shown again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let wide = u128::from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)) * limit as u128;
        usize::try_from(wide >> 64).expect("below the limit")
    }
}

/// Files that no check looks at, so that there are more than forty in all.
fn strangers(env: &Env) {
    for index in 0..36 {
        env.write(&format!("docs/page{index}.md"), format!("page {index}\n"));
    }
    env.write("tools/notes/one.txt", "1\n").write("tools/notes/two.txt", "2\n");
}

fn python(env: &Env) {
    for index in 0..20 {
        let import = if index > 0 && index % 3 == 0 {
            format!("from pkg.m{} import value as base\n", index - 1)
        } else {
            "base = 1\n".to_owned()
        };
        env.write(&format!("pkg/m{index}.py"), format!("{import}value = base + {index}\n"));
    }
    env.write("pkg/__init__.py", "");
    env.write("data/table.txt", "1 2 3\n");
    env.write(
        "test_pkg.py",
        "import unittest, os\nfrom pkg import m3, m9\nclass T(unittest.TestCase):\n    def test_values(self):\n        self.assertEqual(m3.value + m9.value, 3 + 3 + 9 + 9)\n    def test_data(self):\n        self.assertEqual(sum(map(int, open('data/table.txt').read().split())), 6)\n    def test_folder(self):\n        self.assertNotIn('extra', os.listdir('data'))\n",
    );
}

fn c(env: &Env) {
    for index in 0..5 {
        env.write(
            &format!("c/part{index}.c"),
            format!("#include \"part.h\"\nint part{index}(void) {{ return BASE + {index}; }}\n"),
        );
    }
    env.write(
        "c/part.h",
        "#define BASE 1\nint part0(void), part1(void), part2(void), part3(void), part4(void);\n",
    );
    env.write("c/main.c", "#include \"part.h\"\nint main(void) { return part0() + part1() + part2() + part3() + part4() == 15 ? 0 : 1; }\n");
    env.write(
        "c/Makefile",
        "OBJECTS = main.o part0.o part1.o part2.o part3.o part4.o\ncheck: prog\n\t./prog\nprog: $(OBJECTS)\n\tcc -o $@ $(OBJECTS)\n%.o: %.c part.h\n\tcc -c -o $@ $<\n",
    );
}

/// A module with a package under test, one that it uses, and six that it does not; with a build cache that holds the
/// standard library, made once and kept for other tests.
fn go(env: &Env) {
    env.write("go.mod", "module example.org/m\n\ngo 1.20\n");
    env.write("calc/calc.go", "package calc\n\nimport \"example.org/m/base\"\n\nfunc Sum(a, b int) int { return a + b + base.Zero }\n");
    env.write("calc/calc_test.go", "package calc\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestSum(t *testing.T) {\n\tdata, err := os.ReadFile(\"testdata/in\")\n\tif err != nil || len(data) != 2 || Sum(1, 2) != 3 {\n\t\tt.Fatal(string(data), err)\n\t}\n}\n");
    env.write("calc/testdata/in", "1\n");
    env.write("base/base.go", "package base\n\nconst Zero = 0\n");
    for index in 0..6 {
        env.write(&format!("more{index}/more.go"), format!("package more{index}\n\nconst Value = {index}\n"));
    }
    let warm = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache-inputs");
    let mut first = Command::new(open_tool("go").join("bin/go"));
    first.args(["test", "-vet=off", "-count=1", "./calc"]).current_dir(env.path("repo")).env_remove("GOROOT");
    for (name, value) in GO_SETTINGS {
        first.env(name, value);
    }
    must(first.env("GOCACHE", &warm).env("HOME", env.path("home")));
    must(Command::new("cp").arg("-a").arg(&warm).arg(env.repo(GO_CACHE.trim_end_matches('/'))));
    // Whose the repository is, its cache is too.
    let owner = format!("--reference={}", env.repo("go.mod").display());
    must(Command::new("chown").arg("-R").arg(owner).arg(env.repo(GO_CACHE)));
}

const GO_SETTINGS: [(&str, &str); 3] =
    [("CGO_ENABLED", "0"), ("GOFLAGS", "-buildvcs=false"), ("GOTOOLCHAIN", "local")];

fn rust(env: &Env) {
    env.write("crate/Cargo.toml", "[package]\nname = \"sums\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    env.write("crate/Cargo.lock", "version = 3\n\n[[package]]\nname = \"sums\"\nversion = \"0.1.0\"\n");
    env.write("crate/src/lib.rs", "mod one;\nmod two;\n#[test]\nfn adds() { assert_eq!(one::ONE + two::TWO, 3); assert_eq!(include_str!(\"text\"), \"text\\n\"); }\n");
    env.write("crate/src/one.rs", "pub const ONE: u32 = 1;\n")
        .write("crate/src/two.rs", "pub const TWO: u32 = 2;\n");
    env.write("crate/src/text", "text\n").write("crate/src/unused.rs", "pub const THREE: u32 = 3;\n");
}

fn node(env: &Env) {
    env.write("web/package.json", "{\"name\": \"web\", \"version\": \"1.0.0\"}\n");
    env.write(
        "web/lib/sum.js",
        "const { zero } = require('./zero');\nmodule.exports = (a, b) => a + b + zero;\n",
    );
    env.write("web/lib/zero/index.js", "exports.zero = 0;\n");
    env.write("web/lib/unused.js", "module.exports = 1;\n");
    env.write("web/sum.test.js", "const test = require('node:test');\nconst assert = require('node:assert');\nconst sum = require('./lib/sum');\nconst table = require('./table.json');\ntest('adds', () => assert.strictEqual(sum(1, 2), table.sum));\n");
    env.write("web/table.json", "{\"sum\": 3}\n");
}

/// Files of the working tree, as git knows them, without those that somebody else's tool made.
fn files(env: &Env) -> Vec<String> {
    let all = env.git(&["ls-files"]);
    all.lines().filter(|file| !file.starts_with(GO_CACHE)).map(str::to_owned).collect()
}

/// Changes one entry at random and says what it did.
fn mutate(env: &Env, dice: &mut Dice, files: &[String]) -> (String, BTreeSet<String>) {
    let file = files[dice.below(files.len())].clone();
    let path = env.repo(&file);
    let beside = |name: &str| -> (String, PathBuf) {
        let folder = Path::new(&file).parent().map(|folder| folder.join(name)).unwrap_or_default();
        (folder.display().to_string(), env.repo(&folder.display().to_string()))
    };
    let what = dice.below(6);
    let mut touched = BTreeSet::from([file.clone()]);
    let said = match what {
        0 => {
            let mut text = std::fs::read(&path).expect("read");
            text.extend_from_slice(if dice.below(2) == 0 { b"\n" } else { b"\nboom(\n" });
            std::fs::write(&path, text).expect("write");
            "changed"
        }
        1 => {
            std::fs::remove_file(&path).expect("rm");
            "deleted"
        }
        2 => {
            let (name, to) = beside("extra");
            std::fs::write(to, "extra\n").expect("write");
            touched = BTreeSet::from([name]);
            "added extra beside"
        }
        3 => {
            let (name, to) = beside("renamed");
            std::fs::rename(&path, to).expect("mv");
            touched.insert(name);
            "renamed"
        }
        4 => {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("chmod");
            "made executable"
        }
        _ => {
            std::fs::remove_file(&path).expect("rm");
            std::os::unix::fs::symlink("/nowhere", &path).expect("symlink");
            "made a link"
        }
    };
    (format!("{said} {file}"), touched)
}

/// A check, and how many changes it is tried with.
struct Trial<'t> {
    name: &'t str,
    env: Env,
    check: &'t [&'t str],
    rounds: usize,
}

/// Changes the repository again and again and compares each answer with a fresh run.
fn try_mutations(trial: &Trial<'_>) {
    let Trial { name, env, check, rounds } = trial;
    env.commit();
    let files = files(env);
    assert!(files.len() >= 40, "{}", files.len());
    let rounds = if std::env::var_os("CHECKRUN_LONG").is_some() { 60 } else { *rounds };
    let mut dice = Dice(0x5eed_0001);
    let (mut beside, mut answered, mut hits) = (0, 0, 0);
    let run = |extra: &[&str]| env.checkrun(&[&["--format", "json"], extra, check].concat());
    drop(run(&[]).expect(0));
    let told = env.checkrun(&[&["--format", "json", "inputs"], *check].concat()).expect(0).json();
    let list = |name: &str| -> Vec<String> {
        let paths = told["tree"][name].as_array().into_iter().flatten();
        paths.filter_map(|path| path.as_str().map(str::to_owned)).collect()
    };
    let (read, listed, there, absent) = (list("read"), list("listed"), list("there"), list("absent"));
    // Every other change is of a file that is not plainly a stranger's.
    let own: Vec<String> = files.iter().filter(|file| !file.starts_with("docs/")).cloned().collect();
    for round in 0..rounds {
        let among = if round % 2 == 0 { &own } else { &files };
        let (said, touched) = mutate(env, &mut dice, among);
        let cached = run(&[]);
        let is_hit = cached.json()["cache"] == "hit";
        // What was run just now is a fresh run already.
        let fresh = if is_hit { run(&["--no-cache"]).status } else { cached.status };
        assert_eq!(cached.status, fresh, "{name}: {said}\n{}", cached.out());
        hits += usize::from(is_hit);
        let outside = touched.iter().all(|path| {
            let folder =
                Path::new(path).parent().map_or_else(String::new, |folder| folder.display().to_string());
            let folder = if folder.is_empty() { ".".to_owned() } else { folder };
            // A folder that was read to the last file counts as one entry.
            let above = || Path::new(path).ancestors().map(|above| above.display().to_string());
            ![&read, &there, &absent].iter().any(|group| group.contains(path))
                && !above().any(|above| read.contains(&above))
                && !listed.contains(&folder)
        });
        if outside {
            beside += 1;
            answered += usize::from(is_hit);
        }
        env.git(&["clean", "-qfdx"]);
        env.git(&["checkout", "-q", "--", "."]);
    }
    say(&format!("{name}: {rounds} changes, {hits} answered; {answered} of {beside} beside the inputs"));
    assert!(
        beside > 0 && answered * 10 >= beside * 9,
        "{name}: {answered} of {beside} beside the inputs were answered"
    );
}

#[test]
fn no_change_of_a_python_package_is_answered_wrongly() {
    let env = Env::new();
    python(&env);
    strangers(&env);
    let check = ["--", "/usr/bin/python3", "-B", "-m", "unittest", "-q", "test_pkg"];
    try_mutations(&Trial { name: "Python", env, check: &check, rounds: 8 });
}

#[test]
fn no_change_of_a_c_project_is_answered_wrongly() {
    let env = Env::new();
    c(&env);
    strangers(&env);
    let check = ["--cwd", "c", "--", "make", "-s", "check"];
    try_mutations(&Trial { name: "C", env, check: &check, rounds: 7 });
}

#[test]
fn no_change_of_a_go_package_is_answered_wrongly() {
    let env = Env::new().var("PATH", format!("{}/bin:/usr/bin:/bin", open_tool("go").display()));
    go(&env);
    strangers(&env);
    let settings: Vec<String> = GO_SETTINGS.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut check = vec!["--env", "GOCACHE=/src/go-cache"];
    for setting in &settings {
        check.extend(["--env", setting]);
    }
    check.extend(["--", "go", "test", "-vet=off", "-count=1", "./calc"]);
    try_mutations(&Trial { name: "Go", env, check: &check, rounds: 4 });
}

/// The toolchain is the one that built this test. It may lie in its owner's closed home, so the owner is who asks.
#[test]
fn no_change_of_a_cargo_crate_is_answered_wrongly() {
    let rustc = Command::new("rustc").args(["--print", "sysroot"]).output().expect("rustc");
    let sysroot = String::from_utf8(rustc.stdout).expect("a path");
    let env = Env::of(Who::Root).var("PATH", format!("{}/bin:/usr/bin:/bin", sysroot.trim()));
    rust(&env);
    strangers(&env);
    let check = ["--cwd", "crate", "--", "cargo", "test", "-q", "--offline", "--lib"];
    try_mutations(&Trial { name: "Rust", env, check: &check, rounds: 5 });
}

#[test]
fn no_change_of_a_node_package_is_answered_wrongly() {
    let env = Env::new();
    node(&env);
    strangers(&env);
    let check = ["--cwd", "web", "--", "node", "--test", "sum.test.js"];
    try_mutations(&Trial { name: "Node", env, check: &check, rounds: 6 });
}
