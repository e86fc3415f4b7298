//! Trees that nobody thought of: random names, modes, links and depths. What is on disk hashes back to the tree's id by the
//! git program, however it came there.

use crate::layouts::{seeing, seen_in};
use crate::support::probe::in_own_mounts;
use crate::support::{Env, USER, Who, run};
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof};
use proptest::test_runner::{Config, TestRunner};
use std::io::Write;
use std::process::{Command, Stdio};

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

/// A commit of the tree in the language of `git fast-import`, which makes the objects in one go.
fn told(entries: &[(Vec<u8>, Leaf)], above: &[u8], out: &mut Vec<u8>) {
    let mut names = std::collections::BTreeSet::new();
    for (name, leaf) in entries.iter().filter(|(name, _)| names.insert(name)) {
        let path = [above, name].concat();
        let (mode, content) = match leaf {
            Leaf::File(content, true) => ("100755", content),
            Leaf::File(content, false) => ("100644", content),
            Leaf::Link(target) => ("120000", target),
            Leaf::Tree(entries) => {
                told(entries, &[&path[..], b"/"].concat(), out);
                continue;
            }
        };
        let quoted: String = path.iter().map(|byte| format!("\\{byte:03o}")).collect();
        out.extend(format!("M {mode} inline \"{quoted}\"\ndata {}\n", content.len()).bytes());
        out.extend([content, &b"\n"[..]].concat());
    }
}

/// Has git make the tree; its id.
fn made(env: &Env, entries: &[(Vec<u8>, Leaf)]) -> String {
    let mut script =
        b"commit refs/heads/random\ncommitter C <c@example.org> 0 +0000\ndata 1\nx\ndeleteall\n".to_vec();
    told(entries, b"", &mut script);
    let mut git = env.as_who("git");
    git.args(["fast-import", "--quiet", "--force"]).current_dir(env.path("repo"));
    let mut child = git.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&script).unwrap();
    assert!(child.wait().unwrap().success());
    env.git(&["rev-parse", "random^{tree}"])
}

/// Makes a file system whose files can share blocks, and gives what mounts it over the cache in a mount namespace of the
/// test's own (xfs(5), reflink).
fn sharing(env: &Env) -> String {
    let (image, cache) = (env.path("image"), env.path("cache"));
    let make = "truncate -s 320M \"$0\" && mkfs.xfs -q -m reflink=1 \"$0\"";
    assert!(run(Command::new("sh").args(["-c", make]).arg(&image)).status == 0, "no mkfs.xfs: run .ci/tools");
    let (image, cache) = (image.display(), cache.display());
    // A machine without loop devices copies, which has to come to the same.
    let mount = format!("mount -o loop {image} {cache} || mount -t tmpfs -o size=1G none {cache}");
    format!("mkdir -p {cache}; {mount}; chown {USER} {cache}; chmod 700 {cache}")
}

/// On a file system that would not hold a file twice, a run that copies its tree holds it twice.
#[test]
fn where_trees_are_copied_large_files_share_their_blocks() {
    let env = Env::of(Who::User);
    let mut bytes = vec![0_u8; 150 << 20];
    let mut state = 1_u64;
    for byte in &mut bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *byte = state.to_be_bytes()[0];
    }
    env.write("large", &bytes).commit();
    let mount = sharing(&env);
    let script = "stat -c %s large; echo more >>large; stat -c %s large";
    let args = ["--no-cache", "--tree", "HEAD", "--policy", "landlock", "--", "sh", "-c", script];
    for _ in 0..2 {
        let seen = in_own_mounts(&env, &mount, &args).expect(0);
        assert_eq!(seen.out(), format!("{0}\n{1}\n", bytes.len(), bytes.len() + 5));
    }
}

/// `CHECKRUN_TEST_TREES` says how many.
#[test]
fn what_is_on_disk_hashes_back_to_the_tree() {
    let cases = std::env::var("CHECKRUN_TEST_TREES").map_or(6, |cases| cases.parse().unwrap());
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 40, ..Config::default() };
    // One cache for all: each tree may be laid over another that has little to do with it.
    let env = Env::of(Who::User);
    let mount = sharing(&env);
    TestRunner::new(config)
        .run(&tree(), |entries| {
            let id = made(&env, &entries);
            for options in [&["--tree", &id][..], &["--tree", &id, "--policy", "landlock"]] {
                assert_eq!(seen_in(&env, "repo", options), id, "{options:?}");
            }
            // Copied again, with blocks that are shared.
            let args = seeing(&env, "repo", &["--tree", &id, "--policy", "landlock"]);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let seen = in_own_mounts(&env, &mount, &args).expect(0);
            assert_eq!(seen.out().trim(), id, "shared blocks");
            Ok(())
        })
        .unwrap();
}
