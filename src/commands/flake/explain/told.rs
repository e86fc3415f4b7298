//! How an experiment is told.
#![forbid(unsafe_code)]

use crate::commands::flake::explain::asked::Asked;
use crate::commands::flake::explain::axes::CLOCK;
use crate::commands::flake::explain::order::Dependent;
use crate::commands::flake::explain::trial::{Tried, sum};
use crate::model::evidence::Tally;
use crate::model::shell::shell_words;
use crate::model::units::show_instant;
use crate::pipeline::Prepared;
use crate::report::{percent, seconds};
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
    /// The signal that ended it, and in which part.
    pub(super) interrupted: Option<(i32, Stage)>,
}

/// The parts of an experiment, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    /// The check as it is.
    #[default]
    Base,
    /// The tests of its suite.
    Suite,
    /// One input after the other is turned.
    Screen,
    /// Suspects are run again.
    Confirm,
    /// Dates between which the outcome turns are looked for.
    Edges,
    /// Tests that depend on others are looked for.
    Tests,
}

impl Stage {
    fn text(self) -> &'static str {
        match self {
            Self::Base => "while the check was run as it is",
            Self::Suite => "while the tests of its suite were run by name",
            Self::Screen => "while one input after the other was turned",
            Self::Confirm => "while what stood out was run again",
            Self::Edges => "while the dates at which it turns were looked for",
            Self::Tests => "while tests that depend on others were looked for",
        }
    }
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
    /// Whether it stood out then, which by itself is no finding.
    suspect: bool,
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
            suspect: tried.suspect,
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

    /// Why it is suspected still, where nothing was settled about it.
    fn unsettled(&self) -> Option<String> {
        if !self.suspect || self.chance.is_some() {
            return None;
        }
        let mut text = format!("{}: {} when it was first turned", self.options, of(self.screened));
        if let (Some(again), Some(beside)) = (self.confirmed, self.beside)
            && sum(again, beside) != Tally::default()
        {
            let _ = write!(text, "; then {}, and {} of the check as it is", of(again), of(beside));
        }
        Some(text)
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
    /// All of them, the surest first; a time zone after a date, which it moves.
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
    /// The signal that ended it before it was through.
    interrupted: Option<i32>,
    /// What was going on then.
    during: Option<Stage>,
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
        if causes.contains(&"date") {
            // Another time zone is another local date, so at some moments it shows what a date decides.
            causes.sort_by_key(|cause| *cause == "timezone");
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
        let told = !causes.is_empty();
        // Where single tests were found, theirs are the shorter commands.
        let pair = found.tests.first().filter(|_| causes.first() == Some(&"test-order"));
        // Among equals the shortest.
        let rate = |one: &&(String, f64), other: &&(String, f64)| one.1.total_cmp(&other.1);
        let length = |one: &&(String, f64), other: &&(String, f64)| one.0.len().cmp(&other.0.len());
        let most = known.iter().max_by(|one, other| rate(one, other).then(length(other, one)));
        let least = known.iter().min_by(|one, other| rate(one, other).then(length(one, other)));
        let fails = pair.map(|test| &test.fails).or(most.filter(|_| told)).cloned();
        let passes = pair.map(|test| &test.passes).or(least.filter(|_| told)).cloned();
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
            interrupted: found.interrupted.map(|(signal, _)| signal),
            during: found.interrupted.map(|(_, stage)| stage),
        }
    }

    /// What was found, in one line. An experiment that was interrupted has not found that there is no cause.
    pub(super) fn headline(&self) -> String {
        match (self.cause, self.interrupted) {
            (Some(cause), _) => match self.causes.get(1..) {
                Some(also) if !also.is_empty() => format!("cause: {cause}; also: {}", also.join(", ")),
                _ => format!("cause: {cause}"),
            },
            (None, Some(signal)) => format!("interrupted by signal {signal} before a cause was confirmed"),
            (None, None) => "no cause found".to_owned(),
        }
    }

    /// What an experiment that was interrupted has left open: what was going on, and what is suspected and no more.
    pub(super) fn unsettled(&self) -> Vec<String> {
        let (Some(signal), Some(stage)) = (self.interrupted, self.during) else { return Vec::new() };
        let mut lines = vec![format!("interrupted by signal {signal} {}", stage.text())];
        let suspects = self.arms.iter().filter_map(ArmTold::unsettled);
        lines.extend(suspects.map(|suspect| format!("suspected, not confirmed: {suspect}")));
        lines
    }

    /// What came of each axis when it was first turned, where no cause stands for it.
    fn screened(&self) -> Vec<String> {
        let mut axes: Vec<(&str, Tally, u64)> = Vec::new();
        for arm in self.arms.iter().filter(|arm| arm.screened != Tally::default()) {
            match axes.iter_mut().find(|(axis, ..)| *axis == arm.axis) {
                Some((_, tally, values)) => (*tally, *values) = (sum(*tally, arm.screened), *values + 1),
                None => axes.push((arm.axis, arm.screened, 1)),
            }
        }
        let line = |(axis, tally, values): (&str, Tally, u64)| {
            let ways = if values == 1 { "in one way".to_owned() } else { format!("in {values} ways") };
            format!("{axis} turned {ways}: {}", of(tally))
        };
        axes.into_iter().map(line).collect()
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n", self.headline());
        let _ = writeln!(text, "  as it is: {}", of(self.base));
        for arm in self.arms.iter().filter(|arm| arm.significant) {
            let again = arm.confirmed.unwrap_or_default();
            let _ = writeln!(
                text,
                "  {}: {} of {} failed (by chance {})",
                arm.options,
                again.failed,
                again.passed + again.failed,
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
        if self.interrupted.is_some() {
            for line in self.screened().into_iter().chain(self.unsettled()) {
                let _ = writeln!(text, "  {line}");
            }
            text.push_str("  each run that ended is on record; the experiment itself begins anew\n");
        }
        for (axis, why) in &self.skipped {
            let _ = writeln!(text, "  not turned: {axis}: {why}");
        }
        // What was about to be turned when it was interrupted was not.
        let turned = self.arms.iter().filter(|arm| arm.screened != Tally::default());
        let axes: std::collections::BTreeSet<&str> = turned.map(|arm| arm.axis).collect();
        let axes: Vec<&str> = axes.into_iter().collect();
        let axes = if axes.is_empty() { "nothing".to_owned() } else { axes.join(", ") };
        let _ = writeln!(text, "  turned: {axes}; {} runs in {}", self.runs, seconds(self.secs));
        text
    }
}

/// Counts in words.
fn of(tally: Tally) -> String {
    let Tally { passed, failed } = tally;
    match passed + failed {
        0 => "no run has ended".to_owned(),
        1 => format!("{failed} of 1 run failed"),
        runs => format!("{failed} of {runs} runs failed"),
    }
}

pub(super) fn rate(tally: Tally) -> f64 {
    let all = tally.passed + tally.failed;
    if all == 0 { 0.0 } else { stats::real(tally.failed) / stats::real(all) }
}
