//! A store that is torn, altered, somebody else's or full: never a wrong answer, never a panic, and it heals.

use super::tests::{Place, key, preimage, record};
use super::*;
use crate::model::digest::Digest;
use crate::model::outcome::Outcome;
use rusqlite::Connection;
use std::os::unix::fs::PermissionsExt;

fn altered(place: &Place, sql: &str) {
    let connection = Connection::open(place.paths.database()).unwrap();
    assert!(connection.execute(sql, []).unwrap() > 0);
}

#[test]
fn a_database_cut_at_any_length_is_a_miss_and_heals() {
    let place = Place::new();
    {
        let mut writer = place.writer();
        for n in 0..40 {
            record(&mut writer, n, Outcome::Passed);
        }
    }
    let whole = std::fs::read(place.paths.database()).unwrap();
    let truth = place.lookup(3);
    let header =
        [0, 1, 15, 16, 18, 19, 20, 27, 28, 59, 60, 99, 100, 101, 107, 108, 511, 512, 4095, 4096, 4097];
    let lengths = header.into_iter().chain((5000..whole.len()).step_by(9973)).chain([whole.len() - 1]);
    for length in lengths {
        let again = Place::new();
        again.writer();
        std::fs::copy(&place.paths.secret, &again.paths.secret).unwrap();
        std::fs::write(again.paths.database(), &whole[..length]).unwrap();
        let found = again.lookup(3);
        if let Some(latest) = &found.latest {
            assert_eq!(Some(latest), truth.latest.as_ref(), "cut at {length}");
        } else if length < 4096 {
            assert!(!found.damage.is_empty(), "cut at {length}");
        }
        let mut writer = again.writer();
        record(&mut writer, 3, Outcome::Passed);
        let said = writer.damage().len();
        drop(writer);
        assert!(said <= 1);
        assert_eq!(said == 1, again.paths.records().join("damaged-1.db").exists(), "cut at {length}");
        if length < 4096 {
            assert_eq!(said, 1, "cut at {length}");
        }
        let healed = again.lookup(3);
        assert!(healed.latest.is_some() && healed.damage.is_empty(), "cut at {length}: {healed:?}");
        assert_eq!(again.writer().damage(), [] as [String; 0], "said once");
    }
}

#[test]
fn garbage_anywhere_in_the_database_never_gives_a_wrong_answer() {
    let place = Place::new();
    {
        let mut writer = place.writer();
        for n in 0..40 {
            record(&mut writer, n, if n % 2 == 0 { Outcome::Passed } else { Outcome::Failed });
        }
    }
    let whole = std::fs::read(place.paths.database()).unwrap();
    let truth = place.lookup(3);
    for at in (0..whole.len()).step_by(3989) {
        let again = Place::new();
        again.writer();
        std::fs::copy(&place.paths.secret, &again.paths.secret).unwrap();
        let mut torn = whole.clone();
        let end = torn.len().min(at + 97);
        torn[at..end].fill(0xa5);
        std::fs::write(again.paths.database(), &torn).unwrap();
        let found = again.lookup(3);
        assert!(found.latest.is_none() || found == truth, "garbage at {at}: {found:?}");
        let mut writer = again.writer();
        // Deep damage shows only when that part is used; what matters is that each run ends with a word, not a panic.
        let recorded = record(&mut writer, 3, Outcome::Failed);
        assert_eq!(recorded.evidence.outcome, Outcome::Failed);
    }
}

