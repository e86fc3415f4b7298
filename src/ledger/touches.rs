//! Which paths are a step's own: the patterns of its `touches`. Reading trees is not done here.
#![forbid(unsafe_code)]

/// The longest pattern, in bytes: no longer path can be opened (PATH_MAX, path_resolution(7)).
const MAX_BYTES: usize = 4096;

/// One pattern: `/` between parts; `**` is any number of parts, `*`, `?` and `[…]` stay within one, `\` takes the next
/// character as it is. What matches a folder covers all that is in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    text: String,
    parts: Vec<Vec<u8>>,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Says why it can stand for no path of a tree.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err("it is empty");
        }
        if text.starts_with('/') {
            return Err("it begins with `/`; patterns are relative to the root of the tree");
        }
        if text.starts_with([':', '!']) {
            return Err("git's `:(…)` and `!` are not understood here; write a path, `*` or `**`");
        }
        if text.len() > MAX_BYTES {
            return Err("it is longer than 4096 bytes, which no path is");
        }
        if text.contains('\0') {
            return Err("it holds a NUL byte");
        }
        let parts: Vec<Vec<u8>> = text
            .split('/')
            .filter(|part| !matches!(*part, "" | "."))
            .map(|part| part.as_bytes().to_vec())
            .collect();
        if parts.iter().any(|part| part == b"..") {
            return Err("`..` leads out of the tree");
        }
        if parts.is_empty() {
            return Ok(Self { text: text.to_owned(), parts: vec![b"**".to_vec()] });
        }
        Ok(Self { text: text.to_owned(), parts })
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The folder or file that all that it covers is or is in: its leading parts that stand for themselves. Empty for the
    /// root of the tree.
    #[must_use]
    pub fn fixed_start(&self) -> Vec<u8> {
        let is_fixed = |part: &&Vec<u8>| !part.iter().any(|byte| b"*?[\\".contains(byte));
        self.parts.iter().take_while(is_fixed).map(Vec::as_slice).collect::<Vec<_>>().join(&b'/')
    }

    /// Whether it covers a path of a tree.
    #[must_use]
    pub fn covers(&self, path: &[u8]) -> bool {
        let path: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        // Places in the pattern that may be next after the parts read so far; one pass, so no pattern takes for ever.
        let mut places = vec![false; self.parts.len() + 1];
        self.reach(&mut places, 0);
        for part in path {
            if places.last() == Some(&true) {
                return true;
            }
            let mut next = vec![false; places.len()];
            for (place, pattern) in self.parts.iter().enumerate().filter(|(place, _)| places[*place]) {
                if pattern == b"**" {
                    self.reach(&mut next, place);
                } else if part_matches(pattern, part) {
                    self.reach(&mut next, place + 1);
                }
            }
            places = next;
        }
        places.last() == Some(&true)
    }

    /// Marks a place, and those behind it that `**` may skip to.
    fn reach(&self, places: &mut [bool], place: usize) {
        let skipped = self.parts[place..].iter().take_while(|part| *part == b"**").count();
        places[place..=place + skipped].fill(true);
    }
}

/// Whether one part of a path is what a part of a pattern says. Goes back to the last `*` only, as globs allow.
fn part_matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, n));
            p += 1;
            continue;
        }
        match one(&pattern[p..], name[n]) {
            Some(length) => {
                p += length;
                n += 1;
            }
            None => {
                let Some((after, from)) = star else { return false };
                star = Some((after, from + 1));
                p = after;
                n = from + 1;
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// How many bytes of the pattern take this byte of a name; `None` if they do not.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern.first()? {
        b'?' => Some(1),
        b'\\' if pattern.len() > 1 => (pattern[1] == byte).then_some(2),
        b'[' => match class(pattern, byte) {
            Some((true, length)) => Some(length),
            Some((false, _)) => None,
            // Without its end it is a bracket like any other character.
            None => (byte == b'[').then_some(1),
        },
        plain => (*plain == byte).then_some(1),
    }
}

/// Whether a bracket expression holds a byte, and its length; `None` if it has no end.
fn class(pattern: &[u8], byte: u8) -> Option<(bool, usize)> {
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let mut at = if negated { 2 } else { 1 };
    let first = at;
    let mut holds = false;
    loop {
        let low = *pattern.get(at)?;
        if low == b']' && at > first {
            return Some((holds != negated, at + 1));
        }
        match (pattern.get(at + 1), pattern.get(at + 2)) {
            (Some(b'-'), Some(high)) if *high != b']' => {
                holds |= (low..=*high).contains(&byte);
                at += 3;
            }
            _ => {
                holds |= low == byte;
                at += 1;
            }
        }
    }
}

/// Whether any of the patterns covers a path.
#[must_use]
pub fn any_covers(patterns: &[Pattern], path: &[u8]) -> bool {
    patterns.iter().any(|pattern| pattern.covers(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_a_pattern_covers_is_below_its_fixed_start() {
        for (pattern, start) in
            [("a/b.go", "a/b.go"), ("a/b/**/*.go", "a/b"), ("*.go", ""), (".", ""), ("a\\*/b", "")]
        {
            assert_eq!(Pattern::parse(pattern).unwrap().fixed_start(), start.as_bytes(), "{pattern}");
        }
    }

    #[test]
    fn patterns_cover_what_they_say() {
        for (pattern, path, expected) in [
            ("a/b.go", "a/b.go", true),
            ("a/b.go", "a/b.go/x", true),
            ("a/b.go", "a/b.gox", false),
            ("a", "a/b/c", true),
            ("a/", "a/b/c", true),
            ("./a", "a/b", true),
            ("a", "ab", false),
            (".", "x/y", true),
            ("internal/api/**/*.go", "internal/api/x.go", true),
            ("internal/api/**/*.go", "internal/api/a/b/x.go", true),
            ("internal/api/**/*.go", "internal/api/x.txt", false),
            ("internal/api/**/*.go", "internal/apix/x.go", false),
            ("**", "a", true),
            ("**/x", "x", true),
            ("**/x", "a/b/x", true),
            ("a/**", "a/b/c", true),
            ("a/**", "a", true),
            ("*.go", "a.go", true),
            ("*.go", "d/a.go", false),
            ("a*b*c", "aXbYbZc", true),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]x", "]x", true),
            ("[x", "[x", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
        ] {
            assert_eq!(
                Pattern::parse(pattern).unwrap().covers(path.as_bytes()),
                expected,
                "{pattern} {path}"
            );
        }
    }

    #[test]
    fn patterns_that_stand_for_no_path_are_refused() {
        for pattern in ["", "/a", "../a", "a/../b", ":(exclude)a", "!a", "a\0b"] {
            assert!(Pattern::parse(pattern).is_err(), "{pattern:?}");
        }
    }

    #[test]
    fn no_pattern_takes_for_ever() {
        let pattern = Pattern::parse(&("**/*a/".repeat(200) + "b")).unwrap();
        assert!(!pattern.covers("a/".repeat(200).as_bytes()));
    }
}
