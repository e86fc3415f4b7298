//! The parts of a runner's file about files: packages that a working tree may have, steps that fetch them, results that
//! commands leave. What becomes of any is `pipeline`'s.
#![forbid(unsafe_code)]

use crate::catalogue::CatalogueError;
use crate::catalogue::document::Section;
use crate::catalogue::policy::check_path;
use crate::catalogue::runner::check_below;
use crate::model::runner::{FoundRule, PrepareRule, SharedCache};
use std::path::PathBuf;

/// Where files of test results are left.
pub(super) fn results(root: &Section<'_, '_>) -> Result<Vec<String>, CatalogueError> {
    let pattern = |text: &&str| {
        check_below(text).map(|()| (*text).to_owned()).map_err(|problem| root.fail("results", problem))
    };
    root.texts("results")?.iter().map(pattern).collect()
}

/// Folders of downloads in the home folder.
pub(super) fn caches(root: &Section<'_, '_>) -> Result<Vec<SharedCache>, CatalogueError> {
    let read = |section: &Section<'_, '_>| {
        let below = |key: &str, what: &str| {
            let text = section.needed_text(key, what)?;
            check_below(text).map(|()| PathBuf::from(text)).map_err(|problem| section.fail(key, problem))
        };
        let inside = section.needed_text("inside", "where it is shown, an absolute path")?;
        check_path(inside).map_err(|problem| section.fail("inside", problem))?;
        Ok(SharedCache {
            variable: section.needed_text("variable", "a variable such as `CARGO_HOME`")?.to_owned(),
            folder: below("folder", "the tool's folder below the home folder")?,
            below: below("below", "the part of the tool's folder that is shown")?,
            inside: PathBuf::from(inside),
            why: section.needed_text("why", "the reason why this is allowed, as a sentence")?.to_owned(),
        })
    };
    root.sections("cache", &["variable", "folder", "below", "inside", "why"])?.iter().map(read).collect()
}

pub(super) fn found(root: &Section<'_, '_>) -> Result<Vec<FoundRule>, CatalogueError> {
    let read = |section: &Section<'_, '_>| {
        let folder = section.needed_text("folder", "a folder of the working tree, such as `node_modules`")?;
        check_below(folder).map_err(|problem| section.fail("folder", problem))?;
        let bin = section.parsed("bin", |text| check_below(text).map(|()| PathBuf::from(text)))?;
        Ok(FoundRule { folder: PathBuf::from(folder), bin })
    };
    root.sections("found", &["folder", "bin"])?.iter().map(read).collect()
}

pub(super) fn prepare(root: &Section<'_, '_>) -> Result<Vec<PrepareRule>, CatalogueError> {
    let accepted =
        ["when", "inputs", "whole_tree", "optional_without", "run", "build", "tree", "home", "path"];
    root.sections("prepare", &accepted)?.iter().map(step).collect()
}

fn step(section: &Section<'_, '_>) -> Result<PrepareRule, CatalogueError> {
    let step = PrepareRule {
        when: paths(section, "when")?,
        inputs: section.texts("inputs")?.into_iter().map(str::to_owned).collect(),
        whole_tree: section.flag("whole_tree")?,
        run: section.needed_text("run", "a step for `sh -e`, such as \"npm ci\"")?.to_owned(),
        build: section.text("build")?.unwrap_or_default().to_owned(),
        optional_without: section
            .parsed("optional_without", |text| check_below(text).map(|()| PathBuf::from(text)))?,
        tree: paths(section, "tree")?,
        home: paths(section, "home")?,
        path: paths(section, "path")?,
    };
    if step.when.is_empty() {
        return Err(
            section.missing("when", "the files for which the step is, such as [\"package-lock.json\"]")
        );
    }
    if step.tree.is_empty() && step.home.is_empty() {
        return Err(section.missing("tree", "what the step leaves, such as [\"node_modules\"]; or `home`"));
    }
    for (key, text) in [("run", &step.run), ("build", &step.build)] {
        if text.contains('\0') {
            return Err(section.fail(key, "holds a NUL, which no command can"));
        }
    }
    Ok(step)
}

/// What comes before each step.
pub(super) fn prelude(root: &Section<'_, '_>) -> Result<String, CatalogueError> {
    match root.text("prelude")?.unwrap_or_default() {
        text if text.contains('\0') => Err(root.fail("prelude", "holds a NUL, which no command can")),
        text => Ok(text.to_owned()),
    }
}

fn paths(section: &Section<'_, '_>, key: &str) -> Result<Vec<PathBuf>, CatalogueError> {
    let texts = section.texts(key)?;
    let path = |text: &&str| {
        check_below(text).map(|()| PathBuf::from(text)).map_err(|problem| section.fail(key, problem))
    };
    texts.iter().map(path).collect()
}
