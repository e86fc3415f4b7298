//! Every option and its help, as clap reads them. What they come to is in `request`.
#![forbid(unsafe_code)]

use crate::cli::choices::{ClockModeName, DepsName, FormatName, GuardName, clock_start, count, size};
use crate::cli::flake::FlakeArgs;
use crate::cli::ledger::{CertifyArgs, LedgerCommand, PartialsCommand, ReconcileArgs, RollbackArgs};
use crate::cli::prepare::PrepareArgs;
use crate::cli::process::ProcessArgs;
use crate::cli::version;
use crate::model::policy::ClockStart;
use crate::model::units::{Bytes, parse_cpus, parse_duration};
use clap::{ArgAction, Args, Parser, Subcommand};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Examples come first: they are what people look for.
const EXAMPLES: &str = "\
Examples:
  checkrun -- go test ./...                      the working tree as it stands
  checkrun --tree HEAD~2 -- make check           an earlier commit
  checkrun -c 'go build ./... && go vet ./...'   a command as one string
  checkrun explain -- go test ./...              would this hit, and if not, why
  checkrun doctor                                what this machine offers
  checkrun run --help                            all options of a check";

const STATUS: &str = "\
Exit status: the command's own; 124 it ran past its timeout; 125 checkrun could not decide; 126 or 127 the command \
cannot be executed or is not found; 128+N it died of signal N; 130 or 143 checkrun itself was stopped.";

const FLAKE_STATUS: &str = "\
Exit status: 0 stable; 1 failing; 3 flaky; 4 undecided; 125 checkrun could not decide; 130 or 143 it was stopped, and \
what was known by then is told.";

/// Tells whether a command passes on an exact git tree: sandboxed, recorded, answered from the cache when it may
#[derive(Debug, Parser)]
#[command(
    name = "checkrun",
    version,
    long_version = version::long(),
    before_help = EXAMPLES,
    disable_help_flag = true,
    disable_version_flag = true,
    after_help = STATUS,
    override_usage = "checkrun [OPTIONS] -- CMD [ARG]...\n       checkrun COMMAND [OPTIONS]",
    disable_help_subcommand = true,
    subcommand_value_name = "COMMAND",
    max_term_width = 110
)]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) global: GlobalArgs,
    #[command(flatten)]
    pub(super) run: RunArgs,
    /// Print the version; --version says more
    ///
    /// What it was built from and for, what it has, and what of kernels it knows.
    #[arg(short = 'V', long, action = ArgAction::Version, help_heading = "Everywhere")]
    version: Option<bool>,
    #[command(subcommand)]
    pub(super) command: Option<Command>,
}

/// A check and nothing else, which is what is asked most: to set up every other command beside it would take a tenth of
/// the time of a hit. Words that do not fit here are read anew as [`Cli`], which then has the say.
#[derive(Debug, Parser)]
#[command(name = "checkrun", disable_help_flag = true)]
pub(super) struct Plain {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(flatten)]
    run: RunArgs,
}

impl From<Plain> for Cli {
    fn from(plain: Plain) -> Self {
        Self { global: plain.global, run: plain.run, version: None, command: None }
    }
}

/// Options that every command has.
#[derive(Debug, Args)]
pub(super) struct GlobalArgs {
    /// Act as if started in DIR
    #[arg(short = 'C', value_name = "DIR", global = true, help_heading = "Everywhere")]
    pub(super) directory: Option<PathBuf>,
    /// human, json, jsonl or github: form of stdout
    #[arg(long, value_enum, default_value_t = FormatName::Human, hide_default_value = true, value_name = "FORMAT",
        global = true, help_heading = "Everywhere")]
    pub(super) format: FormatName,
    /// Say less on stderr
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Everywhere")]
    pub(super) quiet: bool,
    /// Say more on stderr
    #[arg(short, long, global = true, help_heading = "Everywhere")]
    pub(super) verbose: bool,
    /// Print this
    #[arg(short, long, action = ArgAction::HelpShort, global = true, help_heading = "Everywhere")]
    help: Option<bool>,
}

