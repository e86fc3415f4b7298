//! The same check over and over: each execution a sandbox of its own, recorded like any other, none answered from the
//! record. Several at a time, by workers forked with everything looked up, so that all have the very same key. When to go
//! on and what it all means is the director's.
#![forbid(unsafe_code)]

use crate::model::case::Case;
use crate::model::event::{Event, Sink, Stream};
use crate::model::evidence::Evidence;
use crate::pipeline::ground::Ground;
use crate::pipeline::runs::{self, Means};
use crate::pipeline::{Caching, PipelineError, Prepared, Surroundings};
use crate::results::Results;
use crate::sandbox::{Crew, Heard, Interrupts};
use crate::store::Store;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// How often a director that has nothing to decide is asked all the same, for its progress line and its deadline.
const TICK: Duration = Duration::from_millis(100);

/// SIGTERM (signal(7)), by which a worker ends what it runs.
const GIVE_UP: i32 = 15;

/// One execution.
#[derive(Clone, PartialEq, Debug)]
pub struct Execution {
    /// Goes up in the order in which executions were started; from 0.
    pub number: u64,
    /// Which of the checks it was.
    pub variant: usize,
    /// What it showed.
    pub evidence: Evidence,
    /// Its tests by name, where they could be read.
    pub cases: Vec<Case>,
    /// What a person should know.
    pub warnings: Vec<String>,
}

/// Decides what is run, and learns what came of it.
pub trait Director {
    /// Which check to run next; `None` where no further one should be started now. With nothing running, that is the end.
    fn next(&mut self) -> Option<usize>;

    /// An execution has ended.
    fn ran(&mut self, execution: Execution);

    /// Some time has passed.
    fn tick(&mut self) {}

    /// Somebody wants it to end: nothing further is started, and what runs is stopped.
    fn interrupted(&mut self, signal: i32);

    /// Whether what still runs can be given up.
    fn is_done(&self) -> bool;
}

/// What a worker answers.
#[derive(Serialize, Deserialize)]
enum Said {
    Ran { evidence: Box<Evidence>, cases: Vec<Case>, warnings: Vec<String> },
    Failed { text: String, hint: Option<String> },
}

/// Takes signals over, so that what was running when one came can be ended in good order and told.
pub(crate) fn watch_signals(around: &Surroundings) -> Result<Interrupts, PipelineError> {
    Interrupts::take_over().map_err(|source| PipelineError::Folder {
        what: "watch for signals beside",
        path: around.store.cache.clone(),
        source,
    })
}

/// Runs checks, `jobs` at a time, until the director wants no more.
///
/// # Errors
/// Whatever keeps one of them from being decided; what was recorded before stays on record.
pub fn repeat(
    variants: &[&Prepared],
    jobs: usize,
    around: &Surroundings,
    director: &mut dyn Director,
) -> Result<(), PipelineError> {
    let failed = |what: &'static str| {
        move |source| PipelineError::Folder { what, path: around.store.cache.clone(), source }
    };
    let interrupts = watch_signals(around)?;
    let work = |socket: UnixStream| serve(variants, around, &interrupts, &socket);
    let mut crew = Crew::hire(jobs, &work)?;
    // Whoever closes the database last folds the log of pending writes in, which waits for the disk four times. With this
    // that is once, and not after each run. Where the store cannot be opened, the runs say so.
    let _open = Store::open_writer(&around.store).ok();
    let mut at_work: Vec<Option<(u64, usize)>> = vec![None; crew.len()];
    let (mut number, mut stopped) = (0, false);
    loop {
        for (worker, task) in at_work.iter_mut().enumerate().filter(|(_, task)| task.is_none()) {
            if stopped {
                break;
            }
            let Some(variant) = director.next() else { break };
            // One that is gone is heard of below.
            drop(crew.tell(worker, &variant.to_string()));
            *task = Some((number, variant));
            number += 1;
        }
        if at_work.iter().all(Option::is_none) {
            return Ok(());
        }
        if director.is_done() && !stopped {
            // What is as good as over still comes in, since it is on record; the rest is ended.
            stopped = true;
            crew.signal(GIVE_UP);
        }
        match crew.hear(&interrupts, TICK).map_err(failed("hear of runs beside"))? {
            Heard::Nothing => director.tick(),
            Heard::Signal(signal) => {
                stopped = true;
                director.interrupted(signal);
                crew.signal(signal);
            }
            // Whoever is being stopped may end in any way.
            Heard::Lost(worker) if stopped => at_work[worker] = None,
            Heard::Lost(_) => {
                return Err(PipelineError::Worker {
                    text: "a process that ran the check was killed from outside".to_owned(),
                    hint: Some("was it out of memory? give a lower `--jobs`".to_owned()),
                });
            }
            Heard::Answer(worker, line) => {
                let Some((number, variant)) = at_work[worker].take() else { continue };
                let said = serde_json::from_str(&line).map_err(|error| PipelineError::Worker {
                    text: format!("what a run came to cannot be read: {error}"),
                    hint: None,
                })?;
                match said {
                    Said::Failed { .. } if stopped => {}
                    Said::Failed { text, hint } => return Err(PipelineError::Worker { text, hint }),
                    Said::Ran { evidence, cases, warnings } => {
                        director.ran(Execution { number, variant, evidence: *evidence, cases, warnings });
                    }
                }
            }
        }
    }
}

