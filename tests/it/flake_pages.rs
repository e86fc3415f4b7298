//! What a session of flakes leaves for people and for collectors: a page, looked at in a real browser, and JUnit's XML.

use crate::support::{Env, run};
use std::path::Path;
use std::process::Command;

/// Four tests in TAP, of which the second fails at chance, and text that would be markup or a terminal's command.
const SUITE: &str = r#"
echo 1..4; echo "ok 1 - first"
if [ $(od -An -N1 -tu1 /dev/urandom) -lt 100 ]; then f=1; no="not "; fi
echo "${no}ok 2 - keeps <b>the order</b> of two writers that race for the same record, in a name that is rather long"
printf 'ok 3 - \033[31mred\n'; echo "ok 4 - last"; echo '</pre><script>document.title = "mine"</script>'; exit ${f:-0}
"#;

/// Starts the browser on a copy of a page with a script of ours in it, which tells what it finds. It gets no network: its
/// network namespace is a new one.
#[track_caller]
fn looked_at(page: &Path, width: u32, dark: bool, picture: Option<&Path>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let html = std::fs::read_to_string(page).unwrap();
    // The page itself lets nothing be executed.
    let open = html.replace("http-equiv=\"Content-Security-Policy\"", "name=\"no-policy\"");
    assert_ne!(open, html);
    let script = "<script>const d = document.documentElement, s = getComputedStyle(document.body);\
        const f = document.querySelectorAll('.runs tr:first-child .f').length;\
        document.body.dataset.seen = [d.scrollWidth <= innerWidth, s.backgroundColor, s.color, f,\
        document.querySelectorAll('.cells .sure').length, document.title].join('|');</script></body>";
    let copy = folder.path().join("page.html");
    std::fs::write(&copy, open.replace("</body>", script)).unwrap();
    let mut browser = Command::new("unshare");
    browser.args(["--net", "--map-root-user", "chromium", "--headless", "--no-sandbox", "--disable-gpu"]);
    browser.args(["--no-first-run", "--disable-background-networking", "--disable-component-update"]);
    browser.arg("--disable-sync").arg("--disable-dev-shm-usage").arg("--hide-scrollbars");
    browser.arg(format!("--user-data-dir={}", folder.path().join("profile").display()));
    browser.arg(format!("--window-size={width},900"));
    if dark {
        browser.arg("--blink-settings=preferredColorScheme=0");
    }
    match picture {
        Some(picture) => browser.arg(format!("--screenshot={}", picture.display())),
        None => browser.arg("--dump-dom"),
    };
    let output = run(browser.arg(format!("file://{}", copy.display())));
    if picture.is_some() {
        return String::new();
    }
    let dom = output.out();
    let seen = dom.split("data-seen=\"").nth(1).and_then(|rest| rest.split('"').next());
    seen.unwrap_or_else(|| panic!("the browser told nothing: {dom} {}", output.err())).to_owned()
}

/// The sum of red, green and blue of `rgb(r, g, b)`.
fn light(colour: &str) -> u32 {
    let numbers = colour.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    let numbers = numbers.split(|letter: char| !letter.is_ascii_digit()).filter(|word| !word.is_empty());
    numbers.take(3).map(|number| number.parse::<u32>().unwrap()).sum()
}

/// Width and height of a picture (PNG specification, 11.2.2).
fn size(picture: &Path) -> (u32, u32) {
    let bytes = std::fs::read(picture).unwrap();
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!(&bytes[1..4], b"PNG");
    (number(16), number(20))
}