#[test]
fn an_altered_record_counts_as_absent_and_the_next_write_removes_it() {
    let cases = [
        "UPDATE executions SET evidence = replace(evidence, 'failed', 'passed') WHERE id = 2",
        "UPDATE executions SET tag = zeroblob(32) WHERE id = 2",
        "UPDATE executions SET tag = x'00' WHERE id = 2",
        "UPDATE executions SET weak = zeroblob(32) WHERE id = 2",
        "UPDATE executions SET evidence = x'' WHERE id = 2",
    ];
    for sql in cases {
        let place = Place::new();
        let older = place.record(1, Outcome::Failed);
        place.record(1, Outcome::Failed);
        altered(&place, sql);
        let found = place.lookup(1);
        assert_eq!(found.damage.len(), 1, "{sql}");
        assert!(found.damage[0].contains("record 2"), "{}", found.damage[0]);
        assert_eq!(found.latest.unwrap().id, older.id, "{sql}");
        assert_eq!(place.reader().recent(9, None).unwrap().damage.len(), 1);
        let recorded = place.record(1, Outcome::Failed);
        assert_eq!(recorded.healed.len(), 1, "{sql}");
        assert_eq!(recorded.tally, Tally { passed: 0, failed: 2 }, "the broken one no longer counts: {sql}");
        let found = place.lookup(1);
        assert_eq!((found.latest.unwrap().id, found.damage), (3, vec![]));
        assert_eq!(place.reader().recent(9, None).unwrap().damage, [] as [String; 0]);
    }
}

#[test]
fn a_record_cut_at_any_length_counts_as_absent() {
    let place = Place::new();
    place.record(1, Outcome::Passed);
    let connection = Connection::open(place.paths.database()).unwrap();
    let length: u32 =
        connection.query_row("SELECT length(evidence) FROM executions", [], |row| row.get(0)).unwrap();
    for cut in (0..length).rev().step_by(7) {
        connection.execute("UPDATE executions SET evidence = substr(evidence, 1, ?1)", [cut]).unwrap();
        let found = place.lookup(1);
        assert!(found.latest.is_none() && found.damage.len() == 1, "cut at {cut}");
    }
}

#[test]
fn altered_counts_are_a_miss_and_are_made_anew() {
    let cases = [
        "UPDATE keys SET failed = 0",
        "UPDATE keys SET passed = -1",
        "UPDATE keys SET tag = zeroblob(32)",
        "UPDATE keys SET preimage = x'01'",
        "DELETE FROM keys",
    ];
    for sql in cases {
        let place = Place::new();
        place.record(1, Outcome::Failed);
        place.record(1, Outcome::Passed);
        altered(&place, sql);
        let found = place.lookup(1);
        assert_eq!(found.latest, None, "{sql}");
        assert_eq!(found.damage.is_empty(), sql.starts_with("DELETE"), "{sql}");
        let recorded = place.record(1, Outcome::Passed);
        assert_eq!(recorded.tally, Tally { passed: 2, failed: 1 }, "{sql}");
        assert!(place.lookup(1).tally.is_flaky());
    }
}

#[test]
fn another_keys_record_is_no_answer() {
    let place = Place::new();
    place.record(1, Outcome::Failed);
    place.record(2, Outcome::Passed);
    altered(&place, &format!("UPDATE keys SET answer = 2 WHERE key = x'{}'", key(1).0.hex()));
    let found = place.lookup(1);
    assert_eq!(found.latest.unwrap().evidence.outcome, Outcome::Failed);
    assert_eq!(found.damage.len(), 1);
    // The same with the row itself moved over.
    altered(&place, &format!("UPDATE executions SET key = x'{}' WHERE id = 2", key(1).0.hex()));
    assert_eq!(place.lookup(1).latest.unwrap().evidence.outcome, Outcome::Failed);
}

