//! How an experiment is told.
#![forbid(unsafe_code)]

use crate::commands::flake::explain::Tried;
use crate::commands::flake::explain::asked::Asked;
use crate::commands::flake::explain::axes::CLOCK;
use crate::commands::flake::explain::order::Dependent;
use crate::model::evidence::Tally;
use crate::model::units::show_instant;
use crate::pipeline::Prepared;
use crate::report::{percent, seconds, shell_words};
use crate::stats;
use serde::Serialize;
use std::fmt::Write as _;

/// What the report is called and its version.
const SCHEMA: &str = "checkrun.flake_explained/1";

/// What there is to tell.
pub(super) struct Experiment<'a> {
    pub(super) base: Tally,
    pub(super) prepared: &'a Prepared,
    /// What the caller asked besides the command.
    pub(super) asked: Asked,
    pub(super) arms: Vec<ArmTold>,
    pub(super) skipped: Vec<(&'static str, String)>,
    pub(super) edges: Vec<Edge>,
    pub(super) tests: Vec<Dependent>,
    pub(super) runs: u64,
    pub(super) secs: f64,
}

/// One arm.
#[derive(Clone, Serialize)]
pub(super) struct ArmTold {
    pub(super) axis: &'static str,
    #[serde(skip)]
    cause: &'static str,
    /// The options that turn it, or in a few words what is other about the command.
    pub(super) options: String,
    /// The whole command, where it is another than the check's own.
    pub(super) command: Option<String>,
    pub(super) screened: Tally,
    pub(super) confirmed: Option<Tally>,
    /// Runs of the check as it is, beside the confirming ones.
    beside: Option<Tally>,
    /// How likely the confirmed difference is by chance: Fisher's exact test, Holm's correction over all suspects.
    chance: Option<f64>,
    pub(super) significant: bool,
}

impl ArmTold {
    pub(super) fn new(tried: &Tried) -> Self {
        Self {
            axis: tried.arm.axis,
            cause: tried.arm.cause,
            options: tried.arm.options(),
            command: tried.arm.command().map(shell_words),
            screened: tried.screened,
            confirmed: tried.confirmed.map(|(arm, _)| arm),
            beside: tried.confirmed.map(|(_, beside)| beside),
            chance: tried.chance,
            significant: tried.is_cause(),
        }
    }

    /// The value that the input was given, without the option's name; in a few words where it is no option.
    pub(super) fn label(&self) -> &str {
        match self.command {
            Some(_) => &self.options,
            None => self.options.split_once(' ').map_or("", |(_, value)| value),
        }
    }

    fn rate(&self) -> f64 {
        rate(self.confirmed.unwrap_or(self.screened))
    }
}

/// Two seconds between which the outcome turns.
#[derive(Clone, Serialize)]
pub(super) struct Edge {
    /// The last second of one outcome.
    pub(super) before: String,
    /// The first second of the other.
    pub(super) after: String,
    /// Whether it passes before.
    pub(super) passes_before: bool,
}

impl Edge {
    pub(super) fn new(before: i64, after: i64, passes_before: bool) -> Self {
        Self { before: show_instant(before), after: show_instant(after), passes_before }
    }

    pub(super) fn text(&self) -> String {
        let (one, other) = if self.passes_before { ("passes", "fails") } else { ("fails", "passes") };
        format!("{one} up to {}, {other} from {}", self.before, self.after)
    }
}

