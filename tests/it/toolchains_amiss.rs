//! Toolchains that are not as a check needs them: missing, moved, too old, behind shims that lead nowhere; packages that
//! nobody prepared; commands that two runners claim. Each is told plainly, with what to do.

use crate::real::open_tool;
use crate::support::{EVERYBODY, Env, run};
use crate::warm_rust::place;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A folder for a PATH, with nothing in it.
fn empty(env: &Env) -> String {
    let folder = env.path("empty");
    std::fs::create_dir_all(&folder).unwrap();
    folder.display().to_string()
}

/// A check with another PATH.
fn with_path(env: &Env, path: &str, args: &[&str]) -> Value {
    let mut command = env.command(&[&["--format", "json"], args].concat());
    command.env("PATH", path);
    run(&mut command).json()
}

/// A file of the host that may be executed.
fn program(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn reason(result: &Value) -> &str {
    result["reason"].as_str().unwrap_or_default()
}

fn runner(env: &Env, name: &str, serves: &str) {
    let folder = env.path("home/.config/checkrun/runners");
    std::fs::create_dir_all(&folder).unwrap();
    let text = format!("format = 1\ndescription = \"d\"\nserves = [\"{serves}\"]\n");
    std::fs::write(folder.join(format!("{name}.toml")), text).unwrap();
}

#[test]
fn a_program_that_is_missing_is_named_with_what_to_install() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("a", "").commit();
        let path = empty(&env);
        for (word, install) in [
            ("go", "golang-go"),
            ("gofmt", "golang-go"),
            ("cargo", "install Rust"),
            ("gradle", "apt install gradle"),
            ("jest", "checkrun prepare --runner node"),
            ("clang++-none", ""),
        ] {
            let result = with_path(&env, &path, &["--", word, "test"]);
            assert_eq!(result["outcome"], "not_started", "{result}");
            let told = reason(&result);
            assert!(told.starts_with("not_found: "), "{told}");
            assert!(
                told.contains(&format!("`{word}` is not on your PATH")) && told.contains(install),
                "{told}"
            );
        }
        // Where it would be prepared, that is told once.
        env.write("package.json", "{}").write("yarn.lock", "# yarn lockfile v1\n").commit();
        let result = with_path(&env, &path, &["--", "yarn", "test"]);
        let told = reason(&result);
        assert!(told.contains("`yarn` is not on your PATH; not_prepared: "), "{told}");
        assert_eq!(told.matches("checkrun prepare").count(), 1, "{told}");
        // A shell's own words for it come as its status.
        let result = with_path(&env, &path, &["-c", "go vet && go test"]);
        assert_eq!((&result["outcome"], &result["exit"]), (&"failed".into(), &127.into()), "{result}");
        assert!(reason(&result).starts_with("missing: `go` is not on your PATH; install Go"), "{result}");
        let mut command = env.command(&["--", "go", "test"]);
        assert_eq!(run(command.env("PATH", &path)).status, 127);
    }
}

#[test]
fn a_toolchain_that_moved_is_found_at_its_new_place_and_does_not_answer_from_the_old_one() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("a", "").commit();
        let (old, new) = (env.path("old"), env.path("new"));
        drop(
            run(env
                .as_who("/usr/bin/python3")
                .args(["-m", "venv", "--without-pip"])
                .arg(env.path("home/made")))
            .expect(0),
        );
        std::fs::rename(env.path("home/made"), &old).unwrap();
        program(&old.join("bin/tell"), &format!("#!{}\nprint('told')\n", old.join("bin/python3").display()));
        let path = |root: &Path| format!("{}/bin", root.display());
        let python = ["--", "python", "-c", "import sys; print(sys.prefix)"];
        let first = with_path(&env, &path(&old), &python);
        assert_eq!(first["tail"], format!("{}\n", old.display()), "{first}");
        assert_eq!(with_path(&env, &path(&old), &python)["cache"], "hit");
        assert_eq!(with_path(&env, &path(&old), &["--", "tell"])["outcome"], "passed");
        std::fs::rename(&old, &new).unwrap();
        let gone = with_path(&env, &path(&old), &python);
        assert_eq!((&gone["outcome"], &gone["cache"]), (&"not_started".into(), &"miss".into()), "{gone}");
        assert!(reason(&gone).contains("`python` is not on your PATH; install Python"), "{gone}");
        let moved = with_path(&env, &path(&new), &python);
        assert_eq!((&moved["cache"], &moved["outcome"]), (&"miss".into(), &"passed".into()), "{moved}");
        assert_eq!(moved["tail"], format!("{}\n", new.display()), "{moved}");
        // What names its old place in its first line is there and cannot be started.
        let broken = with_path(&env, &path(&new), &["--", "tell"]);
        assert_eq!(broken["outcome"], "not_started", "{broken}");
        assert!(reason(&broken).contains("`tell` is there, and what its first line"), "{broken}");
        assert!(reason(&broken).contains("moved or removed"), "{broken}");
    }
}

