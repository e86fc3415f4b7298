//! Logs written, read back, damaged and swept.

use super::*;
use crate::model::digest::Digest;
use std::path::Path;

fn write(dir: &Path, parts: &[(Stream, &[u8])]) -> Kept {
    let mut writer = LogWriter::new(dir);
    for (stream, bytes) in parts {
        writer.push(*stream, bytes);
    }
    writer.finish()
}

fn read(dir: &Path, digest: &Digest) -> Result<Vec<(Stream, Vec<u8>)>, LogError> {
    let mut frames = Vec::new();
    let reader = LogReader::open(dir, digest)?.unwrap();
    reader.replay(&mut |stream, bytes| {
        frames.push((stream, bytes.to_vec()));
        Ok(())
    })?;
    Ok(frames)
}

#[test]
fn a_log_reads_back_apart_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let parts: [(Stream, &[u8]); 5] = [
        (Stream::Stderr, b"warn\xff"),
        (Stream::Stdout, b"one "),
        (Stream::Stdout, b"two\n"),
        (Stream::Stderr, b""),
        (Stream::Stdout, b"three"),
    ];
    let kept = write(dir.path(), &parts);
    assert!(kept.failure.is_none());
    assert_eq!(kept.bytes, 18);
    let frames = read(dir.path(), &kept.digest).unwrap();
    let expected: Vec<(Stream, Vec<u8>)> = vec![
        (Stream::Stderr, b"warn\xff".to_vec()),
        (Stream::Stdout, b"one two\n".to_vec()),
        (Stream::Stdout, b"three".to_vec()),
    ];
    assert_eq!(frames, expected);
    // The size of the reads does not matter, the split between the streams does.
    assert_eq!(
        write(dir.path(), &[(Stream::Stdout, b"one"), (Stream::Stdout, b"two")]).digest,
        write(dir.path(), &[(Stream::Stdout, b"onetwo")]).digest
    );
    assert_ne!(
        write(dir.path(), &[(Stream::Stderr, b"x")]).digest,
        write(dir.path(), &[(Stream::Stdout, b"x")]).digest
    );
    let empty = write(dir.path(), &[]);
    assert_eq!(read(dir.path(), &empty.digest).unwrap(), vec![]);
}

#[test]
fn a_flood_is_kept_with_little_memory() {
    fn resident() -> u64 {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }
    const TOTAL: usize = 64 << 20;
    let dir = tempfile::tempdir().unwrap();
    let mut writer = LogWriter::new(dir.path());
    // Bytes that hardly compress, so that nothing is small by luck.
    let mut source = blake3::Hasher::new().finalize_xof();
    let mut chunk = vec![0_u8; 100_001];
    let (mut digest, mut sent, before, mut most) = (blake3::Hasher::new(), 0, resident(), 0);
    while sent < TOTAL {
        source.fill(&mut chunk);
        digest.update(&chunk);
        writer.push(Stream::Stdout, &chunk);
        sent += chunk.len();
        most = most.max(resident());
    }
    let kept = writer.finish();
    assert_eq!(kept.bytes, sent as u64);
    let mut back = blake3::Hasher::new();
    let bytes = LogReader::open(dir.path(), &kept.digest)
        .unwrap()
        .unwrap()
        .replay(&mut |_, bytes| {
            back.update(bytes);
            most = most.max(resident());
            Ok(())
        })
        .unwrap();
    assert_eq!((bytes, back.finalize()), (sent as u64, digest.finalize()));
    // Other tests run beside this one in the same process, hence the width.
    assert!(most.saturating_sub(before) < 32 << 20, "grew by {} bytes", most.saturating_sub(before));
}

