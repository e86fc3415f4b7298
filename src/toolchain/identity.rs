//! What stands for a toolchain and for the host's libraries in a key: digests of a few files, listings of folders that
//! no package database covers, and the runner's own description. What goes into the key besides is `key`'s.
#![forbid(unsafe_code)]

use crate::model::digest::Digest;
use crate::model::policy::Visible;
use crate::model::runner::{FoundRule, PrepareRule, Runner, SharedCache, ToolchainRule};
use crate::toolchain::shim::read_start;
use std::fs::{self, DirEntry, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files that change when installed packages do, and the loader's index.
const SYSTEM_FILES: [&str; 4] =
    ["/etc/ld.so.cache", "/lib/apk/db/installed", "/var/lib/dpkg/status", "/var/lib/rpm/rpmdb.sqlite"];

/// Folders that people install into by hand, past the package database.
const LOCAL_FOLDERS: [&str; 3] = ["/usr/local/bin", "/usr/local/lib", "/usr/local/sbin"];

/// Most entries of a shown folder that are looked at; a larger one is known by these and by the program's digest.
const MAX_ENTRIES: usize = 1000;

/// The package databases and the loader's index, whether or not they are here.
pub(super) fn system_files() -> impl Iterator<Item = &'static Path> {
    SYSTEM_FILES.iter().map(Path::new)
}

/// Whether a path stands for what the system has installed, and not for a toolchain.
#[must_use]
pub fn is_of_the_system(path: &Path) -> bool {
    SYSTEM_FILES.iter().any(|known| path == Path::new(known))
        || (path.file_name().is_some_and(|name| name == "*") && path.starts_with("/usr/local"))
}

/// Listings of what was installed by hand: programs, libraries, and Python packages by their folders.
pub(super) fn local_listings() -> Vec<(PathBuf, Digest)> {
    let folders = LOCAL_FOLDERS.iter().map(PathBuf::from).chain(python_folders(Path::new("/usr/local")));
    folders.filter_map(|folder| listing(&folder, 1)).collect()
}

/// Listings of a folder that is shown for a program: two folders deep, and the packages of a Python in it. It is known
/// by names, sizes and times; what lies deeper is not looked at, since that would cost a cache hit more than it may.
pub(super) fn shown_listings(folder: &Path) -> Vec<(PathBuf, Digest)> {
    let packages = python_folders(folder).into_iter().filter_map(|packages| listing(&packages, 1));
    listing(folder, 2).into_iter().chain(packages).collect()
}

/// Where a Python installed at `prefix` keeps its packages; each is a folder named for it and its version.
fn python_folders(prefix: &Path) -> Vec<PathBuf> {
    let lib = prefix.join("lib");
    let versions = names(&lib).into_iter().filter(|name| name.as_bytes().starts_with(b"python3"));
    let packages = |name| ["site-packages", "dist-packages"].map(|packages| lib.join(&name).join(packages));
    versions.flat_map(packages).collect()
}

/// The digest of a folder's listing, under the folder's path with `/*`; `None` where it cannot be listed.
fn listing(folder: &Path, depth: usize) -> Option<(PathBuf, Digest)> {
    let mut text = Vec::new();
    let mut level = vec![folder.to_owned()];
    let mut left = MAX_ENTRIES;
    let mut root = Some(fs::read_dir(folder).ok()?);
    for _ in 0..depth {
        let mut deeper = Vec::new();
        for folder in level {
            let Ok(entries) = root.take().map_or_else(|| fs::read_dir(&folder), Ok) else { continue };
            let mut entries: Vec<DirEntry> = entries.flatten().collect();
            entries.sort_by_cached_key(DirEntry::file_name);
            entries.truncate(left);
            left -= entries.len();
            for entry in entries {
                // Python writes its caches while it runs; they say nothing.
                let Ok(meta) = entry.metadata() else { continue };
                if entry.file_name() == "__pycache__" {
                    continue;
                }
                if meta.is_dir() {
                    deeper.push(entry.path());
                }
                note(&mut text, &entry.path(), &meta);
            }
        }
        level = deeper;
    }
    Some((folder.join("*"), Digest::of(&text)))
}

fn note(text: &mut Vec<u8>, path: &Path, meta: &Metadata) {
    put(text, path.as_os_str().as_bytes());
    text.extend(meta.mode().to_le_bytes());
    if !meta.is_dir() {
        // A folder's time changes with any cache written into it; what it holds is listed anyway.
        text.extend(meta.len().to_le_bytes());
        text.extend(meta.mtime().to_le_bytes());
        text.extend(meta.mtime_nsec().to_le_bytes());
    }
}

