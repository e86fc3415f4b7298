//! Looks behind programs that only choose which program to run: rustup's, pyenv's and volta's shims. Their files are read,
//! nothing is started; overrides by folder or by environment are not followed.
#![forbid(unsafe_code)]

use crate::toolchain::program::{self, Found};
use crate::toolchain::{Lookup, ToolchainError};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The program that a shim of this kind would run, or the program itself where it is no shim. `None` where the shim
/// stands for a program that is not installed.
pub(super) fn look_behind(
    found: Found,
    kind: Option<&str>,
    lookup: &Lookup,
) -> Result<Option<Found>, ToolchainError> {
    match kind {
        Some("rustup") if is_rustup(&found) => behind_rustup(&found, lookup),
        Some("pyenv") => behind_pyenv(found, lookup),
        Some("volta") if found.real.file_name().is_some_and(|name| name == "volta-shim") => {
            behind_volta(&found, lookup)
        }
        _ => Ok(Some(found)),
    }
}

/// rustup's shims are links to rustup, symbolic or hard.
fn is_rustup(found: &Found) -> bool {
    if found.real.file_name() == Some(OsStr::new("rustup")) {
        return true;
    }
    let same = |one: &Path, other: &Path| {
        let id = |path: &Path| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
        id(one).is_some_and(|one| id(other) == Some(one))
    };
    same(&found.real, &found.real.with_file_name("rustup"))
}

fn behind_rustup(found: &Found, lookup: &Lookup) -> Result<Option<Found>, ToolchainError> {
    let problem = |problem: String| ToolchainError::Shim {
        program: found.chain.first().unwrap_or(&found.real).clone(),
        kind: "rustup",
        problem,
    };
    let home = lookup
        .tool_folder("RUSTUP_HOME", Path::new(".rustup"))
        .ok_or_else(|| problem("there is no home folder to find its settings in".to_owned()))?;
    let shim = found.chain.first().and_then(|path| path.file_name()).unwrap_or_default();
    if let Some(channel) = &lookup.rust {
        let folder = home.join("toolchains");
        let root = installed(&folder, channel)
            .ok_or_else(|| ToolchainError::NotInstalled { channel: channel.clone(), folder })?;
        return there(&root, shim).map(Some).map_err(problem);
    }
    let settings = home.join("settings.toml");
    let text = read_start(&settings, 64 << 10)
        .ok_or_else(|| problem(format!("its settings {} cannot be read", settings.display())))?;
    let name = default_toolchain(&text)
        .ok_or_else(|| problem(format!("{} names no default toolchain", settings.display())))?;
    let root = home.join("toolchains").join(name);
    if !root.is_dir() {
        return Err(problem(format!("its default toolchain {} is not installed", root.display())));
    }
    there(&root, shim).map(Some).map_err(problem)
}

/// The program that a shim stands for; in words what is missing, where it is not there.
fn there(root: &Path, name: &OsStr) -> Result<Found, String> {
    program::follow(&root.join("bin").join(name))
        .ok_or_else(|| format!("{} has no program `{}`", root.display(), name.to_string_lossy()))
}

/// The folder of a toolchain: of that name, or of that name and this machine's platform.
fn installed(toolchains: &Path, channel: &str) -> Option<std::path::PathBuf> {
    let exact = toolchains.join(channel);
    if exact.is_dir() {
        return Some(exact);
    }
    let prefix = format!("{channel}-{}-", std::env::consts::ARCH);
    let names = fs::read_dir(toolchains).ok()?.flatten().map(|entry| entry.file_name());
    // Those for musl come after those for the C library that most machines have.
    let name = names.filter(|name| name.to_str().is_some_and(|name| name.starts_with(&prefix))).min()?;
    Some(toolchains.join(name))
}

