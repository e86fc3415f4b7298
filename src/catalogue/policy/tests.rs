//! Tables for the policy parser: what it takes, what it refuses and where it says so.
#![forbid(unsafe_code)]

use super::*;
use crate::catalogue::expand;
use crate::model::policy::ClockMode;

const HERMETIC: &str = include_str!("../../../policies/hermetic.toml");

fn read(text: &str) -> Result<NamedPolicy, String> {
    parse("x", Source { file: "x.toml", text }, "x.toml").map_err(|error| error.to_string())
}

#[test]
fn built_in_policies_read_back_what_they_expand_to() {
    for (name, _) in BUILT_IN {
        let named = policy(name, None).unwrap();
        let text = expand(&named.policy, &named.reasons);
        let again = parse(name, Source { file: "expanded", text: &text }, "built-in").unwrap();
        assert_eq!(again, named, "{text}");
    }
}

#[test]
fn a_changed_policy_expands_to_text_that_reads_back() {
    let mut named = policy("strict", None).unwrap();
    named.policy.layers.insert(Layer::Time, Need::Off);
    for clock in [Clock::Host, Clock::Commit { mode: ClockMode::Frozen }] {
        named.policy.clock = clock;
        let text = expand(&named.policy, &named.reasons);
        let again = parse("strict", Source { file: "expanded", text: &text }, "built-in").unwrap();
        assert_eq!(again.policy, named.policy, "{text}");
    }
}

#[test]
fn the_default_is_what_the_documents_say() {
    let hermetic = policy("hermetic", None).unwrap().policy;
    assert_eq!(hermetic.limits.timeout.as_secs(), 600);
    assert_eq!(hermetic.clock, Clock::Fixed { start: 1_767_225_600, mode: ClockMode::Ticking });
    assert_eq!(hermetic.layers.get(&Layer::Seccomp), Some(&Need::Require));
    for hidden in
        ["/etc/passwd", "/etc/hosts", "/etc/resolv.conf", "/etc/group", "/etc/shadow", "/etc/ssl/private/key"]
    {
        assert!(hermetic.visible.iter().all(|entry| !Path::new(hidden).starts_with(&entry.path)), "{hidden}");
    }
    assert!(policy("strict", None).unwrap().policy.layers.values().all(|need| *need == Need::Require));
}

/// One change to the default policy, and what must be said about it.
#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (from, to, expected) in [
        ("format = 1", "format = 2", "x.toml:2:10: key `format`: this checkrun reads format 1, not 2"),
        ("format = 1", "", "key `format`: is missing"),
        ("format = 1", "format = ", "x.toml:2:10: this is not TOML"),
        (
            "pids = 4096",
            "pidz = 4096",
            "key `limits.pidz`: no such key; did you mean `pids`? accepted here: `timeout`",
        ),
        ("pids = 4096", "pids = \"4096\"", "key `limits.pids`: takes a whole number, not the text `4096`"),
        ("pids = 4096", "pids = -1", "takes a whole number that is not negative, not the number -1"),
        ("pids = 4096", "pids = 0", "key `limits.pids`: is zero"),
        ("pids = 4096", "", "layer `pids` is on, but `limits.pids` is not set"),
        ("pids = 4096", "pids = 1\ncpus = 2", "`limits.cpus` is set, but layer `cpus` is off"),
        ("memory = \"8GiB\"", "memory = \"4 bananas\"", "key `limits.memory`: `4 bananas` is not a size"),
        ("memory = \"8GiB\"", "memory = 8", "key `limits.memory`: takes a text in quotes, not the number 8"),
        ("timeout = \"10m\"", "timeout = \"soon\"", "`soon` is not a duration"),
        ("level = \"full\"", "level = \"ful\"", "key `level`: `ful` is not known here; did you mean `full`?"),
        ("mode = \"loopback\"", "mode = \"host\"", "key `network.why`: is missing"),
        ("mode = \"ticking\"", "mode = \"host\"", "key `clock.why`: is missing"),
        ("start = \"2026-01-01T00:00:00Z\"", "", "key `clock.start`: is missing; it is an instant"),
        ("start = \"2026", "start = \"1026", "key `clock.start`: `1026-01-01T00:00:00Z` lies outside"),
        ("start = \"2026-01-01T00:00:00Z\"", "start = 2026-01-01T00:00:00Z", "not the date"),
        ("view = \"none\"", "view = \"synthetic\"", "key `git.why`: is missing"),
        ("need = \"off\"\nwhy = ", "need = \"off\"\n# ", "key `layers.cpus.why`: is missing"),
        ("[layers.disk]\nneed = \"require\"", "", "key `layers.disk`: is missing"),
        (
            "[layers.disk]\nneed = \"require\"",
            "[layers.disk]\nneed = \"prefer\"\nwhy = \" \"",
            "key `layers.disk.why`: is empty",
        ),
        ("[layers.disk]", "[layers.dusk]", "key `layers.dusk`: no such key; did you mean `disk`?"),
        ("path = \"/usr\"", "path = \"/\"", "is not a plain absolute path"),
        ("path = \"/usr\"", "path = \"/usr/\"", "is not a plain absolute path"),
        ("path = \"/usr\"", "path = \"usr/../x\"", "is not a plain absolute path"),
        ("path = \"/usr\"", "path = \"/u*r\"", "that is not at its end"),
        ("path = \"/usr\"", "path = \"/usr*\"", "must be `optional = true`"),
        ("path = \"/usr\"", "path = \"/bin\"", "`/bin` is shown twice"),
        ("path = \"/usr\"\nwhy", "path = \"/usr\"\nwhom", "key `visible[0].whom`: no such key"),
        ("[[visible]]\npath = \"/usr\"\n", "[visible]\npath = \"/usr\"\n", "x.toml:"),
    ] {
        assert!(HERMETIC.contains(from), "{from:?} is not in the policy");
        let error = read(&HERMETIC.replacen(from, to, 1)).unwrap_err();
        assert!(error.contains(expected) && error.starts_with("x.toml:"), "{from:?} -> {to:?}: {error}");
    }
}

