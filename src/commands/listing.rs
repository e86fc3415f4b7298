//! What there is: policies and runners, and what each expands to here.
#![forbid(unsafe_code)]

use crate::catalogue::{self, NamedPolicy};
use crate::commands::{Failure, Session};
use crate::key;
use crate::toolchain::{self, FileDigests};
use serde::Serialize;
use std::io;
use std::path::Path;

#[derive(Serialize)]
struct PolicyRow<'a> {
    name: &'a str,
    description: &'a str,
    digest: String,
    origin: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    expanded: Option<String>,
}

/// Lists the policies, or gives one in full.
pub(super) fn policies(name: Option<&str>, session: &mut Session) -> Result<u8, Failure> {
    let config = session.around.config.as_deref();
    let chosen: Vec<NamedPolicy> = match name {
        Some(name) => vec![catalogue::policy(name, config)?],
        None => catalogue::policies(config)?,
    };
    for named in &chosen {
        let expanded = catalogue::expand(&named.policy, &named.reasons);
        if session.reporter.is_json() {
            session.reporter.object(&PolicyRow {
                name: &named.policy.name,
                description: &named.policy.description,
                digest: key::policy_digest(&named.policy).to_string(),
                origin: &named.origin,
                expanded: name.map(|_| expanded),
            });
        } else if name.is_some() {
            session.reporter.data(expanded.as_bytes());
        } else {
            session.reporter.listed(&format!("{:<10}  {}", named.policy.name, named.policy.description));
        }
    }
    Ok(0)
}

/// Reads files without remembering anything: listing is no run.
struct Plainly;

impl FileDigests for Plainly {
    fn digest(&mut self, path: &Path) -> io::Result<crate::model::digest::Digest> {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(std::fs::File::open(path)?)?;
        Ok(crate::model::digest::Digest(*hasher.finalize().as_bytes()))
    }
}

#[derive(Serialize)]
struct RunnerRow<'a> {
    name: &'a str,
    description: &'a str,
    serves: &'a [String],
    digest: Option<String>,
    toolchain: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expanded: Option<String>,
}

/// Lists the runners with the toolchain that each finds here, or gives one in full.
pub(super) fn runners(name: Option<&str>, session: &mut Session) -> Result<u8, Failure> {
    let config = session.around.config.as_deref();
    let all = catalogue::runners(config)?;
    let chosen: Vec<_> = match name {
        Some(name) => vec![catalogue::choose_runner(&all, b"", Some(name))?],
        None => all.iter().collect(),
    };
    let hermetic = catalogue::policy("hermetic", config)?.policy;
    for runner in chosen {
        let word = runner.toolchain.program.clone().or_else(|| runner.serves.first().cloned());
        let found = word.and_then(|word| {
            toolchain::resolve(
                runner,
                (word.as_bytes(), &[]),
                &hermetic,
                &session.around.lookup,
                &mut Plainly,
            )
            .ok()
        });
        let toolchain = found.as_ref().map(|found| found.toolchain.clone()).filter(|text| !text.is_empty());
        let mut expanded = catalogue::expand_runner(runner);
        for bind in found.iter().flat_map(|found| &found.binds) {
            expanded.push_str(&format!(
                "# here: {} is shown at {}\n",
                bind.host.display(),
                bind.inside.display()
            ));
        }
        if session.reporter.is_json() {
            session.reporter.object(&RunnerRow {
                name: &runner.name,
                description: &runner.description,
                serves: &runner.serves,
                digest: found.as_ref().map(|found| found.digest.to_string()),
                toolchain,
                expanded: name.map(|_| expanded),
            });
        } else if name.is_some() {
            session.reporter.data(expanded.as_bytes());
        } else {
            let here = toolchain.map_or_else(String::new, |version| format!(" (here: {version})"));
            session.reporter.listed(&format!("{:<10}  {}{here}", runner.name, runner.description));
        }
    }
    Ok(0)
}
