//! Whether a command passes on an exact git tree.
//!
//! This page is the map. It says what the parts are, who may know whom, and what the words mean; each part's own page
//! says how it works. `tests/it/layering.rs` holds the source to it.
//!
//! # The flow
//!
//! ```text
//! words ─▶ request ─▶ tree ─▶ key ─▶ cache ──── a record answers ───────────────┐
//!                                      │                                         ├─▶ report
//!                                      └─ flight ─▶ stage ─▶ sandbox ─▶ store ───┘
//!                                      (once)       (files)  (the run)  (and logs)
//! ```
//!
//! [`pipeline::check`] is this picture as code, on one screen, and there is no other way to run a check; [`pipeline::repeat`] is the
//! right half of it, over and over, in forked workers. [`cli`] turns
//! words into a request; [`commands`] are the front doors and the only code that reads the environment. The flow is
//! synchronous: a hit starts no runtime, and there is one thread when the sandbox is forked, since a child of a process
//! with several may do next to nothing before it executes.
//!
//! # The rooms, in the order of the flow
//!
//! | room | takes | gives |
//! |---|---|---|
//! | [`catalogue`] | names and TOML | policies and runners that make sense |
//! | [`toolchain`] | a runner and a command's first word | what of the host is shown, and what identifies it |
//! | [`ledger`], [`trailers`] | a ledger's text, a commit's message | the steps that they claim, for `reconcile` |
//! | [`tree`] | a revision, a working tree, an index, a folder | a tree id and its entries, readable |
//! | [`key`] | an action | its key, and the listing that was hashed |
//! | [`cache`] | what is on record under a key | a hit, or why not; it reads nothing itself |
//! | [`flight`] | a key | the lead, or a wait for whoever has it |
//! | [`stage`] | a tree | a folder with exactly its files, kept for the next time |
//! | [`sandbox`] | a plan | what was observed: exit, output, usage, what was enforced |
//! | [`summary`] | a runner's output as it comes | counts of tests and one line |
//! | [`results`] | output of any known runner as it comes | each test by name, for `flake` |
//! | [`stats`] | how many runs and failures | bounds on the rate, and what may be claimed |
//! | [`store`] | evidence | a row in SQLite, sealed; and back |
//! | [`logs`] | whole outputs | compressed files by digest; and back |
//! | [`report`] | events and the answer | text or JSON, on the streams that it owns |
//!
//! # Layers
//!
//! | layer | modules | may import |
//! |---|---|---|
//! | front | [`commands`] | all |
//! | flow | [`pipeline`] | the rooms, save `report`, to which it speaks by [`model::event::Sink`] |
//! | words | [`cli`] | `model` |
//! | rooms | the table above | `model`; besides, `stage` → `tree` and `store` → `logs` |
//! | nouns | [`model`] | nothing of ours |
//!
//! One place for each heavy dependency: `gix` in `tree`, `rusqlite` in `store`, `toml` in `catalogue`, `clap` in `cli`,
//! `landlock` in `sandbox::landlock_rules`, and all `unsafe` code in `sandbox::sys`.
//!
//! # As a library
//!
//! `examples/certify.rs` makes a [`pipeline::Wish`], hands it to [`pipeline::check`], hears of events and reads the
//! evidence; the program does no more. All that is public is listed in `docs/interface.txt`, to which a test holds the source:
//! what goes or changes there comes with the next minor version before 1.0 and the next major one after it (semver).
//!
//! Objects that other programs read are described in `docs/schemas`; a field may be added to them, none goes.
//!
//! # Sizes
//!
//! Files have at most 400 lines and functions 80, which tests and lints hold to. The one exception is `sandbox::sys`: all
//! `unsafe` code is in it on purpose, as small uniform functions. The longest function, `commands::rollback::rollback`, is a
//! sequence of steps of which each may only be taken after the last. `Cargo.toml` has the reason for each dependency.
//!
//! # Words
//!
//! - *check*: a command on a tree, under a policy. *Action*: a check with everything it depends on looked up.
//! - *tree*: a git tree object's id, also for a working tree that was never committed.
//! - *policy*: what the sandbox lets in, and how much it insists on each *layer* (a namespace, Landlock, a limit):
//!   required, preferred, off. *Level*: `full`, or `landlock` where there are no namespaces.
//! - *runner*: what a toolchain is and how it is found. *Guard*: what must be unchanged for an old result to answer.
//! - *key*: the BLAKE3 digest of an action's canonical encoding, its *pre-image*, which is kept and compared on a hit.
//! - *evidence*: what a run showed. *Record*: evidence in the store. *Answer*: evidence, and how it came about.
//! - *outcome*: `passed` and `failed` answer later questions; all others are history. A failing check is an outcome and
//!   no error; an error means that checkrun *could not decide*.
//!
//! # Limitations
//!
//! - Linux, and the fixed clock on x86-64 only. The kernel is shared with the host.
//! - Under the guard `inputs` a run is observed; where the observation is not complete, the whole tree is the input.
//! - The toolchain and the system are identified by their own records and a few digests, not by all of their files.
//! - A store belongs to one user of one machine; nothing is shared or fetched.
//! - `docs/known-gaps.md` has the rest.

pub mod cache;
pub mod catalogue;
pub mod cli;
pub mod commands;
pub mod flight;
pub mod key;
pub mod ledger;
pub mod logs;
pub mod model;
pub mod pipeline;
pub mod report;
pub mod results;
pub mod sandbox;
pub mod stage;
pub mod stats;
pub mod store;
pub mod summary;
pub mod toolchain;
pub mod trailers;
pub mod tree;
