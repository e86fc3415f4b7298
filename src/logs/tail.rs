//! The end of a check's output, for people and records: the last bytes as they came, then cleaned. Exact bytes are the
//! log's.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

/// Most bytes of UTF-8 that a tail has.
const TEXT: usize = 2048;

/// Raw bytes kept: much more than the text, since colours and progress lines are dropped from it.
const RAW: usize = 32 << 10;

/// How far a cut moves forward to find the start of a line.
const NEAR: usize = 256;

/// The last bytes of both streams together, in the order in which they were read.
#[derive(Debug, Default)]
pub struct Tail {
    ring: VecDeque<u8>,
    cut: bool,
}

impl Tail {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        let kept = &bytes[bytes.len().saturating_sub(RAW)..];
        let over = (self.ring.len() + kept.len()).saturating_sub(RAW);
        self.cut |= over > 0 || kept.len() < bytes.len();
        self.ring.drain(..over);
        self.ring.extend(kept);
    }

    /// The end of the output as text: at most 2048 bytes, begun at the start of a line where one is near.
    ///
    /// Escape sequences and control characters are dropped, except newline and tab. A carriage return that does not end
    /// a line means that the line is drawn again: what stood on it is dropped as soon as something else is drawn, so
    /// the last state of a progress line is what stays. Bytes that are not UTF-8 become U+FFFD.
    #[must_use]
    pub fn text(&self) -> String {
        let raw: Vec<u8> = self.ring.iter().copied().collect();
        let mut raw = raw.as_slice();
        if self.cut {
            // The rest of a character whose beginning is gone is no fault of the output's.
            let rest = raw.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
            raw = &raw[rest..];
        }
        let text = clean(&String::from_utf8_lossy(raw));
        let start = if text.len() > TEXT {
            line_start(&text, text.len() - TEXT, NEAR)
        } else if self.cut {
            line_start(&text, 0, NEAR)
        } else {
            0
        };
        text[start..].to_owned()
    }
}