/// The life of a worker: a line names a check, it is run, a line says what came of it.
fn serve(variants: &[&Prepared], around: &Surroundings, interrupts: &Interrupts, socket: &UnixStream) {
    // What a check depends on is kept once: the runs are of one key.
    let mut noted = vec![false; variants.len()];
    for line in BufReader::new(socket).lines() {
        let task = line.ok().and_then(|line| line.parse::<usize>().ok());
        let known = task.and_then(|number| variants.get(number).zip(noted.get_mut(number)));
        let Some((prepared, noted)) = known else { return };
        let mut listener = Listener::default();
        let said = match run(prepared, around, (interrupts, *noted), &mut listener) {
            Ok(evidence) => {
                *noted |= evidence.outcome.is_answer() && evidence.unobserved.is_none();
                Said::Ran {
                    evidence: Box::new(evidence),
                    cases: listener.results.finish(),
                    warnings: listener.warnings,
                }
            }
            Err(error) => Said::Failed { text: error.to_string(), hint: error.hint() },
        };
        // Text keys and finite numbers only, so this cannot fail.
        let mut answer = serde_json::to_vec(&said).unwrap_or_default();
        answer.push(b'\n');
        let mut socket = socket;
        if socket.write_all(&answer).is_err() {
            return;
        }
    }
}

/// One execution: recorded, and on spare ground where the cache has no room.
fn run(
    prepared: &Prepared,
    around: &Surroundings,
    (interrupts, again): (&Interrupts, bool),
    sink: &mut Listener,
) -> Result<Evidence, PipelineError> {
    let (caching, log) = (Caching::Refresh, None::<PathBuf>);
    let ground = Ground::usual(around, caching)?;
    let means = Means { caching, around, ground: &ground, interrupts, again };
    let answered = match runs::run(prepared, means, log.clone(), sink) {
        Err(error) if Ground::is_to_blame(&error, caching) => {
            sink.event(Event::Warning(&format!("the result is not recorded: {error}")));
            let ground = Ground::spare(around)?;
            runs::run(prepared, Means { ground: &ground, ..means }, log, sink)?
        }
        other => other?,
    };
    Ok(answered.evidence)
}

/// Reads tests from the output and keeps warnings.
#[derive(Default)]
struct Listener {
    results: Results,
    warnings: Vec<String>,
}

impl Sink for Listener {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Output(stream, bytes) => self.results.push(stream == Stream::Stderr, bytes),
            Event::Results(bytes) => self.results.file(bytes),
            Event::Warning(text) => self.warnings.push(text.to_owned()),
            _ => {}
        }
    }
}
