//! Reads a runner from TOML and chooses the one for a command. Where its toolchain lies on a machine is
//! `toolchain`'s.
#![forbid(unsafe_code)]

mod packages;
mod told;

use crate::catalogue::document::{Section, Source};
use crate::catalogue::policy::{check_path, visible};
use crate::catalogue::{CatalogueError, names_in, read, unknown};
use crate::model::runner::{Reading, Runner, ToolchainRule};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// The runner for commands that no other serves.
const FALLBACK: &str = "generic";

/// The runners that come with checkrun.
const BUILT_IN: [(&str, &str); 7] = [
    (FALLBACK, include_str!("../../runners/generic.toml")),
    ("cc", include_str!("../../runners/cc.toml")),
    ("go", include_str!("../../runners/go.toml")),
    ("java", include_str!("../../runners/java.toml")),
    ("node", include_str!("../../runners/node.toml")),
    ("python", include_str!("../../runners/python.toml")),
    ("rust", include_str!("../../runners/rust.toml")),
];

/// Shims that `toolchain` knows how to look behind.
const SHIMS: [(&str, &str); 3] = [("rustup", "rustup"), ("pyenv", "pyenv"), ("volta", "volta")];

/// All runners: the built-in ones, then `runners/*.toml` of the user's configuration by name.
///
/// # Errors
/// A file that cannot be read or does not parse, or one that has the name of a built-in runner.
pub fn runners(config: Option<&Path>) -> Result<Vec<Runner>, CatalogueError> {
    runners_of(config, |_, _| true)
}

/// The runner for one command, as [`choose_runner`] takes it from all, but without parsing built-in ones that cannot be
/// it: to parse all is a tenth of what an answer from the cache costs.
///
/// # Errors
/// As [`runners`] and [`choose_runner`].
pub fn runner_for(
    config: Option<&Path>,
    first_word: &[u8],
    asked: Option<&str>,
) -> Result<Runner, CatalogueError> {
    let word = String::from_utf8_lossy(bare(first_word));
    // In the files that come with checkrun, words stand in plain quotes.
    let quoted = format!("\"{word}\"");
    let may_serve = |name: &str, text: &str| match asked {
        Some(asked) => name == asked,
        None => name == FALLBACK || served_words(text).contains(&quoted),
    };
    match choose_runner(&runners_of(config, may_serve)?, first_word, asked) {
        Ok(runner) => Ok(runner.clone()),
        // The error names all there are.
        Err(_) => choose_runner(&runners(config)?, first_word, asked).cloned(),
    }
}

/// The list of words that a built-in runner's text says it serves; a file of ours without one is taken whole.
fn served_words(text: &str) -> &str {
    let list = text.split_once("\nserves = [").map_or(text, |(_, rest)| rest);
    list.split_once(']').map_or(list, |(list, _)| list)
}

/// The built-in runners whose name and text are wanted, and all of the user's.
fn runners_of(
    config: Option<&Path>,
    wanted: impl Fn(&str, &str) -> bool,
) -> Result<Vec<Runner>, CatalogueError> {
    let mut runners = Vec::with_capacity(BUILT_IN.len());
    for (name, text) in BUILT_IN.into_iter().filter(|(name, text)| wanted(name, text)) {
        let file = format!("runners/{name}.toml");
        runners.push(parse(name, Source { file: &file, text })?);
    }
    let Some(folder) = config.map(|config| config.join("runners")) else { return Ok(runners) };
    for name in names_in(&folder)? {
        let path = folder.join(format!("{name}.toml"));
        if BUILT_IN.iter().any(|(known, _)| *known == name) {
            return Err(CatalogueError::Reserved { kind: "runner", name, path });
        }
        let text = read(&path)?;
        runners.push(parse(&name, Source { file: &path.display().to_string(), text: &text })?);
    }
    Ok(runners)
}

/// The runner that was asked for, else the one that serves the command's first word, else `generic`.
///
/// # Errors
/// Nothing has the name asked for, or two runners serve the word.
pub fn choose_runner<'r>(
    runners: &'r [Runner],
    first_word: &[u8],
    asked: Option<&str>,
) -> Result<&'r Runner, CatalogueError> {
    let known = || runners.iter().map(|runner| runner.name.clone()).collect::<Vec<_>>();
    let named = |name: &str| runners.iter().find(|runner| runner.name == name);
    if let Some(name) = asked {
        return named(name).ok_or_else(|| unknown("runner", name, &known()));
    }
    let word = bare(first_word);
    let mut serving =
        runners.iter().filter(|runner| runner.serves.iter().any(|served| served.as_bytes() == word));
    match (serving.next(), serving.next()) {
        (Some(first), Some(second)) => Err(CatalogueError::TwoRunners {
            word: String::from_utf8_lossy(word).into_owned(),
            first: first.name.clone(),
            second: second.name.clone(),
            first_at: origin(&first.name),
            second_at: origin(&second.name),
        }),
        (Some(runner), None) => Ok(runner),
        (None, _) => named(FALLBACK).ok_or_else(|| unknown("runner", FALLBACK, &known())),
    }
}

/// Where a runner comes from, for people.
fn origin(name: &str) -> String {
    if BUILT_IN.iter().any(|(known, _)| *known == name) {
        "built in".to_owned()
    } else {
        format!("your runners/{name}.toml")
    }
}

/// A program's name without its folder: `/opt/go/bin/go` is as much a `go` as `go` is.
pub(crate) fn bare(word: &[u8]) -> &[u8] {
    word.rsplit(|byte| *byte == b'/').next().unwrap_or(word)
}