#[test]
fn a_shim_that_leads_nowhere_is_named_and_nothing_else_is_run_in_its_place() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("a", "").commit();
        let refused = |folder: &str, word: &str, parts: &[&str]| {
            let mut command = env.command(&["--", word, "--version"]);
            command.env("PATH", format!("{}:/usr/bin:/bin", env.path(folder).display()));
            drop(run(&mut command).refused(parts));
        };
        // pyenv: the system's Python, next on PATH, is not what was asked for.
        let pyenv = env.path("home/.pyenv");
        program(&pyenv.join("shims/python3"), "#!/bin/sh\nexit 1\n");
        program(&pyenv.join("libexec/pyenv"), "");
        std::fs::create_dir(pyenv.join("versions")).unwrap();
        std::fs::write(pyenv.join("version"), "3.99\n").unwrap();
        refused(
            "home/.pyenv/shims",
            "python3",
            &["a shim of pyenv", "version 3.99", "not installed", "pyenv install"],
        );
        // rustup: a toolchain that is half there.
        program(&env.path("home/.cargo/bin/rustup"), "");
        std::os::unix::fs::symlink("rustup", env.path("home/.cargo/bin/cargo")).unwrap();
        std::fs::create_dir_all(env.path("home/.rustup/toolchains")).unwrap();
        std::fs::write(env.path("home/.rustup/settings.toml"), "default_toolchain = \"stable-x\"\n").unwrap();
        refused(
            "home/.cargo/bin",
            "cargo",
            &["a shim of rustup", "stable-x is not installed", "rustup default"],
        );
        std::fs::create_dir(env.path("home/.rustup/toolchains/stable-x")).unwrap();
        refused(
            "home/.cargo/bin",
            "cargo",
            &["a shim of rustup", "stable-x has no program `cargo`", "hint:"],
        );
        // Others are started, fail, and the verdict says why.
        program(&env.path("home/.asdf/shims/frob"), "#!/bin/sh\nexec asdf exec frob \"$@\"\n");
        let path = format!("{}:/usr/bin:/bin", env.path("home/.asdf/shims").display());
        let result = with_path(&env, &path, &["--", "frob"]);
        assert_eq!(result["outcome"], "failed", "{result}");
        assert!(
            reason(&result).starts_with("shim: ") && reason(&result).contains(".asdf/shims/frob"),
            "{result}"
        );
    }
}

#[test]
fn two_runners_that_claim_a_command_are_named_and_the_caller_decides() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("a", "").commit();
        runner(&env, "mine", "make");
        let both = [
            "`cc` (built in)",
            "`mine` (your runners/mine.toml)",
            "both serve `make`",
            "--runner cc",
            "--runner mine",
        ];
        drop(env.checkrun(&["--", "make"]).refused(&both));
        drop(env.checkrun(&["--", "/usr/bin/make"]).refused(&["both serve `make`"]));
        let chosen =
            env.checkrun(&["--format", "json", "--runner", "mine", "--", "make", "--version"]).expect(0);
        assert_eq!(chosen.json()["runner"]["name"], "mine");
        // Other commands are served as before.
        drop(env.checkrun(&["--", "true"]).expect(0));
        runner(&env, "yours", "frob");
        runner(&env, "mine", "frob");
        drop(env.checkrun(&["--", "frob"]).refused(&[
            "your runners/mine.toml",
            "your runners/yours.toml",
            "`frob`",
        ]));
    }
}

