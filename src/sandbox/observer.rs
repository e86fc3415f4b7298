//! What a check reads, lists and looks for, by its path calls as the filter passes them on. Only names and kinds of
//! use are noted here; what they stood for is worked out afterwards, from the tree. The calls themselves are carried
//! out by the kernel, or by `clock::files`.
//!
//! Sound means: every path that can have decided anything is noted, or the whole observation is given up (`gave_up`).
#![forbid(unsafe_code)]

use crate::sandbox::memory::{read_path, read_proc};
use crate::sandbox::path_calls::{Use, leaves, low, uses_of};
use crate::sandbox::sys::Notification;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
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
/// The observation of one run.
#[derive(Debug, Default)]
pub(super) struct Observer {
    /// Paths by how they were used.
    seen: HashMap<Vec<u8>, u8>,
    /// Spellings that were dealt with already.
    known: HashSet<(Vec<u8>, u8)>,
    /// Why the observation is not complete, if it is not.
    gave_up: Option<String>,
}

impl Observer {
    /// Notes what a waiting call looks at.
    pub(super) fn see(&mut self, call: &Notification, proc: BorrowedFd<'_>) {
        if self.gave_up.is_some() {
            return;
        }
        let number = libc::c_long::from(call.number);
        if let Some(why) = leaves(number, call) {
            self.gave_up = Some(why.to_owned());
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if number == libc::SYS_arch_prctl {
            self.program(call, proc);
            return;
        }
        let (uses, moves) = uses_of(number, call);
        for used in uses {
            self.note(call, proc, &used);
        }
        if moves {
            // From here on the same spelling may lead elsewhere.
            self.known.clear();
        }
        if self.seen.len() > PATHS_MAX {
            self.gave_up = Some(format!("more than {PATHS_MAX} paths"));
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

    fn add(&mut self, path: Vec<u8>, kind: u8) {
        *self.seen.entry(path).or_default() |= kind;
    }

    fn note(&mut self, call: &Notification, proc: BorrowedFd<'_>, used: &Use) {
        let argument = |index: usize| call.arguments.get(index).copied().unwrap_or(0);
        let at = argument(used.at.1);
        if at == 0 {
            return;
        }
        let Some(path) = read_path(call.pid, at) else { return };
        let folder = used.at.0.map(|index| low(argument(index))).filter(|fd| *fd != libc::AT_FDCWD);
        if path.is_empty() {
            // The descriptor itself, which was noted when it was opened.
            return;
        }
        let Some((spelt, way)) = self.spelling(call, proc, folder, &path) else { return };
        let mark = used.kind | if used.nofollow { 0x80 } else { 0 };
        if !self.known.insert((spelt.clone(), mark)) {
            return;
        }
        match real_path(proc, &way, used.nofollow) {
            Some(real) => {
                if real != spelt {
                    // Links or dots on the way; the spelling is followed through the tree's own links afterwards.
                    self.add(spelt, EXISTS);
                }
                self.add(real, used.kind);
            }
            None => self.absent(call, proc, folder, &path, (spelt, used.kind)),
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
            let way = self.own_view(call, path)?;
            return Some((path.to_vec(), way));
        }
        let base = folder.map_or_else(|| format!("{}/cwd", call.pid), |fd| format!("{}/fd/{fd}", call.pid));
        let place = rustix::fs::readlinkat(proc, base.as_str(), Vec::new()).ok()?;
        let spelt = [place.to_bytes(), b"/", path].concat();
        Some((spelt, [base.as_bytes(), b"/", path].concat()))
    }

    /// Links below /proc/self and /dev/fd lead to whoever looks, so they are looked at by way of the caller's own entry.
    fn own_view(&mut self, call: &Notification, path: &[u8]) -> Option<Vec<u8>> {
        for (prefix, own) in [(&b"/proc/self/"[..], ""), (b"/proc/thread-self/", ""), (b"/dev/fd/", "fd/")] {
            if let Some(rest) = path.strip_prefix(prefix) {
                return Some([format!("{}/{own}", call.pid).as_bytes(), rest].concat());
            }
        }
        if path.starts_with(b"/proc/") {
            let leads_on = [&b"/cwd"[..], b"/root", b"/fd/", b"/exe", b"/map_files"];
            if leads_on.iter().any(|part| path.windows(part.len()).any(|window| window == *part)) {
                self.gave_up = Some("a file was reached by another process's entry in /proc".to_owned());
            }
            return None;
        }
        Some(path.to_vec())
    }

    /// Nothing is there, or it cannot be reached: noted as looked for below the deepest folder that is there.
    fn absent(
        &mut self,
        call: &Notification,
        proc: BorrowedFd<'_>,
        folder: Option<i32>,
        path: &[u8],
        (spelt, kind): (Vec<u8>, u8),
    ) {
        let mut end = path.len();
        while let Some(slash) = path[..end].iter().rposition(|byte| *byte == b'/') {
            end = slash;
            if end == 0 {
                break;
            }
            if let Some((_, way)) = self.spelling(call, proc, folder, &path[..end])
                && let Some(real) = real_path(proc, &way, false)
            {
                let rest = path[end..].to_vec();
                self.add([real, rest].concat(), kind);
                break;
            }
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

/// Where a path really leads, as the supervisor's root shows it; `None` where nothing is there.
fn real_path(proc: BorrowedFd<'_>, way: &[u8], nofollow: bool) -> Option<Vec<u8>> {
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    if nofollow {
        flags |= OFlags::NOFOLLOW;
    }
    let found: OwnedFd = rustix::fs::openat(proc, way, flags, rustix::fs::Mode::empty()).ok()?;
    let name = rustix::fs::readlinkat(proc, format!("self/fd/{}", found.as_raw_fd()), Vec::new()).ok()?;
    Some(name.into_bytes())
}

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
}
