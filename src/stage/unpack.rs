//! Takes the archive apart that a preparing step has left (tar(5)). What becomes of its files is `deps`'.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path};

/// Those below a path of `places` go to the folder of `at` beside it. The archive was written where packages' own scripts ran, so nothing in it is believed.
pub(super) fn unpack(archive: &Path, places: &[(&str, &str)], at: &Path) -> io::Result<()> {
    let refused = |path: &Path, what: &str| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", path.display()))
    };
    let mut archive = tar::Archive::new(io::BufReader::new(File::open(archive)?));
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let place = places.iter().find_map(|(from, to)| Some((path.strip_prefix(from).ok()?, *to)));
        let (inner, to) = place.ok_or_else(|| refused(&path, "is not what the step is to leave"))?;
        if !inner.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(refused(&path, "is no plain path"));
        }
        let target = at.join(to).join(inner);
        let folder = target.parent().unwrap_or(at);
        // A link that came before must not lead what comes after it to another place.
        let below = target.strip_prefix(at).unwrap_or(inner);
        if below.ancestors().skip(1).any(|above| at.join(above).is_symlink()) || target.is_symlink() {
            return Err(refused(&path, "lies behind a link"));
        }
        fs::create_dir_all(folder)?;
        match entry.header().entry_type() {
            tar::EntryType::Directory => fs::create_dir_all(&target)?,
            tar::EntryType::Symlink => {
                let link = entry.link_name()?.ok_or_else(|| refused(&path, "is a link without a target"))?;
                std::os::unix::fs::symlink(link, &target)?;
            }
            tar::EntryType::Regular | tar::EntryType::Continuous | tar::EntryType::GNUSparse => {
                let (mode, mtime) = (entry.header().mode()?, entry.header().mtime()?);
                let mut file = File::create_new(&target)?;
                io::copy(&mut entry, &mut file)?;
                file.set_permissions(fs::Permissions::from_mode(mode & 0o777 | 0o600))?;
                file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(mtime))?;
            }
            kind => return Err(refused(&path, &format!("is of a kind that is not taken ({kind:?})"))),
        }
    }
    Ok(())
}
