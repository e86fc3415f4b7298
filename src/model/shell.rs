//! Words as a shell reads them, for commands that people see and copy. Nothing is ever run by way of one.
#![forbid(unsafe_code)]

/// An argument list as one line that a shell would read back, for people; bytes that are not UTF-8 become U+FFFD.
#[must_use]
pub fn shell_words(argv: &[Vec<u8>]) -> String {
    let words: Vec<String> = argv.iter().map(|word| shell_word(&String::from_utf8_lossy(word))).collect();
    words.join(" ")
}

fn shell_word(word: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "%+,-./:=@_^".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
