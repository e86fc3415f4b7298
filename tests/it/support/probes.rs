//! Probe programs: small sources beside this folder, compiled by the test and put into its repository.

use super::{Env, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A probe's source.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/probes").join(name)
}

/// Compiles a C probe with a compiler and its options into the repository, as `name`.
#[track_caller]
pub fn compile(env: &Env, name: &str, probe: &str, compiler: &[&str]) {
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).arg("-o").arg(env.repo(name)).arg(source(probe)).arg("-lpthread");
    must(&mut command);
}

/// The Go toolchain that the set-up provides.
pub fn go() -> PathBuf {
    let go = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/go/bin/go");
    assert!(go.is_file(), "{} is not there; `bash .ci/tools` provides it", go.display());
    go
}

/// Builds a Go probe into the repository, as `name`; with or without cgo.
#[track_caller]
pub fn go_build(env: &Env, name: &str, probe: &str, cgo: bool) {
    let (to, from) = (env.repo(name), source(probe));
    go_run(&["build", "-o", to.to_str().expect("UTF-8"), from.to_str().expect("UTF-8")], cgo);
}

/// Runs the Go toolchain, which has to succeed; what it builds on the way is kept for other tests.
#[track_caller]
pub fn go_run(args: &[&str], cgo: bool) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new(go());
    command
        .args(args)
        .current_dir(folder.path())
        .env("HOME", folder.path())
        .env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache"))
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "-buildvcs=false")
        .env("CGO_ENABLED", if cgo { "1" } else { "0" })
        .env_remove("GOROOT");
    must(&mut command);
}

/// Runs a command that has to succeed.
#[track_caller]
pub fn must(command: &mut Command) {
    let output = run(command);
    assert_eq!(output.status, 0, "{command:?}: {}{}", output.out(), output.err());
}
