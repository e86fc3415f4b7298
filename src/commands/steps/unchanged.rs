//! Guard `touches` for steps: whether what is under a step's touches is as in the tree that its evidence names, and
//! whether its commands passed there. What a ledger says is only which tree to compare with.
#![forbid(unsafe_code)]

use crate::cache::Lookup;
use crate::cli::StepGuard;
use crate::commands::Failure;
use crate::commands::steps::Bench;
use crate::key;
use crate::ledger::{Step, any_covers};
use crate::model::evidence::{Evidence, Tally};
use crate::model::outcome::Outcome;
use crate::pipeline::{self, Caching, PipelineError, Prepared};
use crate::tree::Snapshot;

impl Bench<'_> {
    /// A pass on record for the same command on the tree `before`, where nothing answers for the tree itself. The
    /// ledger only says which tree to compare with; that it passed there is not taken from it.
    pub(super) fn since(
        &mut self,
        before: &Snapshot,
        now: &Prepared,
    ) -> Result<Option<(Evidence, Tally)>, PipelineError> {
        let found = pipeline::on_record(now, self.around)?;
        if matches!(pipeline::judge(&found, Caching::Use, now), Lookup::Hit(_)) || found.tally.is_flaky() {
            return Ok(None);
        }
        let then = pipeline::prepare_on(&self.wish, before.clone(), &mut self.bearings)?;
        if key::weak_key(&then.action) != key::weak_key(&now.action) {
            return Ok(None);
        }
        let found = pipeline::on_record(&then, self.around)?;
        Ok(match pipeline::judge(&found, Caching::Use, &then) {
            Lookup::Hit(evidence) if evidence.outcome == Outcome::Passed => Some((*evidence, found.tally)),
            _ => None,
        })
    }

    /// Under guard `touches`, the tree of the step's evidence if nothing under the step's touches differs from it.
    pub(super) fn unchanged_since(
        &mut self,
        step: &Step,
        plan_version: Option<&str>,
        notes: &mut Vec<String>,
    ) -> Result<Option<Snapshot>, Failure> {
        if let Some(why) = step.void_evidence(plan_version) {
            notes.push(format!("its evidence is void: {why}"));
            return Ok(None);
        }
        let Some(tree) = step.evidence.as_ref().and_then(|evidence| evidence.tree.as_deref()) else {
            return Ok(None);
        };
        if self.request.guard != Some(StepGuard::Touches) {
            return Ok(None);
        }
        let Some(touches) = step.touches.as_deref().filter(|touches| !touches.is_empty()) else {
            notes.push("it names no touches, so the whole tree stands for them".to_owned());
            return Ok(None);
        };
        let Some(before) = self.boundaries.tree(tree)? else {
            notes.push(format!(
                "the tree of its evidence, {tree}, is not in this repository; it counts as none"
            ));
            return Ok(None);
        };
        // The same rule as of `--touches`: equal is the tree that holds only what they cover.
        let own = |snapshot: &Snapshot| snapshot.part_where(&|path| any_covers(touches, path));
        let (then, now) = (own(&before)?, own(&self.snapshot)?);
        if then.is_none() && now.is_none() {
            notes.push("its touches match nothing, so the whole tree stands for them".to_owned());
            return Ok(None);
        }
        Ok((then == now).then_some(before))
    }
}
