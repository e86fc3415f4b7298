//! Whether a layer is still as it was made, told without reading it: one stamp for each of its folders, over what every
//! entry of that folder is (name, inode, kind and mode, owner, size, times). Content cannot be changed without its ctime,
//! which no call sets (inode(7)); what sets the machine's clock back to hide a change, or writes to the disk below the
//! file system, is not noticed. Where stamps are kept is `place`'s.
#![forbid(unsafe_code)]

use crate::model::digest::Digest;
use crate::model::path::below;
use crate::tree::open_folder;
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, Dir, FileType, statat};
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write as _};

/// Entries that are looked at before a layer is used: all, where it has no more (a few milliseconds), else folders from a
/// place on that is another each time until there were so many. One changed file among 100,000 is then noticed by one use
/// in twelve, a change all over (another owner, a copy put back) by every use.
const LOOKED_AT: usize = 8192;

/// Bytes of a path and of a name in it, each with what ends it (limits.h(0p)).
const PATH_LONGEST: usize = 4096;
const NAME_LONGEST: usize = 256;

/// Hex digits of a stamp: 128 bits.
const DIGITS: usize = 32;

/// One folder of a layer: its path and its stamp.
#[derive(PartialEq, Eq, Debug)]
struct Folder {
    path: Vec<u8>,
    stamp: String,
    /// What it has, where it need not be listed to know: another name in it changes its own ctime (inode(7)), which is in the
    /// stamp of the folder above, and that is looked at too. Empty where it is to be listed.
    names: Vec<Vec<u8>>,
}

/// All folders of a layer.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Stamps(Vec<Folder>);

/// What a look at the entries of one folder gives.
struct Seen {
    stamp: String,
    folders: Vec<Vec<u8>>,
}

impl Stamps {
    /// Stamps every folder below `root`.
    ///
    /// # Errors
    /// One of them cannot be listed.
    pub(super) fn take(root: BorrowedFd<'_>) -> io::Result<Self> {
        let mut folders = Vec::new();
        let mut open = vec![Vec::new()];
        let mut entries = 0;
        while let Some(path) = open.pop() {
            let (folder, names) = list(root, &path)?;
            let seen = look(folder.fd()?, b"", &names)?;
            open.extend(seen.folders.iter().map(|name| below(&path, name)));
            entries += names.len() + 1;
            folders.push(Folder { path, stamp: seen.stamp, names });
        }
        for folder in &mut folders {
            // The outermost one is in no other's stamp, and a path of a deep tree may be longer than a call takes (path_resolution(7)).
            let is_named = !folder.path.is_empty() && folder.path.len() < PATH_LONGEST - NAME_LONGEST;
            if entries > LOOKED_AT || !is_named {
                folder.names.clear();
            }
        }
        Ok(Self(folders))
    }

    /// Whether the folders below `root` are as they were stamped, as far as they are looked at.
    pub(super) fn hold(&self, root: BorrowedFd<'_>) -> bool {
        let count = self.0.len();
        let start = usize::try_from(RandomState::new().hash_one(count) >> 8).unwrap_or(0) % count.max(1);
        let mut looked_at = 0;
        for folder in self.0.iter().cycle().skip(start).take(count) {
            match folder.look_again(root) {
                Ok((stamp, entries)) if stamp == folder.stamp => looked_at += entries + 1,
                _ => return false,
            }
            if looked_at > LOOKED_AT {
                break;
            }
        }
        count > 0
    }

    /// As lines of text, one for each folder; paths and names in hex digits, since they are bytes.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for folder in &self.0 {
            text.push_str(&folder.stamp);
            for bytes in std::iter::once(&folder.path).chain(&folder.names) {
                text.push(' ');
                for byte in bytes {
                    // A string takes whatever is written.
                    let _ = write!(text, "{byte:02x}");
                }
            }
            text.push('\n');
        }
        text
    }

    /// From its text; `None` where that is not whole.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let folders = text.strip_suffix('\n')?.split('\n').map(|line| {
            let mut words = line.split(' ');
            let stamp = words.next().filter(|stamp| stamp.len() == DIGITS)?.to_owned();
            let path = bytes_of(words.next()?)?;
            let names = words.map(|word| bytes_of(word).filter(|name| !name.is_empty()));
            Some(Folder { path, stamp, names: names.collect::<Option<_>>()? })
        });
        folders.collect::<Option<_>>().map(Self)
    }
}

impl Folder {
    /// Its stamp as it is now, and how many entries were looked at for it.
    fn look_again(&self, root: BorrowedFd<'_>) -> io::Result<(String, usize)> {
        if self.names.is_empty() {
            let (folder, names) = list(root, &self.path)?;
            return Ok((look(folder.fd()?, b"", &names)?.stamp, names.len()));
        }
        Ok((look(root, &self.path, &self.names)?.stamp, self.names.len()))
    }
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    };
    pairs.map(byte).collect()
}