#[test]
fn a_page_stands_alone_and_is_readable_light_dark_and_on_a_phone() {
    let env = Env::new();
    let page = env.path("home/page.html");
    let args = ["flake", "--format", "json", "--runs", "24", "--html", page.to_str().unwrap()];
    let told = env.checkrun(&[&args[..], &["--", "sh", "-c", SUITE]].concat()).expect(3).json();
    let html = std::fs::read_to_string(&page).unwrap();
    for outside in ["http:", "https:", "src=", "<script", "<link", "@import", "url(", "\u{1b}"] {
        assert!(!html.contains(outside), "{outside}");
    }
    let key = told["key"].as_str().unwrap();
    assert!(html.contains(key) && html.contains("keeps &lt;b&gt;the order&lt;/b&gt;"));
    for (width, dark) in [(1200, false), (1200, true), (390, false), (390, true)] {
        let seen = looked_at(&page, width, dark, None);
        let [fits, ground, text, failed, _, title] = seen.split('|').collect::<Vec<_>>()[..] else {
            panic!("{seen}")
        };
        assert_eq!(fits, "true", "{width} pixels are not enough");
        assert_eq!(light(ground) < light(text), dark, "{seen}");
        assert!(light(ground).abs_diff(light(text)) > 400, "hard to read: {seen}");
        assert_eq!(failed.parse::<u64>().unwrap(), told["k"].as_u64().unwrap());
        assert!(title.starts_with("sh -c"), "{title}");
    }
    let pictures = tempfile::tempdir().unwrap();
    let [one, other] = [false, true].map(|dark| {
        let picture = pictures.path().join(format!("{dark}.png"));
        looked_at(&page, 390, dark, Some(&picture));
        assert_eq!(size(&picture), (390, 900));
        std::fs::read(picture).unwrap()
    });
    assert_ne!(one, other);
}

/// What a page of an experiment on a check with two edges has to show.
#[track_caller]
pub fn shows_its_calendar(page: &Path) {
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.contains("passes up to 2026-06-30T23:59:59Z, fails from 2026-07-01T00:00:00Z"));
    for word in ["<h3>clock</h3>", "<h3>timezone</h3>", "2100-06-15", "cause: date"] {
        assert!(html.contains(word), "{word}");
    }
    let seen = looked_at(page, 390, true, None);
    let parts: Vec<&str> = seen.split('|').collect();
    assert_eq!(parts[0], "true", "{seen}");
    assert!(parts[4].parse::<u32>().unwrap() > 0, "what is no chance has no border: {seen}");
}

#[test]
fn collectors_get_flaky_failures_by_test() {
    let env = Env::new();
    let report = env.path("home/report.xml");
    let args = ["flake", "--format", "json", "--runs", "24", "--junit", report.to_str().unwrap()];
    let told = env.checkrun(&[&args[..], &["--", "sh", "-c", SUITE]].concat()).expect(3).json();
    let read = "import sys, xml.etree.ElementTree as E
suite = E.parse(sys.argv[1]).getroot()[0]
for case in suite.iter('testcase'):
    print(case.get('classname') == 'checkrun', [(it.tag, it.get('message')) for it in case])
print(suite.get('tests'), suite.get('failures'), suite.get('errors'))";
    let output = run(Command::new("python3").args(["-c", read]).arg(&report));
    let lines: Vec<String> = output.out().lines().map(str::to_owned).collect();
    let k = &told["k"];
    assert!(lines[0].contains(&format!("True [('flakyFailure', 'flaky: {k} of 24 runs failed")), "{lines:?}");
    assert_eq!(lines[1], format!("False [('flakyFailure', 'flaky: {k} of 24 runs failed')]"));
    assert_eq!(lines[2], "2 0 0");
    // One that always fails is a failure, one that never does is nothing.
    for (script, element) in [("exit 1", "<failure "), ("exit 0", "</properties>")] {
        let args = ["flake", "--runs", "4", "--junit", report.to_str().unwrap(), "--", "sh", "-c", script];
        drop(env.checkrun(&args));
        let text = std::fs::read_to_string(&report).unwrap();
        assert!(text.contains(element) && text.contains("<failure ") == (script == "exit 1"), "{text}");
    }
}

#[test]
fn a_place_where_no_report_can_be_is_named_before_the_first_run() {
    let env = Env::new();
    for option in ["--html", "--junit"] {
        for place in ["/nowhere/at/all", "/tmp"] {
            let args = ["flake", "--runs", "2", option, place, "--", "true"];
            let error = env.checkrun(&args).expect(125).err();
            assert!(error.contains(place), "{error}");
        }
    }
    assert!(env.logged().is_empty());
}
