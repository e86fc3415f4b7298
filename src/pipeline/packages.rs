//! Installed packages for a check: those of the caller's working tree, or those that `prepare` fetched for this lock
//! file. Here it is decided which layers a check gets and what is missing; making them is `stage`'s, fetching them
//! `fetch`'s.
#![forbid(unsafe_code)]

use crate::model::check::{DepsChoice, DepsLayer};
use crate::model::digest::Digest;
use crate::model::layer::Level;
use crate::model::path::below;
use crate::model::pattern::matches;
use crate::model::policy::Policy;
use crate::model::runner::{PrepareRule, ResolvedRunner, Runner};
use crate::model::shell::shell_words;
use crate::pipeline::leftovers::sweep;
use crate::pipeline::step_inputs::inputs_of;
use crate::pipeline::{PipelineError, Surroundings, Wish};
use crate::sandbox::plan::{HOME_PLACE, TREE_PLACE};
use crate::sandbox::probe::Abilities;
use crate::stage::{self, DepsOptions, DepsSource};
use crate::toolchain::{self, Lookup};
use crate::tree::{Snapshot, Source};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Version of what preparations are kept under.
const PREPARE_VERSION: &[u8] = b"checkrun.prepare/3";

/// The largest `rust-toolchain` file that is read, in bytes.
const RUST_TOOLCHAIN_MAX: u64 = 64 << 10;

/// What a check gets.
#[derive(Debug, Default)]
pub(super) struct Packages {
    /// Its layers.
    pub(super) layers: Vec<DepsLayer>,
    /// Folders inside that go to the front of PATH.
    pub(super) path: Vec<PathBuf>,
    /// Programs of the host that the layers need.
    pub(super) also: Vec<PathBuf>,
    /// A virtual environment, as the check sees it.
    pub(super) environment: Option<PathBuf>,
    /// What was not prepared, as a sentence for when the check fails.
    pub(super) missing: Option<String>,
}

impl Packages {
    /// Adds them to a resolved runner.
    pub(super) fn put_into(&self, runner: &mut ResolvedRunner) {
        runner.path = self.path.iter().chain(&runner.path).cloned().collect();
        if let Some(environment) = self.environment.as_ref().and_then(|path| path.to_str()) {
            runner.env.insert("VIRTUAL_ENV".to_owned(), environment.to_owned());
        }
        if self.layers.iter().any(|layer| layer.in_home) {
            // What the caller has downloaded would hide what was prepared.
            runner.binds.retain(|bind| !bind.inside.starts_with(HOME_PLACE));
        }
    }
}

/// Where layers of packages are kept.
pub(super) fn options(around: &Surroundings, abilities: &Abilities) -> DepsOptions {
    let user = abilities.user;
    DepsOptions { root: around.store.cache.join("trees"), owner: user.switch.then_some((user.uid, user.gid)) }
}

/// The folders of installed packages that the working tree has.
pub(super) fn found(
    rule: &Runner,
    wish: &Wish,
    (snapshot, cwd): (&Snapshot, &[u8]),
    (around, options): (&Surroundings, &DepsOptions),
) -> Result<Packages, PipelineError> {
    let top = match (&wish.source, snapshot.repository_root()) {
        (Source::Folder { path, .. }, _) => wish.start.join(path),
        (_, Some(root)) => root.to_owned(),
        (_, None) => wish.start.clone(),
    };
    let real_top = fs::canonicalize(&top).unwrap_or_else(|_| top.clone());
    let cwd = Path::new(OsStr::from_bytes(cwd));
    let mut packages = Packages::default();
    let mut sources = Vec::new();
    let mut names = Vec::new();
    for found in &rule.found {
        let below = cwd.join(&found.folder);
        // A link that leads out of the tree, which a tree of somebody else's may have, is none of these folders.
        let is_own = |host: &PathBuf| host.is_dir() && host.starts_with(&real_top);
        let Some(host) = fs::canonicalize(top.join(&below)).ok().filter(is_own) else { continue };
        let inside = Path::new(TREE_PLACE).join(&below);
        if let Some(bin) = found.bin.as_ref().filter(|bin| host.join(bin).is_dir()) {
            packages.path.push(inside.join(bin));
        }
        if host.join("pyvenv.cfg").is_file() {
            packages.also.extend(interpreter_of(&host));
            packages.environment.get_or_insert(inside);
        }
        names.push(below.display().to_string());
        sources.push(DepsSource { host, below: Path::new("tree").join(below) });
    }
    if sources.is_empty() {
        let names = rule.found.iter().map(|found| format!("`{}`", found.folder.display()));
        return Err(PipelineError::NothingFound {
            runner: rule.name.clone(),
            names: names.collect::<Vec<_>>().join(", "),
            top: top.join(cwd),
        });
    }
    let roots = if real_top == top { vec![top] } else { vec![top, real_top] };
    let (digest, folder) = layer_of(&sources, &roots, around, options)?;
    packages.layers.push(DepsLayer {
        from: DepsChoice::Found,
        name: names.join(", "),
        digest,
        folder,
        in_tree: true,
        in_home: false,
    });
    Ok(packages)
}

