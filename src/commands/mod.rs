//! The front doors: from parsed words to an exit status. The only place that reads the environment, and the only one
//! that knows every room; what a check is and how it is run lies behind `pipeline`.
#![forbid(unsafe_code)]

mod certify;
mod clock_check;
mod doctor;
mod failure;
mod flake;
mod git;
mod init;
mod inputs;
mod isolation;
mod listing;
mod partials;
mod prepare;
mod reconcile;
mod records;
mod rollback;
mod run;
mod self_run;
mod session;
mod steps;
mod upkeep;

pub use failure::Failure;
pub use session::Session;

use crate::cli::{self, Invocation, Request};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// checkrun could not decide.
pub const UNDECIDED: u8 = 125;

/// Does what a command line asks for, the program's name first.
#[must_use]
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let invocation = match cli::parse(args) {
        Ok(invocation) => invocation,
        Err(exit) => {
            // A closed pipe is no reason to complain: nobody reads.
            let written = if exit.to_stdout {
                std::io::stdout().write_all(exit.text.as_bytes())
            } else {
                std::io::stderr().write_all(exit.text.as_bytes())
            };
            drop(written);
            return ExitCode::from(exit.status);
        }
    };
    let mut session = match Session::new(&invocation) {
        Ok(session) => session,
        Err((mut reporter, failure)) => {
            reporter.failure(&failure.text, failure.hint.as_deref());
            return ExitCode::from(UNDECIDED);
        }
    };
    match dispatch(invocation, &mut session) {
        Ok(status) => ExitCode::from(session.checked(status)),
        Err(failure) => {
            session.reporter.failure(&failure.text, failure.hint.as_deref());
            ExitCode::from(failure.status)
        }
    }
}

fn dispatch(invocation: Invocation, session: &mut Session) -> Result<u8, Failure> {
    match invocation.request {
        Request::Run(request) => run::run(*request, session),
        Request::Explain(request) => records::explain(*request, session),
        Request::Log { tree } => records::log(tree.as_deref(), session),
        Request::Show { record, log, inputs: false } => records::show(&record, log, session),
        Request::Show { record, .. } => inputs::show(&record, session),
        Request::Inputs { check, trace } => inputs::inputs(*check, trace, session),
        Request::Policies { name } => listing::policies(name.as_deref(), session),
        Request::Runners { name } => listing::runners(name.as_deref(), session),
        Request::ClockReport { child } => clock_check::report(child, session),
        Request::Init => init::init(session),
        Request::AttemptsReport { host, file } => isolation::report(host, &file, session),
        Request::Doctor => doctor::doctor(session),
        Request::Prepare(request) => prepare::prepare(*request, session),
        Request::Gc(wanted) => upkeep::gc(wanted, session),
        Request::Reconcile(request) => reconcile::reconcile(*request, session),
        Request::Certify(request) => certify::certify(*request, session),
        Request::Rollback(request) => rollback::rollback(*request, session),
        Request::Partials => partials::list(session),
        Request::PartialsApply { name } => partials::apply(&name, session),
        Request::LedgerCheck { file } => reconcile::check_ledger(&file, session),
        Request::Flake(request) => flake::flake(*request, session),
        Request::Flakes => flake::flakes(session),
        Request::Text(text) => {
            text_of(&text, session);
            Ok(0)
        }
    }
}

/// Prints a text that is data: as it is, or as an object where these are asked for.
fn text_of(text: &[u8], session: &mut Session) {
    if session.reporter.is_json() {
        session.reporter.object(&serde_json::json!({"text": String::from_utf8_lossy(text)}));
    } else {
        session.reporter.data(text);
    }
}
