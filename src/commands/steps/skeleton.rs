//! From the commits of a branch to a ledger that has only what their messages claim. Pure.
#![forbid(unsafe_code)]

use crate::ledger::{Evidence, Ledger, Shape, Step};
use crate::model::digest::ObjectId;
use crate::model::units::show_instant;
use crate::trailers::{Claim, read, reverted};
use crate::tree::{Commit, History};
use std::collections::BTreeMap;

/// Steps of one branch.
const MAX_STEPS: usize = 10_000;
/// Sentences about a branch.
const MAX_NOTES: usize = 50;

/// What a branch claims.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::commands) struct Skeleton {
    /// Its steps, in the order in which they were first claimed.
    pub(in crate::commands) ledger: Ledger,
    /// The commit that each step's claim is from; none for what was reverted.
    pub(in crate::commands) commits: BTreeMap<String, Commit>,
    /// What a person should know of it, a sentence each.
    pub(in crate::commands) notes: Vec<String>,
}

struct Building {
    order: Vec<String>,
    claims: BTreeMap<String, Vec<(Claim, Commit)>>,
    notes: Vec<String>,
}

/// Reads the claims of a history.
#[must_use]
pub(in crate::commands) fn skeleton(history: &History) -> Skeleton {
    let mut building = Building { order: Vec::new(), claims: BTreeMap::new(), notes: Vec::new() };
    if history.is_cut {
        building.note("the history goes on beyond what was read".to_owned());
    }
    let taken_back = taken_back(history);
    let mut plan_version = None;
    let mut run = None;
    for commit in history.commits.iter().rev() {
        let claims = read(&commit.message);
        for fault in claims.faults {
            building.note(format!("commit {}: {fault}", commit.id.short()));
        }
        for claim in claims.claims {
            plan_version = claim.plan_version.clone().or(plan_version);
            run = claim.run.clone().or(run);
            building.add(claim, commit);
        }
    }
    building.gaps();
    let mut commits = BTreeMap::new();
    let mut steps = Vec::new();
    for (place, id) in std::mem::take(&mut building.order).into_iter().enumerate() {
        let claims = building.claims.remove(&id).unwrap_or_default();
        if claims.len() > 1 {
            let ids: Vec<String> = claims.iter().map(|(_, commit)| commit.id.short()).collect();
            building.note(format!(
                "`{id}` is claimed by {} commits ({}); the newest counts",
                ids.len(),
                ids.join(", ")
            ));
        }
        let Some((claim, commit)) = claims.last() else { continue };
        let by = taken_back.get(&commit.id);
        if let Some(by) = by {
            building.note(format!("`{id}` was reverted by commit {}", by.short()));
        } else {
            commits.insert(id.clone(), commit.clone());
        }
        steps.push(step(claim, commit, place, by.is_some()));
    }
    let ledger =
        Ledger { shape: Shape::History, task: String::new(), plan_version, run, steps, proposed: Vec::new() };
    Skeleton { ledger, commits, notes: building.notes }
}

fn step(claim: &Claim, commit: &Commit, place: usize, is_reverted: bool) -> Step {
    let evidence = Evidence {
        at: Some(show_instant(commit.time)),
        tree: Some(commit.tree.hex()),
        definition: None,
        plan_version: claim.plan_version.clone(),
        is_boundary: true,
    };
    // A check that is claimed twice is one check.
    let mut check: Vec<String> = Vec::new();
    for claimed in &claim.checks {
        if !check.contains(&claimed.cmd) {
            check.push(claimed.cmd.clone());
        }
    }
    let passed = claim.checks.iter().all(|check| check.exit == Some(0)) && !check.is_empty();
    let status = match (is_reverted, passed) {
        (true, _) => "reverted",
        (false, true) => "passed",
        (false, false) => "unclear",
    };
    Step {
        id: claim.step.clone(),
        title: claim.title.clone(),
        check,
        status: Some(status.to_owned()),
        evidence: Some(evidence).filter(|_| !is_reverted && passed),
        place,
        ..Step::default()
    }
}

