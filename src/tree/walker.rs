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

/// The entries of one folder, by name.
type Names = HashMap<Vec<u8>, (EntryKind, ObjectId)>;
type Folder = Rc<Names>;

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
            all.insert(Vec::new(), HashMap::new());
            for entry in entries.iter() {
                let (above, name) = crate::tree::split(&entry.path);
                if entry.kind == EntryKind::Folder {
                    all.entry(entry.path.clone()).or_default();
                }
                all.entry(above.to_vec()).or_default().insert(name.to_vec(), (entry.kind, entry.id.clone()));
            }
            folders = all.into_iter().map(|(path, folder)| (path, Some(Rc::new(folder)))).collect();
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
            return Ok(folder.get(name).map_or(Spot::Absent, |(kind, id)| Spot::Entry(*kind, id.clone())));
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
        let mut names: Vec<(&Vec<u8>, EntryKind)> =
            folder.iter().map(|(name, (kind, _))| (name, *kind)).collect();
        names.sort_by(|a, b| a.0.cmp(b.0));
        let mut hasher = blake3::Hasher::new();
        for (name, kind) in names {
            // The executable bit is not seen in a listing (readdir(3), d_type).
            let kind = if kind == EntryKind::Executable { EntryKind::File } else { kind };
            hasher.update(kind.mode());
            hasher.update(&[0]);
            hasher.update(name);
            hasher.update(&[0]);
        }
        Ok(Some(Digest(*hasher.finalize().as_bytes())))
    }

    /// Names of all that is in the folder at `path`, in no order; `None` where no folder is.
    ///
    /// # Errors
    /// As [`Walker::at`].
    pub fn children(&mut self, path: &[u8]) -> Result<Option<Vec<Vec<u8>>>, TreeError> {
        Ok(self.folder(path)?.map(|folder| folder.keys().cloned().collect()))
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

    fn folder(&mut self, path: &[u8]) -> Result<Option<Folder>, TreeError> {
        if let Some(known) = self.folders.get(path) {
            return Ok(known.clone());
        }
        let found = match (&self.snapshot.content, &self.snapshot.repository) {
            (Content::Objects(root), Some(repository)) if path.is_empty() => {
                Some(objects::children(root, repository.object_hash())?)
            }
            (Content::Objects(_), Some(repository)) => match self.at(path)? {
                Spot::Entry(EntryKind::Folder, id) => {
                    let id = git_id(&id)?;
                    let mut bytes = Vec::new();
                    objects::load(repository, &id, &mut bytes, &|| {
                        format!("folder `{}`", crate::tree::show(path))
                    })?;
                    Some(objects::children(&bytes, repository.object_hash())?)
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
