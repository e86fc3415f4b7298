//! What a verdict says beside itself: what the check may have lacked, and what to do about it. Whether it passed is not
//! decided here.
#![forbid(unsafe_code)]

use crate::catalogue;
use crate::model::check::DepsChoice;
use crate::model::digest::Digest;
use crate::model::outcome::{Observation, Outcome};
use crate::model::path::below;
use crate::model::policy::{GitView, Network};
use crate::pipeline::Prepared;
use crate::pipeline::recording::Recorded;
use crate::pipeline::verdict::Verdict;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Version managers whose shims are links to themselves; those of others lie in a folder `shims`.
const MANAGERS: [&str; 2] = ["mise", "asdf"];

/// What people start a command with that only a shell knows; of no other word is there a program of this name.
const SHELL_WORDS: [&str; 9] = ["cd", "export", "source", ".", "set", "alias", "eval", "exec", "ulimit"];

/// What git says where it finds no repository.
const NO_REPOSITORY: &str = "not a git repository";

/// The reason of a verdict, with what the check may have lacked.
pub(super) fn reason(
    verdict: &Verdict,
    seen: &Observation,
    recorded: &Recorded,
    prepared: &Prepared,
) -> Option<String> {
    let tail = recorded.tail.as_str();
    let reached = seen.reached.reason(verdict.outcome == Outcome::Passed);
    let is_lack = matches!(verdict.outcome, Outcome::Failed | Outcome::NotStarted);
    let program = if is_lack { program(verdict, prepared) } else { None };
    let advice = prepared.rule.advice.iter().find(|advice| {
        verdict.outcome == Outcome::Failed
            && verdict.exit != Some(0)
            && advice.output.iter().any(|text| tail.contains(text.as_str()))
    });
    // What has a test of its own fail is not what was not prepared.
    let lacks = recorded.lacks
        || seen.network
        || prepared.rule.lacks.is_empty()
        || verdict.outcome == Outcome::NotStarted
        || matches!(verdict.exit, Some(126 | 127));
    let unprepared = prepared.unprepared.as_ref().filter(|_| is_lack && lacks);
    let by_path = if is_lack && recorded.lacks { by_path(prepared) } else { None };
    let missing = match (advice, unprepared) {
        (None, None) if by_path.is_some() => by_path,
        // Nothing that could be prepared would help.
        (Some(advice), _) if !advice.prepare => Some(advice.say.clone()),
        (_, Some(unprepared)) => Some(unprepared.clone()),
        (Some(advice), _) if reached.is_none() => Some(advice.say.clone()),
        _ if verdict.outcome == Outcome::Failed && reached.is_none() && seen.network => {
            Some(network(prepared.action.policy.network).to_owned())
        }
        _ => None,
    };
    let wants_git = verdict.outcome == Outcome::Failed
        && prepared.action.policy.git == GitView::None
        && tail.contains(NO_REPOSITORY);
    let missing = missing.or_else(|| {
        wants_git.then(|| {
            "git: a check sees no `.git`; a policy with `view = \"synthetic\"` under `[git]` shows it one that is made of the tree"
                .to_owned()
        })
    });
    let parts: Vec<String> =
        [verdict.reason.clone(), program, reached, missing].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// That a program was named in full, and so is not the one of the environment that has the packages.
fn by_path(prepared: &Prepared) -> Option<String> {
    let word = catalogue::first_word(&prepared.action.command.argv);
    let bare = catalogue::bare(&word);
    let is_served = prepared.rule.serves.iter().any(|served| served.as_bytes() == bare);
    if !word.starts_with(b"/") || !is_served || !prepared.has_environment() {
        return None;
    }
    let from = if prepared.action.deps.iter().any(|layer| layer.from == DepsChoice::Found) {
        "found"
    } else {
        "prepared"
    };
    let show = |word: &[u8]| String::from_utf8_lossy(word).chars().take(100).collect::<String>();
    Some(format!(
        "by_path: `{}` is run as it is named, and has none of the {from} packages; they are those of `{}`, called by its name alone",
        show(&word),
        show(bare)
    ))
}

/// What a check says that looked for the network in vain.
fn network(network: Network) -> &'static str {
    match network {
        Network::Hosts => {
            "network: it looked for a name server or another host by itself; only programs that go by HTTPS_PROXY reach the hosts that the policy names"
        }
        Network::Loopback | Network::Host => {
            "network: it looked for a name server or another host, and a check has no network; `checkrun prepare` fetches what it needs beforehand"
        }
    }
}

