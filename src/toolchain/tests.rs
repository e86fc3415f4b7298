//! Toolchains laid out in a throw-away folder, as installers lay them out, and what is made of them.
#![forbid(unsafe_code)]

use super::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

struct Reading;

impl FileDigests for Reading {
    fn digest(&mut self, path: &Path) -> io::Result<Digest> {
        fs::read(path).map(|bytes| Digest::of(&bytes))
    }
}

/// A home folder with programs in it.
struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        Self { folder: tempfile::Builder::new().prefix("host").tempdir().unwrap() }
    }

    fn at(&self, path: &str) -> PathBuf {
        fs::canonicalize(self.folder.path()).unwrap().join(path)
    }

    fn file(&self, path: &str, text: &str) -> PathBuf {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    fn go_root(&self, root: &str) {
        self.file(&format!("{root}/bin/go"), "go program");
        self.file(&format!("{root}/src/runtime/proc.go"), "package runtime");
        self.file(&format!("{root}/VERSION"), "go1.23.4\ntime 2024\n");
        self.file(&format!("{root}/pkg/tool/linux_amd64/compile"), "compiler");
    }

    fn resolve(&self, runner: &str, word: &str, path: &[&str]) -> Result<ResolvedRunner, ToolchainError> {
        self.resolve_under("hermetic", runner, word, path)
    }

    fn resolve_under(
        &self,
        policy: &str,
        runner: &str,
        word: &str,
        path: &[&str],
    ) -> Result<ResolvedRunner, ToolchainError> {
        let policy = crate::catalogue::policy(policy, None).unwrap().policy;
        let runners = crate::catalogue::runners(None).unwrap();
        let runner = crate::catalogue::choose_runner(&runners, b"", Some(runner)).unwrap();
        let path: Vec<PathBuf> =
            path.iter().map(|folder| self.at(folder)).chain(["/usr/bin".into(), "/bin".into()]).collect();
        let lookup = Lookup {
            path: Some(std::env::join_paths(path).unwrap()),
            home: Some(self.at("home")),
            tools: BTreeMap::new(),
            rust: None,
        };
        resolve(runner, (word.as_bytes(), &[]), &policy, &lookup, &mut Reading)
    }
}

fn places(resolved: &ResolvedRunner) -> Vec<(PathBuf, PathBuf)> {
    resolved.binds.iter().map(|bind| (bind.host.clone(), bind.inside.clone())).collect()
}

fn identifies(resolved: &ResolvedRunner, place: impl AsRef<Path>) -> bool {
    resolved.identity.iter().any(|(path, _)| path == place.as_ref())
}

#[test]
fn a_system_program_needs_nothing_shown() {
    let resolved = Host::new().resolve("generic", "sh", &[]).unwrap();
    assert_eq!(resolved.binds, []);
    assert_eq!(resolved.path, STANDARD_PATH.map(PathBuf::from));
    assert!(resolved.identity.is_sorted());
    assert!(resolved.identity.iter().any(|(path, _)| path.starts_with("/usr/bin")));
}

#[test]
fn a_program_that_is_not_there_is_no_error_but_counts() {
    let host = Host::new();
    let without = host.resolve("generic", "frob", &["bin"]).unwrap();
    assert!(identifies(&without, "frob"));
    host.file("bin/frob", "#!/bin/sh\n");
    assert!(!identifies(&host.resolve("generic", "frob", &["bin"]).unwrap(), "frob"));
    assert_eq!(host.resolve("generic", "./frob", &["bin"]).unwrap().binds, []);
}

#[test]
fn a_tool_of_its_own_is_shown_with_the_folder_above_bin() {
    let host = Host::new();
    host.file("tools/frob-1/bin/frob", "#!/bin/sh\n");
    host.file("tools/frob-1/lib/frob.so", "1");
    let first = host.resolve("generic", "frob", &["tools/frob-1/bin"]).unwrap();
    assert_eq!(places(&first), [(host.at("tools/frob-1"), host.at("tools/frob-1"))]);
    assert_eq!(first.path[0], host.at("tools/frob-1/bin"));
    assert!(identifies(&first, fs::canonicalize("/bin/sh").unwrap()), "{:?}", first.identity);
    // What lies beside the program is shown, so it counts.
    host.file("tools/frob-1/lib/frob.so", "22");
    assert_ne!(host.resolve("generic", "frob", &["tools/frob-1/bin"]).unwrap().identity, first.identity);
}

