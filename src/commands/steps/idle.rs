//! Steps whose touches stand for nothing: their commands pass and none of the paths that they claim to change is there,
//! nor ever was. Such a ledger says nothing of the step, whatever its commands say. Reading patterns is `ledger`'s.
#![forbid(unsafe_code)]

use crate::commands::Failure;
use crate::commands::steps::{Boundaries, Finding, Status};
use crate::ledger::{Pattern, Step};
use crate::tree::{EntryKind, Snapshot, Spot, Walker};

/// Looks for what steps touch, in one tree and in the commits before it.
#[derive(Debug)]
pub(in crate::commands) struct Idle<'s> {
    walker: Walker<'s>,
}

impl<'s> Idle<'s> {
    /// Looks in this tree.
    pub(in crate::commands) fn new(now: &'s Snapshot) -> Self {
        Self { walker: Walker::new(now) }
    }

    /// Takes a certificate back that is for nothing. A step that has not been begun has none of its files yet, and its
    /// commands fail; one that removes files has left none, and commits before have them.
    pub(in crate::commands) fn judge(
        &mut self,
        step: &Step,
        finding: &mut Finding,
        boundaries: &mut Boundaries<'_>,
    ) -> Result<(), Failure> {
        let Some(touches) = step.touches.as_deref().filter(|touches| !touches.is_empty()) else {
            return Ok(());
        };
        if finding.status != Status::Certified || matches_any(&mut self.walker, touches)? {
            return Ok(());
        }
        for before in boundaries.earlier()? {
            if matches_any(&mut Walker::new(&before), touches)? {
                return Ok(());
            }
        }
        let texts: Vec<String> = touches.iter().map(|pattern| format!("`{}`", pattern.text())).collect();
        finding.status = Status::Undecided;
        finding.is_idle = true;
        finding.reason = Some(format!(
            "its commands pass, but its touches match nothing in this tree nor in the commits before it (steps[{}].touches: {}); \
             accepted are paths and patterns from the root of the tree, at least one of them of something that the step makes, \
             changes or removes",
            step.place,
            texts.join(", ")
        ));
        Ok(())
    }
}

fn matches_any(walker: &mut Walker<'_>, touches: &[Pattern]) -> Result<bool, Failure> {
    for pattern in touches {
        let start = pattern.fixed_start();
        let found = match walker.at(&start)? {
            Spot::Entry(kind, _) => below(walker, pattern, start, kind)?,
            Spot::Absent | Spot::BehindLink => false,
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the pattern covers this entry or one below it.
fn below(
    walker: &mut Walker<'_>,
    pattern: &Pattern,
    path: Vec<u8>,
    kind: EntryKind,
) -> Result<bool, Failure> {
    let mut open = vec![(path, kind)];
    while let Some((path, kind)) = open.pop() {
        if !path.is_empty() && pattern.covers(&path) {
            return Ok(true);
        }
        if kind != EntryKind::Folder {
            continue;
        }
        for name in walker.children(&path)?.unwrap_or_default() {
            let inside = if path.is_empty() { name } else { [path.as_slice(), &name].join(&b'/') };
            if let Spot::Entry(kind, _) = walker.at(&inside)? {
                open.push((inside, kind));
            }
        }
    }
    Ok(false)
}