#[test]
fn a_go_line_that_is_newer_than_go_is_told_and_nothing_is_fetched_for_it() {
    let path = format!("{}/bin:/usr/bin:/bin", open_tool("go").display());
    for who in EVERYBODY {
        let env = Env::of(who).var("PATH", &path);
        env.write("go.mod", "module example.org/m\n\ngo 1.99\n").write("m.go", "package m\n").commit();
        let newer = "toolchain: go.mod asks for a newer Go";
        // Whether anything was to be prepared or not.
        for sums in [false, true] {
            if sums {
                env.write("go.sum", "").commit();
            }
            let result = env.checkrun(&["--format", "json", "--", "go", "test", "./..."]).expect(1).json();
            assert!(reason(&result).starts_with(newer) && !reason(&result).contains("network"), "{result}");
            let failed = env.checkrun(&["prepare", "--runner", "go"]).expect(1);
            assert!(failed.err().contains("go >= 1.99"), "{}", failed.err());
            assert!(failed.out().contains(newer), "{}", failed.out());
            assert!(!failed.out().contains("toolchain@"), "{}", failed.out());
        }
    }
}

fn is_told_to_prepare(env: &Env, folder: &str, args: &[&str], runner: &str) {
    let result = env.checkrun(&[&["--format", "json", "--cwd", folder, "--"], args].concat()).json();
    assert_eq!(result["outcome"], "failed", "{result}");
    let told = reason(&result);
    assert!(told.starts_with("offline: "), "{result}");
    assert!(told.contains(&format!("`checkrun prepare --runner {runner}`")), "{result}");
}

#[test]
fn packages_that_are_not_there_lead_to_prepare() {
    for who in EVERYBODY {
        let env = Env::of(who).var("PATH", format!("{}/bin:/usr/bin:/bin", open_tool("go").display()));
        let wants = "\"version\": \"1.0.0\", \"dependencies\": {\"ms\": \"2.1.3\"}";
        env.write("node/package.json", format!("{{\"name\": \"x\", {wants}}}"));
        env.write("go/go.mod", "module example.org/m\n\ngo 1.20\n\nrequire example.org/x v1.0.0\n");
        env.write("go/m.go", "package m\n\nimport _ \"example.org/x\"\n");
        env.commit();
        is_told_to_prepare(&env, "node", &["npm", "install"], "node");
        is_told_to_prepare(&env, "go", &["go", "vet", "./..."], "go");
        // Where there is a lock file, that nothing was prepared for it is all there is to say.
        let lock = "{\"name\": \"x\", \"version\": \"1.0.0\", \"lockfileVersion\": 3, \"packages\": {}}";
        env.write("node/package-lock.json", lock).commit();
        let result = env.checkrun(&["--format", "json", "--cwd", "node", "--", "npm", "install"]).json();
        assert!(reason(&result).starts_with("not_prepared: "), "{result}");
        assert!(reason(&result).contains("`checkrun prepare --runner node --cwd node`"), "{result}");
        assert!(!reason(&result).contains("offline"), "{result}");
    }
}

#[test]
fn what_other_package_managers_say_without_network_leads_to_prepare_too() {
    let managers = open_tool("managers").join("node_modules/.bin");
    for who in EVERYBODY {
        let env = Env::of(who).var("PATH", format!("{}:/usr/bin:/bin", managers.display()));
        let wants = "{\"name\": \"x\", \"version\": \"1.0.0\", \"dependencies\": {\"ms\": \"2.1.3\"}}";
        // Not a name that a step looks for: there is nothing that could have been prepared.
        env.write("node/package.json", wants).write("python/needed.txt", "no-such-package==1\n").commit();
        is_told_to_prepare(&env, "node", &["pnpm", "install"], "node");
        is_told_to_prepare(&env, "node", &["yarn", "install"], "node");
        is_told_to_prepare(&env, "node", &["yarn", "install", "--offline"], "node");
        is_told_to_prepare(&env, "python", &["pip", "install", "-r", "needed.txt"], "python");
        let aside = ["pip", "install", "--target", "/tmp/there", "-r", "needed.txt"];
        is_told_to_prepare(&env, "python", &aside, "python");
    }
}

#[test]
fn artifacts_that_are_not_there_lead_to_prepare() {
    let env = Env::new();
    let pom = "<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version></project>\n";
    // Looked for in the folder of the check only.
    env.write("java/below/pom.xml", pom).commit();
    is_told_to_prepare(&env, "java", &["mvn", "-o", "-f", "below/pom.xml", "test"], "java");
}

#[test]
fn crates_that_are_not_there_lead_to_prepare() {
    let env = place();
    let manifest =
        "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nserde = \"1\"\n";
    env.write("rust/Cargo.toml", manifest).write("rust/src/lib.rs", "").commit();
    is_told_to_prepare(&env, "rust", &["cargo", "test"], "rust");
}
