//! From "the order matters" to names. A test that fails where it ran after others and passes alone is a victim, and the one
//! that spoils it is looked for among those before it by halving; one that fails alone and passes after others is brittle,
//! and the one that it leans on is found in the same way. A pair counts only when fresh runs confirm it.
#![forbid(unsafe_code)]

use crate::commands::flake::explain::axes::{Arm, Turn};
use crate::commands::flake::explain::suite::Suite;
use crate::commands::flake::explain::{Bench, SURE, Tried, chance};
use crate::commands::{Failure, Session};
use crate::model::evidence::Tally;
use crate::model::shell::shell_words;
use serde::Serialize;
use std::collections::HashMap;
use std::time::Duration;

/// Most tests that are looked into.
const TESTS: usize = 5;
/// Runs of a test alone, by which it is called one or the other.
const ALONE: u64 = 3;
/// Runs at each halving.
const HALVING: u64 = 2;
/// Runs of each side by which a pair is confirmed.
const PAIR: u64 = 8;

/// A test that depends on those that ran before it in the same process.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Dependent {
    /// `victim` or `brittle`.
    pub(super) kind: &'static str,
    pub(super) test: String,
    /// The test before it that makes the difference; null where no single one does.
    pub(super) other: Option<String>,
    /// The shortest command found in which it fails, and how often.
    pub(super) fails: (String, f64),
    /// The same for one in which it passes.
    pub(super) passes: (String, f64),
    /// How likely the difference is by chance.
    pub(super) chance: f64,
}

impl Dependent {
    pub(super) fn text(&self) -> String {
        match (self.kind, &self.other) {
            ("victim", Some(other)) => format!("victim: {} fails after {other} and passes alone", self.test),
            ("victim", None) => format!("victim: {} fails after others and passes alone", self.test),
            (_, Some(other)) => format!("brittle: {} fails alone and passes after {other}", self.test),
            (_, None) => format!("brittle: {} fails alone and passes after others", self.test),
        }
    }
}

/// Looks into the tests that went another way in one of the orders than in the suite's own, which is given with it.
pub(super) fn dependents(
    bench: &mut Bench<'_>,
    (suite, own): (&Suite, &Names),
    tried: &[Tried],
    found: &mut Vec<Dependent>,
    session: &mut Session,
) -> Result<(), Failure> {
    let own_command = suite.told();
    let orders = tried.iter().filter(|it| it.arm.axis == "order" && it.is_cause());
    for it in orders {
        let changed: Vec<String> = it
            .names
            .order
            .iter()
            .filter(|test| own.failed(test).is_some_and(|failed| it.names.failed(test) == Some(!failed)))
            .cloned()
            .collect();
        for test in changed {
            if found.len() >= TESTS || found.iter().any(|known| known.test == test) {
                continue;
            }
            let arm = Order(&it.names, it.arm.command().unwrap_or_default());
            let own = Order(own, &own_command);
            let (failing, passing) =
                if it.names.failed(&test) == Some(true) { (arm, own) } else { (own, arm) };
            let mut search = Search { bench, suite, test: &test };
            found.extend(search.look(failing, passing, session)?);
        }
    }
    Ok(())
}

/// What became of tests by name over some runs of one command, and what these runs used.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Names {
    /// In the order of the first run.
    pub(super) order: Vec<String>,
    pub(super) tallies: HashMap<String, Tally>,
    /// The most memory that each run held at one time, in bytes, and how long it took.
    pub(super) used: Vec<(u64, Duration)>,
}

impl Names {
    /// Whether a test failed each time, or passed each time.
    pub(super) fn failed(&self, test: &str) -> Option<bool> {
        super::pure(*self.tallies.get(test)?).map(|passed| !passed)
    }

    /// The tests that ran before that one.
    fn before(&self, test: &str) -> Vec<String> {
        self.order.iter().take_while(|other| *other != test).cloned().collect()
    }
}

/// What came of the tests in one order, and the command that runs them so.
#[derive(Clone, Copy)]
struct Order<'o>(&'o Names, &'o [Vec<u8>]);

