//! The commands on flakes: their options as clap reads them, and what they come to.
#![forbid(unsafe_code)]

use crate::cli::arguments::CheckArgs;
use crate::cli::choices::count;
use crate::cli::request::{CheckRequest, check};
use crate::cli::{Exit, usage};
use crate::model::units::{Share, parse_duration};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Failures that are looked for where nothing else is asked.
const DEFAULT_RATE: Share = Share::TWENTIETH;

/// What `--explain` can turn.
const AXES: [&str; 17] = [
    "clock",
    "timezone",
    "locale",
    "hash_seed",
    "seed",
    "terminal",
    "cores",
    "cpu",
    "aslr",
    "umask",
    "hostname",
    "user",
    "memory",
    "network",
    "listing",
    "order",
    "repetition",
];

/// `checkrun flake`.
#[derive(Debug, Args)]
pub(super) struct FlakeArgs {
    #[command(flatten)]
    check: CheckArgs,
    /// Run it N times
    #[arg(long, value_name = "N", value_parser = count::<u64, 10_000_000>, group = "goal",
        help_heading = "How often")]
    runs: Option<u64>,
    /// Until it is known whether it fails less than RATE
    ///
    /// A rate such as 'p<1%', by default 'p<5%'. This is what is done where nothing else is asked.
    #[arg(long, value_name = "RATE", value_parser = rate, group = "goal", help_heading = "How often")]
    certify: Option<Share>,
    /// Run it for that long, such as 10m
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, group = "goal", help_heading = "How often")]
    span: Option<Duration>,
    /// Run it until it fails
    #[arg(long, group = "goal", help_heading = "How often")]
    until_fail: bool,
    /// Was it fixed: as often as it takes to tell
    ///
    /// From the failures on record under a key, or of another revision.
    #[arg(long, value_name = "KEY|REV", group = "goal", help_heading = "How often")]
    fixed: Option<String>,
    /// Find out why, in some hundreds of runs
    ///
    /// One input after the other is turned: clock, time zone, seeds, processors, the order of tests and more.
    #[arg(long, group = "goal", conflicts_with_all = ["confidence", "max_runs"], help_heading = "How often")]
    explain: bool,
    /// With `--explain`: turn only this input (repeatable)
    ///
    /// All where none is named.
    #[arg(long, value_name = "INPUT", value_parser = AXES, requires = "explain", help_heading = "How often")]
    axis: Vec<String>,
    /// How sure every claim is [default: 95%]
    #[arg(long, value_name = "SHARE", value_parser = confidence, help_heading = "How often")]
    confidence: Option<Share>,
    /// Runs at one time [default: one for each processor]
    #[arg(long, value_name = "J", value_parser = count::<u16, 256>, help_heading = "How often")]
    jobs: Option<u16>,
    /// Never more runs than this
    #[arg(long, value_name = "N", value_parser = count::<u64, 10_000_000>,
        conflicts_with = "runs", help_heading = "How often")]
    max_runs: Option<u64>,
    /// Take the quarantine file from this revision
    ///
    /// So that a change cannot excuse itself. By default it is the tree's own.
    #[arg(long, value_name = "REV", conflicts_with = "explain", help_heading = "Tree")]
    base: Option<String>,
    /// Write a page of HTML to FILE
    ///
    /// With nothing in it that would be loaded from elsewhere.
    #[arg(long, value_name = "FILE", help_heading = "Command and output")]
    html: Option<PathBuf>,
    /// Write the verdict to FILE as JUnit XML
    ///
    /// With each test that is not stable.
    #[arg(long, value_name = "FILE", conflicts_with = "explain", help_heading = "Command and output")]
    junit: Option<PathBuf>,
}

/// How long a check is repeated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Goal {
    /// A number of times.
    Runs(u64),
    /// Until its rate is known to be below this or not.
    Certify(Share),
    /// For that long.
    For(Duration),
    /// Until it fails.
    UntilFail,
    /// As often as it takes to say that the failures of this key or revision are gone.
    Fixed(String),
}

/// A check to be repeated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlakeRequest {
    /// The check.
    pub check: CheckRequest,
    /// Find out why instead.
    pub explain: bool,
    /// The only inputs that are turned to find out; all where none is named.
    pub axes: Vec<String>,
    /// How long.
    pub goal: Goal,
    /// How sure claims are.
    pub confidence: Share,
    /// Runs at one time, if it was said.
    pub jobs: Option<u16>,
    /// The most runs, if it was said.
    pub max_runs: Option<u64>,
    /// The revision whose quarantine counts, if not the tree's own.
    pub base: Option<String>,
    /// Where a page goes, if one is wanted.
    pub html: Option<PathBuf>,
    /// Where a report in JUnit's XML goes, if one is wanted.
    pub junit: Option<PathBuf>,
}

pub(super) fn flake(args: FlakeArgs) -> Result<FlakeRequest, Exit> {
    let goal = match (args.runs, args.certify, args.span, args.fixed) {
        (Some(runs), ..) => Goal::Runs(runs),
        (_, Some(rate), ..) => Goal::Certify(rate),
        (_, _, Some(span), _) => Goal::For(span),
        (_, _, _, Some(name)) => Goal::Fixed(name),
        _ if args.until_fail => Goal::UntilFail,
        _ => Goal::Certify(DEFAULT_RATE),
    };
    if matches!(&goal, Goal::Fixed(name) if name.trim().is_empty()) {
        return Err(usage("`--fixed` names no key and no revision", Some("`checkrun flakes` lists keys")));
    }
    Ok(FlakeRequest {
        check: check(args.check)?,
        explain: args.explain,
        axes: args.axis,
        goal,
        confidence: args.confidence.unwrap_or(Share::NINETEEN_TWENTIETHS),
        jobs: args.jobs,
        max_runs: args.max_runs,
        base: args.base,
        html: args.html,
        junit: args.junit,
    })
}

/// `p<1%` or `1%`.
fn rate(text: &str) -> Result<Share, String> {
    let number = text.trim();
    let number = number.strip_prefix('p').map_or(number, str::trim_start);
    let number = number.strip_prefix('<').unwrap_or(number);
    Share::parse(number).map_err(|problem| format!("{problem}; a claim reads `p<1%`"))
}

/// A confidence: more sure than not.
fn confidence(text: &str) -> Result<Share, String> {
    let share = Share::parse(text)?;
    if share.value() < 0.5 {
        return Err(format!("`{text}` is less sure than not; a confidence is from 50% to below 100%"));
    }
    Ok(share)
}
