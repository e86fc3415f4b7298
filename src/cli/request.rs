//! A request as the rest of the program takes it: parsed words, in types that cannot contradict each other.
#![forbid(unsafe_code)]

use crate::cli::arguments::{CheckArgs, Cli, Command, ConfineArgs, GlobalArgs, RunArgs};
use crate::cli::choices::GuardName;
use crate::cli::flake::{self, FlakeRequest};
use crate::cli::ledger::{
    self, CertifyRequest, LedgerCommand, PartialsCommand, ReconcileRequest, RollbackRequest,
};
use crate::cli::prepare::{self, PrepareRequest};
use crate::cli::words::{Split, split};
use crate::cli::{Exit, completions, man, usage};
use crate::model::check::{DepsChoice, Filled, Guard};
use crate::model::event::Format;
use crate::model::policy::{ClockStart, ClockWish, Overrides};
use crate::model::units::Bytes;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

/// A command line that makes sense.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invocation {
    /// What every command takes.
    pub global: Global,
    /// What is asked.
    pub request: Request,
}

/// Options that every command has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Global {
    /// `-C`.
    pub directory: Option<PathBuf>,
    /// `--format`.
    pub format: Format,
    /// `-q`.
    pub quiet: bool,
    /// `-v`.
    pub verbose: bool,
}

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Check one command on one tree.
    Run(Box<RunRequest>),
    /// Results on record.
    Log {
        /// Only those of this revision's tree.
        tree: Option<String>,
    },
    /// One record.
    Show {
        /// Key or id, as given.
        record: String,
        /// The whole output instead.
        log: bool,
        /// The observed inputs instead.
        inputs: bool,
    },
    /// Run or answer a check and tell what it depends on.
    Inputs {
        /// The check.
        check: Box<CheckRequest>,
        /// Where to write it instead of printing it.
        trace: Option<PathBuf>,
    },
    /// Would it hit, and if not, why.
    Explain(Box<CheckRequest>),
    /// The policies, or one in full.
    Policies {
        /// Name or file.
        name: Option<String>,
    },
    /// The runners, or one in full.
    Runners {
        /// Name.
        name: Option<String>,
    },
    /// What this machine offers.
    Doctor,
    /// What came of trying to get out.
    AttemptsReport {
        /// Where somebody listens outside.
        host: SocketAddr,
        /// A file outside.
        file: PathBuf,
    },
    /// What the wall clock shows to this process.
    ClockReport {
        /// One reading only.
        child: bool,
    },
    /// Write the repository's own settings.
    Init,
    /// Fetch what the checks of a tree need.
    Prepare(Box<PrepareRequest>),
    /// Make room.
    Gc(Gc),
    /// Which steps of a ledger hold.
    Reconcile(Box<ReconcileRequest>),
    /// Check a step on the working tree and write it down.
    Certify(Box<CertifyRequest>),
    /// Go back from a step.
    Rollback(Box<RollbackRequest>),
    /// What was put away.
    Partials,
    /// Put it back.
    PartialsApply {
        /// Which, as given.
        name: String,
    },
    /// Whether a file is a ledger in order.
    LedgerCheck {
        /// The file, as given.
        file: PathBuf,
    },
    /// How flaky a check is.
    Flake(Box<FlakeRequest>),
    /// Checks known to be flaky.
    Flakes,
    /// A text that the command line's own definitions give: a completion script or the man page.
    Text(Vec<u8>),
}

/// How much room to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gc {
    /// What may be left.
    pub max_size: Option<Bytes>,
    /// How old it may be.
    pub max_age: Option<Duration>,
}

/// Which tree is meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TreeChoice {
    /// The working tree as it stands.
    Working,
    /// The index.
    Staged,
    /// A revision, as given.
    Revision(String),
    /// A plain folder, and whether `--ignored` was said.
    Folder(PathBuf, bool),
}

/// What part the cache has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheMode {
    /// Look, run on a miss, store.
    Use,
    /// Run and store.
    Refresh,
    /// Run only.
    Off,
    /// Look only.
    Only,
}

/// A variable that the caller passes in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PassedVariable {
    /// Its name: not empty, no `=`.
    pub name: Vec<u8>,
    /// Its value; `None` is the caller's own.
    pub value: Option<Vec<u8>>,
}

