//! How the supervisor reaches what a thread of the check names by a path: which way it takes, and where that way means
//! another thing to the supervisor than to the caller. What is noted of it is `observer`'s.
#![forbid(unsafe_code)]

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::io::Read;

/// Links that are followed on one way, as the kernel does (path_resolution(7)).
const LINKS_MAX: usize = 40;
/// PROC_SUPER_MAGIC (statfs(2)).
const PROC_MAGIC: i64 = 0x9fa0;
/// Bytes of a program's head that the kernel looks at for `#!` (BINPRM_BUF_SIZE, linux/binfmts.h).
const SCRIPT_HEAD: usize = 256;
/// PT_INTERP (elf(5)).
const INTERPRETER: u32 = 3;

/// The way of an absolute path, for a look-up from the machine's /proc.
pub(super) enum Way {
    /// This one; from /proc where it is relative.
    Here(Vec<u8>),
    /// Nothing of the tree or the host is there.
    Apart,
    /// It cannot be told where it leads the caller.
    Unknown,
}

/// Links below /proc/self and /dev/fd lead to whoever looks, so they are looked at by way of the caller's own entry.
pub(super) fn own_view(pid: u32, path: &[u8]) -> Way {
    let leads_on = [&b"/cwd"[..], b"/root", b"/fd/", b"/exe", b"/map_files"];
    let leads = leads_on.iter().any(|part| path.windows(part.len()).any(|window| window == *part));
    let own = [
        (&b"/proc/self/"[..], ""),
        (b"/proc/thread-self/", ""),
        (b"/dev/fd/", "fd/"),
        (b"/dev/stdin", "fd/0"),
        (b"/dev/stdout", "fd/1"),
        (b"/dev/stderr", "fd/2"),
    ];
    for (prefix, own) in own {
        let Some(rest) = path.strip_prefix(prefix) else { continue };
        if !prefix.ends_with(b"/") && !rest.is_empty() && rest.first() != Some(&b'/') {
            continue;
        }
        let has = |name: &[u8]| rest.split(|byte| *byte == b'/').any(|part| part == name);
        // Upwards lies the machine's /proc and not the check's, and threads have other numbers there.
        if has(b"..") || (has(b"task") && leads) {
            return Way::Unknown;
        }
        return Way::Here([format!("{pid}/{own}").as_bytes(), rest].concat());
    }
    if path.starts_with(b"/proc/") {
        return if leads { Way::Unknown } else { Way::Apart };
    }
    Way::Here(path.to_vec())
}

/// Opens what is at the end of a way, for looking at; `None` where nothing is.
pub(super) fn open_end(proc: BorrowedFd<'_>, way: &[u8], nofollow: bool) -> Option<OwnedFd> {
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    if nofollow {
        flags |= OFlags::NOFOLLOW;
    }
    rustix::fs::openat(proc, way, flags, Mode::empty()).ok()
}

/// The path of something open, as the supervisor's root shows it.
pub(super) fn name_of(proc: BorrowedFd<'_>, found: &OwnedFd) -> Option<Vec<u8>> {
    let name = rustix::fs::readlinkat(proc, format!("self/fd/{}", found.as_raw_fd()), Vec::new()).ok()?;
    Some(name.into_bytes())
}

