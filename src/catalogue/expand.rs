//! Writes a policy or a runner out in full, as TOML that reads back to the same. Nothing is decided here.
#![forbid(unsafe_code)]

use crate::catalogue::document::{FORMAT, quoted};
use crate::catalogue::policy::Reasons;
use crate::model::layer::{Layer, Need};
use crate::model::policy::{Clock, GitView, Network, Policy, Visible};
use crate::model::runner::Runner;
use crate::model::units::{show_cpus, show_duration, show_instant};

/// The reason written where the policy was changed after it was read.
const CHANGED: &str = "Set by the command line or by the repository's own settings.";

/// One table of the text to come.
#[derive(Default)]
struct Text(String);

impl Text {
    fn heading(&mut self, heading: &str) {
        self.0.push('\n');
        self.0.push_str(heading);
        self.0.push('\n');
    }

    fn raw(&mut self, key: &str, value: &str) {
        self.0.push_str(key);
        self.0.push_str(" = ");
        self.0.push_str(value);
        self.0.push('\n');
    }

    fn text(&mut self, key: &str, value: &str) {
        self.raw(key, &quoted(value));
    }

    fn texts<'v>(&mut self, key: &str, values: impl Iterator<Item = &'v str>) {
        let values: Vec<String> = values.map(quoted).collect();
        // An empty list says nothing that its absence does not.
        if values.is_empty() {
            return;
        }
        self.raw(key, &format!("[{}]", values.join(", ")));
    }

    fn visible(&mut self, visible: &[Visible]) {
        for entry in visible {
            self.heading("[[visible]]");
            self.text("path", &entry.path.to_string_lossy());
            if entry.optional {
                self.raw("optional", "true");
            }
            self.text("why", &entry.why);
        }
    }
}

/// The policy in full, with its reasons; reads back as the same policy.
#[must_use]
pub fn expand(policy: &Policy, reasons: &Reasons) -> String {
    let mut text = Text::default();
    let why = |text: &mut Text, key: &str, needed: bool| match reasons.get(key) {
        Some(reason) => text.text("why", reason),
        None if needed => text.text("why", CHANGED),
        None => {}
    };
    text.0 = format!("# policy {}\nformat = {FORMAT}\n", policy.name.escape_default());
    text.text("description", &policy.description);
    text.text("level", policy.level.name());
    text.heading("[network]");
    text.text("mode", policy.network.name());
    why(&mut text, "network", policy.network != Network::Loopback);
    for named in &policy.hosts {
        text.heading("[[network.host]]");
        text.text("name", &named.rule.to_string());
        if named.rule.private {
            text.raw("private", "true");
        }
        text.text("why", &named.why);
    }
    text.heading("[aslr]");
    text.text("mode", policy.aslr.name());
    why(&mut text, "aslr", true);
    text.heading("[clock]");
    match policy.clock {
        Clock::Fixed { start, mode } => {
            text.text("mode", mode.name());
            text.text("start", &show_instant(start));
        }
        Clock::Commit { mode } => {
            text.text("mode", mode.name());
            text.text("start", "commit");
        }
        Clock::Host => text.text("mode", "host"),
    }
    why(&mut text, "clock", policy.clock == Clock::Host);
    text.heading("[git]");
    text.text("view", if policy.git == GitView::None { "none" } else { "synthetic" });
    why(&mut text, "git", policy.git == GitView::Synthetic);
    limits(&mut text, policy);
    for layer in Layer::ALL {
        let need = policy.layers.get(&layer).copied().unwrap_or(Need::Off);
        text.heading(&format!("[layers.{layer}]"));
        text.text(
            "need",
            match need {
                Need::Require => "require",
                Need::Prefer => "prefer",
                Need::Off => "off",
            },
        );
        why(&mut text, &format!("layers.{layer}"), need != Need::Require);
    }
    text.visible(&policy.visible);
    text.0
}

