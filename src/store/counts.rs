//! Single tests of a check over all sessions: how often each passed and did not, and the cause that was found. Beside the
//! records and not part of them: no answer depends on it. The empty name is the check itself.
#![forbid(unsafe_code)]

use crate::model::digest::ActionKey;
use crate::model::evidence::Tally;
use crate::store::secret::Secret;
use crate::store::{Reader, StoreError, Writer, row};
use rusqlite::{OptionalExtension, Row, Transaction, TransactionBehavior, params};

/// Tests that are kept of one key; those that were seen last stay.
const TESTS: i64 = 1000;

/// One test under one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TestCount {
    /// Its name; empty for the check itself.
    pub test: String,
    /// Runs in which it passed, and in which it did not.
    pub tally: Tally,
    /// What was found to be the cause, if anything was.
    pub cause: Option<String>,
    /// When it was last told of, as an instant.
    pub at: String,
}

impl Writer {
    /// Adds to the counts of tests. A cause replaces the one on record, and none leaves it.
    ///
    /// # Errors
    /// As [`Writer::record`].
    pub fn count_tests(&mut self, key: &ActionKey, counts: &[TestCount]) -> Result<(), StoreError> {
        self.run(|connection, secret| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for new in counts {
                let old = stored(&transaction, secret, key, &new.test)?;
                let mut sum = new.clone();
                if let Some(old) = old {
                    sum.tally.passed = sum.tally.passed.saturating_add(old.tally.passed);
                    sum.tally.failed = sum.tally.failed.saturating_add(old.tally.failed);
                    sum.cause = sum.cause.or(old.cause);
                }
                let [passed, failed] = [sum.tally.passed, sum.tally.failed]
                    .map(|count| i64::try_from(count).unwrap_or(i64::MAX));
                transaction.execute(
                    "INSERT OR REPLACE INTO test_counts (key, test, passed, failed, cause, at, tag)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                    params![
                        key.0.0,
                        sum.test,
                        passed,
                        failed,
                        sum.cause,
                        sum.at,
                        tag(secret, &key.0.0, &sum)
                    ],
                )?;
            }
            transaction.execute(
                "DELETE FROM test_counts WHERE key = ?1 AND rowid NOT IN
                 (SELECT rowid FROM test_counts WHERE key = ?1 ORDER BY rowid DESC LIMIT ?2)",
                params![key.0.0, TESTS],
            )?;
            transaction.commit()
        })
    }
}

impl Reader {
    /// The tests on record under a key, the most failures first. Broken rows are left out.
    #[must_use]
    pub fn test_counts(&self, key: &ActionKey) -> Vec<TestCount> {
        let Some(secret) = self.secret() else { return Vec::new() };
        self.read(|connection| {
            let mut query = connection.prepare(
                "SELECT test, passed, failed, cause, at, tag FROM test_counts WHERE key = ?1
                 ORDER BY failed DESC, test LIMIT ?2",
            )?;
            let mut rows = query.query(params![key.0.0, TESTS])?;
            let mut counts = Vec::new();
            while let Some(row) = rows.next()? {
                counts.extend(checked(row, secret, &key.0.0)?);
            }
            Ok(counts)
        })
        // A store that was made before there were such counts, or cannot be read, has none.
        .unwrap_or_default()
    }
}

fn stored(
    transaction: &Transaction<'_>,
    secret: &Secret,
    key: &ActionKey,
    test: &str,
) -> rusqlite::Result<Option<TestCount>> {
    let sql = "SELECT test, passed, failed, cause, at, tag FROM test_counts WHERE key = ?1 AND test = ?2";
    let row = transaction.query_row(sql, params![key.0.0, test], |row| checked(row, secret, &key.0.0));
    Ok(row.optional()?.flatten())
}

/// A row, if its tag is right.
fn checked(row: &Row<'_>, secret: &Secret, key: &[u8; 32]) -> rusqlite::Result<Option<TestCount>> {
    let text = |at: usize| row::bytes(row, at).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let count = |at: usize| row::number(row, at).map(|count| u64::try_from(count).unwrap_or(0));
    let cause = text(3)?;
    let read = TestCount {
        test: text(0)?,
        tally: Tally { passed: count(1)?, failed: count(2)? },
        cause: (!cause.is_empty()).then_some(cause),
        at: text(4)?,
    };
    Ok(row::is_count_tag(secret, &row::bytes(row, 5)?, &fields(key, &read)).then_some(read))
}

fn tag(secret: &Secret, key: &[u8; 32], count: &TestCount) -> [u8; 32] {
    row::count_tag(secret, &fields(key, count))
}

/// All that a row says, each text with its length, so that no two rows say the same.
fn fields(key: &[u8; 32], count: &TestCount) -> Vec<u8> {
    let mut bytes = key.to_vec();
    for number in [count.tally.passed, count.tally.failed] {
        bytes.extend(number.to_le_bytes());
    }
    for text in [&count.test, count.cause.as_ref().unwrap_or(&String::new()), &count.at] {
        bytes.extend(u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes
}
