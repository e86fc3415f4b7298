//! Finds a program as execvp(3) would, follows its symbolic links and reads its `#!` line. What is done with the files
//! found is not decided here.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// Most links that are followed for one program; the kernel follows 40 (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Bytes of a script's start that are read; the kernel reads 256 for the `#!` line (execve(2)), the rest is for the
/// import line of a Python entry point.
const SCRIPT_START: u64 = 4096;

/// A program of the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Found {
    /// The path by which it was found, then what each symbolic link leads to, as the links say it.
    pub(super) chain: Vec<PathBuf>,
    /// The file itself, all links resolved.
    pub(super) real: PathBuf,
}

/// Whether a first word means a file of the tree: a path that is not absolute, or one below the place of the tree.
pub(super) fn is_in_tree(word: &OsStr) -> bool {
    let has_slash = word.as_bytes().contains(&b'/');
    has_slash && (!word.as_bytes().starts_with(b"/") || Path::new(word).starts_with("/src"))
}

/// Finds a program: an absolute path as it is, a bare name on `path`, leaving out the folders of `skipped`.
pub(super) fn find(word: &OsStr, path: Option<&OsStr>, skipped: &BTreeSet<PathBuf>) -> Option<Found> {
    if word.is_empty() || is_in_tree(word) {
        return None;
    }
    if word.as_bytes().contains(&b'/') {
        return follow(Path::new(word));
    }
    path?
        .as_bytes()
        .split(|byte| *byte == b':')
        .map(|folder| Path::new(OsStr::from_bytes(folder)))
        // An empty or relative entry means the current folder, which is the tree's business.
        .filter(|folder| folder.is_absolute() && !skipped.contains(*folder))
        .map(|folder| folder.join(word))
        .find(|candidate| is_executable(candidate))
        .and_then(|candidate| follow(&candidate))
}

/// Whether a path leads to a regular file that somebody may execute.
pub(super) fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Follows a program's links; `None` where it is no file.
pub(super) fn follow(path: &Path) -> Option<Found> {
    let real = fs::canonicalize(path).ok()?;
    if !is_executable(&real) {
        return None;
    }
    let mut chain = vec![path.to_owned()];
    let mut current = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(target) = fs::read_link(&current) else { break };
        // A relative link counts from the folder that really holds it, not from a link to that folder.
        let folder = fs::canonicalize(current.parent()?).ok()?;
        current = lexically(&folder.join(target));
        chain.push(current.clone());
    }
    if chain.last() != Some(&real) {
        chain.push(real.clone());
    }
    Some(Found { chain, real })
}

/// A path without `.` and `..`.
fn lexically(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

/// What a `#!` line names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Interpreter {
    /// The interpreter.
    pub(super) program: OsString,
    /// Where that is `env`: the name that it looks up.
    pub(super) by_env: Option<OsString>,
}

/// The interpreter of a script; `None` for other files.
pub(super) fn interpreter(file: &Path) -> Option<Interpreter> {
    parse_interpreter(&start_of(file)?)
}

fn start_of(file: &Path) -> Option<Vec<u8>> {
    // With room for all of it one read does.
    let mut start = Vec::with_capacity(usize::try_from(SCRIPT_START).unwrap_or(0) + 1);
    File::open(file).ok()?.take(SCRIPT_START).read_to_end(&mut start).ok()?;
    Some(start)
}

fn parse_interpreter(start: &[u8]) -> Option<Interpreter> {
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t' | b'\r')).filter(|word| !word.is_empty());
    let program = words.next()?;
    let owned = |word: &[u8]| OsString::from_vec(word.to_vec());
    let by_env = program
        .ends_with(b"/env")
        .then(|| words.find(|word| !word.starts_with(b"-") && !word.contains(&b'=')).map(owned))
        .flatten();
    Some(Interpreter { program: owned(program), by_env })
}

/// Folders that a Python entry point may run from: the packages named like the module that it imports, beside the
/// `bin` that it lies in. Some toolchains come as such packages.
pub(super) fn python_packages(script: &Path) -> Vec<PathBuf> {
    let Some(start) = start_of(script) else { return Vec::new() };
    let python = parse_interpreter(&start).is_some_and(|interpreter| {
        let named = interpreter.by_env.unwrap_or(interpreter.program);
        // Installers write `#!/bin/sh` and an `exec` of Python where the interpreter's path is too long for `#!`.
        let name = Path::new(&named).file_name().unwrap_or_default().as_bytes();
        name.starts_with(b"python") || name == b"sh"
    });
    let module = imported_module(&String::from_utf8_lossy(&start));
    let prefix = script.parent().and_then(Path::parent);
    let (true, Some(module), Some(prefix)) = (python, module, prefix) else { return Vec::new() };
    let lib = prefix.join("lib");
    let mut packages: Vec<PathBuf> = fs::read_dir(&lib)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().as_bytes().starts_with(b"python3"))
        .flat_map(|entry| {
            ["site-packages", "dist-packages"].map(|folder| entry.path().join(folder).join(&module))
        })
        .filter(|package| package.is_dir())
        .collect();
    packages.sort_unstable();
    packages
}

/// The top-level module of the first `from M import …` line.
fn imported_module(script: &str) -> Option<String> {
    let module = script.lines().find_map(|line| {
        let (module, rest) = line.strip_prefix("from ")?.split_once(' ')?;
        rest.trim_start().starts_with("import ").then_some(module)
    })?;
    let top = module.split('.').next()?;
    let plain = !top.is_empty() && top.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    plain.then(|| top.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreter_lines_are_read_as_the_kernel_does() {
        for (line, program, by_env) in [
            ("#!/bin/sh\nx", Some("/bin/sh"), None),
            ("#! /bin/sh -e\n", Some("/bin/sh"), None),
            ("#!/usr/bin/env python3\n", Some("/usr/bin/env"), Some("python3")),
            ("#!/usr/bin/env -S A=b node --x\n", Some("/usr/bin/env"), Some("node")),
            ("#!/usr/bin/env\n", Some("/usr/bin/env"), None),
            ("#!\n", None, None),
            ("\x7fELF", None, None),
            ("", None, None),
        ] {
            let got = parse_interpreter(line.as_bytes());
            assert_eq!(got.as_ref().map(|got| got.program.to_str().unwrap()), program, "{line:?}");
            assert_eq!(got.and_then(|got| got.by_env).as_deref().and_then(OsStr::to_str), by_env, "{line:?}");
        }
    }

    #[test]
    fn entry_points_say_what_they_import() {
        for (script, module) in [
            ("import sys\nfrom go import main\n", Some("go")),
            ("from a_b.cli.x import main", Some("a_b")),
            ("from ../x import y", None),
            ("  from go import main", None),
            ("from go", None),
        ] {
            assert_eq!(imported_module(script).as_deref(), module, "{script:?}");
        }
    }

    #[test]
    fn words_with_a_slash_are_not_looked_up() {
        assert!(
            is_in_tree(OsStr::new("./run"))
                && is_in_tree(OsStr::new("a/b"))
                && is_in_tree(OsStr::new("/src/x"))
        );
        assert!(!is_in_tree(OsStr::new("go")) && !is_in_tree(OsStr::new("/opt/x")));
        assert_eq!(find(OsStr::new("./sh"), Some(OsStr::new("/bin")), &BTreeSet::new()), None);
        assert_eq!(find(OsStr::new(""), Some(OsStr::new("/bin")), &BTreeSet::new()), None);
        assert!(find(OsStr::new("sh"), Some(OsStr::new(":.:/usr/bin:/bin")), &BTreeSet::new()).is_some());
    }
}
