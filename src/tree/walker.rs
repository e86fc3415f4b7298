//! Looking at single places of a snapshot's tree, many of them, without listing all of it: each folder is read once.
#![forbid(unsafe_code)]

use crate::model::digest::{Digest, ObjectId};
use crate::tree::{Content, EntryKind, Snapshot, TreeError, git_id, objects};
use std::collections::HashMap;
use std::rc::Rc;

/// What is at a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Spot {
    /// Nothing.
    Absent,
    /// The way there leads through a symbolic link.
    BehindLink,
    /// An entry.
    Entry(EntryKind, ObjectId),
}

/// The entries of one folder, by name: looked up by the thousand, so that none is an allocation of its own.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Names, each with the entry's id behind it.
    bytes: Vec<u8>,
    /// In the order of their names.
    entries: Vec<Place>,
}

/// Where one entry is: its name from `name` to `id`, and its id from there to `end`.
#[derive(Clone, Copy, Debug)]
struct Place {
    kind: EntryKind,
    name: usize,
    id: usize,
    end: usize,
}

impl Names {
    /// What is there under that name, and its id. `near` says where to look first, and is then where the next name is: names
    /// that are asked for in order are found by one comparison each.
    pub(crate) fn near(&self, name: &[u8], near: &mut usize) -> Option<(EntryKind, &[u8])> {
        let is_it = |place: &&Place| self.name(place) == name;
        let place = match self.entries.get(*near).filter(is_it) {
            Some(place) => place,
            None => {
                *near = self.entries.partition_point(|place| self.name(place) < name);
                self.entries.get(*near).filter(is_it)?
            }
        };
        *near += 1;
        Some((place.kind, self.bytes.get(place.id..place.end)?))
    }

    fn get(&self, name: &[u8]) -> Option<(EntryKind, &[u8])> {
        self.near(name, &mut self.entries.len())
    }

    fn add(&mut self, name: &[u8], kind: EntryKind, id: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(id);
        self.entries.push(Place { kind, name: start, id: start + name.len(), end: self.bytes.len() });
    }

    /// Brings them in order; of several with one name, which no proper folder has, the last stays.
    fn sorted(mut self) -> Self {
        let Self { bytes, entries } = &mut self;
        let name = |place: &Place| bytes.get(place.name..place.id).unwrap_or_default();
        entries.sort_by(|one, other| name(one).cmp(name(other)));
        entries.dedup_by(|later, kept| {
            let same = name(later) == name(kept);
            if same {
                *kept = *later;
            }
            same
        });
        self
    }

    fn name(&self, place: &Place) -> &[u8] {
        self.bytes.get(place.name..place.id).unwrap_or_default()
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], EntryKind)> {
        self.entries.iter().map(|place| (self.name(place), place.kind))
    }
}

pub(crate) type Folder = Rc<Names>;

/// Walks one snapshot.
#[derive(Debug)]
pub struct Walker<'s> {
    snapshot: &'s Snapshot,
    folders: HashMap<Vec<u8>, Option<Folder>>,
}

impl<'s> Walker<'s> {
    /// A walker that has read nothing yet.
    #[must_use]
    pub fn new(snapshot: &'s Snapshot) -> Self {
        let mut folders = HashMap::new();
        if let Content::Listing(entries) = &snapshot.content {
            let mut all: HashMap<Vec<u8>, Names> = HashMap::new();
            all.insert(Vec::new(), Names::default());
            for entry in entries.iter() {
                let (above, name) = crate::tree::split(&entry.path);
                if entry.kind == EntryKind::Folder {
                    all.entry(entry.path.clone()).or_default();
                }
                all.entry(above.to_vec()).or_default().add(name, entry.kind, entry.id.as_bytes());
            }
            folders = all.into_iter().map(|(path, names)| (path, Some(Rc::new(names.sorted())))).collect();
        }
        Self { snapshot, folders }
    }

    /// What is at `path`, taken literally: no link is followed. The root is the empty path.
    ///
    /// # Errors
    /// A tree object on the way is missing or damaged.
    pub fn at(&mut self, path: &[u8]) -> Result<Spot, TreeError> {
        if path.is_empty() {
            return Ok(Spot::Entry(EntryKind::Folder, self.snapshot.identity().tree.clone()));
        }
        let (above, name) = crate::tree::split(path);
        if let Some(folder) = self.folder(above)? {
            let found = folder.get(name);
            return Ok(found.map_or(Spot::Absent, |(kind, id)| Spot::Entry(kind, ObjectId::new(id))));
        }
        // No folder there: is it nothing at all, a file, or a link that could lead on?
        Ok(match self.at(above)? {
            Spot::Entry(EntryKind::Symlink, _) | Spot::BehindLink => Spot::BehindLink,
            _ => Spot::Absent,
        })
    }

