//! The file of a ledger: read whole and within bounds, held by one writer at a time, and replaced so that it is always
//! either the old one or the new one.
//!
//! The lock is flock(2) on the file itself, so that nothing is left beside it and a writer that dies lets go. A new file
//! is locked before it takes the old one's place; whoever finds that what it locked is no longer at the path begins
//! again.
#![forbid(unsafe_code)]

use crate::ledger::{Document, LedgerError, shape};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 8 << 20;
/// How long a lock is waited for whose holder is dead: its last descriptors go with the processes it had started.
const DEAD_HOLDER: Duration = Duration::from_secs(5);

/// A ledger that nobody else can write.
#[derive(Debug)]
pub struct Held {
    /// What it says.
    pub document: Document,
    real: PathBuf,
    file: File,
}

/// Reads a ledger's text.
pub(super) fn read(path: &Path) -> Result<String, LedgerError> {
    let failed = |source| LedgerError::File { what: "read", path: path.to_owned(), source };
    // Opening a pipe could wait for ever, so it is opened without waiting and looked at.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
    text_of(&mut File::from(fd), path)
}

fn text_of(file: &mut File, path: &Path) -> Result<String, LedgerError> {
    let failed = |source| LedgerError::File { what: "read", path: path.to_owned(), source };
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")));
    }
    let too_large = || LedgerError::TooLarge { path: path.to_owned() };
    if meta.len() > MAX_BYTES {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if u64::try_from(bytes.len()).map_or(true, |length| length > MAX_BYTES) {
        return Err(too_large());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let before = &error.as_bytes()[..at];
        let line = before.split(|byte| *byte == b'\n').count();
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
        let problem = format!("byte 0x{:02x} is not UTF-8", error.as_bytes()[at]);
        LedgerError::Document { path: path.to_owned(), line, column, problem }
    })
}

/// The name under which the new text of a ledger lies until it takes the old one's place.
#[must_use]
pub fn new_name(name: &std::ffi::OsStr) -> std::ffi::OsString {
    let mut new = std::ffi::OsString::from(".");
    new.push(name);
    new.push(".checkrun-new");
    new
}

impl Held {
    /// Reads a ledger that is about to be written, and keeps others from writing it.
    ///
    /// # Errors
    /// It cannot be read or written, is no ledger, or somebody else holds it.
    pub fn open(path: &Path) -> Result<Self, LedgerError> {
        let failed = |source| LedgerError::File { what: "open", path: path.to_owned(), source };
        // A link stays a link: what it leads to is replaced.
        let real = std::fs::canonicalize(path).map_err(failed)?;
        let mut file = lock(path, &real)?;
        let text = text_of(&mut file, path)?;
        Ok(Self { document: shape::document(path, text)?, real, file })
    }

    /// Puts a new text in the file's place, durably, and reads it back.
    ///
    /// # Errors
    /// It cannot be written; the old file is then still there.
    pub fn replace(&mut self, text: &str) -> Result<(), LedgerError> {
        let document = shape::document(&self.document.path, text.to_owned())?;
        if document.text == self.document.text {
            return Ok(());
        }
        self.file = self.write(text.as_bytes()).map_err(|source| LedgerError::File {
            what: "write",
            path: self.document.path.clone(),
            source,
        })?;
        self.document = document;
        Ok(())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<File> {
        let name = self.real.file_name().unwrap_or_default();
        let new = self.real.with_file_name(new_name(name));
        // Only the holder of the lock writes under this name, so what is there was left by one that died.
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = File::options().read(true).write(true).create_new(true).open(&new)?;
        let written = self.fill(&mut file, bytes).and_then(|()| std::fs::rename(&new, &self.real));
        if let Err(error) = written {
            drop(std::fs::remove_file(&new));
            return Err(error);
        }
        // The rename itself must outlive a power cut too.
        File::open(self.real.parent().unwrap_or(Path::new("/")))?.sync_all()?;
        Ok(file)
    }

    fn fill(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        flock(&*file, FlockOperation::NonBlockingLockExclusive)?;
        let (old, new) = (self.file.metadata()?, file.metadata()?);
        if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
            std::os::unix::fs::fchown(&*file, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(std::fs::Permissions::from_mode(old.mode() & 0o7777))?;
        file.write_all(bytes)?;
        file.sync_all()
    }
}

/// Opens and locks what is at the path now.
fn lock(path: &Path, real: &Path) -> Result<File, LedgerError> {
    let failed = |source| LedgerError::File { what: "open", path: path.to_owned(), source };
    let began = Instant::now();
    loop {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::open(real, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        let file = File::from(fd);
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let (locked, there) =
                    (file.metadata().map_err(failed)?, std::fs::metadata(real).map_err(failed)?);
                if (locked.dev(), locked.ino()) == (there.dev(), there.ino()) {
                    return Ok(file);
                }
            }
            Err(Errno::WOULDBLOCK) => {
                let holder = holder(&file);
                let is_dead = holder.as_ref().is_some_and(|holder| holder.command.is_none());
                if !is_dead || began.elapsed() > DEAD_HOLDER {
                    let holder = holder.map_or_else(|| "another process".to_owned(), |holder| holder.words());
                    return Err(LedgerError::Held { path: path.to_owned(), holder });
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(failed(error.into())),
        }
    }
}

/// Who holds a lock.
struct Holder {
    process: u32,
    /// `None` where there is no such process any more.
    command: Option<String>,
}

impl Holder {
    fn words(&self) -> String {
        match self.command.as_deref() {
            None | Some("") => format!("process {}", self.process),
            Some(command) => format!("process {} (`{command}`)", self.process),
        }
    }
}

/// Looks for the lock's holder among all that the kernel lists (proc_locks(5)): `1: FLOCK ADVISORY WRITE PID
/// MAJOR:MINOR:INODE 0 EOF`, major and minor in hex.
fn holder(file: &File) -> Option<Holder> {
    let meta = file.metadata().ok()?;
    let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let wanted = format!("{major:02x}:{minor:02x}:{}", meta.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let process = locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&wanted.as_str());
        fields.get(4).filter(|_| is_it)?.parse().ok()
    })?;
    let command = std::fs::read(format!("/proc/{process}/cmdline")).ok().map(|bytes| {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let words = text.trim_end_matches('\0').replace('\0', " ");
        words.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(120).collect()
    });
    Some(Holder { process, command })
}
