//! Reads TOML strictly: each section says which keys it knows, anything else is refused with file, line, column, what
//! is accepted and the nearest right word. What the keys mean belongs to `policy`, `runner` and `settings`.
#![forbid(unsafe_code)]

use crate::catalogue::CatalogueError;
use crate::model::nearest::nearest;
use std::fmt::Display;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The version that every file of the catalogue states as `format`.
pub(super) const FORMAT: u64 = 1;

/// A text and the name it is known by in messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    /// File name as the user knows it.
    pub(super) file: &'a str,
    /// The TOML.
    pub(super) text: &'a str,
}

impl<'a> Source<'a> {
    /// The text of a file that was read from a tree.
    pub(super) fn of_bytes(file: &'a str, bytes: &'a [u8]) -> Result<Self, CatalogueError> {
        let text = std::str::from_utf8(bytes).map_err(|error| CatalogueError::Document {
            file: file.to_owned(),
            line: bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1,
            column: 1,
            problem: "this is not UTF-8".to_owned(),
        })?;
        Ok(Self { file, text })
    }

    /// Parses the text into its tables.
    pub(super) fn parse(self) -> Result<Spanned<DeTable<'a>>, CatalogueError> {
        DeTable::parse(self.text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            self.problem(&span, None, format!("this is not TOML: {}", error.message()))
        })
    }

    fn problem(self, span: &Range<usize>, key: Option<String>, problem: impl Display) -> CatalogueError {
        let (line, column) = place(self.text, span.start);
        let key = key.map_or_else(String::new, |key| format!("key `{key}`: "));
        CatalogueError::Document {
            file: self.file.to_owned(),
            line,
            column,
            problem: format!("{key}{problem}"),
        }
    }
}

/// Line and column, both from 1, of a byte offset; the column counts characters.
fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let column = before.get(line_start..).unwrap_or("").chars().count() + 1;
    (line, column)
}

/// One table whose keys are known.
#[derive(Debug)]
pub(super) struct Section<'t, 'a> {
    source: Source<'a>,
    path: String,
    table: &'t DeTable<'a>,
    span: Range<usize>,
}

impl<'t, 'a> Section<'t, 'a> {
    /// The whole document, whose `format` must be the one we know.
    pub(super) fn root(
        source: Source<'a>,
        table: &'t Spanned<DeTable<'a>>,
        accepted: &[&str],
    ) -> Result<Self, CatalogueError> {
        let root = Self { source, path: String::new(), table: table.get_ref(), span: 0..0 };
        root.refuse_others(accepted)?;
        match root.integer("format")? {
            Some(FORMAT) => Ok(root),
            Some(other) => {
                Err(root.fail("format", format!("this checkrun reads format {FORMAT}, not {other}")))
            }
            None => Err(root.missing("format", "the first line of the file, `format = 1`")),
        }
    }

    fn refuse_others(&self, accepted: &[&str]) -> Result<(), CatalogueError> {
        for (key, _) in self.table {
            let word: &str = key.get_ref();
            if !accepted.contains(&word) {
                let problem = format!("no such key{}", accepted_words(word, accepted));
                return Err(self.source.problem(&key.span(), Some(self.full(word)), problem));
            }
        }
        Ok(())
    }

    fn full(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn find(&self, key: &str) -> Option<&'t Spanned<DeValue<'a>>> {
        self.table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
    }

    /// Whether the key is there at all.
    pub(super) fn has(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// All keys, in the order of their names.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'t str> {
        self.table.iter().map(|(key, _)| -> &str { key.get_ref() })
    }

    /// An error about the value of `key`, or about the section where the key is not there.
    pub(super) fn fail(&self, key: &str, problem: impl Display) -> CatalogueError {
        let span = self.find(key).map_or_else(|| self.span.clone(), Spanned::span);
        self.source.problem(&span, Some(self.full(key)), problem)
    }

    /// An error about a key that must be there.
    pub(super) fn missing(&self, key: &str, what: &str) -> CatalogueError {
        self.source.problem(&self.span, Some(self.full(key)), format!("is missing; it is {what}"))
    }

    fn wrong_type(&self, key: &str, value: &DeValue<'_>, expected: &str) -> CatalogueError {
        self.fail(key, format!("takes {expected}, not {}", described(value)))
    }

    /// A text.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'t str>, CatalogueError> {
        match self.find(key).map(Spanned::get_ref) {
            None => Ok(None),
            Some(DeValue::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong_type(key, other, "a text in quotes")),
        }
    }