struct Search<'s, 'b> {
    bench: &'s mut Bench<'b>,
    suite: &'s Suite,
    test: &'s str,
}

impl Search<'_, '_> {
    fn look(
        &mut self,
        failing: Order<'_>,
        passing: Order<'_>,
        session: &mut Session,
    ) -> Result<Option<Dependent>, Failure> {
        let Some(alone) = self.fails_after(&[], ALONE, session)? else { return Ok(None) };
        // Where it fails after others, they spoil it; where it passes only after others, they set it up.
        let (kind, Order(names, whole), wanted) =
            if alone { ("brittle", passing, false) } else { ("victim", failing, true) };
        let before = names.before(self.test);
        if before.is_empty() || !self.suite.keeps_order() {
            return self.confirmed(kind, Vec::new(), whole, session);
        }
        let mut group = before;
        while group.len() > 1 {
            let half = group.split_off(group.len() / 2);
            // The later half first: what is nearer is more often to blame.
            let part = if self.fails_after(&half, HALVING, session)? == Some(wanted) {
                half
            } else if self.fails_after(&group, HALVING, session)? == Some(wanted) {
                group
            } else {
                // It takes some of both halves.
                return self.confirmed(kind, Vec::new(), whole, session);
            };
            group = part;
        }
        self.confirmed(kind, group, whole, session)
    }

    /// Whether the test fails each time, or passes each time, after those.
    fn fails_after(
        &mut self,
        before: &[String],
        times: u64,
        session: &mut Session,
    ) -> Result<Option<bool>, Failure> {
        let tests = [before, &[self.test.to_owned()]].concat();
        let Some(argv) = self.suite.only(&tests) else { return Ok(None) };
        let names = self.bench.run_command(argv, times, session)?;
        Ok(names.failed(self.test))
    }

    /// Fresh runs of the test after the other one, or after all of them, beside fresh runs of it alone.
    fn confirmed(
        &mut self,
        kind: &'static str,
        other: Vec<String>,
        whole: &[Vec<u8>],
        session: &mut Session,
    ) -> Result<Option<Dependent>, Failure> {
        let me = vec![self.test.to_owned()];
        let together = if other.is_empty() {
            Some(whole.to_vec())
        } else {
            self.suite.only(&[other.clone(), me.clone()].concat())
        };
        let (Some(together), Some(alone)) = (together, self.suite.only(&me)) else { return Ok(None) };
        let after = self.bench.run_command(together.clone(), PAIR, session)?;
        let beside = self.bench.run_command(alone.clone(), PAIR, session)?;
        let tally = |names: &Names| names.tallies.get(self.test).copied().unwrap_or_default();
        let (after, beside) = (tally(&after), tally(&beside));
        let chance = chance(after, beside);
        if chance >= SURE {
            return Ok(None);
        }
        let command = |argv: &[Vec<u8>], tally| (self.bench.command(argv), super::told::rate(tally));
        let (together, alone) = (command(&together, after), command(&alone, beside));
        let (fails, passes) = if kind == "victim" { (together, alone) } else { (alone, together) };
        let other = other.into_iter().next();
        Ok(Some(Dependent { kind, test: self.test.to_owned(), other, fails, passes, chance }))
    }
}

impl Bench<'_> {
    /// Runs another command on the same tree, with the same runner and everything else as it is.
    pub(super) fn run_command(
        &mut self,
        argv: Vec<Vec<u8>>,
        times: u64,
        session: &mut Session,
    ) -> Result<Names, Failure> {
        let arm = Arm { axis: "order", cause: "test-order", turn: Turn::Command(String::new(), argv) };
        let ready = self.prepare(&arm)?;
        let (_, names) = self.run(&[&ready], &[times], session)?;
        Ok(names.into_iter().next().unwrap_or_default())
    }

    /// A command line that runs those words as a check, with the options that were given.
    pub(super) fn command(&self, argv: &[Vec<u8>]) -> String {
        format!("{} -- {}", self.asked.start(false), shell_words(argv))
    }
}
