//! Reading: what is under a key, lists of records, digests of files. A reader never writes a record, and what it
//! finds broken counts as absent.
#![forbid(unsafe_code)]

use crate::model::digest::{ActionKey, Digest};
use crate::model::evidence::{Found, Stored, Tally};
use crate::store::connection::{is_settled, open_shared, open_still, patiently};
use crate::store::row::{self, Execution};
use crate::store::secret::Secret;
use crate::store::{FileStamp, Record, StoreError, StorePaths};
use rusqlite::{Connection, OptionalExtension, params};
use std::cell::RefCell;
use std::path::PathBuf;

/// How many older records are tried where the newest is broken.
const OLDER: u32 = 16;

/// Reads the store. Meant for the few questions of one look-up: the quick view of the file is kept between them, and
/// what others write meanwhile may be seen or not.
#[derive(Debug)]
pub struct Reader {
    database: PathBuf,
    secret: Option<Secret>,
    still: RefCell<Option<Connection>>,
}

/// Records, newest first.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Listing {
    /// Those that are whole.
    pub records: Vec<Record>,
    /// What is wrong with the others, a sentence each.
    pub damage: Vec<String>,
}

impl Reader {
    pub(super) fn open(paths: &StorePaths) -> Result<Option<Self>, StoreError> {
        let database = paths.database();
        match std::fs::symlink_metadata(&database) {
            Ok(_) => {
                Ok(Some(Self { database, secret: Secret::read(&paths.secret)?, still: RefCell::new(None) }))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StoreError::File { what: "look at", path: database, source }),
        }
    }

    /// What is under that key. The stored pre-image must be the one given, or nothing is found.
    ///
    /// Never fails: what cannot be read is a miss that says so, and nothing is changed.
    #[must_use]
    pub fn lookup(&self, key: ActionKey, preimage: &[u8]) -> Found {
        let Some(secret) = &self.secret else {
            let damage = vec![
                "the secret that records are tagged with is missing, so none of them answers".to_owned(),
            ];
            return Found { damage, ..Found::default() };
        };
        // The quick way: one query on the file as it lies there. A record proves itself by its tag, so only a sound answer
        // is taken from there; everything else is asked again in the proper way.
        let quick = is_settled(&self.database)
            .then(|| self.by_still(&|still: &Connection| find(still, secret, key, preimage)));
        if let Some(Ok(found)) = &quick
            && found.latest.is_some()
            && found.damage.is_empty()
        {
            return found.clone();
        }
        let proper = patiently(|| find(&open_shared(&self.database)?, secret, key, preimage));
        match (proper, quick) {
            (Ok(found), _) => found,
            // On a file system that cannot be written to there is no proper way, and no writer either.
            (Err(_), Some(Ok(found))) => found,
            (Err(error), _) => {
                let damage = vec![StoreError::of_sql(&self.database, &error).to_string()];
                Found { damage, ..Found::default() }
            }
        }
    }

