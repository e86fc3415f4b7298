//! Watches the whole output of a check for the words by which its runner knows that packages are missing: the end that is kept
//! may not hold them any more. What is said of it is `advice`'s.
#![forbid(unsafe_code)]

use crate::model::lines::Lines;
use crate::pipeline::Prepared;

/// The most that is looked at of one line, in bytes.
const LINE_MAX: usize = 64 << 10;

/// A watch over one run's output.
#[derive(Debug)]
pub(super) struct Lacking {
    /// Empty where nobody needs to know, or where it is known already.
    texts: Vec<String>,
    lines: Lines,
    seen: bool,
}

impl Lacking {
    /// Looks for nothing where no packages could be missing.
    pub(super) fn new(prepared: &Prepared) -> Self {
        let rule = &prepared.rule;
        let matters = prepared.unprepared.is_some() || prepared.has_environment();
        let told = rule.advice.iter().filter(|advice| advice.prepare).flat_map(|advice| &advice.output);
        let texts = rule.lacks.iter().chain(told).filter(|_| matters).cloned().collect();
        Self { texts, lines: Lines::default(), seen: false }
    }

    /// Takes what was printed, on stderr or stdout.
    pub(super) fn push(&mut self, stderr: bool, bytes: &[u8]) {
        let Self { texts, lines, seen } = self;
        if !texts.is_empty() && !*seen {
            lines.push(stderr, bytes, LINE_MAX, |line| *seen |= has_any(line, texts));
        }
    }

    /// Whether one of the words was printed.
    pub(super) fn finish(mut self) -> bool {
        let Self { texts, lines, seen } = &mut self;
        lines.finish(|line| *seen |= has_any(line, texts));
        self.seen
    }
}

fn has_any(line: &str, texts: &[String]) -> bool {
    texts.iter().any(|text| line.contains(text.as_str()))
}
