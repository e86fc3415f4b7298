//! The guard of layers and names: what the source text itself must hold to, whatever the code does.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What the rooms import besides `model`, each with its reason.
const EDGES: [(&str, &str, &str); 2] = [
    ("stage", "tree", "a layer is laid out from the objects that a tree names"),
    ("store", "logs", "a row names a log by digest, and a log that no row names is removed"),
];

/// The rooms: each knows `model` and, short of [`EDGES`], no other.
const ROOMS: [&str; 16] = [
    "tree",
    "key",
    "cache",
    "stage",
    "sandbox",
    "store",
    "logs",
    "flight",
    "catalogue",
    "toolchain",
    "report",
    "summary",
    "results",
    "stats",
    "ledger",
    "trailers",
];

/// Names of other crates and the only place that may know them; an empty place is anywhere.
const CRATES: [(&str, &str); 20] = [
    ("blake3", ""),
    ("bytesize", "src/model/"),
    ("clap", "src/cli/"),
    ("clap_complete", "src/cli/"),
    ("clap_mangen", "src/cli/"),
    ("gix", "src/tree/"),
    ("humantime", "src/model/"),
    ("jiff", "src/model/"),
    ("landlock", "src/sandbox/landlock_rules.rs"),
    ("libc", "src/sandbox/"),
    ("lz4_flex", "src/logs/"),
    ("quick-xml", ""),
    ("rusqlite", "src/store/"),
    ("rustix", ""),
    ("serde", ""),
    ("serde_json", ""),
    ("tar", "src/stage/"),
    ("thiserror", ""),
    ("toml", "src/catalogue/"),
    ("unicode-width", "src/report/"),
];

/// Files that may be longer than 400 lines: how long, and why.
const LONG: [(&str, usize, &str); 1] =
    [("src/sandbox/sys.rs", 760, "all unsafe code is in one file on purpose: small, uniform functions")];

/// The only file that starts a program: git changes commits, references and the index itself.
const STARTS_PROGRAMS: &str = "src/commands/git.rs";

/// Names that say nothing of what is in a module.
const BANNED: [&str; 8] = ["util", "utils", "helper", "helpers", "common", "misc", "imp", "manager"];

/// Words by which code learns of its surroundings, which below `commands` arrive as values.
const SURROUNDINGS: [&str; 6] =
    ["env::var", "env::current_dir", "env::home_dir", "env::args", "env::temp_dir", "is_terminal()"];

/// One source file: its path from the repository's root, and its text.
struct Source {
    path: String,
    text: String,
}

impl Source {
    /// The text without comments, and without the content of literals.
    fn code(&self) -> String {
        bare(&self.text)
    }

    /// [`Self::code`] without the unit tests, which stand at a file's end or in files of their own.
    fn product(&self) -> String {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        if self.path.contains("/tests/") || name.starts_with("tests") {
            return String::new();
        }
        let code = self.code();
        code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned()
    }

    /// The top-level module: `src/tree/error.rs` and `src/tree.rs` are both `tree`.
    fn module(&self) -> &str {
        let below = self.path.strip_prefix("src/").unwrap_or(&self.path);
        let first = below.split('/').next().unwrap_or(below);
        first.strip_suffix(".rs").unwrap_or(first)
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below a folder.
fn sources(folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = vec![root().join(folder)];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("UTF-8");
                let path =
                    path.strip_prefix(root()).expect("below the root").to_str().expect("UTF-8").to_owned();
                found.push(Source { path, text });
            }
        }
    }
    assert!(found.len() > 1, "no sources below {folder}");
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Blanks comments and the content of string and character literals; line ends stay where they are.
fn bare(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("r#\"") {
            rest.find("\"#").map_or(rest.len(), |end| end + 2)
        } else if next == '"' {
            quoted(rest, '"')
        } else if next == '\'' && is_character(rest) {
            quoted(rest, '\'')
        } else {
            0
        };
        if skipped == 0 {
            out.push(next);
            rest = &rest[next.len_utf8()..];
        } else {
            out.extend(rest[..skipped].chars().filter(|letter| *letter == '\n'));
            rest = &rest[skipped..];
        }
    }
    out
}