    /// The newest records, at most `limit`, of trees whose ids begin like this (one tree, if it is a full id) or of all.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn recent(&self, limit: u32, tree: Option<&str>) -> Result<Listing, StoreError> {
        match tree {
            // No digit of an id comes after `f`.
            Some(tree) => self.list(
                "WHERE e.tree BETWEEN ?2 AND ?2 || 'g' ORDER BY e.id DESC LIMIT ?1",
                params![limit, tree],
            ),
            None => self.list("ORDER BY e.id DESC LIMIT ?1", params![limit]),
        }
    }

    /// The newest record of each key that was seen to pass and to fail, newest first, at most `limit`.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn flaky(&self, limit: u32) -> Result<Listing, StoreError> {
        let rest = "WHERE k.passed > 0 AND k.failed > 0 AND e.id = k.answer ORDER BY e.id DESC LIMIT ?1";
        self.list(rest, params![limit])
    }

    /// The record of that number.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn by_id(&self, id: i64) -> Result<Listing, StoreError> {
        self.list("WHERE e.id = ?1", params![id])
    }

    /// The newest record of the one key that begins like this, `b3:` before it or not.
    ///
    /// # Errors
    /// Fewer than six digits, other characters, or several keys begin like this; the database cannot be read.
    pub fn by_key(&self, prefix: &str) -> Result<Listing, StoreError> {
        let (low, high) = range(prefix).ok_or_else(|| StoreError::NotAKey { text: prefix.to_owned() })?;
        let keys = self.read(|connection| {
            let mut query = connection
                .prepare("SELECT DISTINCT key FROM executions WHERE key BETWEEN ?1 AND ?2 LIMIT 2")?;
            query
                .query_map(params![low.0, high.0], |row| row::bytes(row, 0))?
                .collect::<rusqlite::Result<Vec<_>>>()
        })?;
        let keys: Vec<[u8; 32]> = keys.into_iter().filter_map(|key| key.try_into().ok()).collect();
        match keys.as_slice() {
            [] => Ok(Listing::default()),
            [key] => self.list("WHERE e.key = ?1 ORDER BY e.id DESC LIMIT 1", params![key]),
            [one, two, ..] => Err(StoreError::Ambiguous {
                text: prefix.to_owned(),
                keys: Box::new([one, two].map(|key| Digest(*key).to_string())),
            }),
        }
    }

    /// The newest record that is like a key in all but the tree; where there is none, the newest of the same command.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn nearest(&self, weak: &Digest, command: &Digest) -> Result<Option<Record>, StoreError> {
        for (column, digest) in [("weak", weak), ("command", command)] {
            let rest = format!("WHERE e.{column} = ?1 ORDER BY e.id DESC LIMIT {OLDER}");
            if let Some(record) = self.list(&rest, params![digest.0])?.records.into_iter().next() {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Digests of files that were hashed before and have not changed since; `None` for those not known. What cannot
    /// be read is not known.
    #[must_use]
    pub fn file_digests(&self, stamps: &[FileStamp]) -> Vec<Option<Digest>> {
        let nothing = vec![None; stamps.len()];
        let Some(secret) = &self.secret else { return nothing };
        let known = self.read(|connection| {
            let mut query = connection.prepare("SELECT digest, tag FROM file_digests WHERE stamp = ?1")?;
            stamps
                .iter()
                .map(|stamp| {
                    let bytes = row::stamp_bytes(stamp);
                    let pair = query.query_row([bytes], |row| Ok((row::bytes(row, 0)?, row::bytes(row, 1)?)));
                    Ok(pair
                        .optional()?
                        .and_then(|(digest, tag)| row::check_file(secret, &bytes, &digest, &tag)))
                })
                .collect()
        });
        known.unwrap_or(nothing)
    }

    fn list(&self, rest: &str, arguments: &[&dyn rusqlite::ToSql]) -> Result<Listing, StoreError> {
        let Some(secret) = &self.secret else { return Ok(Listing::default()) };
        let sql = format!(
            "SELECT {}, k.preimage, k.passed, k.failed, k.tag
             FROM executions e LEFT JOIN keys k ON k.key = e.key {rest}",
            Execution::COLUMNS
        );
        self.read(|connection| {
            let mut listing = Listing::default();
            let mut query = connection.prepare(&sql)?;
            let mut rows = query.query(arguments)?;
            while let Some(row) = rows.next()? {
                let Some(execution) = Execution::read(row, 0)? else { continue };
                match execution.check(secret) {
                    Ok((key, evidence)) => {
                        let preimage = row::bytes(row, 6)?;
                        let counts = (row::number(row, 7)?, row::number(row, 8)?);
                        let tag = row::bytes(row, 9)?;
                        let tally = row::check_tally(secret, &key.0.0, counts, &tag).unwrap_or_default();
                        let sound = Digest::of(&preimage) == key.0;
                        let preimage = if sound { preimage } else { Vec::new() };
                        listing.records.push(Record { id: execution.id, key, preimage, tally, evidence });
                    }
                    Err(fault) => listing.damage.push(fault.into_text()),
                }
            }
            Ok(listing)
        })
    }

    pub(super) fn secret(&self) -> Option<&Secret> {
        self.secret.as_ref()
    }

    /// Asks the quick view of the file, which is opened once.
    fn by_still<T>(&self, ask: &impl Fn(&Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        let mut still = self.still.borrow_mut();
        let connection = match still.take() {
            Some(connection) => connection,
            None => open_still(&self.database)?,
        };
        let answer = ask(&connection);
        // A view in which something went wrong is not used again.
        if answer.is_ok() {
            *still = Some(connection);
        }
        answer
    }

    /// Reads the way that is at hand; the still view is only a short cut, so whatever goes wrong there does not count.
    pub(super) fn read<T>(&self, ask: impl Fn(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        if is_settled(&self.database)
            && let Ok(answer) = self.by_still(&ask)
        {
            return Ok(answer);
        }
        patiently(|| ask(&open_shared(&self.database)?))
            .map_err(|error| StoreError::of_sql(&self.database, &error))
    }
}

/// Looks a key up. Errors are SQLite's own; rows that are not whole are damage in what is found.
fn find(
    connection: &Connection,
    secret: &Secret,
    key: ActionKey,
    preimage: &[u8],
) -> rusqlite::Result<Found> {
    let mut query = connection.prepare(&format!(
        "SELECT k.preimage, k.passed, k.failed, k.tag, {}
         FROM keys k LEFT JOIN executions e ON e.id = k.answer WHERE k.key = ?1",
        Execution::COLUMNS
    ))?;
    let mut rows = query.query([key.0.0])?;
    let mut found = Found::default();
    let Some(row) = rows.next()? else { return Ok(found) };
    if row::bytes(row, 0)? != preimage {
        found
            .damage
            .push(format!("what is stored as the description of key {key} is not what was asked for"));
        return Ok(found);
    }
    let counts = (row::number(row, 1)?, row::number(row, 2)?);
    let Some(tally) = row::check_tally(secret, &key.0.0, counts, &row::bytes(row, 3)?) else {
        found.damage.push(format!("the counts of key {key} were altered: their tag is wrong"));
        return Ok(found);
    };
    found.tally = tally;
    if tally == Tally::default() {
        return Ok(found);
    }
    let newest = Execution::read(row, 4)?;
    if let Some(execution) = &newest {
        take(&mut found, execution, secret, key);
    }
    if found.latest.is_none() {
        older(&mut found, connection, secret, key, newest.map_or(i64::MAX, |execution| execution.id))?;
    }
    Ok(found)
}

/// The newest sound answer before `id`.
fn older(
    found: &mut Found,
    connection: &Connection,
    secret: &Secret,
    key: ActionKey,
    id: i64,
) -> rusqlite::Result<()> {
    let mut query = connection.prepare(&format!(
        "SELECT {} FROM executions e
         WHERE e.key = ?1 AND e.id < ?2 AND e.outcome IN ('passed', 'failed') ORDER BY e.id DESC LIMIT {OLDER}",
        Execution::COLUMNS
    ))?;
    let mut rows = query.query(params![key.0.0, id])?;
    while found.latest.is_none()
        && let Some(row) = rows.next()?
    {
        if let Some(execution) = Execution::read(row, 0)? {
            take(found, &execution, secret, key);
        }
    }
    Ok(())
}

/// Takes the record as the answer if it is whole, of this key and an answer; else notes why not.
fn take(found: &mut Found, execution: &Execution, secret: &Secret, key: ActionKey) {
    match execution.check(secret) {
        Ok((of, evidence)) if of == key && evidence.outcome.is_answer() => {
            found.latest = Some(Stored { id: execution.id, evidence });
        }
        Ok(_) => found.damage.push(format!("record {} is not what key {key} points to", execution.id)),
        Err(fault) => found.damage.push(fault.into_text()),
    }
}

/// The first and the last key that begin with those digits.
fn range(prefix: &str) -> Option<(Digest, Digest)> {
    let digits = prefix.strip_prefix("b3:").unwrap_or(prefix);
    if !(6..=64).contains(&digits.len()) || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let filled = |with: &str| Digest::parse(&format!("{digits}{}", with.repeat(64 - digits.len())));
    Some((filled("0")?, filled("f")?))
}
