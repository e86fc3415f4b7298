//! The program: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    checkrun::commands::main(std::env::args_os())
}