impl Building {
    fn note(&mut self, text: String) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(text);
        }
    }

    fn add(&mut self, claim: Claim, commit: &Commit) {
        if !self.claims.contains_key(&claim.step) {
            if self.order.len() >= MAX_STEPS {
                return self.note(format!("more than {MAX_STEPS} steps; the rest is left out"));
            }
            self.order.push(claim.step.clone());
        }
        self.claims.entry(claim.step.clone()).or_default().push((claim, commit.clone()));
    }

    /// Where ids are numbered, says which numbers are missing.
    fn gaps(&mut self) {
        let numbered = |id: &str| -> Option<(String, u64, usize)> {
            let digits = id.bytes().rev().take_while(u8::is_ascii_digit).count();
            let (prefix, number) = id.split_at(id.len() - digits);
            Some((prefix.to_owned(), number.parse().ok()?, digits))
        };
        let mut by_prefix: BTreeMap<String, Vec<(u64, usize)>> = BTreeMap::new();
        for (prefix, number, digits) in self.order.iter().filter_map(|id| numbered(id)) {
            by_prefix.entry(prefix).or_default().push((number, digits));
        }
        for (prefix, mut numbers) in by_prefix {
            numbers.sort_unstable();
            for pair in numbers.windows(2) {
                let ((low, digits), (high, _)) = (pair[0], pair[1]);
                for number in (low.saturating_add(1)..high).take(20) {
                    self.note(format!("no commit claims `{prefix}{number:0digits$}`"));
                }
            }
        }
    }
}

/// Commits that later ones took back, and by which; taking that back again restores them.
fn taken_back(history: &History) -> BTreeMap<ObjectId, ObjectId> {
    let mut gone: BTreeMap<ObjectId, ObjectId> = BTreeMap::new();
    let mut reverts: BTreeMap<ObjectId, Vec<ObjectId>> = BTreeMap::new();
    for commit in history.commits.iter().rev() {
        for named in reverted(&commit.message) {
            let Some(of) = history.commits.iter().find(|other| other.id.hex().starts_with(&named)) else {
                continue;
            };
            match reverts.get(&of.id) {
                Some(restored) => {
                    for id in restored {
                        gone.remove(id);
                    }
                }
                None => {
                    gone.insert(of.id.clone(), commit.id.clone());
                    reverts.entry(commit.id.clone()).or_default().push(of.id.clone());
                }
            }
        }
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(number: u8, message: &str) -> Commit {
        let id = ObjectId::new(&[number; 20]);
        Commit {
            id: id.clone(),
            tree: id,
            parents: Vec::new(),
            time: i64::from(number),
            message: message.to_owned(),
        }
    }

    fn of(commits: &[(u8, &str)]) -> Skeleton {
        let commits = commits.iter().rev().map(|(number, message)| commit(*number, message)).collect();
        skeleton(&History { commits, is_cut: false })
    }

    #[test]
    fn a_branch_becomes_a_ledger() {
        let revert = format!("Revert\n\nThis reverts commit {}.", "02".repeat(20));
        let back = format!("Reapply\n\nThis reverts commit {}.", "05".repeat(20));
        let commits = [
            (1, "s1: a\n\nAgent-Step: s1\nAgent-Check: true exit=0 secs=1"),
            (2, "s2: b\n\nAgent-Step: s2\nAgent-Check: true exit=0 secs=1"),
            (3, "s1: again\n\nAgent-Step: s1\nAgent-Check: make exit=0 secs=1\nAgent-Plan-Version: 4"),
            (4, "s4: d\n\nAgent-Step: s4"),
            (5, revert.as_str()),
        ];
        let found = of(&commits);
        let ids: Vec<&str> = found.ledger.steps.iter().map(|step| step.id.as_str()).collect();
        assert_eq!(ids, ["s1", "s2", "s4"]);
        assert_eq!(found.ledger.plan_version.as_deref(), Some("4"));
        let s1 = &found.ledger.steps[0];
        assert_eq!((s1.title.as_str(), s1.check.as_slice()), ("again", ["make".to_owned()].as_slice()));
        assert_eq!(s1.evidence.as_ref().unwrap().tree.as_deref(), Some("03".repeat(20).as_str()));
        assert_eq!(found.ledger.steps[1].status.as_deref(), Some("reverted"));
        assert!(found.ledger.steps[1].evidence.is_none() && !found.commits.contains_key("s2"));
        // A claim without a check is no claim that it passed.
        assert!(found.ledger.steps[2].check.is_empty() && found.ledger.steps[2].evidence.is_none());
        for part in ["`s1` is claimed by 2 commits", "`s2` was reverted", "no commit claims `s3`"] {
            assert!(found.notes.iter().any(|note| note.contains(part)), "{part}: {:?}", found.notes);
        }
        let mut again = commits.to_vec();
        again.push((6, back.as_str()));
        assert_eq!(of(&again).ledger.steps[1].status.as_deref(), Some("passed"));
    }
}
