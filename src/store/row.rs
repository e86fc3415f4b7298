//! Records as bytes: cut to size, tagged, checked when they come back.
#![forbid(unsafe_code)]

use crate::model::digest::{ActionKey, Digest};
use crate::model::evidence::{EVIDENCE_VERSION, Evidence, Tally};
use crate::model::layer::LayerState;
use crate::store::secret::Secret;
use crate::store::{FileStamp, StoreError};
use rusqlite::Row;
use rusqlite::types::ValueRef;
use serde::Deserialize;

/// Most bytes that a record takes.
pub(super) const RECORD_BYTES: usize = 4096;

const EXECUTION: &[u8; 8] = b"executed";
const TALLY: &[u8; 8] = b"tallied\0";
const FILE: &[u8; 8] = b"filehash";
const INPUTS: &[u8; 8] = b"inputset";
const COUNT: &[u8; 8] = b"testcase";

/// An execution as it lies in its table.
pub(super) struct Execution {
    pub(super) id: i64,
    pub(super) key: Vec<u8>,
    pub(super) weak: Vec<u8>,
    pub(super) command: Vec<u8>,
    pub(super) evidence: Vec<u8>,
    pub(super) tag: Vec<u8>,
}

/// Why a row counts as absent.
pub(super) enum Fault {
    /// Torn or altered; the next writer removes it.
    Damaged(String),
    /// Of another version of checkrun, which may still want it.
    Unknown(String),
}

impl Fault {
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Damaged(text) | Self::Unknown(text) => text,
        }
    }
}

#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}

impl Execution {
    /// Columns in the order in which [`Execution::read`] wants them.
    pub(super) const COLUMNS: &'static str = "e.id, e.key, e.weak, e.command, e.evidence, e.tag";

    /// Takes the row's columns from `at` on; `None` where an outer join found nothing.
    pub(super) fn read(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Self>> {
        let Some(id) = row.get(at)? else { return Ok(None) };
        Ok(Some(Self {
            id,
            key: bytes(row, at + 1)?,
            weak: bytes(row, at + 2)?,
            command: bytes(row, at + 3)?,
            evidence: bytes(row, at + 4)?,
            tag: bytes(row, at + 5)?,
        }))
    }

    /// The record, if the row is whole.
    pub(super) fn check(&self, secret: &Secret) -> Result<(ActionKey, Evidence), Fault> {
        let damaged = |why: &str| Fault::Damaged(format!("record {} {why}", self.id));
        let parts = [&self.key, &self.weak, &self.command].map(Vec::as_slice);
        let (Ok(key), true) = (<[u8; 32]>::try_from(parts[0]), parts.iter().all(|part| part.len() == 32))
        else {
            return Err(damaged("has a key of the wrong length"));
        };
        if !secret.is_tag(&self.tag, EXECUTION, &[parts[0], parts[1], parts[2], &self.evidence]) {
            return Err(damaged("was torn or altered: its tag is wrong"));
        }
        let key = ActionKey(Digest(key));
        let evidence = match serde_json::from_slice::<Evidence>(&self.evidence) {
            Ok(evidence) if evidence.version == EVIDENCE_VERSION => evidence,
            other => {
                let version = serde_json::from_slice::<VersionOnly>(&self.evidence).map(|only| only.version);
                return Err(match (version, other) {
                    (Ok(version), _) if version != EVIDENCE_VERSION => Fault::Unknown(format!(
                        "record {} has version {version}, which this checkrun does not know",
                        self.id
                    )),
                    (_, Err(error)) => damaged(&format!("cannot be read: {error}")),
                    (_, Ok(_)) => damaged("cannot be read"),
                });
            }
        };
        if Digest::parse(&evidence.key) != Some(key.0) {
            return Err(damaged("names another key"));
        }
        Ok((key, evidence))
    }
}

/// A value as bytes, whatever type an edit by hand has left it with; such a row then fails its own check instead of
/// bringing the whole database under suspicion.
pub(super) fn bytes(row: &Row<'_>, at: usize) -> rusqlite::Result<Vec<u8>> {
    Ok(match row.get_ref(at)? {
        ValueRef::Blob(bytes) | ValueRef::Text(bytes) => bytes.to_vec(),
        _ => Vec::new(),
    })
}

/// A value as a number, -1 for what is none: no count is negative.
pub(super) fn number(row: &Row<'_>, at: usize) -> rusqlite::Result<i64> {
    Ok(match row.get_ref(at)? {
        ValueRef::Integer(number) => number,
        _ => -1,
    })
}

/// The tag of an execution.
pub(super) fn tag_execution(
    secret: &Secret,
    key: &Digest,
    weak: &Digest,
    command: &Digest,
    evidence: &[u8],
) -> [u8; 32] {
    secret.tag(EXECUTION, &[&key.0, &weak.0, &command.0, evidence])
}

/// The tag of a key's counts.
pub(super) fn tag_tally(secret: &Secret, key: &Digest, tally: Tally) -> [u8; 32] {
    secret.tag(TALLY, &[&key.0, &tally.passed.to_le_bytes(), &tally.failed.to_le_bytes()])
}

/// A key's counts, if their tag is right.
pub(super) fn check_tally(secret: &Secret, key: &[u8], counts: (i64, i64), tag: &[u8]) -> Option<Tally> {
    let tally = Tally { passed: u64::try_from(counts.0).ok()?, failed: u64::try_from(counts.1).ok()? };
    let sound = secret.is_tag(tag, TALLY, &[key, &tally.passed.to_le_bytes(), &tally.failed.to_le_bytes()]);
    sound.then_some(tally)
}

/// A file's stamp as bytes, all of it.
pub(super) fn stamp_bytes(stamp: &FileStamp) -> [u8; 40] {
    let mut bytes = [0; 40];
    let words = [
        stamp.dev.to_le_bytes(),
        stamp.ino.to_le_bytes(),
        stamp.size.to_le_bytes(),
        stamp.mtime_ns.to_le_bytes(),
        stamp.ctime_ns.to_le_bytes(),
    ];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word);
    }
    bytes
}

