//! Starts git for what it must do itself: making commits under the user's own name, moving branches and references
//! under git's own locks, and bringing the index in line. The only file that starts a program outside of the sandbox.
//!
//! Objects are read and written by `tree`. What remains is where a second program that does it almost as git does
//! would be a risk: identities come from any of git's configurations, references may be packed, logged or in another
//! storage, and an index has extensions of which each version of git knows other ones. No hook and no file system
//! monitor is run.
#![forbid(unsafe_code)]

use crate::commands::Failure;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Variables that would make git work elsewhere than in the repository that was looked at.
const ELSEWHERE: [&str; 9] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_CEILING_DIRECTORIES",
    "GIT_PREFIX",
];

/// What every call is told: no hooks, no monitor, messages as they are.
const ALWAYS: [&str; 8] = [
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "i18n.commitEncoding=UTF-8",
    "-c",
    "advice.ignoredHook=false",
];

/// Whose name a commit bears.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Author {
    /// The user's, from wherever git takes it.
    User,
    /// checkrun's: for commits that no branch will have.
    Ours,
}

/// git in one working tree.
#[derive(Debug)]
pub(super) struct Git {
    root: PathBuf,
}

impl Git {
    pub(super) fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn run(&self, args: &[&str], input: &str, author: Author) -> Result<String, Failure> {
        let mut git = Command::new("git");
        git.arg("-C").arg(&self.root).args(ALWAYS).args(args);
        for name in ELSEWHERE {
            git.env_remove(name);
        }
        // What git says is shown to the user, and read here only where it is in no language.
        git.env("LC_ALL", "C.UTF-8");
        if author == Author::Ours {
            for role in ["AUTHOR", "COMMITTER"] {
                git.env(format!("GIT_{role}_NAME"), "checkrun")
                    .env(format!("GIT_{role}_EMAIL"), "checkrun@localhost")
                    .env_remove(format!("GIT_{role}_DATE"));
            }
        }
        git.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let missing = |error: std::io::Error| {
            Failure::new(
                format!("cannot start git: {error}"),
                Some("commits and references are made by git itself; install it, or put it on PATH"),
            )
        };
        let mut child = git.spawn().map_err(missing)?;
        if let Some(mut pipe) = child.stdin.take() {
            // Should git end before it has read all, what it says is worth more than the broken pipe.
            drop(pipe.write_all(input.as_bytes()));
        }
        let output = child.wait_with_output().map_err(missing)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let hint = if said.contains(".lock") {
            Some("if no other git is at work here, remove that file and do the same again: nothing was lost")
        } else if said.contains("tell me who you are") || said.contains("empty ident") {
            Some("tell git who you are: `git config user.name NAME` and `git config user.email ADDRESS`")
        } else {
            None
        };
        Err(Failure::new(format!("git {} failed: {said}", args.first().unwrap_or(&"")), hint))
    }

    /// Makes a commit of a tree whose objects are in the repository; its full id. No branch is moved.
    pub(super) fn commit(
        &self,
        tree: &str,
        parent: Option<&str>,
        message: &str,
        author: Author,
    ) -> Result<String, Failure> {
        let mut args = vec!["commit-tree", tree];
        if let Some(parent) = parent {
            args.extend(["-p", parent]);
        }
        args.extend(["-F", "-"]);
        self.run(&args, message, author)
    }

    /// Moves a reference from `old`, or makes it where that is `None`; whoever else has moved it wins.
    pub(super) fn point(&self, name: &str, new: &str, old: Option<&str>, why: &str) -> Result<(), Failure> {
        self.run(&["update-ref", "-m", why, name, new, old.unwrap_or("")], "", Author::Ours).map(drop)
    }

    /// Makes the index that of a tree; files are left alone. What it knows of unchanged files it goes on to know.
    pub(super) fn index_of(&self, tree: &str) -> Result<(), Failure> {
        self.run(&["read-tree", "--reset", tree], "", Author::User)?;
        // Status 1 only says that some files differ from the index, which is not for here to judge.
        drop(self.run(&["update-index", "-q", "--refresh"], "", Author::User));
        Ok(())
    }

    /// References whose names begin with `prefix`, and the ids that they stand for.
    pub(super) fn references(&self, prefix: &str) -> Result<Vec<(String, String)>, Failure> {
        let told =
            self.run(&["for-each-ref", "--format=%(refname) %(objectname)", prefix], "", Author::Ours)?;
        let pair = |line: &str| line.split_once(' ').map(|(name, id)| (name.to_owned(), id.to_owned()));
        Ok(told.lines().filter_map(pair).collect())
    }
}
