//! What can be turned, each by an option that a user has too, and to which values.
#![forbid(unsafe_code)]

use crate::model::policy::{Aslr, ClockMode, ClockStart};
use crate::model::units::{INSTANT_MAX, parse_instant, show_cpus, show_instant};
use crate::pipeline::Wish;

/// One day, in seconds.
const DAY: i64 = 86_400;

/// Axes in the words of `--axis`.
pub(super) const CLOCK: &str = "clock";

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
