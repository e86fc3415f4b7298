//! Connections and the schema: opening, making and migrating the database, waiting for others, putting a broken one
//! aside. What is in the tables is the siblings'.
#![forbid(unsafe_code)]

use crate::store::secret::publish_new;
use crate::store::{StoreError, StorePaths};
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{FlockOperation, flock};
use rustix::rand::{GetRandomFlags, getrandom};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long SQLite itself waits for another's lock before it gives up.
const BUSY: Duration = Duration::from_secs(10);

/// What brings the database from version n to n + 1, in order; `PRAGMA user_version` counts those applied. A migration
/// only adds: programs that do not know it go on reading and writing.
const MIGRATIONS: [&str; 4] = [
    "
    CREATE TABLE executions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        key BLOB NOT NULL,
        weak BLOB NOT NULL,
        command BLOB NOT NULL,
        tree TEXT NOT NULL,
        outcome TEXT NOT NULL,
        log BLOB,
        at_secs INTEGER,
        evidence BLOB NOT NULL,
        tag BLOB NOT NULL
    );
    CREATE INDEX executions_by_key ON executions (key, id);
    CREATE INDEX executions_by_weak ON executions (weak, id);
    CREATE INDEX executions_by_command ON executions (command, id);
    CREATE INDEX executions_by_tree ON executions (tree, id);
    CREATE TABLE keys (
        key BLOB PRIMARY KEY,
        preimage BLOB NOT NULL,
        passed INTEGER NOT NULL,
        failed INTEGER NOT NULL,
        answer INTEGER,
        tag BLOB NOT NULL
    );
    CREATE INDEX keys_by_answer ON keys (answer);
    CREATE TABLE file_digests (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        stamp BLOB NOT NULL UNIQUE,
        digest BLOB NOT NULL,
        tag BLOB NOT NULL
    );
",
    "
    CREATE TABLE input_sets (
        id INTEGER PRIMARY KEY,
        name BLOB NOT NULL,
        bytes BLOB NOT NULL,
        tag BLOB NOT NULL
    );
    CREATE INDEX input_sets_by_name ON input_sets (name, id);
",
    "
    CREATE TABLE test_counts (
        key BLOB NOT NULL,
        test TEXT NOT NULL,
        passed INTEGER NOT NULL,
        failed INTEGER NOT NULL,
        cause TEXT,
        at TEXT NOT NULL,
        tag BLOB NOT NULL,
        PRIMARY KEY (key, test)
    );
",
    "
    ALTER TABLE input_sets ADD COLUMN used INTEGER;
",
];

/// Opens a view of the database file alone: no locks, no look at the log of pending writes. Only right while that log is
/// empty; a writer that comes in between can make what is read meaningless (<https://sqlite.org/uri.html>, `immutable`),
/// so whatever is read has to prove itself.
pub(super) fn open_still(path: &Path) -> rusqlite::Result<Connection> {
    let mut uri = if path.is_absolute() { b"file://".to_vec() } else { b"file:".to_vec() };
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => uri.push(*byte),
            _ => uri.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    uri.extend_from_slice(b"?immutable=1");
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(OsString::from_vec(uri), flags)
}

/// True if no writes are pending beside the database file.
pub(super) fn is_settled(database: &Path) -> bool {
    std::fs::metadata(beside(database, "-wal")).map_or(true, |log| log.len() == 0)
}

/// Opens for reading beside writers.
pub(super) fn open_shared(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}

/// Opens for writing and brings the schema up to date. A file that lacks its tables counts as damaged: a database gets
/// its name only when it is complete.
pub(super) fn open_for_writing(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    // A transaction may be lost when the machine goes down, never torn; records are worth no more than that.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    let version = version(&connection)?;
    if version == 0 {
        return Err(rusqlite::Error::QueryReturnedNoRows);
    }
    connection.query_row("SELECT count(*) FROM executions, keys, file_digests WHERE 0", [], |_| Ok(()))?;
    if version < MIGRATIONS.len() {
        migrate(&mut connection)?;
    }
    Ok(connection)
}

/// Makes a database under a name of its own and then gives it the right one, so that nobody ever sees half of one.
pub(super) fn create(path: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::File { what: "make", path: path.to_owned(), source };
    let mut word = [0_u8; 8];
    getrandom(&mut word, GetRandomFlags::empty()).map_err(|errno| failed(errno.into()))?;
    let temporary =
        path.with_file_name(format!("new-{}-{:016x}.db", std::process::id(), u64::from_le_bytes(word)));
    let made = create_at(&temporary)
        .map_err(|error| StoreError::of_sql(path, &error))
        .and_then(|()| publish_new(&temporary, path).map_err(failed));
    for suffix in ["", "-wal", "-shm", "-journal"] {
        // Mostly there is nothing left to remove.
        std::fs::remove_file(beside(&temporary, suffix)).unwrap_or_default();
    }
    made
}

