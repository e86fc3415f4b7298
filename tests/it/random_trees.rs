//! Trees that nobody thought of: random names, modes, links and depths. What is on disk hashes back to the tree's id by the
//! git program, however it came there.

use crate::layouts::seen_in;
use crate::support::{Env, Who};
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof};
use proptest::test_runner::{Config, TestRunner};
use std::io::Write;
use std::process::Stdio;

/// What is at a path.
#[derive(Clone, Debug)]
enum Leaf {
    File(Vec<u8>, bool),
    Link(Vec<u8>),
    Tree(Vec<(Vec<u8>, Leaf)>),
}

/// A name as trees may have it: any bytes but slash and NUL, up to 255 of them, and none of those that are refused.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte =
        prop_oneof![8 => b'a'..=b'c', 2 => Just(b'.'), 1 => Just(b'-'), 1 => Just(b'\n'), 1 => any::<u8>()];
    let length = prop_oneof![20 => 1..5_usize, 1 => Just(255)];
    length.prop_flat_map(move |length| prop::collection::vec(byte.clone(), length)).prop_map(|mut name| {
        name.iter_mut().filter(|byte| matches!(**byte, 0 | b'/')).for_each(|byte| *byte = b'_');
        let refused = [&b"."[..], b".."].contains(&&*name) || name.eq_ignore_ascii_case(b".git");
        if refused { b"x".to_vec() } else { name }
    })
}

fn leaf() -> impl Strategy<Value = Leaf> {
    let content = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..40),
        1 => (1..300_000_usize).prop_map(|size| b"0123456789abcde\r\n".iter().copied().cycle().take(size).collect()),
    ];
    let target = prop_oneof![
        Just(b"../../../../etc/passwd".to_vec()),
        Just(b"/proc/self/root".to_vec()),
        Just(b".".to_vec()),
        prop::collection::vec(1..=255_u8, 1..200),
    ];
    prop_oneof![
        6 => (content, any::<bool>()).prop_map(|(content, may_run)| Leaf::File(content, may_run)),
        1 => target.prop_map(Leaf::Link),
    ]
}

fn tree() -> impl Strategy<Value = Vec<(Vec<u8>, Leaf)>> {
    let node = leaf()
        .prop_recursive(6, 60, 8, |inner| prop::collection::vec((name(), inner), 1..8).prop_map(Leaf::Tree));
    prop::collection::vec((name(), node), 0..12)
}

fn object(env: &Env, kind: &str, bytes: &[u8]) -> Vec<u8> {
    let mut git = env.as_who("git");
    git.args(["hash-object", "-w", "-t", kind, "--stdin"]).current_dir(env.path("repo"));
    let mut child = git.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "git refuses this {kind}");
    let hex = String::from_utf8(output.stdout).unwrap();
    (0..40).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// Writes the objects of a tree, as git itself checks them; its id.
fn write(env: &Env, entries: &[(Vec<u8>, Leaf)]) -> Vec<u8> {
    let mut rows = std::collections::BTreeMap::new();
    let mut names = std::collections::BTreeSet::new();
    for (name, leaf) in entries {
        if !names.insert(name) {
            continue;
        }
        let (mode, id) = match leaf {
            Leaf::File(content, true) => ("100755", object(env, "blob", content)),
            Leaf::File(content, false) => ("100644", object(env, "blob", content)),
            Leaf::Link(target) => ("120000", object(env, "blob", target)),
            Leaf::Tree(entries) => ("40000", write(env, entries)),
        };
        let key = if mode == "40000" { [name.as_slice(), b"/"].concat() } else { name.clone() };
        rows.insert(key, [mode.as_bytes(), b" ", name, b"\0", &id].concat());
    }
    object(env, "tree", &rows.into_values().collect::<Vec<_>>().concat())
}

/// `CHECKRUN_TEST_TREES` says how many.
#[test]
fn what_is_on_disk_hashes_back_to_the_tree() {
    let cases = std::env::var("CHECKRUN_TEST_TREES").map_or(10, |cases| cases.parse().unwrap());
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 100, ..Config::default() };
    // One cache for all: each tree may be laid over another that has little to do with it.
    let env = Env::of(Who::User);
    TestRunner::new(config)
        .run(&tree(), |entries| {
            let id: String = write(&env, &entries).iter().map(|byte| format!("{byte:02x}")).collect();
            for options in [&["--tree", &id][..], &["--tree", &id, "--policy", "landlock"]] {
                assert_eq!(seen_in(&env, "repo", options), id, "{options:?}");
            }
            Ok(())
        })
        .unwrap();
}
