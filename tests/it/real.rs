//! Real projects under check, as they are published: a Go module, a Python package, a C library and a crate. What they
//! are and where they come from is in `.ci/tools`, which puts them into `target/tools`; nothing here is downloaded.

use crate::support::{EVERYBODY, Env, Output, Who};
use serde_json::Value;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A piece that `.ci/tools` provides.
pub(crate) fn tool(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools").join(name);
    assert!(path.is_dir(), "{} is not there; `bash .ci/tools` provides it", path.display());
    path
}

/// A piece at a place that an ordinary user can reach too: copied once where the repository lies in a closed folder.
pub(crate) fn open_tool(name: &str) -> PathBuf {
    let path = tool(name);
    if path.ancestors().all(|path| std::fs::metadata(path).is_ok_and(|meta| meta.mode() & 0o005 == 0o005)) {
        return path;
    }
    let stamp = std::fs::metadata(&path).expect("the piece").ino();
    let folder = std::env::temp_dir().join(format!("checkrun-it-tools-{stamp}"));
    let copy = folder.join(name);
    if !copy.exists() {
        std::fs::create_dir_all(&folder).expect("mkdir");
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).expect("chmod");
        let own = folder.join(format!("new-{}", std::process::id()));
        let copied = Command::new("cp").arg("-a").arg(&path).arg(&own).status().expect("cp");
        assert!(copied.success(), "cannot copy {}", path.display());
        // Another test may have been faster; its copy is as good.
        if std::fs::rename(&own, &copy).is_err() {
            std::fs::remove_dir_all(&own).expect("the copy that nobody needs");
        }
    }
    copy
}

/// Puts a folder's files into the repository and commits them.
pub(crate) fn plant(env: &Env, folder: &Path) {
    plant_below(env, folder, "");
    env.commit();
}

fn plant_below(env: &Env, folder: &Path, below: &str) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let name = format!("{below}{}", entry.file_name().to_str().expect("a UTF-8 name"));
        if entry.file_type().expect("its type").is_dir() {
            plant_below(env, &entry.path(), &format!("{name}/"));
        } else {
            env.write(&name, std::fs::read(entry.path()).expect("a file"));
            if entry.metadata().expect("its mode").mode() & 0o100 != 0 {
                env.executable(&name);
            }
        }
    }
}

/// Replaces the one place where a file of the repository says `old`.
fn edit(env: &Env, name: &str, old: &str, new: &str) {
    let text = std::fs::read_to_string(env.repo(name)).expect("a text");
    assert_eq!(text.matches(old).count(), 1, "`{old}` in {name}");
    env.write(name, text.replace(old, new));
}

/// All but the last line, which is checkrun's own and says how long it took.
fn without_verdict(text: &str) -> &str {
    text.trim_end().rsplit_once('\n').map_or("", |(before, _)| before)
}

/// Asks the same again, insists on an answer from the cache, and on the same output as before.
fn answered(env: &Env, args: &[&str], first: &Output) {
    let again = env.checkrun(args).expect(first.status);
    assert!(again.err().contains("(cached, exact)"), "{}", again.err());
    assert_eq!(again.out(), first.out());
    assert_eq!(without_verdict(&again.err()), without_verdict(&first.err()));
}

/// The result object of a check that is on record.
fn result(env: &Env, args: &[&str]) -> Value {
    let mut all = vec!["--format", "json", "--cached-only"];
    all.extend(args);
    env.checkrun(&all).json()
}

#[test]
fn a_go_modules_tests_run_once_and_are_then_answered() {
    let go = open_tool("go");
    for who in EVERYBODY {
        let path = format!("{}/bin:/usr/bin:/bin", go.display());
        let env = Env::of(who).var("PATH", path);
        plant(&env, &tool("go-shellquote"));
        let args = ["--", "go", "test", "./..."];
        let first = env.checkrun(&args).expect(0);
        assert!(first.out().starts_with("ok  \tgithub.com/kballard/go-shellquote\t"), "{}", first.out());
        assert!(first.err().contains("passed (ran)"), "{}", first.err());
        answered(&env, &args, &first);
        let result = result(&env, &args);
        assert_eq!(result["runner"]["name"], "go");
        let toolchain = result["runner"]["toolchain"].as_str().expect("a toolchain");
        assert!(toolchain.starts_with("go1.23.4 linux/"), "{toolchain}");
        // Written as one string it is the same check.
        let string = ["--format", "json", "--cached-only", "-c", "go test ./..."];
        assert_eq!(env.checkrun(&string).expect(0).json()["key"], result["key"]);
        // Another tree is another check, whatever the change does.
        edit(&env, "doc.go", "package shellquote", "package shellquote // edited");
        let mut other = vec!["--cached-only"];
        other.extend(args);
        drop(env.checkrun(&other).refused(&["no earlier result answers"]));
    }
}

#[test]
fn a_python_packages_own_suite_passes_and_is_then_answered() {
    for who in EVERYBODY {
        let env = Env::of(who);
        plant(&env, &tool("idna"));
        let args = ["--", "/usr/bin/python3", "-m", "unittest"];
        let first = env.checkrun(&args).expect(0);
        assert!(first.err().contains("Ran 6256 tests"), "{}", first.err());
        answered(&env, &args, &first);
        let result = result(&env, &args);
        assert_eq!(result["outcome"], "passed");
        assert_eq!(result["output_bytes"], without_verdict(&first.err()).len() + 1);
    }
}

/// What a C library asks of its place: a configure script that tries the compiler, make and its clock, new programs
/// that are executed, temporary files.
const MAKE_CHECK: [&str; 2] = ["-c", "./configure && make check"];