/// The commands besides the check itself.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Check one command on one tree; the word may be left out
    #[command(override_usage = "checkrun [run] [OPTIONS] -- CMD [ARG]...")]
    Run(RunArgs),
    /// Results on record, newest first
    Log {
        /// Only those of this tree: any git revision
        #[arg(long, value_name = "REV")]
        tree: Option<String>,
    },
    /// One record, with the end of its output
    Show {
        /// Its key or its id
        #[arg(value_name = "KEY|ID")]
        record: String,
        /// Print the whole output instead, exact bytes
        #[arg(long, conflicts_with = "inputs")]
        log: bool,
        /// Print what of tree and host it depended on instead
        #[arg(long)]
        inputs: bool,
    },
    /// Would this check hit; if not, what differs
    ///
    /// From the nearest record: paths, variables, policy, toolchain. Nothing is run.
    #[command(override_usage = "checkrun explain [OPTIONS] -- CMD [ARG]...")]
    Explain(CheckArgs),
    /// Run or answer a check, and print what it depends on
    ///
    /// Of the tree and of the host.
    #[command(override_usage = "checkrun inputs [OPTIONS] -- CMD [ARG]...")]
    Inputs {
        /// Write that to FILE as JSON; the check is as usual
        ///
        /// Its output and exit status too.
        #[arg(long, value_name = "FILE")]
        trace: Option<PathBuf>,
        #[command(flatten)]
        check: CheckArgs,
    },
    /// The policies there are, or one in full as it is here
    Policies {
        /// Show this one in full: a name or a file
        #[arg(value_name = "NAME|FILE")]
        name: Option<String>,
    },
    /// The runners there are, or one in full as it is here
    Runners {
        /// Show this one in full
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
    /// What this machine offers, what is missing and how to get it
    Doctor,
    /// What the wall clock shows here, by each way of reading it; `doctor` runs it inside a sandbox
    #[command(hide = true)]
    ClockReport {
        /// One reading only
        #[arg(long)]
        child: bool,
    },
    /// What came of trying to get out; `doctor` runs it inside a sandbox
    #[command(hide = true)]
    AttemptsReport {
        /// Where somebody listens outside
        host: SocketAddr,
        /// A file outside
        file: PathBuf,
    },
    /// Write a commented .checkrun.toml for this repository
    Init,
    /// Fetch what checks need, once for each lock file
    Prepare(Box<PrepareArgs>),
    /// Make room in the cache
    Gc {
        /// Remove the oldest until no more than this is left, such as 2GiB
        #[arg(long, value_name = "SIZE", value_parser = Bytes::parse)]
        max_size: Option<Bytes>,
        /// Remove what is older than this, such as 30d
        #[arg(long, value_name = "AGE", value_parser = parse_duration)]
        max_age: Option<Duration>,
    },
    /// Which steps of a ledger hold, and the first that does not
    Reconcile(ReconcileArgs),
    /// Run a check many times and say how flaky it is
    #[command(override_usage = "checkrun flake [OPTIONS] -- CMD [ARG]...", after_help = FLAKE_STATUS)]
    Flake(Box<FlakeArgs>),
    /// Checks that were seen to pass and to fail on the same tree
    Flakes,
    /// Check a step and write it down; on green, commit it
    ///
    /// The step's own checks on the working tree. With `--commit` that very tree is committed, with trailers.
    Certify(CertifyArgs),
    /// Keep a step's partial work, then put its paths back
    ///
    /// To the state that the step goes back to. What was kept is listed by `checkrun partials`.
    Rollback(RollbackArgs),
    /// What `rollback` has kept
    Partials {
        #[command(subcommand)]
        command: Option<PartialsCommand>,
    },
    /// Look after a ledger's file
    Ledger {
        #[command(subcommand)]
        command: LedgerCommand,
    },
    /// A completion script for a shell, on stdout
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// The manual page, on stdout
    Man,
}

/// A check, and what becomes of its result.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub(super) check: CheckArgs,
    /// Run even if a result answers, and store the new one
    #[arg(long, help_heading = "Cache", conflicts_with_all = ["no_cache", "cached_only"])]
    pub(super) refresh: bool,
    /// Neither look in the cache nor store in it
    #[arg(long, help_heading = "Cache", conflicts_with = "cached_only")]
    pub(super) no_cache: bool,
    /// Answer from the cache or exit 125; never run
    #[arg(long, help_heading = "Cache")]
    pub(super) cached_only: bool,
    /// Write the result object to FILE as well, atomically
    #[arg(long, value_name = "FILE", help_heading = "Command and output")]
    pub(super) output: Option<PathBuf>,
    /// Write the check's whole output to FILE
    ///
    /// Up to the output limit, on a hit too.
    #[arg(long, value_name = "FILE", help_heading = "Command and output")]
    pub(super) log: Option<PathBuf>,
    /// Write the result to FILE as JUnit XML
    ///
    /// The check is one test case.
    #[arg(long, value_name = "FILE", help_heading = "Command and output")]
    pub(super) junit: Option<PathBuf>,
    /// With json or jsonl: show the check's output on stderr
    ///
    /// As it comes, both streams; with jsonl as events too.
    #[arg(long, help_heading = "Command and output")]
    pub(super) show_output: bool,
}

