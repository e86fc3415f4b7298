//! Which earlier run may stand for a check because all that it was seen to depend on is as it was: one judgement for the
//! look-up, for `explain` and for `inputs`. What a set of inputs says and how it is compared is `inputs`'.
#![forbid(unsafe_code)]

use crate::cache;
use crate::key;
use crate::model::digest::Digest;
use crate::model::policy::{Clock, TREE_MARGIN};
use crate::pipeline::comparing::{self, Compared};
use crate::pipeline::contents::Contents;
use crate::pipeline::groups::InputGroups;
use crate::pipeline::inputs;
use crate::pipeline::kept_set::{self, KeptSet};
use crate::pipeline::{PipelineError, Prepared};
use crate::store::{FileStamp, KeptInputs, Reader, Record, Store, StoreError, StorePaths};
use crate::tree::Walker;

/// What the kept sets of observed inputs come to.
pub(super) enum Standing {
    /// There is none for this command.
    Unknown,
    /// This record answers; and what is to be kept, where files of the host are others with the same content or many sets are
    /// newer.
    Answers(Box<Record>, Option<Renewal>),
    /// None answers; why the newest does not.
    Refused(String),
}

/// So many sets of a command may be newer than one that is of use before that is noted: a usual hit writes nothing.
const UNNOTED: usize = 16;

/// What is to be kept of a comparison.
pub(super) struct Renewal {
    /// The record whose set it is.
    id: i64,
    /// The set anew; `None` where it is only noted that it is of use.
    set: Option<Vec<u8>>,
    /// What was read for it, so that it need not be read again.
    files: Vec<(FileStamp, Digest)>,
}

impl Renewal {
    /// Keeps it. Where that fails, content is read once more next time.
    pub(super) fn keep(&self, prepared: &Prepared, paths: &StorePaths) -> Result<(), StoreError> {
        let name = key::inputs_key(&prepared.action);
        let mut writer = Store::open_writer(paths)?;
        let Some(set) = &self.set else { return writer.use_inputs(&name, self.id) };
        writer.remember_files(&self.files)?;
        writer.keep_inputs(&name, self.id, set)
    }
}

/// The latest time that a check is shown of a file of the host, in seconds; `None` where it is shown each as it is.
fn newest_shown(prepared: &Prepared) -> Option<i64> {
    match prepared.action.policy.clock {
        Clock::Fixed { start, .. } => Some(start - TREE_MARGIN),
        Clock::Commit { .. } | Clock::Host => None,
    }
}

/// Judges the sets that may stand for a prepared check, newest first; with what was found broken on the way.
pub(super) fn standing(
    prepared: &Prepared,
    reader: &Reader,
) -> Result<(Standing, Vec<String>), PipelineError> {
    let mut damage = Vec::new();
    if let Err(why) = cache::reusable_policy(&prepared.action.policy) {
        return Ok((Standing::Refused(why), damage));
    }
    let mut walker = Walker::new(&prepared.snapshot);
    let mut contents = Contents::new(Some(reader), u64::MAX);
    let mut first = None;
    let mut newest = None;
    for (rank, KeptInputs { id, used, bytes }) in kept_inputs(prepared, reader).enumerate() {
        let newest = *newest.get_or_insert(id);
        let Some(set) = KeptSet::read(&bytes) else { continue };
        let anew = match comparing::compare(&set, &mut walker, &mut contents, newest_shown(prepared))? {
            Compared::Differs(difference) => {
                first = first.or(Some(format!("{difference} (record {id})")));
                continue;
            }
            Compared::Holds => None,
            Compared::Anew(facts) => Some(facts),
        };
        let listing = reader.by_id(id)?;
        damage.extend(listing.damage);
        let Some(record) = listing.records.into_iter().next() else { continue };
        match refusal(prepared, &record) {
            None => {
                let files = std::mem::take(&mut contents.new);
                let set = anew.map(|facts| inputs::kept(&facts, &prepared.snapshot)).transpose()?;
                let is_due = set.is_some() || (rank >= UNNOTED && used < newest);
                let renewal = is_due.then_some(Renewal { id, set, files });
                return Ok((Standing::Answers(Box::new(record), renewal), damage));
            }
            Some(why) => first = first.or(Some(format!("record {id} has the same inputs, but {why}"))),
        }
    }
    Ok((first.map_or(Standing::Unknown, Standing::Refused), damage))
}

/// Why a record whose inputs are all as they were does not answer.
fn refusal(prepared: &Prepared, record: &Record) -> Option<String> {
    if !record.evidence.outcome.is_answer() {
        return Some(format!("ended as `{}`", record.evidence.outcome.name()));
    }
    if record.tally.is_flaky() {
        return Some("it passes and fails on the same files".to_owned());
    }
    cache::same_sandbox(&record.evidence, prepared.action.level, &prepared.action.layers)
        .err()
        .map(|how| format!("was made in another sandbox: {how}"))
}

/// The sets that may stand for a prepared check, newest first, each read when it is asked for.
fn kept_inputs(prepared: &Prepared, reader: &Reader) -> impl Iterator<Item = KeptInputs> {
    let sets = reader.inputs(key::inputs_key(&prepared.action));
    sets.filter_map(|set| Some(KeptInputs { bytes: kept_set::current(set.bytes)?, ..set }))
}

/// The newest set of observed inputs that holds for a prepared check, with the number of its record.
///
/// # Errors
/// A tree object cannot be read.
pub fn inputs_that_hold(
    prepared: &Prepared,
    reader: &Reader,
) -> Result<Option<(i64, InputGroups)>, PipelineError> {
    let mut walker = Walker::new(&prepared.snapshot);
    let mut contents = Contents::new(Some(reader), u64::MAX);
    for KeptInputs { id, bytes, .. } in kept_inputs(prepared, reader) {
        let Some(set) = KeptSet::read(&bytes) else { continue };
        let compared = comparing::compare(&set, &mut walker, &mut contents, newest_shown(prepared))?;
        if !matches!(compared, Compared::Differs(_))
            && let Some(facts) = set.facts()
        {
            return Ok(Some((id, InputGroups::of(&facts))));
        }
    }
    Ok(None)
}

/// What observed inputs say of a prepared check, for `explain`: `None` where there is no set, `Some(Ok(id))` where the
/// record of that number answers, else the first thing in which the newest set differs, or why its record does not count.
///
/// # Errors
/// A tree object cannot be read.
pub fn inputs_differ(prepared: &Prepared) -> Result<Option<Result<i64, String>>, PipelineError> {
    let Some(reader) = &prepared.digests.reader else { return Ok(None) };
    Ok(match standing(prepared, reader)?.0 {
        Standing::Unknown => None,
        Standing::Answers(record, _) => Some(Ok(record.id)),
        Standing::Refused(why) => Some(Err(why)),
    })
}
