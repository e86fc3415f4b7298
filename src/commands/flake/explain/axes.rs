//! What can be turned, each by an option that a user has too, and to which values.
#![forbid(unsafe_code)]

use crate::model::guise::{HOST_NAME_MAX, Listing, NOBODY, Shape, Variation};
use crate::model::policy::{Aslr, ClockMode, ClockStart};
use crate::model::units::{Bytes, INSTANT_MAX, parse_instant, show_cpus, show_duration, show_instant};
use crate::pipeline::Wish;
use std::time::Duration;

/// One day, in seconds.
const DAY: i64 = 86_400;

/// Axes in the words of `--axis`.
pub(super) const CLOCK: &str = "clock";
pub(super) const MEMORY: &str = "memory";
const NETWORK: &str = "network";

const MIB: u64 = 1 << 20;
/// What a run is given in memory beyond what it usually takes, at least.
const ROOM: u64 = 16 * MIB;
/// How long a check may wait for an answer, at least.
const PATIENCE: Duration = Duration::from_secs(10);

/// How one input is turned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// The clock starts there; whether it stands still, so that a second is a second however long a program takes to start.
    Clock { at: i64, frozen: bool },
    /// A variable has this value.
    Env(&'static str, &'static str),
    /// Processors, in thousandths.
    Cpus(u32),
    /// Whether addresses are randomised.
    Aslr(Aslr),
    /// Permissions that new files do not get.
    Umask(u32),
    /// So much memory, and no more.
    Memory(Bytes),
    /// It takes its surroundings for something else; the most time that it is given, where that is less than usual.
    Vary(Variation, Option<Duration>),
    /// Other words for the same suite: in another order, say. What that is in a few words, and the command.
    Command(String, Vec<Vec<u8>>),
}

/// The check with one input turned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Arm {
    /// Which input.
    pub(super) axis: &'static str,
    /// What that makes of a cause.
    pub(super) cause: &'static str,
    pub(super) turn: Turn,
}

impl Arm {
    pub(super) fn clock(at: i64) -> Self {
        Self { axis: CLOCK, cause: "date", turn: Turn::Clock { at, frozen: false } }
    }

    pub(super) fn moment(at: i64) -> Self {
        Self { turn: Turn::Clock { at, frozen: true }, ..Self::clock(at) }
    }

    pub(super) fn clock_start(&self) -> Option<i64> {
        match self.turn {
            Turn::Clock { at, .. } => Some(at),
            _ => None,
        }
    }

    /// The options that turn it; of another command, what it is.
    pub(super) fn options(&self) -> String {
        match &self.turn {
            Turn::Clock { at, .. } => format!("--clock {}", show_instant(*at)),
            Turn::Env(name, value) => format!("--env {name}={value}"),
            Turn::Cpus(milli) => format!("--cpus {}", show_cpus(*milli)),
            Turn::Aslr(aslr) => format!("--aslr {}", aslr.name()),
            Turn::Umask(mask) => format!("--umask {mask:03o}"),
            Turn::Memory(bytes) => format!("--memory {}MiB", bytes.0 / MIB),
            Turn::Vary(variation, None) => format!("--vary {variation}"),
            Turn::Vary(variation, Some(most)) => {
                format!("--vary {variation} --timeout {}", show_duration(*most).replace(' ', ""))
            }
            Turn::Command(what, _) => what.clone(),
        }
    }

    pub(super) fn command(&self) -> Option<&[Vec<u8>]> {
        match &self.turn {
            Turn::Command(_, argv) => Some(argv),
            _ => None,
        }
    }

