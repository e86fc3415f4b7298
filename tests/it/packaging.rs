//! The Debian package, made of the program under test: what is in it, that it is the same each time, and that what it
//! installs works.

use crate::support::{Env, Who, program, run};
use std::path::{Path, PathBuf};
use std::process::Command;

fn build(out: &Path) -> PathBuf {
    let mut script = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/deb"));
    script.args(["--fast", "--program"]).arg(program()).arg("--out").arg(out);
    // Of a repository whose commit has a date; an archive of the sources has none, and takes that of a file.
    let output = run(script.env("SOURCE_DATE_EPOCH", "1700000000")).expect(0);
    assert_eq!(output.err(), "");
    PathBuf::from(output.out().trim_end())
}

fn dpkg(args: &[&str], package: &Path) -> String {
    let mut command = Command::new("dpkg-deb");
    command.arg(args[0]).arg(package).args(&args[1..]);
    run(&mut command).expect(0).out()
}

#[test]
fn the_debian_package_has_everything_and_what_it_installs_works() {
    let env = Env::of(Who::User);
    env.write("f", "x\n").commit();
    let package = build(&env.path("one"));
    let version = env!("CARGO_PKG_VERSION");
    assert!(package.file_name().unwrap().to_str().unwrap().starts_with(&format!("checkrun_{version}_")));
    let control = dpkg(&["-I"], &package);
    for part in
        ["Package: checkrun", &format!("Version: {version}"), "Recommends: git", "Depends: libc6 (>= 2."]
    {
        assert!(control.contains(part), "`{part}` is not in\n{control}");
    }
    let listing = dpkg(&["-c"], &package);
    for path in [
        "./usr/bin/checkrun",
        "./usr/share/man/man1/checkrun.1.gz",
        "./usr/share/bash-completion/completions/checkrun",
        "./usr/share/zsh/vendor-completions/_checkrun",
        "./usr/share/fish/vendor_completions.d/checkrun.fish",
        "./usr/share/doc/checkrun/copyright",
        "./usr/share/doc/checkrun/changelog.gz",
        "./usr/share/doc/checkrun/README.md",
        "./usr/share/doc/checkrun/docs/guides.md",
        "./usr/share/doc/checkrun/docs/schemas/result.json",
        "./usr/share/doc/checkrun/examples/delegate.conf",
        "./usr/share/doc/checkrun/examples/checkrun-harness.service",
    ] {
        let line = listing.lines().find(|line| line.ends_with(&format!(" {path}")));
        let line = line.unwrap_or_else(|| panic!("{path} is not in\n{listing}"));
        let mode = if path.ends_with("bin/checkrun") { "-rwxr-xr-x" } else { "-rw-r--r--" };
        assert!(line.starts_with(mode) && line.contains(" root/root "), "{line}");
    }
    // Nothing else gets to be owned by whoever built it, nor is anything outside of /usr.
    assert!(listing.lines().all(|line| line.contains(" root/root ")), "{listing}");
    let place = |line: &str| line.rsplit(' ').next().unwrap().to_owned();
    let outside: Vec<String> =
        listing.lines().map(place).filter(|path| path != "./" && !path.starts_with("./usr/")).collect();
    assert!(outside.is_empty(), "{outside:?}");

    let root = env.path("root");
    drop(dpkg(&["-x", root.to_str().unwrap()], &package));
    let installed = root.join("usr/bin/checkrun");
    let as_user = |args: &[&str]| {
        let mut command = env.as_who(&installed);
        run(command.args(args).env("CHECKRUN_CACHE_DIR", env.path("cache")).current_dir(env.path("repo")))
    };
    assert_eq!(as_user(&["-V"]).expect(0).out(), format!("checkrun {version}\n"));
    assert!(as_user(&["--", "cat", "f"]).expect(0).err().contains("passed (ran)"));
    assert!(as_user(&["--", "cat", "f"]).expect(0).err().contains("passed (cached, exact)"));
    let page = root.join("usr/share/man/man1/checkrun.1.gz");
    let mut man = Command::new("man");
    let text = run(man.env("LC_ALL", "C.UTF-8").arg("-l").arg(&page)).expect(0).out();
    assert!(text.contains("checkrun explain"), "{text}");
    let bash = root.join("usr/share/bash-completion/completions/checkrun");
    drop(run(Command::new("bash").arg("-n").arg(bash)).expect(0));
}

// reproducible-builds.org: the same sources, the same package.
#[test]
fn the_same_sources_make_the_same_package() {
    let env = Env::of(Who::User);
    let [one, two] = ["one", "two"].map(|name| std::fs::read(build(&env.path(name))).unwrap());
    assert!(one == two, "{} and {} bytes", one.len(), two.len());
}

#[test]
fn an_argument_that_the_script_does_not_know_is_refused() {
    let mut script = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/deb"));
    let output = run(script.arg("--progam"));
    assert_eq!(output.status, 2);
    assert!(
        output.err().contains("`--progam`") && output.err().contains("--program FILE"),
        "{}",
        output.err()
    );
}

/// Read by systemd itself, which tells of each key and value that it does not know and ignores it.
#[test]
fn the_examples_for_systemd_are_what_systemd_takes() {
    let env = Env::new();
    let example = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd").join(name);
        std::fs::read_to_string(path).unwrap().replace("%h/bin/harness", "/bin/true")
    };
    let harness = example("checkrun-harness.service");
    let delegate = example("delegate.conf");
    // The unit of the user's manager that the drop-in is for, as systemd brings it.
    let manager =
        std::fs::read_to_string("/usr/lib/systemd/system/user@.service").expect("systemd is installed");
    let told = |harness: &str, delegate: &str| {
        env.write("user/h.service", harness)
            .write("system/user@1000.service", &manager)
            .write("system/user@1000.service.d/delegate.conf", delegate);
        let verify = |args: &[&str], unit: &str| {
            let mut command = Command::new("systemd-analyze");
            command.arg("verify").args(args).arg(env.repo(unit)).env("XDG_RUNTIME_DIR", env.path("home"));
            run(&mut command).err()
        };
        (verify(&["--user"], "user/h.service"), verify(&[], "system/user@1000.service"))
    };
    assert_eq!(told(&harness, &delegate), (String::new(), String::new()));
    let (first, second) =
        told(&harness.replace("KillMode=", "KilMode="), &delegate.replace("=cpu memory", "=cpus memory"));
    assert!(first.contains("Unknown key 'KilMode'"), "{first}");
    assert!(second.contains("Invalid controller name 'cpus'"), "{second}");
}
