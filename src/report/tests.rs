//! What ends up on the two streams, byte for byte.
#![forbid(unsafe_code)]

use super::*;
use crate::model::check::Guard;
use crate::model::evidence::{CacheUse, EVIDENCE_VERSION, Evidence, Foreign, Tally};
use crate::model::layer::{Layer, LayerState};
use crate::model::outcome::{Outcome, Usage};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Short writes, as a pipe does.
        let part = &bytes[..bytes.len().min(3)];
        self.0.lock().unwrap().extend(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Fails in a row of ways, then for good.
struct Broken(Vec<io::ErrorKind>);

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        let kind = if self.0.len() > 1 { self.0.remove(0) } else { self.0[0] };
        Err(kind.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn evidence() -> Evidence {
    Evidence {
        deps: Vec::new(),
        unobserved: None,
        varied: std::collections::BTreeMap::new(),
        version: EVIDENCE_VERSION,
        key: "b3:00".to_owned(),
        tree: "8f3c1ad2b4c6ffffffffffffffffffffffffffff".to_owned(),
        commit: None,
        dirty: true,
        cwd: ".".to_owned(),
        foreign: Foreign::default(),
        outcome: Outcome::Passed,
        exit: Some(0),
        signal: None,
        reason: None,
        at: "2026-03-11T09:14:22Z".to_owned(),
        secs: 22.6,
        usage: Usage::default(),
        summary: None,
        tests: None,
        tail: "hé\n".to_owned(),
        output_bytes: 91234,
        output_digest: "b3:11".to_owned(),
        policy: ("hermetic".to_owned(), "b3:22".to_owned()),
        runner: ("go".to_owned(), "b3:33".to_owned(), "go1.27.3 linux/amd64".to_owned()),
        clock: ("ticking".to_owned(), "2026-01-01T00:00:00Z".to_owned()),
        level: "full".to_owned(),
        layers: [
            (Layer::User, LayerState::Enforced),
            (Layer::Clock, LayerState::Unavailable("no such means".to_owned())),
            (Layer::Cpus, LayerState::Off),
        ]
        .into(),
        host: ("linux".to_owned(), "x86_64".to_owned()),
    }
}

fn circumstances(cache: CacheUse) -> Circumstances {
    Circumstances {
        cache,
        guard: Guard::Exact,
        from: None,
        scope: Vec::new(),
        touches: Vec::new(),
        argv: ["go", "test", "-run", "A|B"].map(|word| word.as_bytes().to_vec()).to_vec(),
        tally: Tally::default(),
    }
}

fn answer(cache: CacheUse) -> Answer {
    Answer::new(&evidence(), &circumstances(cache))
}

struct Scene {
    reporter: Reporter,
    stdout: Page,
    stderr: Page,
    millis: Arc<AtomicU64>,
}

fn scene(surroundings: Surroundings, wishes: Wishes) -> Scene {
    let (stdout, stderr) = (Page::default(), Page::default());
    let millis = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&millis);
    let streams = Streams::new(Box::new(stdout.clone()), Box::new(stderr.clone()));
    let elapsed = Box::new(move || Duration::from_millis(clock.load(Ordering::Relaxed)));
    Scene { reporter: Reporter::new(surroundings, wishes, streams, elapsed), stdout, stderr, millis }
}

const TERMINAL: Surroundings = Surroundings {
    stderr_terminal: true,
    stdout_columns: None,
    stderr_columns: None,
    stdout_terminal: true,
    ci: false,
    dumb_terminal: false,
    no_color: true,
};

fn format(format: Format) -> Wishes {
    Wishes { format, ..Wishes::default() }
}

#[test]
fn the_manner_follows_the_table() {
    let quiet = Wishes { loudness: Loudness::Quiet, ..Wishes::default() };
    for (surroundings, wishes, progress, colour) in [
        (TERMINAL, Wishes::default(), true, false),
        (Surroundings { no_color: false, ..TERMINAL }, Wishes::default(), true, true),
        (TERMINAL, quiet, false, false),
        (Surroundings { ci: true, ..TERMINAL }, Wishes::default(), false, false),
        (Surroundings { dumb_terminal: true, no_color: false, ..TERMINAL }, Wishes::default(), false, false),
        (
            Surroundings { stderr_terminal: false, no_color: false, ..TERMINAL },
            Wishes::default(),
            false,
            false,
        ),
        (TERMINAL, format(Format::Json), false, false),
        (TERMINAL, format(Format::Jsonl), false, false),
    ] {
        let got = manner(surroundings, wishes);
        assert_eq!((got.progress, got.colour), (progress, colour), "{surroundings:?} {wishes:?}");
    }
}

#[test]
fn the_check_speaks_first_and_the_verdict_follows() {
    let mut scene = scene(Surroundings::default(), Wishes::default());
    scene.reporter.event(Event::Output(Stream::Stdout, b"out \xe2\x9c\x93"));
    scene.reporter.event(Event::Output(Stream::Stderr, b"err"));
    scene.reporter.event(Event::Warning("the log is full"));
    scene.reporter.answer(&answer(CacheUse::Hit));
    assert_eq!(scene.stdout.text(), "out \u{2713}");
    assert_eq!(
        scene.stderr.text(),
        "err\ncheckrun: warning: the log is full\ncheckrun: passed (cached, exact) tree 8f3c1ad2b4c6 in 22.6s\n"
    );
}

#[test]
fn on_one_screen_the_verdict_has_a_line_of_its_own() {
    let mut scene = scene(TERMINAL, Wishes::default());
    scene.reporter.event(Event::Output(Stream::Stdout, b"out"));
    scene.reporter.answer(&answer(CacheUse::Miss));
    assert_eq!(scene.stderr.text(), "\ncheckrun: passed (ran) tree 8f3c1ad2b4c6 in 22.6s\n");
}

#[test]
fn json_is_the_result_object_in_its_order() {
    let mut scene = scene(Surroundings::default(), format(Format::Json));
    scene.reporter.event(Event::Output(Stream::Stdout, b"out"));
    scene.reporter.answer(&answer(CacheUse::Miss));
    assert_eq!(scene.stderr.text(), "");
    let expected = concat!(
        r#"{"schema":"checkrun.result/1","key":"b3:00","cache":"miss","guard":"exact","#,
        r#""tree":"8f3c1ad2b4c6ffffffffffffffffffffffffffff","commit":null,"dirty":true,"#,
        r#""foreign":{"submodules":false,"empty_submodules":0,"lfs":false,"lfs_pointers":0},"scope":[],"touches":[],"#,
        r#""cwd":".","argv":["go","test","-run","A|B"],"cmd":"go test -run 'A|B'","deps":[],"outcome":"passed","exit":0,"#,
        r#""signal":null,"reason":null,"flaky":null,"at":"2026-03-11T09:14:22Z","secs":22.6,"#,
        r#""usage":{"user_secs":0.0,"sys_secs":0.0,"max_rss_bytes":0,"written_bytes":0},"summary":null,"tests":null,"#,
        r#""tail":"hé\n","tail_bytes":4,"output_bytes":91234,"output_digest":"b3:11","#,
        r#""policy":{"name":"hermetic","digest":"b3:22"},"#,
        r#""runner":{"name":"go","digest":"b3:33","toolchain":"go1.27.3 linux/amd64"},"#,
        r#""clock":{"mode":"ticking","start":"2026-01-01T00:00:00Z"},"sandbox":{"level":"full","#,
        r#""layers":{"user":"enforced","clock":"unavailable: no such means","cpus":"off"}},"#,
        r#""host":{"os":"linux","arch":"x86_64"}}"#,
        "\n"
    );
    assert_eq!(scene.stdout.text(), expected);
}

#[test]
fn jsonl_is_events_then_the_result() {
    let wishes = Wishes { show_output: true, ..format(Format::Jsonl) };
    let mut scene = scene(Surroundings::default(), wishes);
    scene.reporter.event(Event::Resolved { tree: "t", key: "k" });
    scene.reporter.event(Event::Staging { done: 1, total: 2 });
    scene.reporter.event(Event::Started);
    scene.reporter.event(Event::Output(Stream::Stderr, b"x\xc3"));
    scene.reporter.event(Event::Warning("w"));
    scene.reporter.answer(&answer(CacheUse::Miss));
    let text = scene.stdout.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..5],
        [
            r#"{"schema":"checkrun.events/1","event":"resolved","tree":"t","key":"k"}"#,
            r#"{"event":"started"}"#,
            r#"{"event":"output","stream":"stderr","text":"x"}"#,
            r#"{"event":"warning","text":"w"}"#,
            "{\"event\":\"output\",\"stream\":\"stderr\",\"text\":\"\u{fffd}\"}",
        ]
    );
    assert!(
        lines[5].starts_with(r#"{"event":"result","result":{"schema":"checkrun.result/1","#),
        "{}",
        lines[5]
    );
    assert_eq!(lines.len(), 6);
}