/// Where to begin: at a line's start within `near` bytes behind `from`, else at the first character from there on.
fn line_start(text: &str, from: usize, near: usize) -> usize {
    if from > 0 && text.as_bytes()[from - 1] == b'\n' {
        return from;
    }
    let end = text.len().min(from + near);
    if let Some(offset) = text.as_bytes()[from..end].iter().position(|byte| *byte == b'\n') {
        // A newline at the very end leaves nothing behind it: then the rest of that line is better than nothing.
        if from + offset + 1 < text.len() {
            return from + offset + 1;
        }
    }
    (from..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

/// Where in an escape sequence the reader is (ECMA-48 §5.4 and §8.3.89; ECMA-35 §13.2).
#[derive(Clone, Copy, PartialEq)]
enum State {
    Text,
    /// After ESC.
    Escape,
    /// After ESC and an intermediate byte.
    Intermediate,
    /// In a control sequence: CSI, parameters, one final byte.
    Control,
    /// In a string (OSC, DCS, SOS, PM, APC) that ends with ST or BEL. Broken ones end with their line as well, so that
    /// one of them cannot swallow the rest of the output.
    String,
    /// After ESC within such a string.
    StringEscape,
}

fn clean(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut line = 0;
    let mut redraw = false;
    let mut state = State::Text;
    for c in raw.chars() {
        let shown;
        (state, shown) = step(state, c);
        if !shown {
            continue;
        }
        match c {
            '\n' => {
                out.push(c);
                line = out.len();
                redraw = false;
            }
            '\r' => redraw = true,
            c if c != '\t' && c.is_control() => {}
            c => {
                if redraw {
                    out.truncate(line);
                    redraw = false;
                }
                out.push(c);
            }
        }
    }
    out
}

/// The next state, and whether the character is outside of any sequence.
fn step(state: State, c: char) -> (State, bool) {
    match (state, c) {
        // Cancelled (ECMA-48 §8.3.6), or the line ended; both end whatever was going on.
        (_, '\u{18}' | '\u{1a}') => (State::Text, false),
        (_, '\n') => (State::Text, true),
        (State::Text | State::Escape | State::Intermediate | State::Control, '\u{1b}') => {
            (State::Escape, false)
        }
        (State::Text, '\u{9b}') | (State::Escape, '[') => (State::Control, false),
        (State::Text, '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}')
        | (State::Escape, ']' | 'P' | 'X' | '^' | '_') => (State::String, false),
        (State::Escape | State::Intermediate, ' '..='/') => (State::Intermediate, false),
        (State::Escape | State::Intermediate, '0'..='~') => (State::Text, false),
        (State::Control, '@'..='~') => (State::Text, false),
        (State::Control, ' '..='?') => (State::Control, false),
        // Not part of any sequence: the broken one ends here and the character stands.
        (State::Text | State::Escape | State::Intermediate | State::Control, _) => (State::Text, true),
        (State::StringEscape, '\\') | (State::String, '\u{7}' | '\u{9c}') => (State::Text, false),
        (State::String, '\u{1b}') => (State::StringEscape, false),
        (State::String, _) => (State::String, false),
        (State::StringEscape, _) => step(State::Escape, c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(bytes: &[u8]) -> String {
        let mut tail = Tail::new();
        tail.push(bytes);
        tail.text()
    }

    #[test]
    fn output_is_cleaned_for_reading() {
        let table: &[(&[u8], &str)] = &[
            (b"", ""),
            (b"plain\ttext\n", "plain\ttext\n"),
            (b"\x1b[31;1mred\x1b[0m\n", "red\n"),
            (b"\x1b]0;title\x07after", "after"),
            (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
            (b"\x1b]0;never ended\nnext", "\nnext"),
            (b"\x1bPq#0;2\x1b\\x", "x"),
            (b"\x1b(Bascii\x1b7\x1b=", "ascii"),
            (b"\x1b[3\x1b[1mx", "x"),
            (b"\x1b[12\xc3\xa9", "é"),
            (b"a\x1b", "a"),
            (b"\x1b[1", ""),
            (b"\x1b]0;x\x1b[1my", "y"),
            (b"\xc2\x9b31mred \xc2\x85x", "red x"),
            (b"bell\x07 null\0 back\x08 del\x7f", "bell null back del"),
            (b"10%\r20%\r30%\ndone\n", "30%\ndone\n"),
            (b"10%\r20%\r", "20%"),
            (b"windows\r\nlines\r\r\n", "windows\nlines\n"),
            (b"\xff\xfe ok", "\u{fffd}\u{fffd} ok"),
            (b"half \xe2\x82", "half \u{fffd}"),
            ("häßlich €".as_bytes(), "häßlich €"),
        ];
        for (raw, expected) in table {
            assert_eq!(text(raw), *expected, "{}", raw.escape_ascii());
        }
    }

    #[test]
    fn long_output_is_cut_at_a_line_or_at_a_character() {
        let lines: String = (0..1000).map(|n| format!("line {n}\n")).collect();
        let tail = text(lines.as_bytes());
        assert!(tail.starts_with("line ") && tail.ends_with("line 999\n") && tail.len() > TEXT - NEAR);
        let euros = "€".repeat(5000);
        let tail = text(euros.as_bytes());
        assert!(tail.chars().all(|c| c == '€') && tail.len() > TEXT - 3);
        // Cut within a character by the ring as well.
        let tail = text(format!("{}\x1b[0m{}x", "€".repeat(100), "\x1b[0m".repeat(RAW / 4 - 8)).as_bytes());
        assert!(tail.chars().all(|c| c == '€' || c == 'x'), "{tail:?}");
        assert!(text(&vec![b'x'; 1 << 20]).len() == TEXT);
        assert_eq!(text(format!("{}\n", "x".repeat(4096)).as_bytes()).len(), TEXT);
    }

    #[test]
    fn the_ring_is_bounded() {
        let mut tail = Tail::new();
        for _ in 0..100 {
            tail.push(&vec![b'y'; 3 * RAW / 2]);
            tail.push(b"z");
        }
        assert!(tail.ring.len() <= RAW && tail.ring.capacity() <= 4 * RAW);
    }

    proptest! {
        #[test]
        fn whatever_is_printed_the_tail_is_short_clean_and_the_end(
            parts in proptest::collection::vec(
                prop_oneof![
                    proptest::collection::vec(any::<u8>(), 0..300),
                    "[ -~\n]{0,400}".prop_map(String::into_bytes),
                    "(\x1b\\[[0-9;]{0,4}[a-zA-Z]|é|€|\r|\t){0,100}".prop_map(String::into_bytes),
                ],
                0..40,
            )
        ) {
            let mut tail = Tail::new();
            for part in &parts {
                tail.push(part);
            }
            let whole = parts.concat();
            let shown = tail.text();
            prop_assert!(shown.len() <= TEXT);
            prop_assert!(shown.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()));
            // How it was read does not matter.
            prop_assert_eq!(&shown, &text(&whole));
            // It is the end of the cleaned output.
            let cleaned = clean(&String::from_utf8_lossy(&whole));
            if whole.len() <= RAW {
                prop_assert!(cleaned.ends_with(&shown));
                prop_assert!(shown == cleaned || shown.len() > TEXT - NEAR - 4);
            }
        }
    }
}
