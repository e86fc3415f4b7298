//! Layers of installed packages: made of folders that a working tree has, or of what a preparing step has packed up, once
//! for each content, never changed afterwards, and laid under the tree or the home folder of every check that asks for
//! them. What goes into one and which check gets it is `pipeline`'s.
//!
//! A layer is named by the digest of its content: paths, kinds, whether a file is executable, bytes, targets of links. All
//! else is made the same: modes, owner, and times, which are one constant (or a late one, see `LASTING`). Compiled Python files hold the time of their
//! source; those that were right are given the constant, others are left out.
#![forbid(unsafe_code)]

use crate::model::digest::Digest;
use crate::stage::build::Size;
use crate::stage::place::{Builder, Place};
use crate::stage::unpack::unpack;
use crate::stage::{StageError, python};
use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, chmod, chownat, utimensat};
use std::ffi::OsStr;
use std::fs::{self, DirEntry, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The time of all files in such layers: 1980-01-02, the first day that zip archives can name everywhere, and so before
/// any clock that a check is given.
pub(super) const MTIME: u32 = 315_619_200;

/// Layers of packages are flushed to the disk when they are made, so they outlive a boot of the machine.
const BOOT: &str = "any";

/// The time of files that a step has dated later than this: 2100-01-01. Go's build cache goes by the times of its entries
/// (cmd/go/internal/cache, `used` and `Trim`): it writes to those that look unused for an hour, which would copy each into
/// the check's own view, and removes those that look unused for days.
const LASTING: u32 = 4_102_444_800;

/// Where such layers lie and whose they are.
#[derive(Clone, Debug)]
pub struct DepsOptions {
    /// The folder that holds all layers.
    pub root: PathBuf,
    /// Uid and gid that own everything in it; `None` leaves it to the caller's own.
    pub owner: Option<(u32, u32)>,
}

impl DepsOptions {
    fn place(&self, digest: Digest) -> Place {
        let owner = self.owner.map_or("self".to_owned(), |(uid, _)| uid.to_string());
        Place::named(&self.root, &format!("deps-{}-{owner}", digest.hex()), BOOT)
    }

    /// The layer of that content, if it is there.
    #[must_use]
    pub fn existing(&self, digest: Digest) -> Option<PathBuf> {
        self.place(digest).existing().map(|layer| layer.path)
    }
}

/// Whether a layer of packages is as it was made, as [`crate::stage::layer`] looks at trees. One that is not is taken out of
/// its place.
///
/// # Errors
/// It was altered and cannot be taken out of its place.
pub fn is_intact(layer: &Path) -> Result<bool, StageError> {
    let (Some(root), Some(name)) = (layer.parent(), layer.file_name().and_then(OsStr::to_str)) else {
        return Ok(false);
    };
    let place = Place::named(root, name, BOOT);
    if place.is_intact() {
        return Ok(true);
    }
    place.retire(root)?;
    Ok(false)
}

/// A folder of a working tree that becomes part of a layer.
#[derive(Clone, Debug)]
pub struct DepsSource {
    /// Where it is.
    pub host: PathBuf,
    /// Its place in the layer, a relative path.
    pub below: PathBuf,
}

/// What tells whether folders are as they were: names, sizes, inodes and times of all that is in them. And whether it can
/// be trusted from now on: not where something was changed so lately, by `now` in seconds since 1970, that another
/// change could follow within the grain of file times.
///
/// # Errors
/// A folder cannot be listed.
pub fn stamp(sources: &[DepsSource], now: i64) -> Result<(Digest, bool), StageError> {
    let mut hasher = blake3::Hasher::new();
    let mut settled = true;
    for source in sources {
        hasher.update(source.host.as_os_str().as_bytes());
        hasher.update(&[0]);
        hasher.update(source.below.as_os_str().as_bytes());
        hasher.update(&[0]);
        let mut left = vec![source.host.clone()];
        while let Some(folder) = left.pop() {
            for entry in sorted(&folder)? {
                let meta = entry.metadata().map_err(|error| failed("look at", &entry.path(), error))?;
                hasher.update(entry.file_name().as_bytes());
                hasher.update(&[0]);
                for number in [meta.dev(), meta.ino(), meta.size(), u64::from(meta.mode())] {
                    hasher.update(&number.to_le_bytes());
                }
                for number in [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()] {
                    hasher.update(&number.to_le_bytes());
                }
                settled &= meta.ctime() < now.saturating_sub(2);
                if meta.is_dir() {
                    left.push(entry.path());
                }
            }
            hasher.update(&[1]);
        }
    }
    Ok((Digest(*hasher.finalize().as_bytes()), settled))
}

/// Makes the layer of these folders. `roots` are the paths by which they may call the tree that they lie in; files of
/// Python environments that name one of them name `/src` in the layer.
///
/// # Errors
/// A folder cannot be read, or the disk does not take the layer. Nothing is left behind then.
pub fn layer_of_folders(
    sources: &[DepsSource],
    roots: &[PathBuf],
    options: &DepsOptions,
) -> Result<(Digest, PathBuf), StageError> {
    make(options, false, |at| {
        for source in sources {
            let target = at.join(&source.below);
            create_folder(&target)?;
            copy_folder(&source.host, &target)?;
            if source.host.join("pyvenv.cfg").is_file() {
                python::move_environment(&target, roots)?;
            }
        }
        Ok(())
    })
}

/// Makes the layer of an archive (tar(5)) whose members have absolute names; those below a path of `places` go to the
/// relative one beside it, any other is refused.
///
/// # Errors
/// The archive is none or holds what it should not, or the disk does not take the layer. Nothing is left behind then.
pub fn layer_of_archive(
    archive: &Path,
    places: &[(&str, &str)],
    options: &DepsOptions,
) -> Result<(Digest, PathBuf), StageError> {
    make(options, true, |at| unpack(archive, places, at).map_err(|error| failed("unpack", archive, error)))
}

fn make(
    options: &DepsOptions,
    may_last: bool,
    fill: impl FnOnce(&Path) -> Result<(), StageError>,
) -> Result<(Digest, PathBuf), StageError> {
    let builder = Builder::start(&options.root)?;
    let at = builder.path().to_owned();
    let made = fill(&at).and_then(|()| {
        let mut finish =
            Finish { hasher: blake3::Hasher::new(), size: Size::default(), owner: options.owner, may_last };
        finish.folder(&at, Path::new(""))?;
        finish.look(&at, 0o755)?;
        let digest = Digest(*finish.hasher.finalize().as_bytes());
        let folder = File::open(&at).map_err(|error| failed("open", &at, error))?;
        rustix::fs::syncfs(&folder).map_err(|error| failed("flush", &at, error.into()))?;
        Ok((digest, finish.size))
    });
    match made {
        Ok((digest, size)) => {
            let layer = builder.publish(&options.place(digest), size, None)?;
            Ok((digest, layer.path))
        }
        Err(error) => {
            builder.discard();
            Err(error)
        }
    }
}

pub(super) fn failed(action: &'static str, path: &Path, error: io::Error) -> StageError {
    StageError::of_io(action, path, error)
}

pub(super) fn sorted(folder: &Path) -> Result<Vec<DirEntry>, StageError> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<DirEntry>>>);
    let mut entries = entries.map_err(|error| failed("list", folder, error))?;
    entries.sort_by_cached_key(DirEntry::file_name);
    Ok(entries)
}

