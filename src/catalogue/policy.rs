//! Reads a policy from TOML: the built-in ones, the user's, or a file. Every allowance must say why it is there. What
//! a machine can enforce of it is not asked here.
#![forbid(unsafe_code)]

use crate::catalogue::document::{Section, Source};
use crate::catalogue::{CatalogueError, names_in, read, unknown};
use crate::catalogue::{clock, hosts};
use crate::model::guise::Guise;
use crate::model::hosts::NamedHost;
use crate::model::layer::{Layer, Level, Need};
use crate::model::policy::{Aslr, Clock, ClockStart, GitView, Limits, Network, Policy, UMASK, Visible};
use crate::model::units::{Bytes, parse_duration};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// The policies that come with checkrun, the default one first.
const BUILT_IN: [(&str, &str); 6] = [
    ("hermetic", include_str!("../../policies/hermetic.toml")),
    ("strict", include_str!("../../policies/strict.toml")),
    ("landlock", include_str!("../../policies/landlock.toml")),
    ("networked", include_str!("../../policies/networked.toml")),
    ("prepare", include_str!("../../policies/prepare.toml")),
    ("nested", include_str!("../../policies/nested.toml")),
];

/// Why a policy allows what it allows, by key: `layers.time`, `network`, `aslr`, `clock`, `git`.
pub type Reasons = BTreeMap<String, String>;

/// A policy as it was read, with the reasons that its file gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedPolicy {
    /// The policy.
    pub policy: Policy,
    /// Its reasons.
    pub reasons: Reasons,
    /// Where it came from: `built-in` or a path.
    pub origin: String,
}

/// Finds a policy by name (built in, else `policies/NAME.toml` of the user's configuration) or by the path of its
/// file, which has a `/` in it or ends in `.toml`.
///
/// # Errors
/// No such policy, or a file that cannot be read or does not parse.
pub fn policy(reference: &str, config: Option<&Path>) -> Result<NamedPolicy, CatalogueError> {
    if reference.contains('/') || reference.ends_with(".toml") {
        let path = Path::new(reference);
        let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        return from_file(&name, path);
    }
    let own = config.map(|config| config.join("policies").join(format!("{reference}.toml")));
    let own = own.filter(|path| std::fs::symlink_metadata(path).is_ok());
    match (built_in(reference), own) {
        (Some(_), Some(path)) => {
            Err(CatalogueError::Reserved { kind: "policy", name: reference.to_owned(), path })
        }
        (Some(found), None) => found,
        (None, Some(path)) => from_file(reference, &path),
        (None, None) => Err(unknown("policy", reference, &names(config)?)),
    }
}

/// All policies: the built-in ones, then the user's by name.
///
/// # Errors
/// A file of the user's that cannot be read or does not parse.
pub fn policies(config: Option<&Path>) -> Result<Vec<NamedPolicy>, CatalogueError> {
    names(config)?.iter().map(|name| policy(name, config)).collect()
}

fn names(config: Option<&Path>) -> Result<Vec<String>, CatalogueError> {
    let mut names: Vec<String> = BUILT_IN.iter().map(|(name, _)| (*name).to_owned()).collect();
    if let Some(config) = config {
        names.extend(names_in(&config.join("policies"))?);
    }
    Ok(names)
}

/// A built-in policy; `None` where none has that name.
pub(super) fn built_in(name: &str) -> Option<Result<NamedPolicy, CatalogueError>> {
    let (name, text) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
    let file = format!("policies/{name}.toml");
    Some(parse(name, Source { file: &file, text }, "built-in").map(|named| on_this_machine(named, list)))
}

fn from_file(name: &str, path: &Path) -> Result<NamedPolicy, CatalogueError> {
    let text = read(path)?;
    let file = path.display().to_string();
    parse(name, Source { file: &file, text: &text }, &file).map(|named| on_this_machine(named, list))
}

/// Names in a folder of the host; none where it cannot be listed, since such paths are optional.
fn list(folder: &Path) -> Vec<OsString> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).collect()
}

/// Replaces each visible path that ends in `*` by what there is of it here.
fn on_this_machine(mut named: NamedPolicy, list: impl Fn(&Path) -> Vec<OsString>) -> NamedPolicy {
    let mut visible: Vec<Visible> = Vec::with_capacity(named.policy.visible.len());
    let mut folders: BTreeMap<PathBuf, Vec<OsString>> = BTreeMap::new();
    for entry in named.policy.visible {
        let pattern = entry.path.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_suffix('*'));
        let Some(prefix) = pattern else {
            visible.push(entry);
            continue;
        };
        let folder = entry.path.parent().unwrap_or(Path::new("/")).to_owned();
        let names = folders.entry(folder.clone()).or_insert_with_key(|folder| list(folder));
        let mut matching: Vec<PathBuf> = names
            .iter()
            .filter(|name| name.to_str().is_some_and(|name| name.starts_with(prefix)))
            .map(|name| folder.join(name))
            .collect();
        matching.sort_unstable();
        visible.extend(matching.into_iter().map(|path| Visible { path, ..entry.clone() }));
    }
    named.policy.visible = visible;
    named
}

