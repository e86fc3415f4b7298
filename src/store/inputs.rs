//! Sets of observed inputs, by the digest of all that they do not say themselves. What is in a set is not looked at here.
#![forbid(unsafe_code)]

use crate::model::digest::Digest;
use crate::store::{Reader, StoreError, Writer, row};
use rusqlite::{TransactionBehavior, params};

/// Sets that are kept under one name; the one that was not used for longest goes first.
const SETS: u32 = 32;
/// Larger sets are not kept, in bytes.
const SET_BYTES: usize = 16 << 20;

/// A set of observed inputs as it is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptInputs {
    /// The execution whose inputs they are.
    pub id: i64,
    /// The newest execution with a set under the same name when this one was last noted as used, or was kept.
    pub used: i64,
    /// The set.
    pub bytes: Vec<u8>,
}

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
                "INSERT OR REPLACE INTO input_sets (id, name, bytes, tag, used)
                 VALUES (?1, ?2, ?3, ?4, (SELECT max(?1, max(id)) FROM input_sets WHERE name = ?2))",
                params![id, name.0, bytes, row::tag_inputs(secret, id, name, bytes)],
            )?;
            transaction.execute(
                "DELETE FROM input_sets WHERE name = ?1 AND id < ?2 AND id IN
                 (SELECT id FROM executions WHERE key = (SELECT key FROM executions WHERE id = ?2))",
                params![name.0, id],
            )?;
            transaction.execute(
                "DELETE FROM input_sets WHERE name = ?1 AND id NOT IN
                 (SELECT id FROM input_sets WHERE name = ?1 ORDER BY coalesce(used, id) DESC, id DESC LIMIT ?2)",
                params![name.0, SETS],
            )?;
            transaction.commit()
        })
    }

    /// Notes that the set of the execution `id` under `name` was of use just now.
    ///
    /// # Errors
    /// As [`Writer::record`].
    pub fn use_inputs(&mut self, name: &Digest, id: i64) -> Result<(), StoreError> {
        self.run(|connection, _| {
            let newest = "SELECT max(id) FROM input_sets WHERE name = ?1";
            let sql = format!("UPDATE input_sets SET used = ({newest}) WHERE name = ?1 AND id = ?2");
            connection.execute(&sql, params![name.0, id]).map(drop)
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

    /// The sets under `name`, newest first, each read when it is asked for. Broken ones are left out.
    pub fn inputs(&self, name: Digest) -> impl Iterator<Item = KeptInputs> {
        let mut below = i64::MAX;
        let mut left = SETS;
        std::iter::from_fn(move || {
            while left > 0 {
                left -= 1;
                let (id, set) = self.inputs_below(&name, below)?;
                below = id;
                if set.is_some() {
                    return set;
                }
            }
            None
        })
    }

    /// The newest set under `name` that is older than an execution, by its number, and the set if it is whole.
    fn inputs_below(&self, name: &Digest, below: i64) -> Option<(i64, Option<KeptInputs>)> {
        let secret = self.secret()?;
        let row = self.read(|connection| {
            // A store that only older programs wrote to has no column for use.
            let mut query = connection
                .prepare("SELECT * FROM input_sets WHERE name = ?1 AND id < ?2 ORDER BY id DESC LIMIT 1")?;
            let mut rows = query.query(params![name.0, below])?;
            let Some(row) = rows.next()? else { return Ok(None) };
            let id = row::number(row, 0)?;
            let used = row.get::<_, Option<i64>>(4).ok().flatten().unwrap_or(id);
            Ok(Some((id, used, row::bytes(row, 2)?, row::bytes(row, 3)?)))
        });
        // A store that was made before there were such sets, or cannot be read, has none.
        let (id, used, bytes, tag) = row.ok().flatten()?;
        let is_whole = row::check_inputs(secret, id, name, &bytes, &tag);
        Some((id, is_whole.then_some(KeptInputs { id, used, bytes })))
    }
}
