//! What processes that were killed left in the cache: files and folders that bear their process id. Layers, logs and lock
//! files are known by locks instead, and their rooms sweep them.
#![forbid(unsafe_code)]

use crate::pipeline::{Surroundings, step_inputs};
use crate::stage::remove_folder;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// No run lasts longer, as a rule.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Removes all of it, and says how much it was.
pub fn sweep_leftovers(around: &Surroundings) -> u64 {
    let cache = &around.store.cache;
    let mut swept =
        sweep(&cache.join("runs")) + sweep(&around.scratch()) + sweep(&cache.join(step_inputs::FOLDER));
    for runner in std::fs::read_dir(cache.join("packages")).into_iter().flatten().flatten() {
        swept += sweep(&runner.path());
    }
    swept
}

/// Removes what lies in one folder, and what a process with our own number left before us.
pub(super) fn sweep(folder: &Path) -> u64 {
    let mut swept = 0;
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(process_of) else { continue };
        if pid != std::process::id() && Path::new("/proc").join(pid.to_string()).exists() {
            continue;
        }
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let gone = if is_folder { remove_folder(&path) } else { std::fs::remove_file(&path) };
        swept += u64::from(gone.is_ok());
    }
    swept
}

/// Removes spare ground of ours among the temporary files of all. Whoever made it may be in another PID namespace, so
/// only what is a day old goes.
pub(super) fn sweep_spare(temporary: &Path) {
    let user = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(temporary).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix("checkrun-")?.split_once('-')?.0.parse::<u32>().ok());
        let Ok(meta) = entry.metadata() else { continue };
        let is_old = meta.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > DAY));
        let is_dead = number.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists());
        if is_dead && is_old && meta.is_dir() && meta.uid() == user {
            // What cannot be removed is for whoever cleans up temporary files.
            drop(remove_folder(&entry.path()));
        }
    }
}

/// The process that made an entry of that name; `None` for a name that no process gives to what it will remove itself.
fn process_of(name: &str) -> Option<u32> {
    let number = match name.split_once('-') {
        Some(("run" | "doctor" | ".kept", number)) => number,
        Some(("prepare", number)) => number.strip_suffix(".tar")?,
        // A note on its way to its name, which is a digest.
        _ => name.split_once('.').filter(|(digest, _)| digest.len() == 64)?.1,
    };
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_dead_have_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let digest = "ab".repeat(32);
        // Process ids end at 4,194,304 (proc(5), pid_max).
        let dead = ["prepare-5000000.tar", ".kept-5000000", &format!("{digest}.5000000")];
        let kept = ["prepare-1.tar", "prepare-5000000", "run-x", &digest, "something.5000000"];
        for name in dead.iter().chain(&kept) {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        std::fs::create_dir_all(dir.path().join("run-5000000/a/b")).unwrap();
        std::fs::create_dir_all(dir.path().join("doctor-1/a")).unwrap();
        assert_eq!(sweep(dir.path()), 4);
        assert!(kept.iter().all(|name| dir.path().join(name).exists()));
        assert!(dir.path().join("doctor-1/a").exists());
        assert_eq!(sweep(&dir.path().join("absent")), 0);
    }
}
