//! What a person sees, in a real terminal: nothing is broken over two lines that was not so in the check's own output,
//! colour is there where it is wanted and nowhere else, and the progress line leaves nothing behind.

use crate::support::store::wait_for;
use crate::support::{Env, run};
use std::process::Command;

/// A terminal of a certain width, with one shell command in it. Gone when dropped.
struct Terminal<'e> {
    env: &'e Env,
    name: String,
}

impl<'e> Terminal<'e> {
    fn start(env: &'e Env, columns: u32, line: &str) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let this = Self { env, name };
        let script = format!("{line}\necho; echo THE-END; exec sleep 300");
        let columns = columns.to_string();
        let mut tmux =
            this.tmux(&["new-session", "-d", "-x", &columns, "-y", "100", "bash", "--norc", "-c", &script]);
        let own = env.command(&[]);
        for (name, value) in own.get_envs() {
            if let Some(value) = value {
                tmux.env(name, value);
            }
        }
        tmux.env("CHECKRUN", own.get_program()).current_dir(env.path("repo"));
        drop(run(&mut tmux).expect(0));
        this
    }

    fn tmux(&self, args: &[&str]) -> Command {
        let mut tmux = self.env.as_who("tmux");
        tmux.env("LC_ALL", "C.UTF-8").env("TERM", "xterm-256color");
        tmux.args(["-u", "-f", "/dev/null", "-S"])
            .arg(self.env.path(&format!("home/{}", self.name)))
            .args(args);
        tmux
    }

    /// What is on it; `-J` joins what was broken, `-e` keeps colours.
    fn shows(&self, how: &str) -> String {
        let mut args = vec!["capture-pane", "-p", "-S", "-"];
        args.extend(Some(how).filter(|how| !how.is_empty()));
        run(&mut self.tmux(&args)).expect(0).out()
    }

    fn end(&self) -> String {
        wait_for("the command in the terminal", || self.shows("").contains("THE-END"));
        self.shows("")
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        drop(self.tmux(&["kill-server"]).output());
    }
}

/// Lines without what tmux fills them up with.
fn lines(text: &str) -> Vec<String> {
    text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect()
}

/// A repository with a plan and records whose texts are longer than any terminal is wide.
fn full() -> Env {
    let env = Env::new();
    let long = "a title that goes on and on, ".repeat(9);
    let wide = "漢字かな交じり文".repeat(20);
    let tail = "echo 'שלום עולם مرحبا \u{202e}reversed\u{202c} end'; echo 日本語; exit 1";
    let plan = serde_json::json!({"task": "t", "steps": [
        {"id": "one", "title": long, "check": "true"},
        {"id": "two", "title": wide, "check": "true"},
        {"id": "three", "title": "right to left", "check": tail},
    ]});
    env.write("plan.json", plan.to_string()).commit();
    let chance = format!("exit $(( $(od -An -N1 -tu1 /dev/urandom) < 128 )) # {}", "long ".repeat(50));
    let once = || env.checkrun(&["--refresh", "--", "sh", "-c", &chance]).status;
    let first = once();
    assert!((0..64).any(|_| once() != first), "a check that is left to chance did the same 65 times");
    env
}

#[test]
fn nothing_is_broken_over_two_lines_at_80_columns_and_at_200() {
    let env = full();
    for (line, part) in [
        ("$CHECKRUN -- sh -c 'echo hello'", "checkrun: passed ("),
        ("$CHECKRUN doctor", "isolation  a check tried"),
        ("$CHECKRUN reconcile plan.json --all", "first step that is not certified: three"),
        ("$CHECKRUN flakes", " failed, at most "),
        ("$CHECKRUN log", "  sh -c "),
        ("$CHECKRUN policies; $CHECKRUN runners", "hermetic"),
        ("$CHECKRUN --help", "Commands:"),
        ("$CHECKRUN run --help", "Sandbox:"),
        ("$CHECKRUN reconcile --help", "Examples:"),
        ("$CHECKRUN --version", "Landlock ABI"),
        ("$CHECKRUN explain -- true", "key b3:"),
    ] {
        for columns in [80, 200] {
            let terminal = Terminal::start(&env, columns, line);
            let shown = lines(&terminal.end());
            assert_eq!(shown, lines(&terminal.shows("-J")), "{line} at {columns}");
            assert!(shown.iter().any(|line| line.contains(part)), "{line} at {columns}: {shown:#?}");
        }
    }
    // Where nobody looks nothing is cut.
    let log = env.checkrun(&["log"]).expect(0).out();
    assert!(log.lines().any(|line| line.len() > 300) && !log.contains('…'), "{log}");
    let cut = Terminal::start(&env, 80, "$CHECKRUN log").end();
    assert!(cut.lines().next().is_some_and(|line| line.contains(" sh -c ") && line.ends_with('…')), "{cut}");
}

