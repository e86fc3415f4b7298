//! Part of a tree, chosen by pathspecs as git understands them (gitglossary(7), "pathspec"): which entries match, the
//! tree that holds only those, and its id. Pathspecs are relative to the folder that the question is asked in, as they
//! are for git, and to the root where the tree is no state of that folder: in a bare repository, for `REV:sub/dir` and
//! for a plain folder. Attributes (`:(attr:…)`) are those of the tree's own `.gitattributes` files.
#![forbid(unsafe_code)]

use crate::model::digest::ObjectId;
use crate::tree::error::{TreeError, detail, show};
use crate::tree::listing::{self, Leaf};
use crate::tree::{Content, Entry, EntryKind, Snapshot, git_id, objects};
use gix::attrs::search::{MetadataCollection, Outcome};
use gix::bstr::BStr;
use gix::glob::pattern::Case;
use gix::pathspec::{Defaults, MagicSignature, Pattern, Search, SearchMode};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file that attributes are in.
const ATTRIBUTES: &[u8] = b".gitattributes";

impl Snapshot {
    /// The tree that holds only what `pathspecs` match; the tree itself if there are none.
    ///
    /// # Errors
    /// A pathspec that is none or that matches nothing, or whatever keeps the tree from being read.
    pub fn cut(self, pathspecs: &[String]) -> Result<Self, TreeError> {
        if pathspecs.is_empty() {
            return Ok(self);
        }
        let (tree, entries) = self.matching(pathspecs)?;
        let mut identity = self.identity.clone();
        identity.tree = tree;
        Ok(Self { identity, head: None, content: Content::Listing(Arc::new(entries)), ..self })
    }

    /// The id of the tree that holds only what `pathspecs` match.
    ///
    /// # Errors
    /// As [`Snapshot::cut`].
    pub fn part(&self, pathspecs: &[String]) -> Result<ObjectId, TreeError> {
        self.matching(pathspecs).map(|(tree, _)| tree)
    }

    /// Files that a pathspec matches, wherever the question is asked; none where nothing matches.
    pub(super) fn entries_matching(&self, pathspec: &str) -> Result<Vec<Entry>, TreeError> {
        let mut selection = Selection::new(self, &[pathspec.to_owned()])?;
        let is_file = |entry: &Entry| matches!(entry.kind, EntryKind::File | EntryKind::Executable);
        let mut entries = self.entries()?;
        entries.retain(|entry| is_file(entry) && selection.takes(entry));
        Ok(entries)
    }

    fn matching(&self, pathspecs: &[String]) -> Result<(ObjectId, Vec<Entry>), TreeError> {
        let mut selection = Selection::new(self, pathspecs)?;
        let entries = match (&self.content, &self.repository) {
            (Content::Objects(_), Some(repository)) if selection.attributes.is_none() => {
                let mut wanted = |folder: &[u8]| selection.may_hold(folder);
                objects::list_where(repository, &git_id(&self.identity.tree)?, &mut wanted)?
            }
            _ => self.entries()?,
        };
        let found = self.holding_only(entries, &mut |entry| selection.takes(entry))?;
        selection.check(found.1.is_empty(), pathspecs)?;
        Ok(found)
    }

    /// The id of the tree that holds only the files at paths that are `wanted`, as [`Snapshot::part`] gives it; `None`
    /// where there is none.
    ///
    /// # Errors
    /// As [`Snapshot::entries`].
    pub fn part_where(&self, wanted: &dyn Fn(&[u8]) -> bool) -> Result<Option<ObjectId>, TreeError> {
        let (tree, entries) = self.holding_only(self.entries()?, &mut |entry| wanted(&entry.path))?;
        Ok(Some(tree).filter(|_| !entries.is_empty()))
    }

    /// The tree with only the files at paths that are `wanted`, which may be none.
    ///
    /// # Errors
    /// As [`Snapshot::entries`].
    pub fn cut_where(self, wanted: &dyn Fn(&[u8]) -> bool) -> Result<Self, TreeError> {
        let (tree, entries) = self.holding_only(self.entries()?, &mut |entry| wanted(&entry.path))?;
        let mut identity = self.identity.clone();
        identity.tree = tree;
        Ok(Self { identity, head: None, content: Content::Listing(Arc::new(entries)), ..self })
    }

    fn holding_only(
        &self,
        entries: Vec<Entry>,
        takes: &mut dyn FnMut(&Entry) -> bool,
    ) -> Result<(ObjectId, Vec<Entry>), TreeError> {
        let mut leaves = Vec::new();
        for entry in entries.into_iter().filter(|entry| entry.kind != EntryKind::Folder) {
            if takes(&entry) {
                leaves.push(Leaf { id: git_id(&entry.id)?, path: entry.path, kind: entry.kind });
            }
        }
        let hash = git_id(&self.identity.tree)?.kind();
        let (tree, entries) = listing::build(leaves, hash)?;
        Ok((listing::id_of(&tree), entries))
    }