fn create_folder(path: &Path) -> Result<(), StageError> {
    fs::create_dir_all(path).map_err(|error| failed("make the folder", path, error))
}

/// Copies files, links and folders, with their times; sockets, pipes and devices are left out.
fn copy_folder(from: &Path, to: &Path) -> Result<(), StageError> {
    for entry in sorted(from)? {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let meta = entry.metadata().map_err(|error| failed("look at", &source, error))?;
        if meta.is_dir() {
            create_folder(&target)?;
            copy_folder(&source, &target)?;
        } else if meta.is_symlink() {
            fs::read_link(&source)
                .and_then(|link| std::os::unix::fs::symlink(link, &target))
                .map_err(|error| failed("copy", &source, error))?;
        } else if meta.is_file() {
            copy_file(&source, &target, &meta).map_err(|error| failed("copy", &source, error))?;
        }
    }
    Ok(())
}

fn copy_file(source: &Path, target: &Path, meta: &Metadata) -> io::Result<()> {
    fs::copy(source, target)?;
    fs::set_permissions(target, fs::Permissions::from_mode(meta.mode() & 0o777 | 0o600))?;
    File::options().write(true).open(target)?.set_modified(meta.modified()?)
}

/// Gives all that a layer holds its final look, and digests it on the way.
struct Finish {
    hasher: blake3::Hasher,
    size: Size,
    owner: Option<(u32, u32)>,
    /// Whether files may have the later of the two times: those of a step, which says so; not those of a working tree.
    may_last: bool,
}