#[test]
fn private_folders_are_never_shown_whole() {
    let host = Host::new();
    for (program, mark, shown) in [
        ("home/bin/frob", "home/x", "home/bin"),
        ("home/frob", "home/x", "home/frob"),
        ("bin/frob", "home/x", "bin"),
        ("home/.local/bin/frob", "home/.local/share/keyrings/k", "home/.local/bin"),
        ("home/project/bin/frob", "home/project/.git/HEAD", "home/project/bin"),
        ("home/project/frob", "home/project/.git/HEAD", "home/project/frob"),
        ("home/.venv/bin/frob", "home/.venv/pyvenv.cfg", "home/.venv"),
        ("home/miniconda3/bin/frob", "home/x", "home/miniconda3"),
    ] {
        host.file(program, "#!/bin/sh\n");
        host.file(mark, "");
        let folder = Path::new(program).parent().unwrap().to_str().unwrap();
        let resolved = host.resolve("generic", "frob", &[folder]).unwrap();
        assert_eq!(places(&resolved), [(host.at(shown), host.at(shown))], "{program}");
        fs::remove_file(host.at(program)).unwrap();
    }
}

#[test]
fn links_across_folders_are_shown_and_so_are_interpreters() {
    let host = Host::new();
    host.file("store/v2/bin/python3", "\x7fELF interpreter");
    host.link("store/current", "v2");
    host.file("store/frob/bin/frob-real", &format!("#!{}\n", host.at("venv/bin/python").display()));
    host.link("venv/bin/python", host.at("store/current/bin/python3").to_str().unwrap());
    host.link("home/.local/bin/frob", "../../../store/frob/bin/frob-real");
    let resolved = host.resolve("generic", "frob", &["home/.local/bin"]).unwrap();
    let expected = [
        ("home/.local/bin", "home/.local/bin"),
        ("store/v2", "store/current"),
        ("store/frob", "store/frob"),
        ("store/v2", "store/v2"),
        ("venv", "venv"),
    ];
    assert_eq!(places(&resolved), expected.map(|(real, inside)| (host.at(real), host.at(inside))));
    for file in ["store/frob/bin/frob-real", "store/v2/bin/python3"] {
        assert!(identifies(&resolved, host.at(file)), "{file}: {:?}", resolved.identity);
    }
}

#[test]
fn go_is_shown_at_one_place_wherever_it_lies() {
    let host = Host::new();
    host.go_root("sdk/go1.23.4");
    let plain = host.resolve("go", "go", &["sdk/go1.23.4/bin"]).unwrap();
    assert_eq!(places(&plain), [(host.at("sdk/go1.23.4"), PathBuf::from("/toolchain/go"))]);
    assert_eq!(plain.path[0], Path::new("/toolchain/go/bin"));
    assert_eq!(plain.toolchain, "go1.23.4 linux/amd64");
    for file in ["bin/go", "VERSION", "pkg/tool/linux_amd64/compile"] {
        assert!(identifies(&plain, Path::new("/toolchain/go").join(file)), "{file}");
    }
    // By a link, by a full path, for another command: the same toolchain.
    host.link("home/bin/go", "../../sdk/go1.23.4/bin/go");
    assert_eq!(host.resolve("go", "go", &["home/bin"]).unwrap(), plain);
    let full = host.at("sdk/go1.23.4/bin/go");
    assert_eq!(host.resolve("go", full.to_str().unwrap(), &[]).unwrap().toolchain, plain.toolchain);
    assert_eq!(places(&host.resolve("go", "sh", &["home/bin"]).unwrap()), places(&plain));
    let unmoved = host.resolve_under("landlock", "go", "go", &["home/bin"]).unwrap();
    assert_eq!(places(&unmoved), [(host.at("sdk/go1.23.4"), host.at("sdk/go1.23.4"))]);
    assert_eq!(unmoved.path[0], host.at("sdk/go1.23.4/bin"));
    host.file("sdk/go1.23.4/pkg/tool/linux_amd64/compile", "other compiler");
    assert_ne!(host.resolve("go", "go", &["home/bin"]).unwrap().identity, plain.identity);
}

