//! Writing: one execution at a time, in one short transaction; what is found broken on the way is removed.
#![forbid(unsafe_code)]

use crate::model::digest::{ActionKey, Digest};
use crate::model::evidence::{Evidence, Tally};
use crate::model::outcome::Outcome;
use crate::model::units::parse_instant;
use crate::store::connection::{self, InUse, patiently};
use crate::store::row::{self, Execution, Fault};
use crate::store::secret::Secret;
use crate::store::{FileStamp, StoreError, StorePaths};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

/// Most records of one key that are gone through when its counts have to be made anew.
const COUNTED: u32 = 1000;

/// Writes to the store. Open it when there is something to write and close it soon: with the last one the log of
/// pending writes is folded in, and reading is quickest then.
#[derive(Debug)]
pub struct Writer {
    paths: StorePaths,
    secret: Secret,
    damage: Vec<String>,
    /// `None` only while a broken database is being replaced.
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    connection: Connection,
    identity: Option<(u64, u64)>,
    /// Declared after the connection: fields are dropped in order, and the database must be closed first.
    _in_use: InUse,
}

/// An execution to be recorded.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'a> {
    /// What it showed; its key must be the one below.
    pub evidence: &'a Evidence,
    /// The key.
    pub key: ActionKey,
    /// The key without the tree.
    pub weak: Digest,
    /// The digest of the command alone.
    pub command: Digest,
    /// What the key is the digest of.
    pub preimage: &'a [u8],
}

/// An execution on record.
#[derive(Clone, PartialEq, Debug)]
pub struct Recorded {
    /// Its number.
    pub id: i64,
    /// Executions under its key, this one included.
    pub tally: Tally,
    /// The record as stored: its tail may be shorter than what was given.
    pub evidence: Evidence,
    /// Broken rows that were removed on the way, a sentence each.
    pub healed: Vec<String>,
}

impl Writer {
    pub(super) fn open(paths: &StorePaths) -> Result<Self, StoreError> {
        let secret = Secret::obtain(&paths.secret)?;
        let mut writer = Self { paths: paths.clone(), secret, damage: Vec::new(), open: None };
        writer.reopen()?;
        Ok(writer)
    }

    /// What was found broken and put aside, a sentence each, to be said once.
    #[must_use]
    pub fn damage(&self) -> &[String] {
        &self.damage
    }

    /// Records one execution, whatever its outcome; only `passed` and `failed` count in the tally and are answers.
    ///
    /// # Errors
    /// There is no room, no access, or others are in the way for too long; the record is too large.
    pub fn record(&mut self, new: &NewRecord<'_>) -> Result<Recorded, StoreError> {
        let (evidence, bytes) = row::fit(new.evidence)?;
        let (id, tally, healed) =
            self.run(|connection, secret| insert(connection, secret, new, &evidence, &bytes))?;
        Ok(Recorded { id, tally, evidence, healed })
    }

    /// Remembers digests of files of this machine.
    ///
    /// # Errors
    /// As [`Writer::record`].
    pub fn remember_files(&mut self, files: &[(FileStamp, Digest)]) -> Result<(), StoreError> {
        self.run(|connection, secret| {
            let transaction = begin(connection)?;
            let mut insert = transaction
                .prepare("INSERT OR REPLACE INTO file_digests (stamp, digest, tag) VALUES (?1, ?2, ?3)")?;
            for (stamp, digest) in files {
                let stamp = row::stamp_bytes(stamp);
                insert.execute(params![stamp, digest.0, row::tag_file(secret, &stamp, digest)])?;
            }
            drop(insert);
            transaction.commit()
        })
    }

    /// Does something with the database; if that is found broken, puts it aside and does it with a new one.
    pub(super) fn run<T>(
        &mut self,
        mut work: impl FnMut(&mut Connection, &Secret) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let path = self.paths.database();
        for last in [false, true] {
            if self.open.is_none() {
                self.reopen()?;
            }
            let Some(open) = &mut self.open else { break };
            let identity = open.identity;
            match patiently(|| work(&mut open.connection, &self.secret)) {
                Ok(done) => return Ok(done),
                Err(error) => {
                    let error = StoreError::of_sql(&path, &error);
                    if last || !error.is_damage() {
                        return Err(error);
                    }
                    self.replace(&error, identity)?;
                }
            }
        }
        Err(StoreError::Damaged { path, why: "again and again".to_owned() })
    }

    pub(super) fn paths(&self) -> &StorePaths {
        &self.paths
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        let path = self.paths.database();
        for last in [false, false, true] {
            let in_use = InUse::shared(&self.paths)?;
            let mut identity = connection::identity(&path);
            if identity.is_none() {
                connection::create(&path)?;
                identity = connection::identity(&path);
            }
            match patiently(|| connection::open_for_writing(&path)) {
                Ok(connection) => {
                    self.open = Some(Open { connection, identity, _in_use: in_use });
                    return Ok(());
                }
                Err(error) => {
                    drop(in_use);
                    let error = StoreError::of_sql(&path, &error);
                    if last || !error.is_damage() {
                        return Err(error);
                    }
                    self.replace(&error, identity)?;
                }
            }
        }
        Err(StoreError::Damaged { path, why: "again and again".to_owned() })
    }

