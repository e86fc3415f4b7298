//! What this machine offers, on one screen: each layer tried by using it, what is missing and the line that mends it, and a
//! check that tries to get out and reads the clock.
#![forbid(unsafe_code)]

use crate::commands::{Failure, Session, clock_check, isolation};
use crate::model::layer::{Layer, LayerState, Level};
use crate::sandbox::probe::Abilities;
use serde::Serialize;
use std::collections::BTreeMap;

/// What the object is called and its version.
const SCHEMA: &str = "checkrun.doctor/1";
/// How wide the text may be: of the terminals that there are, the narrowest.
const WIDTH: usize = 80;
/// Width of the column of names and the gap behind it.
const COLUMN: usize = 11;

/// What a self-check came to, by what it tried.
type Trial = Option<Result<BTreeMap<String, String>, String>>;

#[derive(Serialize)]
struct Findings<'a> {
    schema: &'static str,
    /// The strongest level that the default policy's needs allow.
    level: Option<&'static str>,
    layers: BTreeMap<Layer, &'a LayerState>,
    overlay: LayerState,
    landlock_abi: u32,
    /// What a check came to that tried to get out.
    isolation: Option<BTreeMap<String, String>>,
    /// What a program in a real sandbox reads, where the clock can be fixed.
    clock_check: Option<BTreeMap<String, String>>,
    remedies: Vec<String>,
    host_uid: u32,
    host_gid: u32,
    kernel: String,
}

/// Tries each layer and tells what there is, what is missing and how to get it.
pub(super) fn doctor(session: &mut Session) -> Result<u8, Failure> {
    let found = session.around.probe()?;
    let level = level_of(&found);
    let has_clock =
        level == Some(Level::Full) && found.layers.get(&Layer::Clock).is_some_and(LayerState::is_enforced);
    let isolation: Trial = level.map(|level| isolation::check(session, level));
    let clock: Trial = has_clock.then(|| clock_check::check(session));
    let wrong = |trial: &Trial| match trial {
        Some(Ok(findings)) => findings.values().any(|finding| finding != "ok"),
        Some(Err(_)) => true,
        None => false,
    };
    let status = u8::from(level != Some(Level::Full) || wrong(&isolation) || wrong(&clock));
    if session.reporter.is_json() {
        let told =
            |trial: Trial| trial.map(|trial| trial.unwrap_or_else(|why| [("error".to_owned(), why)].into()));
        session.reporter.object(&Findings {
            schema: SCHEMA,
            level: level.map(Level::name),
            layers: found.layers.iter().map(|(layer, state)| (*layer, state)).collect(),
            overlay: found.overlay.clone().map_or_else(LayerState::Unavailable, |()| LayerState::Enforced),
            landlock_abi: found.landlock_abi,
            isolation: told(isolation),
            clock_check: told(clock),
            remedies: remedies(&found),
            host_uid: found.user.uid,
            host_gid: found.user.gid,
            kernel: kernel(),
        });
    } else {
        let mut rows = rows(&found, level);
        rows.push(("isolation".to_owned(), isolation_text(isolation)));
        rows.push(("clock".to_owned(), clock_text(clock)));
        rows.extend(remedies(&found).into_iter().map(|remedy| ("mend".to_owned(), remedy)));
        let folded: Vec<(String, String)> =
            rows.into_iter().map(|(name, text)| (name, fold(&text))).collect();
        session.reporter.rows(&folded);
    }
    Ok(status)
}

/// The level that checks can be run at here.
fn level_of(found: &Abilities) -> Option<Level> {
    let has = |layer: &Layer| !matches!(found.layers.get(layer), Some(LayerState::Unavailable(_)) | None);
    let namespaces = [Layer::User, Layer::Mount, Layer::Pid, Layer::Net, Layer::Ipc, Layer::Uts];
    let bare = [Layer::Landlock, Layer::Seccomp];
    if !bare.iter().all(has) {
        None
    } else if namespaces.iter().all(has) {
        Some(Level::Full)
    } else {
        Some(Level::Landlock)
    }
}

