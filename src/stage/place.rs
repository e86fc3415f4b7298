//! Where layers lie, how a new one takes its place in one step, and how the remains of dead builders are found. What is
//! written into a layer is `build`'s.
//!
//! A builder works in `.new-PID-N` beside the layers and holds a lock (flock(2)) on that folder, which ends with the
//! process; a folder of that name without a lock is the remains of a dead builder. A finished folder is renamed to its
//! final name and a file beside it, `NAME.meta`, says under which boot it was made, which layer it lies over and what
//! stamp each of its folders has (`stamp`); for a tree that no repository has, `NAME.list` says what is in it. A layer counts only with that file, and only while the one below it counts. Both steps are taken under a lock on the
//! folder of all layers, and so is the removal of layers.
#![forbid(unsafe_code)]

use crate::model::digest::ObjectId;
use crate::stage::base::MAX_STACK;
use crate::stage::build::{Size, Work};
use crate::stage::error::StageError;
use crate::stage::removal::remove_folder;
use crate::stage::stamp::Stamps;
use crate::stage::{Layer, LayerOptions};
use crate::tree::open_root;
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{FlockOperation, Mode, flock};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// First line of the file beside a layer; the number goes up when its form or that of layers changes.
const META: &str = "checkrun.layer/3";

/// What names of unfinished folders begin with.
pub(super) const NEW: &str = ".new-";

/// What is added to a layer's name for the name of the file beside it.
pub(super) const META_SUFFIX: &str = ".meta";

/// What is added to a layer's name for the name of the list of its tree, where no repository has that tree.
const MANIFEST_SUFFIX: &str = ".list";

/// What the name of a layer has behind the tree's id: the time of its files and their owner.
pub(super) fn suffix(options: &LayerOptions) -> String {
    let owner = options.owner.map_or("self".to_owned(), |(uid, _)| uid.to_string());
    format!("-{}-{owner}", options.mtime)
}

/// The place of one layer.
pub(super) struct Place {
    path: PathBuf,
    meta: PathBuf,
    boot_id: String,
}

impl Place {
    pub(super) fn new(tree: &ObjectId, options: &LayerOptions) -> Self {
        Self::named(&options.root, &format!("{}{}", tree.hex(), suffix(options)), &options.boot_id)
    }

    pub(super) fn named(root: &Path, name: &str, boot_id: &str) -> Self {
        let (path, meta) = (root.join(name), root.join(format!("{name}{META_SUFFIX}")));
        Self { path, meta, boot_id: boot_id.to_owned() }
    }

    /// The layer, if it is there and was made since the machine was started.
    pub(super) fn existing(&self) -> Option<Layer> {
        self.existing_over(MAX_STACK)
    }

    /// The layer, if it lies over fewer than `most` others.
    fn existing_over(&self, most: usize) -> Option<Layer> {
        let text = std::fs::read_to_string(&self.meta).ok()?;
        let Meta { size, base, .. } = parse_meta(&text, &self.boot_id)?;
        if most == 0 || !std::fs::symlink_metadata(&self.path).is_ok_and(|found| found.is_dir()) {
            return None;
        }
        let (mut below, mut bottom_files) = (Vec::new(), size.files);
        if let Some(base) = base {
            let base = Self::named(self.path.parent()?, base, &self.boot_id).existing_over(most - 1)?;
            below = base.stack();
            bottom_files = base.bottom_files;
        }
        Some(Layer { path: self.path.clone(), below, bottom_files, files: size.files, bytes: size.bytes })
    }

    /// Whether its folder is as it was made, as far as its stamps are looked at; those below are not.
    pub(super) fn is_intact(&self) -> bool {
        let Ok(text) = std::fs::read_to_string(&self.meta) else { return false };
        let stamps = parse_meta(&text, &self.boot_id).and_then(|meta| Stamps::parse(meta.stamps));
        match (stamps, open_root(&self.path)) {
            (Some(stamps), Ok(root)) => stamps.hold(root.as_fd()),
            _ => false,
        }
    }

    /// The list of its tree, where one is kept.
    pub(super) fn manifest(&self) -> Option<Vec<u8>> {
        std::fs::read(beside(&self.path, MANIFEST_SUFFIX)).ok()
    }

    /// Keeps the list of its tree. Without it later trees cost more, so that what goes wrong here does not count.
    pub(super) fn keep_manifest(&self, root: &Path, manifest: &[u8]) {
        let Ok(_all) = lock_all(root) else { return };
        let new = root.join(format!("{NEW}list"));
        let list = beside(&self.path, MANIFEST_SUFFIX);
        let kept = std::fs::write(&new, manifest).and_then(|()| std::fs::rename(&new, &list));
        if kept.is_err() {
            remove(&new);
        }
    }

