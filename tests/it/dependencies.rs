//! What is built in: licences and sources as `.deny.toml` has them, the version of Rust that Cargo.toml promises, and each
//! dependency with the reason for it. `cargo deny` reads the same file where it is installed; this needs no network.

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

fn read(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The packages of a build for one target, as cargo resolves the lock file, without network.
fn packages() -> Vec<Value> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version", "1", "--locked", "--offline"]);
    cargo.args(["--filter-platform", "x86_64-unknown-linux-gnu"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = cargo.output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let used: BTreeSet<&str> = metadata["resolve"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["id"].as_str().unwrap())
        .collect();
    let all = metadata["packages"].as_array().unwrap();
    all.iter().filter(|package| used.contains(package["id"].as_str().unwrap())).cloned().collect()
}

/// The texts between quotes in one list of `.deny.toml`.
fn listed(list: &str) -> Vec<String> {
    let text = read(".deny.toml");
    let (_, rest) = text.split_once(&format!("\n{list} = [")).unwrap_or_else(|| panic!("no {list}"));
    rest.split(']').next().unwrap().split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Whether an SPDX expression without brackets or with one pair is met: one side of each `OR`, both of each `AND`.
fn allowed(expression: &str, licences: &[String]) -> bool {
    let expression = expression.replace(['(', ')'], "").replace('/', " OR ");
    expression.split(" AND ").all(|part| {
        part.split(" OR ").any(|name| {
            let name = name.trim().split(" WITH ").next().unwrap_or_default();
            licences.iter().any(|licence| licence == name)
        })
    })
}

#[test]
fn every_licence_is_one_of_those_that_are_accepted() {
    let licences = listed("allow");
    assert!(licences.len() >= 4, "{licences:?}");
    let exceptions = read(".deny.toml");
    let mut count = 0;
    for package in packages() {
        let (name, licence) = (package["name"].as_str().unwrap(), package["license"].as_str());
        let excepted = exceptions.contains(&format!("{{ crate = \"{name}\", allow = "));
        assert!(
            excepted || licence.is_some_and(|licence| allowed(licence, &licences)),
            "{name}: {licence:?}; accepted are {licences:?}, and the exceptions in .deny.toml"
        );
        let source = package["source"].as_str();
        let registry = "registry+https://github.com/rust-lang/crates.io-index";
        assert!(name == "checkrun" || source == Some(registry), "{name} is from {source:?}");
        count += 1;
    }
    assert!(count > 100, "{count} packages");
    assert!(!allowed("GPL-3.0-only", &licences) && !allowed("MIT AND GPL-2.0", &licences));
}

/// A dependency that asks for a newer Rust would make the promise false; `.ci/msrv` builds with exactly that version.
#[test]
fn no_dependency_asks_for_a_newer_rust_than_is_promised() {
    let version = |text: &str| {
        let numbers: Vec<u32> = text.split('.').map(|part| part.parse().expect("a number")).collect();
        (numbers[0], numbers.get(1).copied().unwrap_or(0), numbers.get(2).copied().unwrap_or(0))
    };
    let promised = env!("CARGO_PKG_RUST_VERSION");
    for package in packages() {
        let Some(asked) = package["rust_version"].as_str() else { continue };
        assert!(
            version(asked) <= version(promised),
            "{} asks for Rust {asked}, not {promised}",
            package["name"]
        );
    }
    assert!(
        read("README.md").contains(&format!("Rust ({promised} or newer)")),
        "README.md says another version"
    );
}

#[test]
fn every_dependency_has_its_reason_beside_it() {
    let manifest = read("Cargo.toml");
    let mut above = "";
    let mut section = "";
    let mut count = 0;
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section.ends_with("dependencies]") && line.contains(" = ") {
            assert!(above.starts_with("# ") && above.len() > 20, "no reason above `{line}`");
            count += 1;
        }
        above = line;
    }
    assert!(count >= 20, "{count} dependencies");
}
