//! The parts of a runner's file that are for people whose check fails: how to install what is missing, and what an
//! output means. When any of it is said is `pipeline`'s.
#![forbid(unsafe_code)]

use crate::catalogue::CatalogueError;
use crate::catalogue::document::Section;
use crate::model::runner::Advice;
use std::collections::BTreeMap;

/// The longest text, in bytes: it becomes part of a record, and a record is small.
const MOST: usize = 300;

/// How programs are installed, by name.
pub(super) fn install(root: &Section<'_, '_>) -> Result<BTreeMap<String, String>, CatalogueError> {
    let Some(section) = root.section("install", &[])? else { return Ok(BTreeMap::new()) };
    let read = |name: &str| {
        let text = section.text(name)?.unwrap_or_default();
        check(&section, name, text)?;
        Ok((name.to_owned(), text.to_owned()))
    };
    section.keys().map(read).collect()
}

/// Texts by which missing packages are known.
pub(super) fn lacks(root: &Section<'_, '_>) -> Result<Vec<String>, CatalogueError> {
    let texts: Vec<String> = root.texts("lacks")?.into_iter().map(str::to_owned).collect();
    if texts.iter().any(String::is_empty) {
        return Err(root.fail("lacks", "has an empty text, which stands in every output"));
    }
    Ok(texts)
}

/// What outputs mean.
pub(super) fn advice(root: &Section<'_, '_>) -> Result<Vec<Advice>, CatalogueError> {
    let read = |section: &Section<'_, '_>| {
        let output: Vec<String> = section.texts("output")?.into_iter().map(str::to_owned).collect();
        if output.is_empty() || output.iter().any(String::is_empty) {
            return Err(section.fail("output", "names no text that a failing command prints"));
        }
        let say = section.needed_text("say", "a word, a colon and a sentence")?;
        check(section, "say", say)?;
        Ok(Advice { output, say: say.to_owned(), prepare: section.flag("prepare")? })
    };
    root.sections("advice", &["output", "say", "prepare"])?.iter().map(read).collect()
}

fn check(section: &Section<'_, '_>, key: &str, text: &str) -> Result<(), CatalogueError> {
    if text.is_empty() || text.len() > MOST {
        return Err(section.fail(key, format!("is empty or longer than {MOST} bytes")));
    }
    Ok(())
}
