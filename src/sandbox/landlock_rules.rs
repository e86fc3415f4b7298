//! The one Landlock ruleset of a run. Never two: a second one takes the right to rename across folders away again
//! (landlock(7), LANDLOCK_ACCESS_FS_REFER). The only file naming the landlock crate.
#![forbid(unsafe_code)]

use crate::sandbox::sys;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use std::io;
use std::path::PathBuf;

/// What is granted where. Everything that is not granted is refused.
#[derive(Debug, Clone, Default)]
pub(super) struct Grants {
    /// Read and execute.
    pub(super) read: Vec<PathBuf>,
    /// Everything, renames across folders included.
    pub(super) write: Vec<PathBuf>,
    /// Read, write and device ioctls, but nothing made or removed: device nodes and /proc.
    pub(super) devices: Vec<PathBuf>,
}

/// The rights table that is asked for on a kernel of this ABI. A newer kernel than the crate knows gets the newest
/// table that the crate has; what it would add is then not handled, thus not refused, and reported as such.
fn known(abi: u32) -> ABI {
    match abi {
        0 => ABI::Unsupported,
        1 => ABI::V1,
        2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        6 => ABI::V6,
        _ => ABI::V7,
    }
}

/// Which of the things that we rely on an ABI lacks, in words; empty where it has all.
#[must_use]
pub(super) fn lacks(abi: u32) -> Vec<&'static str> {
    [
        (2, "renames across folders (ABI 2, Linux 5.19)"),
        (3, "truncation (ABI 3, Linux 6.2)"),
        (5, "device ioctls (ABI 5, Linux 6.10)"),
        (6, "abstract sockets and signals (ABI 6, Linux 6.12)"),
    ]
    .into_iter()
    .filter(|(needed, _)| abi < *needed)
    .map(|(_, what)| what)
    .collect()
}

/// Applies the rules to this process and all that it starts.
///
/// # Errors
/// Where the kernel refuses, a granted path cannot be opened, or less was enforced than the ABI promises.
pub(super) fn apply(grants: &Grants) -> io::Result<()> {
    let abi = known(sys::landlock_abi()?);
    let failed = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
    let handled = AccessFs::from_all(abi);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(handled)
        .map_err(|error| failed(&error))?;
    if abi as i32 >= ABI::V6 as i32 {
        ruleset = ruleset.scope(Scope::from_all(abi)).map_err(|error| failed(&error))?;
    }
    let mut created = ruleset.create().map_err(|error| failed(&error))?;
    let read = AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir;
    let device = handled
        & (AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::ReadDir | AccessFs::Truncate | AccessFs::IoctlDev);
    for (paths, rights) in [(&grants.read, read), (&grants.write, handled), (&grants.devices, device)] {
        created = grant(created, paths, rights)?;
    }
    let status = created.restrict_self().map_err(|error| failed(&error))?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        _ => Err(io::Error::other("the kernel enforced less than its Landlock ABI promises")),
    }
}

fn grant(mut created: RulesetCreated, paths: &[PathBuf], rights: BitFlags<AccessFs>) -> io::Result<RulesetCreated> {
    for path in paths {
        let fd = PathFd::new(path).map_err(|error| io::Error::other(error.to_string()))?;
        // A right that only folders can have is refused on a file.
        let rights = if path.is_dir() { rights } else { rights & AccessFs::from_file(ABI::V7) };
        created = created
            .add_rule(PathBeneath::new(fd, rights))
            .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
    }
    Ok(created)
}
