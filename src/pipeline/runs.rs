//! The part of the flow behind a miss: lay the tree out, run, judge, record.
#![forbid(unsafe_code)]

use crate::cache;
use crate::key;
use crate::logs::LogWriter;
use crate::model::check::{Action, DepsLayer};
use crate::model::digest::Digest;
use crate::model::event::{Event, Sink};
use crate::model::evidence::{CacheUse, Deps, EVIDENCE_VERSION, Evidence, Foreign, Tally};
use crate::model::layer::Level;
use crate::model::outcome::{LookedAt, Observation, Outcome};
use crate::model::policy::{Clock, GitView, Network, TREE_MARGIN};
use crate::model::units::show_instant;
use crate::pipeline::abilities::boot_id;
use crate::pipeline::advice::reason;
use crate::pipeline::contents::{Contents, coarse_now};
use crate::pipeline::ground::Ground;
use crate::pipeline::hosts::{Hosts, Instant, with_contents};
use crate::pipeline::inputs::{self, Fact};
use crate::pipeline::lacking::Lacking;
use crate::pipeline::leftovers::sweep;
use crate::pipeline::prepare::shown_folder;
use crate::pipeline::recording::{LogCopy, Recorded, Recording};
use crate::pipeline::verdict::{Verdict, verdict};
use crate::pipeline::{Answered, Caching, PipelineError, Prepared, Surroundings};
use crate::results;
use crate::sandbox::plan::Plan;
use crate::sandbox::{self, Begun, Interrupts};
use crate::stage::{self, InUse, LayerOptions};
use crate::store::{Bounds, FileStamp, NewRecord, Store, StoreError, Writer};
use crate::summary::Summary;
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// 1980-01-02, the first day that zip archives can name everywhere.
const MTIME_FLOOR: i64 = 315_619_200;

/// What a run needs besides the check itself.
#[derive(Clone, Copy)]
pub(super) struct Means<'a> {
    pub(super) caching: Caching,
    pub(super) around: &'a Surroundings,
    pub(super) ground: &'a Ground,
    pub(super) interrupts: &'a Interrupts,
    /// Whether this process ran the check before and noted what it depends on: then that is not noted again, and the store
    /// is not tried beforehand. It is watched all the same, since watching takes time and runs are to be alike.
    pub(super) again: bool,
}

