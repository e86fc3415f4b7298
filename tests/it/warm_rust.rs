//! Compiled dependencies of Rust projects: made once by `prepare`, found by every check with the same lock file, never
//! with anything of the project's own in them. The crates are made here and come from an index that the test serves on
//! loopback; a real project is `real_warm`'s.

use crate::packages::Served;
use crate::support::{Env, Who};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The toolchain that built this test. It may lie in its owner's closed home, so the owner is who asks.
pub(crate) fn toolchain() -> PathBuf {
    let rustc = Command::new("rustc").args(["--print", "sysroot"]).output().expect("rustc");
    PathBuf::from(String::from_utf8(rustc.stdout).expect("a path").trim())
}

/// A place with that toolchain on its PATH.
pub(crate) fn place() -> Env {
    Env::of(Who::Root).var("PATH", format!("{}/bin:/usr/bin:/bin", toolchain().display()))
}

pub(crate) fn sh(folder: &Path, script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).current_dir(folder).output().expect("sh");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A registry of crates (doc.rust-lang.org/cargo/reference/registry-index.html), served.
struct Registry {
    folder: tempfile::TempDir,
    served: Served,
}

impl Registry {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let served = Served::new(folder.path());
        let dl = format!("http://127.0.0.1:{}/{{crate}}-{{version}}.crate", served.port);
        std::fs::create_dir(folder.path().join("index")).expect("mkdir");
        std::fs::write(folder.path().join("index/config.json"), json!({"dl": dl}).to_string())
            .expect("written");
        Self { folder, served }
    }

    /// Publishes version 1.0.0 of a crate whose name has four letters.
    fn publish(&self, name: &str, deps: &[&str], files: &[(&str, &str)]) {
        let crate_folder = self.folder.path().join(format!("{name}-1.0.0"));
        let mut manifest = format!("[package]\nname = \"{name}\"\nversion = \"1.0.0\"\nedition = \"2021\"\n");
        for dep in deps {
            write!(manifest, "[dependencies.{dep}]\nversion = \"1\"\n").expect("a text");
        }
        for (path, content) in [("Cargo.toml", manifest.as_str())].iter().chain(files) {
            let path = crate_folder.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("mkdir");
            std::fs::write(path, content).expect("written");
        }
        let script = format!("tar -czf {name}-1.0.0.crate {name}-1.0.0 && sha256sum {name}-1.0.0.crate");
        let sum = sh(self.folder.path(), &script);
        let deps: Vec<Value> = deps
            .iter()
            .map(|dep| {
                json!({"name": dep, "req": "^1", "features": [], "optional": false, "default_features": true,
                       "target": null, "kind": "normal"})
            })
            .collect();
        let line = json!({"name": name, "vers": "1.0.0", "deps": deps, "features": {}, "yanked": false,
                          "cksum": sum.split(' ').next()});
        let at = self.folder.path().join("index").join(&name[..2]).join(&name[2..4]);
        std::fs::create_dir_all(&at).expect("mkdir");
        std::fs::write(at.join(name), line.to_string()).expect("written");
    }

    /// The configuration by which cargo asks here in place of crates.io.
    fn configuration(&self) -> String {
        format!(
            "[source.crates-io]\nreplace-with = \"here\"\n[source.here]\nregistry = \"sparse+http://127.0.0.1:{}/index/\"\n",
            self.served.port
        )
    }
}

/// Makes the lock file with the network that the test has, and nothing of it in the home folder of the test's user.
fn lock(env: &Env) {
    let cargo = env
        .as_who(toolchain().join("bin/cargo"))
        .arg("generate-lockfile")
        .env("CARGO_HOME", env.path("cargo-home"))
        .current_dir(env.repo(""))
        .output()
        .expect("cargo");
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
}

/// A package of the project, depending on others by path or by version.
fn package(env: &Env, at: &str, name: &str, rest: &str) {
    let manifest = format!("[package]\nname = \"{name}\"\nversion = \"1.0.0\"\nedition = \"2021\"\n{rest}");
    env.write(&format!("{at}Cargo.toml"), manifest);
}