/// A folder below `root`, and its names in order.
fn list(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<(Dir, Vec<Vec<u8>>)> {
    let mut listing =
        if path.is_empty() { Dir::read_from(root)? } else { Dir::new(open_folder(root, path)?)? };
    let mut names = Vec::new();
    while let Some(entry) = listing.read() {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok((listing, names))
}

/// Looks at the entries of the folder `path` below `root` that have these names.
fn look(root: BorrowedFd<'_>, path: &[u8], names: &[Vec<u8>]) -> io::Result<Seen> {
    let (mut seen, mut folders) = (Vec::new(), Vec::new());
    for name in names {
        let found = statat(root, below(path, name), AtFlags::SYMLINK_NOFOLLOW)?;
        let is_folder = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        // The size of a folder is the file system's own affair.
        let size = if is_folder { 0 } else { found.st_size };
        seen.extend_from_slice(name);
        writeln!(
            seen,
            "\0{} {:o} {}:{} {size} {}.{} {}.{}",
            found.st_ino,
            found.st_mode,
            found.st_uid,
            found.st_gid,
            found.st_mtime,
            found.st_mtime_nsec,
            found.st_ctime,
            found.st_ctime_nsec,
        )?;
        if is_folder {
            folders.push(name.clone());
        }
    }
    let mut stamp = Digest::of(&seen).hex();
    stamp.truncate(DIGITS);
    Ok(Seen { stamp, folders })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::open_root;
    use rustix::fd::AsFd as _;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn every_kind_of_change_is_noticed_and_reading_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let write = |name: &str, text: &str| std::fs::write(at(name), text).unwrap();
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::fs::create_dir(dir.path().join(std::ffi::OsStr::from_bytes(b"a/\n\xff"))).unwrap();
        write("a/b/f", "12345");
        write("g", "1");
        std::os::unix::fs::symlink("g", at("link")).unwrap();
        let times = std::fs::metadata(at("a/b/f")).unwrap();
        let keep_time = |name: &str| {
            let file = std::fs::File::options().write(true).open(at(name)).unwrap();
            file.set_modified(times.modified().unwrap()).unwrap();
        };
        let changes: [(&str, &dyn Fn()); 12] = [
            ("content of the same length and time", &|| {
                write("a/b/f", "54321");
                keep_time("a/b/f");
            }),
            ("length", &|| write("g", "22")),
            ("mode", &|| {
                std::fs::set_permissions(at("g"), PermissionsExt::from_mode(0o600)).unwrap();
            }),
            ("a new file", &|| write("a/b/new", "")),
            ("a new file in the outermost folder", &|| write("new", "")),
            ("a new folder", &|| std::fs::create_dir(at("a/b/c")).unwrap()),
            ("a new file where there was none", &|| write("a/b/c/new", "")),
            ("a file gone", &|| std::fs::remove_file(at("a/b/new")).unwrap()),
            ("another link", &|| {
                std::fs::remove_file(at("link")).unwrap();
                std::os::unix::fs::symlink("f", at("link")).unwrap();
            }),
            ("another name", &|| std::fs::rename(at("g"), at("h")).unwrap()),
            ("an exchange", &|| {
                std::fs::write(at("copy"), "54321").unwrap();
                std::fs::rename(at("copy"), at("a/b/f")).unwrap();
            }),
            ("a folder gone", &|| std::fs::remove_dir_all(at("a/b")).unwrap()),
        ];
        let root = open_root(dir.path()).unwrap();
        for (what, change) in changes {
            let stamps = Stamps::take(root.as_fd()).unwrap();
            drop(std::fs::read(at("a/b/f")));
            assert!(std::fs::read_dir(at("a")).unwrap().count() < 9);
            assert!(stamps.hold(root.as_fd()), "before {what}");
            // Before Linux 6.13 two changes in one tick of the kernel's clock have the same ctime.
            std::thread::sleep(std::time::Duration::from_millis(20));
            change();
            assert!(!stamps.hold(root.as_fd()), "{what}");
        }
    }

    #[test]
    fn names_may_be_longer_than_a_path_takes_and_more_than_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let root = open_root(dir.path()).unwrap();
        let name = "n".repeat(250);
        let mut folder = root.as_fd().try_clone_to_owned().unwrap();
        for _ in 0..16 {
            rustix::fs::mkdirat(&folder, &name, rustix::fs::Mode::RWXU).unwrap();
            folder = open_folder(folder.as_fd(), name.as_bytes()).unwrap();
        }
        rustix::fs::mkdirat(&folder, &name, rustix::fs::Mode::RWXU).unwrap();
        let stamps = Stamps::take(root.as_fd()).unwrap();
        assert!(stamps.hold(root.as_fd()), "a path of 4,015 bytes, and a name of 250 below it");
        for number in 0..LOOKED_AT {
            std::fs::write(dir.path().join(number.to_string()), "").unwrap();
        }
        let many = Stamps::take(root.as_fd()).unwrap();
        assert!(many.hold(root.as_fd()) && many.0.iter().all(|folder| folder.names.is_empty()));
    }

    #[test]
    fn what_is_written_is_read_back_and_nothing_less() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b c")).unwrap();
        let root = open_root(dir.path()).unwrap();
        let stamps = Stamps::take(root.as_fd()).unwrap();
        let text = stamps.to_text();
        assert_eq!(Stamps::parse(&text).as_ref(), Some(&stamps));
        for end in 0..text.len() {
            // A cut at the end of a line leaves whole lines; their number is `place`'s to know.
            assert!(text[..end].ends_with('\n') || Stamps::parse(&text[..end]).is_none(), "cut at {end}");
        }
    }

    proptest::proptest! {
        /// Foreign bytes: no panic.
        #[test]
        fn any_text_is_read_without_a_panic(text in "([0-9a-f]{32}|[0-9a-z]{0,3})[ \n]([0-9a-f\u{e9}\n]{0,20})") {
            let _ = Stamps::parse(&text).is_some();
        }
    }
}
