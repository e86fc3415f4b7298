//! Every option and its help, as clap reads them. What they come to is in `request`.
#![forbid(unsafe_code)]

use crate::cli::flake::FlakeArgs;
use crate::cli::ledger::{CertifyArgs, LedgerCommand, PartialsCommand, ReconcileArgs, RollbackArgs};
use crate::cli::prepare::PrepareArgs;
use crate::model::check::DepsChoice;
use crate::model::event::Format;
use crate::model::policy::{ClockMode, ClockStart};
use crate::model::units::{Bytes, parse_cpus, parse_duration, parse_instant};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Examples come first: they are what people look for.
const EXAMPLES: &str = "\
Examples:
  checkrun -- go test ./...                         the working tree as it stands
  checkrun --tree HEAD~2 -- make check              an earlier commit
  checkrun -c 'go build ./... && go vet ./...'      a command as one string
  checkrun --format json --cached-only -- go test   answer from the cache or exit 125
  checkrun explain -- go test ./...                 would this hit, and if not, why";

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
    before_help = EXAMPLES,
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
        Self { global: plain.global, run: plain.run, command: None }
    }
}

/// Options that every command has.
#[derive(Debug, Args)]
pub(super) struct GlobalArgs {
    /// Act as if started in DIR
    #[arg(short = 'C', value_name = "DIR", global = true, help_heading = "Everywhere")]
    pub(super) directory: Option<PathBuf>,
    /// Form of what is printed on stdout
    #[arg(long, value_enum, default_value_t = FormatName::Human, hide_default_value = true, value_name = "FORMAT",
        global = true, help_heading = "Everywhere")]
    pub(super) format: FormatName,
    /// Say less on stderr
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Everywhere")]
    pub(super) quiet: bool,
    /// Say more on stderr
    #[arg(short, long, global = true, help_heading = "Everywhere")]
    pub(super) verbose: bool,
}

/// `--format`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum FormatName {
    /// For people
    Human,
    /// One JSON object
    Json,
    /// JSON events, one a line, then the result
    Jsonl,
    /// For people, with annotations and a step summary for GitHub Actions
    Github,
}

impl From<FormatName> for Format {
    fn from(name: FormatName) -> Self {
        match name {
            FormatName::Human => Self::Human,
            FormatName::Json => Self::Json,
            FormatName::Jsonl => Self::Jsonl,
            FormatName::Github => Self::Github,
        }
    }
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
    /// Would this check hit; if not, what differs from the nearest record
    #[command(override_usage = "checkrun explain [OPTIONS] -- CMD [ARG]...")]
    Explain(CheckArgs),
    /// Run a check, or answer it, and print what of tree and host it depends on
    #[command(override_usage = "checkrun inputs [OPTIONS] -- CMD [ARG]...")]
    Inputs {
        /// The check as usual, its output and exit status too; what it depends on goes to this file, as JSON
        #[arg(long, value_name = "FILE")]
        trace: Option<PathBuf>,
        #[command(flatten)]
        check: CheckArgs,
    },
    /// The policies there are, or one in full as it is on this machine
    Policies {
        /// Show this one in full: a name or a file
        #[arg(value_name = "NAME|FILE")]
        name: Option<String>,
    },
    /// The runners there are, or one in full as it is on this machine
    Runners {
        /// Show this one in full
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
    /// What this machine's kernel offers, what is missing and how to get it
    Doctor,
    /// What the wall clock shows here, by each way of reading it; `doctor` runs it inside a sandbox
    #[command(hide = true)]
    ClockReport {
        /// One reading only
        #[arg(long)]
        child: bool,
    },
    /// Write a commented .checkrun.toml for this repository
    Init,
    /// Fetch what the checks of this tree need, with network, once for each lock file
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
    /// Which steps of a ledger hold on this tree, and which is the first that does not
    Reconcile(ReconcileArgs),
    /// Run a check many times and say how flaky it is
    #[command(override_usage = "checkrun flake [OPTIONS] -- CMD [ARG]...", after_help = FLAKE_STATUS)]
    Flake(Box<FlakeArgs>),
    /// Checks that were seen to pass and to fail on the same tree
    Flakes,
    /// Run a step's checks on the working tree and write down what came of them; on green, commit that very tree
    Certify(CertifyArgs),
    /// Keep a step's partial work, then put the paths of its touches back to the state that it goes back to
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
    /// Run even if a result is cached, and store the new one
    #[arg(long, help_heading = "Cache", conflicts_with_all = ["no_cache", "cached_only"])]
    pub(super) refresh: bool,
    /// Neither look in the cache nor store in it
    #[arg(long, help_heading = "Cache", conflicts_with = "cached_only")]
    pub(super) no_cache: bool,
    /// Answer from the cache or exit 125; never run
    #[arg(long, help_heading = "Cache")]
    pub(super) cached_only: bool,
    /// Write the result object to FILE as well, atomically
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) output: Option<PathBuf>,
    /// Write the check's whole output to FILE, up to the output limit
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) log: Option<PathBuf>,
    /// Write the result to FILE as JUnit XML, the check as one test case
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) junit: Option<PathBuf>,
    /// With --format json or jsonl: show the check's output on stderr
    #[arg(long, help_heading = "Output")]
    pub(super) show_output: bool,
}