/// What a `rust-toolchain` or `rust-toolchain.toml` file asks for (rust-lang.github.io/rustup/overrides.html): the channel
/// of its section `toolchain`, or, in the older form, its one line.
#[must_use]
pub fn channel(file: &str) -> Option<String> {
    let lines = || file.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let mut filled = lines().filter(|line| !line.is_empty());
    let name = match (filled.next(), filled.next()) {
        (Some(line), None) if !line.contains(['=', '[']) => line,
        _ => {
            let section = lines().skip_while(|line| *line != "[toolchain]").skip(1);
            let mut keys =
                section.take_while(|line| !line.starts_with('[')).filter_map(|line| line.split_once('='));
            let value = keys.find(|(key, _)| key.trim() == "channel")?.1.trim();
            value.trim_matches(['"', '\''])
        }
    };
    // It becomes part of a path.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (!name.is_empty() && !name.starts_with('.') && name.bytes().all(plain)).then(|| name.to_owned())
}

/// The value of `default_toolchain` in rustup's settings, which rustup writes itself, one key a line.
fn default_toolchain(settings: &str) -> Option<&str> {
    let top = settings.lines().take_while(|line| !line.trim_start().starts_with('['));
    let value =
        top.filter_map(|line| line.split_once('=')).find(|(key, _)| key.trim() == "default_toolchain")?.1;
    let name = value.trim().strip_prefix('"')?.strip_suffix('"')?;
    // It becomes part of a path.
    (!name.is_empty() && !name.contains(['/', '\0', '\\']) && !name.starts_with('.')).then_some(name)
}

/// volta's shims are links to `volta-shim`; the user's default Node is in `ROOT/tools/user/platform.json`. A version that
/// a package.json pins is not followed.
fn behind_volta(found: &Found, lookup: &Lookup) -> Result<Option<Found>, ToolchainError> {
    let problem = |problem: String| ToolchainError::Shim {
        program: found.chain.first().unwrap_or(&found.real).clone(),
        kind: "volta",
        problem,
    };
    let root = lookup
        .tool_folder("VOLTA_HOME", Path::new(".volta"))
        .ok_or_else(|| problem("there is no home folder to find its settings in".to_owned()))?;
    let platform = root.join("tools/user/platform.json");
    let text = read_start(&platform, 64 << 10)
        .ok_or_else(|| problem(format!("its settings {} cannot be read", platform.display())))?;
    let settings: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let version = settings.pointer("/node/runtime").and_then(serde_json::Value::as_str);
    let version = version.filter(|version| !version.contains(['/', '\0']) && !version.starts_with('.'));
    let version = version.ok_or_else(|| problem(format!("{} names no Node", platform.display())))?;
    let shim = found.chain.first().and_then(|path| path.file_name()).unwrap_or_default();
    there(&root.join("tools/image/node").join(version), shim).map(Some).map_err(problem)
}

/// pyenv's shims are scripts in `ROOT/shims`; which version they run is in `ROOT/version`.
fn behind_pyenv(found: Found, lookup: &Lookup) -> Result<Option<Found>, ToolchainError> {
    let Some((folder, name)) = found.chain.first().and_then(|path| path.parent().zip(path.file_name()))
    else {
        return Ok(Some(found));
    };
    let root = folder.parent().filter(|root| {
        folder.file_name() == Some(OsStr::new("shims"))
            && root.join("versions").is_dir()
            && root.join("libexec").is_dir()
    });
    let Some(root) = root else { return Ok(Some(found)) };
    // Without a version file pyenv means the system's own Python.
    let versions = read_start(&root.join("version"), 4096).unwrap_or_else(|| "system".to_owned());
    let mut gone = Vec::new();
    let mut is_any_there = false;
    for version in versions.split_whitespace() {
        if version == "system" {
            return Ok(program::find(name, lookup.path.as_deref(), &BTreeSet::from([folder.to_owned()])));
        }
        if version.contains(['/', '\0']) || version.starts_with('.') {
            continue;
        }
        let Some(folder) = pyenv_version(&root.join("versions"), version) else {
            gone.push(version);
            continue;
        };
        is_any_there = true;
        if let Some(found) = program::follow(&folder.join("bin").join(name)) {
            return Ok(Some(found));
        }
    }
    if is_any_there || gone.is_empty() {
        // A version without this program says nothing of where else it may come from, such as prepared packages.
        return Ok(None);
    }
    // Another Python in its place, as the system's, would not be the one that was asked for.
    Err(ToolchainError::Shim {
        program: folder.join(name),
        kind: "pyenv",
        problem: format!(
            "version {} that {} asks for is not installed",
            gone.join(" or "),
            root.join("version").display()
        ),
    })
}

