//! An experiment as a page of HTML: what was turned and what came of it. Nothing is judged here.
#![forbid(unsafe_code)]

use crate::commands::flake::explain::told::Report;
use crate::commands::flake::page::bar;
use crate::report::{Cell, Page, percent, seconds};

/// How sure the stretch is in which a rate may be.
const CONFIDENCE: f64 = 0.95;

/// The page.
pub(super) fn html(report: &Report) -> String {
    let mut page = Page::new(&report.cmd, &report.headline());
    page.section(
        "As it is",
        "From never on the left to always on the right: seen, and where the rate may be.",
    );
    let (n, k) = (report.base.passed + report.base.failed, report.base.failed);
    page.bars(&[bar("the check", (n, k), CONFIDENCE, &format!("{k} of {n} failed"))]);
    page.section(
        "What was turned",
        "Failures of all runs, for each value of each input; the darker, the more. A border marks what is no chance.",
    );
    let mut axes: Vec<&str> = report.arms.iter().map(|arm| arm.axis).collect();
    axes.dedup();
    for axis in axes {
        let of_axis = report.arms.iter().filter(|arm| arm.axis == axis);
        let cells: Vec<Cell> = of_axis
            .map(|arm| {
                let tally = arm.confirmed.unwrap_or(arm.screened);
                Cell {
                    // The option's name is the heading's business; of a date, so are its last zeros.
                    label: arm.label().to_owned(),
                    failed: tally.failed,
                    runs: tally.passed + tally.failed,
                    sure: arm.significant,
                }
            })
            .collect();
        page.cells(axis, &cells);
    }
    let unsettled = report.unsettled();
    if !unsettled.is_empty() {
        page.section("Not settled", "The experiment was interrupted; what follows is no finding.");
        page.list(&unsettled);
    }
    if !report.edges.is_empty() {
        page.section("Where it turns", "Found by halving, to the second.");
        page.list(&report.edges.iter().map(|edge| edge.text()).collect::<Vec<_>>());
    }
    if !report.tests.is_empty() {
        page.section(
            "Tests that depend on others",
            "Found by running them alone and after parts of the rest.",
        );
        page.list(&report.tests.iter().map(|test| test.text()).collect::<Vec<_>>());
    }
    let mut facts = Vec::new();
    for (name, found, rate) in [("fails", &report.fails, 1.0), ("passes", &report.passes, 0.0)] {
        if let Some((command, failing)) = found {
            let share = if rate > 0.5 { *failing } else { 1.0 - failing };
            facts.push((name, format!("{} of the time: {command}", percent(share))));
        }
    }
    if !facts.is_empty() {
        page.section(
            "To see it",
            "The command with the highest rate of failures seen, and the one with the lowest.",
        );
        page.facts(&facts);
    }
    page.section("What it cost", "Each run is a sandbox of its own.");
    let mut facts = vec![
        ("tree", report.tree.clone()),
        ("key", report.key.clone()),
        ("runs", format!("{} in {}", report.runs, seconds(report.secs))),
    ];
    facts.extend(report.skipped.iter().map(|(axis, why)| ("not turned", format!("{axis}: {why}"))));
    page.facts(&facts);
    page.finish()
}
