//! Preparing: a runner's step is run with network in a sandbox of its own, and what it leaves becomes a layer for all
//! checks with the same lock file. What of it a check gets is `packages`' to say.
#![forbid(unsafe_code)]

use crate::catalogue::SETTINGS_FILE;
use crate::model::check::{DepsChoice, Filled, Guard};
use crate::model::digest::Digest;
use crate::model::event::{Event, Sink, Stream};
use crate::model::evidence::Evidence;
use crate::model::hosts::Reached;
use crate::model::layer::Level;
use crate::model::outcome::Outcome;
use crate::model::policy::{ClockStart, ClockWish};
use crate::model::runner::{PrepareRule, Runner};
use crate::model::units::Bytes;
use crate::pipeline::advice;
use crate::pipeline::leftovers::sweep;
use crate::pipeline::packages;
use crate::pipeline::{Bearings, Caching, PipelineError, Surroundings, Wish, answer, prepare_on};
use crate::sandbox::plan::{HOME_PLACE, TREE_PLACE};
use crate::stage;
use crate::tree::{self, Snapshot};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most that a step may leave, packed up.
const MOST: Bytes = Bytes(16 << 30);

/// How long a step may take where nothing else is asked.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// What became of one runner's preparation.
#[derive(Debug)]
pub struct Fetched {
    /// The runner.
    pub runner: String,
    /// The step that was for this tree.
    pub step: String,
    /// How it went.
    pub how: FetchedHow,
    /// What it reached, where it was run by a policy that names hosts.
    pub reached: Option<Reached>,
}

/// How a preparation went.
#[derive(Debug)]
pub enum FetchedHow {
    /// It was there already.
    Already(Digest),
    /// It was made.
    Made(Digest),
    /// The step failed; nothing is kept.
    Failed(Box<Evidence>),
}

/// Prepares a tree for checks: of the runner that was asked for, else of all that have a step for it.
///
/// # Errors
/// No runner has a step for the tree, or whatever keeps a step from being run at all.
pub fn fetch(
    wish: &Wish,
    again: bool,
    around: &Surroundings,
    sink: &mut dyn Sink,
) -> Result<Vec<Fetched>, PipelineError> {
    let snapshot = tree::resolve(&wish.start, &wish.source, &around.scratch())?;
    let known = Bearings::new(around);
    let cwd = crate::pipeline::prepare::folder(wish, &snapshot)?;
    let mut done = Vec::new();
    let mut looked_for = Vec::new();
    for rule in known.rules(wish.runner.as_deref())? {
        let Some(step) = packages::step_for(&rule, &snapshot, &cwd) else {
            looked_for.extend(rule.prepare.iter().map(|step| {
                let files: Vec<String> = step.when.iter().map(|path| path.display().to_string()).collect();
                format!("{} ({})", files.join(" and "), rule.name)
            }));
            continue;
        };
        let (how, reached) = one(wish, (&rule, step), (&snapshot, &cwd), again, around, sink)?;
        done.push(Fetched { runner: rule.name.clone(), step: step.run.trim().to_owned(), how, reached });
    }
    if done.is_empty() {
        return Err(PipelineError::NothingToPrepare { looked_for });
    }
    Ok(done)
}

fn one(
    wish: &Wish,
    (rule, step): (&Runner, &PrepareRule),
    (snapshot, cwd): (&Snapshot, &[u8]),
    again: bool,
    around: &Surroundings,
    sink: &mut dyn Sink,
) -> Result<(FetchedHow, Option<Reached>), PipelineError> {
    // The repository's own settings are about its checks, which do without network.
    let seen = snapshot.clone().cut_where(&|path| {
        path != SETTINGS_FILE.as_bytes() && (step.whole_tree || packages::is_input(step, cwd, path))
    })?;
    let mut prepared =
        prepare_on(&wish_for(wish, rule, script((rule, step), cwd)), seen, &mut Bearings::new(around))?;
    if prepared.action.level != Level::Full {
        return Err(PipelineError::PrepareLevel);
    }
    let policy = prepared.action.policy.clone();
    let mut digests = crate::pipeline::digests::KnownDigests::new(&around.store);
    let key = packages::preparation_key((rule, step), (snapshot, cwd), &policy, around, &mut digests)?;
    let noted = packages::noted_at(around, &rule.name).join(key.hex());
    let options = packages::options(around, &prepared.abilities);
    let known = std::fs::read_to_string(&noted).ok().and_then(|text| Digest::parse(text.trim()));
    let there = known.and_then(|digest| Some((digest, options.existing(digest)?))).filter(|_| !again);
    if let Some((digest, folder)) = there
        && stage::packages_are_intact(&folder)?
    {
        return Ok((FetchedHow::Already(digest), None));
    }
    // What keeps a check from the network is not for a step that needs it, and what the caller has downloaded would
    // be in the way of what it writes.
    prepared.action.runner.env.clear();
    prepared.rule.advice.retain(|advice| !advice.prepare);
    prepared.action.runner.binds.retain(|bind| !bind.inside.starts_with(HOME_PLACE));
    let archive = Archive::create(&around.scratch())?;
    let mut packer = Packer { sink, out: BufWriter::new(archive.file()?), failure: None, reached: None };
    let answered = answer(&prepared, false, Caching::Off, around, None, &mut packer)?;
    let reached = packer.reached.take();
    let written = packer.failure.map_or_else(|| packer.out.flush(), Err);
    written.map_err(|source| archive.failed(source))?;
    if answered.evidence.outcome != Outcome::Passed {
        let mut evidence = Box::new(answered.evidence);
        evidence.reason = evidence.reason.or_else(|| advice::toolchain(&prepared));
        return Ok((FetchedHow::Failed(evidence), reached));
    }
    let places = [(TREE_PLACE, "tree"), (HOME_PLACE, "home")];
    let (digest, _) = stage::layer_of_archive(&archive.path, &places, &options)?;
    packages::keep(&noted, &digest.to_string())?;
    Ok((FetchedHow::Made(digest), reached))
}

