//! Reads a pre-image back: its named fields, the command line in it, and in what two of them differ, in words. Making
//! pre-images is the parent's.
#![forbid(unsafe_code)]

use crate::key::KEY_VERSION;
use crate::model::digest::Digest;
use crate::model::units::{Bytes, show_duration};
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) const KIND_ABSENT: u8 = 0;
pub(super) const KIND_BYTES: u8 = 1;
pub(super) const KIND_LIST: u8 = 2;
pub(super) const KIND_PAIRS: u8 = 3;

/// One named part of a pre-image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// What it is, such as `argv` or `policy.memory`.
    pub name: String,
    /// What it is set to.
    pub value: Value,
}

/// What a field is set to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// Not set, which is not the same as empty.
    Absent,
    /// One value; numbers are in decimal.
    Bytes(Vec<u8>),
    /// Several values in order.
    List(Vec<Vec<u8>>),
    /// Names and what belongs to each, in order of the names. For `env` that is the BLAKE3 digest of the variable's
    /// value, for `runner.identity` that of the file's content, 32 bytes.
    Pairs(Vec<(Vec<u8>, Vec<u8>)>),
}

/// One thing in which two pre-images differ, in words for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The field, with the entry's name behind it where only that entry differs (`env.LANG`).
    pub name: String,
    /// What it was.
    pub before: String,
    /// What it is now.
    pub after: String,
}

/// The fields of a pre-image in their order; `None` if it is of another version or no pre-image at all.
#[must_use]
pub fn fields(preimage: &[u8]) -> Option<Vec<Field>> {
    let (version, mut rest) = preimage.split_first()?;
    if *version != KEY_VERSION {
        return None;
    }
    let mut found = Vec::new();
    while !rest.is_empty() {
        let name = String::from_utf8(counted(&mut rest)?.to_vec()).ok()?;
        let (kind, after) = rest.split_first()?;
        rest = after;
        let value = match *kind {
            KIND_ABSENT => Value::Absent,
            KIND_BYTES => Value::Bytes(counted(&mut rest)?.to_vec()),
            KIND_LIST => {
                let count = length(&mut rest)?;
                Value::List((0..count).map(|_| Some(counted(&mut rest)?.to_vec())).collect::<Option<_>>()?)
            }
            KIND_PAIRS => {
                let count = length(&mut rest)?;
                let pair = |_| Some((counted(&mut rest)?.to_vec(), counted(&mut rest)?.to_vec()));
                Value::Pairs((0..count).map(pair).collect::<Option<_>>()?)
            }
            _ => return None,
        };
        found.push(Field { name, value });
    }
    Some(found)
}

/// What a pre-image says was asked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Asked {
    /// Program and arguments, bytes as given.
    pub argv: Vec<Vec<u8>>,
    /// Word of the guard; empty where it cannot be read.
    pub guard: String,
    /// Pathspecs that cut the tree.
    pub scope: Vec<String>,
    /// Pathspecs that the caller vouched for.
    pub touches: Vec<String>,
}

/// What was asked; nothing where the pre-image cannot be read.
#[must_use]
pub fn asked(preimage: &[u8]) -> Asked {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut asked = Asked::default();
    for field in fields(preimage).unwrap_or_default() {
        match (field.name.as_str(), field.value) {
            ("argv", Value::List(argv)) => asked.argv = argv,
            ("guard", Value::Bytes(guard)) => asked.guard = text(&guard),
            ("scope", Value::List(scope)) => asked.scope = scope.iter().map(|spec| text(spec)).collect(),
            ("touches", Value::List(touches)) => {
                asked.touches = touches.iter().map(|spec| text(spec)).collect()
            }
            _ => {}
        }
    }
    asked
}

/// The command line of a pre-image; `None` where it cannot be read.
#[must_use]
pub fn argv_of(preimage: &[u8]) -> Option<Vec<Vec<u8>>> {
    fields(preimage)?.into_iter().find_map(|field| match field.value {
        Value::List(argv) if field.name == "argv" => Some(argv),
        _ => None,
    })
}

