//! What a check reads, lists and looks for, by its path calls as the filter passes them on. Only names and kinds of
//! use are noted here; what they stood for is worked out afterwards, from the tree. The calls themselves are carried
//! out by the kernel, or by `clock::files`.
//!
//! Sound means: every path that can have decided anything is noted, or the whole observation is given up (`gave_up`).
#![forbid(unsafe_code)]

use crate::sandbox::memory::{Unread, read_proc, read_text};
use crate::sandbox::path_calls::{leaves, low, uses_of};
use crate::sandbox::starts;
use crate::sandbox::sys::{self, Notification};
use crate::sandbox::ways::{Way, name_of, open_end, own_view, stands_for_the_caller, started_by};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::FileType;
use std::collections::{HashMap, HashSet};
use std::io::{Read, Seek, SeekFrom};

/// Its existence and type.
pub const EXISTS: u8 = 1;
/// Its content, or for a folder that it is one.
pub const CONTENT: u8 = 2;
/// For a folder, the names in it.
pub const LISTING: u8 = 4;
/// For a folder, all below it.
pub const DEEP: u8 = 8;

/// Most paths of one run; beyond them the whole tree is the input.
const PATHS_MAX: usize = 100_000;
/// Marks in a spelling's kinds: a link at its end was the thing itself.
const ITSELF: u8 = 0x80;
/// Interpreters that name interpreters are followed as far as the kernel does (Linux `exec_binprm`), and a loader.
const INTERPRETERS_MAX: usize = 6;

/// The observation of one run.
#[derive(Debug, Default)]
pub(super) struct Observer {
    /// Paths by how they were used.
    seen: HashMap<Vec<u8>, u8>,
    /// Spellings that were dealt with already.
    known: HashSet<(Vec<u8>, u8)>,
    /// What the waiting call's arguments point to, as it was when it was looked at.
    texts: Vec<Text>,
    /// Why the observation is not complete, if it is not.
    gave_up: Option<String>,
}

/// Something of a thread's memory that the kernel reads once more when the call goes on.
#[derive(Debug)]
struct Text {
    at: u64,
    /// How long it is; `None` for a path, which ends by itself.
    length: Option<usize>,
    bytes: Result<Vec<u8>, Unread>,
}

impl Text {
    fn read(pid: u32, at: u64, length: Option<usize>) -> Self {
        let bytes = match length {
            None => read_text(pid, at),
            Some(length) => {
                let mut bytes = vec![0; length];
                match sys::read_memory(pid, at, &mut bytes) {
                    Ok(read) if read == length => Ok(bytes),
                    _ => Err(Unread::Fault),
                }
            }
        };
        Self { at, length, bytes }
    }
}

impl Observer {
    /// Notes what a waiting call looks at.
    pub(super) fn see(&mut self, call: &Notification, proc: BorrowedFd<'_>) {
        self.texts.clear();
        if self.gave_up.is_some() {
            return;
        }
        let number = libc::c_long::from(call.number);
        if let Some(why) = leaves(number, call) {
            self.gave_up = Some(why.to_owned());
            return;
        }
        if starts::is_one(call) {
            self.program(call, proc);
            return;
        }
        let (uses, mut moves) = uses_of(number, call);
        for used in uses {
            let argument = |index: usize| call.arguments.get(index).copied().unwrap_or(0);
            let folder = used.at.0.map(|index| low(argument(index))).filter(|fd| *fd != libc::AT_FDCWD);
            let at = argument(used.at.1);
            if at == 0 {
                continue;
            }
            let text = Text::read(call.pid, at, None);
            if let Ok(path) = &text.bytes {
                self.note(call, proc, (folder, path), (used.kind, used.nofollow));
                if used.executes {
                    self.started(call, proc, (folder, path.clone()));
                }
            }
            self.texts.push(text);
        }
        if let Some(socket) = Address::of(number, call) {
            let text = Text::read(call.pid, socket.at, Some(socket.length));
            if let Ok(path) = text.bytes.as_deref().map(address_path)
                && !path.is_empty()
            {
                self.note(call, proc, (None, path), (EXISTS, socket.makes));
            }
            self.texts.push(text);
            moves |= socket.makes;
        }
        if moves {
            // From here on the same spelling may lead elsewhere.
            self.known.clear();
        }
        if self.seen.len() > PATHS_MAX {
            self.gave_up = Some(format!("more than {PATHS_MAX} paths"));
        }
    }

