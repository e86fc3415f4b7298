//! A tree that is in no repository as a list in bytes, to be kept beside what was laid out of it, and what leads from such a
//! list to another tree. Where lists are kept is not known here.
#![forbid(unsafe_code)]

use crate::model::digest::Digest;
use crate::tree::{Changes, Content, EntryKind, Snapshot};
use std::collections::HashMap;

/// How a list begins; the number goes up when its form changes.
const FORM: &str = "checkrun.manifest/1 ";

impl Snapshot {
    /// All entries as a list, where the tree was made here; `None` where its objects are in the repository, which is then
    /// the better list.
    #[must_use]
    pub fn manifest(&self) -> Option<Vec<u8>> {
        let Content::Listing(entries) = &self.content else { return None };
        let mut body = Vec::with_capacity(entries.len() * 96);
        for entry in entries.iter() {
            body.extend_from_slice(entry.kind.mode());
            body.push(b' ');
            body.extend_from_slice(entry.id.hex().as_bytes());
            body.push(b'\t');
            body.extend_from_slice(&entry.path);
            // The one byte that no path holds.
            body.push(0);
        }
        let mut list = format!("{FORM}{}\n", Digest::of(&body)).into_bytes();
        list.append(&mut body);
        Some(list)
    }

    /// What makes this tree out of the one that `manifest` lists; `None` if that takes more than `limit` changes, if the
    /// list is not there or not whole, or if this tree is one of a repository's, for which the list is not read. Costs a look at every entry of both, which for a tree
    /// that was made here is little beside making it.
    #[must_use]
    pub fn changes_since_manifest(
        &self,
        manifest: impl FnOnce() -> Option<Vec<u8>>,
        limit: usize,
    ) -> Option<Changes> {
        let Content::Listing(entries) = &self.content else { return None };
        let manifest = manifest()?;
        let at: HashMap<&[u8], usize> =
            entries.iter().enumerate().map(|(index, entry)| (entry.path.as_slice(), index)).collect();
        let mut unchanged = vec![false; entries.len()];
        let mut changes = Changes::default();
        // What is below it goes, or gives way, with it.
        let mut covered: Option<&[u8]> = None;
        for old in records(&manifest)? {
            let old = old?;
            if covered.is_some_and(|above| super::changes::is_below(above, old.path)) {
                continue;
            }
            let Some(index) = at.get(old.path) else {
                changes.gone.push(old.path.to_vec());
                covered = Some(old.path);
                if changes.gone.len() > limit {
                    return None;
                }
                continue;
            };
            let new = &entries[*index];
            // Of a submodule only the empty folder is there, whichever commit it is at.
            let is_submodule = new.kind == EntryKind::Submodule && old.mode == new.kind.mode();
            unchanged[*index] =
                is_submodule || (old.mode == new.kind.mode() && old.id == new.id.hex().as_bytes());
            if !matches!(new.kind, EntryKind::Folder | EntryKind::Submodule) {
                covered = Some(old.path);
            }
        }
        let changed = entries.iter().zip(unchanged).filter(|(_, unchanged)| !unchanged);
        changes.entries = changed.map(|(entry, _)| entry.clone()).take(limit + 1).collect();
        (changes.count() <= limit).then_some(changes)
    }
}

/// One entry of a list.
struct Record<'a> {
    mode: &'a [u8],
    id: &'a [u8],
    path: &'a [u8],
}

/// The entries of a list, `None` for one that cannot be; none at all where the list is not as it was made.
fn records(manifest: &[u8]) -> Option<impl Iterator<Item = Option<Record<'_>>>> {
    let rest = manifest.strip_prefix(FORM.as_bytes())?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let (digest, body) = (std::str::from_utf8(&rest[..end]).ok()?, &rest[end + 1..]);
    if Digest::parse(digest)? != Digest::of(body) {
        return None;
    }
    let lines = body.split(|byte| *byte == 0).filter(|line| !line.is_empty());
    Some(lines.map(|line| {
        let tab = line.iter().position(|byte| *byte == b'\t')?;
        let space = line[..tab].iter().position(|byte| *byte == b' ')?;
        Some(Record { mode: &line[..space], id: &line[space + 1..tab], path: &line[tab + 1..] })
    }))
}

#[cfg(test)]
mod tests {
    use crate::tree::{EntryKind, Source, resolve};
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    fn taken(folder: &Path) -> crate::tree::Snapshot {
        resolve(
            folder,
            &Source::Folder { path: folder.to_owned(), ignored: true },
            &folder.join("../scratch"),
        )
        .unwrap()
    }

    #[test]
    fn what_leads_from_one_list_to_the_next_is_no_more_than_what_changed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("folder");
        let write = |path: &str, text: &str| {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for path in ["a/b/c", "a/b/d", "a/e", "a-file", "gone/x/y", "gone/z", "turns/into/a-file", "turned"] {
            write(path, path);
        }
        symlink("a", folder.join("link")).unwrap();
        let before = taken(&folder);
        let list = before.manifest().unwrap();
        assert_eq!(before.changes_since_manifest(|| Some(list.clone()), 0).unwrap().count(), 0);
        write("a/b/c", "edited");
        write("a/new", "new");
        std::fs::remove_dir_all(folder.join("gone")).unwrap();
        std::fs::remove_dir_all(folder.join("turns")).unwrap();
        write("turns", "a file now");
        std::fs::remove_file(folder.join("turned")).unwrap();
        write("turned/into", "a folder");
        std::fs::set_permissions(folder.join("a-file"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let after = taken(&folder);
        let changes = after.changes_since_manifest(|| Some(list.clone()), 100).unwrap();
        let told = |path: &[u8]| String::from_utf8(path.to_vec()).unwrap();
        let entries: Vec<_> = changes.entries.iter().map(|entry| (told(&entry.path), entry.kind)).collect();
        let expected = [
            ("a-file", EntryKind::Executable),
            ("a", EntryKind::Folder),
            ("a/b", EntryKind::Folder),
            ("a/b/c", EntryKind::File),
            ("a/new", EntryKind::File),
            ("turned", EntryKind::Folder),
            ("turned/into", EntryKind::File),
            ("turns", EntryKind::File),
        ];
        assert_eq!(entries, expected.map(|(path, kind)| (path.to_owned(), kind)));
        assert_eq!(changes.gone.iter().map(|path| told(path)).collect::<Vec<_>>(), ["gone"]);
        assert!(after.changes_since_manifest(|| Some(list.clone()), 8).is_none());
        assert!(after.changes_since_manifest(|| Some(list.clone()), 9).is_some());
        // A list that is not as it was made is none.
        for at in [0, 20, list.len() / 2, list.len() - 2] {
            let mut broken = list.clone();
            broken[at] ^= 1;
            assert!(after.changes_since_manifest(|| Some(broken), 100).is_none(), "{at}");
            assert!(after.changes_since_manifest(|| Some(list[..at].to_vec()), 100).is_none(), "{at}");
        }
    }
}