    pub(super) fn apply(&self, wish: &Wish) -> Wish {
        let mut wish = wish.clone();
        match &self.turn {
            Turn::Clock { at, frozen } => {
                wish.clock.start = Some(ClockStart::At(*at));
                if *frozen {
                    wish.clock.mode = Some(ClockMode::Frozen);
                }
            }
            Turn::Env(name, value) => {
                wish.env.insert(name.as_bytes().to_vec(), value.as_bytes().to_vec());
            }
            Turn::Cpus(milli) => wish.overrides.cpus_milli = Some(*milli),
            Turn::Aslr(aslr) => wish.overrides.aslr = Some(*aslr),
            Turn::Umask(mask) => wish.overrides.umask = Some(*mask),
            Turn::Memory(bytes) => wish.overrides.memory = Some(*bytes),
            Turn::Vary(variation, most) => {
                wish.overrides.varied.push(variation.clone());
                wish.overrides.timeout = most.or(wish.overrides.timeout);
            }
            Turn::Command(_, argv) => wish.argv.clone_from(argv),
        }
        wish
    }
}

/// Variables, the values that they are given, and what it means if that makes a difference. A runner's own value is no
/// reason to leave one out: under it the check may be steady, and the bare program flaky.
const VARIABLES: [(&str, &str, &str, &[&str]); 8] = [
    ("timezone", "timezone", "TZ", &["Pacific/Kiritimati", "Etc/GMT+12", "America/New_York"]),
    ("locale", "locale", "LC_ALL", &["C", "tr_TR.UTF-8"]),
    ("hash_seed", "unordered-collection", "PYTHONHASHSEED", &["0", "1", "2", "3"]),
    ("hash_seed", "unordered-collection", "PERL_HASH_SEED", &["0", "1"]),
    // math/rand draws the same numbers in each run (go.dev/doc/godebug, `randautoseed`).
    ("seed", "randomness", "GODEBUG", &["randautoseed=0"]),
    ("terminal", "terminal", "TERM", &["xterm-256color"]),
    ("terminal", "terminal", "COLUMNS", &["40"]),
    ("terminal", "terminal", "CI", &["", "false"]),
];

/// Everything but the clock and the tests of a suite. What the caller has set stays as it is. `aslr` is what is in force.
pub(super) fn plain(wish: &Wish, aslr: Aslr) -> Vec<Arm> {
    let mut arms = Vec::new();
    for (axis, cause, name, values) in VARIABLES {
        if !wish.env.contains_key(name.as_bytes()) {
            arms.extend(values.iter().map(|value| Arm { axis, cause, turn: Turn::Env(name, value) }));
        }
    }
    if wish.overrides.cpus_milli.is_none() {
        // One processor is also what a fifth of one is, so that the cores are the first to be blamed.
        arms.push(Arm { axis: "cores", cause: "concurrency", turn: Turn::Cpus(1000) });
        arms.push(Arm { axis: "cpu", cause: "async-wait", turn: Turn::Cpus(200) });
    }
    if wish.overrides.aslr.is_none() {
        let other = if aslr == Aslr::On { Aslr::Off } else { Aslr::On };
        arms.push(Arm { axis: "aslr", cause: "addresses", turn: Turn::Aslr(other) });
    }
    if wish.overrides.umask.is_none() {
        arms.push(Arm { axis: "umask", cause: "umask", turn: Turn::Umask(0o077) });
        arms.push(Arm { axis: "umask", cause: "umask", turn: Turn::Umask(0) });
    }
    arms
}

/// What runs of the check as it is have used.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Usual {
    /// The most memory at one time that a quarter of them stays within, in bytes.
    pub(super) memory: u64,
    /// Wall time of the shortest.
    pub(super) shortest: Duration,
    /// Wall time of the longest.
    pub(super) longest: Duration,
}

/// Memory: a quarter more than the sparest quarter of the runs has used, so that a check that sometimes takes far more is told from one that
/// always takes as much; and room for what a start costs.
pub(super) fn memory(wish: &Wish, usual: Usual, in_force: Option<Bytes>) -> Option<Arm> {
    let more = (usual.memory / 4).max(ROOM);
    let limit = Bytes((usual.memory.saturating_add(more)).div_ceil(MIB).saturating_mul(MIB));
    let is_less = in_force.is_none_or(|known| limit.0 < known.0);
    let wanted = wish.overrides.memory.is_none() && usual.memory > 0 && is_less;
    wanted.then_some(Arm { axis: MEMORY, cause: "memory", turn: Turn::Memory(limit) })
}