/// How long a literal is, both quotes counted.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if letter == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Whether a `'` opens a character and not a lifetime.
fn is_character(text: &str) -> bool {
    let mut letters = text.chars().skip(1);
    match letters.next() {
        Some('\\') => true,
        Some(_) => letters.next() == Some('\''),
        None => false,
    }
}

/// The words that stand behind each `prefix` in `code`.
fn words_after<'c>(code: &'c str, prefix: &str) -> BTreeSet<&'c str> {
    let name = |rest: &'c str| {
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
        &rest[..end]
    };
    code.match_indices(prefix)
        .filter(|(at, _)| starts_word(code, *at))
        .map(|(at, _)| name(&code[at + prefix.len()..]))
        .collect()
}

/// Whether no name ends right before `at`.
fn starts_word(code: &str, at: usize) -> bool {
    !code[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_')
}

/// Whether `word` occurs as a word of its own.
fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let after = code[at + word.len()..].chars().next();
        starts_word(code, at) && !after.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
    })
}

/// Whether one module may import another.
fn allowed(from: &str, to: &str) -> bool {
    match from {
        _ if from == to => true,
        "commands" => to != "main" && to != "lib",
        "pipeline" => to == "model" || (ROOMS.contains(&to) && to != "report"),
        "cli" => to == "model",
        _ if ROOMS.contains(&from) => {
            to == "model" || EDGES.iter().any(|edge| (edge.0, edge.1) == (from, to))
        }
        _ => false,
    }
}

/// Insists that nothing was found wrong.
#[track_caller]
fn none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn imports_go_down_and_rooms_do_not_know_each_other() {
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    for source in sources("src") {
        let code = source.product();
        if code.contains("crate::{") {
            wrong.push(format!("{}: `crate::{{…}}`; import by `crate::room::Thing`", source.path));
        }
        for to in words_after(&code, "crate::").into_iter().filter(|to| !to.is_empty()) {
            let from = source.module();
            used.insert((from.to_owned(), to.to_owned()));
            if !allowed(from, to) {
                wrong.push(format!("{}: {from} imports {to}, which is no listed edge", source.path));
            }
        }
    }
    for (from, to, why) in EDGES {
        if !used.contains(&(from.to_owned(), to.to_owned())) {
            wrong.push(format!("the listed edge {from} -> {to} ({why}) is not used any more"));
        }
    }
    none(&wrong);
}

#[test]
fn every_module_has_a_layer() {
    let layers = ["lib", "main", "model", "cli", "commands", "pipeline"];
    let known = |module: &str| ROOMS.contains(&module) || layers.contains(&module);
    let wrong: Vec<String> = sources("src")
        .iter()
        .filter(|source| !known(source.module()))
        .map(|source| source.path.clone())
        .collect();
    none(&wrong);
}

#[test]
fn each_other_crate_is_named_where_it_belongs() {
    let mut wrong = Vec::new();
    for source in sources("src") {
        let code = source.product();
        for (name, place) in CRATES {
            let named = !words_after(&code, &format!("{name}::")).is_empty();
            // A folder's room may also be one file: `src/logs.rs` beside `src/logs/`.
            let room = format!("{}.rs", place.trim_end_matches('/'));
            if named && !source.path.starts_with(place) && source.path != room {
                wrong.push(format!("{} names {name}, which only {place} may", source.path));
            }
        }
    }
    none(&wrong);
}

#[test]
fn every_dependency_is_listed_with_its_reason() {
    let manifest = read("Cargo.toml");
    let mut wrong = Vec::new();
    let mut section = "";
    let mut before = "";
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if let (true, Some((name, _))) = (section.ends_with("dependencies]"), line.split_once(" = ")) {
            if !before.starts_with('#') {
                wrong.push(format!("Cargo.toml: {name} has no reason above it"));
            }
            if section == "[dependencies]" && !CRATES.iter().any(|(listed, _)| *listed == name) {
                wrong.push(format!("Cargo.toml: {name} is not in the table of who may name it"));
            }
        }
        before = line;
    }
    none(&wrong);
}

