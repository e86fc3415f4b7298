//! The one Landlock ruleset of a run. Never two: a second one takes the right to rename across folders away again
//! (landlock(7), LANDLOCK_ACCESS_FS_REFER). The only file naming the landlock crate.
#![forbid(unsafe_code)]

use crate::model::layer::LANDLOCK_ABI;
use crate::sandbox::sys;
use crate::sandbox::wire::{At, Failure, Step};
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::error::Error;
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

// What is said of this build is what `known` does.
const _: () = assert!(ABI::V7 as i64 == LANDLOCK_ABI as i64);

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
pub(super) fn apply(grants: &Grants) -> Result<(), Failure> {
    let abi = known(sys::landlock_abi().at(Step::Landlock, "version")?);
    let handled = AccessFs::from_all(abi);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(handled)
        .map_err(|error| failed("files", &error))?;
    if abi as i32 >= ABI::V6 as i32 {
        ruleset = ruleset.scope(Scope::from_all(abi)).map_err(|error| failed("scopes", &error))?;
    }
    let mut created = ruleset.create().map_err(|error| failed("create", &error))?;
    let read = AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir;
    let device = handled
        & (AccessFs::ReadFile
            | AccessFs::WriteFile
            | AccessFs::ReadDir
            | AccessFs::Truncate
            | AccessFs::IoctlDev);
    for (paths, rights) in [(&grants.read, read), (&grants.write, handled), (&grants.devices, device)] {
        created = grant(created, paths, rights)?;
    }
    let status = created.restrict_self().map_err(|error| failed("restrict", &error))?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        _ => Err(Failure::new(
            Step::Landlock,
            "less was enforced than the ABI promises",
            &Errno::OPNOTSUPP.into(),
        )),
    }
}

fn grant(
    mut created: RulesetCreated,
    paths: &[PathBuf],
    rights: BitFlags<AccessFs>,
) -> Result<RulesetCreated, Failure> {
    for path in paths {
        let name = path.to_string_lossy();
        let fd = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .at(Step::Landlock, &*name)?;
        let stat = rustix::fs::fstat(&fd).at(Step::Landlock, &*name)?;
        // A right that only folders can have is refused on a file.
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let rights = if is_folder { rights } else { rights & AccessFs::from_file(ABI::V7) };
        created = created.add_rule(PathBeneath::new(fd, rights)).map_err(|error| failed(&name, &error))?;
    }
    Ok(created)
}

/// The crate's errors wrap that of the call; its number is what travels to the launcher.
fn failed(what: &str, error: &dyn Error) -> Failure {
    let mut inner = error.source();
    while let Some(it) = inner {
        if let Some(call) = it.downcast_ref::<io::Error>() {
            return Failure::new(Step::Landlock, what, call);
        }
        inner = it.source();
    }
    Failure::new(Step::Landlock, format!("{what}: {error}"), &Errno::INVAL.into())
}