/// What is checked and how it is confined.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// The tree to check: any git revision [default: the working tree as it stands]
    #[arg(long, value_name = "REV", help_heading = "Tree", conflicts_with_all = ["staged", "dir"])]
    pub(super) tree: Option<String>,
    /// The index instead of the working tree
    #[arg(long, help_heading = "Tree", conflicts_with = "dir")]
    pub(super) staged: bool,
    /// A plain folder that is in no git repository
    #[arg(long, value_name = "DIR", help_heading = "Tree")]
    pub(super) dir: Option<PathBuf>,
    /// Start the command in this folder of the tree
    #[arg(long, value_name = "SUBDIR", help_heading = "Tree")]
    pub(super) cwd: Option<PathBuf>,
    /// Only what this matches exists for the check: a git pathspec (repeatable)
    #[arg(long, value_name = "PATHSPEC", help_heading = "Tree")]
    pub(super) scope: Vec<String>,
    /// An earlier result answers while what this matches is unchanged: a git pathspec you vouch for (repeatable)
    #[arg(long, value_name = "PATHSPEC", help_heading = "Cache")]
    pub(super) touches: Vec<String>,
    /// What must be unchanged for an earlier result to answer [default: touches with `--touches`, else exact, then inputs]
    #[arg(long, value_enum, value_name = "GUARD", help_heading = "Cache")]
    pub(super) guard: Option<GuardName>,
    #[command(flatten)]
    pub(super) confine: ConfineArgs,
    /// A pass with fewer than N tests is a failure [N: 1]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1",
        value_parser = clap::value_parser!(u64).range(1..), help_heading = "Command")]
    pub(super) require_tests: Option<u64>,
    /// The command as one string: split where it is only words and quotes, else run by `sh -c`
    #[arg(short = 'c', value_name = "STRING", help_heading = "Command", conflicts_with = "command_words")]
    pub(super) string: Option<OsString>,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD", help_heading = "Command")]
    pub(super) command_words: Vec<OsString>,
}

/// What every check of a call is given and held to.
#[derive(Debug, Args)]
pub(super) struct ConfineArgs {
    /// Give submodules the content of their commits, from what is here [default: empty folders]
    #[arg(long, help_heading = "Tree")]
    pub(super) submodules: bool,
    /// Give files that Git LFS keeps elsewhere their content, from what is here [default: their pointers]
    #[arg(long, help_heading = "Tree")]
    pub(super) lfs: bool,
    /// Where installed packages come from: `prepared`, `found` in the working tree, or `none`
    #[arg(long, value_enum, value_name = "FROM", default_value_t = DepsName::Prepared, hide_default_value = true,
        help_heading = "Sandbox")]
    pub(super) deps: DepsName,
    /// Sandbox policy: a name or a file [default: hermetic]
    #[arg(long, value_name = "NAME|FILE", help_heading = "Sandbox")]
    pub(super) policy: Option<String>,
    /// Toolchain description [default: by the command's first word, else generic]
    #[arg(long, value_name = "NAME", help_heading = "Sandbox")]
    pub(super) runner: Option<String>,
    /// What time it is when the check starts: an instant such as 2026-01-01T00:00:00Z, `commit` (its committer
    /// date) or `host` (not fixed; never cached) [default: the policy's or the repository's]
    #[arg(long, value_name = "WHEN", value_parser = clock_start, help_heading = "Sandbox")]
    pub(super) clock: Option<ClockStart>,
    /// Whether the fixed clock runs as real time does, or stands still
    #[arg(long, value_enum, value_name = "MODE", help_heading = "Sandbox")]
    pub(super) clock_mode: Option<ClockModeName>,
    /// Pass a variable in, with this value or the caller's own (repeatable)
    #[arg(long, value_name = "NAME[=VALUE]", help_heading = "Sandbox")]
    pub(super) env: Vec<OsString>,
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
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Limits")]
    pub(super) pids: Option<u64>,
    /// What may be written to the tree, the home and the temporary folders together
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Limits")]
    pub(super) disk: Option<Bytes>,
    /// Output, stdout and stderr together
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Limits")]
    pub(super) output_limit: Option<Bytes>,
}

/// `--deps`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum DepsName {
    /// What `checkrun prepare` fetched for this lock file, if it did (the default)
    Prepared,
    /// The folders that the working tree has: node_modules, .venv, vendor
    Found,
    /// Nothing
    None,
}

impl From<DepsName> for DepsChoice {
    fn from(name: DepsName) -> Self {
        match name {
            DepsName::Prepared => Self::Prepared,
            DepsName::Found => Self::Found,
            DepsName::None => Self::None,
        }
    }
}

/// `--guard`, as far as it can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum GuardName {
    /// The whole tree
    Exact,
    /// The whole tree, or all that an earlier run was seen to read, list or look for
    Inputs,
    /// What `--touches` matches
    Touches,
}

/// `--clock-mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum ClockModeName {
    /// Runs as real time does
    Ticking,
    /// Stands still, but for a hair per reading
    Frozen,
}

impl From<ClockModeName> for ClockMode {
    fn from(name: ClockModeName) -> Self {
        match name {
            ClockModeName::Ticking => Self::Ticking,
            ClockModeName::Frozen => Self::Frozen,
        }
    }
}

/// `--clock`: a word or an instant.
fn clock_start(text: &str) -> Result<ClockStart, String> {
    match text {
        "commit" => Ok(ClockStart::Commit),
        "host" => Ok(ClockStart::Host),
        _ => parse_instant(text)
            .map(ClockStart::At)
            .map_err(|problem| format!("{problem}; or write `commit` or `host`")),
    }
}

/// A size that is not zero.
fn size(text: &str) -> Result<Bytes, String> {
    match Bytes::parse(text)? {
        Bytes(0) => Err(format!("`{text}` is nothing at all; a limit is at least one byte")),
        size => Ok(size),
    }
}
