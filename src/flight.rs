//! Single flight between processes: of all that want the same check at the same time, one leads and the rest wait.
//! What the leader does, and where waiters find its result, is not known here.
//!
//! The lock is flock(2) on a file named by the key: the kernel releases it however its holder ends, so no stale lock
//! exists, only stale files. A file is removed by whoever holds its lock. A process that opened the file before it was
//! removed would then hold a lock that nobody else sees; hence whoever gets a lock compares what it holds with what the
//! path names, and starts again where they differ.
//!
//! The lock belongs to the open file, not to the process: it is held until every copy of the descriptor is closed. It
//! is close-on-exec; a child that is forked without an exec has to close it.
#![forbid(unsafe_code)]

use crate::model::digest::ActionKey;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a waiter sleeps between two looks at the lock: a small part of what even the shortest check takes.
const POLL: Duration = Duration::from_millis(5);

/// How often a lock may be found on a removed file before something other than other checkruns must be at work.
const RETRIES: u32 = 1000;

/// What stops two processes from agreeing on who runs a check.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlightError {
    /// The folder or a file in it cannot be made or opened.
    #[error("cannot use the cache's locks in {path}: {source}")]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file system has no locks, or grants one lock twice.
    #[error("locks do not work on the file system of {path}")]
    LocksDoNotWork {
        /// The lock file.
        path: PathBuf,
    },
    /// Something removes lock files as fast as they are made.
    #[error("the lock file {path} is removed again and again by something else")]
    Unsteady {
        /// The lock file.
        path: PathBuf,
    },
}

impl FlightError {
    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::File { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some("make room on that file system, or run with `--no-cache`".to_owned())
            }
            Self::File { source, .. }
                if matches!(
                    source.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                Some(
                    "set CHECKRUN_CACHE_DIR to a folder of your own that you may write to, or run with `--no-cache`"
                        .to_owned(),
                )
            }
            Self::File { .. } | Self::LocksDoNotWork { .. } => Some(
                "set CHECKRUN_CACHE_DIR to a folder on a local file system, or run with `--no-cache`"
                    .to_owned(),
            ),
            Self::Unsteady { .. } => None,
        }
    }

    /// What the kernel said, where it said something.
    #[must_use]
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            Self::File { source, .. } => Some(source),
            Self::LocksDoNotWork { .. } | Self::Unsteady { .. } => None,
        }
    }
}

/// One process's wish to run the check of one key.
#[derive(Debug)]
pub struct Flight {
    path: PathBuf,
}

/// What came of trying to lead.
#[derive(Debug)]
pub enum Attempt {
    /// This process leads until the guard is dropped.
    Leader(Leader),
    /// Another one leads.
    Busy,
}

/// Leads while it lives. Dropped, it removes the lock file and then lets go of the lock; a result must be stored by then.
#[derive(Debug)]
#[must_use = "the lead ends when this is dropped"]
pub struct Leader {
    path: PathBuf,
    /// Held for its lock; closing it is what releases.
    _file: File,
}

impl Flight {
    /// Joins those who want the check of `key`; `dir` is the folder of lock files, made if it is missing.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn join(dir: &Path, key: ActionKey) -> Result<Self, FlightError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|source| FlightError::File { path: dir.to_owned(), source })?;
        Ok(Self { path: dir.join(key.0.hex()) })
    }

    /// Takes the lead if nobody has it. Does not wait.
    ///
    /// # Errors
    /// The lock file cannot be opened, or locks do not work there.
    pub fn try_lead(&self) -> Result<Attempt, FlightError> {
        for _ in 0..RETRIES {
            let file = self.open()?;
            if !lock(&file, &self.path)? {
                return Ok(Attempt::Busy);
            }
            if !is_at(&file, &self.path)? {
                continue;
            }
            // A lock that can be had twice is none: proved on the spot, since a wrong belief would show as two runs.
            let second = self.open()?;
            if is_at(&second, &self.path)? && lock(&second, &self.path)? {
                return Err(FlightError::LocksDoNotWork { path: self.path.clone() });
            }
            return Ok(Attempt::Leader(Leader { path: self.path.clone(), _file: file }));
        }
        Err(FlightError::Unsteady { path: self.path.clone() })
    }

    /// Waits for the lead, but not longer than `slice`, so that the caller can look at its own deadline and at signals
    /// in between. A leader's death is seen within a few milliseconds.
    ///
    /// # Errors
    /// As [`Flight::try_lead`].
    pub fn wait(&self, slice: Duration) -> Result<Attempt, FlightError> {
        let mut left = slice;
        loop {
            match self.try_lead()? {
                Attempt::Busy if !left.is_zero() => {
                    let nap = left.min(POLL);
                    std::thread::sleep(nap);
                    left -= nap;
                }
                attempt => return Ok(attempt),
            }
        }
    }

    fn open(&self) -> Result<File, FlightError> {
        // std opens everything close-on-exec (open(2), O_CLOEXEC).
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.path)
            .map_err(|source| FlightError::File { path: self.path.clone(), source })
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        // While the lock is held nobody else may take the file for the current one, so the right file is removed. A
        // file that stays behind does no harm.
        std::fs::remove_file(&self.path).unwrap_or_default();
    }
}