/// Whether a way on which the supervisor finds nothing may lead its caller somewhere: `rest` begins, in `folder`, with
/// something that is there, and the links from there pass through an entry of /proc that stands for whoever looks.
pub(super) fn stands_for_the_caller(folder: &OwnedFd, rest: &[u8]) -> bool {
    let mut left: Vec<Vec<u8>> = parts(rest);
    let first = left.last().cloned().unwrap_or_default();
    if rustix::fs::statat(folder, first, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_err() {
        return false;
    }
    let root = || rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
    let Some(mut at) = rustix::io::dup(folder).ok() else { return true };
    let mut links = 0;
    while let Some(part) = left.pop() {
        let in_proc = rustix::fs::fstatfs(&at).is_ok_and(|stat| stat.f_type == PROC_MAGIC);
        if in_proc && (part == b"self" || part == b"thread-self") {
            return true;
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        match rustix::fs::readlinkat(&at, part.as_slice(), Vec::new()) {
            // What such a link says is a name and not the way that it leads.
            Ok(_) if in_proc => match rustix::fs::openat(&at, part, flags, Mode::empty()) {
                Ok(next) => at = next,
                Err(_) => return false,
            },
            Ok(target) => {
                links += 1;
                if links > LINKS_MAX {
                    return false;
                }
                if target.as_bytes().first() == Some(&b'/') {
                    let Some(top) = root() else { return true };
                    at = top;
                }
                left.extend(parts(target.as_bytes()));
            }
            Err(_) => match rustix::fs::openat(&at, part, flags | OFlags::NOFOLLOW, Mode::empty()) {
                Ok(next) => at = next,
                Err(_) => return false,
            },
        }
    }
    false
}

/// The parts of a path, last one first.
fn parts(path: &[u8]) -> Vec<Vec<u8>> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    parts.rev().map(<[u8]>::to_vec).collect()
}

/// The program by which the kernel starts this one: what `#!` names, or an ELF file's loader.
///
/// # Errors
/// The file cannot be read, and the kernel may be able to.
pub(super) fn started_by(proc: BorrowedFd<'_>, program: &OwnedFd) -> std::io::Result<Option<Vec<u8>>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::openat(proc, format!("self/fd/{}", program.as_raw_fd()), flags, Mode::empty())?;
    let mut head = Vec::with_capacity(4096);
    std::fs::File::from(rustix::io::dup(file.as_fd())?).take(4096).read_to_end(&mut head)?;
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = &line[..line.len().min(SCRIPT_HEAD - 2)];
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let word = line.split(|byte| matches!(byte, b' ' | b'\t' | 0)).find(|word| !word.is_empty());
        return Ok(word.map(<[u8]>::to_vec));
    }
    Ok(loader(&head, |at, bytes| rustix::io::pread(&file, bytes, at).ok()))
}

/// The loader that a 64-bit ELF file names (elf(5): e_phoff, e_phentsize, e_phnum; p_type, p_offset, p_filesz).
fn loader(head: &[u8], read: impl Fn(u64, &mut [u8]) -> Option<usize>) -> Option<Vec<u8>> {
    if !head.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let number = |bytes: &[u8], at: usize, length: usize| -> Option<u64> {
        let mut wide = [0; 8];
        wide[..length].copy_from_slice(bytes.get(at..at.checked_add(length)?)?);
        Some(u64::from_le_bytes(wide))
    };
    let (table, size, count) = (number(head, 32, 8)?, number(head, 54, 2)?, number(head, 56, 2)?);
    for index in 0..count {
        let mut entry = [0; 56];
        if read(table.checked_add(index * size)?, &mut entry)? < entry.len() {
            return None;
        }
        if number(&entry, 0, 4) != Some(u64::from(INTERPRETER)) {
            continue;
        }
        let mut path = vec![0; usize::try_from(number(&entry, 32, 8)?).ok()?.min(4096)];
        let length = read(number(&entry, 8, 8)?, &mut path)?;
        return path[..length].split(|byte| *byte == 0).next().map(<[u8]>::to_vec);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_entries_are_rewritten_and_others_are_not_guessed() {
        let here = |path: &str| match own_view(7, path.as_bytes()) {
            Way::Here(way) => String::from_utf8(way).unwrap(),
            Way::Apart => "apart".to_owned(),
            Way::Unknown => "unknown".to_owned(),
        };
        for (path, way) in [
            ("/src/a", "/src/a"),
            ("/proc/self/cwd/a", "7/cwd/a"),
            ("/proc/self/../self/cwd/a", "unknown"),
            ("/proc/self/task/3/cwd/a", "unknown"),
            ("/proc/self/task/3/comm", "7/task/3/comm"),
            ("/dev/fd/3", "7/fd/3"),
            ("/dev/stdin", "7/fd/0"),
            ("/dev/stdinx", "/dev/stdinx"),
            ("/proc/5/cwd/a", "unknown"),
            ("/proc/cpuinfo", "apart"),
        ] {
            assert_eq!(here(path), way, "{path}");
        }
    }

    #[test]
    fn a_loader_is_found_and_nonsense_is_none() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let read = |at: u64, bytes: &mut [u8]| {
            let from = own.get(usize::try_from(at).ok()?..)?;
            let length = from.len().min(bytes.len());
            bytes[..length].copy_from_slice(&from[..length]);
            Some(length)
        };
        assert!(loader(&own[..4096], read).is_some_and(|path| path.starts_with(b"/lib")));
        assert_eq!(loader(b"\x7fELF\x02", read), None);
        let mut odd = own[..4096].to_vec();
        odd[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(loader(&odd, read), None);
    }
}