/// Removes databases whose makers were killed before they had their name.
pub(super) fn sweep_unfinished(paths: &StorePaths) {
    for entry in std::fs::read_dir(paths.records()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker =
            name.to_str().and_then(|name| name.strip_prefix("new-")?.split_once('-')?.0.parse::<u32>().ok());
        if maker.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            // Another sweep may have been here first.
            std::fs::remove_file(entry.path()).unwrap_or_default();
        }
    }
}

fn create_at(path: &Path) -> rusqlite::Result<()> {
    let mut connection = Connection::open(path)?;
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    migrate(&mut connection)?;
    connection.close().map_err(|(_, error)| error)
}

fn version(connection: &Connection) -> rusqlite::Result<usize> {
    connection.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0)).map(|version| {
        // More than fits cannot be: it is a number of migrations.
        usize::try_from(version).unwrap_or(usize::MAX)
    })
}

fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // Read again under the lock: another process may have done it in the meantime.
    let from = version(&transaction)?;
    for migration in MIGRATIONS.iter().skip(from) {
        transaction.execute_batch(migration)?;
    }
    let to = u32::try_from(MIGRATIONS.len().max(from)).unwrap_or(u32::MAX);
    transaction.pragma_update(None, "user_version", to)?;
    transaction.commit()
}

/// Does it again while others are in the way in a manner that SQLite does not wait out itself: a log that is being
/// recovered, a snapshot that went out of date, a race for the shared index (<https://sqlite.org/wal.html>, §9).
pub(super) fn patiently<T>(mut attempt: impl FnMut() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked, FileLockingProtocolFailed};
    let mut waits = [1, 2, 5, 10, 20, 50, 100, 100, 100, 200, 200, 200, 500, 500, 500].into_iter();
    loop {
        let result = attempt();
        let Err(rusqlite::Error::SqliteFailure(failure, _)) = &result else { return result };
        // Plain `busy` has already waited for BUSY.
        let passing = match failure.code {
            DatabaseBusy => failure.extended_code != rusqlite::ffi::SQLITE_BUSY || waits.len() > 12,
            DatabaseLocked | FileLockingProtocolFailed => true,
            _ => false,
        };
        match waits.next() {
            Some(milliseconds) if passing => std::thread::sleep(Duration::from_millis(milliseconds)),
            _ => return result,
        }
    }
}

/// Held by every writer while its connection is open, alone by the one that puts a broken database aside: without it, one
/// process could put aside what another has just made, or join an old file with a new log.
#[derive(Debug)]
pub(super) struct InUse {
    _file: File,
}

impl InUse {
    pub(super) fn shared(paths: &StorePaths) -> Result<Self, StoreError> {
        Self::take(paths, FlockOperation::NonBlockingLockShared)
    }

    fn take(paths: &StorePaths, how: FlockOperation) -> Result<Self, StoreError> {
        let path = paths.records().join("lock");
        let failed = |source| StoreError::File { what: "lock", path: path.clone(), source };
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = open.map_err(failed)?;
        for _ in 0..400 {
            match flock(&file, how) {
                Ok(()) => return Ok(Self { _file: file }),
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(errno) => return Err(failed(errno.into())),
            }
        }
        Err(StoreError::Busy {
            path: paths.database(),
            why: "a damaged database cannot be put aside".to_owned(),
        })
    }
}

/// Which file a path names, to tell a broken database from the one that took its place.
pub(super) fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Renames the broken database aside and says where it is now; `None` if another process did so before. The caller's own
/// connection and [`InUse`] must be gone.
pub(super) fn put_aside(paths: &StorePaths, broken: (u64, u64)) -> Result<Option<PathBuf>, StoreError> {
    let alone = InUse::take(paths, FlockOperation::NonBlockingLockExclusive)?;
    let path = paths.database();
    if identity(&path) != Some(broken) {
        return Ok(None);
    }
    let free = (1..10).map(|n| path.with_file_name(format!("damaged-{n}.db"))).find(|place| !place.exists());
    let aside = free.unwrap_or_else(|| path.with_file_name("damaged-9.db"));
    // The log goes first: a database without its log is merely older, a log without its database is dangerous.
    for suffix in ["-wal", "-shm", ""] {
        let (from, to) = (beside(&path, suffix), beside(&aside, suffix));
        match std::fs::rename(&from, to) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::File { what: "put aside", path: from, source });
            }
            _ => {}
        }
    }
    drop(alone);
    Ok(Some(aside))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