#[derive(Serialize)]
pub(super) struct Report {
    schema: &'static str,
    pub(super) key: String,
    pub(super) tree: String,
    pub(super) cmd: String,
    /// The check as it is.
    pub(super) base: Tally,
    /// One word for what the axis stands for, such as `date`; null where none was found.
    pub(super) cause: Option<&'static str>,
    /// All of them, the surest first.
    causes: Vec<&'static str>,
    pub(super) edges: Vec<Edge>,
    /// Tests that depend on those before them.
    pub(super) tests: Vec<Dependent>,
    /// The command that fails with the highest rate seen, and that rate.
    pub(super) fails: Option<(String, f64)>,
    /// The command that passes most.
    pub(super) passes: Option<(String, f64)>,
    pub(super) arms: Vec<ArmTold>,
    pub(super) skipped: Vec<(&'static str, String)>,
    pub(super) runs: u64,
    pub(super) secs: f64,
}

impl Report {
    pub(super) fn new(found: Experiment<'_>) -> Self {
        let action = &found.prepared.action;
        let cmd = shell_words(&action.command.argv);
        let mut sure: Vec<&ArmTold> = found.arms.iter().filter(|arm| arm.significant).collect();
        sure.sort_by(|one, other| one.chance.unwrap_or(1.0).total_cmp(&other.chance.unwrap_or(1.0)));
        let mut causes = Vec::new();
        for arm in &sure {
            if !causes.contains(&arm.cause) {
                causes.push(arm.cause);
            }
        }
        if causes.contains(&"concurrency") {
            // A part of a processor is on one processor too, so it says nothing of its own here.
            causes.retain(|cause| *cause != "async-wait");
        }
        let as_it_is = (format!("{} -- {cmd}", found.asked.start(false)), rate(found.base));
        let command = |arm: &&ArmTold| {
            let start = found.asked.start(arm.axis == CLOCK);
            let words = match &arm.command {
                Some(words) => format!("{start} -- {words}"),
                None => format!("{start} {} -- {cmd}", arm.options),
            };
            (words, arm.rate())
        };
        let mut known: Vec<(String, f64)> = sure.iter().map(command).collect();
        known.push(as_it_is);
        known.sort_by(|one, other| one.1.total_cmp(&other.1));
        let told = !causes.is_empty();
        // Where single tests were found, theirs are the shorter commands.
        let pair = found.tests.first().filter(|_| causes.first() == Some(&"test-order"));
        let fails = pair.map(|test| &test.fails).or(known.last().filter(|_| told)).cloned();
        let passes = pair.map(|test| &test.passes).or(known.first().filter(|_| told)).cloned();
        Self {
            schema: SCHEMA,
            key: found.prepared.keyed.key.to_string(),
            tree: action.tree.tree.hex(),
            cmd,
            base: found.base,
            cause: causes.first().copied(),
            causes,
            edges: found.edges,
            tests: found.tests,
            fails,
            passes,
            arms: found.arms,
            skipped: found.skipped,
            runs: found.runs,
            secs: found.secs,
        }
    }

    pub(super) fn text(&self) -> String {
        let Tally { passed, failed } = self.base;
        let mut text = match self.cause {
            Some(cause) => format!("cause: {cause}\n"),
            None => "no cause found\n".to_owned(),
        };
        let _ = writeln!(text, "  as it is: {failed} of {} runs failed", passed + failed);
        for arm in self.arms.iter().filter(|arm| arm.significant) {
            let of = arm.confirmed.unwrap_or_default();
            let _ = writeln!(
                text,
                "  {}: {} of {} failed (by chance {})",
                arm.options,
                of.failed,
                of.passed + of.failed,
                match arm.chance.unwrap_or(1.0) {
                    chance if chance < 1e-4 => "less than 0.01%".to_owned(),
                    chance => percent(chance),
                }
            );
        }
        for edge in &self.edges {
            let _ = writeln!(text, "  {}", edge.text());
        }
        for test in &self.tests {
            let line: String = test.text().chars().filter(|letter| !letter.is_control()).collect();
            let _ = writeln!(text, "  {line}");
        }
        for (word, it) in [("fails", &self.fails), ("passes", &self.passes)] {
            if let Some((command, rate)) = it {
                let rate = if word == "fails" { *rate } else { 1.0 - *rate };
                let _ = writeln!(text, "  {word} ({}): {command}", percent(rate));
            }
        }
        for (axis, why) in &self.skipped {
            let _ = writeln!(text, "  not turned: {axis}: {why}");
        }
        let axes: std::collections::BTreeSet<&str> = self.arms.iter().map(|arm| arm.axis).collect();
        let axes: Vec<&str> = axes.into_iter().collect();
        let axes = if axes.is_empty() { "nothing".to_owned() } else { axes.join(", ") };
        let _ = writeln!(text, "  turned: {axes}; {} runs in {}", self.runs, seconds(self.secs));
        text
    }
}

pub(super) fn rate(tally: Tally) -> f64 {
    let all = tally.passed + tally.failed;
    if all == 0 { 0.0 } else { stats::real(tally.failed) / stats::real(all) }
}
