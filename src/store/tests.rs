//! A sound store: what goes in comes out, from many processes at once, within its bounds.

use super::*;
use crate::logs::{LogReader, LogWriter};
use crate::model::digest::Digest;
use crate::model::event::Stream;
use crate::model::evidence::tests::evidence;
use crate::model::outcome::Outcome;
use tempfile::TempDir;

/// A store in a folder that goes with it.
pub(super) struct Place {
    pub(super) dir: TempDir,
    pub(super) paths: StorePaths,
}

impl Place {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(dir.path());
        Self { dir, paths }
    }

    pub(super) fn reader(&self) -> Reader {
        Store::open_reader(&self.paths).unwrap().unwrap()
    }

    pub(super) fn writer(&self) -> Writer {
        Store::open_writer(&self.paths).unwrap()
    }

    pub(super) fn record(&self, n: u32, outcome: Outcome) -> Recorded {
        record(&mut self.writer(), n, outcome)
    }

    pub(super) fn lookup(&self, n: u32) -> crate::model::evidence::Found {
        self.reader().lookup(key(n), &preimage(n))
    }
}

fn paths(dir: &Path) -> StorePaths {
    StorePaths { cache: dir.join("a cache?#%41"), secret: dir.join("state/secret") }
}

pub(super) fn preimage(n: u32) -> Vec<u8> {
    format!("what is asked, number {n}").into_bytes()
}

pub(super) fn key(n: u32) -> ActionKey {
    ActionKey(Digest::of(&preimage(n)))
}

/// Weak keys repeat every ten, commands every hundred.
pub(super) fn record(writer: &mut Writer, n: u32, outcome: Outcome) -> Recorded {
    let mut evidence = Evidence { key: key(n).to_string(), outcome, ..evidence() };
    evidence.tree = format!("{:040x}", n % 5);
    let new = NewRecord {
        evidence: &evidence,
        key: key(n),
        weak: Digest::of(&(n % 10).to_le_bytes()),
        command: Digest::of(&(n % 100).to_be_bytes()),
        preimage: &preimage(n),
    };
    writer.record(&new).unwrap()
}

#[test]
fn what_is_recorded_is_found() {
    let place = Place::new();
    assert!(Store::open_reader(&place.paths).unwrap().is_none());
    let first = place.record(1, Outcome::Passed);
    assert_eq!(place.lookup(2), Default::default());
    let found = place.lookup(1);
    assert_eq!(found.tally, Tally { passed: 1, failed: 0 });
    let latest = found.latest.unwrap();
    assert_eq!((latest.id, &latest.evidence), (first.id, &first.evidence));
    // The description is compared, not only its digest.
    let other = place.reader().lookup(key(1), b"something else");
    assert!(other.latest.is_none() && other.damage.len() == 1);
    let second = place.record(1, Outcome::Failed);
    assert!(second.id > first.id && second.tally.is_flaky());
    let found = place.lookup(1);
    assert!(found.tally.is_flaky());
    assert_eq!(found.latest.unwrap().evidence.outcome, Outcome::Failed);
}

#[test]
fn history_never_takes_an_answers_place() {
    let place = Place::new();
    place.record(1, Outcome::TimedOut);
    assert_eq!(place.lookup(1), Default::default());
    let passed = place.record(1, Outcome::Passed);
    place.record(1, Outcome::OutOfMemory);
    let found = place.lookup(1);
    assert_eq!(found.tally, Tally { passed: 1, failed: 0 });
    assert_eq!(found.latest.unwrap().id, passed.id);
    assert_eq!(place.reader().recent(9, None).unwrap().records.len(), 3);
}

#[test]
fn reading_writes_nothing_and_sees_what_is_pending() {
    let place = Place::new();
    let mut writer = place.writer();
    record(&mut writer, 1, Outcome::Passed);
    assert!(!connection::is_settled(&place.paths.database()));
    let reader = place.reader();
    assert!(reader.lookup(key(1), &preimage(1)).latest.is_some());
    record(&mut writer, 1, Outcome::Failed);
    assert!(reader.lookup(key(1), &preimage(1)).tally.is_flaky());
    record(&mut writer, 2, Outcome::Passed);
    drop(writer);
    assert!(connection::is_settled(&place.paths.database()));
    let state = || {
        let entries = std::fs::read_dir(place.paths.records()).unwrap();
        let mut seen: Vec<_> = entries
            .map(|entry| entry.unwrap())
            .map(|entry| {
                (entry.file_name(), entry.metadata().unwrap().ino(), entry.metadata().unwrap().mtime_nsec())
            })
            .collect();
        seen.sort();
        seen
    };
    let before = state();
    assert!(reader.lookup(key(2), &preimage(2)).latest.is_some());
    assert_eq!(state(), before);
    assert_eq!(before.len(), 2, "the database and the lock file: {before:?}");
}

