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
    /// Keeps the inputs of the execution `id` under `name`.
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

    /// The sets under `name`, newest first, each with the number of its execution. Broken ones are left out.
    #[must_use]
    pub fn inputs(&self, name: &Digest) -> Vec<(i64, Vec<u8>)> {
        let Some(secret) = self.secret() else { return Vec::new() };
        self.read(|connection| {
            let mut query = connection
                .prepare("SELECT id, bytes, tag FROM input_sets WHERE name = ?1 ORDER BY id DESC LIMIT ?2")?;
            let mut rows = query.query(params![name.0, SETS])?;
            let mut sets = Vec::new();
            while let Some(row) = rows.next()? {
                let (id, bytes, tag) = (row::number(row, 0)?, row::bytes(row, 1)?, row::bytes(row, 2)?);
                if row::check_inputs(secret, id, name, &bytes, &tag) {
                    sets.push((id, bytes));
                }
            }
            Ok(sets)
        })
        // A store that was made before there were such sets, or cannot be read, has none.
        .unwrap_or_default()
    }
}
