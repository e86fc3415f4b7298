//! What of Python's installed packages depends on where and when they were installed: compiled files hold the time of
//! their source, and files of a virtual environment name its place.
#![forbid(unsafe_code)]

use crate::stage::StageError;
use crate::stage::deps::{MTIME, failed, sorted};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where the tree is for a check.
const TREE: &[u8] = b"/src";

/// Bytes of a compiled file before its code: a number of the format, flags, time and size of the source (PEP 552).
const HEAD: usize = 16;

/// Gives the compiled files of a `__pycache__` folder the time that their sources will have, where they fit these as they
/// are; others are removed, which Python takes as not compiled yet. Those that are known by the digest of their source
/// stay as they are.
pub(super) fn settle_compiled(folder: &Path) -> Result<(), StageError> {
    for entry in sorted(folder)? {
        let path = entry.path();
        let Some(name) =
            entry.file_name().to_str().and_then(|name| name.strip_suffix(".pyc")).map(str::to_owned)
        else {
            continue;
        };
        let bytes = fs::read(&path).map_err(|error| failed("read", &path, error))?;
        let number = |at: usize| {
            bytes.get(at..at + 4).and_then(|part| Some(u32::from_le_bytes(part.try_into().ok()?)))
        };
        let (flags, time, size) = (number(4), number(8), number(12));
        if flags == Some(1) || flags == Some(3) {
            continue;
        }
        // `module.cpython-311.pyc`, or with the degree of optimisation behind it.
        let module = name.split('.').next().unwrap_or_default();
        let source = folder.with_file_name(format!("{module}.py"));
        // Both are kept as the lowest 32 bits.
        let low = |number: u64| u32::try_from(number & 0xffff_ffff).ok();
        let fits = fs::metadata(&source).is_ok_and(|meta| {
            time.is_some() && low(meta.mtime().unsigned_abs()) == time && low(meta.len()) == size
        });
        if fits && flags == Some(0) && bytes.len() > HEAD {
            let mut bytes = bytes;
            bytes[8..12].copy_from_slice(&MTIME.to_le_bytes());
            fs::write(&path, bytes).map_err(|error| failed("write", &path, error))?;
        } else {
            fs::remove_file(&path).map_err(|error| failed("remove", &path, error))?;
        }
    }
    Ok(())
}

/// Makes a copied virtual environment name `/src` where it names one of `roots`, the tree that it lies in: in the `#!`
/// lines of its programs, in its settings, and in what tells Python of projects that were installed to be edited.
pub(super) fn move_environment(environment: &Path, roots: &[PathBuf]) -> Result<(), StageError> {
    for entry in sorted(&environment.join("bin"))? {
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            rename_in(&entry.path(), roots, true)?;
        }
    }
    rename_in(&environment.join("pyvenv.cfg"), roots, false)?;
    let lib = environment.join("lib");
    for version in if lib.is_dir() { sorted(&lib)? } else { Vec::new() } {
        let packages = version.path().join("site-packages");
        for entry in if packages.is_dir() { sorted(&packages)? } else { Vec::new() } {
            let name = entry.file_name();
            let name = name.as_bytes();
            if name.ends_with(b".pth") || name.ends_with(b".egg-link") || name.starts_with(b"__editable__") {
                rename_in(&entry.path(), roots, false)?;
            }
            let url = entry.path().join("direct_url.json");
            if name.ends_with(b".dist-info") && url.is_file() {
                rename_in(&url, roots, false)?;
            }
        }
    }
    Ok(())
}

fn rename_in(path: &Path, roots: &[PathBuf], scripts_only: bool) -> Result<(), StageError> {
    if !fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file()) {
        return Ok(());
    }
    let mut bytes = fs::read(path).map_err(|error| failed("read", path, error))?;
    // The activation scripts are no programs, but are sourced by shells.
    let is_script = bytes.starts_with(b"#!")
        || path.file_name().is_some_and(|name| name.as_bytes().to_ascii_lowercase().starts_with(b"activate"));
    if scripts_only && !is_script {
        return Ok(());
    }
    let before = bytes.clone();
    for root in roots {
        bytes = renamed(&bytes, root.as_os_str().as_bytes());
    }
    if bytes != before {
        fs::write(path, bytes).map_err(|error| failed("write", path, error))?;
    }
    Ok(())
}

/// `root` as a whole path becomes `/src`; as the beginning of a longer name it stays.
fn renamed(bytes: &[u8], root: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let part_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
        let ends = |rest: &[u8]| rest.get(root.len()).is_none_or(|byte| !part_of_name(byte));
        // Behind a part of another path it is not the root: `/mnt/home/x` is not `/home/x`.
        let begins = at == 0 || !bytes.get(at - 1).is_some_and(part_of_name);
        if root.len() > 1 && begins && rest.starts_with(root) && ends(rest) {
            result.extend_from_slice(TREE);
            at += root.len();
        } else {
            result.push(bytes[at]);
            at += 1;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_root_is_renamed() {
        for (text, expected) in [
            ("#!/home/a/p/.venv/bin/python3\n", "#!/src/.venv/bin/python3\n"),
            ("/home/a/p\n/home/a/p2\n/home/a/p/x", "/src\n/home/a/p2\n/src/x"),
            ("/mnt/home/a/p", "/mnt/home/a/p"),
            ("{'p': '/home/a/p/p'}", "{'p': '/src/p'}"),
            ("file:///home/a/p\"", "file:///src\""),
            ("", ""),
        ] {
            assert_eq!(String::from_utf8(renamed(text.as_bytes(), b"/home/a/p")).unwrap(), expected);
        }
    }

    #[test]
    fn compiled_files_keep_their_worth_only_if_they_fit_their_source() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("__pycache__");
        fs::create_dir(&cache).unwrap();
        let source = dir.path().join("a.py");
        fs::write(&source, "x = 1\n").unwrap();
        let time = u32::try_from(fs::metadata(&source).unwrap().mtime()).unwrap();
        let compiled = |flags: u32, time: u32, size: u32| {
            let numbers = [0x0a0d_0da7, flags, time, size].map(u32::to_le_bytes).concat();
            [&numbers[..], b"code"].concat()
        };
        for (name, bytes, expected) in [
            ("a.cpython-311.pyc", compiled(0, time, 6), Some(compiled(0, MTIME, 6))),
            ("a.cpython-312.pyc", compiled(0, time - 1, 6), None),
            ("a.cpython-313.pyc", compiled(0, time, 7), None),
            ("a.cpython-314.pyc", compiled(3, 5, 6), Some(compiled(3, 5, 6))),
            ("gone.cpython-311.pyc", compiled(0, time, 6), None),
            ("a.short.pyc", b"x".to_vec(), None),
        ] {
            let path = cache.join(name);
            fs::write(&path, bytes).unwrap();
            settle_compiled(&cache).unwrap();
            assert_eq!(fs::read(&path).ok(), expected, "{name}");
        }
    }
}
