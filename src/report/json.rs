//! Lines of JSON: the events of a run, then its result. Shapes only; a person's text comes from `human`.
#![forbid(unsafe_code)]

use crate::model::event::{Event, Stream};
use crate::report::Answer;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// What the stream of events is called and its version.
const EVENTS_SCHEMA: &str = "checkrun.events/1";

/// The events of one run as lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    begun: bool,
    /// The start of a UTF-8 character that the last piece of output ended within, by stream.
    halves: [Vec<u8>; 2],
}

impl Lines {
    /// The line for an event; `None` for those that are not told in JSON.
    pub(super) fn event(&mut self, event: &Event<'_>, show_output: bool) -> Option<String> {
        let fields = match event {
            Event::Resolved { tree, key } => json!({"event": "resolved", "tree": tree, "key": key}),
            Event::Started => json!({"event": "started"}),
            Event::Warning(text) => json!({"event": "warning", "text": text}),
            Event::Output(stream, bytes) if show_output => {
                let (name, half) = match stream {
                    Stream::Stdout => ("stdout", &mut self.halves[0]),
                    Stream::Stderr => ("stderr", &mut self.halves[1]),
                };
                let text = whole_characters(half, bytes);
                if text.is_empty() {
                    return None;
                }
                json!({"event": "output", "stream": name, "text": text})
            }
            Event::Output(..)
            | Event::Results(_)
            | Event::Reached(_)
            | Event::Runs(_)
            | Event::Waiting { .. }
            | Event::Staging { .. } => {
                return None;
            }
        };
        Some(self.line(fields))
    }

    /// The last line: what is left of the output, then the result.
    pub(super) fn result(&mut self, answer: &Answer) -> String {
        let mut lines = String::new();
        for (index, name) in ["stdout", "stderr"].into_iter().enumerate() {
            let half = std::mem::take(&mut self.halves[index]);
            if !half.is_empty() {
                let text = String::from_utf8_lossy(&half).into_owned();
                lines.push_str(&self.line(json!({"event": "output", "stream": name, "text": text})));
            }
        }
        lines.push_str(&self.line(json!({"event": "result", "result": answer})));
        lines
    }

    /// One line; the first one says which version the stream is.
    fn line(&mut self, fields: Value) -> String {
        if std::mem::replace(&mut self.begun, true) {
            return line(&fields);
        }
        let mut first = Map::new();
        first.insert("schema".to_owned(), EVENTS_SCHEMA.into());
        if let Value::Object(fields) = fields {
            first.extend(fields);
        }
        line(&Value::Object(first))
    }
}

/// The text of the bytes up to the last whole character; the rest is kept in `half` for the next piece.
fn whole_characters(half: &mut Vec<u8>, bytes: &[u8]) -> String {
    half.extend(bytes);
    let cut = match half.utf8_chunks().last() {
        // Only an end that could still become a character is kept; at most three bytes can.
        Some(chunk) if !chunk.invalid().is_empty() && half.ends_with(chunk.invalid()) => {
            let invalid = chunk.invalid();
            let unfinished =
                std::str::from_utf8(invalid).err().is_some_and(|error| error.error_len().is_none());
            if unfinished { half.len() - invalid.len() } else { half.len() }
        }
        _ => half.len(),
    };
    let rest = half.split_off(cut);
    let text = String::from_utf8_lossy(half).into_owned();
    *half = rest;
    text
}

/// One line of JSON with its newline.
pub(super) fn line(object: &impl Serialize) -> String {
    // Our own types have text keys and finite numbers, so this cannot fail; should it, the reader gets valid JSON.
    let mut text = serde_json::to_string(object).unwrap_or_else(|_| "null".to_owned());
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_cut_between_two_pieces_are_put_together() {
        let mut half = Vec::new();
        assert_eq!(whole_characters(&mut half, b"a\xc3"), "a");
        assert_eq!(whole_characters(&mut half, b"\xa9b"), "\u{e9}b");
        assert_eq!(whole_characters(&mut half, b"\xff"), "\u{fffd}");
        assert_eq!(whole_characters(&mut half, b"\xf0\x9f\x98"), "");
        assert_eq!(whole_characters(&mut half, b"x"), "\u{fffd}x");
        assert!(half.is_empty());
    }
}