/// In what the second pre-image differs from the first, in the order of the fields. Values of variables are never in
/// it, only that they changed.
#[must_use]
pub fn differences(before: &[u8], after: &[u8]) -> Vec<Difference> {
    let (Some(old), Some(new)) = (fields(before), fields(after)) else {
        if before == after {
            return Vec::new();
        }
        return vec![Difference {
            name: "key_version".to_owned(),
            before: version(before),
            after: version(after),
        }];
    };
    let mut found = Vec::new();
    let olds: BTreeMap<&str, &Value> = old.iter().map(|field| (field.name.as_str(), &field.value)).collect();
    let news: BTreeMap<&str, &Value> = new.iter().map(|field| (field.name.as_str(), &field.value)).collect();
    for field in &new {
        compare(&field.name, olds.get(field.name.as_str()).copied(), Some(&field.value), &mut found);
    }
    for field in old.iter().filter(|field| !news.contains_key(field.name.as_str())) {
        compare(&field.name, Some(&field.value), None, &mut found);
    }
    found
}

fn compare(name: &str, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Difference>) {
    if before == after {
        return;
    }
    if let (Some(Value::Pairs(old)), Some(Value::Pairs(new))) = (before, after) {
        return compare_entries(name, old, new, found);
    }
    found.push(Difference { name: name.to_owned(), before: words(name, before), after: words(name, after) });
}

fn compare_entries(
    name: &str,
    old: &[(Vec<u8>, Vec<u8>)],
    new: &[(Vec<u8>, Vec<u8>)],
    found: &mut Vec<Difference>,
) {
    let sealed = is_sealed(name);
    let mut entries: BTreeMap<&[u8], [Option<&[u8]>; 2]> = BTreeMap::new();
    for (side, pairs) in [old, new].into_iter().enumerate() {
        for (entry, value) in pairs {
            entries.entry(entry).or_default()[side] = Some(value);
        }
    }
    for (entry, [before, after]) in entries.into_iter().filter(|(_, [before, after])| before != after) {
        let show = |value: Option<&[u8]>| match value {
            None => "absent".to_owned(),
            Some(_) if sealed && before.is_none() != after.is_none() => "set".to_owned(),
            Some(_) if name == "env" => "changed".to_owned(),
            Some(digest) if sealed => short(digest),
            Some(value) => lossy(value),
        };
        let name = format!("{name}.{}", lossy(entry));
        found.push(Difference { name, before: show(before), after: show(after) });
    }
}

/// Fields whose entries are digests.
fn is_sealed(name: &str) -> bool {
    matches!(name, "env" | "runner.identity")
}

fn short(digest: &[u8]) -> String {
    match <[u8; 32]>::try_from(digest) {
        Ok(bytes) => format!("b3:{}…", Digest(bytes).hex().chars().take(12).collect::<String>()),
        Err(_) => lossy(digest),
    }
}

fn words(name: &str, value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Absent) => "absent".to_owned(),
        Some(Value::Bytes(bytes)) => {
            match (name, std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok())) {
                ("policy.timeout", Some(nanos)) => show_duration(Duration::from_nanos(nanos)),
                ("policy.memory" | "policy.disk" | "policy.output", Some(bytes)) => Bytes(bytes).to_string(),
                ("cwd", _) if bytes.is_empty() => ".".to_owned(),
                _ => lossy(bytes),
            }
        }
        Some(Value::List(values)) => values.iter().map(|value| quoted(value)).collect::<Vec<_>>().join(" "),
        Some(Value::Pairs(pairs)) => {
            pairs.iter().map(|(entry, _)| lossy(entry)).collect::<Vec<_>>().join(" ")
        }
    }
}

fn quoted(value: &[u8]) -> String {
    let text = lossy(value);
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{text}'") }
}

/// Text for a person's terminal: what is not text, or would steer the terminal, is shown escaped.
fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] })
        .collect()
}

fn version(preimage: &[u8]) -> String {
    preimage.first().map_or_else(|| "none".to_owned(), u8::to_string)
}

/// Takes a value that is preceded by its length.
fn counted<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = length(rest)?;
    let (value, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(value)
}

fn length(rest: &mut &[u8]) -> Option<usize> {
    let mut length: usize = 0;
    for shift in (0..usize::BITS).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        let part = usize::from(byte & 0x7f);
        if part.checked_shl(shift)?.checked_shr(shift)? != part {
            return None;
        }
        length |= part << shift;
        if byte & 0x80 == 0 {
            return Some(length);
        }
    }
    None
}