impl Finish {
    fn folder(&mut self, folder: &Path, below: &Path) -> Result<(), StageError> {
        if folder.file_name() == Some(OsStr::new("__pycache__")) {
            python::settle_compiled(folder)?;
        }
        // Folders first: compiled Python files are judged by the times of their sources, which are still the old ones.
        let entries = sorted(folder)?;
        let is_folder = |entry: &&DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        for entry in entries.iter().filter(is_folder) {
            let below = below.join(entry.file_name());
            self.note(b'd', &below);
            self.folder(&entry.path(), &below)?;
            self.look(&entry.path(), 0o755)?;
        }
        for entry in entries.iter().filter(|entry| !is_folder(entry)) {
            self.file(&entry.path(), &below.join(entry.file_name()))?;
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, below: &Path) -> Result<(), StageError> {
        let meta = fs::symlink_metadata(path).map_err(|error| failed("look at", path, error))?;
        self.size.files += 1;
        if meta.is_symlink() {
            let target = fs::read_link(path).map_err(|error| failed("read", path, error))?;
            self.note(b'l', below);
            self.note(b' ', &target);
            return self.look(path, 0);
        }
        self.size.bytes += meta.len();
        let executable = meta.mode() & 0o111 != 0;
        self.note(if executable { b'x' } else { b'f' }, below);
        self.hasher.update(&meta.len().to_le_bytes());
        let mut file = File::open(path).map_err(|error| failed("read", path, error))?;
        let mut buffer = vec![0; 65536];
        loop {
            match file.read(&mut buffer).map_err(|error| failed("read", path, error))? {
                0 => break,
                read => drop(self.hasher.update(&buffer[..read])),
            }
        }
        let lasting = self.may_last && meta.mtime() >= i64::from(LASTING);
        if lasting {
            self.note(b't', below);
        }
        self.look_at_time(path, if executable { 0o755 } else { 0o644 }, if lasting { LASTING } else { MTIME })
    }

    fn note(&mut self, kind: u8, path: &Path) {
        let bytes = path.as_os_str().as_bytes();
        self.hasher.update(&[kind]);
        self.hasher.update(&u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
        self.hasher.update(bytes);
    }

    /// Owner, mode (0 for a link, which has none) and the constant time.
    fn look(&self, path: &Path, mode: u32) -> Result<(), StageError> {
        self.look_at_time(path, mode, MTIME)
    }

    fn look_at_time(&self, path: &Path, mode: u32, time: u32) -> Result<(), StageError> {
        let time = Timespec { tv_sec: i64::from(time), tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        let done = (|| {
            if let Some((uid, gid)) = self.owner {
                let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
                chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            if mode != 0 {
                chmod(path, Mode::from_raw_mode(mode))?;
            }
            utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
        })();
        done.map_err(|error| failed("finish", path, error.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An archive of files and, where there is a target, links, whatever their names.
    fn archive(at: &Path, members: &[(&str, Option<&str>)]) -> PathBuf {
        let path = at.join("a.tar");
        let mut builder = tar::Builder::new(File::create(&path).unwrap());
        for (name, link) in members {
            let mut header = tar::Header::new_gnu();
            // Past the library, which refuses such names itself.
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_mode(0o644);
            header.set_mtime(1_000_000_000);
            header.set_entry_type(link.map_or(tar::EntryType::Regular, |_| tar::EntryType::Symlink));
            if let Some(link) = link {
                header.set_link_name_literal(link).unwrap();
            }
            header.set_size(if link.is_some() { 0 } else { 4 });
            header.set_cksum();
            builder.append(&header, if link.is_some() { &b""[..] } else { &b"data"[..] }).unwrap();
        }
        builder.finish().unwrap();
        path
    }

    #[test]
    fn nothing_of_an_archive_gets_out_of_its_layer() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        let options = DepsOptions { root: dir.path().join("trees"), owner: None };
        let places = [("/src", "tree"), ("/home/check", "home")];
        let out = outside.to_str().unwrap();
        for members in [
            vec![("/etc/passwd", None)],
            vec![("/src/../../outside/x", None)],
            vec![("relative", None)],
            vec![("/src/l", Some(out)), ("/src/l/x", None)],
            vec![("/src/l", Some(out)), ("/src/l/deep/x", None)],
            vec![("/src/l", Some(out)), ("/src/l", None)],
        ] {
            let file = archive(dir.path(), &members);
            assert!(layer_of_archive(&file, &places, &options).is_err(), "{members:?}");
            assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{members:?}");
        }
        assert!(fs::read_dir(&options.root).unwrap().next().is_none(), "something half is left");
        // The same content is the same layer, whatever else the archive says.
        let first = archive(dir.path(), &[("/src/n/a", None), ("/home/check/l", Some("/usr/bin/env"))]);
        let (digest, layer) = layer_of_archive(&first, &places, &options).unwrap();
        assert_eq!(fs::read(layer.join("tree/n/a")).unwrap(), b"data");
        let second = archive(dir.path(), &[("/home/check/l", Some("/usr/bin/env")), ("/src/n/a", None)]);
        assert_eq!(layer_of_archive(&second, &places, &options).unwrap(), (digest, layer));
        assert!(options.existing(digest).is_some());
    }
}
