//! Checks a command on a commit by way of the library, as the program does, and prints what came of it:
//!
//! ```sh
//! cargo run --example certify -- HEAD python3 -m unittest
//! ```
//!
//! The process that starts a check must have one thread, since the sandbox is forked from it.
#![expect(clippy::print_stdout, reason = "a program that prints is what this shows")]

use checkrun::model::event::{Event, Sink};
use checkrun::model::evidence::CacheUse;
use checkrun::pipeline::{Caching, Surroundings, Wish, check};
use checkrun::store::StorePaths;
use checkrun::toolchain::Lookup;
use checkrun::tree::Source;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Hears of everything that happens, and keeps how much the check printed.
#[derive(Default)]
struct Listener {
    bytes: usize,
}

impl Sink for Listener {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Output(_, bytes) => self.bytes += bytes.len(),
            Event::Warning(text) => println!("warning: {text}"),
            _ => {}
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args_os().skip(1);
    let revision = words.next().and_then(|word| word.into_string().ok()).ok_or("which revision?")?;
    let argv = words.map(OsStringExt::into_vec).collect();
    let home = std::env::var_os("HOME").map(PathBuf::from).ok_or("HOME is not set")?;
    let around = Surroundings {
        store: StorePaths {
            cache: home.join(".cache/checkrun"),
            secret: home.join(".local/state/checkrun/secret"),
        },
        config: None,
        lookup: Lookup { path: std::env::var_os("PATH"), home: Some(home), ..Lookup::default() },
        temporary: std::env::temp_dir(),
    };
    let wish = Wish::new(std::env::current_dir()?, Source::Revision(revision), argv);
    let mut listener = Listener::default();
    let (prepared, answered) = check(&wish, Caching::Use, &around, None, &mut listener)?;
    println!("tree {}", prepared.action.tree.tree.hex());
    println!("{} in {:.2} s", answered.evidence.outcome.name(), answered.evidence.secs);
    println!("answered from the record: {}", answered.cache == CacheUse::Hit);
    println!("{} bytes of output, of which the end is:\n{}", listener.bytes, answered.evidence.tail);
    Ok(())
}
