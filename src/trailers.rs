//! What commit messages claim about steps: the trailers `Agent-Run`, `Agent-Step`, `Agent-Check` and
//! `Agent-Plan-Version`, read from whatever a branch has been through, and written for a new commit. Claims only: what
//! holds on a tree is found out elsewhere, and no commit is read or made here.
//!
//! git itself takes only the last paragraph of a message for trailers (git-interpret-trailers(1)). Here every line of
//! a message counts, since squashing puts whole messages below each other, and since each `-m` of `git commit` makes a
//! paragraph of its own.
#![forbid(unsafe_code)]

use std::fmt::Write as _;

/// Claims of one message.
const MAX_CLAIMS: usize = 1000;
/// Checks of one claim.
const MAX_CHECKS: usize = 100;

/// What one message claims about one step.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Claim {
    /// The step's id.
    pub step: String,
    /// What it is about.
    pub title: String,
    /// The run that made it.
    pub run: Option<String>,
    /// The version of the plan.
    pub plan_version: Option<String>,
    /// The commands it says were run.
    pub checks: Vec<ClaimedCheck>,
}

/// A command as a trailer has it.
#[derive(Clone, PartialEq, Debug)]
pub struct ClaimedCheck {
    /// The command.
    pub cmd: String,
    /// Its exit status, where it says so.
    pub exit: Option<i64>,
    /// How long it ran, where it says so.
    pub secs: Option<f64>,
}

/// What a message says about steps.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Claims {
    /// In the order of the message.
    pub claims: Vec<Claim>,
    /// What was not understood, a sentence each.
    pub faults: Vec<String>,
}

/// Reads the claims of a message.
#[must_use]
pub fn read(message: &str) -> Claims {
    let mut found = Claims::default();
    let mut run: Option<String> = None;
    let mut current: Option<Claim> = None;
    for (key, value) in message.lines().filter_map(trailer) {
        match key {
            Key::Run => {
                let value = bounded(value).ok();
                match &mut current {
                    Some(claim) if claim.run.is_none() => claim.run.clone_from(&value),
                    // Another message begins, in a squash of several.
                    _ => found.close(&mut current),
                }
                run = value;
            }
            Key::Step => {
                found.close(&mut current);
                match bounded(value) {
                    Ok(step) => {
                        let title = title(message, &step);
                        current = Some(Claim { step, title, run: run.clone(), ..Claim::default() });
                    }
                    Err(why) => found.fault(format!("an Agent-Step {why}")),
                }
            }
            Key::Check => match (&mut current, check(value)) {
                (None, _) => found.fault("an Agent-Check without an Agent-Step before it".to_owned()),
                (Some(claim), Ok(check)) => {
                    let step = claim.step.clone();
                    if check.exit.is_none() {
                        found.fault(format!("an Agent-Check of `{step}` does not say how it ended"));
                    }
                    if claim.checks.len() < MAX_CHECKS {
                        claim.checks.push(check);
                    }
                }
                (Some(_), Err(why)) => found.fault(why),
            },
            Key::PlanVersion => match (&mut current, bounded(value)) {
                (Some(claim), Ok(version)) => claim.plan_version = Some(version),
                (_, Err(why)) => found.fault(format!("an Agent-Plan-Version {why}")),
                (None, Ok(_)) => {}
            },
        }
    }
    found.close(&mut current);
    found
}

impl Claims {
    fn close(&mut self, current: &mut Option<Claim>) {
        if let Some(claim) = current.take()
            && self.claims.len() < MAX_CLAIMS
        {
            self.claims.push(claim);
        }
    }

    fn fault(&mut self, text: String) {
        if self.faults.len() < MAX_CHECKS && !self.faults.contains(&text) {
            self.faults.push(text);
        }
    }
}

#[derive(Clone, Copy)]
enum Key {
    Run,
    Step,
    Check,
    PlanVersion,
}

/// A line that is one of the trailers. `git merge --squash` sets messages in by four blanks, so blanks do not count.
fn trailer(line: &str) -> Option<(Key, &str)> {
    let (key, value) = line.trim_start_matches([' ', '\t']).split_once(':')?;
    let keys = [
        ("agent-run", Key::Run),
        ("agent-step", Key::Step),
        ("agent-check", Key::Check),
        ("agent-plan-version", Key::PlanVersion),
    ];
    let (_, key) = keys.iter().find(|(name, _)| key.trim_end().eq_ignore_ascii_case(name))?;
    Some((*key, value.trim()))
}

