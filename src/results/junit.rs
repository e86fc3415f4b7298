//! JUnit XML that a runner writes to its standard output (`pytest --junitxml=/dev/stdout`) or to a file. Characters that XML forbids
//! and some runners write all the same are taken out before it is read.
#![forbid(unsafe_code)]

use crate::model::case::Fate;
use crate::model::evidence::TestCounts;
use crate::results::Cases;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// The largest report that is read, in bytes.
const REPORT_MAX: usize = 16 << 20;

/// A report as it comes.
#[derive(Debug, Default)]
pub(super) struct Report {
    bytes: Vec<u8>,
}

/// The test that is being read.
#[derive(Debug)]
struct Open {
    id: String,
    fate: Fate,
    /// Attempts that failed and were done again.
    failed_before: u32,
}

impl Report {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        // Until a report begins, only enough is kept to see that it does.
        if self.bytes.is_empty() {
            let begins = |mark: &[u8]| bytes.windows(mark.len()).position(|part| part == mark);
            let Some(at) = begins(b"<testsuite") else { return };
            self.bytes.extend_from_slice(&bytes[at..]);
        } else if self.bytes.len() < REPORT_MAX {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Reads it; how many tests it told of that came to an end, attempts before the last one left out.
    pub(super) fn finish(&mut self, cases: &mut Cases) -> TestCounts {
        let mut counts = TestCounts { passed: 0, failed: 0, skipped: 0 };
        if self.bytes.is_empty() || self.bytes.len() >= REPORT_MAX {
            return counts;
        }
        let allowed = |byte: &u8| *byte >= 0x20 || matches!(byte, b'\t' | b'\n' | b'\r');
        self.bytes.retain(allowed);
        let text = String::from_utf8_lossy(&self.bytes).into_owned();
        let mut reader = Reader::from_str(&text);
        reader.config_mut().check_end_names = false;
        let mut open: Option<Open> = None;
        let mut depth = 0_u32;
        loop {
            match reader.read_event() {
                Ok(Event::Start(tag)) => {
                    depth += u32::from(tag.name().as_ref().starts_with("testsuite"));
                    begin(&tag, &mut open, cases);
                }
                Ok(Event::Empty(tag)) => {
                    begin(&tag, &mut open, cases);
                    if tag.name().as_ref() == "testcase" {
                        end(&mut open, cases, &mut counts);
                    }
                }
                Ok(Event::End(tag)) => {
                    if tag.name().as_ref() == "testcase" {
                        end(&mut open, cases, &mut counts);
                    }
                    if tag.name().as_ref().starts_with("testsuite") {
                        depth = depth.saturating_sub(1);
                        if depth == 0 {
                            break;
                        }
                    }
                }
                // What follows the report is the command's other output, and a report that is cut ends here.
                Ok(Event::Eof) | Err(_) => break,
                Ok(_) => {}
            }
        }
        if let Some(cut) = open {
            cases.started(&cut.id);
        }
        counts
    }
}

/// Reads a file; as [`Report::finish`].
pub(super) fn of_file(bytes: &[u8], cases: &mut Cases) -> TestCounts {
    let mut report = Report::default();
    report.push(bytes);
    report.finish(cases)
}

fn begin(tag: &BytesStart<'_>, open: &mut Option<Open>, cases: &mut Cases) {
    match tag.name().as_ref() {
        "testcase" => {
            if let Some(cut) = open.take() {
                cases.started(&cut.id);
            }
            let (class, name) = (attribute(tag, "classname"), attribute(tag, "name"));
            let id = match (class.as_str(), name) {
                ("", name) => name,
                (class, name) => format!("{class}::{name}"),
            };
            *open = Some(Open { id, fate: Fate::Passed, failed_before: 0 });
        }
        word => {
            let Some(case) = open else { return };
            match word {
                "failure" | "error" => case.fate = Fate::Failed,
                "skipped" => case.fate = Fate::Skipped,
                "flakyFailure" | "flakyError" | "rerunFailure" | "rerunError" => case.failed_before += 1,
                _ => {}
            }
        }
    }
}

fn end(open: &mut Option<Open>, cases: &mut Cases, counts: &mut TestCounts) {
    if let Some(case) = open.take() {
        for _ in 0..case.failed_before {
            cases.ended(&case.id, Fate::Failed);
        }
        cases.ended(&case.id, case.fate);
        match case.fate {
            Fate::Passed => counts.passed += 1,
            Fate::Failed | Fate::Aborted => counts.failed += 1,
            Fate::Skipped => counts.skipped += 1,
        }
    }
}

fn attribute(tag: &BytesStart<'_>, name: &str) -> String {
    let found = tag.attributes().with_checks(false).flatten().find(|it| it.key.as_ref() == name);
    let raw = found.map(|it| it.value.into_owned()).unwrap_or_default();
    quick_xml::escape::unescape(&raw).map(std::borrow::Cow::into_owned).unwrap_or(raw)
}
