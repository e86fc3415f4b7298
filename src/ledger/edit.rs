//! Changes single fields in the text of a ledger and leaves every other byte as it is: unknown fields, their order, and
//! how the file is laid out. Which fields those are is not decided here.
#![forbid(unsafe_code)]

use crate::ledger::json::{Node, Value};
use std::ops::Range;

/// Up to this many characters a value stands on one line: evidence fits, and a ledger in which it does is half as long.
const LINE: usize = 180;

/// A field of an object and its new value.
pub(super) struct Change<'a> {
    pub(super) object: &'a Node,
    pub(super) key: &'static str,
    pub(super) value: serde_json::Value,
}

/// The text with all changes made.
pub(super) fn apply(text: &str, changes: &[Change<'_>]) -> String {
    let mut edits: Vec<(Range<usize>, usize, String)> = Vec::new();
    for (index, change) in changes.iter().enumerate() {
        let Value::Object(members) = &change.object.value else { continue };
        let layout = Layout::of(text, change.object);
        match members.iter().find(|member| member.key == change.key) {
            Some(member) if same(&member.node, &change.value) => {}
            Some(member) => {
                let column = column(text, member.key_span.start) + change.key.len() + 4;
                edits.push((member.node.span.clone(), index, layout.value(&change.value, column)));
            }
            None => {
                let end = members.last().map_or(change.object.span.start + 1, |last| last.node.span.end);
                let comma = if members.is_empty() { "" } else { "," };
                let value = layout.value(&change.value, layout.indent.len() + change.key.len() + 4);
                let field =
                    format!("{comma}{}\"{}\"{}{value}", layout.before_key(), change.key, layout.colon());
                edits.push((end..end, index, field));
            }
        }
    }
    edits.sort_by_key(|(range, index, _)| (range.start, *index));
    let mut new = String::with_capacity(text.len() + 256);
    let mut done = 0;
    for (range, _, replacement) in edits {
        new.push_str(&text[done..range.start]);
        new.push_str(&replacement);
        done = range.end;
    }
    new.push_str(&text[done..]);
    new
}

/// Characters before a byte on its line.
fn column(text: &str, at: usize) -> usize {
    text[..at].rsplit('\n').next().map_or(0, |line| line.chars().count())
}

/// Whether a value is there already, as a value: layout does not count.
fn same(node: &Node, value: &serde_json::Value) -> bool {
    use serde_json::Value as New;
    match (&node.value, value) {
        (Value::Null, New::Null) => true,
        (Value::Bool(old), New::Bool(new)) => old == new,
        (Value::Number(old), New::Number(new)) => {
            serde_json::from_str::<serde_json::Number>(old).is_ok_and(|old| old == *new)
        }
        (Value::Text(old), New::String(new)) => old == new,
        (Value::List(old), New::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same(old, new))
        }
        (Value::Object(old), New::Object(new)) => {
            old.len() == new.len()
                && old
                    .iter()
                    .all(|member| new.get(&member.key).is_some_and(|value| same(&member.node, value)))
        }
        _ => false,
    }
}

/// How an object is laid out, to lay out what is put into it in the same way.
struct Layout {
    /// White space before each key, where keys stand on lines of their own.
    indent: String,
    /// By how much what is within goes further in.
    unit: String,
    on_lines: bool,
    /// No white space at all between members.
    tight: bool,
}

impl Layout {
    fn of(text: &str, object: &Node) -> Self {
        let Value::Object(members) = &object.value else { return Self::tight() };
        let Some(first) = members.first() else { return Self::tight() };
        let before = &text[object.span.start + 1..first.key_span.start];
        let Some(at) = before.rfind('\n') else {
            return Self { tight: !text[object.span.clone()].contains(": "), ..Self::tight() };
        };
        let indent = before[at + 1..].to_owned();
        let last = members.last().map_or(first.node.span.end, |last| last.node.span.end);
        let close = text[last..object.span.end].trim_end_matches('}');
        let outer = close.rfind('\n').map_or("", |at| &close[at + 1..]);
        let unit = indent.strip_prefix(outer).filter(|unit| !unit.is_empty()).unwrap_or("  ").to_owned();
        Self { indent, unit, on_lines: true, tight: false }
    }

    fn tight() -> Self {
        Self { indent: String::new(), unit: String::new(), on_lines: false, tight: true }
    }

