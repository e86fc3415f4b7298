//! Commits and what their messages say, and what a repository is in the middle of. Nothing is changed, and what a
//! message means is not asked.
#![forbid(unsafe_code)]

use crate::model::digest::ObjectId;
use crate::tree::error::{TreeError, detail};
use crate::tree::{listing, objects, revision};
use std::collections::{BinaryHeap, HashSet};
use std::path::{Path, PathBuf};

/// The most that is read of one message, in bytes.
const MESSAGE_MAX: usize = 64 << 10;

/// One commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Commit {
    /// Its id.
    pub id: ObjectId,
    /// The id of its tree.
    pub tree: ObjectId,
    /// Its parents' ids.
    pub parents: Vec<ObjectId>,
    /// Committer date, in seconds since 1970.
    pub time: i64,
    /// Its message; bytes that are not UTF-8 are replaced, and what is beyond 64 KiB is cut.
    pub message: String,
}

/// Commits that a revision leads to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    /// Newest first, and a commit never before one that builds on it.
    pub commits: Vec<Commit>,
    /// There are more than were asked for, or the clone does not have them.
    pub is_cut: bool,
}

/// Reads what `revision` leads to, at most `limit` commits.
///
/// # Errors
/// No repository, no such revision, or a commit that is damaged.
pub fn history(start: &Path, revision: &str, limit: usize) -> Result<History, TreeError> {
    let repository = revision::open(start)?;
    let peeled = revision::resolve(&repository, revision)?;
    let Some(first) = peeled.commit else {
        return Err(TreeError::UnknownRevision {
            revision: revision.to_owned(),
            detail: "it names a tree, which has no history".to_owned(),
        });
    };
    let mut read = Reading { repository: &repository, seen: HashSet::new(), waiting: BinaryHeap::new() };
    let mut history = History::default();
    read.seen.insert(first);
    read.add(&first)?;
    while let Some(next) = read.waiting.pop() {
        if history.commits.len() >= limit {
            history.is_cut = true;
            break;
        }
        for parent in &next.parents {
            if read.seen.insert(*parent) && !read.add(parent)? {
                history.is_cut = true;
            }
        }
        history.commits.push(next.commit);
    }
    // Committer dates are whatever their makers' clocks said; children come first all the same.
    sort_children_first(&mut history.commits);
    Ok(history)
}

struct Reading<'a> {
    repository: &'a gix::Repository,
    seen: HashSet<gix::ObjectId>,
    waiting: BinaryHeap<Waiting>,
}

#[derive(PartialEq, Eq)]
struct Waiting {
    commit: Commit,
    parents: Vec<gix::ObjectId>,
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.commit.time, &self.commit.id).cmp(&(other.commit.time, &other.commit.id))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Reading<'_> {
    /// Reads a commit; false where a shallow clone does not have it.
    fn add(&mut self, id: &gix::ObjectId) -> Result<bool, TreeError> {
        let mut buffer = Vec::new();
        let what = || "a commit of the history".to_owned();
        match objects::load(self.repository, id, &mut buffer, &what) {
            Err(TreeError::Missing { .. }) if self.repository.is_shallow().unwrap_or(false) => {
                return Ok(false);
            }
            other => drop(other?),
        }
        let damaged = |text: String| TreeError::Damaged { id: id.to_string(), what: what(), detail: text };
        let parsed =
            gix::objs::CommitRef::from_bytes(&buffer, id.kind()).map_err(|error| damaged(detail(&error)))?;
        let message: &[u8] = parsed.message;
        let message = message.get(..MESSAGE_MAX).unwrap_or(message);
        let time = parsed.committer().ok().and_then(|who| who.time().ok()).map_or(0, |time| time.seconds);
        let parents: Vec<gix::ObjectId> = parsed.parents().collect();
        let commit = Commit {
            id: listing::id_of(id),
            tree: listing::id_of(&parsed.tree()),
            parents: parents.iter().map(|id| listing::id_of(id)).collect(),
            time,
            message: String::from_utf8_lossy(message).into_owned(),
        };
        self.waiting.push(Waiting { commit, parents });
        Ok(true)
    }
}

/// Keeps the order where it can, and moves a commit behind all that build on it.
fn sort_children_first(commits: &mut Vec<Commit>) {
    use std::collections::HashMap;
    let mut children: HashMap<ObjectId, usize> = HashMap::new();
    for parent in commits.iter().flat_map(|commit| &commit.parents) {
        *children.entry(parent.clone()).or_default() += 1;
    }
    let places: HashMap<ObjectId, usize> =
        commits.iter().enumerate().map(|(place, commit)| (commit.id.clone(), place)).collect();
    // Smallest place first among those that nothing unread builds on.
    let mut free: BinaryHeap<std::cmp::Reverse<usize>> = commits
        .iter()
        .enumerate()
        .filter(|(_, commit)| !children.contains_key(&commit.id))
        .map(|(place, _)| std::cmp::Reverse(place))
        .collect();
    let mut order = Vec::with_capacity(commits.len());
    while let Some(std::cmp::Reverse(place)) = free.pop() {
        order.push(place);
        for parent in &commits[place].parents {
            let Some(count) = children.get_mut(parent) else { continue };
            *count -= 1;
            if *count == 0
                && let Some(place) = places.get(parent)
            {
                free.push(std::cmp::Reverse(*place));
            }
        }
    }
    *commits = order.into_iter().filter_map(|place| commits.get(place).cloned()).collect();
}

/// A repository as it stands, beside its trees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// The working tree's folder, or that of a bare repository itself.
    pub root: PathBuf,
    /// The folder of this working tree's own git files.
    pub git_dir: PathBuf,
    /// The commit that HEAD stands for.
    pub head: Option<ObjectId>,
    /// The branch that HEAD is on, in full; `None` where it is detached.
    pub branch: Option<String>,
    /// What git is in the middle of, if anything: `a merge`, `a rebase`…
    pub in_progress: Option<&'static str>,
}

/// Looks at the repository around `start`.
///
/// # Errors
/// No repository, or its HEAD cannot be read.
pub fn state(start: &Path) -> Result<State, TreeError> {
    let repository = revision::open(start)?;
    let head = revision::head(&repository)?.and_then(|head| head.commit);
    let name = repository.head_name().map_err(|error| TreeError::UnknownRevision {
        revision: "HEAD".to_owned(),
        detail: detail(&error),
    })?;
    let git_dir = repository.git_dir().to_owned();
    let marks = [
        ("MERGE_HEAD", "a merge"),
        ("rebase-merge", "a rebase"),
        ("rebase-apply", "a rebase or `git am`"),
        ("CHERRY_PICK_HEAD", "a cherry-pick"),
        ("REVERT_HEAD", "a revert"),
        ("BISECT_LOG", "a bisection"),
    ];
    let in_progress = marks.iter().find(|(name, _)| git_dir.join(name).exists()).map(|(_, what)| *what);
    Ok(State {
        root: super::root_of(&repository),
        git_dir,
        head: head.as_ref().map(|id| listing::id_of(id)),
        branch: name.map(|name| name.as_bstr().to_string()),
        in_progress,
    })
}