    /// A digest of the names and kinds in the folder at `path`; `None` where no folder is.
    ///
    /// # Errors
    /// As [`Walker::at`].
    pub fn names(&mut self, path: &[u8]) -> Result<Option<Digest>, TreeError> {
        let Some(folder) = self.folder(path)? else { return Ok(None) };
        let mut hasher = blake3::Hasher::new();
        for (name, kind) in folder.iter() {
            // The executable bit is not seen in a listing (readdir(3), d_type).
            let kind = if kind == EntryKind::Executable { EntryKind::File } else { kind };
            hasher.update(kind.mode());
            hasher.update(&[0]);
            hasher.update(name);
            hasher.update(&[0]);
        }
        Ok(Some(Digest(*hasher.finalize().as_bytes())))
    }

    /// Names of all that is in the folder at `path`; `None` where no folder is.
    ///
    /// # Errors
    /// As [`Walker::at`].
    pub fn children(&mut self, path: &[u8]) -> Result<Option<Vec<Vec<u8>>>, TreeError> {
        Ok(self.folder(path)?.map(|folder| folder.iter().map(|(name, _)| name.to_vec()).collect()))
    }

    /// The target of the symbolic link whose blob is `id`.
    ///
    /// # Errors
    /// The blob is missing or damaged.
    pub fn link_target(&self, id: &ObjectId) -> Result<Vec<u8>, TreeError> {
        let mut target = Vec::new();
        self.snapshot.reader().read(id, &mut target)?;
        Ok(target)
    }

    /// The folder at `path`; `None` where no folder is.
    ///
    /// # Errors
    /// As [`Walker::at`].
    pub(crate) fn folder(&mut self, path: &[u8]) -> Result<Option<Folder>, TreeError> {
        if let Some(known) = self.folders.get(path) {
            return Ok(known.clone());
        }
        let found = match (&self.snapshot.content, &self.snapshot.repository) {
            (Content::Objects(root), Some(repository)) if path.is_empty() => {
                Some(names_of(root, repository)?)
            }
            (Content::Objects(_), Some(repository)) => match self.at(path)? {
                Spot::Entry(EntryKind::Folder, id) => {
                    let id = git_id(&id)?;
                    let mut bytes = Vec::new();
                    objects::load(repository, &id, &mut bytes, &|| {
                        format!("folder `{}`", crate::tree::show(path))
                    })?;
                    Some(names_of(&bytes, repository)?)
                }
                _ => None,
            },
            // A listing was taken apart when it was given to us.
            _ => None,
        };
        let found = found.map(Rc::new);
        self.folders.insert(path.to_vec(), found.clone());
        Ok(found)
    }
}

fn names_of(bytes: &[u8], repository: &gix::Repository) -> Result<Names, TreeError> {
    let mut names = Names::default();
    objects::each_child(bytes, repository.object_hash(), &mut |name, kind, id| names.add(name, kind, id))?;
    Ok(names.sorted())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_order_and_the_last_of_two_counts() {
        let mut names = Names::default();
        // As git orders them: folders as if with a slash behind.
        for (at, name) in ["a.b", "a", "a0", "b", "b", "z"].iter().enumerate() {
            names.add(name.as_bytes(), EntryKind::File, &[u8::try_from(at).unwrap(); 20]);
        }
        let names = names.sorted();
        let ids = |asked: &[&str]| -> Vec<Option<u8>> {
            let mut near = 0;
            let look = |name: &&str| names.near(name.as_bytes(), &mut near).map(|(_, id)| id[0]);
            asked.iter().map(look).collect()
        };
        assert_eq!(ids(&["a", "a.b", "a0", "b", "z"]), [Some(1), Some(0), Some(2), Some(4), Some(5)]);
        assert_eq!(ids(&["z", "b", "a", "a", "b"]), [Some(5), Some(4), Some(1), Some(1), Some(4)]);
        assert_eq!(ids(&["", "a.", "aa", "b", "zz", "a"]), [None, None, None, Some(4), None, Some(1)]);
        assert!(names.get(b"a0").is_some() && names.get(b"c").is_none());
        assert_eq!(
            names.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            [&b"a"[..], b"a.b", b"a0", b"b", b"z"]
        );
    }
}