    fn before_key(&self) -> String {
        match (self.on_lines, self.tight) {
            (true, _) => format!("\n{}", self.indent),
            (false, true) => String::new(),
            (false, false) => " ".to_owned(),
        }
    }

    fn colon(&self) -> &'static str {
        if self.tight { ":" } else { ": " }
    }

    /// A value that begins in that column of its line.
    fn value(&self, value: &serde_json::Value, column: usize) -> String {
        let mut text = String::new();
        self.put(value, &self.indent, column, &mut text);
        text
    }

    fn put(&self, value: &serde_json::Value, indent: &str, column: usize, text: &mut String) {
        let line = self.on_one_line(value);
        let breaks = self.on_lines && column + line.chars().count() > LINE;
        let deeper = format!("{indent}{}", self.unit);
        match value {
            serde_json::Value::Array(items) if breaks && !items.is_empty() => {
                text.push('[');
                for (index, item) in items.iter().enumerate() {
                    text.push_str(if index == 0 { "\n" } else { ",\n" });
                    text.push_str(&deeper);
                    self.put(item, &deeper, deeper.len(), text);
                }
                text.push_str(&format!("\n{indent}]"));
            }
            serde_json::Value::Object(members) if breaks && !members.is_empty() => {
                text.push('{');
                for (index, (key, item)) in members.iter().enumerate() {
                    text.push_str(if index == 0 { "\n" } else { ",\n" });
                    let key = format!("{deeper}{}: ", serde_json::Value::from(key.as_str()));
                    text.push_str(&key);
                    self.put(item, &deeper, key.chars().count(), text);
                }
                text.push_str(&format!("\n{indent}}}"));
            }
            _ => text.push_str(&line),
        }
    }

    fn on_one_line(&self, value: &serde_json::Value) -> String {
        let comma = if self.tight { "," } else { ", " };
        match value {
            serde_json::Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| self.on_one_line(item)).collect();
                format!("[{}]", items.join(comma))
            }
            serde_json::Value::Object(members) => {
                let members: Vec<String> = members
                    .iter()
                    .map(|(key, item)| {
                        format!(
                            "{}{}{}",
                            serde_json::Value::from(key.as_str()),
                            self.colon(),
                            self.on_one_line(item)
                        )
                    })
                    .collect();
                format!("{{{}}}", members.join(comma))
            }
            plain => plain.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::json::parse;
    use serde_json::json;

    fn edited(text: &str, changes: &[(&'static str, serde_json::Value)]) -> String {
        let node = parse(text).unwrap();
        let changes: Vec<Change<'_>> =
            changes.iter().map(|(key, value)| Change { object: &node, key, value: value.clone() }).collect();
        let new = apply(text, &changes);
        // Whatever the layout, what comes out must read back with just those values.
        let read: serde_json::Value = serde_json::from_str(&new).unwrap();
        for change in &changes {
            assert_eq!(read[change.key], change.value, "{new}");
        }
        new
    }

    #[test]
    fn only_what_changes_is_touched() {
        assert_eq!(
            edited("{ \"x\": 1E+2,\n\t\"status\" : \"a\", \"y\":[ ] }\n", &[("status", json!("b"))]),
            "{ \"x\": 1E+2,\n\t\"status\" : \"b\", \"y\":[ ] }\n"
        );
        let same = "{\"evidence\": {\"a\":  1}, \"n\": 2.0}";
        assert_eq!(edited(same, &[("evidence", json!({"a": 1}))]), same);
    }

    #[test]
    fn new_fields_are_laid_out_as_the_others() {
        assert_eq!(
            edited("{\n  \"id\": 1\n}", &[("b", json!([1, 2])), ("c", json!(true))]),
            "{\n  \"id\": 1,\n  \"b\": [1, 2],\n  \"c\": true\n}"
        );
        assert_eq!(edited("{\"id\":1}", &[("b", json!({"c": 2}))]), "{\"id\":1,\"b\":{\"c\":2}}");
        assert_eq!(edited("{\"id\": 1}", &[("b", json!({"c": 2}))]), "{\"id\": 1, \"b\": {\"c\": 2}}");
        let long = "x".repeat(170);
        assert_eq!(
            edited("{\n\t\"id\": 1\n}", &[("b", json!({"c": long, "d": [1]}))]),
            format!("{{\n\t\"id\": 1,\n\t\"b\": {{\n\t\t\"c\": \"{long}\",\n\t\t\"d\": [1]\n\t}}\n}}")
        );
    }
}
