//! Files that Git LFS keeps elsewhere: which they are, and their content where it is kept here. A tree has such a file as a
//! pointer, a few lines of text that name the content by its SHA-256 (the format is LFS's own, `docs/spec.md` there).
//! Nothing is fetched.
#![forbid(unsafe_code)]

use crate::tree::error::{TreeError, show};
use crate::tree::kept::Keeper;
use crate::tree::listing::{self, Leaf, id_of};
use crate::tree::{Content, EntryKind, Snapshot, fill, git_id};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest pointer, in bytes, as LFS itself reads them.
const POINTER_MAX: usize = 1024;

/// What the first line of a pointer is.
const VERSION: &[u8] = b"version https://git-lfs.github.com/spec/v1\n";

/// Which files are LFS's: those that `.gitattributes` give to its filter.
const FILES: &str = ":(top,attr:filter=lfs)";

/// The file that says so.
const ATTRIBUTES: &[u8] = b".gitattributes";

/// What a pointer says.
struct Pointer {
    /// SHA-256 of the content, in hexadecimal digits.
    oid: String,
    /// Bytes of content.
    size: u64,
}

/// Reads a pointer; `None` where the bytes are the file's own content.
fn parse(bytes: &[u8]) -> Option<Pointer> {
    if bytes.len() > POINTER_MAX || !bytes.starts_with(VERSION) {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let oid = value("oid sha256:").filter(|oid| oid.len() == 64 && oid.bytes().all(is_digit))?.to_owned();
    Some(Pointer { oid, size: value("size ")?.parse().ok()? })
}

fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// How many files of the tree are pointers.
pub(super) fn count(snapshot: &Snapshot) -> Result<u64, TreeError> {
    if !may_have(snapshot)? {
        return Ok(0);
    }
    let mut count = 0;
    let mut reader = snapshot.reader();
    let mut bytes = Vec::new();
    for entry in snapshot.entries_matching(FILES)? {
        reader.read(&entry.id, &mut bytes)?;
        count += u64::from(parse(&bytes).is_some());
    }
    Ok(count)
}

/// Whether the root's attributes name the filter; for a listing, which is in memory, whether any do.
fn may_have(snapshot: &Snapshot) -> Result<bool, TreeError> {
    let mut files = Vec::new();
    match &snapshot.content {
        Content::Listing(entries) => {
            let named = entries.iter().filter(|entry| super::split(&entry.path).1 == ATTRIBUTES);
            files.extend(named.map(|entry| (entry.kind, entry.id.clone())));
        }
        Content::Objects(_) => files.extend(snapshot.find(ATTRIBUTES)?),
    }
    let mut reader = snapshot.reader();
    let mut bytes = Vec::new();
    for (kind, id) in files {
        if matches!(kind, EntryKind::File | EntryKind::Executable) {
            reader.read(&id, &mut bytes)?;
            if bytes.windows(10).any(|window| window == b"filter=lfs") {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The tree with the content of every file that LFS keeps elsewhere.
pub(super) fn with_content(snapshot: Snapshot, scratch: &Path) -> Result<Snapshot, TreeError> {
    let hash = git_id(&snapshot.identity.tree)?.kind();
    let stores = fill::stores(&snapshot);
    let keeper = Keeper::new(hash, scratch);
    let mut reader = snapshot.reader();
    let mut bytes = Vec::new();
    let mut contents = std::collections::HashMap::new();
    let mut pointers = Vec::new();
    for entry in snapshot.entries_matching(FILES)? {
        reader.read(&entry.id, &mut bytes)?;
        let Some(pointer) = parse(&bytes) else { continue };
        let id = take(&pointer, &entry.path, &stores, &keeper)?;
        contents.insert(entry.path.clone(), id);
        pointers.push((entry.path, pointer, id));
    }
    if pointers.is_empty() {
        return Ok(snapshot);
    }
    let kept = keeper.finish();
    for (path, pointer, id) in &pointers {
        if let Some(read) = kept.read(id, &mut bytes) {
            read?;
        }
        verify(&bytes, pointer, path)?;
    }
    let mut leaves = Vec::new();
    for entry in snapshot.entries()?.into_iter().filter(|entry| entry.kind != EntryKind::Folder) {
        let id = match contents.get(&entry.path) {
            Some(id) => *id,
            None => git_id(&entry.id)?,
        };
        leaves.push(Leaf { path: entry.path, kind: entry.kind, id });
    }
    let (tree, entries) = listing::build(leaves, hash)?;
    let mut filled = snapshot;
    if !filled.identity.dirty {
        filled.head = filled.head.or(Some(git_id(&filled.identity.tree)?));
    }
    filled.identity.tree = id_of(&tree);
    filled.kept.push(Arc::new(kept));
    filled.content = Content::Listing(Arc::new(entries));
    Ok(filled)
}

fn take(
    pointer: &Pointer,
    path: &[u8],
    stores: &[PathBuf],
    keeper: &Keeper<'_>,
) -> Result<gix::ObjectId, TreeError> {
    for store in stores {
        let place = store.join(&pointer.oid[..2]).join(&pointer.oid[2..4]).join(&pointer.oid);
        match File::open(&place) {
            Ok(mut file) => return keeper.keep_file(&mut file, None, path, &place),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(TreeError::io("read", place, error)),
        }
    }
    Err(TreeError::LfsMissing { path: show(path), oid: pointer.oid.clone() })
}

/// The copy that was kept is what is looked at, so that nothing can change between the look and the use.
fn verify(bytes: &[u8], pointer: &Pointer, path: &[u8]) -> Result<(), TreeError> {
    let mut hasher = gix::hash::hasher(gix::hash::Kind::Sha256);
    hasher.update(bytes);
    let digest = hasher.try_finalize().map_err(|_| TreeError::Collision { path: show(path) })?;
    let named = gix::ObjectId::from_hex(pointer.oid.as_bytes());
    if u64::try_from(bytes.len()) == Ok(pointer.size) && named.is_ok_and(|named| named == digest) {
        return Ok(());
    }
    Err(TreeError::Damaged {
        id: pointer.oid.clone(),
        what: format!("the LFS content of `{}`", show(path)),
        detail: format!("it has {} bytes and the SHA-256 {digest}", bytes.len()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pointer_is_taken_for_one() {
        let oid = "0123456789abcdef".repeat(4);
        let text = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 12\n");
        let pointer = parse(text.as_bytes()).unwrap();
        assert_eq!((pointer.oid.as_str(), pointer.size), (oid.as_str(), 12));
        for other in [
            text.replace("spec/v1", "spec/v2"),
            text.replace("sha256:01", "sha256:.."),
            text.replace("size 12", "size -1"),
            text.replace("size 12\n", ""),
            format!("{text}{}", "x\n".repeat(POINTER_MAX)),
            String::new(),
        ] {
            assert!(parse(other.as_bytes()).is_none(), "{other}");
        }
    }
}