#[test]
fn a_c_librarys_make_check_passes_and_is_then_answered() {
    let env = Env::of(Who::User);
    plant(&env, &tool("zlib"));
    let first = env.checkrun(&MAKE_CHECK).expect(0);
    assert!(first.out().contains("*** zlib test OK ***"), "{}", first.out());
    assert!(first.out().contains("*** zlib 64-bit test OK ***"), "{}", first.out());
    answered(&env, &MAKE_CHECK, &first);
}

#[test]
fn a_broken_c_library_fails_with_makes_own_status() {
    let env = Env::of(Who::Root);
    plant(&env, &tool("zlib"));
    edit(&env, "compress.c", "return err == Z_STREAM_END ? Z_OK : err;", "return Z_BUF_ERROR;");
    let first = env.checkrun(&MAKE_CHECK).expect(2);
    assert!(first.out().contains("*** zlib test FAILED ***"), "{}", first.out());
    answered(&env, &MAKE_CHECK, &first);
    assert_eq!(result(&env, &MAKE_CHECK)["outcome"], "failed");
}

/// The crate's own code as a crate: a file of this repository that needs no other, with its unit tests. The toolchain
/// is the one that built this test. It may lie in its owner's closed home, so the owner is who asks.
#[test]
fn this_repositorys_own_unit_tests_run_under_cargo_and_are_counted() {
    let rustc = Command::new("rustc").args(["--print", "sysroot"]).output().expect("rustc");
    let sysroot = String::from_utf8(rustc.stdout).expect("a path");
    let env = Env::of(Who::Root).var("PATH", format!("{}/bin:/usr/bin:/bin", sysroot.trim()));
    let words = include_str!("../../src/cli/words.rs");
    env.write("src/words.rs", words).write("src/lib.rs", "pub mod words;\n");
    env.write("Cargo.toml", "[package]\nname = \"words\"\nversion = \"0.1.0\"\nedition = \"2024\"\n")
        .commit();
    let args = ["--require-tests", "--", "cargo", "test", "--offline"];
    let first = env.checkrun(&args).expect(0);
    answered(&env, &args, &first);
    let result = result(&env, &args);
    assert_eq!(result["runner"]["name"], "rust");
    assert_eq!(result["tests"]["passed"], words.matches("#[test]").count());
    assert_eq!(result["tests"]["failed"], 0);
}

/// Each run compiles Go's standard library anew, so there are few of them, with many attempts.
#[test]
fn each_go_test_of_a_flaky_check_has_counts_of_its_own() {
    let go = open_tool("go");
    let env = Env::of(Who::User).var("PATH", format!("{}/bin:/usr/bin:/bin", go.display()));
    env.write("go.mod", "module example.org/m\n\ngo 1.20\n");
    env.write(
        "m_test.go",
        "package m\n\nimport (\n\t\"crypto/rand\"\n\t\"testing\"\n)\n\nfunc TestA(t *testing.T) {}\n\n\
         func TestB(t *testing.T) {\n\tb := make([]byte, 1)\n\trand.Read(b)\n\tif b[0] < 128 {\n\t\tt.Fatal(\"low\")\n\t}\n}\n",
    );
    let args = [
        "flake",
        "--format",
        "json",
        "--runs",
        "2",
        "--jobs",
        "1",
        "--",
        "go",
        "test",
        "-json",
        "-count=12",
        "./...",
    ];
    let told = env.checkrun(&args).json();
    assert_eq!(
        (told["tests"]["seen"].as_u64(), told["tests"]["stable"].as_u64()),
        (Some(2), Some(1)),
        "{told}"
    );
    assert_eq!(told["tests"]["list"][0]["id"], "example.org/m.TestB", "{told}");
    assert!(told["tests"]["list"][0]["retried"].as_u64() > Some(0), "{told}");
}

// Version stamping that fails a build where `.git` is missing or odd.
#[test]
fn go_builds_with_its_default_flags_with_and_without_a_repository() {
    let go = open_tool("go");
    let env = Env::of(Who::User).var("PATH", format!("{}/bin:/usr/bin:/bin", go.display()));
    env.write("go.mod", "module example.org/stamp\n\ngo 1.20\n");
    env.write("main.go", "package main\n\nfunc main() { print(\"built\\n\") }\n");
    env.commit();
    let policies = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies");
    let text = std::fs::read_to_string(policies.join("hermetic.toml")).expect("a policy");
    let shown = text.replace("view = \"none\"", "view = \"synthetic\"\nwhy = \"version stamps\"");
    assert_ne!(text, shown);
    std::fs::write(env.path("home/policy.toml"), shown).expect("written");
    let policy = env.path("home/policy.toml");
    // The second build finds its packages compiled.
    let script =
        "build() { go build -o /tmp/stamp . && /tmp/stamp 2>&1 && go version -m /tmp/stamp | grep vcs.; }
                  build; rm -rf .git; build; true";
    let policy = policy.to_str().expect("UTF-8");
    let args = ["--runner", "go", "--policy", policy, "--tree", "HEAD", "--", "sh", "-c", script];
    let seen = env.checkrun(&args).expect(0);
    let out = seen.out();
    let lines: Vec<&str> =
        out.lines().map(str::trim).filter(|line| !line.contains("vcs.revision=")).collect();
    let stamped = ["build\tvcs=git", "build\tvcs.time=2025-12-31T23:00:00Z", "build\tvcs.modified=false"];
    assert_eq!(lines, [&["built"], &stamped[..], &["built"]].concat(), "{}", seen.err());
}
