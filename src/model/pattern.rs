//! Patterns for paths in which `*` stands for anything, slashes too. Which files they choose is for the rooms.
#![forbid(unsafe_code)]

/// Whether a pattern is the whole of a path. Takes at most length times length steps, whatever either holds.
#[must_use]
pub fn matches(pattern: &[u8], path: &[u8]) -> bool {
    let (mut at, mut here) = (0, 0);
    // Behind the last `*`, and where its match ends so far: the only one that may have to take more.
    let mut back: Option<(usize, usize)> = None;
    while here < path.len() {
        match (pattern.get(at), back) {
            (Some(b'*'), _) => {
                at += 1;
                back = Some((at, here));
            }
            (Some(byte), _) if *byte == path[here] => {
                at += 1;
                here += 1;
            }
            (_, Some((after, end))) => {
                (at, here) = (after, end + 1);
                back = Some((after, end + 1));
            }
            _ => return false,
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_anything() {
        for (pattern, path, expected) in [
            ("", "", true),
            ("*", "", true),
            ("*", "a/b", true),
            ("a", "a", true),
            ("a", "ab", false),
            ("*a", "ba", true),
            ("*a", "ab", false),
            ("a*", "ab/c", true),
            ("*target/*.xml", "target/a.xml", true),
            ("*target/*.xml", "m/target/x/a.xml", true),
            ("*target/*.xml", "target/a.xmls", false),
            ("a*b*c", "abbbc", true),
            ("a*b*c", "acb", false),
            ("**", "x", true),
            ("*ab", "aab", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), path.as_bytes()), expected, "{pattern} {path}");
        }
    }
}
