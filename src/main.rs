//! The program: everything is in the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// In the place of musl's own, with which a start takes twice as long.
#[cfg(target_env = "musl")]
#[global_allocator]
static HEAP: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    checkrun::commands::main(std::env::args_os())
}