    /// Looks once more, just before the call goes on, at what its arguments point to. Another thread may have changed it
    /// between our look and the kernel's, which comes a moment later still: an observation in which that was ever seen
    /// to happen is worth nothing. `still_waits` tells whether the call is there yet; one that was withdrawn may have
    /// left its memory to other uses.
    pub(super) fn look_again(&mut self, call: &Notification, still_waits: impl Fn() -> bool) {
        for text in std::mem::take(&mut self.texts) {
            let now = Text::read(call.pid, text.at, text.length);
            let why = match (&text.bytes, &now.bytes) {
                (before, now) if before != now => "a path was changed while it was looked at",
                (Err(Unread::Fault), _) => "a path could not be read where the call said it was",
                _ => continue,
            };
            if self.gave_up.is_none() && still_waits() {
                self.gave_up = Some(why.to_owned());
            }
        }
    }

    /// A program has started: its file, its interpreter's and its loader's were read by the kernel.
    fn program(&mut self, call: &Notification, proc: BorrowedFd<'_>) {
        let maps = read_proc(proc, call.pid, "maps");
        let Ok(maps) = maps else {
            // Killed meanwhile, it decides nothing any more.
            return;
        };
        for line in maps.split(|byte| *byte == b'\n') {
            if let Some(at) = line.iter().position(|byte| *byte == b'/') {
                self.add(line[at..].to_vec(), CONTENT);
            }
        }
    }

    /// A program is about to start: what it is started by, however that is spelt, is looked up by the kernel.
    fn started(&mut self, call: &Notification, proc: BorrowedFd<'_>, program: (Option<i32>, Vec<u8>)) {
        let (mut folder, mut path) = program;
        for _ in 0..INTERPRETERS_MAX {
            let way = match (folder, path.is_empty()) {
                (Some(fd), true) => format!("{}/fd/{fd}", call.pid).into_bytes(),
                _ => match self.spelling(call, proc, folder, &path) {
                    Some((_, way)) => way,
                    None => return,
                },
            };
            let Some(found) = open_end(proc, &way, false) else { return };
            let is_file = rustix::fs::fstat(&found)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
            if !is_file {
                return;
            }
            match started_by(proc, &found) {
                Ok(Some(next)) => {
                    (folder, path) = (None, next);
                    self.note(call, proc, (None, &path), (CONTENT, false));
                }
                Ok(None) => return,
                Err(_) => {
                    self.gave_up = Some("a program was started that may not be read".to_owned());
                    return;
                }
            }
        }
    }

    fn add(&mut self, path: Vec<u8>, kind: u8) {
        *self.seen.entry(path).or_default() |= kind;
    }

    /// Notes a path, in a folder's descriptor if it is relative to one, as used in a way.
    fn note(
        &mut self,
        call: &Notification,
        proc: BorrowedFd<'_>,
        (folder, path): (Option<i32>, &[u8]),
        (kind, nofollow): (u8, bool),
    ) {
        if path.is_empty() {
            // The descriptor itself, which was noted when it was opened.
            return;
        }
        let Some((spelt, way)) = self.spelling(call, proc, folder, path) else { return };
        let mark = kind | if nofollow { ITSELF } else { 0 };
        if !self.known.insert((spelt.clone(), mark)) {
            return;
        }
        match open_end(proc, &way, nofollow).and_then(|found| name_of(proc, &found)) {
            Some(real) => {
                if real != spelt {
                    // Links or dots on the way; the spelling is followed through the tree's own links afterwards.
                    self.add(spelt, EXISTS);
                }
                self.add(real, kind);
            }
            None => self.absent(proc, &way, (spelt, kind)),
        }
    }

    /// The full path as spelt, and the way by which the supervisor gets there.
    fn spelling(
        &mut self,
        call: &Notification,
        proc: BorrowedFd<'_>,
        folder: Option<i32>,
        path: &[u8],
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        if path.first() == Some(&b'/') {
            return match own_view(call.pid, path) {
                Way::Here(way) => Some((path.to_vec(), way)),
                Way::Apart => None,
                Way::Unknown => {
                    self.gave_up = Some("a file was reached by an entry of /proc".to_owned());
                    None
                }
            };
        }
        let base = folder.map_or_else(|| format!("{}/cwd", call.pid), |fd| format!("{}/fd/{fd}", call.pid));
        let place = rustix::fs::readlinkat(proc, base.as_str(), Vec::new()).ok()?;
        let spelt = [place.to_bytes(), b"/", path].concat();
        Some((spelt, [base.as_bytes(), b"/", path].concat()))
    }