    fn replace(&mut self, error: &StoreError, identity: Option<(u64, u64)>) -> Result<(), StoreError> {
        self.open = None;
        if let Some(identity) = identity
            && let Some(aside) = connection::put_aside(&self.paths, identity)?
        {
            self.damage.push(format!("{error}; they are now {} and a new store was begun", aside.display()));
        }
        Ok(())
    }
}

fn begin(connection: &mut Connection) -> rusqlite::Result<Transaction<'_>> {
    // Takes the write lock at once, where waiting for it is possible; a read lock cannot always be raised later.
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

type Inserted = (i64, Tally, Vec<String>);

fn insert(
    connection: &mut Connection,
    secret: &Secret,
    new: &NewRecord<'_>,
    evidence: &Evidence,
    bytes: &[u8],
) -> rusqlite::Result<Inserted> {
    let transaction = begin(connection)?;
    let key = &new.key.0;
    let (mut tally, mut answer, healed) = standing(&transaction, secret, new)?;
    let tag = row::tag_execution(secret, key, &new.weak, &new.command, bytes);
    let log = Digest::parse(&evidence.output_digest).map(|digest| digest.0);
    transaction.execute(
        "INSERT INTO executions (key, weak, command, tree, outcome, log, at_secs, evidence, tag)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            key.0,
            new.weak.0,
            new.command.0,
            evidence.tree,
            evidence.outcome.name(),
            log,
            parse_instant(&evidence.at).ok(),
            bytes,
            tag
        ],
    )?;
    let id = transaction.last_insert_rowid();
    count(&mut tally, evidence.outcome);
    if evidence.outcome.is_answer() {
        answer = Some(id);
    }
    let counts = [tally.passed, tally.failed].map(|count| i64::try_from(count).unwrap_or(i64::MAX));
    transaction.execute(
        "INSERT OR REPLACE INTO keys (key, preimage, passed, failed, answer, tag) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![key.0, new.preimage, counts[0], counts[1], answer, row::tag_tally(secret, key, tally)],
    )?;
    transaction.commit()?;
    Ok((id, tally, healed))
}

fn count(tally: &mut Tally, outcome: Outcome) {
    match outcome {
        Outcome::Passed => tally.passed = tally.passed.saturating_add(1),
        Outcome::Failed => tally.failed = tally.failed.saturating_add(1),
        _ => {}
    }
}

/// The counts and the answer of a key so far. Where they, or the record that they point to, are broken, they are made
/// anew from the records that are whole, and the others are removed.
fn standing(
    transaction: &Transaction<'_>,
    secret: &Secret,
    new: &NewRecord<'_>,
) -> rusqlite::Result<(Tally, Option<i64>, Vec<String>)> {
    let key = &new.key.0.0;
    let row = transaction
        .query_row("SELECT preimage, passed, failed, answer, tag FROM keys WHERE key = ?1", [key], |row| {
            let same = row::bytes(row, 0)? == new.preimage;
            let counts = (row::number(row, 1)?, row::number(row, 2)?);
            let answer = Some(row::number(row, 3)?).filter(|id| *id >= 0);
            Ok((same, counts, answer, row::bytes(row, 4)?))
        })
        .optional()?;
    let Some((same, counts, answer, tag)) = row else { return anew(transaction, secret, key, Vec::new()) };
    let mut damage = Vec::new();
    let tally = row::check_tally(secret, key, counts, &tag).filter(|_| same);
    if tally.is_none() {
        damage.push(format!("the entry of key {} was altered", new.key));
    }
    let answers = match answer {
        None => true,
        Some(id) => match execution(transaction, id)? {
            None => true,
            Some(execution) => match execution.check(secret) {
                Ok((of, _)) => of == new.key,
                Err(Fault::Unknown(_)) => true,
                Err(Fault::Damaged(_)) => false,
            },
        },
    };
    match tally {
        Some(tally) if answers => Ok((tally, answer, damage)),
        _ => anew(transaction, secret, key, damage),
    }
}

fn execution(transaction: &Transaction<'_>, id: i64) -> rusqlite::Result<Option<Execution>> {
    let sql = format!("SELECT {} FROM executions e WHERE e.id = ?1", Execution::COLUMNS);
    Ok(transaction.query_row(&sql, [id], |row| Execution::read(row, 0)).optional()?.flatten())
}

fn anew(
    transaction: &Transaction<'_>,
    secret: &Secret,
    key: &[u8; 32],
    mut damage: Vec<String>,
) -> rusqlite::Result<(Tally, Option<i64>, Vec<String>)> {
    let sql = format!(
        "SELECT {} FROM executions e WHERE e.key = ?1 ORDER BY e.id DESC LIMIT {COUNTED}",
        Execution::COLUMNS
    );
    let mut query = transaction.prepare(&sql)?;
    let mut rows = query.query([key])?;
    let (mut tally, mut answer, mut broken) = (Tally::default(), None, Vec::new());
    while let Some(row) = rows.next()? {
        let Some(execution) = Execution::read(row, 0)? else { continue };
        match execution.check(secret) {
            Ok((_, evidence)) => {
                count(&mut tally, evidence.outcome);
                answer = answer.or(evidence.outcome.is_answer().then_some(execution.id));
            }
            Err(Fault::Unknown(_)) => {}
            Err(Fault::Damaged(text)) => {
                damage.push(text);
                broken.push(execution.id);
            }
        }
    }
    for id in broken {
        transaction.execute("DELETE FROM executions WHERE id = ?1", [id])?;
    }
    Ok((tally, answer, damage))
}