/// Runs a prepared check and records it.
pub(super) fn run(
    prepared: &Prepared,
    means: Means<'_>,
    log: Option<PathBuf>,
    sink: &mut dyn Sink,
) -> Result<Answered, PipelineError> {
    let Means { caching, around, ground, interrupts, again } = means;
    let copy = LogCopy::create(log)?;
    let stores = caching != Caching::Off && ground.is_cache();
    // The full level holds all that a check writes in memory and needs no folder on the host.
    let is_other = prepared.abilities.user.switch;
    let make = || RunFolder::make(ground, is_other, around);
    let folder = (prepared.action.level == Level::Landlock).then(make).transpose()?;
    let scratch = folder.as_ref().map_or(Path::new(""), |folder| &folder.path);
    let mut plan = Plan::new(&prepared.action, &prepared.abilities, scratch)?;
    // What is not kept is not asked for: each look at a path costs the check a detour.
    plan.observe &= stores;
    // Opened before the run: a cache that cannot be used is told at once, and not after an hour's work.
    if stores && !again {
        drop(Store::open_writer(&around.store)?);
    }
    let foreign = prepared.snapshot.foreign(prepared.action.filled)?;
    let kept_log = if stores { LogWriter::new(&around.store.logs()) } else { LogWriter::digest_only() };
    let summary = Summary::new(prepared.action.runner.summary);
    let (begun, since, _in_use) = begin(&plan, prepared, ground, sink)?;
    let at = now();
    let mut recording = Recording::new(sink, (kept_log, copy), summary, Lacking::new(prepared));
    // It is waited for when all the rest is done.
    let (seen, _remains) = begun.run(interrupts, &mut recording)?;
    // One that the tree itself has says nothing of this run.
    let is_left = |path: &[u8]| !prepared.snapshot.has_file(path);
    let results = seen.results.iter().filter(|(path, _)| is_left(path));
    results.clone().for_each(|(_, bytes)| recording.event(Event::Results(bytes)));
    let counts = results::counts(results.map(|(_, bytes)| bytes.as_slice()));
    let mut recorded = recording.finish()?;
    if plan.network == Network::Hosts {
        sink.event(Event::Reached(&seen.reached));
    }
    recorded.summary.take(counts);
    let tests = recorded.summary.tests();
    let mut verdict = verdict(&seen, tests, prepared.action.command.require_tests);
    verdict.reason = reason(&verdict, &seen, &recorded, prepared);
    let evidence = Evidence { foreign, ..evidence(prepared, &seen, verdict, &recorded, at) };
    if evidence.outcome.is_answer()
        && let Err(how) = cache::same_sandbox(&evidence, prepared.action.level, &prepared.action.layers)
    {
        sink.event(Event::Warning(&format!("the result will not answer again: {how}")));
    }
    if evidence.outcome == Outcome::Interrupted {
        return Ok(answered(evidence, caching, Tally::default()));
    }
    if !stores {
        return Ok(answered(evidence, caching, Tally::default()));
    }
    let noted = (!again).then(|| observed(prepared, &plan, (&seen, since), &evidence)).transpose();
    let unobserved = noted.as_ref().err().filter(|_| plan.observe && evidence.outcome.is_answer());
    // Paths can be long, and a record has room for little.
    let unobserved = unobserved.map(|why| why.chars().take(160).collect());
    let evidence = Evidence { unobserved, ..evidence };
    // Opened again only now: readers are at their fastest while nobody has the database open for writing.
    let stored = Store::open_writer(&around.store).and_then(|mut writer| {
        for damage in writer.damage() {
            sink.event(Event::Warning(damage));
        }
        record(&mut writer, prepared, &evidence, at, noted.as_ref().ok().and_then(Option::as_ref))
    });
    Ok(match stored {
        Ok((evidence, tally)) => {
            if let Some(failure) = &recorded.kept.failure {
                sink.event(Event::Warning(&format!("the whole output is not kept: {failure}")));
            }
            answered(evidence, caching, tally)
        }
        Err(error) => {
            sink.event(Event::Warning(&format!("the result is not recorded: {error}")));
            answered(evidence, caching, Tally::default())
        }
    })
}

fn answered(evidence: Evidence, caching: Caching, tally: Tally) -> Answered {
    let cache = match caching {
        Caching::Off => CacheUse::Off,
        Caching::Refresh => CacheUse::Refreshed,
        Caching::Use | Caching::Only => CacheUse::Miss,
    };
    Answered { evidence, cache, tally, from: None }
}

/// Begins to build the sandbox with the tree in it: while its folders are looked through, where they are there, and else when
/// they are laid out, since its clock runs from here on. Gives also the time of just before, after which what the check may
/// see of the host must not have changed, and what keeps the folders from being removed.
fn begin<'a>(
    plan: &'a Plan,
    prepared: &Prepared,
    ground: &Ground,
    sink: &mut dyn Sink,
) -> Result<(Begun<'a>, Instant, Vec<InUse>), PipelineError> {
    let early = expected(prepared, ground).and_then(|(layers, folders)| {
        let since = coarse_now();
        // Why it cannot be is told below.
        Some((sandbox::begin(plan, &layers).ok()?, since, layers, folders))
    });
    let (tree, in_use) = lay_out(prepared, ground, sink)?;
    if let Some((begun, since, layers, folders)) = early
        && layers == tree
        && folders.iter().zip(&in_use).all(|(folder, used)| used.is_of(folder))
    {
        return Ok((begun, since, in_use));
    }
    let since = coarse_now();
    Ok((sandbox::begin(plan, &tree)?, since, in_use))
}

/// The folders that are likely to make up the tree, where they are there: nobody has looked through them. They are held open,
/// so that no other gets their inode, and not marked as in use, since one that was altered is to be removed. None where there are
/// others, of git or of packages, which are opened only when that is done.
fn expected(prepared: &Prepared, ground: &Ground) -> Option<(Vec<PathBuf>, Vec<File>)> {
    let Action { level, policy, deps, .. } = &prepared.action;
    if *level != Level::Full || policy.git == GitView::Synthetic || !deps.is_empty() {
        return None;
    }
    let stack = stage::layer_unseen(&prepared.snapshot, &layer_options(prepared, ground))?.stack();
    let folders = stack.iter().map(File::open).collect::<Result<_, _>>().ok()?;
    Some((stack, folders))
}

