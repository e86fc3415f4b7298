//! The one integration test binary: everything here looks at the built program from outside.
#![expect(unreachable_pub, reason = "a test binary has no outside")]
#![expect(clippy::unwrap_used, reason = "a test that meets nothing where something should be has failed")]

/// What every test stands on.
mod support;

/// Certifying steps and going back from them.
mod certify;
/// The clock: what its options and settings say.
mod clock_options;
/// The clock: languages, debuggers and filters.
mod clock_programs;
/// The clock: every way of reading it.
mod clock_reads;
/// The clock: every way of waiting on it.
mod clock_waits;
/// What a user and a harness can rely on: options, statuses, the result object.
mod contract;
/// Bits that flip and files that are cut, in all that the cache holds.
mod corruption;
/// Killed at any moment.
mod crashes;
/// Many processes on one cache.
mod crowd;
/// Disks that are full or fail, and clocks that are set back.
mod disks;
/// How a run ends, and that nothing of it is left.
mod ending;
/// Attempts to get out, in hundreds.
mod escapes;
/// Checks that take whatever they can get.
mod exhaustion;
/// How flaky a check is.
mod flake;
/// Why a check is flaky.
mod flake_causes;
/// Checks of known truth, and whether it is found.
mod flake_generators;
/// An experiment on a flaky check that somebody ends.
mod flake_interrupted;
/// Published packages whose tests are flaky, and whether the cause is found.
mod flake_packages;
/// What a session of flakes leaves to read.
mod flake_pages;
/// What is known to be flaky and does not gate, and what is kept of single tests.
mod flake_quarantine;
/// Why a check is flaky, where its surroundings decide.
mod flake_surroundings;
/// Each test of a flaky check by name.
mod flake_tests;
/// One check from question to answer.
mod flow;
/// Each parser of foreign bytes, given thousands of inputs.
mod foreign_bytes;
/// The same bytes, as the built program meets them.
mod foreign_input;
/// The guides in docs/, run.
mod guides;
/// What a check takes its surroundings for, by `--vary`.
mod guises;
/// Help, version, manual page, completions.
mod help;
/// Guard `inputs`: observed inputs.
mod inputs;
/// Guard `inputs` where observing is hard.
mod inputs_odd;
/// The library's public interface, against a list.
mod interface;
/// Nothing gets out by files, mounts or links.
mod jail_files;
/// A loopback of its own and nothing else.
mod jail_network;
/// What processes may do to each other.
/// What may be traced, debugged, nested and inherited.
mod jail_processes;
/// What test suites need to see is there.
mod jail_view;
/// What a key holds and what it leaves out.
mod keys;
/// Machines as containers, sandboxes and hardened systems have them.
mod ladder;
/// What holds without namespaces.
mod landlock_level;
/// Files of ledgers: how large, how bad, and when they are not written.
mod ledgers;
/// Limits hold, are told by their own words, and are refused where they cannot be kept.
mod limits;
/// What a person sees, in a terminal.
mod looks;
/// Bad input.
mod messages;
/// Guard `inputs` on real checks, in a repository that changes at random.
mod mutations;
/// What the check prints.
mod output;
/// Which processors a check may use, and how it fares among many.
mod processors;
/// Which steps of a ledger hold.
mod reconcile;
/// Ledgers that are none, and commits that stand for one.
mod reconcile_input;
/// What is kept of a run and what of that answers.
mod records;
/// What harnesses read is as its schemas say.
mod schemas;
/// What people do wrong in their first hour.
mod slips;
/// A run of twelve steps, killed wherever it can be.
mod story;
/// The same, killed before each single change that a command makes.
mod story_points;
/// Toolchains that are missing, have moved, are too old or stand behind broken shims, and commands that two runners claim.
mod toolchains_amiss;
/// Which tree is checked.
mod trees;
/// The commands beside the check itself.
mod upkeep;
/// Machines that lack something, and the caller's terminal.
mod worse_machines;

/// What is built in: licences, versions of Rust.
mod dependencies;
/// The README, the change log and the help say the same.
mod documents;
/// The source text itself: layers, names, lengths.
mod layering;
/// Installed packages: prepared, found, and out of reach of what checks do to them.
mod packages;
/// A published program and its dependencies, compiled beforehand.
mod real_warm;

/// Compiled packages for Go modules.
mod warm_go;

/// Compiled dependencies of Rust projects.
mod warm_rust;

/// Builds with Maven, CMake and autotools.
mod packages_builds;
/// Node projects.
mod packages_node;
/// Python projects of every form.
mod packages_python;
/// The Debian package.
mod packaging;
/// What of the network a preparation has.
mod prepare_network;
/// What install scripts find and reach.
mod prepare_scripts;
/// Files of test results.
mod results;

/// Real projects under check.
mod real;
/// Real projects that pass at some dates only, and debuggers.
mod real_dates;

/// Trees on disk, layer upon layer.
mod layers;

/// Every layout that git has.
mod layouts;

/// Hostile trees and very large ones.
mod hostile_trees;

/// Submodules and LFS files.
mod foreign_content;

/// The repository inside, where a policy shows one.
mod synthetic_git;

/// Trees that nobody thought of.
mod random_trees;

/// Pages of CI systems: annotations, summaries, JUnit.
mod pages;
/// Parts of trees, by pathspec.
mod pathspecs;