/// The tag of a file's digest.
pub(super) fn tag_file(secret: &Secret, stamp: &[u8; 40], digest: &Digest) -> [u8; 32] {
    secret.tag(FILE, &[stamp, &digest.0])
}

/// A file's digest, if its tag is right.
pub(super) fn check_file(secret: &Secret, stamp: &[u8; 40], digest: &[u8], tag: &[u8]) -> Option<Digest> {
    let digest = Digest(digest.try_into().ok()?);
    secret.is_tag(tag, FILE, &[stamp, &digest.0]).then_some(digest)
}

/// The tag of a set of inputs: of which execution, under which name, and what it holds.
pub(super) fn tag_inputs(secret: &Secret, id: i64, name: &Digest, bytes: &[u8]) -> [u8; 32] {
    secret.tag(INPUTS, &[&id.to_le_bytes(), &name.0, bytes])
}

/// Whether the tag of a set of inputs is right.
pub(super) fn check_inputs(secret: &Secret, id: i64, name: &Digest, bytes: &[u8], tag: &[u8]) -> bool {
    secret.is_tag(tag, INPUTS, &[&id.to_le_bytes(), &name.0, bytes])
}

/// The tag of a test's counts: of all that their row says.
pub(super) fn count_tag(secret: &Secret, fields: &[u8]) -> [u8; 32] {
    secret.tag(COUNT, &[fields])
}

/// Whether the tag of a test's counts is right.
pub(super) fn is_count_tag(secret: &Secret, tag: &[u8], fields: &[u8]) -> bool {
    secret.is_tag(tag, COUNT, &[fields])
}