/// What is wrong with the program itself: it is not there, what it is started by is not, or it only chooses another one.
fn program(verdict: &Verdict, prepared: &Prepared) -> Option<String> {
    let not_found = verdict.reason.as_deref().is_some_and(|reason| reason.starts_with("not_found"));
    if let Some(shim) = shim(prepared) {
        return Some(shim);
    }
    if verdict.reason.as_deref().is_some_and(|reason| reason.starts_with("not_executable")) {
        return not_executable(prepared);
    }
    // A shell's way to say the same of a command within its string.
    if !not_found && !matches!(verdict.exit, Some(126 | 127)) {
        return None;
    }
    let word = catalogue::first_word(&prepared.action.command.argv);
    let name: String = String::from_utf8_lossy(&word).chars().take(60).collect();
    let is_absent = is_absent(prepared, &word);
    if is_absent {
        if let Some(meant) = misnamed(&word, &name).filter(|_| not_found) {
            return Some(meant);
        }
        let is_prepared = prepared.action.deps.iter().any(|layer| layer.from == DepsChoice::Prepared);
        // A verdict that has a reason already has its word, too.
        let word_of_it = if not_found { "" } else { "missing: " };
        let mut said = format!("{word_of_it}`{name}` is not on your PATH");
        if is_prepared && !word.contains(&b'/') {
            said = format!(
                "{said}, and it is not among the prepared packages: name it in the project's requirements and prepare again"
            );
        }
        // What is not prepared is told after it, with how to do so.
        let is_told = |how: &str| prepared.unprepared.is_some() && how.contains("checkrun prepare");
        return Some(match install(prepared, &word).filter(|how| !is_told(how)) {
            Some(how) => format!("{said}; {how}"),
            None => said,
        });
    }
    // What is named by a path of the host, or found on PATH, is in the identity when it is absent.
    let is_of_tree = word.contains(&b'/') && !word.starts_with(b"/");
    let plain = word.strip_prefix(b"./").unwrap_or(&word);
    let is_there = !is_of_tree || prepared.snapshot.has_file(&below(&prepared.action.command.cwd, plain));
    if not_found && !is_there {
        return Some(format!("the tree has no file `{name}`"));
    }
    not_found.then(|| {
        format!(
            "`{name}` is there, and what its first line has it started by is not: its environment was moved or removed, or it is a shim of something that is gone; install it again"
        )
    })
}

/// What was meant by a word that names no program and never will: `name` is the word for people.
fn misnamed(word: &[u8], name: &str) -> Option<String> {
    let variable = word.split(|byte| *byte == b'=').next().filter(|variable| variable.len() < word.len());
    let is_variable =
        |variable: &[u8]| variable.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    if variable.is_some_and(is_variable) {
        Some(format!("a variable is passed by `--env '{name}'`"))
    } else if word.contains(&b' ') {
        Some(format!("`{name}` was given as one word; give its words apart, or as `-c '{name}'`"))
    } else if SHELL_WORDS.contains(&name) {
        Some(format!("`{name}` is a word of the shell: give the whole line as one string, with `-c`"))
    } else {
        None
    }
}

/// Whether the host was found to have no such program.
fn is_absent(prepared: &Prepared, word: &[u8]) -> bool {
    let identity = &prepared.action.runner.identity;
    identity
        .iter()
        .any(|(path, digest)| path.as_os_str().as_bytes() == word && *digest == Digest::of(b"absent"))
}

/// That the toolchain which a step of `prepare` is for is not there, and how it is to be had.
pub(super) fn toolchain(prepared: &Prepared) -> Option<String> {
    let name = prepared.rule.toolchain.program.as_ref()?;
    let said = format!("missing: `{name}` is not on your PATH");
    is_absent(prepared, name.as_bytes()).then(|| match install(prepared, name.as_bytes()) {
        Some(how) => format!("{said}; {how}"),
        None => said,
    })
}

/// That a file of the tree is not executable.
fn not_executable(prepared: &Prepared) -> Option<String> {
    let word = prepared.action.command.argv.first()?;
    let plain = word.strip_prefix(b"./").unwrap_or(word);
    let path = below(&prepared.action.command.cwd, plain);
    let is_of_tree = word.contains(&b'/') && !word.starts_with(b"/");
    if !is_of_tree || !prepared.snapshot.has_file(&path) || prepared.snapshot.has_executable(&path) {
        return None;
    }
    let plain: String = String::from_utf8_lossy(plain).chars().take(200).collect();
    Some(format!("the tree has `{plain}` as a file that is not executable: `chmod +x {plain}`"))
}

/// How to install a program, as its runner says it.
fn install<'p>(prepared: &'p Prepared, word: &[u8]) -> Option<&'p str> {
    let rule = &prepared.rule;
    let bare = catalogue::bare(word);
    let own = std::str::from_utf8(bare).ok().and_then(|name| rule.install.get(name));
    let by_program = || {
        let is_served = rule.serves.iter().any(|served| served.as_bytes() == bare);
        let program = rule.toolchain.program.as_ref().filter(|_| is_served)?;
        rule.install.get(program)
    };
    own.or_else(by_program).map(String::as_str)
}

/// A shim of a version manager that nobody looked behind: what it would run is not shown to the check.
fn shim(prepared: &Prepared) -> Option<String> {
    let is_shim = |path: &&Path| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        // A listing of the folder is no program.
        MANAGERS.contains(&name)
            || name != "*" && path.parent().and_then(Path::file_name) == Some(OsStr::new("shims"))
    };
    let path = prepared.action.runner.identity.iter().map(|(path, _)| path.as_path()).find(is_shim)?;
    let path: String = path.display().to_string().chars().take(200).collect();
    Some(format!(
        "shim: {path} only chooses which program to run, and a check sees that one only where its policy shows it; have the folder of the real program first on PATH"
    ))
}