/// The paths below `root` that a pattern stands for: `*` is any one name. Only those that are files, sorted.
pub(super) fn spelled_out(root: &Path, pattern: &Path) -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::new()];
    for part in pattern.components() {
        paths = if part.as_os_str() == "*" {
            paths
                .iter()
                .flat_map(|path| names(&root.join(path)).into_iter().map(|name| path.join(name)))
                .collect()
        } else {
            paths.iter().map(|path| path.join(part)).collect()
        };
    }
    paths.retain(|path| root.join(path).is_file());
    paths.sort_unstable();
    paths
}

fn names(folder: &Path) -> Vec<std::ffi::OsString> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect()
}

/// The version in words: the first line of the rule's version file, and the platform's name where the rule says where
/// to find it. Empty where there is no such file.
pub(super) fn version(root: &Path, rule: &ToolchainRule) -> String {
    let text = rule.version_file.as_ref().and_then(|file| read_start(&root.join(file), 4096));
    let Some(line) = text.as_deref().and_then(|text| text.lines().next()).map(str::trim) else {
        return String::new();
    };
    let platform = rule.platform_folder.as_ref().and_then(|folder| {
        let mut names = names(&root.join(folder));
        names.sort_unstable();
        names.first()?.to_str().map(|name| name.replace('_', "/"))
    });
    let line: String = line.chars().filter(|letter| !letter.is_control()).take(80).collect();
    platform.map_or_else(|| line.clone(), |platform| format!("{line} {platform}"))
}

/// The digest of everything that a runner's file says.
pub(super) fn description(runner: &Runner) -> Digest {
    // The number changes whenever the encoding does.
    let mut text = b"checkrun.runner/4".to_vec();
    let Runner {
        name,
        description,
        serves,
        toolchain,
        env,
        visible,
        caches,
        summary,
        results,
        found,
        prelude,
        prepare,
        // What is only said to people changes no result.
        install: _,
        lacks: _,
        advice: _,
    } = runner;
    put(&mut text, name.as_bytes());
    put(&mut text, description.as_bytes());
    list(&mut text, serves, |text, word| put(text, word.as_bytes()));
    rule(&mut text, toolchain);
    put(&mut text, prelude.as_bytes());
    list(&mut text, results, |text, pattern| put(text, pattern.as_bytes()));
    list(&mut text, env, |text, (name, value)| {
        put(text, name.as_bytes());
        put(text, value.as_bytes());
    });
    list(&mut text, visible, |text, Visible { path, optional, why }| {
        put(text, path.as_os_str().as_bytes());
        text.push(u8::from(*optional));
        put(text, why.as_bytes());
    });
    list(&mut text, caches, |text, SharedCache { variable, folder, below, inside, why }| {
        put(text, variable.as_bytes());
        for path in [folder, below, inside] {
            put(text, path.as_os_str().as_bytes());
        }
        put(text, why.as_bytes());
    });
    list(&mut text, summary, |text, reading| put(text, reading.name().as_bytes()));
    let path = |text: &mut Vec<u8>, path: &PathBuf| put(text, path.as_os_str().as_bytes());
    list(&mut text, found, |text, FoundRule { folder, bin }| {
        path(text, folder);
        list(text, bin, path);
    });
    list(&mut text, prepare, |text, rule| {
        let PrepareRule { when, inputs, whole_tree, run, build, optional_without, tree, home, path: bin } =
            rule;
        for paths in [when, tree, home, bin] {
            list(text, paths, path);
        }
        list(text, inputs, |text, input| put(text, input.as_bytes()));
        text.push(u8::from(*whole_tree));
        list(text, optional_without, path);
        put(text, run.as_bytes());
        put(text, build.as_bytes());
    });
    Digest::of(&text)
}

fn rule(text: &mut Vec<u8>, rule: &ToolchainRule) {
    let ToolchainRule {
        program,
        root_holds,
        inside,
        bin,
        version_file,
        identified_by,
        platform_folder,
        shim,
    } = rule;
    list(text, root_holds, |text, word| put(text, word.as_bytes()));
    list(text, identified_by, |text, path| put(text, path.as_os_str().as_bytes()));
    list(text, program.iter().map(|word| word.as_bytes()), put);
    list(text, shim.iter().map(|word| word.as_bytes()), put);
    for path in [inside, bin, version_file, platform_folder] {
        list(text, path, |text, path| put(text, path.as_os_str().as_bytes()));
    }
}

/// Puts a length and the bytes.
fn put(text: &mut Vec<u8>, bytes: &[u8]) {
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    text.extend(length.to_le_bytes());
    text.extend(bytes);
}

/// Puts each item behind a 1 and ends with a 0, so that no two lists look the same.
fn list<T>(text: &mut Vec<u8>, items: impl IntoIterator<Item = T>, put: impl Fn(&mut Vec<u8>, T)) {
    for item in items {
        text.push(1);
        put(text, item);
    }
    text.push(0);
}
