//! A page of HTML that stands alone: nothing is loaded and nothing is executed, so that it can be kept, sent and opened
//! anywhere. Light and dark follow the reader's own choice, and wide parts scroll by themselves on a narrow screen. What is
//! on a page is its maker's business.
#![forbid(unsafe_code)]

use crate::report::junit::escaped;
use std::fmt::Write as _;

/// How the page looks. Blue and orange are told apart by nearly everybody, and shapes and words say the same again.
const STYLE: &str = include_str!("page.css");

/// Width and height of a run in a row of runs, in CSS pixels.
const STEP: usize = 7;

/// A page in the making.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: String,
}

/// A rate and what is known of it, as shares of one.
#[derive(Clone, PartialEq, Debug)]
pub struct Bar<'a> {
    /// What it is of.
    pub label: &'a str,
    /// As it was seen.
    pub rate: f64,
    /// The least and the most that it may be.
    pub between: (f64, f64),
    /// In words.
    pub text: String,
}

/// Runs one after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row<'a> {
    /// Whose runs.
    pub label: &'a str,
    /// Runs that did not pass, from 0, going up.
    pub failed: &'a [u64],
}

/// A value of something that was turned, and what came of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Cell {
    /// The value.
    pub label: String,
    /// How many of how many runs failed.
    pub failed: u64,
    /// All runs.
    pub runs: u64,
    /// Whether that is no chance.
    pub sure: bool,
}

impl Page {
    /// A page with a heading and a line below it.
    #[must_use]
    pub fn new(title: &str, line: &str) -> Self {
        let (title, line) = (escaped(title), escaped(line));
        let body = format!("<h1>{title}</h1>\n<p class=\"line\">{line}</p>\n");
        Self { title, body }
    }

    /// A heading, and a sentence that says how to read what follows.
    pub fn section(&mut self, heading: &str, about: &str) {
        self.push(&format!("<h2>{}</h2>\n<p class=\"about\">{}</p>\n", escaped(heading), escaped(about)));
    }

    /// Names and values.
    pub fn facts(&mut self, facts: &[(&str, String)]) {
        self.push("<dl>\n");
        for (name, value) in facts {
            self.push(&format!("<dt>{}</dt><dd>{}</dd>\n", escaped(name), escaped(value)));
        }
        self.push("</dl>\n");
    }

    /// A list of sentences.
    pub fn list(&mut self, items: &[String]) {
        self.push("<ul>\n");
        for item in items {
            self.push(&format!("<li>{}</li>\n", escaped(item)));
        }
        self.push("</ul>\n");
    }

    /// Rates on a scale from nothing to always, each with the stretch in which it may be.
    pub fn bars(&mut self, bars: &[Bar<'_>]) {
        self.push("<table class=\"bars\">\n");
        for Bar { label, rate, between: (low, high), text } in bars {
            let at = |share: f64| share.clamp(0.0, 1.0) * 100.0;
            let (low, high, rate) = (at(*low), at(*high), at(*rate));
            let (label, text) = (escaped(label), escaped(text));
            self.push(&format!(
                "<tr><th scope=\"row\">{label}</th><td class=\"bar\"><svg viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" \
                 role=\"img\" aria-label=\"{text}\"><rect class=\"scale\" width=\"100\" height=\"8\"/><rect class=\"span\" \
                 x=\"{low:.3}\" width=\"{:.3}\" y=\"2\" height=\"4\"/><rect class=\"f\" x=\"{:.3}\" width=\"0.8\" \
                 height=\"8\"/></svg></td><td>{text}</td></tr>\n",
                (high - low).max(0.4),
                (rate - 0.4).clamp(0.0, 99.2),
            ));
        }
        self.push("</table>\n");
    }

    /// Runs as squares, a row for each; a failed one is higher and of another colour. All rows have `runs` runs.
    pub fn runs(&mut self, rows: &[Row<'_>], runs: u64) {
        let width = usize::try_from(runs).unwrap_or(usize::MAX).saturating_mul(STEP).max(STEP);
        self.push("<div class=\"wide\"><table class=\"runs\">\n");
        for Row { label, failed } in rows {
            let said = format!("{} of {runs} failed", failed.len());
            self.push(&format!(
                "<tr><th scope=\"row\">{}</th><td><svg width=\"{width}\" height=\"14\" role=\"img\" \
                 aria-label=\"{said}\"><rect class=\"p\" y=\"4\" width=\"{width}\" height=\"6\"/>",
                escaped(label)
            ));
            for run in *failed {
                let x = usize::try_from(*run).unwrap_or(usize::MAX).saturating_mul(STEP);
                self.push(&format!(
                    "<rect class=\"f\" x=\"{x}\" width=\"{}\" height=\"14\"><title>run {}</title></rect>",
                    STEP - 1,
                    run + 1
                ));
            }
            self.push("</svg></td></tr>\n");
        }
        self.push("</table></div>\n");
    }

    /// Values in a row or more, each coloured by its rate; one that is no chance has a border.
    pub fn cells(&mut self, label: &str, cells: &[Cell]) {
        self.push(&format!("<h3>{}</h3>\n<ol class=\"cells\">\n", escaped(label)));
        for Cell { label, failed, runs, sure } in cells {
            // Five steps: never, and four quarters.
            let step = if *failed == 0 { 0 } else { 1 + (failed * 4).saturating_sub(1) / (*runs).max(1) };
            let sure = if *sure { " sure" } else { "" };
            self.push(&format!(
                "<li class=\"r{}{sure}\"><b>{failed}/{runs}</b> {}</li>\n",
                step.min(4),
                escaped(label)
            ));
        }
        self.push("</ol>\n");
    }

    /// A text as it was printed, behind a line to open it.
    pub fn text(&mut self, line: &str, text: &str) {
        // In a `pre`, the end of a line is one, and not an entity.
        let text = escaped(text).replace("&#10;", "\n");
        self.push(&format!("<details><summary>{}</summary><pre>{text}</pre></details>\n", escaped(line)));
    }

    /// The whole document.
    #[must_use]
    pub fn finish(self) -> String {
        let Self { title, body } = self;
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
             content=\"width=device-width, initial-scale=1\">\n<meta http-equiv=\"Content-Security-Policy\" \
             content=\"default-src 'none'; style-src 'unsafe-inline'\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
        )
    }

    fn push(&mut self, text: &str) {
        // Writing to a String cannot fail.
        let _ = self.body.write_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_check_says_is_markup_and_nothing_is_loaded() {
        let evil = "</pre><script>x()</script><img src=http://a.example/>\u{1b}[2J\"'&";
        let mut page = Page::new(evil, evil);
        page.section(evil, evil);
        page.facts(&[("name", evil.to_owned())]);
        page.list(&[evil.to_owned()]);
        page.bars(&[Bar { label: evil, rate: 2.0, between: (-1.0, 0.5), text: evil.to_owned() }]);
        page.runs(&[Row { label: evil, failed: &[0, 7] }], 9);
        page.cells(evil, &[Cell { label: evil.to_owned(), failed: 3, runs: 3, sure: true }]);
        page.text(evil, evil);
        let html = page.finish();
        for markup in ["<script", "<img", "\u{1b}", "<link", "url(", "@import"] {
            assert!(!html.contains(markup), "{markup}: {html}");
        }
        assert!(html.contains("r4 sure") && html.contains("<title>run 8</title>"));
    }
}
