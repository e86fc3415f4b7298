//! The part of a tree that a preparing step is kept under. It follows from the tree alone, and to work it out the whole
//! tree is listed, so it is noted under the tree's id. Which files are inputs is told by `packages`.
#![forbid(unsafe_code)]

use crate::model::digest::Digest;
use crate::model::runner::PrepareRule;
use crate::pipeline::packages::{is_input, keep};
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
    let count = step.when.len().to_le_bytes();
    let when = step.when.iter().map(|path| path.as_os_str().as_bytes());
    let inputs = step.inputs.iter().map(String::as_bytes);
    let start = [VERSION, snapshot.identity().tree.as_bytes(), cwd, &count];
    Digest::of_fields(start.into_iter().chain(when).chain(inputs)).hex()
}

fn note(folder: &Path, path: &Path, text: &str) {
    if fs::read_dir(folder).is_ok_and(|entries| entries.count() >= MOST) {
        drop(fs::remove_dir_all(folder));
    }
    // What cannot be noted is worked out again.
    drop(keep(path, text));
}