fn layer_options(prepared: &Prepared, ground: &Ground) -> LayerOptions {
    let clock_start = match prepared.action.policy.clock {
        Clock::Fixed { start, .. } => start,
        // Real time goes on, so any instant in the past does; a constant keeps the layer.
        Clock::Commit { .. } | Clock::Host => MTIME_FLOOR + TREE_MARGIN,
    };
    let user = prepared.abilities.user;
    LayerOptions {
        root: ground.trees(),
        mtime: (clock_start - TREE_MARGIN).max(MTIME_FLOOR),
        owner: user.switch.then_some((user.uid, user.gid)),
        boot_id: boot_id(),
    }
}

/// The folders that make up the tree, and what keeps them from being removed.
fn lay_out(
    prepared: &Prepared,
    ground: &Ground,
    sink: &mut dyn Sink,
) -> Result<(Vec<PathBuf>, Vec<InUse>), PipelineError> {
    let options = layer_options(prepared, ground);
    loop {
        let layer = stage::layer(&prepared.snapshot, &options, sink)?;
        let mut stack = layer.stack();
        if prepared.action.policy.git == GitView::Synthetic {
            stack.insert(0, stage::git_layer(&prepared.snapshot, &options, sink)?.path);
        }
        // Another process may remove one of them meanwhile; then it is made again.
        let in_use = stack.iter().map(|path| stage::in_use(path)).collect::<Result<Option<Vec<_>>, _>>()?;
        if let Some(mut in_use) = in_use {
            for deps in &prepared.action.deps {
                if !stage::packages_are_intact(&deps.folder)? {
                    return Err(PipelineError::PackagesAltered { path: deps.folder.clone() });
                }
                let gone = || PipelineError::PackagesGone { path: deps.folder.clone() };
                in_use.push(stage::in_use(&deps.folder)?.ok_or_else(gone)?);
            }
            return Ok((stack, in_use));
        }
    }
}

/// An empty folder for one run, removed with all that is in it when the run is over.
struct RunFolder {
    path: PathBuf,
    /// Where it is, if not in the cache.
    _spare: Option<Ground>,
}