#[test]
fn go_behind_a_python_entry_point_is_the_package() {
    let host = Host::new();
    host.go_root("venv/lib/python3.11/site-packages/go");
    host.file("venv/src/runtime/decoy", "");
    let script = format!("#!{}/venv/bin/python\nimport sys\nfrom go import main\n", host.at("").display());
    fs::remove_dir_all(host.at("venv/src")).unwrap();
    host.file("venv/bin/go", &script);
    let resolved = host.resolve("go", "go", &["venv/bin"]).unwrap();
    assert_eq!(
        places(&resolved),
        [(host.at("venv/lib/python3.11/site-packages/go"), PathBuf::from("/toolchain/go"))]
    );
    assert_eq!(resolved.toolchain, "go1.23.4 linux/amd64");
}

#[test]
fn rustups_shims_lead_to_the_default_toolchain() {
    let host = Host::new();
    host.file("home/.cargo/bin/rustup", "shim");
    host.link("home/.cargo/bin/cargo", "rustup");
    host.file("home/.cargo/credentials.toml", "secret");
    host.file("home/.cargo/registry/index/x", "");
    let error = host.resolve("rust", "cargo", &["home/.cargo/bin"]).unwrap_err();
    assert!(error.to_string().contains("settings.toml cannot be read") && error.hint().is_some(), "{error}");
    host.file("home/.rustup/settings.toml", "default_toolchain = \"stable-x\"\n");
    let error = host.resolve("rust", "cargo", &["home/.cargo/bin"]).unwrap_err();
    assert!(error.to_string().contains("stable-x is not installed"), "{error}");
    let root = "home/.rustup/toolchains/stable-x";
    for file in ["bin/cargo", "bin/rustc", "lib/rustlib/components"] {
        host.file(&format!("{root}/{file}"), file);
    }
    host.file(
        &format!("{root}/lib/rustlib/multirust-channel-manifest.toml"),
        "manifest-version = \"2\"\ndate = \"2026-01-02\"\n",
    );
    let resolved = host.resolve("rust", "cargo", &["home/.cargo/bin"]).unwrap();
    assert_eq!(
        places(&resolved),
        [
            (host.at("home/.cargo/registry"), PathBuf::from("/home/check/.cargo/registry")),
            (host.at(root), PathBuf::from("/toolchain/rust")),
        ]
    );
    assert_eq!(resolved.toolchain, "stable-x of 2026-01-02");
    assert!(identifies(&resolved, "/toolchain/rust/bin/rustc"));
    assert!(
        resolved.identity.iter().all(|(path, _)| !path.starts_with(host.at(""))),
        "{:?}",
        resolved.identity
    );
}

#[test]
fn pyenvs_shims_lead_to_the_chosen_version() {
    let host = Host::new();
    let root = "home/.pyenv";
    host.file(&format!("{root}/shims/python3"), "#!/usr/bin/env bash\n");
    host.file(&format!("{root}/libexec/pyenv"), "");
    host.file(&format!("{root}/versions/3.11.7/bin/python3"), "python");
    host.file(&format!("{root}/version"), "3.11\n");
    let resolved = host.resolve("generic", "python3", &["home/.pyenv/shims"]).unwrap();
    let version = host.at("home/.pyenv/versions/3.11.7");
    assert_eq!(places(&resolved), [(version.clone(), version.clone())]);
    assert_eq!(resolved.path[0], version.join("bin"));
    host.file(&format!("{root}/version"), "system\n");
    assert_eq!(host.resolve("generic", "python3", &["home/.pyenv/shims"]).unwrap().binds, []);
}

#[test]
fn behind_voltas_shims_the_default_node_is_found() {
    let host = Host::new();
    host.file("home/.volta/bin/volta-shim", "shim");
    for name in ["node", "npm"] {
        host.link(&format!("home/.volta/bin/{name}"), "volta-shim");
        host.file(&format!("home/.volta/tools/image/node/20.1.0/bin/{name}"), name);
    }
    let error = host.resolve("node", "npm", &["home/.volta/bin"]).unwrap_err();
    assert!(error.to_string().contains("a shim of volta"), "{error}");
    host.file("home/.volta/tools/user/platform.json", "{\"node\":{\"runtime\":\"20.1.0\",\"npm\":null}}");
    host.file("home/.volta/tools/image/node/20.1.0/lib/node_modules/npm/package.json", "{}");
    let resolved = host.resolve("node", "npm", &["home/.volta/bin"]).unwrap();
    assert_eq!(resolved.path[0], Path::new("/toolchain/node/bin"));
    assert!(resolved.binds[0].host.ends_with(".volta/tools/image/node/20.1.0"), "{:?}", resolved.binds);
}
