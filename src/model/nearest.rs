//! The word that a misspelt one was most likely meant to be.
#![forbid(unsafe_code)]

/// The word of `known` that differs from `word` in the fewest letters, if that is few enough to be a slip.
#[must_use]
pub fn nearest<'w>(word: &str, known: &[&'w str]) -> Option<&'w str> {
    let limit = (word.chars().count() / 3).max(1);
    known
        .iter()
        .map(|candidate| (distance(word, candidate), *candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// How many letters must be put in, left out or changed to turn one word into the other (Levenshtein).
fn distance(left: &str, right: &str) -> usize {
    // A word from a hostile file may be long; no key of ours is.
    if left.len() > 64 || right.len() > 64 {
        return usize::MAX;
    }
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, letter) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, other) in right.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_find_the_word_that_was_meant() {
        assert_eq!(nearest("memroy", &["memory", "pids"]), Some("memory"));
        assert_eq!(nearest("bananas", &["memory", "pids"]), None);
        assert_eq!(distance("abc", "abc"), 0);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