/// The layers by what became of them, those with one reason in one row.
fn rows(found: &Abilities, level: Option<Level>) -> Vec<(String, String)> {
    let level = match level {
        Some(Level::Full) => "full: checks run under every policy whose limits can be kept",
        Some(Level::Landlock) => "landlock: namespaces are missing; `--policy landlock` works, weaker",
        None => "none: nothing can be confined here",
    };
    let user = if found.user.switch {
        format!("checks run as host uid {}, which owns nothing, never as root", found.user.uid)
    } else {
        format!("checks run as host uid {}", found.user.uid)
    };
    let mut rows = vec![
        ("level".to_owned(), level.to_owned()),
        ("kernel".to_owned(), kernel()),
        ("user".to_owned(), user),
    ];
    let mut grouped: Vec<(&str, &str, Vec<String>)> = Vec::new();
    for layer in Layer::ALL {
        let (name, why) = match found.layers.get(&layer) {
            Some(LayerState::Enforced) => ("ok", ""),
            Some(LayerState::Partial(why)) => ("partly", why.as_str()),
            Some(LayerState::Unavailable(why)) => ("missing", why.as_str()),
            Some(LayerState::Off) | None => ("off", ""),
        };
        let word = match layer {
            Layer::Landlock => format!("landlock (ABI {})", found.landlock_abi),
            layer => layer.name().to_owned(),
        };
        add(&mut grouped, (name, why, word));
    }
    match &found.overlay {
        Ok(()) => add(&mut grouped, ("ok", "", "overlay".to_owned())),
        Err(why) => add(&mut grouped, ("missing", why, "overlay (trees are copied)".to_owned())),
    }
    // What works comes first, what is missing last, where it is seen.
    for wanted in ["ok", "off", "partly", "missing"] {
        for (name, why, words) in grouped.iter().filter(|(name, ..)| *name == wanted) {
            let words = words.join(" ");
            let text = if why.is_empty() { words } else { format!("{words}: {why}") };
            rows.push(((*name).to_owned(), text));
        }
    }
    rows
}

fn add<'a>(
    grouped: &mut Vec<(&'a str, &'a str, Vec<String>)>,
    (name, why, word): (&'a str, &'a str, String),
) {
    match grouped.iter_mut().find(|(other, reason, _)| *other == name && *reason == why) {
        Some((.., words)) => words.push(word),
        None => grouped.push((name, why, vec![word])),
    }
}

/// The lines that mend what is missing, taken from the reasons, where they stand between backquotes: settings of the
/// kernel, rights of a container, a delegated control group.
fn remedies(found: &Abilities) -> Vec<String> {
    let mut container: Vec<&str> = Vec::new();
    let mut lines: Vec<String> = Vec::new();
    let states = Layer::ALL.iter().filter_map(|layer| found.layers.get(layer));
    let reasons = states.filter_map(|state| match state {
        LayerState::Partial(why) | LayerState::Unavailable(why) => Some(why.as_str()),
        LayerState::Enforced | LayerState::Off => None,
    });
    for quoted in reasons.flat_map(|why| why.split('`').skip(1).step_by(2)) {
        if quoted.starts_with("--security-opt ") || quoted.starts_with("--cap-add ") {
            if !container.contains(&quoted) {
                container.push(quoted);
            }
            continue;
        }
        let line = match quoted.strip_prefix("sysctl ") {
            Some(setting) => format!("sudo sysctl -w {setting}"),
            None if quoted.starts_with("systemd-") => quoted.to_owned(),
            None => continue,
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    if !container.is_empty() {
        lines.push(format!("docker run {} …", container.join(" ")));
    }
    lines
}

fn isolation_text(trial: Trial) -> String {
    match trial {
        None => "not tried: nothing can be confined here".to_owned(),
        Some(Err(why)) => format!("failed: {why}"),
        Some(Ok(findings)) => {
            let words = |name: &str| match name {
                "reach_out" => ("reaching out", "refused"),
                "write_out" => ("writing out", "refused"),
                "read_in" => ("reading what is outside", "refused"),
                _ => ("seeing other processes", "refused"),
            };
            let each: Vec<String> = findings
                .iter()
                .map(|(name, finding)| {
                    let (what, fine) = words(name);
                    if finding == "ok" {
                        format!("{what} {fine}")
                    } else {
                        format!("{what} WORKED: {finding}")
                    }
                })
                .collect();
            format!("a check tried: {}", each.join(", "))
        }
    }
}

/// The self-check on one line.
fn clock_text(trial: Trial) -> String {
    match trial {
        None => "not tried: there is no fixed clock here".to_owned(),
        Some(Err(why)) => format!("failed: {why}"),
        Some(Ok(findings)) => {
            let name = |name: &str| if name == "vdso" { "vDSO".to_owned() } else { name.replace('_', " ") };
            let each: Vec<String> =
                findings.iter().map(|(it, finding)| format!("{} {finding}", name(it))).collect();
            format!("a check read: {}", each.join(", "))
        }
    }
}

/// Breaks a text between words, so that it fits beside the names.
fn fold(text: &str) -> String {
    let mut folded = String::new();
    let mut length = 0;
    for word in text.split(' ') {
        let wide = word.chars().count();
        if length > 0 && length + 1 + wide > WIDTH - COLUMN {
            folded.push('\n');
            length = 0;
        } else if length > 0 {
            folded.push(' ');
            length += 1;
        }
        folded.push_str(word);
        length += wide;
    }
    folded
}

fn kernel() -> String {
    let name = rustix::system::uname();
    format!("{} {}", name.release().to_string_lossy(), name.machine().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_broken_between_words_only() {
        let text = "a word and another ".repeat(9);
        let folded = fold(text.trim());
        assert!(
            folded.lines().count() > 2 && folded.lines().all(|line| line.chars().count() <= WIDTH - COLUMN)
        );
        assert_eq!(folded.replace('\n', " "), text.trim());
        let long = "x".repeat(100);
        assert_eq!(fold(&format!("a {long} b")), format!("a\n{long}\nb"));
    }
}