/// The layer of these folders as they are now; made anew only if anything in them has changed.
fn layer_of(
    sources: &[DepsSource],
    roots: &[PathBuf],
    around: &Surroundings,
    options: &DepsOptions,
) -> Result<(Digest, PathBuf), PipelineError> {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed();
    let (before, settled) = stage::stamp(sources, now())?;
    let known = around.store.cache.join("packages/found").join(before.hex());
    let digest = fs::read_to_string(&known).ok().and_then(|text| Digest::parse(text.trim()));
    if let Some((digest, folder)) = digest.and_then(|digest| Some((digest, options.existing(digest)?))) {
        return Ok((digest, folder));
    }
    let (digest, folder) = stage::layer_of_folders(sources, roots, options)?;
    if stage::stamp(sources, now())?.0 != before {
        let path = sources.first().map(|source| source.host.clone()).unwrap_or_default();
        return Err(PipelineError::FoundChanged { path });
    }
    if settled {
        keep(&known, &digest.to_string())?;
    }
    Ok((digest, folder))
}

/// Notes a line in a small file, which is there as a whole or not at all.
pub(super) fn keep(path: &Path, line: &str) -> Result<(), PipelineError> {
    let failed = |source: io::Error| PipelineError::Folder { what: "write", path: path.to_owned(), source };
    let temporary = path.with_extension(std::process::id().to_string());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
        sweep(folder);
    }
    let written = fs::write(&temporary, format!("{line}\n")).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|source| {
        drop(fs::remove_file(&temporary));
        failed(source)
    })
}

/// The interpreter that a virtual environment was made with: what its own links lead to outside of it.
fn interpreter_of(environment: &Path) -> Option<PathBuf> {
    let mut path = environment.join("bin/python");
    // As many links as the kernel follows (path_resolution(7)).
    for _ in 0..40 {
        if !path.starts_with(environment) {
            return Some(path);
        }
        path = path.parent()?.join(fs::read_link(&path).ok()?);
    }
    None
}

/// The step of a runner that is for this tree: the first one whose files are all there.
pub(super) fn step_for<'r>(rule: &'r Runner, snapshot: &Snapshot, cwd: &[u8]) -> Option<&'r PrepareRule> {
    let there = |file: &PathBuf| snapshot.has_file(&below(cwd, file.as_os_str().as_bytes()));
    rule.prepare.iter().find(|step| step.when.iter().all(there))
}

/// Whether a file of the tree is an input of a step.
pub(super) fn is_input(step: &PrepareRule, cwd: &[u8], path: &[u8]) -> bool {
    let inner = match path.strip_prefix(cwd) {
        Some(rest) if cwd.is_empty() => rest,
        Some([b'/', rest @ ..]) => rest,
        _ => return false,
    };
    let named = |name: &[u8]| inner.strip_prefix(name).is_some_and(|rest| matches!(rest, [] | [b'/', ..]));
    step.when.iter().any(|path| named(path.as_os_str().as_bytes()))
        || step.inputs.iter().any(|pattern| {
            if pattern.contains('*') { matches(pattern.as_bytes(), inner) } else { named(pattern.as_bytes()) }
        })
}

/// Where preparations of a runner are noted.
pub(super) fn noted_at(around: &Surroundings, runner: &str) -> PathBuf {
    around.store.cache.join("packages/prepared").join(runner)
}

/// What a preparation is kept under: the step, its inputs, and the toolchain that it is made with.
pub(super) fn preparation_key(
    (rule, step): (&Runner, &PrepareRule),
    (snapshot, cwd): (&Snapshot, &[u8]),
    policy: &Policy,
    around: &Surroundings,
    digests: &mut dyn toolchain::FileDigests,
) -> Result<Digest, PipelineError> {
    let inputs = inputs_of(step, snapshot, cwd, around)?;
    // The same whatever the check's own command is.
    let program = rule.toolchain.program.as_deref().unwrap_or("sh");
    let lookup = Lookup { rust: rust(rule, snapshot, cwd)?, ..around.lookup.clone() };
    let resolved = toolchain::resolve(rule, (program.as_bytes(), &[]), policy, &lookup, digests)?;
    let index = rule.prepare.iter().position(|known| known == step).unwrap_or(0).to_string();
    // By content and not by place, which depends on the policy. What the system has installed besides is left out: it
    // changes with every package, and is in the key of each check anyway.
    let mut toolchain: Vec<[u8; 32]> = resolved
        .identity
        .iter()
        .filter(|(path, _)| !toolchain::is_of_the_system(path))
        .map(|(_, digest)| digest.0)
        .collect();
    toolchain.sort_unstable();
    let fields = [
        PREPARE_VERSION,
        &resolved.digest.0,
        index.as_bytes(),
        inputs.as_bytes(),
        cwd,
        resolved.toolchain.as_bytes(),
        std::env::consts::ARCH.as_bytes(),
    ];
    Ok(Digest::of_fields(fields.into_iter().chain(toolchain.iter().map(|digest| &digest[..]))))
}