/// Source of a crate that says a number.
fn says(number: u32) -> String {
    format!("pub fn number() -> u32 {{ {number} }}\n")
}

/// A workspace with everything that has a number of its own: the program and its build script, a member, a procedural
/// macro, a path dependency outside the workspace, a crate that stands for one of the registry's, one of the registry's that
/// needs it, and one that needs nothing and has a build script.
fn workspace(registry: &Registry, env: &Env) {
    registry.publish(
        "leaf",
        &[],
        &[
            ("data.txt", "7"),
            (
                "build.rs",
                "fn main() {\n    println!(\"cargo:rerun-if-changed=data.txt\");\n    println!(\"cargo:rustc-env=DATA={}\", \
                 std::fs::read_to_string(\"data.txt\").unwrap());\n}\n",
            ),
            ("src/lib.rs", "pub fn number() -> u32 { env!(\"DATA\").parse().unwrap() }\n"),
        ],
    );
    registry.publish("base", &[], &[("src/lib.rs", &says(100))]);
    registry.publish("onto", &["base"], &[("src/lib.rs", "pub fn number() -> u32 { base::number() }\n")]);
    env.write(".cargo/config.toml", registry.configuration());
    package(
        env,
        "",
        "prog",
        "[workspace]\nmembers = [\"inner\"]\nexclude = [\"apart\", \"patched\"]\n[dependencies]\nleaf = \"1\"\nonto = \"1\"\n\
         inner = { path = \"inner\" }\nmacs = { path = \"macs\" }\napart = { path = \"apart\" }\n\
         [patch.crates-io]\nbase = { path = \"patched\" }\n",
    );
    package(env, "inner/", "inner", "");
    package(env, "macs/", "macs", "[lib]\nproc-macro = true\n");
    package(env, "apart/", "apart", "");
    package(env, "patched/", "base", "");
    env.write(
        "src/main.rs",
        "mod own;\nfn main() {\n    println!(\"{} {} {} {} {} {} {}\", own::number(), env!(\"BUILT\"), inner::number(), \
         macs::number!(), apart::number(), onto::number(), leaf::number());\n}\n\n#[test]\nfn it_is_odd() {\n    \
         assert_eq!(inner::number() % 2, 1);\n}\n",
    );
    numbers(env, 1);
    lock(env);
    env.commit();
}

/// Gives each of the project's own crates another number.
fn numbers(env: &Env, number: u32) {
    for path in ["src/own.rs", "inner/src/lib.rs", "apart/src/lib.rs", "patched/src/lib.rs"] {
        env.write(path, says(number));
    }
    env.write("build.rs", format!("fn main() {{ println!(\"cargo:rustc-env=BUILT={number}\"); }}\n"));
    env.write(
        "macs/src/lib.rs",
        format!("#[proc_macro]\npub fn number(_: proc_macro::TokenStream) -> proc_macro::TokenStream {{ \"{number}\".parse().unwrap() }}\n"),
    );
}

/// The option that lets a preparation reach the registry of the test's own that the tree names.
fn allowed(env: &Env) -> Option<String> {
    let configuration = std::fs::read_to_string(env.repo(".cargo/config.toml")).ok()?;
    let (_, rest) = configuration.split_once("sparse+http://")?;
    Some(format!("--allow-host={}", rest.split('/').next()?))
}

/// Prepares, and gives the folder of the layer.
pub(crate) fn prepare(env: &Env, runner: &str) -> PathBuf {
    let mut args = vec!["prepare", "--format", "json", "--runner", runner];
    let allowed = allowed(env);
    args.extend(allowed.as_deref());
    let told = env.checkrun(&args).expect(0).json();
    let digest =
        told["prepared"][0]["digest"].as_str().expect("a digest").trim_start_matches("b3:").to_owned();
    let layers = std::fs::read_dir(env.path("cache/trees")).expect("layers").flatten();
    let prefix = format!("deps-{digest}");
    let mut found = layers
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .filter(|entry| entry.path().is_dir());
    found.next().expect("the layer").path()
}

