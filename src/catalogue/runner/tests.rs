//! Runners as they are read and chosen.
#![forbid(unsafe_code)]

use super::*;
use crate::catalogue::expand_runner;

fn read(text: &str) -> Result<Runner, String> {
    parse("x", Source { file: "x.toml", text }).map_err(|error| error.to_string())
}

#[test]
fn built_in_runners_read_back_what_they_expand_to() {
    for runner in runners(None).unwrap() {
        let text = expand_runner(&runner);
        let again = parse(&runner.name, Source { file: "expanded", text: &text }).unwrap();
        assert_eq!(again, runner, "{text}");
    }
}

#[test]
fn the_words_that_a_built_in_runner_serves_are_found_without_parsing_it() {
    for (name, text) in BUILT_IN {
        let serves = parse(name, Source { file: name, text }).unwrap().serves;
        let quoted: Vec<String> = serves.iter().map(|word| format!("\"{word}\"")).collect();
        let found: Vec<&str> =
            served_words(text).split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
        assert_eq!(found, quoted, "{name}");
    }
}

#[test]
fn commands_find_their_runner() {
    let mut all = runners(None).unwrap();
    let chosen = |all: &[Runner], word: &str, asked| {
        choose_runner(all, word.as_bytes(), asked)
            .map(|runner| runner.name.clone())
            .map_err(|error| error.to_string())
    };
    for (word, asked, name) in [
        ("go", None, "go"),
        ("/opt/go/bin/go", None, "go"),
        ("cargo", None, "rust"),
        ("make", None, "cc"),
        ("pytest", None, "python"),
        ("npm", None, "node"),
        ("mvn", None, "java"),
        ("true", None, "generic"),
        ("make", Some("go"), "go"),
        ("", None, "generic"),
    ] {
        assert_eq!(chosen(&all, word, asked).as_deref(), Ok(name), "{word}");
    }
    // The short way leads to the same one, for every word there is.
    for word in all.iter().flat_map(|runner| &runner.serves).map(String::as_str).chain(["true", ""]) {
        let short = runner_for(None, word.as_bytes(), None).unwrap();
        assert_eq!(&short, choose_runner(&all, word.as_bytes(), None).unwrap(), "{word}");
    }
    assert_eq!(runner_for(None, b"make", Some("go")).unwrap().name, "go");
    let unknown = runner_for(None, b"go", Some("gp")).unwrap_err().to_string();
    assert_eq!(unknown, chosen(&all, "go", Some("gp")).unwrap_err());
    assert!(chosen(&all, "go", Some("gp")).unwrap_err().contains("no runner is named `gp`"));
    let twin = Runner { name: "twin".to_owned(), serves: vec!["go".to_owned()], ..all[0].clone() };
    all.push(twin);
    assert_eq!(
        chosen(&all, "go", None).unwrap_err(),
        "the runners `go` (built in) and `twin` (your runners/twin.toml) both serve `go`"
    );
}

#[test]
fn the_first_word_looks_behind_shells_and_env() {
    for (argv, word) in [
        (vec!["go", "test"], "go"),
        (vec!["sh", "-c", "go build ./... && go vet ./..."], "go"),
        (vec!["bash", "-euc", "X=1 cargo test"], "cargo"),
        (vec!["sh", "-c", "\"$X\" y"], "sh"),
        (vec!["sh", "-c", ""], "sh"),
        (vec!["sh", "script"], "sh"),
        (vec!["env", "A=b", "go", "vet"], "go"),
        (vec!["env", "-i", "go"], "env"),
        (vec!["env"], "env"),
        (vec![], ""),
    ] {
        let bytes: Vec<Vec<u8>> = argv.iter().map(|word| word.as_bytes().to_vec()).collect();
        assert_eq!(String::from_utf8(first_word(&bytes)).unwrap(), word, "{argv:?}");
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (text, expected) in [
        ("format = 1\n", "x.toml:1:1: key `description`: is missing"),
        (
            "format = 1\ndescription = \"d\"\nserve = []",
            "x.toml:3:1: key `serve`: no such key; did you mean `serves`?",
        ),
        ("format = 1\ndescription = \"d\"\nserves = [\"a/b\"]", "not the bare name"),
        ("format = 1\ndescription = \"d\"\nserves = [1]", "x.toml:3:11: key `serves`: takes a list of texts"),
        ("format = 1\ndescription = \"d\"\n[toolchain]\nbin = \"bin\"", "only together with `root_holds`"),
        ("format = 1\ndescription = \"d\"\n[toolchain]\nroot_holds = [\"../x\"]", "not a plain path"),
        (
            "format = 1\ndescription = \"d\"\n[toolchain]\nshim = \"asdf\"",
            "key `toolchain.shim`: `asdf` is not known",
        ),
        ("format = 1\ndescription = \"d\"\n[env]\nPATH = \"/x\"", "set by checkrun itself"),
        ("format = 1\ndescription = \"d\"\n[env]\nX = 1", "takes a text in quotes, not the number 1"),
        ("format = 1\ndescription = \"d\"\n[[cache]]\nvariable = \"X\"", "key `cache[0].inside`: is missing"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(expected), "{text:?}: {error}");
    }
}
