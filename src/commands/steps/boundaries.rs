//! The trees that steps were certified on: those that evidence names, as far as the repository still has them, and
//! those of commits whose messages claim a step.
#![forbid(unsafe_code)]

use crate::commands::Failure;
use crate::commands::steps::{Skeleton, skeleton};
use crate::ledger::{Ledger, Step};
use crate::tree::{self, Snapshot, Source, TreeError};
use std::path::{Path, PathBuf};

/// Commits that are read in search of a step's.
const COMMITS: usize = 5_000;
/// Commits before HEAD whose trees are tried without their ledger; each costs a listing of its tree.
const RECENT: usize = 20;

/// A state that a step was certified in.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Boundary {
    /// The step.
    pub(in crate::commands) step: String,
    /// Its tree, without the ledger.
    pub(in crate::commands) tree: Snapshot,
}

/// Looks for boundaries in one repository.
pub(in crate::commands) struct Boundaries<'a> {
    start: PathBuf,
    cut: &'a [Vec<u8>],
    history: Option<Skeleton>,
    /// Trees of commits, newest first: HEAD's, those that claim a step, and some before HEAD.
    commits: Vec<String>,
    known: Vec<(String, Option<Snapshot>)>,
}

impl<'a> Boundaries<'a> {
    pub(super) fn new(start: &Path, cut: &'a [Vec<u8>]) -> Self {
        Self { start: start.to_owned(), cut, history: None, commits: Vec::new(), known: Vec::new() }
    }

    pub(super) fn start(&self) -> &Path {
        &self.start
    }

    pub(super) fn cut(&self) -> &'a [Vec<u8>] {
        self.cut
    }

    /// What the commits that HEAD leads to claim; empty before the first one.
    pub(in crate::commands) fn history(&mut self) -> Result<&Skeleton, Failure> {
        let found = match self.history.take() {
            Some(found) => found,
            None => match tree::history(&self.start, "HEAD", COMMITS) {
                Ok(history) => {
                    let found = skeleton(&history);
                    let claimed = found.commits.values().map(|commit| &commit.tree);
                    let recent = history.commits.iter().take(RECENT).map(|commit| &commit.tree);
                    for tree in recent.chain(claimed).map(|tree| tree.hex()) {
                        if !self.commits.contains(&tree) {
                            self.commits.push(tree);
                        }
                    }
                    found
                }
                Err(TreeError::UnknownRevision { .. }) => skeleton(&tree::History::default()),
                Err(error) => return Err(error.into()),
            },
        };
        Ok(self.history.insert(found))
    }

    /// The tree of that id, without the ledger; `None` where the repository does not have it or it is no id.
    ///
    /// Evidence may name a tree from which the ledger was left out already. That tree need not be in the repository, so
    /// the trees of commits are tried without their ledger as well.
    pub(in crate::commands) fn tree(&mut self, id: &str) -> Result<Option<Snapshot>, Failure> {
        if let Some((_, known)) = self.known.iter().find(|(known, _)| known == id) {
            return Ok(known.clone());
        }
        let found = self.find(id)?;
        self.known.push((id.to_owned(), found.clone()));
        Ok(found)
    }

    /// Trees of commits that HEAD leads to, newest first: the last ones, and those that claim a step.
    pub(super) fn earlier(&mut self) -> Result<Vec<Snapshot>, Failure> {
        let _claims = self.history()?;
        let mut found = Vec::new();
        for commit in self.commits.clone() {
            found.extend(self.tree(&commit)?);
        }
        Ok(found)
    }

    fn find(&mut self, id: &str) -> Result<Option<Snapshot>, Failure> {
        let is_id = (4..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_id {
            return Ok(None);
        }
        if let Some(found) = self.resolve(id)? {
            return Ok(Some(found));
        }
        if self.cut.is_empty() {
            return Ok(None);
        }
        let _claims = self.history()?;
        for commit in self.commits.clone() {
            let known = self.known.iter().find(|(known, _)| *known == commit).map(|(_, found)| found.clone());
            let found = match known {
                Some(found) => found,
                None => {
                    let found = self.resolve(&commit)?;
                    self.known.push((commit, found.clone()));
                    found
                }
            };
            if found.as_ref().is_some_and(|found| found.identity().tree.hex().starts_with(id)) {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn resolve(&self, id: &str) -> Result<Option<Snapshot>, Failure> {
        match tree::resolve(&self.start, &Source::Revision(id.to_owned()), Path::new("")) {
            Ok(found) => Ok(Some(found.without(self.cut)?)),
            Err(
                TreeError::UnknownRevision { .. }
                | TreeError::Missing { .. }
                | TreeError::Ambiguous { .. }
                | TreeError::NotATree { .. }
                | TreeError::NotARepository(_),
            ) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The state that a step was certified in, if it is known: a commit's before evidence's, since a commit is the tree
    /// that was checked. `plan_version` is the ledger's.
    pub(in crate::commands) fn of(
        &mut self,
        step: &Step,
        ledger: &Ledger,
    ) -> Result<Option<Boundary>, Failure> {
        let plan_version = ledger.plan_version.as_deref();
        let skeleton = self.history()?;
        let claimed = skeleton.ledger.step(&step.id).is_some_and(|claim| {
            let version = claim.evidence.as_ref().and_then(|evidence| evidence.plan_version.as_deref());
            claim.evidence.is_some()
                && (version.is_none() || plan_version.is_none() || version == plan_version)
        });
        let commit = skeleton.commits.get(&step.id).map(|commit| commit.tree.hex());
        if let Some(tree) = commit.filter(|_| claimed)
            && let Some(tree) = self.tree(&tree)?
        {
            return Ok(Some(Boundary { step: step.id.clone(), tree }));
        }
        let evidence = step.evidence.as_ref().filter(|evidence| evidence.is_boundary);
        let Some(tree) = evidence.and_then(|evidence| evidence.tree.clone()) else { return Ok(None) };
        if step.void_evidence(plan_version).is_some() {
            return Ok(None);
        }
        let tree = self.tree(&tree)?;
        Ok(tree.map(|tree| Boundary { step: step.id.clone(), tree }))
    }
}