/// What is checked and how it is confined.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// A git revision [default: the working tree]
    ///
    /// A commit, tag, branch, `HEAD~2`, a tree id, `REV:sub/dir`. Without it: tracked files with their edits, and untracked
    /// ones that git does not ignore.
    #[arg(long, value_name = "REV", help_heading = "Tree", conflicts_with_all = ["staged", "dir"])]
    pub(super) tree: Option<String>,
    /// The index instead of the working tree
    #[arg(long, help_heading = "Tree", conflicts_with = "dir")]
    pub(super) staged: bool,
    /// A plain folder that is in no git repository
    #[arg(long, value_name = "DIR", help_heading = "Tree")]
    pub(super) dir: Option<PathBuf>,
    /// With `--dir`: files that .gitignore files name too
    #[arg(long, help_heading = "Tree", requires = "dir")]
    pub(super) ignored: bool,
    /// Start the command in this folder of the tree
    #[arg(long, value_name = "SUBDIR", help_heading = "Tree")]
    pub(super) cwd: Option<PathBuf>,
    /// Only what this pathspec matches exists (repeatable)
    ///
    /// Neither the check nor its key sees anything else.
    #[arg(long, value_name = "PATHSPEC", help_heading = "Tree")]
    pub(super) scope: Vec<String>,
    /// Only what this pathspec matches counts (repeatable)
    ///
    /// An earlier result answers while that is unchanged, though the check sees everything: your word for it, and the record
    /// says so.
    #[arg(long, value_name = "PATHSPEC", help_heading = "Cache")]
    pub(super) touches: Vec<String>,
    /// exact, inputs or touches: what must be unchanged
    ///
    /// For an earlier result to answer. By default touches with `--touches`, else exact, then inputs.
    #[arg(long, value_enum, value_name = "GUARD", help_heading = "Cache")]
    pub(super) guard: Option<GuardName>,
    #[command(flatten)]
    pub(super) confine: ConfineArgs,
    /// A pass with fewer than N tests is a failure [N: 1]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1",
        value_parser = count::<u64, { u64::MAX }>, help_heading = "Command and output")]
    pub(super) require_tests: Option<u64>,
    /// A command as one string, by `sh -c` if it needs one
    ///
    /// Words and quotes alone are split, so that `-c 'go test ./...'` and `-- go test ./...` are the same check.
    #[arg(
        short = 'c',
        value_name = "STRING",
        help_heading = "Command and output",
        conflicts_with = "command_words"
    )]
    pub(super) string: Option<OsString>,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD", help_heading = "Command and output")]
    pub(super) command_words: Vec<OsString>,
}

/// What every check of a call is given and held to.
#[derive(Debug, Args)]
pub(super) struct ConfineArgs {
    /// Fill submodules, from what is here
    ///
    /// With the content of their commits; nothing is fetched. By default they are empty folders.
    #[arg(long, help_heading = "Tree")]
    pub(super) submodules: bool,
    /// Fill files that Git LFS keeps, from what is here
    ///
    /// Nothing is fetched. By default they are pointers.
    #[arg(long, help_heading = "Tree")]
    pub(super) lfs: bool,
    /// prepared, found or none: where packages come from
    ///
    /// What `checkrun prepare` fetched for this lock file (the default), the folders of the working tree, or nowhere.
    #[arg(long, value_enum, value_name = "FROM", default_value_t = DepsName::Prepared, hide_default_value = true,
        help_heading = "Sandbox")]
    pub(super) deps: DepsName,
    /// Sandbox policy: a name or a file [default: hermetic]
    #[arg(long, value_name = "NAME|FILE", help_heading = "Sandbox")]
    pub(super) policy: Option<String>,
    /// Toolchain [default: by the command's first word]
    ///
    /// A name that `checkrun runners` lists; `generic` where none is for that word.
    #[arg(long, value_name = "NAME", help_heading = "Sandbox")]
    pub(super) runner: Option<String>,
    /// Time at the start: an instant, `commit` or `host`
    ///
    /// An instant such as 2026-01-01T00:00:00Z, the commit's date, or the host's clock, with which nothing is cached. By
    /// default the policy's or the repository's.
    #[arg(long, value_name = "WHEN", value_parser = clock_start, help_heading = "Sandbox")]
    pub(super) clock: Option<ClockStart>,
    /// ticking or frozen: whether that clock runs on
    #[arg(long, value_enum, value_name = "MODE", help_heading = "Sandbox")]
    pub(super) clock_mode: Option<ClockModeName>,
    /// Pass a variable in, this value or yours (repeatable)
    ///
    /// No other variable gets in. Its value is part of the key.
    #[arg(long, value_name = "NAME[=VALUE]", help_heading = "Sandbox")]
    pub(super) env: Vec<OsString>,
    #[command(flatten)]
    pub(super) process: ProcessArgs,
    /// Wall time, such as 10m
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Limits")]
    pub(super) timeout: Option<Duration>,
    /// Memory of all processes together, such as 4GiB
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Limits")]
    pub(super) memory: Option<Bytes>,
    /// Processors, such as 2 or 1.5
    #[arg(long, value_name = "N", value_parser = parse_cpus, help_heading = "Limits")]
    pub(super) cpus: Option<u32>,
    /// Processes and threads at one time
    #[arg(long, value_name = "N", value_parser = count::<u64, { u64::MAX }>, help_heading = "Limits")]
    pub(super) pids: Option<u64>,
    /// What may be written in all, temporary files too
    ///
    /// To the tree, the home and the temporary folders together.
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Limits")]
    pub(super) disk: Option<Bytes>,
    /// Output, stdout and stderr together
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Limits")]
    pub(super) output_limit: Option<Bytes>,
}