/// Reads one policy; a path that ends in `*` stays as it is written.
pub(super) fn parse(name: &str, source: Source<'_>, origin: &str) -> Result<NamedPolicy, CatalogueError> {
    let table = source.parse()?;
    let root = Section::root(
        source,
        &table,
        &["format", "description", "level", "network", "aslr", "clock", "git", "limits", "layers", "visible"],
    )?;
    let mut reasons = Reasons::new();
    let (network, hosts) = network(&root, &mut reasons)?;
    let policy = Policy {
        name: name.to_owned(),
        description: root.needed_text("description", "one sentence for people")?.to_owned(),
        level: root
            .word("level", &[("full", Level::Full), ("landlock", Level::Landlock)])?
            .ok_or_else(|| root.missing("level", "`full` or `landlock`"))?,
        network,
        hosts,
        layers: layers(&root, &mut reasons)?,
        limits: limits(&root)?,
        aslr: aslr(&root, &mut reasons)?,
        umask: UMASK,
        guise: Guise::default(),
        clock: clock_of(&root, &mut reasons)?,
        git: git(&root, &mut reasons)?,
        visible: visible(&root, "visible")?,
    };
    insist_on_limits(&root, &policy)?;
    hosts::insist_on_own_network(&root, &policy)?;
    Ok(NamedPolicy { policy, reasons, origin: origin.to_owned() })
}

/// The reason for an allowance; the parser insists on it.
fn reason(section: &Section<'_, '_>) -> Result<String, CatalogueError> {
    section.needed_text("why", "the reason why this is allowed, as a sentence").map(str::to_owned)
}

fn network(
    root: &Section<'_, '_>,
    reasons: &mut Reasons,
) -> Result<(Network, Vec<NamedHost>), CatalogueError> {
    let section = root.needed_section("network", &["mode", "why", "host"])?;
    let words = [Network::Loopback, Network::Hosts, Network::Host].map(|mode| (mode.name(), mode));
    let mode = section
        .word("mode", &words)?
        .ok_or_else(|| section.missing("mode", "`loopback`, `hosts` or `host`"))?;
    if mode != Network::Loopback || section.has("why") {
        reasons.insert("network".to_owned(), reason(&section)?);
    }
    Ok((mode, hosts::named(&section, mode)?))
}

fn aslr(root: &Section<'_, '_>, reasons: &mut Reasons) -> Result<Aslr, CatalogueError> {
    let section = root.needed_section("aslr", &["mode", "why"])?;
    // Either way something is given up, repeatability or a defence, so a reason is asked for both.
    reasons.insert("aslr".to_owned(), reason(&section)?);
    section
        .word("mode", &[("on", Aslr::On), ("off", Aslr::Off)])?
        .ok_or_else(|| section.missing("mode", "`on` or `off`"))
}

fn clock_of(root: &Section<'_, '_>, reasons: &mut Reasons) -> Result<Clock, CatalogueError> {
    let section = root.needed_section("clock", &["mode", "start", "why"])?;
    let [ticking, frozen] = clock::MODES.map(|(word, mode)| (word, Some(mode)));
    let mode = section.word("mode", &[ticking, frozen, ("host", None)])?;
    let start = clock::start(&section)?;
    if section.has("why") || mode == Some(None) {
        reasons.insert("clock".to_owned(), reason(&section)?);
    }
    match (mode, start) {
        (None, _) => Err(section.missing("mode", "`ticking`, `frozen` or `host`")),
        (Some(None), None) => Ok(Clock::Host),
        (Some(None), Some(_)) => Err(section.fail("start", "the host's clock has no start of its own")),
        (Some(Some(mode)), Some(ClockStart::At(start))) => Ok(Clock::Fixed { start, mode }),
        (Some(Some(mode)), Some(ClockStart::Commit)) => Ok(Clock::Commit { mode }),
        (Some(Some(_)), Some(ClockStart::Host) | None) => {
            Err(section.missing("start", "an instant such as \"2026-01-01T00:00:00Z\", or \"commit\""))
        }
    }
}

fn git(root: &Section<'_, '_>, reasons: &mut Reasons) -> Result<GitView, CatalogueError> {
    let Some(section) = root.section("git", &["view", "why"])? else { return Ok(GitView::None) };
    let view = section
        .word("view", &[("none", GitView::None), ("synthetic", GitView::Synthetic)])?
        .ok_or_else(|| section.missing("view", "`none` or `synthetic`"))?;
    if view == GitView::Synthetic || section.has("why") {
        reasons.insert("git".to_owned(), reason(&section)?);
    }
    Ok(view)
}

