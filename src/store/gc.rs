//! Making room: which records and which kept output go, oldest first.
#![forbid(unsafe_code)]

use crate::logs;
use crate::model::digest::Digest;
use crate::store::{StoreError, Writer, connection, row};
use rusqlite::{Connection, TransactionBehavior, params};
use std::collections::HashMap;

/// How much is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Records, of all keys together.
    pub records: u32,
    /// Bytes of kept output on disk.
    pub log_bytes: u64,
    /// Age in seconds after which a record goes, an answer too; `None`: no record is too old.
    pub age_secs: Option<i64>,
}

impl Bounds {
    /// Records kept if nothing else is asked: some 200 MB at most.
    pub const RECORDS: u32 = 50_000;
    /// Bytes of kept output if nothing else is asked: 2 GiB.
    pub const LOG_BYTES: u64 = 2 << 30;
    /// After how many new records it is time to look.
    pub const EVERY: i64 = 512;

    /// Whether the record of this number is one after which room should be made.
    #[must_use]
    pub fn is_due(id: i64) -> bool {
        id % Self::EVERY == 0
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self { records: Self::RECORDS, log_bytes: Self::LOG_BYTES, age_secs: None }
    }
}

/// What was removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    /// Records.
    pub records: u64,
    /// Keys of which no record is left.
    pub keys: u64,
    /// Digests of files of this machine.
    pub files: u64,
    /// Kept outputs.
    pub logs: u64,
    /// Bytes of kept output, on disk.
    pub log_bytes: u64,
}

/// Digests of files that are kept.
const FILES: u32 = 100_000;

/// A log that no record names may belong to a run that is about to be recorded; it is left alone for so many seconds.
const GRACE: i64 = 3600;

impl Writer {
    /// Removes what is beyond the bounds. Records go oldest first, but the newest answer of a key stays as long as the
    /// answers alone are within the bound. A record whose output goes still answers. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// The database or the folder of logs cannot be read or written.
    pub fn gc(&mut self, bounds: Bounds, now: i64) -> Result<Swept, StoreError> {
        connection::sweep_unfinished(self.paths());
        let (mut swept, named) = self.run(|connection, _| {
            let swept = trim(connection, bounds, now)?;
            // Gives pages back to the file system; there is nothing to read from it.
            connection.execute_batch("PRAGMA incremental_vacuum")?;
            Ok((swept, named_logs(connection)?))
        })?;
        let dir = self.paths().logs();
        trim_logs(&dir, bounds.log_bytes, now, &named, &mut swept).map_err(|error| match error {
            logs::LogError::File { what, path, source } => StoreError::File { what, path, source },
            other => StoreError::Sql { path: dir.clone(), why: other.to_string() },
        })?;
        Ok(swept)
    }
}

fn trim(connection: &mut Connection, bounds: Bounds, now: i64) -> rusqlite::Result<Swept> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let count = |changed: usize| u64::try_from(changed).unwrap_or(u64::MAX);
    let mut swept = Swept::default();
    if let Some(age) = bounds.age_secs {
        let before = now.saturating_sub(age);
        swept.records += count(transaction.execute("DELETE FROM executions WHERE at_secs < ?1", [before])?);
    }
    let records: i64 = transaction.query_row("SELECT count(*) FROM executions", [], |row| row.get(0))?;
    let over = records - i64::from(bounds.records);
    if over > 0 {
        swept.records += count(transaction.execute(
            "DELETE FROM executions WHERE id IN (
                 SELECT id FROM executions WHERE id NOT IN (
                     SELECT answer FROM keys WHERE answer IS NOT NULL ORDER BY answer DESC LIMIT ?1
                 ) ORDER BY id LIMIT ?2
             )",
            params![bounds.records, over],
        )?);
    }
    transaction.execute("DELETE FROM input_sets WHERE id NOT IN (SELECT id FROM executions)", [])?;
    if swept.records > 0 {
        swept.keys += count(transaction.execute(
            "DELETE FROM keys WHERE NOT EXISTS (SELECT 1 FROM executions e WHERE e.key = keys.key)",
            [],
        )?);
        transaction.execute("DELETE FROM test_counts WHERE key NOT IN (SELECT key FROM keys)", [])?;
    }
    swept.files += count(transaction.execute(
        "DELETE FROM file_digests WHERE id NOT IN (SELECT id FROM file_digests ORDER BY id DESC LIMIT ?1)",
        [FILES],
    )?);
    transaction.commit()?;
    Ok(swept)
}

/// Every log that a record names, and the newest such record.
fn named_logs(connection: &Connection) -> rusqlite::Result<HashMap<Digest, i64>> {
    let mut query =
        connection.prepare("SELECT log, max(id) FROM executions WHERE log IS NOT NULL GROUP BY log")?;
    let rows = query.query_map([], |row| Ok((row::bytes(row, 0)?, row::number(row, 1)?)))?;
    let mut named = HashMap::new();
    for row in rows {
        let (digest, id) = row?;
        if let Ok(digest) = digest.try_into() {
            named.insert(Digest(digest), id);
        }
    }
    Ok(named)
}

fn trim_logs(
    dir: &std::path::Path,
    most: u64,
    now: i64,
    named: &HashMap<Digest, i64>,
    swept: &mut Swept,
) -> Result<(), logs::LogError> {
    logs::sweep(dir)?;
    let mut files = logs::inventory(dir)?;
    // Newest first; those that nobody names last.
    files.sort_by_key(|file| std::cmp::Reverse(named.get(&file.digest).copied().unwrap_or(0)));
    let mut kept = 0_u64;
    for file in files {
        let wanted = named.contains_key(&file.digest) || file.modified > now.saturating_sub(GRACE);
        if wanted {
            // Counted even when it goes, so that nothing older stays in its place.
            kept = kept.saturating_add(file.bytes);
            if kept <= most {
                continue;
            }
        }
        logs::remove(dir, &file.digest)?;
        swept.logs += 1;
        swept.log_bytes = swept.log_bytes.saturating_add(file.bytes);
    }
    Ok(())
}