/// A digest of all names and contents in a folder.
pub(crate) fn digest(folder: &Path) -> String {
    sh(folder, "find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum; find . | sort | sha256sum")
}

/// Names of what cargo compiled, sorted, from what it says on stderr.
pub(crate) fn compiled(err: &str) -> Vec<&str> {
    let mut names: Vec<&str> =
        err.lines().filter_map(|line| line.trim().strip_prefix("Compiling ")?.split(' ').next()).collect();
    names.sort_unstable();
    names
}

const OWN: [&str; 6] = ["apart", "base", "inner", "macs", "onto", "prog"];

// rust-lang/cargo#5919, rust-lang/cargo#6529: by times, code that has changed can look compiled.
#[test]
fn dependencies_are_compiled_once_and_the_projects_own_code_in_each_check() {
    let registry = Registry::new();
    let env = place();
    workspace(&registry, &env);
    let layer = prepare(&env, "rust");
    let names = sh(&layer.join("tree"), "find target");
    assert!(names.contains("/libleaf-") && names.contains("/build/leaf-"), "{names}");
    for own in OWN {
        assert!(!names.contains(&format!("{own}-")), "{own} is in the layer:\n{names}");
    }
    drop(registry.served);
    // The program lies where everybody looks for it.
    let first = env.checkrun(&["-c", "cargo run && ./target/debug/prog"]).expect(0);
    assert_eq!(
        (first.out().as_str(), compiled(&first.err())),
        ("1 1 1 1 1 1 7\n1 1 1 1 1 1 7\n", OWN.to_vec())
    );
    // Another tree with the same manifests: every number has changed, and nothing was prepared for it.
    numbers(&env, 2);
    env.commit();
    let second = env.checkrun(&["--", "cargo", "run"]).expect(0);
    assert_eq!((second.out().as_str(), compiled(&second.err())), ("2 2 2 2 2 2 7\n", OWN.to_vec()));
    drop(env.checkrun(&["--", "cargo", "test", "--workspace"]).expect(101));
    let checked = env.checkrun(&["--", "cargo", "check"]).expect(0).err();
    assert!(checked.contains("Checking inner ") && !checked.contains("Checking leaf "), "{checked}");
}

