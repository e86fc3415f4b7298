//! What can be turned, each by an option that a user has too, and to which values.
#![forbid(unsafe_code)]

use crate::model::policy::{ClockMode, ClockStart};
use crate::model::units::{INSTANT_MAX, parse_instant, show_cpus, show_instant};
use crate::pipeline::Wish;

/// One day, in seconds.
const DAY: i64 = 86_400;

/// The check with one input turned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Arm {
    /// Which input.
    pub(super) axis: &'static str,
    /// What that makes of a cause.
    pub(super) cause: &'static str,
    pub(super) clock: Option<i64>,
    /// Whether the clock stands still, so that a second is a second however long a program takes to start.
    frozen: bool,
    env: Option<(&'static str, &'static str)>,
    cpus_milli: Option<u32>,
}

impl Arm {
    const NOTHING: Self =
        Self { axis: "", cause: "", clock: None, frozen: false, env: None, cpus_milli: None };

    pub(super) fn clock(instant: i64) -> Self {
        Self { axis: "clock", cause: "date", clock: Some(instant), ..Self::NOTHING }
    }

    pub(super) fn moment(instant: i64) -> Self {
        Self { frozen: true, ..Self::clock(instant) }
    }

    pub(super) fn is_clock(&self) -> bool {
        self.clock.is_some()
    }

    /// The options that turn it.
    pub(super) fn options(&self) -> String {
        if let Some(instant) = self.clock {
            return format!("--clock {}", show_instant(instant));
        }
        if let Some((name, value)) = self.env {
            return format!("--env {name}={value}");
        }
        self.cpus_milli.map_or_else(String::new, |milli| format!("--cpus {}", show_cpus(milli)))
    }

    pub(super) fn apply(&self, wish: &Wish) -> Wish {
        let mut wish = wish.clone();
        if let Some(instant) = self.clock {
            wish.clock.start = Some(ClockStart::At(instant));
            if self.frozen {
                wish.clock.mode = Some(ClockMode::Frozen);
            }
        }
        if let Some((name, value)) = self.env {
            wish.env.insert(name.as_bytes().to_vec(), value.as_bytes().to_vec());
        }
        if self.cpus_milli.is_some() {
            wish.overrides.cpus_milli = self.cpus_milli;
        }
        wish
    }
}

/// Everything but the clock. What the caller has set stays as it is.
pub(super) fn plain(wish: &Wish) -> Vec<Arm> {
    let env = |axis, cause, name, value| Arm { axis, cause, env: Some((name, value)), ..Arm::NOTHING };
    let mut arms = vec![
        env("timezone", "timezone", "TZ", "Pacific/Kiritimati"),
        env("timezone", "timezone", "TZ", "Etc/GMT+12"),
        env("timezone", "timezone", "TZ", "America/New_York"),
        env("locale", "locale", "LC_ALL", "C"),
        env("locale", "locale", "LC_ALL", "tr_TR.UTF-8"),
    ];
    for seed in ["0", "1", "2", "3"] {
        arms.push(env("hash_seed", "unordered-collection", "PYTHONHASHSEED", seed));
    }
    arms.retain(|arm| arm.env.is_none_or(|(name, _)| !wish.env.contains_key(name.as_bytes())));
    if wish.overrides.cpus_milli.is_none() {
        arms.push(Arm { axis: "cpu", cause: "async-wait", cpus_milli: Some(200), ..Arm::NOTHING });
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
