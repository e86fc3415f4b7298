//! Independent steps at once: what nothing answers is run beside this process, before the steps are gone through one
//! after the other. Going through them then finds it on record, so the answer is the same whatever the number of jobs.
#![forbid(unsafe_code)]

use crate::commands::Failure;
use crate::commands::steps::{Bench, Finding, Nobody, Status};
use crate::ledger::{Ledger, Step};
use crate::sandbox::beside;
use std::collections::{BTreeMap, BTreeSet};

/// Runs what is not on record, at most `jobs` steps at once; what was on record already comes back. A step is begun once
/// all that it depends on holds and, unless `all` are wanted, as long as no step before it fails.
pub(in crate::commands) fn run_ahead(
    ledger: &Ledger,
    all: bool,
    jobs: usize,
    bench: &mut Bench<'_>,
) -> Result<BTreeMap<String, Finding>, Failure> {
    let plan_version = ledger.plan_version.as_deref();
    let mut known = BTreeMap::new();
    let mut begun: BTreeSet<&str> = BTreeSet::new();
    let mut certified: BTreeSet<&str> = BTreeSet::new();
    let mut running: BTreeMap<i32, (usize, &Step)> = BTreeMap::new();
    let mut first_bad = usize::MAX;
    loop {
        for (place, step) in ledger.steps.iter().enumerate() {
            let is_wanted = all || place < first_bad;
            let waits = !step.depends_on.iter().all(|need| certified.contains(need.as_str()));
            if running.len() >= jobs || !is_wanted {
                break;
            }
            if waits || !begun.insert(&step.id) {
                continue;
            }
            if let Some(finding) = bench.look(step, plan_version)? {
                if finding.status == Status::Certified {
                    certified.insert(&step.id);
                } else {
                    first_bad = first_bad.min(place);
                }
                known.insert(step.id.clone(), finding);
                continue;
            }
            bench.let_go();
            let work = || {
                let found = bench.check(step, plan_version, &mut Nobody);
                found.is_ok_and(|finding| finding.status == Status::Certified)
            };
            // Where no process can be had, the step is run when it is its turn.
            if let Ok(process) = beside::start(work) {
                bench.ran_ahead(step);
                running.insert(process, (place, step));
            }
        }
        if running.is_empty() {
            return Ok(known);
        }
        let Ok((process, is_good)) = beside::finished() else { return Ok(known) };
        if let Some((place, step)) = running.remove(&process) {
            if is_good {
                certified.insert(&step.id);
            } else {
                first_bad = first_bad.min(place);
            }
        }
    }
}