#[test]
fn what_a_check_does_to_compiled_crates_reaches_no_other_check() {
    let registry = Registry::new();
    let env = place();
    workspace(&registry, &env);
    let layer = prepare(&env, "rust");
    let before = digest(&layer);
    drop(registry.served);
    let poison = "chmod -R u+w target ~/.cargo
        for file in target/debug/deps/*leaf* target/debug/build/leaf-*/output target/debug/.fingerprint/leaf-*/*; do
            echo bogus >\"$file\"; done
        echo 'pub fn number() -> u32 { 9 }' >$(echo ~/.cargo/registry/src/*/leaf-1.0.0/src/lib.rs)
        for file in ~/.cargo/registry/cache/*/*.crate; do echo bogus >\"$file\"; done
        rm -r ~/.cargo/registry/index; mv target/debug/build elsewhere || cp -r target/debug/build elsewhere
        mkdir -p target/debug/.fingerprint/prog-0123456789abcdef
        cat target/debug/deps/libleaf-*.rlib; touch target/debug/bogus; cargo run -q && exit 1; exit 0";
    let poisoned = env.checkrun(&["--runner", "rust", "--", "sh", "-ec", poison]).expect(0);
    assert!(poisoned.out().starts_with("bogus\n"), "{}", poisoned.err());
    assert_eq!(digest(&layer), before);
    for number in [1, 2] {
        numbers(&env, number);
        env.commit();
        let clean = ["--refresh", "--runner", "rust", "-c", "ls target/debug; cargo run"];
        let clean = env.checkrun(&clean).expect(0);
        let told = [&number.to_string()[..]; 6].join(" ");
        assert!(clean.out().ends_with(&format!("{told} 7\n")), "{}", clean.out());
        assert!(!clean.out().contains("bogus"), "{}", clean.out());
        assert_eq!(compiled(&clean.err()), OWN);
    }
    assert_eq!(prepare(&env, "rust"), layer);
}

// A folder of vendored crates stands for a registry, whose crates cargo takes for as unchangeable as downloaded ones.
#[test]
fn crates_that_lie_in_the_tree_are_never_taken_for_fetched_ones() {
    let registry = Registry::new();
    let env = place();
    registry.publish("vend", &[], &[("src/lib.rs", &says(1))]);
    env.write(".cargo/config.toml", registry.configuration());
    package(&env, "", "prog", "[dependencies]\nvend = \"1\"\n");
    env.write("src/main.rs", "fn main() { println!(\"{}\", vend::number()) }\n");
    lock(&env);
    // As `cargo vendor` writes it, with no digests of files: then nothing tells cargo that one has changed.
    let sum = sh(registry.folder.path(), "sha256sum vend-1.0.0.crate | cut -d ' ' -f 1");
    env.write("vendor/vend/.cargo-checksum.json", json!({"files": {}, "package": sum}).to_string());
    package(&env, "vendor/vend/", "vend", "");
    env.write("vendor/vend/src/lib.rs", says(1));
    let vendored = "[source.crates-io]\nreplace-with = \"here\"\n[source.here]\ndirectory = \"vendor\"\n";
    env.write(".cargo/config.toml", vendored).commit();
    let layer = prepare(&env, "rust");
    assert!(!sh(&layer, "find .").contains("vend-"));
    for number in [1, 2] {
        env.write("vendor/vend/src/lib.rs", says(number)).commit();
        assert_eq!(env.checkrun(&["--", "cargo", "run"]).expect(0).out(), format!("{number}\n"));
    }
}

#[test]
fn a_lock_file_that_does_not_match_is_told_and_nothing_is_kept() {
    let env = place();
    package(&env, "", "prog", "[dependencies]\nleaf = \"1\"\n");
    env.write("src/main.rs", "fn main() {}\n").write("Cargo.lock", "version = 4\n").commit();
    let failed = env.checkrun(&["prepare", "--format", "json", "--runner", "rust"]).expect(101).json();
    assert_eq!(failed["prepared"][0]["how"], "failed");
    let tail = failed["prepared"][0]["tail"].as_str().expect("what cargo said");
    assert!(tail.contains("leaf") || tail.contains("--locked"), "{tail}");
    assert!(!env.path("cache/packages").exists());
}

#[test]
fn the_toolchain_that_a_tree_asks_rustup_for_is_taken() {
    let env = Env::of(Who::User);
    let bin = env.path("home/bin");
    let rustup = env.path("home/.rustup");
    let script = format!(
        "mkdir -p {bin} && printf '#!/bin/sh\\n' >{bin}/rustup && chmod 755 {bin}/rustup && ln -s rustup {bin}/cargo
         for name in default-x 1.2.3-$(uname -m)-unknown-linux-gnu; do
             at={rustup}/toolchains/$name; mkdir -p $at/bin $at/lib/rustlib
             for program in cargo rustc; do printf \"#!/bin/sh\\necho $name\\n\" >$at/bin/$program; chmod 755 $at/bin/$program; done
         done
         echo 'default_toolchain = \"default-x\"' >{rustup}/settings.toml",
        bin = bin.display(),
        rustup = rustup.display()
    );
    sh(&env.path("home"), &script);
    let env = env.var("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    env.write("a", "").commit();
    let told = |env: &Env| env.checkrun(&["--", "cargo"]);
    assert_eq!(told(&env).expect(0).out(), "default-x\n");
    env.write("rust-toolchain.toml", "[toolchain]\nchannel = \"1.2.3\"\n").commit();
    assert!(told(&env).expect(0).out().starts_with("1.2.3-"));
    // In the nearest folder, and by the older name first.
    env.write("sub/rust-toolchain", "1.70.0\n").commit();
    let other = env.checkrun(&["--cwd", "sub", "--", "cargo"]);
    drop(other.refused(&["asks for `1.70.0`", "rustup toolchain install 1.70.0"]));
}
