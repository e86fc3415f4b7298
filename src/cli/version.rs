//! What `--version` says of this build: what it was made from and for, and what of a kernel it can use. What the machine at
//! hand has is for `doctor` to find out.
#![forbid(unsafe_code)]

use crate::model::layer::{LANDLOCK_ABI, Layer};
use std::sync::LazyLock;

/// The commit that the program was built from. Set by who builds it (`packaging/deb` does); there is no build script
/// that would look for a repository, since a source archive has none.
const COMMIT: Option<&str> = option_env!("CHECKRUN_COMMIT");

/// The text behind the program's name, a fact a line.
pub(super) fn long() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(text);
    &TEXT
}

fn text() -> String {
    let names: Vec<&str> = Layer::ALL.iter().map(|layer| layer.name()).collect();
    let layers: Vec<String> = names.chunks(10).map(|some| some.join(" ")).collect();
    format!(
        "{}\ncommit    {}\nbuild     {}\nfeatures  clock fixed, inputs observed, SQLite inside, network for prepare\n\
         layers    {}\nkernel    Landlock ABI 1 to {LANDLOCK_ABI} (later ones as {LANDLOCK_ABI}), cgroup v1 and v2,\n          \
         namespaces, overlayfs, seccomp with answers from outside;\n          `checkrun doctor` tries this one",
        env!("CARGO_PKG_VERSION"),
        COMMIT.unwrap_or("not told"),
        build(),
        layers.join("\n          "),
    )
}

/// Architecture, C library, how it is linked and how it was optimised.
fn build() -> String {
    let libc = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
    let linked = if cfg!(target_feature = "crt-static") { "static" } else { "dynamic" };
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    format!("{}-{}-{libc}, {linked}, {profile}", std::env::consts::ARCH, std::env::consts::OS)
}
