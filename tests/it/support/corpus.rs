//! Seeds of foreign bytes from `tests/corpus`, and what becomes of them: bits flipped, pieces cut, doubled, moved and
//! joined, and bytes that no seed has.

use proptest::prelude::{Just, Strategy, any, prop, prop_oneof};
use std::path::Path;

/// How many inputs a parser is given.
pub fn inputs() -> u32 {
    std::env::var("CHECKRUN_FUZZ").map_or(1000, |count| count.parse().expect("a number"))
}

/// The files of a folder.
pub struct Seeds(Vec<Vec<u8>>);

impl Seeds {
    /// Those of one kind.
    pub fn of(kind: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(kind);
        Self(Vec::new()).and(&folder)
    }

    /// With all files of a folder besides.
    pub fn and(mut self, folder: &Path) -> Self {
        let entries =
            std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        self.0.extend(paths.iter().map(|path| std::fs::read(path).expect("a seed")));
        self
    }

    /// What they hold.
    pub fn bytes(&self) -> Vec<Vec<u8>> {
        assert!(!self.0.is_empty(), "a corpus without a seed");
        self.0.clone()
    }
}

/// What grammars are made of.
const TOKENS: [&str; 40] = [
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "\"",
    "'",
    "\\",
    "/",
    ":",
    ",",
    "=",
    "*",
    "**/",
    "?",
    "^",
    "~",
    "@{",
    "..",
    "!",
    "#",
    "\n",
    "\r\n",
    "\0",
    "\u{1b}[2J",
    "\u{feff}",
    "\u{202e}",
    "\\ud800",
    "&#0;",
    "<![CDATA[",
    "]]>",
    "<a",
    "-1",
    "0",
    "99999999999999999999",
    "1e999",
    "null",
    "../",
    "\u{e9}",
];

/// One change of some bytes.
#[derive(Clone, Debug)]
enum Change {
    Flip(usize, u8),
    Cut(usize, usize),
    End(usize),
    Put(usize, Vec<u8>),
    Repeat(usize, usize, usize),
    Move(usize, usize, usize),
    Join(Vec<u8>, usize),
}

impl Change {
    fn apply(self, bytes: &mut Vec<u8>) {
        let length = bytes.len();
        let span = |from: usize, size: usize| {
            let from = from % (length + 1);
            from..from + (size % 200).min(length - from)
        };
        match self {
            Self::Flip(..) if bytes.is_empty() => {}
            Self::Flip(at, bit) => bytes[at % length] ^= 1 << (bit % 8),
            Self::Cut(at, size) => drop(bytes.drain(span(at, size))),
            Self::End(at) => bytes.truncate(at % (length + 1)),
            Self::Put(at, piece) => drop(bytes.splice(span(at, 0), piece)),
            Self::Repeat(at, size, times) => {
                let piece = bytes[span(at, size)].repeat(times);
                drop(bytes.splice(span(at, 0), piece));
            }
            Self::Move(from, size, to) => {
                let piece: Vec<u8> = bytes.drain(span(from, size)).collect();
                let to = to % (bytes.len() + 1);
                drop(bytes.splice(to..to, piece));
            }
            Self::Join(other, at) => {
                bytes.truncate(at % (length + 1));
                bytes.extend(&other[(at / 3) % (other.len() + 1)..]);
            }
        }
        bytes.truncate(64 << 10);
    }
}

/// Altered seeds, and now and then something that has nothing to do with them.
pub fn altered(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let seed = prop::sample::select(seeds);
    let token = prop::sample::select(&TOKENS[..]).prop_map(|token| token.as_bytes().to_vec());
    let piece = prop_oneof![4 => token, 1 => prop::collection::vec(any::<u8>(), 0..12)];
    let number = any::<usize>;
    let change = prop_oneof![
        4 => (number(), any::<u8>()).prop_map(|(at, bit)| Change::Flip(at, bit)),
        2 => (number(), number()).prop_map(|(at, size)| Change::Cut(at, size)),
        1 => number().prop_map(Change::End),
        5 => (number(), piece).prop_map(|(at, piece)| Change::Put(at, piece)),
        1 => (number(), number(), 0..300_usize).prop_map(|(at, size, times)| Change::Repeat(at, size, times)),
        1 => (number(), number(), number()).prop_map(|(from, size, to)| Change::Move(from, size, to)),
        2 => (seed.clone(), number()).prop_map(|(other, at)| Change::Join(other, at)),
    ];
    let changed = (seed, prop::collection::vec(change, 1..8)).prop_map(|(mut bytes, changes)| {
        changes.into_iter().for_each(|change| change.apply(&mut bytes));
        bytes
    });
    prop_oneof![15 => changed, 1 => prop::collection::vec(any::<u8>(), 0..300), 1 => Just(Vec::new())]
}
