//! Sets of observed inputs, by the digest of all that they do not say themselves. What is in a set is not looked at here.
#![forbid(unsafe_code)]

use crate::model::digest::Digest;
use crate::store::{Reader, StoreError, Writer, row};
use rusqlite::{TransactionBehavior, params};

/// Sets that are kept under one name; the oldest goes first.
const SETS: i64 = 32;
/// Larger sets are not kept, in bytes.
const SET_BYTES: usize = 16 << 20;

impl Writer {
    /// Keeps the inputs of the execution `id` under `name`, in the place of those of earlier executions of its key: a check
    /// that is run many times on one tree is not to crowd out what is known of it on others.
    ///
    /// # Errors
    /// As [`Writer::record`].
    pub fn keep_inputs(&mut self, name: &Digest, id: i64, bytes: &[u8]) -> Result<(), StoreError> {
        if bytes.len() > SET_BYTES {
            return Ok(());
        }
        self.run(|connection, secret| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.execute(
                "INSERT OR REPLACE INTO input_sets (id, name, bytes, tag) VALUES (?1, ?2, ?3, ?4)",
                params![id, name.0, bytes, row::tag_inputs(secret, id, name, bytes)],
            )?;
            transaction.execute(
                "DELETE FROM input_sets WHERE name = ?1 AND id < ?2 AND id IN
                 (SELECT id FROM executions WHERE key = (SELECT key FROM executions WHERE id = ?2))",
                params![name.0, id],
            )?;
            transaction.execute(
                "DELETE FROM input_sets WHERE name = ?1 AND id NOT IN
                 (SELECT id FROM input_sets WHERE name = ?1 ORDER BY id DESC LIMIT ?2)",
                params![name.0, SETS],
            )?;
            transaction.commit()
        })
    }
}

impl Reader {
    /// The set of the execution `id`, if one is kept and whole.
    #[must_use]
    pub fn inputs_of(&self, id: i64) -> Option<Vec<u8>> {
        let secret = self.secret()?;
        let rows = self.read(|connection| {
            let mut query = connection.prepare("SELECT name, bytes, tag FROM input_sets WHERE id = ?1")?;
            let mut rows = query.query(params![id])?;
            let Some(row) = rows.next()? else { return Ok(None) };
            Ok(Some((row::bytes(row, 0)?, row::bytes(row, 1)?, row::bytes(row, 2)?)))
        });
        let (name, bytes, tag) = rows.ok().flatten()?;
        let name = Digest(name.try_into().ok()?);
        row::check_inputs(secret, id, &name, &bytes, &tag).then_some(bytes)
    }

    /// The sets under `name`, newest first, each with the number of its execution and read when it is asked for. Broken
    /// ones are left out.
    pub fn inputs(&self, name: Digest) -> impl Iterator<Item = (i64, Vec<u8>)> {
        let mut below = i64::MAX;
        let mut left = SETS;
        std::iter::from_fn(move || {
            while left > 0 {
                left -= 1;
                let (id, set) = self.inputs_below(&name, below)?;
                below = id;
                if let Some(set) = set {
                    return Some((id, set));
                }
            }
            None
        })
    }

    /// The newest set under `name` that is older than an execution, and whether it is whole.
    fn inputs_below(&self, name: &Digest, below: i64) -> Option<(i64, Option<Vec<u8>>)> {
        let secret = self.secret()?;
        let row = self.read(|connection| {
            let mut query = connection.prepare(
                "SELECT id, bytes, tag FROM input_sets WHERE name = ?1 AND id < ?2 ORDER BY id DESC LIMIT 1",
            )?;
            let mut rows = query.query(params![name.0, below])?;
            let Some(row) = rows.next()? else { return Ok(None) };
            Ok(Some((row::number(row, 0)?, row::bytes(row, 1)?, row::bytes(row, 2)?)))
        });
        // A store that was made before there were such sets, or cannot be read, has none.
        let (id, bytes, tag) = row.ok().flatten()?;
        Some((id, row::check_inputs(secret, id, name, &bytes, &tag).then_some(bytes)))
    }
}