/// What is checked and how it is confined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckRequest {
    /// Which tree.
    pub tree: TreeChoice,
    /// `--cwd`, as given.
    pub cwd: Option<PathBuf>,
    /// `--submodules` and `--lfs`.
    pub filled: Filled,
    /// `--deps`.
    pub deps: DepsChoice,
    /// `--scope`, as given.
    pub scope: Vec<String>,
    /// `--touches`, as given; none unless the guard is `touches`.
    pub touches: Vec<String>,
    /// What must be unchanged.
    pub guard: Guard,
    /// Whether observed inputs may stand for the whole tree.
    pub inputs: bool,
    /// `--policy`, as given.
    pub policy: Option<String>,
    /// `--runner`, as given.
    pub runner: Option<String>,
    /// Variables passed in, in the order given.
    pub env: Vec<PassedVariable>,
    /// Limits given.
    pub overrides: Overrides,
    /// `--clock` and `--clock-mode`.
    pub clock: ClockWish,
    /// `--require-tests`.
    pub require_tests: Option<u64>,
    /// Program and arguments; never empty, no NUL.
    pub argv: Vec<Vec<u8>>,
}

/// Where the output goes besides the standard streams.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutputRequest {
    /// `--output`.
    pub result: Option<PathBuf>,
    /// `--log`.
    pub log: Option<PathBuf>,
    /// `--junit`.
    pub junit: Option<PathBuf>,
    /// `--show-output`.
    pub show: bool,
}

/// A check, and what becomes of its result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunRequest {
    /// The check.
    pub check: CheckRequest,
    /// What part the cache has.
    pub cache: CacheMode,
    /// Where output goes.
    pub output: OutputRequest,
}

/// Turns parsed options into a request.
pub(super) fn invocation(cli: Cli) -> Result<Invocation, Exit> {
    let global = global(cli.global);
    let request = match cli.command {
        None => run(cli.run, global.format)?,
        Some(Command::Run(args)) => run(args, global.format)?,
        Some(Command::Explain(args)) => Request::Explain(Box::new(check(args)?)),
        Some(Command::Log { tree }) => Request::Log { tree },
        Some(Command::Show { record, log, inputs }) => Request::Show { record, log, inputs },
        Some(Command::Inputs { check: args, trace }) => {
            Request::Inputs { check: Box::new(check(args)?), trace }
        }
        Some(Command::Policies { name }) => Request::Policies { name },
        Some(Command::Runners { name }) => Request::Runners { name },
        Some(Command::Doctor) => Request::Doctor,
        Some(Command::ClockReport { child }) => Request::ClockReport { child },
        Some(Command::AttemptsReport { host, file }) => Request::AttemptsReport { host, file },
        Some(Command::Prepare(args)) => Request::Prepare(Box::new(prepare::prepare(*args)?)),
        Some(Command::Init) => Request::Init,
        Some(Command::Gc { max_size, max_age }) => Request::Gc(Gc { max_size, max_age }),
        Some(Command::Reconcile(args)) => Request::Reconcile(Box::new(ledger::reconcile(args)?)),
        Some(Command::Flake(args)) => Request::Flake(Box::new(flake::flake(*args)?)),
        Some(Command::Flakes) => Request::Flakes,
        Some(Command::Certify(args)) => Request::Certify(Box::new(ledger::certify(args)?)),
        Some(Command::Rollback(args)) => Request::Rollback(Box::new(ledger::rollback(args)?)),
        Some(Command::Partials { command: None }) => Request::Partials,
        Some(Command::Partials { command: Some(PartialsCommand::Apply { name }) }) => {
            Request::PartialsApply { name }
        }
        Some(Command::Ledger { command: LedgerCommand::Check { file } }) => Request::LedgerCheck { file },
        Some(Command::Completions { shell }) => Request::Text(completions(shell)),
        Some(Command::Man) => Request::Text(
            man().map_err(|error| usage(&format!("cannot write the manual page: {error}"), None))?,
        ),
    };
    Ok(Invocation { global, request })
}

fn global(args: GlobalArgs) -> Global {
    Global { directory: args.directory, format: args.format.into(), quiet: args.quiet, verbose: args.verbose }
}

fn run(args: RunArgs, format: Format) -> Result<Request, Exit> {
    if args.show_output && format.is_for_people() {
        return Err(usage(
            "`--show-output` has no effect here: in the human format the output is shown anyway",
            Some("leave it out, or add `--format json`"),
        ));
    }
    let cache = match (args.refresh, args.no_cache, args.cached_only) {
        (true, _, _) => CacheMode::Refresh,
        (_, true, _) => CacheMode::Off,
        (_, _, true) => CacheMode::Only,
        _ => CacheMode::Use,
    };
    let output =
        OutputRequest { result: args.output, log: args.log, junit: args.junit, show: args.show_output };
    Ok(Request::Run(Box::new(RunRequest { check: check(args.check)?, cache, output })))
}