fn limits(text: &mut Text, policy: &Policy) {
    let limits = &policy.limits;
    text.heading("[limits]");
    text.text("timeout", &show_duration(limits.timeout));
    if let Some(memory) = limits.memory {
        text.text("memory", &memory.to_string());
    }
    if let Some(pids) = limits.pids {
        text.raw("pids", &pids.to_string());
    }
    if let Some(milli) = limits.cpus_milli {
        text.raw("cpus", &show_cpus(milli));
    }
    text.text("disk", &limits.disk.to_string());
    text.text("output", &limits.output.to_string());
}

/// What a runner says to people whose check fails.
fn told(text: &mut Text, runner: &Runner) {
    if !runner.install.is_empty() {
        text.heading("[install]");
    }
    for (name, how) in &runner.install {
        text.text(&key(name), how);
    }
    for advice in &runner.advice {
        text.heading("[[advice]]");
        text.texts("output", advice.output.iter().map(String::as_str));
        text.text("say", &advice.say);
        if advice.prepare {
            text.raw("prepare", "true");
        }
    }
}

/// A name as a key of TOML's, in quotes where it has to be.
fn key(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if !name.is_empty() && name.bytes().all(plain) { name.to_owned() } else { quoted(name) }
}

/// The runner in full; reads back as the same runner.
#[must_use]
pub fn expand_runner(runner: &Runner) -> String {
    let mut text = Text(format!("# runner {}\nformat = {FORMAT}\n", runner.name.escape_default()));
    text.text("description", &runner.description);
    text.texts("serves", runner.serves.iter().map(String::as_str));
    if let Some(reading) = runner.summary {
        text.text("summary", reading.name());
    }
    if !runner.prelude.is_empty() {
        text.text("prelude", &runner.prelude);
    }
    text.texts("results", runner.results.iter().map(String::as_str));
    text.texts("lacks", runner.lacks.iter().map(String::as_str));
    let rule = &runner.toolchain;
    text.heading("[toolchain]");
    for (key, value) in [
        ("program", rule.program.clone()),
        ("inside", rule.inside.as_ref().map(|path| path.to_string_lossy().into_owned())),
        ("bin", rule.bin.as_ref().map(|path| path.to_string_lossy().into_owned())),
        ("version_file", rule.version_file.as_ref().map(|path| path.to_string_lossy().into_owned())),
        ("platform_folder", rule.platform_folder.as_ref().map(|path| path.to_string_lossy().into_owned())),
        ("shim", rule.shim.clone()),
    ] {
        if let Some(value) = value {
            text.text(key, &value);
        }
    }
    text.texts("root_holds", rule.root_holds.iter().map(String::as_str));
    text.texts("identified_by", rule.identified_by.iter().filter_map(|path| path.to_str()));
    text.heading("[env]");
    for (name, value) in &runner.env {
        text.text(name, value);
    }
    for cache in &runner.caches {
        text.heading("[[cache]]");
        text.text("variable", &cache.variable);
        text.text("folder", &cache.folder.to_string_lossy());
        text.text("below", &cache.below.to_string_lossy());
        text.text("inside", &cache.inside.to_string_lossy());
        text.text("why", &cache.why);
    }
    text.visible(&runner.visible);
    for found in &runner.found {
        text.heading("[[found]]");
        text.text("folder", &found.folder.to_string_lossy());
        if let Some(bin) = &found.bin {
            text.text("bin", &bin.to_string_lossy());
        }
    }
    for step in &runner.prepare {
        text.heading("[[prepare]]");
        text.texts("when", step.when.iter().filter_map(|path| path.to_str()));
        text.texts("inputs", step.inputs.iter().map(String::as_str));
        if step.whole_tree {
            text.raw("whole_tree", "true");
        }
        if let Some(file) = &step.optional_without {
            text.text("optional_without", &file.to_string_lossy());
        }
        text.text("run", &step.run);
        if !step.build.is_empty() {
            text.text("build", &step.build);
        }
        text.texts("tree", step.tree.iter().filter_map(|path| path.to_str()));
        text.texts("home", step.home.iter().filter_map(|path| path.to_str()));
        text.texts("path", step.path.iter().filter_map(|path| path.to_str()));
    }
    told(&mut text, runner);
    text.0
}