fn wish_for(wish: &Wish, rule: &Runner, script: Vec<u8>) -> Wish {
    let mut overrides = wish.overrides.clone();
    // A program's packages are the same whatever a check takes its surroundings for.
    overrides.varied.clear();
    overrides.output = overrides.output.or(Some(MOST));
    overrides.timeout = overrides.timeout.or(Some(TIMEOUT));
    Wish {
        filled: Filled::default(),
        scope: Vec::new(),
        touches: Vec::new(),
        guard: Guard::Exact,
        inputs: false,
        deps: DepsChoice::None,
        runner: Some(rule.name.clone()),
        overrides,
        // Certificates are judged by the date.
        clock: ClockWish { start: Some(ClockStart::Host), mode: None },
        require_tests: None,
        argv: vec![b"sh".to_vec(), b"-c".to_vec(), script],
        ..wish.clone()
    }
}

/// The step, with all that it prints on stderr, then what it left as an archive on stdout.
fn script((rule, step): (&Runner, &PrepareRule), cwd: &[u8]) -> Vec<u8> {
    let tree = Path::new(TREE_PLACE).join(std::ffi::OsStr::from_bytes(cwd));
    let home = Path::new(HOME_PLACE);
    let left =
        step.tree.iter().map(|path| tree.join(path)).chain(step.home.iter().map(|path| home.join(path)));
    // What lies within another one goes along with it.
    let wanted: Vec<Vec<u8>> =
        left.map(|path| [&b"-path "[..], &quoted(path.as_os_str().as_bytes())].concat()).collect();
    let mut text = b"( set -e\n".to_vec();
    text.extend(rule.prelude.trim().as_bytes());
    text.push(b'\n');
    text.extend(step.run.trim().as_bytes());
    // Not with `||` behind it, where `set -e` would mean nothing (POSIX, 2.14, set).
    text.extend(b"\n) >&2\nstatus=$?; if [ $status != 0 ]; then exit $status; fi\n");
    if !step.build.is_empty() {
        text.extend(b"(\n");
        text.extend(step.build.trim().as_bytes());
        text.extend(b"\n) >&2 || echo 'not all packages are built beforehand; checks build the rest' >&2\n");
    }
    text.extend(b"find ");
    text.extend([TREE_PLACE, " ", HOME_PLACE, " \\( "].concat().bytes());
    text.extend(wanted.join(&b" -o "[..]));
    text.extend(b" \\) -prune -print0 >/tmp/left\n");
    text.extend(
        b"if ! [ -s /tmp/left ]; then echo 'the step left nothing of what it is to leave' >&2; exit 1; fi\n",
    );
    text.extend(
        b"exec tar -P --format=gnu --hard-dereference --sort=name -cf - --null --files-from=/tmp/left\n",
    );
    text
}

/// A pattern for find(1) in the shell's quotes; of its letters with a meaning, only `*` keeps it.
fn quoted(pattern: &[u8]) -> Vec<u8> {
    let mut text = b"'".to_vec();
    for byte in pattern {
        match byte {
            b'\'' => text.extend(b"'\\''"),
            b'?' | b'[' | b'\\' => text.extend([b'\\', *byte]),
            byte => text.push(*byte),
        }
    }
    text.push(b'\'');
    text
}

/// The file that a step's archive goes to, removed at the end.
struct Archive {
    path: PathBuf,
}

impl Archive {
    fn create(scratch: &Path) -> Result<Self, PipelineError> {
        let archive = Self { path: scratch.join(format!("prepare-{}.tar", std::process::id())) };
        std::fs::create_dir_all(scratch).map_err(|source| archive.failed(source))?;
        // A preparation that was killed may have left gigabytes.
        sweep(scratch);
        Ok(archive)
    }

    fn file(&self) -> Result<File, PipelineError> {
        File::create(&self.path).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> PipelineError {
        PipelineError::Folder { what: "write", path: self.path.clone(), source }
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.path));
    }
}

/// Takes the archive off the step's stdout and passes all else on.
struct Packer<'s> {
    sink: &'s mut dyn Sink,
    out: BufWriter<File>,
    failure: Option<io::Error>,
    reached: Option<Reached>,
}

impl Sink for Packer<'_> {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Output(Stream::Stdout, bytes) => {
                if self.failure.is_none() {
                    self.failure = self.out.write_all(bytes).err();
                }
            }
            Event::Reached(reached) => self.reached = Some(reached.clone()),
            event => self.sink.event(event),
        }
    }
}