/// Removes the lock files that killed leaders left in `dir`, and says how many. Never waits, never touches one in use.
///
/// # Errors
/// The folder cannot be read; that it does not exist is no error.
pub fn sweep(dir: &Path) -> Result<u64, FlightError> {
    let failed = |source| FlightError::File { path: dir.to_owned(), source };
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(failed(error)),
    };
    let mut removed = 0;
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        // Removed by its leader in the meantime, or not ours to open: both leave nothing to do.
        let Ok(file) = OpenOptions::new().read(true).write(true).open(&path) else { continue };
        if lock(&file, &path)? && is_at(&file, &path)? && std::fs::remove_file(&path).is_ok() {
            removed += 1;
        }
    }
    Ok(removed)
}

/// Takes the lock if it is free.
fn lock(file: &File, path: &Path) -> Result<bool, FlightError> {
    loop {
        return match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(Errno::INTR) => continue,
            // What file systems without locks say (flock(2), and fcntl(2) for those that emulate it).
            Err(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => {
                Err(FlightError::LocksDoNotWork { path: path.to_owned() })
            }
            Err(error) => Err(FlightError::File { path: path.to_owned(), source: error.into() }),
        };
    }
}

/// Whether the path still names the open file.
fn is_at(file: &File, path: &Path) -> Result<bool, FlightError> {
    let failed = |source| FlightError::File { path: path.to_owned(), source };
    let held = file.metadata().map_err(failed)?;
    match std::fs::symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (held.dev(), held.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::digest::Digest;
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Instant;

    fn key() -> ActionKey {
        ActionKey(Digest([7; 32]))
    }

    fn leader(flight: &Flight) -> Option<Leader> {
        match flight.try_lead().unwrap() {
            Attempt::Leader(leader) => Some(leader),
            Attempt::Busy => None,
        }
    }

    #[test]
    fn one_leads_and_the_next_follows_when_it_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two] = [(), ()].map(|()| Flight::join(dir.path(), key()).unwrap());
        let other = Flight::join(dir.path(), ActionKey(Digest([8; 32]))).unwrap();
        let lead = leader(&one).unwrap();
        assert!(leader(&two).is_none());
        assert!(leader(&other).is_some());
        let before = Instant::now();
        assert!(matches!(two.wait(Duration::from_millis(30)).unwrap(), Attempt::Busy));
        assert!(before.elapsed() >= Duration::from_millis(30));
        drop(lead);
        assert!(matches!(two.wait(Duration::ZERO).unwrap(), Attempt::Leader(_)));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn many_threads_never_lead_together() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, led) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let flight = Flight::join(dir.path(), key()).unwrap();
                    for _ in 0..200 {
                        if let Some(lead) = leader(&flight) {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            led.fetch_add(1, Ordering::SeqCst);
                            std::thread::yield_now();
                            inside.fetch_sub(1, Ordering::SeqCst);
                            drop(lead);
                        }
                    }
                });
            }
        });
        assert!(led.load(Ordering::SeqCst) > 0);
    }

    #[test]
    fn a_killed_leader_leaves_the_lead_and_its_file_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        let flight = Flight::join(dir.path(), key()).unwrap();
        // flock(1) is another process that holds the same lock and is then killed.
        let path = dir.path().join(key().0.hex());
        let mut child = Command::new("flock")
            .arg(&path)
            .args(["-c", "echo held; exec sleep 60"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0_u8; 4];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        assert!(leader(&flight).is_none());
        assert_eq!(sweep(dir.path()).unwrap(), 0);
        // flock passes the lock on to its child, which is to die with it.
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
        for pid in children.split_whitespace() {
            assert!(Command::new("kill").args(["-9", pid]).status().unwrap().success());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(path.exists());
        assert!(matches!(flight.wait(Duration::from_secs(5)).unwrap(), Attempt::Leader(_)));
        std::fs::write(&path, "").unwrap();
        assert_eq!(sweep(dir.path()).unwrap(), 1);
        assert!(leader(&flight).is_some());
        assert_eq!(sweep(&dir.path().join("absent")).unwrap(), 0);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error_with_a_hint() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Flight::join(&file.path().join("locks"), key()).unwrap_err();
        assert!(error.to_string().contains("locks"));
        assert!(error.hint().is_some());
    }
}