/// The record cut to size, and its bytes: first the tail loses its beginning, then prose is shortened.
pub(super) fn fit(evidence: &Evidence) -> Result<(Evidence, Vec<u8>), StoreError> {
    let mut evidence = evidence.clone();
    let mut bytes = encode(&evidence)?;
    while bytes.len() > RECORD_BYTES && !evidence.tail.is_empty() {
        // Escaped, a character takes up to six bytes, so this may take several rounds; each one ends nearer.
        let over = bytes.len() - RECORD_BYTES;
        evidence.tail = without_beginning(&evidence.tail, over.div_ceil(6).max(1));
        bytes = encode(&evidence)?;
    }
    if bytes.len() > RECORD_BYTES {
        for prose in [&mut evidence.reason, &mut evidence.summary].into_iter().flatten() {
            shorten(prose, 200);
        }
        for state in evidence.layers.values_mut() {
            if let LayerState::Partial(why) | LayerState::Unavailable(why) = state {
                shorten(why, 60);
            }
        }
        shorten(&mut evidence.runner.2, 200);
        bytes = encode(&evidence)?;
    }
    if bytes.len() > RECORD_BYTES {
        return Err(StoreError::TooLarge { bytes: bytes.len(), limit: RECORD_BYTES });
    }
    Ok((evidence, bytes))
}

fn encode(evidence: &Evidence) -> Result<Vec<u8>, StoreError> {
    // Only a map with keys that are no texts cannot be written, and a record has none.
    serde_json::to_vec(evidence).map_err(|_| StoreError::TooLarge { bytes: 0, limit: RECORD_BYTES })
}

/// The text without its first bytes: cut at the next line's start if that costs little, else at a character.
fn without_beginning(text: &str, bytes: usize) -> String {
    let from =
        (bytes.min(text.len())..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let rest = &text[from..];
    match rest.find('\n') {
        Some(end) if end < 80 && end + 1 < rest.len() => rest[end + 1..].to_owned(),
        _ => rest.to_owned(),
    }
}

fn shorten(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        let end = (0..=bytes).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::evidence::tests::evidence;
    use crate::model::layer::Layer;

    #[test]
    fn a_record_fits_whatever_its_tail_is() {
        let tails = [
            "\u{fffd}".repeat(682),
            "\n".repeat(2048),
            "\"".repeat(2048),
            "x".repeat(2048),
            "\t€".repeat(512),
        ];
        for tail in tails {
            let mut whole = evidence();
            whole.layers =
                Layer::ALL.map(|layer| (layer, LayerState::Unavailable("not here".repeat(9)))).into();
            whole.tail.clone_from(&tail);
            let (cut, bytes) = fit(&whole).unwrap();
            assert!(bytes.len() <= RECORD_BYTES);
            assert!(tail.ends_with(&cut.tail), "{:?}", cut.tail);
            assert_eq!(serde_json::from_slice::<Evidence>(&bytes).unwrap(), cut);
            assert_eq!(cut.layers, whole.layers);
        }
        let (same, _) = fit(&evidence()).unwrap();
        assert_eq!(same, evidence());
    }

    #[test]
    fn prose_is_shortened_when_no_tail_is_left_and_then_it_is_refused() {
        let mut wordy = evidence();
        wordy.reason = Some("ü".repeat(9000));
        wordy.layers = Layer::ALL.map(|layer| (layer, LayerState::Partial("because ".repeat(100)))).into();
        let (cut, bytes) = fit(&wordy).unwrap();
        assert!(bytes.len() <= RECORD_BYTES && cut.tail.is_empty());
        assert!(cut.reason.unwrap().ends_with("ü…"));
        wordy.cwd = "d/".repeat(3000);
        assert!(matches!(fit(&wordy), Err(StoreError::TooLarge { .. })));
    }

    #[test]
    fn a_cut_takes_the_next_line_if_it_is_near() {
        assert_eq!(without_beginning("one\ntwo\nthree", 2), "two\nthree");
        assert_eq!(without_beginning("€uro", 1), "uro");
        assert_eq!(without_beginning("last\n", 2), "st\n");
        assert_eq!(without_beginning("all", 9), "");
    }
}