#[test]
fn stars_become_what_there_is() {
    let text = HERMETIC.replacen("path = \"/etc/java*\"", "path = \"/etc/thing-*\"", 1);
    let listed = |_: &Path| ["thing-2", "other", "thing-1"].map(OsString::from).to_vec();
    let named = on_this_machine(read(&text).unwrap(), listed);
    let things: Vec<&str> = named
        .policy
        .visible
        .iter()
        .filter_map(|entry| entry.path.to_str())
        .filter(|path| path.contains("thing") || path.contains('*'))
        .collect();
    assert_eq!(things, ["/etc/thing-1", "/etc/thing-2"]);
}

#[test]
fn policies_are_found_by_name_and_by_path() {
    let config = tempfile::tempdir().unwrap();
    let folder = config.path().join("policies");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("mine.toml"), HERMETIC).unwrap();
    assert_eq!(policy("mine", Some(config.path())).unwrap().policy.name, "mine");
    let path = folder.join("mine.toml");
    assert_eq!(policy(path.to_str().unwrap(), None).unwrap().policy.name, "mine");
    assert_eq!(policies(Some(config.path())).unwrap().len(), 7);
    let error = policy("hermetik", Some(config.path())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no policy is named `hermetik`; there are hermetic, strict, landlock, networked, prepare, nested, mine"
    );
    assert!(error.hint().unwrap().contains("did you mean `hermetic`?"));
    std::fs::write(folder.join("strict.toml"), HERMETIC).unwrap();
    assert!(matches!(policy("strict", Some(config.path())), Err(CatalogueError::Reserved { .. })));
    assert!(matches!(policy("/dev/zero", None), Err(CatalogueError::Unreadable { .. })));
    assert!(matches!(policy("./no-such.toml", None), Err(CatalogueError::Unreadable { .. })));
}

/// A sound text with a piece replaced by another: what is close to right gets furthest into a parser.
fn altered(text: &str, (at, length): (usize, usize), piece: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let at = at % (characters.len() + 1);
    let end = characters.len().min(at + length);
    characters[..at].iter().copied().chain(piece.chars()).chain(characters[end..].iter().copied()).collect()
}

proptest::proptest! {
    /// Foreign text: no panic, whatever becomes of it.
    #[test]
    fn any_policy_is_read_without_a_panic(at in 0_usize..4000, length in 0_usize..60, piece in "[\\[\\]=\"'#{}.,a-z0-9\\-+:eE_ \n\u{0}\u{fffd}]{0,12}") {
        let text = altered(HERMETIC, (at, length), &piece);
        let policy = read(&text);
        if let Ok(named) = policy {
            // What is taken can be said and read again.
            proptest::prop_assert!(read(&expand(&named.policy, &named.reasons)).is_ok());
        }
        let settings = altered("format = 1\n[limits]\ntimeout = \"5m\"\ncpus = 1.5\nmemory = \"1GiB\"\n[clock]\nstart = \"2020-02-02T00:00:00Z\"\n", (at, length % 9), &piece);
        let _ = crate::catalogue::RepositorySettings::parse(settings.as_bytes()).is_ok();
    }

    #[test]
    fn any_bytes_are_no_settings_and_no_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        let _ = crate::catalogue::RepositorySettings::parse(&bytes).is_ok();
    }

    #[test]
    fn any_measure_is_read_without_a_panic(text in "[-+]?[0-9]{0,25}[.eE]?[0-9]{0,20} ?(Gi?B|PiB|y|m|ms|h 1m|T00:00:00Z|-0[0-9]-31T2[0-9]:00:60Z|\u{e9})?") {
        use crate::model::units;
        let _ = (units::Bytes::parse(&text).is_ok(), units::parse_duration(&text).is_ok(), units::parse_cpus(&text).is_ok(), units::parse_instant(&text).is_ok());
    }
}