    /// The folder that pathspecs are relative to, as a path from the root of the tree.
    fn prefix(&self) -> Result<PathBuf, TreeError> {
        let (Some(start), Some(root)) = (&self.start, &self.root) else { return Ok(PathBuf::new()) };
        let real = |path: &Path| {
            std::fs::canonicalize(path).map_err(|error| TreeError::io("look at the folder", path, error))
        };
        let (start, root) = (real(start)?, real(root)?);
        Ok(start.strip_prefix(&root).map(Path::to_owned).unwrap_or_default())
    }
}

/// Pathspecs, each on its own.
struct Selection {
    include: Vec<Single>,
    exclude: Vec<Single>,
    attributes: Option<Attributes>,
}

/// One pathspec.
struct Single {
    /// As it was given.
    text: String,
    search: Search,
    matched: bool,
    /// It ends in a slash and has wildcards, which means a folder to no command of git.
    is_hopeless: bool,
}

impl Selection {
    fn new(snapshot: &Snapshot, pathspecs: &[String]) -> Result<Self, TreeError> {
        let prefix = snapshot.prefix()?;
        let root = snapshot.root.clone().unwrap_or_default();
        let root = std::fs::canonicalize(&root).unwrap_or(root);
        let mut selection = Self { include: Vec::new(), exclude: Vec::new(), attributes: None };
        let mut has_attributes = false;
        for text in pathspecs {
            let pattern = parse(text, &prefix, &root)
                .map_err(|error| TreeError::Pathspec { pathspec: text.clone(), detail: detail(&error) })?;
            if is_never(&pattern) {
                if !pattern.is_excluded() {
                    return Err(TreeError::Unmatched { pathspec: text.clone() });
                }
                continue;
            }
            has_attributes |= !pattern.attributes.is_empty();
            let list = if pattern.is_excluded() { &mut selection.exclude } else { &mut selection.include };
            list.push(Single::new(text, pattern, &prefix, &root)?);
        }
        if selection.include.is_empty() {
            // Taken away from everything in the folder that it is asked in, as `git ls-files` does.
            selection.include.push(Single::new(":", everything(MagicSignature::empty()), &prefix, &root)?);
        }
        selection.attributes = if has_attributes { Some(Attributes::of(snapshot)?) } else { None };
        Ok(selection)
    }

    /// Whether anything in `folder` may match.
    fn may_hold(&self, folder: &[u8]) -> bool {
        self.include.iter().any(|single| {
            !single.is_hopeless && single.search.can_match_relative_path(BStr::new(folder), Some(true))
        })
    }

    fn takes(&mut self, entry: &Entry) -> bool {
        let attributes = self.attributes.as_ref();
        let mut included = false;
        // Not only up to the first that matches: each is asked for its own sake too.
        for single in &mut self.include {
            if (!included || !single.matched) && single.matches(entry, attributes) {
                single.matched = true;
                included = true;
            }
        }
        included && !self.exclude.iter_mut().any(|single| single.matches(entry, attributes))
    }

    /// What was asked for must be there, or a slip of the pen makes a check of nothing.
    fn check(&self, is_empty: bool, pathspecs: &[String]) -> Result<(), TreeError> {
        match self.include.iter().find(|single| !single.matched) {
            Some(single) => Err(TreeError::Unmatched { pathspec: single.text.clone() }),
            None if is_empty => Err(TreeError::Unmatched { pathspec: pathspecs.join(" ") }),
            None => Ok(()),
        }
    }
}

