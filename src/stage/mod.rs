//! Lays a snapshot out on disk: one immutable folder per tree, time and owner, made once and shared by every run on that
//! tree. Bytes are those of the blobs. Giving a run its private, writable view is the sandbox's work; git is named only
//! through `tree`.
#![forbid(unsafe_code)]

mod build;
mod error;
mod place;
mod upkeep;
#[cfg(test)]
mod tests;

pub use crate::stage::error::StageError;
pub use crate::stage::place::sweep_stale;
pub use crate::stage::upkeep::{LAYER_BYTES, InUse, in_use, remove_unused};

use crate::model::event::Sink;
use crate::stage::place::{Builder, Place};
use crate::tree::Snapshot;
use std::path::PathBuf;

/// How a layer is made and where.
#[derive(Clone, Debug)]
pub struct LayerOptions {
    /// The folder that holds all layers; made if it is not there.
    pub root: PathBuf,
    /// The time of every file, folder and link of the layer, in seconds since 1970.
    pub mtime: i64,
    /// Uid and gid that own everything in it; `None` leaves it to the caller's own.
    pub owner: Option<(u32, u32)>,
    /// What tells one boot of the machine from another (`/proc/sys/kernel/random/boot_id`). Layers are not flushed to
    /// the disk when they are made, so one from before a crash of the machine may be torn and is made anew.
    pub boot_id: String,
}

/// A tree on disk. Not to be changed by anyone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layer {
    /// The folder that is the root of the tree.
    pub path: PathBuf,
    /// Files and links in it.
    pub files: u64,
    /// Bytes of file content in it.
    pub bytes: u64,
}

/// Gives the layer of a snapshot, making it if it is not there.
///
/// If it is there, this costs the same whatever the size of the tree. While it is made, [`Event::Staging`] is emitted
/// now and then. Several processes may make the same layer at once; one of them wins. All threads that take part are
/// joined before this returns.
///
/// # Errors
/// The tree has entries that are refused or objects that cannot be read, or the disk does not take it. Nothing is left
/// behind then.
///
/// [`Event::Staging`]: crate::model::event::Event::Staging
pub fn layer(snapshot: &Snapshot, options: &LayerOptions, sink: &mut dyn Sink) -> Result<Layer, StageError> {
    let place = Place::new(&snapshot.identity().tree, options);
    if let Some(layer) = place.existing() {
        return Ok(layer);
    }
    let entries = snapshot.entries()?;
    let builder = Builder::start(&options.root)?;
    let made = build::write(snapshot, &entries, &builder.work(options), sink);
    match made {
        Ok(size) => builder.publish(&place, size),
        Err(error) => {
            builder.discard();
            Err(error)
        }
    }
}
