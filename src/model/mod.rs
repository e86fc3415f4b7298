//! The nouns of checkrun, shared by every room: what is asked (`check`, `policy`, `runner`), the surroundings that a check
//! takes for real (`guise`), hosts that it may reach (`hosts`), what it is known by (`digest`), what came of it (`outcome`,
//! `evidence`, `case`), its output cut up (`lines`), words meant (`nearest`) and quoted (`shell`), paths meant (`pattern`) and what is told on the
//! way (`event`).
//!
//! Nothing here opens a file, reads a clock or calls the kernel.
#![forbid(unsafe_code)]

pub mod case;
pub mod check;
pub mod digest;
pub mod event;
pub mod evidence;
pub mod guise;
pub mod hosts;
pub mod layer;
pub mod lines;
pub mod nearest;
pub mod outcome;
pub(crate) mod path;
pub mod pattern;
pub mod policy;
pub mod runner;
pub mod shell;
pub mod units;
