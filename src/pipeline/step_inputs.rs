//! The part of a tree that a preparing step is kept under. It follows from the tree alone, and to work it out the whole
//! tree is listed, so it is noted under the tree's id. Which files are inputs is told by `packages`.
#![forbid(unsafe_code)]

use crate::model::runner::PrepareRule;
use crate::pipeline::packages::is_input;
use crate::pipeline::{PipelineError, Surroundings};
use crate::tree::Snapshot;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Version of what is noted.
const VERSION: &[u8] = b"checkrun.step-inputs/1";
/// Notes that are kept; with one more all go, and are made again where they are needed.
const MOST: usize = 4096;
/// Where notes are kept, in the cache.
pub(super) const FOLDER: &str = "step-inputs";
/// What is noted where a tree has no such file.
const NONE: &str = "none";

/// The id of the tree that has only the inputs of a step, in words.
///
/// # Errors
/// A tree object cannot be read. That the cache cannot be written to is none: then it is listed again next time.
pub(super) fn inputs_of(
    step: &PrepareRule,
    snapshot: &Snapshot,
    cwd: &[u8],
    around: &Surroundings,
) -> Result<String, PipelineError> {
    let folder = around.store.cache.join(FOLDER);
    let noted = folder.join(name(step, snapshot, cwd));
    // A note that was cut short by a machine that went down has no end of line.
    if let Some(known) =
        fs::read_to_string(&noted).ok().and_then(|text| Some(text.strip_suffix('\n')?.to_owned()))
    {
        return Ok(known);
    }
    let found = snapshot.part_where(&|path| is_input(step, cwd, path))?;
    let text = found.map_or_else(|| NONE.to_owned(), |id| id.hex());
    note(&folder, &noted, &text);
    Ok(text)
}

fn name(step: &PrepareRule, snapshot: &Snapshot, cwd: &[u8]) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut put = |bytes: &[u8]| {
        hasher.update(&u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
        hasher.update(bytes);
    };
    put(VERSION);
    put(snapshot.identity().tree.as_bytes());
    put(cwd);
    put(&step.when.len().to_le_bytes());
    step.when.iter().for_each(|path| put(path.as_os_str().as_bytes()));
    step.inputs.iter().for_each(|pattern| put(pattern.as_bytes()));
    hasher.finalize().to_hex().to_string()
}

fn note(folder: &Path, path: &Path, text: &str) {
    if fs::read_dir(folder).is_ok_and(|entries| entries.count() >= MOST) {
        drop(fs::remove_dir_all(folder));
    }
    let temporary = path.with_extension(std::process::id().to_string());
    let written = fs::create_dir_all(folder)
        .and_then(|()| fs::write(&temporary, format!("{text}\n")))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        drop(fs::remove_file(&temporary));
    }
}