/// The word that says what a command is about: its program, or for `sh -c STRING` and `env A=B …` the first word of
/// what they start. Only a guess at which toolchain is wanted; the command is executed as it stands.
#[must_use]
pub fn first_word(argv: &[Vec<u8>]) -> Vec<u8> {
    let Some(program) = argv.first() else { return Vec::new() };
    let name = bare(program);
    let is_assignment = |word: &[u8]| {
        let name = word.split(|byte| *byte == b'=').next().unwrap_or(word);
        name.len() < word.len()
            && !name.is_empty()
            && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    };
    match (name, argv) {
        (b"sh" | b"bash" | b"dash", [_, flag, script, ..])
            if flag.starts_with(b"-") && flag.ends_with(b"c") && !flag.starts_with(b"--") =>
        {
            let mut words = script.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            let found = words.find(|word| !is_assignment(word));
            let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._+-/".contains(byte);
            found.filter(|word| word.iter().all(plain)).map_or_else(|| program.clone(), <[u8]>::to_vec)
        }
        (b"env", [_, rest @ ..]) => rest
            .iter()
            .find(|word| !is_assignment(word))
            .filter(|word| !word.starts_with(b"-"))
            .unwrap_or(program)
            .clone(),
        _ => program.clone(),
    }
}

/// Reads one runner.
fn parse(name: &str, source: Source<'_>) -> Result<Runner, CatalogueError> {
    let table = source.parse()?;
    let root = Section::root(
        source,
        &table,
        &[
            "format",
            "description",
            "serves",
            "summary",
            "results",
            "toolchain",
            "env",
            "cache",
            "visible",
            "found",
            "prelude",
            "prepare",
            "install",
            "lacks",
            "advice",
        ],
    )?;
    Ok(Runner {
        name: name.to_owned(),
        description: root.needed_text("description", "one sentence for people")?.to_owned(),
        serves: serves(&root)?,
        toolchain: toolchain(&root)?,
        env: environment(&root)?,
        visible: visible(&root, "visible")?,
        caches: packages::caches(&root)?,
        summary: root.word("summary", &Reading::ALL)?,
        results: packages::results(&root)?,
        found: packages::found(&root)?,
        prelude: packages::prelude(&root)?,
        prepare: packages::prepare(&root)?,
        install: told::install(&root)?,
        lacks: told::lacks(&root)?,
        advice: told::advice(&root)?,
    })
}

fn serves(root: &Section<'_, '_>) -> Result<Vec<String>, CatalogueError> {
    let words = root.texts("serves")?;
    match words.iter().find(|word| word.is_empty() || word.contains(['/', '\0'])) {
        Some(word) => Err(root.fail("serves", format!("`{word}` is not the bare name of a command"))),
        None => Ok(words.into_iter().map(str::to_owned).collect()),
    }
}

fn toolchain(root: &Section<'_, '_>) -> Result<ToolchainRule, CatalogueError> {
    let accepted = [
        "program",
        "root_holds",
        "inside",
        "bin",
        "version_file",
        "identified_by",
        "platform_folder",
        "shim",
    ];
    let Some(section) = root.section("toolchain", &accepted)? else { return Ok(ToolchainRule::default()) };
    let below = |key: &str| section.parsed(key, |text| check_below(text).map(|()| PathBuf::from(text)));
    let all_below = |key: &str| -> Result<Vec<PathBuf>, CatalogueError> {
        let paths = section.texts(key)?;
        paths
            .iter()
            .map(|text| {
                check_below(text).map(|()| PathBuf::from(text)).map_err(|problem| section.fail(key, problem))
            })
            .collect()
    };
    let rule = ToolchainRule {
        program: section.text("program")?.map(str::to_owned),
        root_holds: all_below("root_holds")?.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
        inside: section.parsed("inside", |text| check_path(text).map(|()| PathBuf::from(text)))?,
        bin: below("bin")?,
        version_file: below("version_file")?,
        identified_by: all_below("identified_by")?,
        platform_folder: below("platform_folder")?,
        shim: section.word("shim", &SHIMS)?.map(str::to_owned),
    };
    if rule.root_holds.is_empty() {
        // Without a root there is nothing for these to be below of.
        for key in ["inside", "bin", "version_file", "identified_by", "platform_folder"] {
            if section.has(key) {
                return Err(section.fail(key, "means something only together with `root_holds`"));
            }
        }
    }
    Ok(rule)
}

/// Paths below a toolchain's root: relative, plain.
fn check_below(text: &str) -> Result<(), String> {
    let mut parts = Path::new(text).components().peekable();
    if parts.peek().is_some()
        && parts.all(|part| matches!(part, Component::Normal(_)))
        && !text.contains('\0')
    {
        Ok(())
    } else {
        Err(format!("`{text}` is not a plain path below the root: it is relative and has no `.` or `..`"))
    }
}

fn environment(root: &Section<'_, '_>) -> Result<BTreeMap<String, String>, CatalogueError> {
    let Some(section) = root.section("env", &[])? else { return Ok(BTreeMap::new()) };
    let mut env = BTreeMap::new();
    for name in section.keys() {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(section.fail(name, "is not the name of a variable"));
        }
        // Where checkrun itself decides, a runner's word would be lost or would break the sandbox's promises.
        if matches!(name, "PATH" | "HOME" | "USER" | "LOGNAME" | "TZ" | "LANG" | "SOURCE_DATE_EPOCH") {
            return Err(section.fail(name, "is set by checkrun itself"));
        }
        let value = section.text(name)?.unwrap_or_default();
        if value.contains('\0') {
            return Err(section.fail(name, "holds a NUL, which no variable can"));
        }
        env.insert(name.to_owned(), value.to_owned());
    }
    Ok(env)
}

#[cfg(test)]
mod tests;
