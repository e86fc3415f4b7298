//! Writes a file that is either the old one or the whole new one, never a part. What is in it is not decided here.
#![forbid(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file cannot be written.
    #[error("cannot write {path}: {source}")]
    Unwritable {
        /// The file that was asked for.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl ReportError {
    /// What can be done about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let Self::Unwritable { source, .. } = self;
        (source.kind() == io::ErrorKind::NotFound).then(|| "its folder must exist".to_owned())
    }
}

/// Adds a text to the end of a file, which is made if it is not there.
///
/// # Errors
/// The file cannot be written.
pub fn append(path: &Path, text: &str) -> Result<(), ReportError> {
    let file = fs::OpenOptions::new().append(true).create(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|source| ReportError::Unwritable { path: path.to_owned(), source })
}

/// Writes `bytes` to `path` by way of a temporary file beside it, synced and renamed. What is there and is no regular
/// file, such as `/dev/stdout` or a named pipe, is written to directly: a rename would replace it.
///
/// # Errors
/// The file cannot be written; what was there before is then still there.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    write(path, bytes).map_err(|source| ReportError::Unwritable { path: path.to_owned(), source })
}

/// Tells what can be told beforehand of whether a file could be written. Changes nothing.
///
/// # Errors
/// It is a folder, or its own folder is not there.
pub fn check_writable(path: &Path) -> Result<(), ReportError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let found = match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => Ok(()),
        Err(_) => fs::metadata(parent)
            .and_then(|meta| if meta.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }),
    };
    found.map_err(|source| ReportError::Unwritable { path: path.to_owned(), source })
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(meta) if !meta.is_file() => OpenOptions::new().write(true).open(path)?.write_all(bytes),
        // A link keeps leading to the file; it is the file that is replaced.
        Ok(_) => replace(&fs::canonicalize(path)?, bytes),
        Err(_) => replace(path, bytes),
    }
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
    let (temporary, mut file) = temporary_beside(path, &name)?;
    let written = file
        .write_all(bytes)
        // The rename must not become durable before the content, or a crash would leave an empty file.
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The temporary file is ours; that it cannot be removed either changes nothing about the error.
        drop(fs::remove_file(&temporary));
    }
    written
}

/// A new file beside `path`, under a name that is not taken.
fn temporary_beside(path: &Path, name: &str) -> io::Result<(PathBuf, File)> {
    let process = std::process::id();
    let mut taken = io::Error::from(io::ErrorKind::AlreadyExists);
    for attempt in 0..16 {
        let temporary = path.with_file_name(format!(".{name}.{process}.{attempt}.tmp"));
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = error,
            Err(error) => return Err(error),
        }
    }
    Err(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_new_file_is_whole_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.json");
        write_atomically(&path, b"one").unwrap();
        write_atomically(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn links_stay_and_devices_are_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("out.json"), folder.path().join("link"));
        fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write_atomically(&link, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        write_atomically(Path::new("/dev/null"), b"x").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let error = write_atomically(&folder.path().join("no/out.json"), b"").unwrap_err();
        assert!(error.to_string().contains("no/out.json") && error.hint().is_some(), "{error}");
        let error = write_atomically(folder.path(), b"").unwrap_err();
        assert!(error.to_string().starts_with("cannot write "), "{error}");
    }
}
