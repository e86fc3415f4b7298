//! How wide a text is on a terminal, and cutting it to that: wide letters take two columns, marks that sit on others none.
//! Also which characters would set the order of their neighbours, so that a text brought in cannot rearrange ours.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use unicode_width::UnicodeWidthChar;

/// What stands for the rest.
const REST: char = '…';

/// A line of at most that many columns; a longer one ends in `…`. Nothing is cut where no number is known.
#[must_use]
pub fn cut(line: &str, columns: Option<u16>) -> Cow<'_, str> {
    let Some(columns) = columns.map(usize::from) else { return Cow::Borrowed(line) };
    let mut width = 0;
    // Where the line would end if a letter more did not fit.
    let mut end = 0;
    for (at, letter) in line.char_indices() {
        // A tab goes to the next multiple of eight.
        let own = if letter == '\t' { 8 - width % 8 } else { letter.width().unwrap_or(0) };
        width += own;
        if width > columns {
            let mut cut = line.get(..end).unwrap_or_default().to_owned();
            cut.push(REST);
            return Cow::Owned(cut);
        }
        if width < columns {
            end = at + letter.len_utf8();
        }
    }
    Cow::Borrowed(line)
}

/// Whether a character sets the order in which its neighbours are shown (UAX #9, explicit directional formatting).
#[must_use]
pub fn sets_order(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_by_what_they_take_on_a_terminal() {
        for (line, columns, expected) in [
            ("abcdef", 6, "abcdef"),
            ("abcdef", 5, "abcd…"),
            ("漢字漢字", 8, "漢字漢字"),
            ("漢字漢字", 7, "漢字漢…"),
            ("漢字漢字", 6, "漢字…"),
            ("e\u{301}e\u{301}e\u{301}", 3, "e\u{301}e\u{301}e\u{301}"),
            ("e\u{301}e\u{301}e\u{301}", 2, "e\u{301}…"),
            ("a\tb", 8, "a…"),
            ("ab", 1, "…"),
            ("", 1, ""),
        ] {
            assert_eq!(cut(line, Some(columns)), expected, "{line:?} {columns}");
        }
        assert_eq!(cut("abcdef", None), "abcdef");
    }
}