#[test]
fn only_the_front_doors_ask_about_the_surroundings() {
    let mut wrong = Vec::new();
    for source in &sources("src") {
        let code = source.product();
        let door = matches!(source.module(), "commands" | "main");
        for word in SURROUNDINGS.iter().filter(|word| !door && code.contains(**word)) {
            wrong.push(format!("{} asks `{word}`; below commands it arrives as a value", source.path));
        }
        let starts = ["process::Command", "process::{Command"].iter().any(|word| code.contains(word));
        if starts != (source.path == STARTS_PROGRAMS) {
            wrong.push(format!("{}: only {STARTS_PROGRAMS} starts programs", source.path));
        }
    }
    none(&wrong);
}

#[test]
fn unsafe_code_is_in_one_file_and_forbidden_elsewhere() {
    let mut wrong = Vec::new();
    for source in sources("src") {
        let is_sys = source.path == "src/sandbox/sys.rs";
        if !is_sys && has_word(&source.code(), "unsafe") {
            wrong.push(format!("{}: `unsafe` outside src/sandbox/sys.rs", source.path));
        }
        // `forbid` reaches all modules below, so the two above that file cannot have it, and unit tests need none.
        let above = matches!(source.path.as_str(), "src/lib.rs" | "src/sandbox/mod.rs");
        let needed = !is_sys && !above && !source.product().is_empty();
        if needed && !source.text.contains("\n#![forbid(unsafe_code)]\n") {
            wrong.push(format!("{}: no `#![forbid(unsafe_code)]`", source.path));
        }
    }
    none(&wrong);
}

#[test]
fn files_are_short_and_say_what_they_are_for() {
    let mut wrong = Vec::new();
    for source in sources("src").into_iter().chain(sources("tests")) {
        let lines = source.text.lines().count();
        let most = LONG.iter().find(|(path, ..)| *path == source.path).map_or(400, |(_, most, _)| *most);
        if lines > most {
            wrong.push(format!("{}: {lines} lines, more than {most}", source.path));
        }
        if !source.text.starts_with("//! ") {
            wrong.push(format!("{}: does not open with `//!`", source.path));
        }
    }
    let short = LONG.iter().filter(|(path, ..)| read(path).lines().count() <= 400);
    wrong.extend(short.map(|(path, ..)| format!("{path} is short again; take it off the list")));
    none(&wrong);
}

#[test]
fn no_module_has_a_name_that_says_nothing() {
    let mut wrong = Vec::new();
    for source in sources("src").into_iter().chain(sources("tests")) {
        let parts = source.path.trim_end_matches(".rs").split('/');
        let inline = words_after(&source.code(), "mod ").into_iter().map(str::to_owned).collect::<Vec<_>>();
        for name in parts.map(str::to_owned).chain(inline).filter(|name| BANNED.contains(&name.as_str())) {
            wrong.push(format!("{}: a module named `{name}`", source.path));
        }
    }
    none(&wrong);
}

#[test]
fn every_test_file_is_listed_with_a_line_of_its_own() {
    let main = read("tests/it/main.rs");
    let lines: Vec<&str> = main.lines().collect();
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(root().join("tests/it")).expect("tests") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name").to_owned();
        let listed = lines.iter().position(|line| *line == format!("mod {name};"));
        match listed {
            // A folder without a `mod.rs` holds sources of other languages.
            _ if name == "main" || (path.is_dir() && !path.join("mod.rs").exists()) => {}
            None => wrong.push(format!("tests/it/main.rs does not list {name}")),
            Some(at) if at > 0 && lines[at - 1].starts_with("/// ") => {}
            Some(_) => wrong.push(format!("tests/it/main.rs: no line says what {name} shows")),
        }
    }
    none(&wrong);
}

/// The guard must see what it guards against.
#[test]
fn the_guard_itself_sees_through_comments_and_literals() {
    let code = bare(
        "let a = \"// crate::x\"; // crate::y\nlet b = '\"'; crate::z::T; /* crate::w */ r#\"crate::v\"#",
    );
    assert_eq!(words_after(&code, "crate::"), BTreeSet::from(["z"]));
    assert!(has_word("unsafe { }", "unsafe") && !has_word("forbid(unsafe_code)", "unsafe"));
    assert!(!allowed("tree", "store") && !allowed("model", "tree") && !allowed("pipeline", "report"));
    assert!(allowed("stage", "tree") && allowed("commands", "report"));
}
