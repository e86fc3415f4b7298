//! A published program with its dependencies: prepared once with the machine's network, then checked without any. What it is
//! and where it comes from is in `.ci/tools`.

use crate::real::{plant, tool};
use crate::warm_rust::{compiled, place, prepare};
use serde_json::json;

#[test]
fn a_published_crate_with_its_dependencies_is_tested_without_network() {
    let env = place();
    plant(&env, &tool("hexyl"));
    let lock = std::fs::read_to_string(env.repo("Cargo.lock")).expect("a lock file");
    assert!(lock.matches("[[package]]").count() > 30);
    drop(prepare(&env, "rust"));
    let args = ["--format", "json", "--show-output", "--require-tests", "--", "cargo", "test"];
    let first = env.checkrun(&args).expect(0);
    assert_eq!(compiled(&first.err()), ["hexyl"]);
    let (first, tests) = (first.json(), json!({"passed": 49, "failed": 0, "skipped": 0}));
    assert_eq!((&first["tests"], &first["deps"][0]["name"]), (&tests, &"rust".into()), "{first}");
    // Another tree: a test that was right is wrong in it.
    let tests = std::fs::read_to_string(env.repo("tests/integration_tests.rs")).expect("its tests");
    env.write("tests/integration_tests.rs", tests.replacen("00000000", "00000009", 1)).commit();
    let second = env.checkrun(&args).expect(101);
    assert_eq!(compiled(&second.err()), ["hexyl"]);
    assert_eq!(second.json()["tests"]["failed"], 1);
}
