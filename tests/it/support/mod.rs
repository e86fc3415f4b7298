//! What every test stands on: a throw-away place with a real git repository, the built program, and who runs it.

pub mod corpus;
pub mod moments;
pub mod probe;
pub mod probes;
pub mod store;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// An ordinary user that no machine has.
pub const USER: u32 = 1547;

/// Who runs checkrun in a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// The machine's root.
    Root,
    /// An ordinary user.
    User,
}

/// Both, for tests that must hold for either.
pub const EVERYBODY: [Who; 2] = [Who::User, Who::Root];

/// A place of its own for one test: home, cache and a repository, gone when dropped.
pub struct Env {
    root: tempfile::TempDir,
    who: Who,
    vars: BTreeMap<OsString, OsString>,
}

/// What one call of checkrun gave.
#[derive(Debug)]
pub struct Output {
    /// Exit status, or 128 and the signal.
    pub status: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Wall time.
    pub took: Duration,
}

impl Output {
    /// Standard output as text.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// The result object, of a call with `--format json`.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Insists on a status.
    #[track_caller]
    pub fn expect(self, status: i32) -> Self {
        assert_eq!(self.status, status, "stdout:\n{}\nstderr:\n{}", self.out(), self.err());
        self
    }

    /// Insists on a refusal whose text holds all of `parts`, with nothing on stdout.
    #[track_caller]
    pub fn refused(self, parts: &[&str]) -> Self {
        let this = self.expect(125);
        for part in parts {
            assert!(this.err().contains(part), "`{part}` is not in:\n{}", this.err());
        }
        assert!(this.stdout.is_empty(), "{}", this.out());
        this
    }
}

impl Env {
    /// A place for an ordinary user, with an empty repository.
    pub fn new() -> Self {
        Self::of(Who::User)
    }

    /// A place for either.
    pub fn of(who: Who) -> Self {
        let root = tempfile::Builder::new().prefix("checkrun-it-").tempdir().expect("a temporary folder");
        std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755)).expect("chmod");
        let env = Self { root, who, vars: BTreeMap::new() };
        for folder in ["home", "cache", "repo"] {
            std::fs::create_dir(env.path(folder)).expect("mkdir");
            env.own(&env.path(folder));
        }
        env.git(&["init", "-q", "-b", "main"]);
        env
    }

    /// Sets a variable of checkrun's own environment.
    pub fn var(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.vars.insert(name.into(), value.as_ref().to_owned());
        self
    }

    /// A path in the test's place.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// A path in the repository.
    pub fn repo(&self, name: &str) -> PathBuf {
        self.path("repo").join(name)
    }

    /// Who runs checkrun here.
    pub fn who(&self) -> Who {
        self.who
    }

    fn own(&self, path: &Path) {
        if self.who == Who::User && is_root() {
            std::os::unix::fs::lchown(path, Some(USER), Some(USER)).expect("chown");
        }
    }

    /// Writes a file of the repository, and the folders above it.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.repo(name);
        let mut above = self.path("repo");
        for part in Path::new(name).parent().into_iter().flat_map(Path::components) {
            above.push(part);
            if !above.is_dir() {
                std::fs::create_dir(&above).expect("mkdir");
                self.own(&above);
            }
        }
        std::fs::write(&path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self.own(&path);
        self
    }

    /// Makes a file of the repository executable.
    pub fn executable(&self, name: &str) -> &Self {
        std::fs::set_permissions(self.repo(name), std::fs::Permissions::from_mode(0o755)).expect("chmod");
        self
    }

    /// Commits all that there is; the new commit's id.
    pub fn commit(&self) -> String {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", "a commit"]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// Runs git in the repository with nobody's configuration; its output, trimmed.
    #[track_caller]
    pub fn git(&self, args: &[&str]) -> String {
        let mut git = self.as_who("git");
        git.args(args).current_dir(self.path("repo"));
        let output = git.stdin(Stdio::null()).output().expect("git");
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// A command that runs as whoever runs checkrun here, with a clean environment.
    pub fn as_who(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", self.path("home"))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env("GIT_AUTHOR_NAME", "A")
            .env("GIT_AUTHOR_EMAIL", "a@example.org")
            .env("GIT_AUTHOR_DATE", "2020-01-01T00:00:00Z")
            .env("GIT_COMMITTER_NAME", "C")
            .env("GIT_COMMITTER_EMAIL", "c@example.org")
            .env("GIT_COMMITTER_DATE", "2020-01-01T00:00:00Z");
        if self.who == Who::User && is_root() {
            command.uid(USER).gid(USER);
        }
        command
    }

    /// checkrun, about to be started in the repository.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.as_who(program());
        command.env("CHECKRUN_CACHE_DIR", self.path("cache")).args(args).current_dir(self.path("repo"));
        command.stdin(Stdio::null());
        for (name, value) in &self.vars {
            command.env(name, value);
        }
        command
    }

    /// Runs checkrun in the repository.
    #[must_use]
    pub fn checkrun(&self, args: &[&str]) -> Output {
        run(&mut self.command(args))
    }

    /// Runs a shell script as a check; json result.
    #[must_use]
    pub fn sh(&self, script: &str) -> Output {
        self.checkrun(&["--format", "json", "--", "sh", "-c", script])
    }

    /// Runs a Python program as a check with the output shown as it comes; Debian's own Python.
    #[must_use]
    pub fn python(&self, options: &[&str], program: &str) -> Output {
        let mut args = options.to_vec();
        args.extend(["--", "/usr/bin/python3", "-c", program]);
        self.checkrun(&args)
    }
}

/// Runs a command to its end.
#[must_use]
pub fn run(command: &mut Command) -> Output {
    let began = Instant::now();
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let status = output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0));
    Output { status, stdout: output.stdout, stderr: output.stderr, took: began.elapsed() }
}

/// Says a number that a suite is asked for: how many attempts, kills or inputs it made.
#[expect(clippy::print_stdout, reason = "the test runner shows it to whoever asks for the output of a test")]
pub fn say(text: &str) {
    println!("{text}");
}

/// Whether the tests run as root, as they must where both kinds of caller are tried.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// The built program, at a place that every user can reach.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let built = PathBuf::from(env!("CARGO_BIN_EXE_checkrun"));
        let open = |path: &Path| std::fs::metadata(path).is_ok_and(|meta| meta.mode() & 0o005 == 0o005);
        if built.ancestors().all(open) {
            return built;
        }
        let stamp = std::fs::metadata(&built).expect("the built program").mtime_nsec();
        let folder = std::env::temp_dir().join(format!("checkrun-it-program-{stamp}"));
        let copy = folder.join("checkrun");
        if !copy.exists() {
            std::fs::create_dir_all(&folder).expect("mkdir");
            let own = folder.join(format!("new-{}", std::process::id()));
            std::fs::copy(&built, &own).expect("copy");
            std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o755)).expect("chmod");
            std::fs::rename(&own, &copy).expect("rename");
        }
        copy
    })
}
