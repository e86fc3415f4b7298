//! Splits a command given as one string. A pure function: what the words mean is not asked.
#![forbid(unsafe_code)]

/// What a command given as one string comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Split {
    /// Only words and quotes: an argument list.
    Words(Vec<Vec<u8>>),
    /// Anything else, or a word that only a shell understands: `sh -c STRING`.
    Shell,
    /// Nothing but white space.
    Nothing,
}

/// Words that a shell takes for its own at the start of a command, and of which there is no program (POSIX.1-2024, XCU
/// 2.4 and 2.15, and the built-in utilities that change the shell itself).
const SHELL_WORDS: [&[u8]; 50] = [
    b"!",
    b".",
    b":",
    b"[[",
    b"alias",
    b"bg",
    b"break",
    b"case",
    b"cd",
    b"command",
    b"continue",
    b"do",
    b"done",
    b"elif",
    b"else",
    b"esac",
    b"eval",
    b"exec",
    b"exit",
    b"export",
    b"fc",
    b"fg",
    b"fi",
    b"for",
    b"function",
    b"getopts",
    b"hash",
    b"if",
    b"in",
    b"jobs",
    b"local",
    b"read",
    b"readonly",
    b"return",
    b"select",
    b"set",
    b"shift",
    b"source",
    b"then",
    b"time",
    b"times",
    b"trap",
    b"type",
    b"ulimit",
    b"umask",
    b"unalias",
    b"unset",
    b"until",
    b"wait",
    b"while",
];

/// Bytes that mean something to a shell outside quotes: operators, expansions, patterns, escapes.
const SPECIAL: &[u8] = b"|&;<>()$`\\*?[]{}\n";

/// Splits `string` where a POSIX shell would split it into the same words without doing anything else.
#[must_use]
pub fn split(string: &[u8]) -> Split {
    // A newline at an end separates nothing.
    let string = string.trim_ascii();
    let mut words = Vec::new();
    let mut rest = string;
    loop {
        let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        rest = rest.get(blanks..).unwrap_or_default();
        if rest.is_empty() {
            break;
        }
        match word(rest, words.is_empty()) {
            Some((word, after)) => {
                words.push(word);
                rest = after;
            }
            None => return Split::Shell,
        }
    }
    match words.first() {
        None => Split::Nothing,
        Some(first) if SHELL_WORDS.contains(&first.as_slice()) => Split::Shell,
        Some(_) => Split::Words(words),
    }
}

/// Takes one word; `None` where it is more than a word.
fn word(text: &[u8], is_first: bool) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    let mut rest = text;
    // `~` and `#` mean something only at a word's start, `=` only in the words before the program.
    if matches!(rest.first(), Some(b'~' | b'#')) {
        return None;
    }
    while let Some((byte, after)) = rest.split_first() {
        rest = match byte {
            b' ' | b'\t' => break,
            b'\'' => {
                let end = after.iter().position(|byte| *byte == b'\'')?;
                word.extend_from_slice(after.get(..end)?);
                after.get(end + 1..)?
            }
            b'"' => {
                let end = after.iter().position(|byte| *byte == b'"')?;
                let quoted = after.get(..end)?;
                if quoted.iter().any(|byte| b"$`\\".contains(byte)) {
                    return None;
                }
                word.extend_from_slice(quoted);
                after.get(end + 1..)?
            }
            b'=' if is_first => return None,
            byte if SPECIAL.contains(byte) || *byte == 0 || *byte == b'\r' => return None,
            byte => {
                word.push(*byte);
                after
            }
        };
    }
    Some((word, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_quotes_become_a_list() {
        for (string, expected) in [
            ("go test ./...", vec!["go", "test", "./..."]),
            ("  go\ttest  \n", vec!["go", "test"]),
            ("go test -run 'A|B $x'", vec!["go", "test", "-run", "A|B $x"]),
            ("echo \"a b\" ''", vec!["echo", "a b", ""]),
            ("a'b'\"c\"d", vec!["abcd"]),
            ("x --flag=1 a=b", vec!["x", "--flag=1", "a=b"]),
            (
                "x a~ a#b ^ % @ + , - _ . / : !",
                vec!["x", "a~", "a#b", "^", "%", "@", "+", ",", "-", "_", ".", "/", ":", "!"],
            ),
            ("'a\nb' c", vec!["a\nb", "c"]),
            ("é ü", vec!["é", "ü"]),
            ("test 1 -eq 1", vec!["test", "1", "-eq", "1"]),
        ] {
            let words = expected.iter().map(|word| word.as_bytes().to_vec()).collect();
            assert_eq!(split(string.as_bytes()), Split::Words(words), "{string:?}");
        }
    }

    #[test]
    fn everything_else_is_left_to_the_shell() {
        for string in [
            "a && b",
            "a | b",
            "a; b",
            "a > b",
            "a < b",
            "a &",
            "(a)",
            "{ a; }",
            "a $x",
            "a `b`",
            "a \\ b",
            "a *.go",
            "a ?",
            "a [x]",
            "~/a",
            "a ~",
            "# a",
            "a # b",
            "A=1 b",
            "a\nb",
            "a \"$x\"",
            "a \"\\n\"",
            "a \"`b`\"",
            "a 'b",
            "a \"b",
            "a {b,c}",
            "cd x",
            "exit 3",
            "! a",
            "if a",
            "exec a",
            "[[ a ]]",
            "a\rb",
            ". a",
            ": a",
            "export A",
            "'cd' x",
            "a\0b",
        ] {
            assert_eq!(split(string.as_bytes()), Split::Shell, "{string:?}");
        }
        for string in ["", " \t\n"] {
            assert_eq!(split(string.as_bytes()), Split::Nothing, "{string:?}");
        }
    }
}
