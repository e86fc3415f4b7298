//! The commands on ledgers: their options as clap reads them, and what they come to.
#![forbid(unsafe_code)]

use crate::cli::arguments::ConfineArgs;
use crate::cli::choices::count;
use crate::cli::request::{CheckRequest, TreeChoice, confined};
use crate::cli::{Exit, usage};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// `checkrun reconcile`.
#[derive(Debug, Args)]
pub(super) struct ReconcileArgs {
    /// A task with `steps`, a progress file or a backlog
    #[arg(value_name = "LEDGER", required_unless_present = "from_history")]
    ledger: Vec<PathBuf>,
    /// A git revision [default: the working tree]
    #[arg(long, value_name = "REV")]
    tree: Option<String>,
    /// Take the steps from the trailers of commits
    ///
    /// Of those that REV leads to; with a ledger, say where they differ.
    #[arg(long, value_name = "REV")]
    from_history: Option<String>,
    /// Go on after the first step that does not hold
    ///
    /// With those that do not depend on it.
    #[arg(long)]
    all: bool,
    /// Run up to N independent steps at once [default: 1]
    ///
    /// The answer is the same.
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true,
        value_parser = count::<u16, 1024>)]
    jobs: u16,
    /// Write what was found into the ledger
    #[arg(long, conflicts_with = "from_history")]
    write: bool,
    /// With --write: what the failure is thought to mean
    #[arg(long, value_name = "TEXT", requires = "write")]
    hypothesis: Option<String>,
    #[command(flatten)]
    steps: StepArgs,
}

/// `checkrun certify`.
#[derive(Debug, Args)]
pub(super) struct CertifyArgs {
    /// The step's id
    #[arg(value_name = "STEP")]
    step: String,
    /// The ledger that has it
    #[arg(long, value_name = "FILE")]
    ledger: PathBuf,
    /// On green, commit exactly the tree that was checked
    ///
    /// With trailers that say what was run.
    #[arg(long)]
    commit: bool,
    /// With --commit: the run that the commit names [default: the ledger's `run`]
    #[arg(long, value_name = "NAME", requires = "commit")]
    run: Option<String>,
    /// On red, what the failure is thought to mean
    #[arg(long, value_name = "TEXT")]
    hypothesis: Option<String>,
    #[command(flatten)]
    steps: StepArgs,
}

/// `checkrun rollback`.
#[derive(Debug, Args)]
pub(super) struct RollbackArgs {
    /// The step's id
    #[arg(value_name = "STEP")]
    step: String,
    /// The ledger that has it
    #[arg(long, value_name = "FILE")]
    ledger: PathBuf,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    steps: StepArgs,
}