/// The toolchain that the tree asks rustup for: in the folder that the command starts in, or the nearest one above.
pub(super) fn rust(rule: &Runner, snapshot: &Snapshot, cwd: &[u8]) -> Result<Option<String>, PipelineError> {
    if rule.toolchain.shim.as_deref() != Some("rustup") {
        return Ok(None);
    }
    for folder in Path::new(OsStr::from_bytes(cwd)).ancestors() {
        for name in ["rust-toolchain", "rust-toolchain.toml"] {
            let path = folder.join(name);
            if let Some(bytes) = snapshot.read_file(path.as_os_str().as_bytes(), RUST_TOOLCHAIN_MAX)? {
                return Ok(toolchain::channel(&String::from_utf8_lossy(&bytes)));
            }
        }
    }
    Ok(None)
}

/// What was prepared for this tree, or that nothing was.
pub(super) fn prepared(
    rule: &Runner,
    (snapshot, cwd): (&Snapshot, &[u8]),
    policy: &Policy,
    (around, options): (&Surroundings, &DepsOptions),
    digests: &mut dyn toolchain::FileDigests,
) -> Result<Packages, PipelineError> {
    let Some(step) = step_for(rule, snapshot, cwd) else { return Ok(Packages::default()) };
    let missing = || {
        let lacks = |file: &PathBuf| !snapshot.has_file(&below(cwd, file.as_os_str().as_bytes()));
        if step.optional_without.as_ref().is_some_and(lacks) {
            return Packages::default();
        }
        let file = step.when.last().map(|path| path.display().to_string()).unwrap_or_default();
        let folder = match cwd {
            b"" => String::new(),
            cwd => format!(" --cwd {}", shell_words(&[cwd.to_vec()])),
        };
        let text = format!(
            "not_prepared: nothing was prepared for this {file}; `checkrun prepare --runner {}{folder}` fetches what it names",
            rule.name
        );
        Packages { missing: Some(text), ..Packages::default() }
    };
    let noted = noted_at(around, &rule.name);
    // Whoever never prepares anything pays nothing for it.
    if !noted.is_dir() {
        return Ok(missing());
    }
    let key = preparation_key((rule, step), (snapshot, cwd), policy, around, digests)?;
    let digest = fs::read_to_string(noted.join(key.hex())).ok().and_then(|text| Digest::parse(text.trim()));
    let Some((digest, folder)) = digest.and_then(|digest| Some((digest, options.existing(digest)?))) else {
        return Ok(missing());
    };
    if policy.level == Level::Landlock && folder.join("home").is_dir() {
        // There the home folder has no place of its own, which programs of an environment name.
        let text = "not_prepared: what was prepared for the home folder needs the level `full`";
        return Ok(Packages { missing: Some(text.to_owned()), ..Packages::default() });
    }
    let layer = DepsLayer {
        from: DepsChoice::Prepared,
        name: rule.name.clone(),
        digest,
        in_tree: folder.join("tree").is_dir(),
        in_home: folder.join("home").is_dir(),
        folder,
    };
    let home = Path::new(HOME_PLACE);
    let environment =
        step.home.iter().find(|path| layer.folder.join("home").join(path).join("pyvenv.cfg").is_file());
    let also = environment.and_then(|path| interpreter_of(&layer.folder.join("home").join(path)));
    Ok(Packages {
        path: step.path.iter().map(|path| home.join(path)).collect(),
        also: also.into_iter().collect(),
        environment: environment.map(|path| home.join(path)),
        layers: vec![layer],
        missing: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_named_or_match() {
        let step = PrepareRule {
            when: vec!["package.json".into()],
            inputs: vec![".cargo".to_owned(), "*require*.txt".to_owned()],
            whole_tree: false,
            run: String::new(),
            build: String::new(),
            optional_without: None,
            tree: Vec::new(),
            home: Vec::new(),
            path: Vec::new(),
        };
        for (cwd, path, expected) in [
            ("", "package.json", true),
            ("", "a/package.json", false),
            ("", "package.json5", false),
            ("", ".cargo/config.toml", true),
            ("", "a/requirements.txt", true),
            ("", "requirements.txt.in", false),
            ("a", "a/package.json", true),
            ("a", "package.json", false),
            ("a", "ab/package.json", false),
        ] {
            assert_eq!(is_input(&step, cwd.as_bytes(), path.as_bytes()), expected, "{cwd} {path}");
        }
    }
}