    /// Takes it out of its place unless it is intact after all. Runs that use it keep what they have open: only where
    /// there are none is it removed at once, else by a later sweep.
    pub(super) fn retire(&self, root: &Path) -> Result<(), StageError> {
        let all = lock_all(root)?;
        if self.is_intact() {
            return Ok(());
        }
        remove_beside(&self.path);
        let grave = grave(root)?;
        if std::fs::rename(&self.path, &grave).is_err() {
            // Somebody else did.
            remove(&grave);
            return Ok(());
        }
        drop(all);
        if let Ok(folder) = open_root(&grave)
            && flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            remove(&grave);
        }
        Ok(())
    }
}

/// What the file beside a layer says.
#[derive(PartialEq, Eq, Debug)]
struct Meta<'a> {
    size: Size,
    /// Name of the layer that it lies over.
    base: Option<&'a str>,
    /// Text of the stamps of its folders.
    stamps: &'a str,
}

fn format_meta(meta: &Meta<'_>, boot_id: &str) -> String {
    let Meta { size, base, stamps } = meta;
    let base = base.unwrap_or("-");
    let (files, bytes, folders) = (size.files, size.bytes, stamps.lines().count());
    format!("{META}\nboot {boot_id}\nfiles {files}\nbytes {bytes}\nbase {base}\nfolders {folders}\n{stamps}")
}

/// What the file says, if the layer was made under `boot_id`.
fn parse_meta<'a>(text: &'a str, boot_id: &str) -> Option<Meta<'a>> {
    let mut lines = text.splitn(7, '\n');
    let mut field = |name: &str| lines.next().and_then(|line| line.strip_prefix(name));
    field(META).filter(|rest| rest.is_empty())?;
    field("boot ").filter(|boot| *boot == boot_id)?;
    let files = field("files ")?.parse().ok()?;
    let bytes = field("bytes ")?.parse().ok()?;
    let base = field("base ").map(|base| Some(base).filter(|base| *base != "-"))?;
    let folders: usize = field("folders ")?.parse().ok()?;
    let stamps = lines.next()?;
    // The last line is whole only if its end is there.
    let whole = stamps.ends_with('\n') && stamps.lines().count() == folders;
    whole.then_some(Meta { size: Size { files, bytes }, base, stamps })
}

/// The name of the layer that another lies over, from the text of its meta file, whatever boot it was made under.
pub(super) fn base_of(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("base ")).filter(|base| *base != "-")
}

/// Bytes of file content that a layer holds, from the text of its meta file, whatever boot it was made under.
pub(super) fn bytes_of(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("bytes ")?.parse().ok())
}

/// A folder that a layer is made in.
pub(super) struct Builder {
    root: PathBuf,
    path: PathBuf,
    /// Holds the lock.
    fd: OwnedFd,
}

impl Builder {
    pub(super) fn start(root: &Path) -> Result<Self, StageError> {
        std::fs::create_dir_all(root).map_err(|error| StageError::of_io("make the folder", root, error))?;
        // A sweeper may take a new folder for remains in the moment before it is locked; then the next name is tried.
        loop {
            let path = new_folder(root)?;
            let Ok(fd) = open_root(&path) else { continue };
            let locked = flock(&fd, FlockOperation::NonBlockingLockExclusive);
            match locked {
                Ok(()) if is_at(&fd, &path) => return Ok(Self { root: root.to_owned(), path, fd }),
                Ok(()) | Err(Errno::AGAIN) => {}
                Err(error) => {
                    remove(&path);
                    return Err(StageError::of_io("lock", path, error));
                }
            }
        }
    }

