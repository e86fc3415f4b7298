//! Lays a snapshot out on disk: one immutable layer per tree, time and owner, made once and shared by every run on that
//! tree. A layer is a folder that holds the whole tree, or only what differs from another layer, to be laid over that one
//! (the form is overlayfs's own). Bytes are those of the blobs. Giving a run its private, writable view is the sandbox's work; git is named only
//! through `tree`.
#![forbid(unsafe_code)]

mod base;
mod build;
mod deps;
mod error;
mod git;
mod place;
mod python;
mod removal;
mod stamp;
#[cfg(test)]
mod tests;
mod unpack;
mod upkeep;

pub use crate::stage::deps::{
    DepsOptions, DepsSource, is_intact as packages_are_intact, layer_of_archive, layer_of_folders, stamp,
};
pub use crate::stage::error::StageError;
pub use crate::stage::git::git_layer;
pub use crate::stage::removal::remove_folder;
pub use crate::stage::upkeep::{InUse, LAYER_BYTES, in_use, remove_unused, sweep_stale};

use crate::model::event::{Event, Sink};
use crate::stage::place::{Builder, Place};
use crate::tree::{Changes, Snapshot};
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

/// A tree on disk. Not to be changed by anyone. Where it is made of several folders, names of upper ones hide those of
/// lower ones, folders are merged, and a character device 0:0 says that there is nothing (Documentation/filesystems/
/// overlayfs.rst in the kernel's source, "whiteouts").
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layer {
    /// Its own folder, the uppermost.
    pub path: PathBuf,
    /// Folders that it is laid over, the uppermost first; none where it holds all of the tree.
    pub below: Vec<PathBuf>,
    /// Files and links in the lowest folder, which holds a whole tree.
    pub bottom_files: u64,
    /// Files and links in its own folder.
    pub files: u64,
    /// Bytes of file content in its own folder.
    pub bytes: u64,
}

/// Gives the layer of a snapshot, making it if it is not there.
///
/// If it is there, this costs about the same whatever the size of the tree: a layer is looked through before it is
/// used, wholly if it is small and in part if it is large, and one that was altered is made anew. If another is there that is much like it, the cost
/// is that of what differs. While it is made, [`Event::Staging`] is emitted
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
    if let Some(layer) = place.existing()
        && is_intact(&layer, options, sink)?
    {
        return Ok(layer);
    }
    if let Some(layer) = over_another(snapshot, options, &place, sink)? {
        return Ok(layer);
    }
    let entries = snapshot.entries()?;
    let layer = build(snapshot, &Changes { entries, gone: Vec::new() }, options, (&place, None), sink)?;
    if let Some(manifest) = snapshot.manifest() {
        place.keep_manifest(&options.root, &manifest);
    }
    Ok(layer)
}

/// The layer of a snapshot if it is there, as it is: nobody has looked through it. Nothing that is done with it may count
/// before [`layer`] has given the same one.
#[must_use]
pub fn layer_unseen(snapshot: &Snapshot, options: &LayerOptions) -> Option<Layer> {
    Place::new(&snapshot.identity().tree, options).existing()
}

/// Whether a layer and all that it lies over are as they were made. One that is not is taken out of its place, and said.
fn is_intact(layer: &Layer, options: &LayerOptions, sink: &mut dyn Sink) -> Result<bool, StageError> {
    for path in layer.stack() {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(false) };
        let place = Place::named(&options.root, name, &options.boot_id);
        if !place.is_intact() {
            sink.event(Event::Warning(&format!(
                "the tree laid out in `{}` has been altered and is made anew",
                path.display()
            )));
            place.retire(&options.root)?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes it over the layer that it has most in common with, if there is one.
fn over_another(
    snapshot: &Snapshot,
    options: &LayerOptions,
    place: &Place,
    sink: &mut dyn Sink,
) -> Result<Option<Layer>, StageError> {
    let mut found = base::nearest(snapshot, options)?;
    if let (None, Some(committed)) = (&found, snapshot.based_on()) {
        // What is in no commit can carry no other layer, since nothing tells what was in it; the commit below it can.
        // That costs no more than one layer for all, unless the commit's own objects are not all there.
        if layer(&committed, options, sink).is_ok() {
            found = base::nearest(snapshot, options)?;
        }
    }
    let Some(found) = found else { return Ok(None) };
    if !is_intact(&found.layer, options, sink)? {
        // It is out of the way now, so another is found, or none.
        return over_another(snapshot, options, place, sink);
    }
    let made = build(snapshot, &found.changes, options, (place, Some(&found.layer)), sink);
    drop(found.in_use);
    match made {
        Ok(layer) => Ok(Some(layer)),
        // Whiteouts cannot be made everywhere (mknod(2); without privilege since Linux 5.8); whole files can.
        Err(StageError::Whiteout { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn build(
    snapshot: &Snapshot,
    changes: &Changes,
    options: &LayerOptions,
    (place, base): (&Place, Option<&Layer>),
    sink: &mut dyn Sink,
) -> Result<Layer, StageError> {
    let builder = Builder::start(&options.root)?;
    match build::write(snapshot, changes, &builder.work(options), sink) {
        Ok(size) => builder.publish(place, size, base),
        Err(error) => {
            builder.discard();
            Err(error)
        }
    }
}
