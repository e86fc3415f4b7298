//! What goes wrong with the store, in words, with remedies.
#![forbid(unsafe_code)]

use rusqlite::ErrorCode;
use std::io;
use std::path::{Path, PathBuf};

/// What the kernel says of a disk that does not read or write.
const EIO: i32 = rustix::io::Errno::IO.raw_os_error();

/// Why the store cannot be used, or not for this.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The cache folder is something else.
    #[error("the cache folder {path} is not a folder")]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// The cache folder is somebody else's.
    #[error("the cache folder {path} belongs to user {owner}, and this is user {user}")]
    OtherOwner {
        /// The path.
        path: PathBuf,
        /// Its owner's user id.
        owner: u32,
        /// This user's id.
        user: u32,
    },
    /// A file or folder of the store cannot be used.
    #[error("cannot {what} {path}: {source}")]
    File {
        /// What was tried: `make`, `read`…
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file of the secret cannot be trusted.
    #[error("the secret {path} {why}")]
    Secret {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The database is not one, or is broken.
    #[error("the records in {path} are damaged: {why}")]
    Damaged {
        /// The database file.
        path: PathBuf,
        /// What SQLite said.
        why: String,
    },
    /// There is no room.
    #[error("no room left for the records in {path}")]
    Full {
        /// The database file.
        path: PathBuf,
    },
    /// The disk does not read or write; on a full one SQLite says so of a file that is mapped into memory.
    #[error("cannot use the records in {path}: {why}")]
    Disk {
        /// The database file.
        path: PathBuf,
        /// What SQLite said.
        why: String,
    },
    /// Others have held the database for too long.
    #[error("the records in {path} are in use by others for too long: {why}")]
    Busy {
        /// The database file.
        path: PathBuf,
        /// What SQLite said.
        why: String,
    },
    /// It may not be read or written.
    #[error("no access to the records in {path}: {why}")]
    NoAccess {
        /// The database file.
        path: PathBuf,
        /// What SQLite said.
        why: String,
    },
    /// Anything else that SQLite says.
    #[error("cannot use the records in {path}: {why}")]
    Sql {
        /// The database file.
        path: PathBuf,
        /// What SQLite said.
        why: String,
    },
    /// A record does not fit into the space that one has.
    #[error("a record of {bytes} bytes is too large even without its tail; at most {limit} are kept")]
    TooLarge {
        /// Its size without the tail.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The start of a key that was given is none.
    #[error(
        "`{text}` is not the start of a key; write 6 to 64 hex digits, with or without `b3:` before them"
    )]
    NotAKey {
        /// What was given.
        text: String,
    },
    /// The start of a key fits several.
    #[error("`{text}` is the start of several keys: {} and {}", keys[0], keys[1])]
    Ambiguous {
        /// What was given.
        text: String,
        /// Two that it fits.
        keys: Box<[String; 2]>,
    },
}

impl StoreError {
    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let elsewhere = "set CHECKRUN_CACHE_DIR to a folder of your own";
        match self {
            Self::NotAFolder { .. } | Self::OtherOwner { .. } => {
                Some(format!("{elsewhere}, or run with `--no-cache`"))
            }
            Self::File { source, .. } if is_full(source) => Some("make room on that file system".to_owned()),
            Self::File { .. } | Self::NoAccess { .. } => {
                Some(format!(
                    "make it readable and writable for you, {elsewhere} (and XDG_STATE_HOME for the secret), or run with `--no-cache`"
                ))
            }
            Self::Secret { .. } => Some(
                "make it a file of your own with `chmod 600`, or remove it: earlier records then no longer answer"
                    .to_owned(),
            ),
            Self::Damaged { .. } => Some("the next run that is recorded puts it aside and begins anew".to_owned()),
            Self::Full { .. } | Self::Disk { .. } => {
                Some("make room on that file system, or run `checkrun gc`".to_owned())
            }
            Self::Ambiguous { .. } => Some("write more digits".to_owned()),
            Self::NotAKey { .. } => Some("`checkrun log` lists keys and numbers".to_owned()),
            Self::Busy { .. } | Self::Sql { .. } | Self::TooLarge { .. } => None,
        }
    }

    /// True where the store is sound and merely has no room left.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Full { .. } => true,
            Self::File { source, .. } => is_full(source),
            _ => false,
        }
    }

    /// True where nothing is wrong but the disk: it has no room left, or does not read or write.
    #[must_use]
    pub fn is_of_the_disk(&self) -> bool {
        match self {
            Self::Full { .. } | Self::Disk { .. } => true,
            Self::File { source, .. } => is_full(source) || source.raw_os_error() == Some(EIO),
            _ => false,
        }
    }

    pub(super) fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }

    /// Sorts what SQLite says (<https://sqlite.org/rescode.html>).
    pub(super) fn of_sql(path: &Path, error: &rusqlite::Error) -> Self {
        let (path, why) = (path.to_owned(), error.to_string());
        match error {
            rusqlite::Error::SqliteFailure(failure, _) => match failure.code {
                ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Self::Damaged { path, why },
                ErrorCode::DiskFull => Self::Full { path },
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::FileLockingProtocolFailed => Self::Busy { path, why },
                // A file that cannot be made for want of room is one that cannot be opened, to SQLite.
                ErrorCode::CannotOpen if has_no_room(&path) => Self::Full { path },
                ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen => {
                    Self::NoAccess { path, why }
                }
                ErrorCode::SystemIoFailure
                    if failure.extended_code == rusqlite::ffi::SQLITE_IOERR_SHORT_READ =>
                {
                    Self::Damaged { path, why }
                }
                ErrorCode::SystemIoFailure => Self::Disk { path, why },
                ErrorCode::Unknown if has_lost_schema(&why) => Self::Damaged { path, why },
                _ => Self::Sql { path, why },
            },
            // A value that is not of its column's type was never written by checkrun.
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::QueryReturnedNoRows => Self::Damaged { path, why },
            rusqlite::Error::SqlInputError { .. } if has_lost_schema(&why) => Self::Damaged { path, why },
            _ => Self::Sql { path, why },
        }
    }
}

/// Migrations only add, so a file without its tables or columns has lost them.
fn has_lost_schema(why: &str) -> bool {
    why.contains("no such table") || why.contains("no such column")
}

/// Whether the file system that a file is on has no block or no inode left for this user.
fn has_no_room(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(path);
    rustix::fs::statvfs(folder)
        .is_ok_and(|room| room.f_bavail == 0 || (room.f_files > 0 && room.f_favail == 0))
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