fn layers(root: &Section<'_, '_>, reasons: &mut Reasons) -> Result<BTreeMap<Layer, Need>, CatalogueError> {
    let names = Layer::ALL.map(Layer::name);
    let table = root.needed_section("layers", &names)?;
    let mut layers = BTreeMap::new();
    for layer in Layer::ALL {
        // A layer left out would be off without anybody having said why, so all of them are named.
        let section = table.needed_section(layer.name(), &["need", "why"])?;
        let need = section
            .word("need", &[("require", Need::Require), ("prefer", Need::Prefer), ("off", Need::Off)])?
            .ok_or_else(|| section.missing("need", "`require`, `prefer` or `off`"))?;
        if need != Need::Require || section.has("why") {
            reasons.insert(format!("layers.{layer}"), reason(&section)?);
        }
        layers.insert(layer, need);
    }
    Ok(layers)
}

fn limits(root: &Section<'_, '_>) -> Result<Limits, CatalogueError> {
    let section = root.needed_section("limits", &["timeout", "memory", "pids", "cpus", "disk", "output"])?;
    Ok(Limits {
        timeout: section
            .parsed("timeout", parse_duration)?
            .ok_or_else(|| section.missing("timeout", "a duration such as \"10m\""))?,
        memory: size(&section, "memory")?,
        pids: count(&section, "pids")?,
        cpus_milli: cpus(&section, "cpus")?,
        disk: size(&section, "disk")?.ok_or_else(|| section.missing("disk", "a size such as \"4GiB\""))?,
        output: size(&section, "output")?
            .ok_or_else(|| section.missing("output", "a size such as \"1GiB\""))?,
    })
}

/// A size in quotes, never zero.
pub(super) fn size(section: &Section<'_, '_>, key: &str) -> Result<Option<Bytes>, CatalogueError> {
    match section.parsed(key, Bytes::parse)? {
        Some(Bytes(0)) => Err(section.fail(key, "is zero; a limit is at least one byte")),
        size => Ok(size),
    }
}

/// A whole number, never zero.
pub(super) fn count(section: &Section<'_, '_>, key: &str) -> Result<Option<u64>, CatalogueError> {
    match section.integer(key)? {
        Some(0) => Err(section.fail(key, "is zero; a limit is at least one")),
        count => Ok(count),
    }
}

/// A number of processors, such as 1 or 1.5.
pub(super) fn cpus(section: &Section<'_, '_>, key: &str) -> Result<Option<u32>, CatalogueError> {
    let parse =
        |text: &str| crate::model::units::parse_cpus(text).map_err(|problem| section.fail(key, problem));
    section.number(key)?.map(parse).transpose()
}

/// A layer that limits something needs the limit that it is to enforce.
fn insist_on_limits(root: &Section<'_, '_>, policy: &Policy) -> Result<(), CatalogueError> {
    let limits = &policy.limits;
    for (layer, key, set) in [
        (Layer::Memory, "memory", limits.memory.is_some()),
        (Layer::Pids, "pids", limits.pids.is_some()),
        (Layer::Cpus, "cpus", limits.cpus_milli.is_some()),
    ] {
        let need = policy.layers.get(&layer).copied().unwrap_or(Need::Off);
        if need != Need::Off && !set {
            return Err(root.fail("limits", format!("layer `{layer}` is on, but `limits.{key}` is not set")));
        }
        if need == Need::Off && set {
            return Err(root.fail("limits", format!("`limits.{key}` is set, but layer `{layer}` is off")));
        }
    }
    Ok(())
}

/// Host paths that are shown, each with its reason.
pub(super) fn visible(root: &Section<'_, '_>, key: &str) -> Result<Vec<Visible>, CatalogueError> {
    let mut list: Vec<Visible> = Vec::new();
    for section in root.sections(key, &["path", "optional", "why"])? {
        let path = section.needed_text("path", "an absolute path of the host")?;
        check_path(path).map_err(|problem| section.fail("path", problem))?;
        let optional = section.flag("optional")?;
        if path.ends_with('*') && !optional {
            return Err(section.fail("path", "ends in `*`, so it must be `optional = true`"));
        }
        // Both are plain, so that one path has one spelling.
        if list.iter().any(|known| known.path.as_os_str() == path) {
            return Err(section.fail("path", format!("`{path}` is shown twice")));
        }
        list.push(Visible { path: PathBuf::from(path), optional, why: reason(&section)? });
    }
    Ok(list)
}

/// Paths that a policy or runner may name: absolute, plain, not the root itself, a `*` only at the end.
pub(super) fn check_path(path: &str) -> Result<(), String> {
    let parts: Vec<Component<'_>> = Path::new(path).components().collect();
    let plain = matches!(parts.first(), Some(Component::RootDir))
        && parts.len() > 1
        && parts.iter().skip(1).all(|part| matches!(part, Component::Normal(_)));
    // `components` swallows `.` and doubled slashes, which would make two names for one path.
    let rebuilt: PathBuf = parts.iter().collect();
    if !plain || rebuilt.as_os_str() != path || path.contains('\0') {
        return Err(format!(
            "`{path}` is not a plain absolute path: it starts with `/`, is not `/` itself, has no `.`, `..`, `//` or `/` at its end"
        ));
    }
    if path.strip_suffix('*').unwrap_or(path).contains('*') {
        return Err(format!("`{path}` has a `*` that is not at its end"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
