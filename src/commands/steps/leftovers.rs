//! What a step that does not hold has left in the tree: the paths that differ from the nearest certified state, sorted
//! into those that are its own and strangers.
#![forbid(unsafe_code)]

use crate::commands::Failure;
use crate::commands::steps::{Boundaries, Boundary};
use crate::ledger::{Ledger, Pattern, Step, any_covers};
use crate::tree::{self, Changed, Snapshot, Source};
use std::path::Path;

/// Certified states that a tree is compared with, the latest ones.
const COMPARED: usize = 50;

/// Changed paths since a state, sorted.
#[derive(Clone, Debug, Default)]
pub(in crate::commands) struct Leftovers {
    /// The step whose certified state they are compared with; `None` for HEAD.
    pub(in crate::commands) since: Option<String>,
    /// The tree of that state, its full id.
    pub(in crate::commands) tree: String,
    /// Paths that the step's touches cover.
    pub(in crate::commands) own: Vec<Changed>,
    /// All others.
    pub(in crate::commands) strangers: Vec<Changed>,
}

/// Compares the tree with the nearest certified state, the one that fewest paths differ from: the plan's last certified
/// step need not be the one that was done last. Without any certified state HEAD stands for it; with no commit either,
/// there is nothing to compare with.
pub(in crate::commands) fn left_behind(
    step: &Step,
    certified: &[&Step],
    ledger: &Ledger,
    now: &Snapshot,
    boundaries: &mut Boundaries<'_>,
) -> Result<Option<Leftovers>, Failure> {
    let files = now.leaves()?;
    let mut nearest: Option<(Option<String>, String, Vec<Changed>)> = None;
    for other in certified.iter().rev().take(COMPARED) {
        let Some(Boundary { step, tree, .. }) = boundaries.of(other, ledger)? else { continue };
        let changed = tree::changes(&tree.leaves()?, &files);
        // Of two equally near the later one counts, which is what one goes back to.
        if nearest.as_ref().is_none_or(|(_, _, least)| changed.len() < least.len()) {
            nearest = Some((Some(step), tree.identity().tree.hex(), changed));
        }
    }
    if nearest.is_none()
        && let Some(head) = boundaries.head()?
    {
        nearest = Some((None, head.identity().tree.hex(), tree::changes(&head.leaves()?, &files)));
    }
    let Some((since, tree, changed)) = nearest else { return Ok(None) };
    let touches = touches(step, boundaries)?;
    let (own, strangers) = changed.into_iter().partition(|changed| any_covers(&touches, &changed.path));
    Ok(Some(Leftovers { since, tree, own, strangers }))
}

/// The step's touches; where only a commit tells of it, the paths that its commit changed.
fn touches(step: &Step, boundaries: &mut Boundaries<'_>) -> Result<Vec<Pattern>, Failure> {
    if let Some(touches) = &step.touches {
        return Ok(touches.clone());
    }
    boundaries.changed_by(&step.id)
}

impl Boundaries<'_> {
    /// The tree of HEAD without the ledger.
    pub(in crate::commands) fn head(&mut self) -> Result<Option<Snapshot>, Failure> {
        match tree::resolve(self.start(), &Source::Revision("HEAD".to_owned()), Path::new("")) {
            Ok(head) => Ok(Some(head.without(self.cut())?)),
            Err(_) => Ok(None),
        }
    }

    /// Paths that the commit of a step changed, as patterns for themselves.
    fn changed_by(&mut self, step: &str) -> Result<Vec<Pattern>, Failure> {
        let Some(commit) = self.history()?.commits.get(step).cloned() else { return Ok(Vec::new()) };
        let Some(after) = self.tree(&commit.tree.hex())? else { return Ok(Vec::new()) };
        let before = match commit.parents.first() {
            Some(parent) => {
                self.tree(&parent.hex())?.map(|tree| tree.leaves()).transpose()?.unwrap_or_default()
            }
            None => Default::default(),
        };
        let literal = |path: &[u8]| -> Option<Pattern> {
            let text: String = std::str::from_utf8(path)
                .ok()?
                .chars()
                .flat_map(|letter| ['\\', letter].into_iter().skip(usize::from(!"*?[\\".contains(letter))))
                .collect();
            Pattern::parse(&text).ok()
        };
        Ok(tree::changes(&before, &after.leaves()?)
            .iter()
            .filter_map(|changed| literal(&changed.path))
            .collect())
    }
}