/// `checkrun partials`.
#[derive(Debug, Subcommand)]
pub(super) enum PartialsCommand {
    /// Put one back into the working tree
    Apply {
        /// Its name in the list, or its step's where there is but one
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// How steps are checked.
#[derive(Debug, Args)]
struct StepArgs {
    /// A command for each step, before its own (repeatable)
    #[arg(long, value_name = "CMD")]
    also: Vec<String>,
    /// exact, inputs or touches: what must be unchanged
    ///
    /// For an earlier result to answer. By default exact, then inputs.
    #[arg(long, value_enum, value_name = "GUARD", help_heading = "Cache")]
    guard: Option<StepGuard>,
    /// Run even what is answered by an earlier result
    #[arg(long, help_heading = "Cache")]
    refresh: bool,
    /// Start every command in this folder of the tree
    #[arg(long, value_name = "SUBDIR")]
    cwd: Option<PathBuf>,
    #[command(flatten)]
    confine: ConfineArgs,
}

/// `checkrun ledger`.
#[derive(Debug, Subcommand)]
pub(super) enum LedgerCommand {
    /// Whether a file is a ledger in order; if not, what is wrong at which line and column
    Check {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// What must be unchanged for an earlier result of a step's check to answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum StepGuard {
    /// The whole tree
    Exact,
    /// The whole tree, or all that an earlier run was seen to read, list or look for
    Inputs,
    /// Also: what is under the step's touches, since the tree that its evidence names
    Touches,
}

/// Which steps of a ledger hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReconcileRequest {
    /// The ledger, as given.
    pub ledger: Option<PathBuf>,
    /// The revision whose history is read for trailers.
    pub from_history: Option<String>,
    /// `--all`.
    pub all: bool,
    /// `--jobs`: from 1.
    pub jobs: usize,
    /// `--write`.
    pub write: bool,
    /// `--hypothesis`.
    pub hypothesis: Option<String>,
    /// How steps are checked.
    pub steps: StepRequest,
}

/// Check a step and write it down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertifyRequest {
    /// The step's id.
    pub step: String,
    /// The ledger, as given.
    pub ledger: PathBuf,
    /// `--commit`.
    pub commit: bool,
    /// `--run`: one line, not empty.
    pub run: Option<String>,
    /// `--hypothesis`.
    pub hypothesis: Option<String>,
    /// How it is checked.
    pub steps: StepRequest,
}

/// Go back from a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RollbackRequest {
    /// The step's id.
    pub step: String,
    /// The ledger, as given.
    pub ledger: PathBuf,
    /// `--dry-run`.
    pub dry_run: bool,
    /// How the state that is gone back to is checked.
    pub steps: StepRequest,
}

/// How steps are checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepRequest {
    /// Tree and confinement; its command is empty.
    pub check: CheckRequest,
    /// `--also`.
    pub also: Vec<String>,
    /// `--guard`.
    pub guard: Option<StepGuard>,
    /// `--refresh`.
    pub refresh: bool,
}

pub(super) fn reconcile(args: ReconcileArgs) -> Result<ReconcileRequest, Exit> {
    let mut ledgers = args.ledger.into_iter();
    let ledger = ledgers.next();
    if let (Some(first), Some(second)) = (&ledger, ledgers.next()) {
        return Err(usage(
            &format!(
                "two ledgers, {} and {}: which of them is right cannot be told",
                first.display(),
                second.display()
            ),
            Some("name one; `checkrun reconcile` says for each what holds"),
        ));
    }
    let mut steps = steps(args.steps)?;
    if let Some(revision) = args.tree {
        steps.check.tree = TreeChoice::Revision(revision);
    }
    Ok(ReconcileRequest {
        ledger,
        from_history: args.from_history,
        all: args.all,
        jobs: usize::from(args.jobs),
        write: args.write,
        hypothesis: args.hypothesis,
        steps,
    })
}

pub(super) fn certify(args: CertifyArgs) -> Result<CertifyRequest, Exit> {
    if let Some(run) = &args.run
        && (run.trim().is_empty() || run.len() > 200 || run.chars().any(char::is_control))
    {
        return Err(usage("`--run` takes a name: one line of at most 200 bytes, not empty", None));
    }
    Ok(CertifyRequest {
        step: args.step,
        ledger: args.ledger,
        commit: args.commit,
        run: args.run,
        hypothesis: args.hypothesis,
        steps: steps(args.steps)?,
    })
}

pub(super) fn rollback(args: RollbackArgs) -> Result<RollbackRequest, Exit> {
    let steps = steps(args.steps)?;
    Ok(RollbackRequest { step: args.step, ledger: args.ledger, dry_run: args.dry_run, steps })
}

fn steps(args: StepArgs) -> Result<StepRequest, Exit> {
    if let Some(command) =
        args.also.iter().find(|command| command.trim().is_empty() || command.contains('\0'))
    {
        return Err(usage(&format!("`--also {}` is no command", command.escape_debug()), None));
    }
    let inputs = args.guard != Some(StepGuard::Exact);
    let check = CheckRequest { cwd: args.cwd, inputs, ..confined(args.confine)? };
    Ok(StepRequest { check, also: args.also, guard: args.guard, refresh: args.refresh })
}