/// A name as ledgers take it.
fn bounded(value: &str) -> Result<String, String> {
    if value.is_empty() {
        return Err("is empty".to_owned());
    }
    if value.len() > 200 || value.chars().any(char::is_control) {
        return Err("is longer than 200 bytes or holds control characters".to_owned());
    }
    Ok(value.to_owned())
}

/// `CMD exit=0 secs=22.6`; a command with control characters in it is written as a JSON text.
fn check(value: &str) -> Result<ClaimedCheck, String> {
    let (rest, secs) = number(value, "secs=");
    let (rest, exit) = number(rest, "exit=");
    let cmd = serde_json::from_str::<String>(rest).unwrap_or_else(|_| rest.to_owned());
    if cmd.trim().is_empty() || cmd.contains('\0') {
        return Err("an Agent-Check names no command".to_owned());
    }
    let exit = exit.and_then(|text| text.parse().ok());
    let secs = secs.and_then(|text| text.parse::<f64>().ok()).filter(|secs| secs.is_finite() && *secs >= 0.0);
    Ok(ClaimedCheck { cmd, exit, secs })
}

/// Takes the last word off if it begins like that.
fn number<'v>(value: &'v str, name: &str) -> (&'v str, Option<&'v str>) {
    let value = value.trim_end();
    let start = value.rfind([' ', '\t']).map_or(0, |at| at + 1);
    match value[start..].strip_prefix(name) {
        Some(number) => (value[..start].trim_end(), Some(number)),
        None => (value, None),
    }
}

/// The line that begins with the step's id and a colon, else the first one.
fn title(message: &str, step: &str) -> String {
    let of = |line: &str| {
        let line = line.trim_start_matches(['*', '-', ' ', '\t']);
        Some(line.strip_prefix(step)?.strip_prefix(':')?.trim().to_owned())
    };
    let title =
        message.lines().find_map(of).unwrap_or_else(|| message.lines().next().unwrap_or_default().to_owned());
    title.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(200).collect()
}

/// Commits that a message says it takes back, full ids or what begins them.
pub(crate) fn reverted(message: &str) -> Vec<String> {
    let mut ids = Vec::new();
    let mut rest = message;
    while let Some((_, after)) = rest.split_once("This reverts commit ") {
        let digits = after.bytes().take_while(u8::is_ascii_hexdigit).count();
        if (7..=64).contains(&digits) && ids.len() < MAX_CHECKS {
            ids.push(after[..digits].to_ascii_lowercase());
        }
        rest = after;
    }
    ids
}

/// The message of a commit that certifies a step. What would break a line is left out of names and quoted in commands.
#[must_use]
pub fn write(claim: &Claim) -> String {
    let line = |text: &str| -> String {
        text.chars()
            .map(|letter| if letter.is_control() { ' ' } else { letter })
            .collect::<String>()
            .trim()
            .to_owned()
    };
    let title = line(&claim.title);
    let step = line(&claim.step);
    let mut text = if title.is_empty() { format!("{step}\n\n") } else { format!("{step}: {title}\n\n") };
    if let Some(run) = &claim.run {
        let _ = writeln!(text, "Agent-Run: {}", line(run));
    }
    let _ = writeln!(text, "Agent-Step: {step}");
    for check in &claim.checks {
        let quoted =
            check.cmd.chars().any(char::is_control) || serde_json::from_str::<String>(&check.cmd).is_ok();
        let cmd = if quoted {
            serde_json::Value::from(check.cmd.as_str()).to_string()
        } else {
            check.cmd.trim().to_owned()
        };
        let _ = write!(text, "Agent-Check: {cmd}");
        if let Some(exit) = check.exit {
            let _ = write!(text, " exit={exit}");
        }
        if let Some(secs) = check.secs {
            let _ = write!(text, " secs={}", (secs * 100.0).round() / 100.0);
        }
        text.push('\n');
    }
    if let Some(version) = &claim.plan_version {
        let _ = writeln!(text, "Agent-Plan-Version: {}", line(version));
    }
    text
}

#[cfg(test)]
mod tests;