    pub(super) fn work(&self, options: &LayerOptions) -> Work<'_> {
        Work { root: self.fd.as_fd(), path: &self.path, mtime: options.mtime, owner: options.owner }
    }

    /// Where it is while it is made.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the finished folder its final name. If another process was faster, its layer is taken.
    pub(super) fn publish(
        self,
        place: &Place,
        size: Size,
        base: Option<&Layer>,
    ) -> Result<Layer, StageError> {
        let published = self.stamped().and_then(|stamps| self.take_place(place, size, base, &stamps));
        match &published {
            Ok(Taken::Ours) => {}
            // The folder at our own path is then one that is not wanted: ours, or the torn one that was exchanged for it.
            Ok(Taken::Theirs(_) | Taken::Replaced) | Err(_) => remove(&self.path),
        }
        match published? {
            Taken::Theirs(layer) => Ok(layer),
            Taken::Ours | Taken::Replaced => {
                let (files, bytes) = (size.files, size.bytes);
                let below = base.map(Layer::stack).unwrap_or_default();
                let bottom_files = base.map_or(files, |base| base.bottom_files);
                Ok(Layer { path: place.path.clone(), below, bottom_files, files, bytes })
            }
        }
    }

    fn stamped(&self) -> Result<String, StageError> {
        let stamps = Stamps::take(self.fd.as_fd());
        Ok(stamps.map_err(|error| StageError::of_io("look through", &self.path, error))?.to_text())
    }

    fn take_place(
        &self,
        place: &Place,
        size: Size,
        base: Option<&Layer>,
        stamps: &str,
    ) -> Result<Taken, StageError> {
        // Held until it is dropped at the end.
        let _all = lock_all(&self.root)?;
        if let Some(layer) = place.existing() {
            return Ok(Taken::Theirs(layer));
        }
        match std::fs::remove_file(&place.meta) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StageError::of_io("remove", &place.meta, error));
            }
            _ => {}
        }
        // Written first, so that a full disk is noticed before the folder has its name. Nobody else writes it under the lock.
        let meta = self.root.join(format!("{NEW}meta"));
        let base = base.and_then(|base| base.path.file_name()).and_then(|name| name.to_str());
        std::fs::write(&meta, format_meta(&Meta { size, base, stamps }, &place.boot_id))
            .map_err(|error| StageError::of_io("write", &meta, error))?;
        let taken =
            self.rename(place).map_err(|error| StageError::of_io("make the layer", &place.path, error))?;
        std::fs::rename(&meta, &place.meta)
            .map_err(|error| StageError::of_io("write", &place.meta, error))?;
        Ok(taken)
    }

    /// Gives the folder its name, exchanging it for a torn one if that is there.
    fn rename(&self, place: &Place) -> std::io::Result<Taken> {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        match renameat_with(CWD, &self.path, CWD, &place.path, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(Taken::Ours),
            Err(Errno::EXIST) => {
                match renameat_with(CWD, &self.path, CWD, &place.path, RenameFlags::EXCHANGE) {
                    Ok(()) => Ok(Taken::Replaced),
                    Err(Errno::INVAL | Errno::NOSYS) => self.rename_plainly(place),
                    Err(error) => Err(error.into()),
                }
            }
            Err(Errno::INVAL | Errno::NOSYS) => self.rename_plainly(place),
            Err(error) => Err(error.into()),
        }
    }

    /// Not every file system knows the flags of renameat2(2); without them a rename replaces nothing but an empty folder.
    fn rename_plainly(&self, place: &Place) -> std::io::Result<Taken> {
        remove(&place.path);
        std::fs::rename(&self.path, &place.path)?;
        Ok(Taken::Ours)
    }

    pub(super) fn discard(self) {
        remove(&self.path);
    }
}

enum Taken {
    Ours,
    Replaced,
    Theirs(Layer),
}

/// Takes the lock under which layers come and go; it ends with the descriptor.
pub(super) fn lock_all(root: &Path) -> Result<OwnedFd, StageError> {
    let all = open_root(root).map_err(|error| StageError::of_io("open", root, error))?;
    flock(&all, FlockOperation::LockExclusive).map_err(|error| StageError::of_io("lock", root, error))?;
    Ok(all)
}

/// The file that belongs to a layer and has `suffix` behind its name.
pub(super) fn beside(layer: &Path, suffix: &str) -> PathBuf {
    let mut name = layer.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Removes the files that belong to a layer.
pub(super) fn remove_beside(layer: &Path) {
    for suffix in [META_SUFFIX, MANIFEST_SUFFIX] {
        // Mostly there is no list.
        let _ = std::fs::remove_file(beside(layer, suffix)).is_ok();
    }
}

/// A name for what is about to be removed, which a sweeper finds if we die on the way.
pub(super) fn grave(root: &Path) -> Result<PathBuf, StageError> {
    new_folder(root)
}

fn new_folder(root: &Path) -> Result<PathBuf, StageError> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = root.join(format!("{NEW}{}-{number}", std::process::id()));
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) => return Ok(path),
            // Process ids are used again, also by processes of other containers that share the cache.
            Err(Errno::EXIST) => {}
            Err(error) => return Err(StageError::of_io("make the folder", path, error)),
        }
    }
}

/// Whether the folder is still the one that lies at `path`.
pub(super) fn is_at(fd: &OwnedFd, path: &Path) -> bool {
    match (rustix::fs::fstat(fd), rustix::fs::lstat(path)) {
        (Ok(ours), Ok(there)) => ours.st_dev == there.st_dev && ours.st_ino == there.st_ino,
        _ => false,
    }
}

/// Removes a file or folder as far as that goes; what stays is found by a later sweep.
pub(super) fn remove(path: &Path) {
    if remove_folder(path).is_err() {
        // Also tried on what was there already half removed; a second failure is for a later sweep to mend.
        let _ = std::fs::remove_file(path).is_ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_beside_a_layer_is_believed_only_if_it_is_whole_and_of_this_boot() {
        let size = Size { files: 3, bytes: 41 };
        for base in [None, Some("below")] {
            let meta = Meta { size, base, stamps: "ab \ncd 2f\n" };
            let text = format_meta(&meta, "boot-1");
            assert_eq!(parse_meta(&text, "boot-1"), Some(meta));
            assert_eq!((bytes_of(&text), base_of(&text)), (Some(41), base));
            assert_eq!(parse_meta(&text, "boot-2"), None);
            for end in 0..text.len() {
                assert_eq!(parse_meta(&text[..end], "boot-1"), None, "cut at {end}");
            }
            assert_eq!(parse_meta(&"\0".repeat(text.len()), "boot-1"), None);
        }
    }
}