#[test]
fn a_record_of_another_version_is_left_alone() {
    let place = Place::new();
    place.record(1, Outcome::Passed);
    let secret = secret::Secret::read(&place.paths.secret).unwrap().unwrap();
    let connection = Connection::open(place.paths.database()).unwrap();
    let bytes = br#"{"version":2,"verdict":"fine"}"#;
    let (weak, command): ([u8; 32], [u8; 32]) = connection
        .query_row("SELECT weak, command FROM executions", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    let digest = crate::model::digest::Digest;
    let tag = row::tag_execution(&secret, &key(1).0, &digest(weak), &digest(command), bytes);
    connection
        .execute("UPDATE executions SET evidence = ?1, tag = ?2", rusqlite::params![bytes, tag])
        .unwrap();
    drop(connection);
    let found = place.lookup(1);
    assert!(found.latest.is_none() && found.damage[0].contains("version 2"), "{:?}", found.damage);
    let recorded = place.record(1, Outcome::Passed);
    assert_eq!(recorded.healed, [] as [String; 0]);
    assert!(place.reader().by_id(1).unwrap().damage[0].contains("version 2"));
    assert!(place.lookup(1).latest.is_some());
}

#[test]
fn records_of_another_secret_do_not_answer() {
    let place = Place::new();
    place.record(1, Outcome::Passed);
    std::fs::remove_file(&place.paths.secret).unwrap();
    let found = place.lookup(1);
    assert!(found.latest.is_none() && found.damage[0].contains("secret"));
    place.writer();
    let metadata = std::fs::metadata(&place.paths.secret).unwrap();
    assert_eq!((metadata.mode() & 0o777, metadata.len()), (0o600, 32));
    assert_eq!(std::fs::metadata(place.dir.path().join("state")).unwrap().mode() & 0o777, 0o700);
    let found = place.lookup(1);
    assert!(found.latest.is_none() && !found.damage.is_empty());
    assert_eq!(place.record(1, Outcome::Passed).tally, Tally { passed: 1, failed: 0 });
    assert!(place.lookup(1).latest.is_some());
}

#[test]
fn a_secret_that_others_could_know_is_refused() {
    let place = Place::new();
    place.record(1, Outcome::Passed);
    std::fs::set_permissions(&place.paths.secret, std::fs::Permissions::from_mode(0o640)).unwrap();
    let error = Store::open_reader(&place.paths).unwrap_err();
    assert!(matches!(error, StoreError::Secret { .. }) && error.hint().is_some());
    assert!(error.to_string().contains("640"));
    std::fs::set_permissions(&place.paths.secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&place.paths.secret, "short").unwrap();
    assert!(matches!(Store::open_writer(&place.paths), Err(StoreError::Secret { .. })));
}

#[test]
fn a_cache_folder_that_is_none_is_told() {
    let place = Place::new();
    std::fs::write(&place.paths.cache, "a file").unwrap();
    let below = StorePaths { cache: place.paths.cache.join("below"), ..place.paths.clone() };
    for paths in [&place.paths, &below] {
        for error in [Store::open_reader(paths).unwrap_err(), Store::open_writer(paths).unwrap_err()] {
            assert!(matches!(error, StoreError::NotAFolder { .. }), "{error}");
            assert!(error.hint().unwrap().contains("CHECKRUN_CACHE_DIR"));
        }
    }
    if rustix::process::geteuid().as_raw() != 0 {
        let foreign = StorePaths { cache: "/proc/1".into(), ..place.paths.clone() };
        assert!(matches!(Store::open_reader(&foreign), Err(StoreError::OtherOwner { owner: 0, .. })));
    } else {
        let given = place.dir.path().join("given");
        std::fs::create_dir(&given).unwrap();
        std::os::unix::fs::chown(&given, Some(1234), None).unwrap();
        let error = Store::open_writer(&StorePaths { cache: given, ..place.paths.clone() }).unwrap_err();
        assert!(matches!(error, StoreError::OtherOwner { owner: 1234, user: 0, .. }), "{error}");
    }
}

#[test]
fn what_cannot_be_opened_is_a_miss_and_is_kept() {
    let place = Place::new();
    place.record(1, Outcome::Passed);
    // A folder in the place of the database cannot be opened by anybody, root included.
    let aside = place.dir.path().join("aside");
    std::fs::rename(place.paths.database(), &aside).unwrap();
    std::fs::create_dir(place.paths.database()).unwrap();
    let found = place.lookup(1);
    assert!(found.latest.is_none() && found.damage.len() == 1, "{found:?}");
    let error = Store::open_writer(&place.paths).unwrap_err();
    assert!(matches!(error, StoreError::NoAccess { .. }), "{error}");
    assert!(place.paths.database().is_dir());
    std::fs::remove_dir(place.paths.database()).unwrap();
    std::fs::rename(aside, place.paths.database()).unwrap();
    assert!(place.lookup(1).latest.is_some());
}

#[test]
fn no_room_is_an_error_and_what_was_there_stays() {
    let place = Place::new();
    let mut writer = place.writer();
    record(&mut writer, 1, Outcome::Passed);
    // The same answer from SQLite as from a full disk, at a size that is chosen here.
    writer
        .run(|connection, _| connection.pragma_update_and_check(None, "max_page_count", 40, |_| Ok(())))
        .unwrap();
    let evidence = crate::model::evidence::tests::evidence();
    let error = (2..200)
        .find_map(|n| {
            let evidence = Evidence { key: key(n).to_string(), ..evidence.clone() };
            let digest = key(n).0;
            let new = NewRecord {
                evidence: &evidence,
                key: key(n),
                weak: digest,
                command: digest,
                preimage: &preimage(n),
            };
            writer.record(&new).err()
        })
        .expect("40 pages are too few for 200 records");
    assert!(error.is_full() && error.hint().is_some(), "{error}");
    assert!(place.lookup(1).latest.is_some());
    assert_eq!(writer.damage(), [] as [String; 0]);
}

#[test]
fn sets_of_inputs_come_newest_first_and_broken_ones_are_left_out() {
    let place = Place::new();
    let mut writer = place.writer();
    let (name, other) = (Digest::of(b"one"), Digest::of(b"other"));
    for id in 1..=40_u8 {
        writer.keep_inputs(&name, id.into(), &[id; 5]).unwrap();
    }
    writer.keep_inputs(&other, 41, b"of another command").unwrap();
    drop(writer);
    let ids = || -> Vec<i64> {
        let reader = place.reader();
        let sets: Vec<KeptInputs> = reader.inputs(name).collect();
        assert!(sets.iter().all(|set| set.bytes[..] == [u8::try_from(set.id).unwrap(); 5]));
        sets.into_iter().map(|set| set.id).collect()
    };
    // The oldest went when newer ones came.
    assert_eq!(ids(), (9..=40).rev().collect::<Vec<i64>>());
    altered(&place, "UPDATE input_sets SET bytes = x'0909090909' WHERE id = 40");
    altered(&place, "UPDATE input_sets SET id = 39, tag = x'00' WHERE id = 39");
    altered(&place, "UPDATE input_sets SET name = (SELECT name FROM input_sets WHERE id = 41) WHERE id = 38");
    assert_eq!(ids(), (9..=37).rev().collect::<Vec<i64>>());
    assert_eq!(place.reader().inputs(other).map(|set| set.id).collect::<Vec<_>>(), [41]);
    assert_eq!(place.reader().inputs(Digest::of(b"none")).count(), 0);
}

#[test]
fn the_set_that_was_not_used_for_longest_goes_first() {
    let place = Place::new();
    let mut writer = place.writer();
    let name = Digest::of(b"one");
    for id in 1..=32 {
        writer.keep_inputs(&name, id, b"a set").unwrap();
    }
    writer.use_inputs(&name, 2).unwrap();
    // Kept anew is used as well.
    writer.keep_inputs(&name, 4, b"a set").unwrap();
    for id in 33..=36 {
        writer.keep_inputs(&name, id, b"a set").unwrap();
    }
    drop(writer);
    let reader = place.reader();
    let kept: Vec<(i64, i64)> = reader.inputs(name).map(|set| (set.id, set.used)).collect();
    let mut expected: Vec<(i64, i64)> = (7..=36).rev().map(|id| (id, id)).collect();
    expected.extend([(4, 32), (2, 32)]);
    assert_eq!(kept, expected);
}