impl RunFolder {
    /// Makes one that the check's user can reach: where that is not the caller, it may not be able to pass through the
    /// folders above the cache, as those of root's home.
    fn make(ground: &Ground, is_other: bool, around: &Surroundings) -> Result<Self, PipelineError> {
        let spare = (is_other && !ground.is_open_to_others()).then(|| Ground::spare(around)).transpose()?;
        let runs = spare.as_ref().unwrap_or(ground).runs();
        let path = runs.join(format!("run-{}", std::process::id()));
        let failed = |source| PipelineError::Folder { what: "make", path: path.clone(), source };
        std::fs::create_dir_all(&runs).map_err(failed)?;
        sweep(&runs);
        DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        Ok(Self { path, _spare: spare })
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        drop(stage::remove_folder(&self.path));
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(0)
}

fn evidence(
    prepared: &Prepared,
    seen: &Observation,
    verdict: Verdict,
    recorded: &Recorded,
    at: i64,
) -> Evidence {
    let action = &prepared.action;
    let clock = match action.policy.clock {
        Clock::Fixed { start, mode } => (mode.name().to_owned(), show_instant(start)),
        Clock::Commit { .. } | Clock::Host => ("host".to_owned(), show_instant(at)),
    };
    Evidence {
        version: EVIDENCE_VERSION,
        key: prepared.keyed.key.to_string(),
        tree: action.tree.tree.hex(),
        commit: action.tree.commit.as_ref().map(|commit| commit.hex()),
        dirty: action.tree.dirty,
        cwd: shown_folder(&action.command.cwd),
        foreign: Foreign::default(),
        unobserved: None,
        varied: action.policy.guise.varied(),
        deps: action.deps.iter().map(recorded_deps).collect(),
        outcome: verdict.outcome,
        exit: verdict.exit,
        signal: verdict.signal,
        reason: verdict.reason,
        at: show_instant(at),
        secs: (seen.secs * 1e4).round() / 1e4,
        usage: seen.usage,
        summary: recorded.summary.line(),
        tests: recorded.summary.tests(),
        tail: recorded.tail.clone(),
        output_bytes: recorded.kept.bytes,
        output_digest: recorded.kept.digest.to_string(),
        policy: (action.policy.name.clone(), key::policy_digest(&action.policy).to_string()),
        runner: (
            action.runner.name.clone(),
            action.runner.digest.to_string(),
            action.runner.toolchain.clone(),
        ),
        clock,
        level: seen.enforcement.level.name().to_owned(),
        layers: seen.enforcement.layers.clone(),
        host: (std::env::consts::OS.to_owned(), std::env::consts::ARCH.to_owned()),
    }
}

fn recorded_deps(layer: &DepsLayer) -> Deps {
    // Folders of a deep tree have long names, and a record is small.
    let name = layer.name.chars().take(100).collect();
    Deps { from: layer.from.name().to_owned(), name, digest: layer.digest.to_string() }
}

/// What is known of a run's inputs.
struct Noted {
    /// As they are kept.
    set: Vec<u8>,
    /// Digests of host files that were computed for it.
    files: Vec<(FileStamp, Digest)>,
}

/// How many bytes of host files may be read for a run that took so long: some hundredths of its time, once for each file.
/// A file that is left out is recognised by its stamp alone until a later run of anything comes to it.
fn room_for_reading(secs: f64) -> u64 {
    const LEAST: u64 = 16 << 20;
    const A_SECOND: u64 = 64 << 20;
    let whole = std::time::Duration::try_from_secs_f64(secs).map_or(0, |run| run.as_secs());
    LEAST.saturating_add(A_SECOND.saturating_mul(whole))
}

/// The facts that the run depended on, where they are known in full; else why not.
fn observed(
    prepared: &Prepared,
    plan: &Plan,
    (seen, since): (&Observation, Instant),
    evidence: &Evidence,
) -> Result<Noted, String> {
    if cache::reusable(&prepared.action.policy, evidence).is_err() {
        return Err("no answer".to_owned());
    }
    match &seen.looked_at {
        LookedAt::Paths(paths) => {
            let mut hosts = Hosts::new(&plan.binds, since);
            let mut facts =
                inputs::facts(paths, &prepared.snapshot, &mut hosts).map_err(|error| error.to_string())?;
            if let Some(changed) = hosts.changed() {
                return Err(format!("{} changed while the check ran", changed.display()));
            }
            // A made-up repository is no part of the tree, and tells of all of it.
            let of_git = |fact: &Fact| matches!(fact, Fact::Absent(path) if path == b".git" || path.starts_with(b".git/"));
            if plan.git == GitView::Synthetic && facts.iter().any(of_git) {
                facts.insert(inputs::all_of(&prepared.snapshot));
            }
            let mut contents = Contents::new(prepared.digests.reader.as_ref(), room_for_reading(seen.secs));
            let facts = with_contents(facts, &mut contents);
            let set = inputs::kept(&facts, &prepared.snapshot).map_err(|error| error.to_string())?;
            Ok(Noted { set, files: contents.new })
        }
        LookedAt::Unknown(why) => Err(why.clone()),
    }
}

/// Stores one execution and what was learnt on the way; makes room now and then.
fn record(
    writer: &mut Writer,
    prepared: &Prepared,
    evidence: &Evidence,
    now: i64,
    noted: Option<&Noted>,
) -> Result<(Evidence, Tally), StoreError> {
    let new = NewRecord {
        evidence,
        key: prepared.keyed.key,
        weak: key::weak_key(&prepared.action),
        command: key::command_key(&prepared.action),
        preimage: &prepared.keyed.preimage,
    };
    let recorded = writer.record(&new)?;
    if !prepared.digests.new.is_empty() {
        writer.remember_files(&prepared.digests.new)?;
    }
    if let Some(Noted { set, files }) = noted {
        writer.keep_inputs(&key::inputs_key(&prepared.action), recorded.id, set)?;
        if !files.is_empty() {
            writer.remember_files(files)?;
        }
    }
    if Bounds::is_due(recorded.id) {
        let _ = writer.gc(Bounds::default(), now)?;
    }
    Ok((recorded.evidence, recorded.tally))
}
