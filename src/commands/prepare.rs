//! `prepare`: fetches what the checks of a tree need.
#![forbid(unsafe_code)]

use crate::cli::PrepareRequest;
use crate::commands::{Failure, Session, run};
use crate::model::hosts::{Reached, Turned};
use crate::pipeline::{self, Fetched, FetchedHow, Wish};
use crate::report;
use serde_json::{Value, json};

/// The policy where none is asked for.
const DEFAULT_POLICY: &str = "prepare";

/// Runs the steps that are for the tree and tells of them. The status is that of the first step that failed.
pub(super) fn prepare(request: PrepareRequest, session: &mut Session) -> Result<u8, Failure> {
    let mut check = request.check;
    check.policy.get_or_insert_with(|| DEFAULT_POLICY.to_owned());
    let wish = Wish { hosts: request.hosts, ..run::wish(check, &session.start)? };
    let fetched = pipeline::fetch(&wish, request.again, &session.around, &mut session.reporter)?;
    if session.reporter.is_json() {
        let all: Vec<Value> = fetched.iter().map(as_json).collect();
        session.reporter.object(&json!({"schema": "checkrun.prepare/1", "prepared": all}));
    } else {
        let rows: Vec<(String, String)> =
            fetched.iter().map(|fetched| (fetched.runner.clone(), as_text(fetched))).collect();
        session.reporter.rows(&rows);
    }
    let failed = fetched.iter().find_map(|fetched| match &fetched.how {
        FetchedHow::Failed(evidence) => Some(evidence),
        _ => None,
    });
    Ok(failed.map_or(0, |evidence| {
        pipeline::exit_status(evidence.outcome, evidence.exit, evidence.signal, evidence.reason.as_deref())
    }))
}

fn as_text(fetched: &Fetched) -> String {
    let reached = fetched.reached.as_ref();
    let more =
        reached.and_then(|reached| reached.reason(true)).map_or_else(String::new, |why| format!("; {why}"));
    match &fetched.how {
        FetchedHow::Already(digest) => format!("was prepared before: {digest}"),
        FetchedHow::Made(digest) => format!("prepared: {digest}{more}"),
        FetchedHow::Failed(evidence) => {
            let status = evidence.exit.map_or_else(String::new, |exit| format!(", exit {exit}"));
            let outcome = evidence.outcome.name().replace('_', " ");
            let reason = evidence.reason.as_ref().map_or_else(String::new, |reason| format!("; {reason}"));
            let allow =
                reached.and_then(|reached| reached.refused.iter().find_map(|turned| turned.allow.as_ref()));
            let hint =
                allow.map_or_else(String::new, |rule| format!("; `--allow-host {rule}` lets it be reached"));
            format!("{outcome}{status} in {}; nothing is kept{reason}{hint}", report::seconds(evidence.secs))
        }
    }
}

fn network(reached: &Reached) -> Value {
    let turned = |list: &[Turned]| -> Vec<Value> {
        list.iter()
            .map(|turned| json!({"host": turned.host, "why": turned.why, "allow": turned.allow}))
            .collect()
    };
    json!({
        "reached": reached.hosts,
        "refused": turned(&reached.refused),
        "unreachable": turned(&reached.unreachable),
        "sent_bytes": reached.sent,
        "received_bytes": reached.received,
    })
}

fn as_json(fetched: &Fetched) -> Value {
    let (how, digest, evidence) = match &fetched.how {
        FetchedHow::Already(digest) => ("already", Some(digest), None),
        FetchedHow::Made(digest) => ("prepared", Some(digest), None),
        FetchedHow::Failed(evidence) => ("failed", None, Some(evidence)),
    };
    json!({
        "runner": fetched.runner,
        "step": fetched.step,
        "how": how,
        "digest": digest.map(ToString::to_string),
        "outcome": evidence.map(|evidence| evidence.outcome.name()),
        "reason": evidence.and_then(|evidence| evidence.reason.as_deref()),
        "network": fetched.reached.as_ref().map(network),
        "exit": evidence.and_then(|evidence| evidence.exit),
        "tail": evidence.map(|evidence| evidence.tail.as_str()),
    })
}
