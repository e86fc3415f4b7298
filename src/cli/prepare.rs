//! Words of `prepare`.
#![forbid(unsafe_code)]

use crate::cli::arguments::ConfineArgs;
use crate::cli::request::{CheckRequest, TreeChoice, confined};
use crate::cli::{Exit, usage};
use crate::model::hosts::HostRule;
use clap::Args;
use std::path::PathBuf;

/// `prepare`.
#[derive(Debug, Args)]
pub(super) struct PrepareArgs {
    /// A git revision [default: the working tree]
    #[arg(long, value_name = "REV", help_heading = "Tree", conflicts_with_all = ["staged", "dir"])]
    tree: Option<String>,
    /// The index instead of the working tree
    #[arg(long, help_heading = "Tree", conflicts_with = "dir")]
    staged: bool,
    /// A plain folder that is in no git repository
    #[arg(long, value_name = "DIR", help_heading = "Tree")]
    dir: Option<PathBuf>,
    /// With `--dir`: files that .gitignore files name too
    #[arg(long, help_heading = "Tree", requires = "dir")]
    ignored: bool,
    /// The folder of the tree whose lock file is meant
    ///
    /// Checks with the same `--cwd` get what is fetched.
    #[arg(long, value_name = "SUBDIR", help_heading = "Tree")]
    cwd: Option<PathBuf>,
    /// Fetch even if it was done for this lock file
    #[arg(long, help_heading = "Cache")]
    refresh: bool,
    /// A host that the step may reach too (repeatable)
    ///
    /// By default the public package registries that policy `prepare` names, and nothing else. `HOST` (ports 443 and 80),
    /// `HOST:PORT` or `*.HOST`; `,private` behind it where the name stands for an address of this machine or of a private
    /// network, as `mirror.example,private`.
    #[arg(long, value_name = "HOST", value_parser = HostRule::parse_option, help_heading = "Sandbox")]
    allow_host: Vec<HostRule>,
    #[command(flatten)]
    confine: ConfineArgs,
}

/// What is to be prepared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrepareRequest {
    /// Tree, folder, runner, limits, variables; no command. No policy means `prepare`.
    pub check: CheckRequest,
    /// `--refresh`.
    pub again: bool,
    /// `--allow-host`.
    pub hosts: Vec<HostRule>,
}

pub(super) fn prepare(args: PrepareArgs) -> Result<PrepareRequest, Exit> {
    let tree = match (args.tree, args.staged, args.dir) {
        (Some(revision), _, _) => TreeChoice::Revision(revision),
        (None, true, _) => TreeChoice::Staged,
        (None, false, Some(path)) => TreeChoice::Folder(path, args.ignored),
        (None, false, None) => TreeChoice::Working,
    };
    if args.confine.clock.is_some() || args.confine.clock_mode.is_some() {
        return Err(usage(
            "`--clock` has no effect on a preparation, which has the host's clock",
            Some("certificates of hosts are judged by the date"),
        ));
    }
    let check = CheckRequest { tree, cwd: args.cwd, ..confined(args.confine)? };
    Ok(PrepareRequest { check, again: args.refresh, hosts: args.allow_host })
}