#[test]
fn output_is_shown_beside_json_only_on_request() {
    for (show_output, expected) in [(false, ""), (true, "oe")] {
        let mut scene = scene(Surroundings::default(), Wishes { show_output, ..format(Format::Json) });
        scene.reporter.event(Event::Output(Stream::Stdout, b"o"));
        scene.reporter.event(Event::Output(Stream::Stderr, b"e"));
        assert_eq!((scene.stdout.text().as_str(), scene.stderr.text().as_str()), ("", expected));
    }
}

#[test]
fn progress_is_silent_at_first_seldom_later_and_gone_at_the_end() {
    let mut scene = scene(TERMINAL, Wishes::default());
    for millis in (0..=400).step_by(10) {
        scene.millis.store(millis, Ordering::Relaxed);
        scene.reporter.event(Event::Staging { done: millis, total: 400 });
        assert_eq!(millis < 250, scene.stderr.text().is_empty(), "{millis}");
    }
    scene.reporter.event(Event::Output(Stream::Stderr, b"hello\n"));
    let text = scene.stderr.text();
    assert_eq!(text.matches("laying out").count(), 4, "{text:?}");
    assert!(text.ends_with("400 of 400 files\r\x1b[Khello\n"), "{text:?}");
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    use io::ErrorKind::{BrokenPipe, Interrupted, StorageFull, WouldBlock};
    for (kinds, told) in
        [(vec![Interrupted, WouldBlock, BrokenPipe], None), (vec![StorageFull], Some(StorageFull))]
    {
        let streams = Streams::new(Box::new(Broken(kinds.clone())), Box::new(Broken(kinds)));
        let mut reporter =
            Reporter::new(Surroundings::default(), Wishes::default(), streams, Box::new(|| Duration::ZERO));
        reporter.event(Event::Output(Stream::Stdout, b"x"));
        reporter.event(Event::Output(Stream::Stderr, b"x"));
        reporter.answer(&answer(CacheUse::Off));
        assert_eq!(reporter.trouble().map(|error| error.kind()), told);
    }
}

#[test]
fn failures_carry_their_hint_and_quiet_keeps_them() {
    let mut scene = scene(Surroundings::default(), Wishes { loudness: Loudness::Quiet, ..Wishes::default() });
    scene.reporter.answer(&answer(CacheUse::Hit));
    scene.reporter.failure("no revision is named `x`", Some("`git branch` lists them"));
    assert_eq!(
        scene.stderr.text(),
        "checkrun: error: no revision is named `x`\n\nhint: `git branch` lists them\n"
    );
}

#[test]
fn records_are_shown_with_their_tail() {
    let text = evidence_text(&evidence(), &circumstances(CacheUse::Miss));
    assert!(text.contains("outcome  passed\n") && text.ends_with("\nhé\n"), "{text}");
}