    /// Nothing is there, or it cannot be reached: noted as looked for below the deepest folder that is there.
    fn absent(&mut self, proc: BorrowedFd<'_>, way: &[u8], (spelt, kind): (Vec<u8>, u8)) {
        let slashes = (0..way.len()).rev().filter(|at| way[*at] == b'/');
        for end in slashes {
            let above = if end == 0 { &b"/"[..] } else { &way[..end] };
            let Some(found) = open_end(proc, above, false) else { continue };
            if stands_for_the_caller(&found, &way[end..]) {
                self.gave_up = Some("a file was reached by a link into /proc".to_owned());
            }
            if let Some(real) = name_of(proc, &found).filter(|_| end > 0) {
                self.add([&real, &way[end..]].concat(), kind);
            }
            break;
        }
        self.add(spelt, kind);
    }

    /// All that was seen: a kind, a length and a path each; or why it is not complete.
    pub(super) fn finish(self) -> Result<Vec<u8>, String> {
        if let Some(why) = self.gave_up {
            return Err(why);
        }
        let mut bytes = Vec::new();
        for (path, kind) in self.seen {
            bytes.push(kind);
            bytes.extend(u32::try_from(path.len()).unwrap_or(0).to_le_bytes());
            bytes.extend(path);
        }
        Ok(bytes)
    }
}

/// Reads a file that holds what `Observer::finish` wrote, from its start; `None` where it cannot be read or is cut.
#[must_use]
pub fn read_observation_file(file: OwnedFd) -> Option<Vec<(Vec<u8>, u8)>> {
    let mut file = std::fs::File::from(file);
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes)).ok()?;
    read_observation(&bytes)
}

/// Reads what `Observer::finish` wrote; `None` where it is cut.
fn read_observation(mut bytes: &[u8]) -> Option<Vec<(Vec<u8>, u8)>> {
    let mut all = Vec::new();
    while let Some((kind, rest)) = bytes.split_first() {
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        all.push((rest.get(..length)?.to_vec(), *kind));
        bytes = rest.get(length..)?;
    }
    Some(all)
}

/// Where a call has the address of a socket of the UNIX family, if it has one.
struct Address {
    at: u64,
    length: usize,
    /// Whether the call makes the socket there.
    makes: bool,
}

impl Address {
    /// struct sockaddr_un: the family in two bytes, then the path (unix(7)).
    const MAX: usize = 110;

    fn of(number: libc::c_long, call: &Notification) -> Option<Self> {
        let (at, length) = match number {
            libc::SYS_bind | libc::SYS_connect => (call.arguments[1], call.arguments[2]),
            libc::SYS_sendto => (call.arguments[4], call.arguments[5]),
            _ => return None,
        };
        let length = usize::try_from(low(length)).unwrap_or(0).min(Self::MAX);
        (at != 0 && length > 2).then_some(Self { at, length, makes: number == libc::SYS_bind })
    }
}

/// The path in a socket's address; empty in one of another family, or without one (unix(7), abstract addresses).
fn address_path(bytes: &[u8]) -> &[u8] {
    match bytes.split_first_chunk::<2>() {
        Some((family, path)) if u16::from_ne_bytes(*family) == UNIX => {
            path.split(|byte| *byte == 0).next().unwrap_or_default()
        }
        _ => &[],
    }
}

/// AF_UNIX (linux/socket.h).
const UNIX: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observation_reads_back() {
        let mut observer = Observer::default();
        observer.add(b"/src/a".to_vec(), CONTENT);
        observer.add(b"/src/a".to_vec(), EXISTS);
        observer.add(b"/src/\xff".to_vec(), LISTING);
        let bytes = observer.finish().unwrap();
        let mut read = read_observation(&bytes).unwrap();
        read.sort();
        assert_eq!(read, vec![(b"/src/a".to_vec(), 3), (b"/src/\xff".to_vec(), 4)]);
        assert_eq!(read_observation(&bytes[..bytes.len() - 1]), None);
    }

    #[test]
    fn only_paths_of_unix_addresses_are_paths() {
        assert_eq!(address_path(b"\x01\x00/src/a\0rest"), b"/src/a");
        assert_eq!(address_path(b"\x01\x00s"), b"s");
        assert_eq!(address_path(b"\x01\x00\0abstract"), b"");
        assert_eq!(address_path(b"\x02\x00\x1f\x90"), b"");
        assert_eq!(address_path(b"\x01"), b"");
    }
}
