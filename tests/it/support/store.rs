//! Looking at what is on record, from outside: by checkrun's own commands, and by SQLite in a Python of its own.

use super::Env;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

impl Env {
    /// All that `checkrun log` lists, newest first.
    pub fn logged(&self) -> Vec<Value> {
        let listing = self.checkrun(&["log", "--format", "json"]).expect(0);
        listing.out().lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// Runs one statement on the database of records; its rows as JSON, bytes as hex digits.
    #[track_caller]
    pub fn sql(&self, statement: &str) -> Value {
        let program = "import json, sqlite3, sys\n\
             c = sqlite3.connect(sys.argv[1])\n\
             rows = c.execute(sys.argv[2]).fetchall()\n\
             c.commit()\n\
             print(json.dumps(rows, default=lambda b: b.hex()))";
        let mut python = self.as_who("/usr/bin/python3");
        python.args(["-c", program]).arg(self.database()).arg(statement);
        let output = python.output().expect("python3");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// checkrun in the repository, started by another program: `wrapper` is followed by its path and its arguments.
    pub fn wrapped(&self, wrapper: &[&str], args: &[&str]) -> Command {
        let plain = self.command(args);
        let mut command = self.as_who(wrapper[0]);
        command.args(&wrapper[1..]).arg(plain.get_program()).args(plain.get_args());
        command.current_dir(self.path("repo")).stdin(Stdio::null());
        for (name, value) in plain.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command
    }

    /// checkrun in the repository, started by a shell that first does what `first` says.
    pub fn after(&self, first: &str, args: &[&str]) -> Command {
        self.wrapped(&["sh", "-c", &format!("{first}; exec \"$0\" \"$@\"")], args)
    }

    /// The file that records are in.
    pub fn database(&self) -> PathBuf {
        self.path("cache/records/v1/checkrun.db")
    }

    /// Every file below a folder, with what would tell of a change: size and times.
    pub fn listing(&self, folder: &Path) -> Vec<(PathBuf, u64, i64, i64)> {
        use std::os::unix::fs::MetadataExt;
        let mut found = Vec::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
                let meta = std::fs::symlink_metadata(entry.path()).expect("an entry");
                if meta.is_dir() {
                    folders.push(entry.path());
                }
                found.push((entry.path(), meta.len(), meta.mtime(), meta.mtime_nsec()));
            }
        }
        found.sort();
        found
    }
}

/// Waits for something to hold; panics after a time that no sound machine needs.
#[track_caller]
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A number of seconds to sleep that no other process of the machine has on its command line.
pub fn marker() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("3{:07}.{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Host process ids of all whose command line has that word.
pub fn processes_with(word: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if line.split(|byte| *byte == 0).any(|part| part == word.as_bytes()) {
            found.push(pid);
        }
    }
    found
}

/// Host process id of a process's parent.
pub fn parent_of(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("a parent");
    line.trim().parse().expect("a number")
}

/// Sends a signal to one process.
#[track_caller]
pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(sent.expect("kill").success(), "kill -{name} {pid}");
}
