//! Keys of fixed actions, and what must and must not change them.

use super::*;
use crate::model::check::{Command, Filled, TreeIdentity};
use crate::model::digest::{ObjectFormat, ObjectId};
use crate::model::guise::{Guise, Listing, Shape};
use crate::model::layer::Level;
use crate::model::policy::{Aslr, ClockMode, Limits, Visible};
use crate::model::units::Bytes;
use proptest::prelude::*;
use std::path::PathBuf;
use std::time::Duration;

/// A small action with something in every field.
pub(crate) fn action() -> Action {
    let visible =
        |path: &str, optional| Visible { path: PathBuf::from(path), optional, why: "tools".to_owned() };
    Action {
        tree: TreeIdentity {
            format: ObjectFormat::Sha1,
            tree: ObjectId::new(&[7; 20]),
            commit: Some(ObjectId::new(&[9; 20])),
            dirty: false,
        },
        guard: Guard::Exact,
        filled: Filled::default(),
        scope: Vec::new(),
        touches: Vec::new(),
        touched: None,
        command: Command {
            argv: vec![b"go".to_vec(), b"test".to_vec(), b"./...".to_vec()],
            cwd: Vec::new(),
            env: BTreeMap::from([(b"TOKEN".to_vec(), b"hunter2".to_vec())]),
            require_tests: None,
        },
        policy: Policy {
            name: "hermetic".to_owned(),
            description: "apart".to_owned(),
            level: Level::Full,
            network: Network::Loopback,
            hosts: Vec::new(),
            layers: BTreeMap::from([(Layer::User, Need::Require), (Layer::Time, Need::Prefer)]),
            limits: Limits {
                timeout: Duration::from_secs(600),
                memory: Some(Bytes(4 << 30)),
                pids: Some(512),
                cpus_milli: None,
                disk: Bytes(1 << 30),
                output: Bytes(64 << 20),
            },
            aslr: Aslr::On,
            umask: UMASK,
            guise: Guise::default(),
            clock: Clock::Fixed { start: 1_767_225_600, mode: ClockMode::Ticking },
            git: GitView::None,
            visible: vec![visible("/usr", false), visible("/lib64", true)],
        },
        runner: ResolvedRunner {
            name: "go".to_owned(),
            digest: Digest([3; 32]),
            toolchain: "go1.27.3 linux/amd64".to_owned(),
            binds: vec![Bind { host: PathBuf::from("/home/a/go"), inside: PathBuf::from("/opt/go") }],
            path: vec![PathBuf::from("/opt/go/bin"), PathBuf::from("/usr/bin")],
            env: BTreeMap::from([("GOFLAGS".to_owned(), "-mod=mod".to_owned())]),
            summary: None,
            results: Vec::new(),
            identity: vec![
                (PathBuf::from("/home/a/go/bin/go"), Digest([1; 32])),
                (PathBuf::from("/home/a/shims/go"), Digest([4; 32])),
                (PathBuf::from("/usr/bin/cc"), Digest([2; 32])),
            ],
        },
        level: Level::Full,
        deps: Vec::new(),
        layers: BTreeMap::from([(Layer::User, "enforced"), (Layer::Time, "unavailable")]),
    }
}