#[test]
fn records_are_listed_newest_first_and_found_by_what_is_known_of_them() {
    let place = Place::new();
    let mut writer = place.writer();
    for n in 0..30 {
        record(&mut writer, n, Outcome::Passed);
    }
    let reader = place.reader();
    let ids = |listing: Listing| listing.records.iter().map(|record| record.id).collect::<Vec<_>>();
    assert_eq!(ids(reader.recent(3, None).unwrap()), [30, 29, 28]);
    assert_eq!(ids(reader.recent(2, Some(&format!("{:040x}", 4))).unwrap()), [30, 25]);
    let one = reader.by_id(7).unwrap().records.remove(0);
    assert_eq!((one.key, one.preimage, one.tally.passed), (key(6), preimage(6), 1));
    assert_eq!(ids(reader.by_id(31).unwrap()), Vec::<i64>::new());
    for digits in [6, 7, 63, 64] {
        assert_eq!(ids(reader.by_key(&key(9).0.hex()[..digits]).unwrap()), [10], "{digits} digits");
    }
    assert_eq!(ids(reader.by_key(&format!("b3:{}", &key(9).0.hex()[..8].to_uppercase())).unwrap()), [10]);
    assert_eq!(ids(reader.by_key("000000").unwrap()), Vec::<i64>::new());
    for wrong in ["12345", "b3:12345", "12345g", "", &"0".repeat(65)] {
        assert!(matches!(reader.by_key(wrong), Err(StoreError::NotAKey { .. })), "{wrong}");
    }
    let weak = Digest::of(&3_u32.to_le_bytes());
    let command = Digest::of(&17_u32.to_be_bytes());
    let nearest = |weak, command| reader.nearest(&weak, &command).unwrap().map(|record| record.id);
    assert_eq!(nearest(weak, command), Some(24));
    assert_eq!(nearest(Digest([0; 32]), command), Some(18));
    assert_eq!(nearest(Digest([0; 32]), Digest([0; 32])), None);
}

#[test]
fn a_start_that_fits_several_keys_is_refused() {
    let place = Place::new();
    // Keys are digests of what is asked, so two with a common start have to be looked for.
    let mut seen = std::collections::HashMap::new();
    let (one, two) = (0..100_000)
        .find_map(|n| seen.insert(key(n).0.hex()[..6].to_owned(), n).map(|before| (before, n)))
        .expect("of 100,000 keys two begin alike");
    place.record(one, Outcome::Passed);
    place.record(two, Outcome::Passed);
    let error = place.reader().by_key(&key(one).0.hex()[..6]).unwrap_err();
    assert!(matches!(error, StoreError::Ambiguous { .. }));
    assert!(error.hint().is_some() && error.to_string().contains(&key(two).0.hex()));
    assert_eq!(place.reader().by_key(&key(one).0.hex()).unwrap().records.len(), 1);
}

#[test]
fn digests_of_files_are_remembered_for_the_same_stamp_only() {
    let place = Place::new();
    let stamp = FileStamp { dev: u64::MAX, ino: 1, size: 2, mtime_ns: -3, ctime_ns: i64::MAX };
    let changed = FileStamp { ctime_ns: 4, ..stamp };
    place.writer().remember_files(&[(stamp, Digest([1; 32]))]).unwrap();
    assert_eq!(place.reader().file_digests(&[changed, stamp]), [None, Some(Digest([1; 32]))]);
    place.writer().remember_files(&[(stamp, Digest([2; 32])), (changed, Digest([3; 32]))]).unwrap();
    assert_eq!(
        place.reader().file_digests(&[stamp, changed]),
        [Some(Digest([2; 32])), Some(Digest([3; 32]))]
    );
}