pub(super) fn check(args: CheckArgs) -> Result<CheckRequest, Exit> {
    let argv = command(args.string, args.command_words)?;
    let tree = match (args.tree, args.staged, args.dir) {
        (Some(revision), _, _) => TreeChoice::Revision(revision),
        (None, true, _) => TreeChoice::Staged,
        (None, false, Some(path)) => TreeChoice::Folder(path, args.ignored),
        (None, false, None) => TreeChoice::Working,
    };
    let guard = guard(args.guard, &args.touches)?;
    Ok(CheckRequest {
        tree,
        cwd: args.cwd,
        scope: args.scope,
        inputs: guard == Guard::Exact && args.guard != Some(GuardName::Exact),
        touches: args.touches,
        guard,
        require_tests: args.require_tests,
        argv,
        ..confined(args.confine)?
    })
}

/// A request that has only what confines a check; everything else is still to be filled in.
pub(super) fn confined(args: ConfineArgs) -> Result<CheckRequest, Exit> {
    let clock = ClockWish { start: args.clock, mode: args.clock_mode.map(Into::into) };
    if clock.start == Some(ClockStart::Host) && clock.mode.is_some() {
        return Err(usage(
            "`--clock-mode` has no effect on the host's clock",
            Some("leave it out, or give `--clock` an instant such as `2026-01-01T00:00:00Z`"),
        ));
    }
    Ok(CheckRequest {
        tree: TreeChoice::Working,
        cwd: None,
        filled: Filled { submodules: args.submodules, lfs: args.lfs },
        deps: args.deps.into(),
        scope: Vec::new(),
        inputs: true,
        touches: Vec::new(),
        guard: Guard::Exact,
        policy: args.policy,
        runner: args.runner,
        env: args.env.into_iter().map(variable).collect::<Result<_, _>>()?,
        overrides: Overrides {
            timeout: args.timeout,
            memory: args.memory,
            pids: args.pids,
            cpus_milli: args.cpus,
            disk: args.disk,
            output: args.output_limit,
            aslr: args.process.aslr.map(Into::into),
            umask: args.process.umask,
            varied: args.process.vary,
        },
        clock,
        require_tests: None,
        argv: Vec::new(),
    })
}

fn guard(asked: Option<GuardName>, touches: &[String]) -> Result<Guard, Exit> {
    match (asked, touches.is_empty()) {
        (None | Some(GuardName::Exact | GuardName::Inputs), true) => Ok(Guard::Exact),
        (None | Some(GuardName::Touches), false) => Ok(Guard::Touches),
        (Some(GuardName::Touches), true) => {
            Err(usage("`--guard touches` needs to be told what: add `--touches PATHSPEC`", None))
        }
        (Some(GuardName::Exact | GuardName::Inputs), false) => Err(usage(
            "`--touches` has no effect under another guard than `touches`",
            Some("leave one of the two out"),
        )),
    }
}

fn command(string: Option<OsString>, words: Vec<OsString>) -> Result<Vec<Vec<u8>>, Exit> {
    let none = || usage("no command to check", Some("it stands after `--`: `checkrun -- go test ./...`"));
    let argv: Vec<Vec<u8>> = match string.map(OsString::into_vec) {
        None => words.into_iter().map(OsString::into_vec).collect(),
        Some(string) => match split(&string) {
            Split::Words(words) => words,
            Split::Shell => vec![b"sh".to_vec(), b"-c".to_vec(), string],
            Split::Nothing => Vec::new(),
        },
    };
    if argv.first().is_none_or(Vec::is_empty) {
        return Err(none());
    }
    // No program can be given one (execve(2)); it can get here only from inside a program that calls us.
    if argv.iter().any(|word| word.contains(&0)) {
        return Err(usage("a word of the command holds a NUL byte, which no program can be given", None));
    }
    Ok(argv)
}

pub(super) fn variable(text: OsString) -> Result<PassedVariable, Exit> {
    let text = text.into_vec();
    let (name, value) = match text.iter().position(|byte| *byte == b'=') {
        None => (text, None),
        Some(at) => (text[..at].to_vec(), Some(text[at + 1..].to_vec())),
    };
    let holds_nul = name.contains(&0) || value.as_ref().is_some_and(|value| value.contains(&0));
    if name.is_empty() || holds_nul {
        return Err(usage("`--env` takes NAME or NAME=VALUE, and the name is not empty", None));
    }
    Ok(PassedVariable { name, value })
}
