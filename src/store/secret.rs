//! The user's secret, with which records are tagged: 32 random bytes in a file that only its owner can read.
#![forbid(unsafe_code)]

use crate::store::{StoreError, make_folder};
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Tags records and tells whether tags are right.
#[derive(Clone)]
pub(super) struct Secret([u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// Reads the secret; `None` where there is none yet.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, StoreError> {
        let failed = |source| StoreError::File { what: "read", path: path.to_owned(), source };
        let wrong = |why: String| StoreError::Secret { path: path.to_owned(), why };
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let metadata = file.metadata().map_err(failed)?;
        let user = rustix::process::geteuid().as_raw();
        if !metadata.is_file() || metadata.len() != 32 {
            return Err(wrong("is not a file of 32 bytes".to_owned()));
        }
        if metadata.uid() != user {
            return Err(wrong(format!("belongs to user {}, and this is user {user}", metadata.uid())));
        }
        if metadata.mode() & 0o077 != 0 {
            return Err(wrong(format!("can be used by others (mode {:o})", metadata.mode() & 0o777)));
        }
        let mut bytes = [0; 32];
        file.read_exact(&mut bytes).map_err(failed)?;
        Ok(Some(Self(bytes)))
    }

    /// Reads the secret, and makes one where there is none. Of several that make one at the same time the first wins.
    pub(super) fn obtain(path: &Path) -> Result<Self, StoreError> {
        if let Some(secret) = Self::read(path)? {
            return Ok(secret);
        }
        let failed = |source| StoreError::File { what: "make", path: path.to_owned(), source };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        make_folder(parent)?;
        let mut random = [0_u8; 40];
        getrandom(&mut random, GetRandomFlags::empty()).map_err(|errno| failed(errno.into()))?;
        let (bytes, word) = random.split_at(32);
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", word.iter().map(|byte| format!("{byte:02x}")).collect::<String>()));
        let temporary = parent.join(name);
        let written = write_new(&temporary, bytes).and_then(|()| publish_new(&temporary, path));
        // Published or not, its own name is no longer needed; it may be gone already.
        std::fs::remove_file(&temporary).unwrap_or_default();
        written.map_err(failed)?;
        Self::read(path)?.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))
    }

    /// The tag over parts of which each but the last has a fixed length.
    pub(super) fn tag(&self, kind: &[u8; 8], parts: &[&[u8]]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(kind);
        for part in parts {
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    }

    /// Whether the tag is right, in a time that does not tell how much of it is.
    pub(super) fn is_tag(&self, tag: &[u8], kind: &[u8; 8], parts: &[&[u8]]) -> bool {
        blake3::Hash::from_bytes(self.tag(kind, parts)) == *tag
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    // A secret that is lost in a crash would take all records with it.
    file.sync_all()
}

/// Gives a finished file its name unless the name is taken, in one step: by a second link, or by a rename that does not
/// replace (renameat2(2)) where there are no links. That the name is taken is no error.
pub(super) fn publish_new(temporary: &Path, path: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let linked = std::fs::hard_link(temporary, path).or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound | io::ErrorKind::StorageFull => Err(error),
        _ => Ok(renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE)?),
    });
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}