/// What the check takes its surroundings for: host name, user, network, the order of folders. `timeout` is what is in force.
pub(super) fn guises(wish: &Wish, usual: Usual, timeout: Duration) -> Vec<Arm> {
    // Where nothing ever answers, a check may wait until its time is up; it gets ten times as long as it usually takes.
    let patience = Duration::from_secs((usual.longest * 10).max(PATIENCE).as_secs());
    let patience = Some(patience).filter(|patience| *patience < timeout);
    // As long as the kernel lets it be, in parts that a name of the DNS may have (RFC 1035, 63 each).
    let half = HOST_NAME_MAX / 2;
    let long = format!("{}.{}", "a".repeat(half - 1), "b".repeat(half));
    let host_name = |name: &str| Variation::HostName(name.to_owned());
    let arms = [
        ("hostname", "hostname", host_name("build-7"), None),
        ("hostname", "hostname", host_name("Build-Host"), None),
        ("hostname", "hostname", host_name(&long), None),
        ("user", "user", Variation::User(0), None),
        ("user", "user", Variation::User(NOBODY), None),
        (NETWORK, "network", Variation::Network(Shape::BlackHole), patience),
        (NETWORK, "network", Variation::Network(Shape::Ipv4), None),
        ("listing", "directory-order", Variation::Listing(Listing::Ascending), None),
        ("listing", "directory-order", Variation::Listing(Listing::Descending), None),
        ("listing", "directory-order", Variation::Listing(Listing::Shuffled(1)), None),
        ("listing", "directory-order", Variation::Listing(Listing::Shuffled(2)), None),
    ];
    let is_said = |axis: &str| wish.overrides.varied.iter().any(|said| said.input() == axis);
    arms.into_iter()
        .filter(|(axis, ..)| !is_said(axis))
        .map(|(axis, cause, variation, most)| Arm { axis, cause, turn: Turn::Vary(variation, most) })
        .collect()
}

/// Dates around one: the days of a week, ends of months and of the year, leap days, and years to come and gone.
pub(super) fn clock(start: i64) -> Vec<Arm> {
    let mut instants: Vec<i64> = (1..=6).map(|days| start + days * DAY).collect();
    let text = show_instant(start);
    let year: i64 = text.get(..4).and_then(|year| year.parse().ok()).unwrap_or(2026);
    let leap = (0..4).map(|more| year + more).find(|year| year % 4 == 0).unwrap_or(year);
    let mut named = vec![
        format!("{year}-01-31T12:00:00Z"),
        format!("{year}-02-28T12:00:00Z"),
        format!("{year}-03-29T01:30:00Z"),
        format!("{year}-04-30T23:59:58Z"),
        format!("{year}-07-01T12:00:00Z"),
        format!("{year}-10-25T01:30:00Z"),
        format!("{year}-12-31T23:59:58Z"),
        format!("{leap}-02-29T12:00:00Z"),
    ];
    for years in [1, 2, 5, 16] {
        named.push(format!("{}-06-15T12:00:00Z", year + years));
    }
    for date in
        ["1980-01-02", "2000-06-15", "2015-06-15", "2024-01-15", "2038-01-20", "2040-06-15", "2100-06-15"]
    {
        named.push(format!("{date}T12:00:00Z"));
    }
    instants.extend(named.iter().filter_map(|text| parse_instant(text).ok()));
    instants.retain(|instant| (0..=INSTANT_MAX).contains(instant) && *instant != start);
    instants.sort_unstable();
    instants.dedup();
    instants.into_iter().map(Arm::clock).collect()
}
