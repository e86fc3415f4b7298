//! What the machine offers, probed once per boot, user and surrounding container, and kept beside the records. The
//! probing itself is `sandbox::probe`'s.
#![forbid(unsafe_code)]

use crate::model::digest::Digest;
use crate::sandbox::SandboxError;
use crate::sandbox::probe::{Abilities, probe, require_own_proc};
use crate::store::{Store, StorePaths};
use rustix::thread::SecureComputingMode;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Layout of the kept answer and of what it is kept under. It goes up with every change of `Abilities`.
const PROBE_VERSION: &str = "6";

/// `STATX_MNT_ID_UNIQUE` (statx(2), linux/stat.h).
const UNIQUE_MOUNT: rustix::fs::StatxFlags = rustix::fs::StatxFlags::from_bits_retain(0x4000);

/// This machine, as this process sees it.
#[derive(Debug)]
pub(crate) struct Machine {
    /// `None` where the cache is somebody else's, whose word on what confines a check counts for nothing.
    folder: Option<PathBuf>,
}

impl Machine {
    pub(crate) fn new(store: &StorePaths) -> Self {
        let usable = Store::is_own_or_absent(store);
        Self { folder: usable.then(|| store.cache.join("probe")) }
    }

    /// The kept answer, else a new one. That it cannot be kept is no error.
    pub(crate) fn abilities(&self) -> Result<Abilities, SandboxError> {
        require_own_proc()?;
        let Some(folder) = &self.folder else { return probe() };
        let path = folder.join(fingerprint().hex());
        if let Some(known) = fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
            return Ok(known);
        }
        let found = probe()?;
        keep(folder, &path, &found);
        Ok(found)
    }

    /// Probes anew, for `doctor` and after a run that did not get what was promised.
    pub(crate) fn probe_again(&self) -> Result<Abilities, SandboxError> {
        require_own_proc()?;
        let found = probe()?;
        if let Some(folder) = &self.folder {
            keep(folder, &folder.join(fingerprint().hex()), &found);
        }
        Ok(found)
    }
}

/// Kept answers at most: containers that are gone have left one each.
const KEPT_MOST: usize = 100;

fn keep(folder: &Path, path: &Path, found: &Abilities) {
    let kept: Vec<PathBuf> = fs::read_dir(folder).map_or_else(
        |_| Vec::new(),
        |entries| entries.filter_map(Result::ok).map(|entry| entry.path()).collect(),
    );
    if kept.len() >= KEPT_MOST {
        // Whoever misses one tries anew.
        kept.iter().for_each(|old| drop(fs::remove_file(old)));
    }
    let temporary = path.with_extension(std::process::id().to_string());
    let kept = serde_json::to_vec(found)
        .map_err(std::io::Error::from)
        .and_then(|text| fs::create_dir_all(folder).and_then(|()| fs::write(&temporary, text)))
        .and_then(|()| fs::rename(&temporary, path));
    if kept.is_err() {
        drop(fs::remove_file(&temporary));
    }
}

/// Changes with everything that changes what can be had: the boot, the user, the namespaces and the root that we are in,
/// our control group, our own filter, and the program.
fn fingerprint() -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(PROBE_VERSION.as_bytes());
    hasher.update(env!("CARGO_PKG_VERSION").as_bytes());
    hasher.update(boot_id().as_bytes());
    let ids = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    hasher.update(&ids.0.to_le_bytes());
    hasher.update(&ids.1.to_le_bytes());
    for namespace in ["user", "mnt", "pid", "net"] {
        if let Ok(name) = fs::read_link(format!("/proc/self/ns/{namespace}")) {
            hasher.update(name.as_os_str().as_encoded_bytes());
        }
    }
    // Another mount namespace may have the number of one that is gone, and then other things can be had. Since Linux 6.8 a
    // mount has a number that is never given again.
    if let Ok(root) = rustix::fs::statx(rustix::fs::CWD, "/", rustix::fs::AtFlags::empty(), UNIQUE_MOUNT) {
        hasher.update(&root.stx_mnt_id.to_le_bytes());
    }
    hasher.update(&read_small("/proc/self/cgroup"));
    hasher.update(&[u8::from(rustix::thread::no_new_privs().unwrap_or(true))]);
    let capabilities = rustix::thread::capabilities(None).map_or(0, |sets| sets.effective.bits());
    hasher.update(&capabilities.to_le_bytes());
    // Only under a filter is it worth to ask how many there are, which takes a longer look.
    if rustix::thread::secure_computing_mode() != Ok(SecureComputingMode::Disabled) {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        for line in status.lines().filter(|line| line.starts_with("Seccomp")) {
            hasher.update(line.as_bytes());
        }
    }
    Digest(*hasher.finalize().as_bytes())
}

/// A file of /proc that is short; empty where it cannot be read. Its size is not known beforehand, so that the usual way
/// to read a file would take many steps.
fn read_small(path: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4096);
    drop(fs::File::open(path).and_then(|file| file.take(1 << 20).read_to_end(&mut bytes)));
    bytes
}

/// What tells one boot of the machine from another (random(4), proc(5)).
pub(crate) fn boot_id() -> String {
    String::from_utf8_lossy(&read_small("/proc/sys/kernel/random/boot_id")).trim().to_owned()
}