type Change = (&'static str, fn(&mut Action));

/// Every change that must lead to another key.
const MATTERS: &[Change] = &[
    ("tree", |a| a.tree.tree = ObjectId::new(&[8; 20])),
    ("object format", |a| a.tree.format = ObjectFormat::Sha256),
    ("guard", |a| a.guard = Guard::Inputs),
    ("scope", |a| a.scope = vec!["src".to_owned()]),
    ("touches", |a| a.touches = vec!["src".to_owned()]),
    ("argument order", |a| a.command.argv.swap(1, 2)),
    ("arguments joined", |a| a.command.argv = vec![b"go".to_vec(), b"test ./...".to_vec()]),
    ("an empty argument", |a| a.command.argv.push(Vec::new())),
    ("cwd", |a| a.command.cwd = b"sub".to_vec()),
    ("a variable empty", |a| {
        a.command.env.insert(b"TOKEN".to_vec(), Vec::new());
    }),
    ("a variable absent", |a| a.command.env.clear()),
    ("tests required", |a| a.command.require_tests = Some(0)),
    ("timeout", |a| a.policy.limits.timeout = Duration::from_secs(1)),
    ("memory", |a| a.policy.limits.memory = None),
    ("pids", |a| a.policy.limits.pids = Some(1)),
    ("cpus", |a| a.policy.limits.cpus_milli = Some(1)),
    ("disk", |a| a.policy.limits.disk = Bytes(1)),
    ("output", |a| a.policy.limits.output = Bytes(1)),
    ("policy level", |a| a.policy.level = Level::Landlock),
    ("network", |a| a.policy.network = Network::Host),
    ("need", |a| {
        a.policy.layers.insert(Layer::Time, Need::Require);
    }),
    ("aslr", |a| a.policy.aslr = Aslr::Off),
    ("umask", |a| a.policy.umask = 0o077),
    ("host name", |a| a.policy.guise.host_name = "other".to_owned()),
    ("user", |a| a.policy.guise.uid = 0),
    ("network shape", |a| a.policy.guise.network = Shape::BlackHole),
    ("listing", |a| a.policy.guise.listing = Listing::Ascending),
    ("clock", |a| a.policy.clock = Clock::Host),
    ("clock start", |a| a.policy.clock = Clock::Fixed { start: 1, mode: ClockMode::Ticking }),
    ("clock mode", |a| a.policy.clock = Clock::Fixed { start: 1_767_225_600, mode: ClockMode::Frozen }),
    ("submodules", |a| a.filled.submodules = true),
    ("lfs", |a| a.filled.lfs = true),
    ("git view", |a| a.policy.git = GitView::Synthetic),
    ("visible", |a| {
        a.policy.visible.pop();
    }),
    ("visible optional", |a| a.policy.visible[0].optional = true),
    ("runner", |a| a.runner.digest = Digest([5; 32])),
    ("toolchain version", |a| a.runner.toolchain = "go1.28".to_owned()),
    ("toolchain content", |a| a.runner.identity[0].1 = Digest([6; 32])),
    ("bind inside", |a| a.runner.binds[0].inside = PathBuf::from("/opt/golang")),
    ("path order", |a| a.runner.path.swap(0, 1)),
    ("runner env", |a| a.runner.env.clear()),
    ("level", |a| a.level = Level::Landlock),
    ("layer word", |a| {
        a.layers.insert(Layer::Time, "enforced");
    }),
];

/// Every change that must leave the key alone.
const DOES_NOT_MATTER: &[Change] = &[
    ("commit", |a| a.tree.commit = None),
    ("dirty", |a| a.tree.dirty = true),
    ("policy name", |a| a.policy.name = "mine".to_owned()),
    ("policy description", |a| a.policy.description.clear()),
    ("why", |a| a.policy.visible[0].why.clear()),
    ("order of what is visible", |a| a.policy.visible.reverse()),
    ("a layer said to be off", |a| {
        a.policy.layers.insert(Layer::Disk, Need::Off);
    }),
    ("runner name", |a| a.runner.name = "golang".to_owned()),
    ("touched under another guard", |a| a.touched = Some(ObjectId::new(&[1; 20]))),
    ("the toolchain's place on the host", |a| {
        a.runner.binds[0].host = PathBuf::from("/srv/b");
        a.runner.identity[0].0 = PathBuf::from("/srv/b/bin/go");
        a.runner.identity[1].0 = PathBuf::from("/srv/shims/go");
        a.runner.identity.rotate_left(1);
    }),
];

fn changed(change: fn(&mut Action)) -> Action {
    let mut action = action();
    change(&mut action);
    action
}

#[test]
fn keys_of_fixed_actions_stay_as_they_are() {
    // A failure here means that every record in every cache has lost its key: raise KEY_VERSION and say why in its
    // changelog, then take over the new digests.
    let touches = changed(|a| {
        a.guard = Guard::Touches;
        a.touches = vec!["src".to_owned()];
        a.touched = Some(ObjectId::new(&[2; 20]));
    });
    let sha256 = changed(|a| {
        a.tree.format = ObjectFormat::Sha256;
        a.tree.tree = ObjectId::new(&[7; 32]);
        a.command.argv = vec![vec![0xff, b'x']];
        a.policy.clock = Clock::Host;
    });
    let machine = (std::env::consts::OS, std::env::consts::ARCH);
    if machine == ("linux", "x86_64") {
        let golden = [action(), touches, sha256].map(|action| key_of(&action).key.0.hex());
        assert_eq!(
            (KEY_VERSION, golden),
            (
                2,
                [
                    "3a92fbde99e336e9af7bd9d0b032dcb489b50b362b914c132db6b8bbcc984687".to_owned(),
                    "5677bc6b811bd1762f96a97360c1e8f3546637ef3c43159a331fe80ee4e50ef8".to_owned(),
                    "5a8b7be277f8fed127a891d5a7d32e216d79cf0631384bbebbbe94ec5376b931".to_owned(),
                ]
            )
        );
    }
    assert_eq!(
        policy_digest(&action().policy).hex(),
        "0ded6d0da58bf5178858e934b0bcf3911954af45cef0e03f70c8ca9361991619"
    );
}

#[test]
fn what_matters_changes_the_key_and_nothing_else_does() {
    let base = key_of(&action());
    for (what, change) in MATTERS {
        assert_ne!(key_of(&changed(*change)).key, base.key, "{what}");
    }
    for (what, change) in DOES_NOT_MATTER {
        assert_eq!(key_of(&changed(*change)).preimage, base.preimage, "{what}");
    }
}

#[test]
fn touches_replace_the_tree_only_when_their_tree_is_known() {
    let touching = |tree: u8, touched: Option<u8>| {
        let mut action = action();
        action.guard = Guard::Touches;
        action.tree.tree = ObjectId::new(&[tree; 20]);
        action.touched = touched.map(|byte| ObjectId::new(&[byte; 20]));
        key_of(&action).key
    };
    assert_eq!(touching(1, Some(5)), touching(2, Some(5)));
    assert_ne!(touching(1, Some(5)), touching(1, Some(6)));
    assert_ne!(touching(1, None), touching(2, None));
}

#[test]
fn the_weak_key_forgets_the_tree_and_the_command_key_all_but_the_command() {
    let tree = changed(|a| a.tree.tree = ObjectId::new(&[8; 20]));
    let policy = changed(|a| a.policy.limits.pids = Some(1));
    let command = changed(|a| a.command.argv.push(b"-v".to_vec()));
    assert_eq!(weak_key(&tree), weak_key(&action()));
    assert_ne!(weak_key(&policy), weak_key(&action()));
    assert_eq!(command_key(&policy), command_key(&action()));
    assert_ne!(command_key(&command), command_key(&action()));
    assert_ne!(policy_digest(&policy.policy), policy_digest(&action().policy));
}

#[test]
fn a_pre_image_reads_back() {
    let preimage = key_of(&action()).preimage;
    assert_eq!(asked(&preimage).argv, action().command.argv);
    let listed = fields(&preimage).unwrap();
    let get = |name: &str| listed.iter().find(|field| field.name == name).map(|field| field.value.clone());
    assert_eq!(get("tree"), Some(Value::Bytes(b"0707070707070707070707070707070707070707".to_vec())));
    assert_eq!(get("require_tests"), Some(Value::Absent));
    assert!(
        matches!(get("runner.identity"), Some(Value::Pairs(pairs)) if pairs[0].0 == b"/opt/go/bin/go" && pairs[2].0 == b"go")
    );
    for cut in 0..preimage.len() {
        // A cut at the end of a field leaves a shorter list; everywhere else nothing can be read.
        assert!(fields(&preimage[..cut]).is_none_or(|shorter| listed.starts_with(&shorter)), "cut at {cut}");
    }
}

#[test]
fn secrets_are_neither_in_the_pre_image_nor_in_the_differences() {
    let before = key_of(&action()).preimage;
    let holds = |haystack: &[u8]| haystack.windows(7).any(|part| part == b"hunter2" || part == b"hunter3");
    assert!(!holds(&before));
    let after = key_of(&changed(|a| {
        a.command.env.insert(b"TOKEN".to_vec(), b"hunter3".to_vec());
    }))
    .preimage;
    let expected = Difference { name: "env.TOKEN".into(), before: "changed".into(), after: "changed".into() };
    assert_eq!(differences(&before, &after), vec![expected]);
}

#[test]
fn differences_are_in_words() {
    type Case = (fn(&mut Action), &'static str, &'static str, &'static str);
    let table: &[Case] = &[
        (|a| a.policy.limits.timeout = Duration::from_secs(1), "policy.timeout", "10m", "1s"),
        (|a| a.policy.limits.memory = None, "policy.memory", "4GiB", "absent"),
        (|a| a.command.argv[1] = b"a b".to_vec(), "argv", "go test ./...", "go 'a b' ./..."),
        (|a| a.command.cwd = b"sub".to_vec(), "cwd", ".", "sub"),
        (|a| a.command.env.clear(), "env.TOKEN", "set", "absent"),
        (
            |a| {
                a.layers.insert(Layer::Time, "enforced");
            },
            "layers.time",
            "unavailable",
            "enforced",
        ),
        (|a| a.runner.toolchain = "go1.28".into(), "runner.toolchain", "go1.27.3 linux/amd64", "go1.28"),
        (
            |a| a.runner.identity[2].1 = Digest([5; 32]),
            "runner.identity./usr/bin/cc",
            "b3:020202020202…",
            "b3:050505050505…",
        ),
        (|a| a.command.argv[0] = b"\x1b[2J".to_vec(), "argv", "go test ./...", "'\\u{1b}[2J' test ./..."),
    ];
    let base = key_of(&action()).preimage;
    for (change, name, before, after) in table {
        let found = differences(&base, &key_of(&changed(*change)).preimage);
        let shown: Vec<_> =
            found.iter().map(|d| (d.name.as_str(), d.before.as_str(), d.after.as_str())).collect();
        assert_eq!(shown, vec![(*name, *before, *after)]);
    }
    assert_eq!(differences(&base, &base), vec![]);
    assert_eq!(differences(&[KEY_VERSION + 1, 4], &base)[0].name, "key_version");
}

proptest! {
    #[test]
    fn any_bytes_read_without_a_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Some(first) = bytes.first_mut() {
            *first = KEY_VERSION;
        }
        if let Some(listed) = fields(&bytes) {
            prop_assert!(listed.len() <= bytes.len());
        }
    }

    #[test]
    fn different_commands_have_different_pre_images(
        left in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..4), 1..4),
        right in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..4), 1..4),
    ) {
        let keyed = |argv: &Vec<Vec<u8>>| {
            let mut action = action();
            action.command.argv.clone_from(argv);
            key_of(&action)
        };
        prop_assert_eq!(keyed(&left).key == keyed(&right).key, left == right);
        prop_assert_eq!(asked(&keyed(&left).preimage).argv, left);
    }
}
