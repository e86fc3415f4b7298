//! Finding the layer that a new tree has most in common with, so that only what differs need be written. Where layers
//! lie is `place`'s, what differs is found by `tree`.
#![forbid(unsafe_code)]

use crate::model::digest::ObjectId;
use crate::stage::place::{META_SUFFIX, Place, suffix};
use crate::stage::upkeep::{InUse, in_use};
use crate::stage::{Layer, LayerOptions, StageError};
use crate::tree::{Changes, Snapshot};
use std::path::PathBuf;
use std::time::SystemTime;

/// Layers on top of one another at most. The list of their descriptors must fit into the 256 bytes that the kernel
/// takes for one option of a mount (fsconfig(2)), and every one of them costs a little with each look at a folder that
/// it changes.
pub(super) const MAX_STACK: usize = 12;

/// Layers that a new tree is compared with, the one used last first.
const COMPARED: usize = 6;

/// Trees with fewer files are written in full, which takes a few milliseconds: less than finding out what differs may.
const SMALL: u64 = 256;

/// A layer to build upon.
pub(super) struct Base {
    pub(super) layer: Layer,
    pub(super) changes: Changes,
    /// Keeps it and those below it from being removed meanwhile.
    pub(super) in_use: Vec<InUse>,
}

/// The layer from which the fewest changes lead to the snapshot; `None` where a new one had better be written in full.
pub(super) fn nearest(snapshot: &Snapshot, options: &LayerOptions) -> Result<Option<Base>, StageError> {
    let mut best: Option<Base> = None;
    for (tree, layer) in candidates(options).into_iter().take(COMPARED) {
        let quarter = usize::try_from(layer.bottom_files / 4).unwrap_or(usize::MAX);
        let limit = best.as_ref().map_or(quarter, |best| best.changes.count().saturating_sub(1).min(quarter));
        let changes = match snapshot.changes_since(&tree, limit)? {
            None => snapshot.changes_since_manifest(|| Place::new(&tree, options).manifest(), limit),
            some => some,
        };
        let Some(changes) = changes else { continue };
        let Some(in_use) = hold(&layer)? else { continue };
        best = Some(Base { layer, changes, in_use });
    }
    Ok(best)
}

/// Marks a layer and all below it as in use; `None` where one has been removed.
fn hold(layer: &Layer) -> Result<Option<Vec<InUse>>, StageError> {
    let mut held = Vec::new();
    for path in layer.stack() {
        match in_use(&path)? {
            Some(in_use) => held.push(in_use),
            None => return Ok(None),
        }
    }
    Ok(Some(held))
}

/// Sound layers of the same time and owner that may carry another one, the one used last first.
fn candidates(options: &LayerOptions) -> Vec<(ObjectId, Layer)> {
    let Ok(listing) = std::fs::read_dir(&options.root) else { return Vec::new() };
    let ending = format!("{}{META_SUFFIX}", suffix(options));
    let mut found: Vec<(SystemTime, String)> = Vec::new();
    for entry in listing.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let Some(tree) = name.strip_suffix(&ending) else { continue };
        let Ok(used) = entry.metadata().and_then(|meta| meta.modified()) else { continue };
        found.push((used, tree.to_owned()));
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    let sound = found.into_iter().filter_map(|(_, tree)| {
        let tree = ObjectId::parse(&tree)?;
        let layer = Place::new(&tree, options).existing()?;
        (layer.below.len() + 1 < MAX_STACK && layer.bottom_files >= SMALL).then_some((tree, layer))
    });
    // One more than is compared is never looked at.
    sound.take(COMPARED).collect()
}

impl Layer {
    /// The folders that make up the tree, each laid over the next.
    #[must_use]
    pub fn stack(&self) -> Vec<PathBuf> {
        let mut stack = vec![self.path.clone()];
        stack.extend(self.below.iter().cloned());
        stack
    }
}