impl Single {
    fn new(text: &str, pattern: Pattern, prefix: &Path, root: &Path) -> Result<Self, TreeError> {
        let is_hopeless = pattern.signature.contains(MagicSignature::MUST_BE_DIR)
            && pattern.search_mode != SearchMode::Literal
            && pattern.path().iter().any(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'));
        let mut pattern = pattern;
        // Whether it is taken away is decided by the list that it is in.
        pattern.signature.remove(MagicSignature::EXCLUDE);
        let search = Search::from_specs([pattern], Some(prefix), root)
            .map_err(|error| TreeError::Pathspec { pathspec: text.to_owned(), detail: detail(&error) })?;
        Ok(Self { text: text.to_owned(), search, matched: false, is_hopeless })
    }

    fn matches(&mut self, entry: &Entry, attributes: Option<&Attributes>) -> bool {
        let path = BStr::new(&entry.path);
        let is_folder = entry.kind == EntryKind::Submodule && !self.is_hopeless;
        let mut look_up = |path: &BStr, case: Case, is_folder: bool, out: &mut Outcome| {
            if let Some(attributes) = attributes {
                attributes.look_up(path, case, is_folder, out);
            }
            // Also where nothing is said of the path: a pathspec may ask for just that.
            true
        };
        self.search.pattern_matching_relative_path(path, Some(is_folder), &mut look_up).is_some()
    }
}

/// From the top git takes a path as it is, and no entry has a part that is empty or a dot or two.
fn is_never(pattern: &Pattern) -> bool {
    let odd = |part: &[u8]| matches!(part, b"" | b"." | b"..");
    let is_from_top = pattern.signature.contains(MagicSignature::TOP) && !pattern.path().is_empty();
    is_from_top && pattern.path().split(|byte| *byte == b'/').any(odd)
}

/// What matches everything, in the folder that it is asked in or from the top.
fn everything(signature: MagicSignature) -> Pattern {
    Pattern::from_literal(b"", signature | MagicSignature::MUST_BE_DIR)
}

/// Reads a pathspec, mending what the library takes otherwise than git does.
fn parse(text: &str, prefix: &Path, root: &Path) -> Result<Pattern, gix::Error> {
    // A colon ends short magic words, and what looks like long ones behind it is a path.
    let short = text.strip_prefix(':').and_then(|rest| rest.split_once(":("));
    let long =
        short.filter(|(words, _)| !words.is_empty() && words.bytes().all(|word| b"/!^".contains(&word)));
    let pattern = match long {
        Some((words, path)) => {
            let top = if words.contains('/') { "top," } else { "" };
            let exclude = if words.contains(['!', '^']) { "exclude" } else { "" };
            let words = format!("{top}{exclude}");
            gix::pathspec::parse(
                format!(":({})({path}", words.trim_end_matches(',')).as_bytes(),
                Defaults::default(),
            )?
        }
        None => gix::pathspec::parse(text.as_bytes(), Defaults::default())?,
    };
    if is_never(&pattern) {
        return Ok(pattern);
    }
    let mut at_root = pattern.clone();
    at_root.normalize(prefix, root)?;
    let is_root = at_root.path() == "." || (at_root.path().is_empty() && !pattern.is_nil());
    if !pattern.is_nil() && !is_root {
        return Ok(pattern);
    }
    // The library compares names with the dot that such a path comes to.
    let kept = MagicSignature::EXCLUDE | MagicSignature::ICASE;
    let top = if is_root { MagicSignature::TOP } else { MagicSignature::empty() };
    let mut all = everything((pattern.signature & kept) | top);
    all.attributes = pattern.attributes;
    Ok(all)
}

/// The attributes that the tree gives its own paths.
struct Attributes {
    rules: gix::attrs::Search,
    names: MetadataCollection,
}

impl Attributes {
    fn of(snapshot: &Snapshot) -> Result<Self, TreeError> {
        let is_wanted = |entry: &Entry| {
            matches!(entry.kind, EntryKind::File | EntryKind::Executable)
                && super::descent::split(&entry.path).1 == ATTRIBUTES
        };
        let mut files: Vec<Entry> = snapshot.entries()?.into_iter().filter(is_wanted).collect();
        // Of two files that speak of one path the deeper one is right, and that is the later one here.
        files.sort_by_key(|entry| entry.path.iter().filter(|byte| **byte == b'/').count());
        let mut names = MetadataCollection::default();
        let mut buffer = Vec::new();
        let none: [PathBuf; 0] = [];
        let failed = |path: &[u8], error| TreeError::io("read the attributes in", show(path), error);
        let mut rules = gix::attrs::Search::new_globals(none, &mut buffer, &mut names)
            .map_err(|error| failed(ATTRIBUTES, error))?;
        let mut reader = snapshot.reader();
        for entry in files {
            reader.read(&entry.id, &mut buffer)?;
            let place = Path::new("/").join(super::error::below(Path::new(""), &entry.path));
            // Macros may be defined at the root only (gitattributes(5)).
            let is_root = entry.path == ATTRIBUTES;
            rules
                .add_patterns_buffer(&buffer, place, Some(Path::new("/")), &mut names, is_root)
                .map_err(|error| failed(&entry.path, error))?;
        }
        Ok(Self { rules, names })
    }

    fn look_up(&self, path: &BStr, case: Case, is_folder: bool, out: &mut Outcome) {
        out.initialize(&self.names);
        let _ = self.rules.pattern_matching_relative_path(path, case, Some(is_folder), out);
    }
}