#[test]
fn wide_letters_and_text_from_right_to_left_do_no_harm() {
    let env = full();
    for columns in [80, 200] {
        let shown = Terminal::start(&env, columns, "$CHECKRUN reconcile plan.json --all").end();
        assert!(!shown.contains('\u{202e}') && shown.contains("| שלום עולם"), "{shown}");
        let wide = shown.lines().find(|line| line.contains('漢')).expect("the title");
        assert!(wide.trim_end().ends_with('…') && wide.chars().count() < columns as usize, "{wide}");
        assert!(shown.contains("| 日本語"), "{shown}");
    }
}

// https://no-color.org
#[test]
fn colour_is_there_on_a_terminal_and_nowhere_else() {
    let env = Env::new();
    env.write("f", "").commit();
    let green = |line: &str| {
        let terminal = Terminal::start(&env, 80, line);
        let plain = terminal.end();
        assert!(plain.contains("passed (") || plain.contains("error:"), "{line}: {plain}");
        terminal.shows("-e").contains("\u{1b}[3")
    };
    assert!(green("$CHECKRUN -- true") && green("CI=true $CHECKRUN -- true"));
    assert!(green("$CHECKRUN --policy nowhere -- true"));
    assert!(green("NO_COLOR= $CHECKRUN -- true"), "an empty NO_COLOR says nothing");
    for line in [
        "NO_COLOR=1 $CHECKRUN -- true",
        "TERM=dumb $CHECKRUN -- true",
        "$CHECKRUN -- true 2>&1 | cat",
        "NO_COLOR=1 $CHECKRUN --policy nowhere -- true",
        "$CHECKRUN --policy nowhere -- true 2>&1 | cat",
    ] {
        assert!(!green(line), "{line}");
    }
}

#[test]
fn the_progress_line_is_one_line_however_narrow_and_leaves_nothing_behind() {
    let env = Env::new();
    env.write("f", "").commit();
    let line = "$CHECKRUN flake --runs 40 --jobs 1 -- sleep 0.1";
    // Two rows for the line at these widths, if it were not cut.
    for columns in [30, 200] {
        let terminal = Terminal::start(&env, columns, line);
        let mut seen = Vec::new();
        wait_for("the end, with progress on the way", || {
            let shown = lines(&terminal.shows(""));
            let progress: Vec<String> =
                shown.into_iter().filter(|line| line.starts_with("checkrun: ")).collect();
            // What is said beforehand is a line of its own.
            seen.extend(progress.into_iter().filter(|line| line.contains(" of 40 runs")));
            terminal.shows("").contains("THE-END")
        });
        assert!(!seen.is_empty(), "no progress was seen at {columns} columns");
        assert_eq!(seen.iter().any(|line| line.ends_with('…')), columns == 30, "{seen:?}");
        let left = terminal.end();
        let of_progress = |line: &&str| line.contains("rate at most") || line.contains("checkrun: ");
        assert_eq!(left.lines().find(of_progress), None, "{left}");
        assert!(left.starts_with("stable: 0 of 40 runs"), "{left}");
    }
    for line in
        [format!("CI=true {line}"), format!("TERM=dumb {line}"), line.replace("flake ", "flake --quiet ")]
    {
        let terminal = Terminal::start(&env, 80, &line.replace("40", "8"));
        let mut seen = false;
        wait_for("the end", || {
            let shown = terminal.shows("");
            seen |= shown.contains(" of 8 runs, ");
            shown.contains("THE-END")
        });
        assert!(!seen, "progress was shown: {line}");
    }
}
