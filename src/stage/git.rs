//! The `.git` folder that a policy may show: a layer of its own over the tree's, made once per tree as that one is. What is
//! in it is `tree`'s.
#![forbid(unsafe_code)]

use crate::model::event::Sink;
use crate::stage::build::{Size, Work};
use crate::stage::place::{Builder, Place, suffix};
use crate::stage::{Layer, LayerOptions, StageError, is_intact};
use crate::tree::Snapshot;
use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// What the pack is called; there is one.
const PACK: &str = "pack-tree";

/// Gives the layer that holds the `.git` folder of a snapshot, making it if it is not there. It is to lie over the layer
/// that was made of the same snapshot with the same options.
///
/// # Errors
/// An object cannot be read, or the disk does not take it. Nothing is left behind then.
pub fn git_layer(
    snapshot: &Snapshot,
    options: &LayerOptions,
    sink: &mut dyn Sink,
) -> Result<Layer, StageError> {
    let name = format!("git-{}{}", snapshot.identity().tree.hex(), suffix(options));
    let place = Place::named(&options.root, &name, &options.boot_id);
    if let Some(layer) = place.existing()
        && is_intact(&layer, options, sink)?
    {
        return Ok(layer);
    }
    let builder = Builder::start(&options.root)?;
    match write(snapshot, &builder.work(options)) {
        Ok(size) => builder.publish(&place, size, None),
        Err(error) => {
            builder.discard();
            Err(error)
        }
    }
}

fn write(snapshot: &Snapshot, work: &Work<'_>) -> Result<Size, StageError> {
    let top = work.path.join(".git");
    let mut made = Vec::new();
    for folder in ["", "objects", "objects/pack", "objects/info", "refs", "refs/heads", "refs/tags", "info"] {
        let path = if folder.is_empty() { top.clone() } else { top.join(folder) };
        std::fs::create_dir(&path).map_err(|error| StageError::of_io("make the folder", &path, error))?;
        made.push((path, 0o755));
    }
    let pack = top.join(format!("objects/pack/{PACK}.pack"));
    let file = File::create_new(&pack).map_err(|error| StageError::of_io("write", &pack, error))?;
    let mut out = BufWriter::with_capacity(1 << 18, file);
    let files = snapshot.synthetic_repository(work.mtime, PACK, &mut out)?;
    drop(out);
    let mut size = Size { files: 1, bytes: length(&pack)? };
    made.push((pack, 0o644));
    for file in files {
        let path = top.join(&file.path);
        std::fs::write(&path, &file.bytes).map_err(|error| StageError::of_io("write", &path, error))?;
        size.files += 1;
        size.bytes += u64::try_from(file.bytes.len()).unwrap_or(u64::MAX);
        made.push((path, 0o644));
    }
    // An index tells only of files that are older than itself: what was changed in its own second it could not know.
    // Deepest first, since each new entry changes a folder's time.
    for (path, mode) in made.iter().rev() {
        finish(path, *mode, work.mtime + 1, work.owner)?;
    }
    finish(work.path, 0o755, work.mtime, work.owner)?;
    Ok(size)
}

fn length(path: &Path) -> Result<u64, StageError> {
    let found = std::fs::metadata(path).map_err(|error| StageError::of_io("look at", path, error))?;
    Ok(found.len())
}

fn finish(path: &Path, mode: u32, mtime: i64, owner: Option<(u32, u32)>) -> Result<(), StageError> {
    let time = Timespec { tv_sec: mtime, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    let finished = (|| {
        if let Some((uid, gid)) = owner {
            rustix::fs::chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
        }
        rustix::fs::chmod(path, Mode::from_raw_mode(mode))?;
        rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())
    })();
    finished.map_err(|error| StageError::of_io("finish", path, error))
}