#[test]
fn a_damaged_log_is_told_whatever_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let text: Vec<u8> = (0..20_000_u32).flat_map(u32::to_le_bytes).collect();
    let kept = write(dir.path(), &[(Stream::Stdout, &text), (Stream::Stderr, b"end")]);
    let path = folder::place(dir.path(), &kept.digest);
    let whole = std::fs::read(&path).unwrap();
    for cut in [0, 1, 3, 4, 7, 10, 20, whole.len() / 2, whole.len() - 9, whole.len() - 5] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        assert!(matches!(read(dir.path(), &kept.digest), Err(LogError::Damaged { .. })), "cut at {cut}");
    }
    for at in (0..whole.len()).step_by(97) {
        let mut torn = whole.clone();
        torn[at] ^= 0x11;
        std::fs::write(&path, &torn).unwrap();
        match read(dir.path(), &kept.digest) {
            Err(LogError::Damaged { .. }) => {}
            // A flag that says nothing about the content may be flipped without harm.
            Ok(frames) => assert_eq!(frames.concat_stdout(), text, "flip at {at}"),
            Err(other) => panic!("flip at {at}: {other}"),
        }
    }
    std::fs::write(&path, b"\x04\x22\x4d\x18").unwrap();
    assert!(read(dir.path(), &kept.digest).unwrap_err().hint().is_some());
    remove(dir.path(), &kept.digest).unwrap();
    remove(dir.path(), &kept.digest).unwrap();
    assert!(LogReader::open(dir.path(), &kept.digest).unwrap().is_none());
}

trait Frames {
    fn concat_stdout(&self) -> Vec<u8>;
}

impl Frames for Vec<(Stream, Vec<u8>)> {
    fn concat_stdout(&self) -> Vec<u8> {
        self.iter()
            .filter(|(stream, _)| *stream == Stream::Stdout)
            .flat_map(|(_, bytes)| bytes.clone())
            .collect()
    }
}

#[test]
fn nothing_unfinished_stays() {
    let dir = tempfile::tempdir().unwrap();
    let names = || std::fs::read_dir(dir.path()).unwrap().count();
    let mut writer = LogWriter::new(dir.path());
    writer.push(Stream::Stdout, b"x");
    std::fs::write(dir.path().join("tmp-dead"), "left by a killed writer").unwrap();
    assert_eq!((names(), sweep(dir.path()).unwrap(), names()), (2, 1, 1));
    drop(writer);
    assert_eq!(names(), 0);
}

#[test]
fn the_run_goes_on_where_nothing_can_be_kept() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let kept = write(&file.path().join("logs"), &[(Stream::Stdout, b"out")]);
    assert_eq!(kept.bytes, 3);
    assert!(kept.failure.is_some());
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(write(dir.path(), &[(Stream::Stdout, b"out")]).digest, kept.digest);
}

#[test]
fn a_reader_that_goes_away_ends_the_replay() {
    let dir = tempfile::tempdir().unwrap();
    let kept = write(dir.path(), &[(Stream::Stdout, b"out")]);
    let gone = |_: Stream, _: &[u8]| Err(io::ErrorKind::BrokenPipe.into());
    let error =
        LogReader::open(dir.path(), &kept.digest).unwrap().unwrap().replay(&mut { gone }).unwrap_err();
    assert!(matches!(error, LogError::Sink(source) if source.kind() == io::ErrorKind::BrokenPipe));
}

#[test]
fn the_inventory_lists_finished_logs_only() {
    let dir = tempfile::tempdir().unwrap();
    let kept = write(dir.path(), &[(Stream::Stdout, b"out")]);
    let open = LogWriter::new(dir.path());
    std::fs::create_dir(dir.path().join("zz")).unwrap();
    std::fs::write(dir.path().join("zz/readme"), "not a log").unwrap();
    let listed = inventory(dir.path()).unwrap();
    assert_eq!(listed.iter().map(|log| log.digest).collect::<Vec<_>>(), vec![kept.digest]);
    assert!(listed[0].bytes > 0);
    drop(open);
    assert_eq!(inventory(&dir.path().join("absent")).unwrap(), vec![]);
}