#[test]
fn many_processes_read_and_write_at_once() {
    const PROCESSES: u32 = 24;
    const EACH: u32 = 12;
    // The same test started again by itself is one of the processes.
    if let Some(dir) = std::env::var_os("CHECKRUN_TEST_STORE") {
        let paths = paths(Path::new(&dir));
        let number: u32 = std::env::var("CHECKRUN_TEST_NUMBER").unwrap().parse().unwrap();
        for n in 0..EACH {
            let mut writer = Store::open_writer(&paths).unwrap();
            record(&mut writer, number * EACH + n, Outcome::Passed);
            record(&mut writer, 1_000_000, Outcome::Passed);
            if n % 2 == 0 {
                drop(writer);
            }
            let found =
                Store::open_reader(&paths).unwrap().unwrap().lookup(key(1_000_000), &preimage(1_000_000));
            assert!(found.latest.is_some() && found.damage.is_empty(), "{:?}", found.damage);
        }
        return;
    }
    let place = Place::new();
    let own = std::env::current_exe().unwrap();
    let children: Vec<_> = (0..PROCESSES)
        .map(|number| {
            std::process::Command::new(&own)
                .args(["--exact", "store::tests::many_processes_read_and_write_at_once", "--nocapture"])
                .env("CHECKRUN_TEST_STORE", place.dir.path())
                .env("CHECKRUN_TEST_NUMBER", number.to_string())
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    }
    let found = place.lookup(1_000_000);
    assert_eq!(found.tally, Tally { passed: u64::from(PROCESSES * EACH), failed: 0 });
    for n in 0..PROCESSES * EACH {
        assert!(place.lookup(n).latest.is_some(), "{n}");
    }
}

#[test]
fn a_killed_writers_records_are_found() {
    let place = Place::new();
    let mut writer = place.writer();
    record(&mut writer, 1, Outcome::Passed);
    // What a kill leaves: the database and its log as they lie there, nothing folded in, no shared index.
    let copy = Place::new();
    copy.record(7, Outcome::Passed);
    for suffix in ["", "-wal"] {
        let name = format!("checkrun.db{suffix}");
        std::fs::copy(place.paths.records().join(&name), copy.paths.records().join(&name)).unwrap();
    }
    std::fs::copy(&place.paths.secret, &copy.paths.secret).unwrap();
    assert!(copy.lookup(1).latest.is_some());
    assert!(copy.lookup(7).latest.is_none());
    copy.record(2, Outcome::Passed);
    assert!(copy.lookup(1).latest.is_some() && copy.lookup(2).latest.is_some());
}

#[test]
fn room_is_made_oldest_first_and_answers_stay() {
    let place = Place::new();
    let mut writer = place.writer();
    for n in 0..20 {
        record(&mut writer, n, Outcome::Passed);
        record(&mut writer, n, Outcome::Killed);
    }
    let bounds = |records| Bounds { records, ..Bounds::default() };
    assert_eq!(writer.gc(bounds(40), 0).unwrap(), Swept::default());
    assert_eq!(writer.gc(bounds(25), 0).unwrap().records, 15);
    assert!((0..20).all(|n| place.lookup(n).latest.is_some()));
    let swept = writer.gc(bounds(5), 0).unwrap();
    assert_eq!((swept.records, swept.keys), (20, 15));
    assert!((15..20).all(|n| place.lookup(n).latest.is_some()));
    assert!((0..15).all(|n| place.lookup(n) == Default::default()));
    let at = crate::model::units::parse_instant(&evidence().at).unwrap();
    let aged = Bounds { age_secs: Some(60), ..Bounds::default() };
    assert_eq!(writer.gc(aged, at + 60).unwrap().records, 0);
    assert_eq!(writer.gc(aged, at + 61).unwrap().records, 5);
}

#[test]
fn kept_output_goes_oldest_first_and_its_record_still_answers() {
    let place = Place::new();
    let mut writer = place.writer();
    let logs: Vec<Digest> = (0..4_u8)
        .map(|n| {
            let mut log = LogWriter::new(&place.paths.logs());
            log.push(Stream::Stdout, blake3::hash(&[n]).as_bytes());
            let digest = log.finish().digest;
            let n = u32::from(n);
            let evidence =
                Evidence { key: key(n).to_string(), output_digest: digest.to_string(), ..evidence() };
            let (weak, command) = (Digest([0; 32]), Digest([0; 32]));
            let new = NewRecord { evidence: &evidence, key: key(n), weak, command, preimage: &preimage(n) };
            // The last one's record is still to come.
            if n < 3 {
                writer.record(&new).unwrap();
            }
            digest
        })
        .collect();
    let is_kept = |n: usize| LogReader::open(&place.paths.logs(), &logs[n]).unwrap().is_some();
    let now = std::fs::metadata(place.paths.logs()).unwrap().mtime();
    let one = crate::logs::inventory(&place.paths.logs()).unwrap()[0].bytes;
    assert_eq!(writer.gc(Bounds::default(), now).unwrap(), Swept::default());
    let swept = writer.gc(Bounds { log_bytes: 2 * one, ..Bounds::default() }, now + 2 * 3600).unwrap();
    assert_eq!((swept.logs, swept.log_bytes), (2, 2 * one));
    assert_eq!([0, 1, 2, 3].map(is_kept), [false, true, true, false]);
    assert!(place.lookup(0).latest.is_some());
}