/// The folder of a version: of that name, or the newest whose name starts with it and a dot (`3.11` is `3.11.7`).
fn pyenv_version(versions: &Path, version: &str) -> Option<std::path::PathBuf> {
    let exact = versions.join(version);
    if exact.is_dir() {
        return Some(exact);
    }
    let prefix = format!("{version}.");
    let patch = |name: &str| name.strip_prefix(&prefix)?.parse::<u32>().ok();
    let entries = fs::read_dir(versions).ok()?.flatten();
    let newest = entries.filter_map(|entry| patch(entry.file_name().to_str()?)).max()?;
    Some(versions.join(format!("{prefix}{newest}")))
}

/// The version of a toolchain that a shim stands for, in words: its folder's name and, for rustup, the date of its
/// release. Empty where nothing says it.
pub(super) fn version(root: &Path, kind: Option<&str>) -> String {
    if kind != Some("rustup") {
        return String::new();
    }
    let manifest = read_start(&root.join("lib/rustlib/multirust-channel-manifest.toml"), 4096);
    let date = manifest.as_deref().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("date = \""))?;
        line.strip_suffix('"')
    });
    match (root.file_name().and_then(OsStr::to_str), date) {
        (Some(name), Some(date)) => format!("{name} of {date}"),
        _ => String::new(),
    }
}

/// The start of a small text file.
pub(super) fn read_start(path: &Path, most: u64) -> Option<String> {
    let mut start = Vec::new();
    File::open(path).ok()?.take(most).read_to_end(&mut start).ok()?;
    Some(String::from_utf8_lossy(&start).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rustups_settings_are_read() {
        for (text, name) in [
            ("version = \"12\"\ndefault_toolchain = \"stable-x\"\n[overrides]\n", Some("stable-x")),
            ("default_toolchain=\"1.95.0\"", Some("1.95.0")),
            ("[overrides]\ndefault_toolchain = \"x\"", None),
            ("default_toolchain = \"../x\"", None),
            ("default_toolchain = \"\"", None),
            ("", None),
        ] {
            assert_eq!(default_toolchain(text), name, "{text:?}");
        }
    }

    #[test]
    fn files_of_trees_say_which_toolchain_they_want() {
        for (text, name) in [
            ("1.89.0\n", Some("1.89.0")),
            ("# ours\nnightly-2026-01-01", Some("nightly-2026-01-01")),
            ("[toolchain]\nchannel = \"1.89\" # why\ncomponents = [\"clippy\"]\n", Some("1.89")),
            ("[x]\nchannel = \"a\"\n[toolchain]\nprofile = \"minimal\"\nchannel='stable'", Some("stable")),
            ("[toolchain]\npath = \"/x\"", None),
            ("[toolchain]\nchannel = \"../x\"", None),
            ("", None),
        ] {
            assert_eq!(channel(text).as_deref(), name, "{text:?}");
        }
    }

    #[test]
    fn pyenv_takes_the_newest_patch_of_a_prefix() {
        let versions = tempfile::tempdir().unwrap();
        for name in ["3.11.2", "3.11.10", "3.12.1", "3.11.x"] {
            fs::create_dir(versions.path().join(name)).unwrap();
        }
        let found = |version| {
            pyenv_version(versions.path(), version).map(|path| path.file_name().unwrap().to_owned())
        };
        assert_eq!(found("3.11").as_deref(), Some(OsStr::new("3.11.10")));
        assert_eq!(found("3.12.1").as_deref(), Some(OsStr::new("3.12.1")));
        assert_eq!(found("3.10"), None);
    }
}