    /// A text that must be there and not be blank.
    pub(super) fn needed_text(&self, key: &str, what: &str) -> Result<&'t str, CatalogueError> {
        match self.text(key)? {
            None => Err(self.missing(key, what)),
            Some(text) if text.trim().is_empty() => Err(self.fail(key, format!("is empty; it is {what}"))),
            Some(text) => Ok(text),
        }
    }

    /// A text read by `parse`, whose error text becomes the problem.
    pub(super) fn parsed<T>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, CatalogueError> {
        self.text(key)?.map(|text| parse(text).map_err(|problem| self.fail(key, problem))).transpose()
    }

    /// A whole number that is not negative.
    pub(super) fn integer(&self, key: &str) -> Result<Option<u64>, CatalogueError> {
        match self.find(key).map(Spanned::get_ref) {
            None => Ok(None),
            Some(value @ DeValue::Integer(number)) => u64::from_str_radix(number.as_str(), number.radix())
                .map(Some)
                .map_err(|_| self.wrong_type(key, value, "a whole number that is not negative")),
            Some(other) => Err(self.wrong_type(key, other, "a whole number")),
        }
    }

    /// A number as it is written, whole or with a fraction.
    pub(super) fn number(&self, key: &str) -> Result<Option<&'t str>, CatalogueError> {
        match self.find(key).map(Spanned::get_ref) {
            None => Ok(None),
            Some(DeValue::Integer(number)) => Ok(Some(number.as_str())),
            Some(DeValue::Float(number)) => Ok(Some(number.as_str())),
            Some(other) => Err(self.wrong_type(key, other, "a number such as 2 or 1.5")),
        }
    }

    /// True or false, false where it is not there.
    pub(super) fn flag(&self, key: &str) -> Result<bool, CatalogueError> {
        match self.find(key).map(Spanned::get_ref) {
            None => Ok(false),
            Some(DeValue::Boolean(value)) => Ok(*value),
            Some(other) => Err(self.wrong_type(key, other, "true or false")),
        }
    }

    /// One word out of a closed list.
    pub(super) fn word<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Result<Option<T>, CatalogueError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        match words.iter().find(|(word, _)| *word == text) {
            Some((_, value)) => Ok(Some(*value)),
            None => {
                let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                Err(self.fail(key, format!("`{text}` is not known here{}", accepted_words(text, &known))))
            }
        }
    }

    /// A list of texts, empty where it is not there.
    pub(super) fn texts(&self, key: &str) -> Result<Vec<&'t str>, CatalogueError> {
        let list = match self.find(key).map(Spanned::get_ref) {
            None => return Ok(Vec::new()),
            Some(DeValue::Array(list)) => list,
            Some(other) => return Err(self.wrong_type(key, other, "a list of texts")),
        };
        list.iter()
            .map(|item| match item.get_ref() {
                DeValue::String(text) => Ok(&**text),
                other => Err(self.source.problem(
                    &item.span(),
                    Some(self.full(key)),
                    format!("takes a list of texts, not of {}", described(other)),
                )),
            })
            .collect()
    }

    /// A table with these keys; an empty list accepts any key.
    pub(super) fn section(&self, key: &str, accepted: &[&str]) -> Result<Option<Self>, CatalogueError> {
        match self.find(key) {
            None => Ok(None),
            Some(value) => match value.get_ref() {
                DeValue::Table(table) => self.inner(self.full(key), table, value.span(), accepted).map(Some),
                other => Err(self.wrong_type(key, other, &format!("a table, `[{}]`", self.full(key)))),
            },
        }
    }

    /// A table that must be there.
    pub(super) fn needed_section(&self, key: &str, accepted: &[&str]) -> Result<Self, CatalogueError> {
        self.section(key, accepted)?.ok_or_else(|| {
            self.missing(key, &format!("a table, `[{}]`, with {}", self.full(key), listed(accepted)))
        })
    }

    /// A list of tables, empty where it is not there.
    pub(super) fn sections(&self, key: &str, accepted: &[&str]) -> Result<Vec<Self>, CatalogueError> {
        let expected = || format!("tables, each headed `[[{}]]`", self.full(key));
        let list = match self.find(key).map(Spanned::get_ref) {
            None => return Ok(Vec::new()),
            Some(DeValue::Array(list)) => list,
            Some(other) => return Err(self.wrong_type(key, other, &expected())),
        };
        let each = |(index, value): (usize, &'t Spanned<DeValue<'a>>)| match value.get_ref() {
            DeValue::Table(table) => {
                self.inner(format!("{}[{index}]", self.full(key)), table, value.span(), accepted)
            }
            other => Err(self.wrong_type(key, other, &expected())),
        };
        list.iter().enumerate().map(each).collect()
    }

    fn inner(
        &self,
        path: String,
        table: &'t DeTable<'a>,
        span: Range<usize>,
        accepted: &[&str],
    ) -> Result<Self, CatalogueError> {
        let section = Self { source: self.source, path, table, span };
        if !accepted.is_empty() {
            section.refuse_others(accepted)?;
        }
        Ok(section)
    }
}

fn described(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the text `{text}`"),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(value) => format!("{value}"),
        DeValue::Datetime(value) => format!("the date {value} (put it in quotes)"),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// `; did you mean …? accepted here: …`.
pub(super) fn accepted_words(word: &str, accepted: &[&str]) -> String {
    let guess = nearest(word, accepted).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    let separator = if guess.is_empty() { ";" } else { "" };
    format!("{guess}{separator} accepted here: {}", listed(accepted))
}

fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    quoted.join(", ")
}

/// A text as TOML writes it, in quotes.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_from_one_and_in_characters() {
        assert_eq!(place("a\nbé = 1", 0), (1, 1));
        assert_eq!(place("a\nbé = 1", 5), (2, 3));
        assert_eq!(place("a", 99), (1, 2));
    }
}
