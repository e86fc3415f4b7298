//! From the values of a file to the model: which of the shapes it has, and what its fields must be. Unknown fields are
//! left alone.
#![forbid(unsafe_code)]

use crate::ledger::json::{self, Member, Node, Value};
use crate::ledger::order::{Disorder, order};
use crate::ledger::{Document, Evidence, Failure, Ledger, LedgerError, PastFailure, Pattern, Shape, Step};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

/// Steps of one ledger.
const MAX_STEPS: usize = 100_000;

/// Something wrong at a byte of the text.
type Wrong = json::Fault;

/// Reads the text of a ledger.
pub(super) fn document(path: &Path, text: String) -> Result<Document, LedgerError> {
    let told = |text: &str, fault: Wrong| {
        let (line, column) = json::place(text, fault.at);
        LedgerError::Document { path: path.to_owned(), line, column, problem: fault.problem }
    };
    let root = json::parse(&text).map_err(|fault| told(&text, fault))?;
    match ledger(&root) {
        Ok((ledger, steps)) => Ok(Document { path: path.to_owned(), ledger, text, steps }),
        Err(fault) => Err(told(&text, fault)),
    }
}

fn wrong<T>(node: &Node, problem: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { at: node.span.start, problem: problem.into() })
}

/// The list of steps, under which name it is, and the shape that follows from it.
fn recognise(root: &Node) -> Result<(Shape, &'static str, &Node), Wrong> {
    if matches!(root.value, Value::List(_)) {
        return Ok((Shape::Backlog, "slice", root));
    }
    let known = [
        ("steps", Shape::Task, "step"),
        ("features", Shape::Progress, "feature"),
        ("slices", Shape::Backlog, "slice"),
    ];
    let mut found = known.iter().filter_map(|(key, shape, word)| Some((*key, *shape, *word, root.get(key)?)));
    let accepted = "a ledger is an object with a list `steps`, `features` or `slices`, or a list of slices";
    let Some((key, shape, word, list)) = found.next() else {
        let what = root.value.words();
        return wrong(root, format!("this is {what} and no ledger; {accepted}"));
    };
    if let Some((other, _, _, node)) = found.next() {
        return wrong(node, format!("both `{key}` and `{other}` are there; {accepted}"));
    }
    match &list.value {
        Value::List(_) => Ok((shape, word, list)),
        other => wrong(list, format!("`{key}` is {}, not a list", other.words())),
    }
}

fn ledger(root: &Node) -> Result<(Ledger, BTreeMap<usize, Node>), Wrong> {
    let (shape, word, list) = recognise(root)?;
    let Value::List(items) = &list.value else { return wrong(list, "not a list") };
    if items.len() > MAX_STEPS {
        return wrong(list, format!("more than {MAX_STEPS} {word}s"));
    }
    let mut read: Vec<(Step, &Node)> = Vec::with_capacity(items.len());
    let mut proposed = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut nodes = BTreeMap::new();
    for (place, item) in items.iter().enumerate() {
        let Value::Object(members) = &item.value else {
            return wrong(item, format!("{word} {} is {}, not an object", place + 1, item.value.words()));
        };
        let fields = Fields { word, node: item, members };
        let step = fields.step(shape, place)?;
        let at = item.get("id").unwrap_or(item);
        if let Some(before) = known.insert(step.id.clone(), place) {
            return wrong(at, format!("id `{}` is there twice: {word} {} has it too", step.id, before + 1));
        }
        nodes.insert(place, item.clone());
        if shape == Shape::Progress && step.status.as_deref() == Some("proposed") {
            proposed.push(step.id);
        } else {
            read.push((step, item));
        }
    }
    let steps = ordered(read, word)?;
    let text = |key: &str| optional(root.get(key), |node| words(node, key));
    let plan_version = optional(root.get("plan_version"), |node| version(node, "plan_version"))?;
    let task = match text("task")? {
        Some(task) => task,
        None => text("goal")?.unwrap_or_default(),
    };
    Ok((Ledger { shape, task, plan_version, run: text("run")?, steps, proposed }, nodes))
}

/// Sorts the steps and sees to it that what they name is there.
fn ordered(read: Vec<(Step, &Node)>, word: &str) -> Result<Vec<Step>, Wrong> {
    let names: Vec<(&str, &[String])> =
        read.iter().map(|(step, _)| (step.id.as_str(), step.depends_on.as_slice())).collect();
    let places = order(&names).map_err(|disorder| match disorder {
        Disorder::Unknown(place, index) => {
            let (step, node) = &read[place];
            let at = match node.get("depends_on").map(|node| &node.value) {
                Some(Value::List(items)) => items.get(index).unwrap_or(node),
                _ => node,
            };
            let missing = &step.depends_on[index];
            Wrong {
                at: at.span.start,
                problem: format!("`{}` depends on `{missing}`, and there is no such {word}", step.id),
            }
        }
        Disorder::Cycle(cycle) => {
            let mut names: Vec<String> =
                cycle.iter().map(|place| format!("`{}`", read[*place].0.id)).collect();
            names.extend(names.first().cloned());
            let node = cycle.first().map(|place| read[*place].1);
            let at = node.map_or(0, |node| node.get("depends_on").unwrap_or(node).span.start);
            Wrong { at, problem: format!("{word}s depend on each other in a ring: {}", names.join(" on ")) }
        }
    })?;
    let ids: HashSet<&str> = read.iter().map(|(step, _)| step.id.as_str()).collect();
    for (step, node) in &read {
        if let Some(back) = &step.rollback_to
            && !ids.contains(back.as_str())
        {
            let at = node.get("rollback_to").unwrap_or(node);
            return wrong(at, format!("`{}` rolls back to `{back}`, and there is no such {word}", step.id));
        }
    }
    let mut steps: Vec<Option<Step>> = read.into_iter().map(|(step, _)| Some(step)).collect();
    Ok(places.into_iter().filter_map(|place| steps[place].take()).collect())
}

/// The members of one step.
struct Fields<'n> {
    word: &'static str,
    node: &'n Node,
    members: &'n [Member],
}

impl Fields<'_> {
    fn get(&self, key: &str) -> Option<&Node> {
        self.members.iter().find(|member| member.key == key).map(|member| &member.node)
    }

    fn text(&self, key: &str) -> Result<Option<String>, Wrong> {
        optional(self.get(key), |node| words(node, key))
    }

    fn step(&self, shape: Shape, place: usize) -> Result<Step, Wrong> {
        let Some(node) = self.get("id") else {
            return wrong(self.node, format!("{} {} has no `id`", self.word, place + 1));
        };
        let id = words(node, "id")?;
        if id.trim().is_empty() || id.len() > 200 || id.chars().any(char::is_control) {
            return wrong(node, "an `id` is 1 to 200 bytes of text without control characters");
        }
        let status = self.text("status")?;
        let is_proposed = shape == Shape::Progress && status.as_deref() == Some("proposed");
        let check = self.check(shape, &id, is_proposed)?;
        let touches = optional(self.get("touches"), |node| {
            texts(node, "touches")?
                .into_iter()
                .map(|(text, node)| match Pattern::parse(&text) {
                    Ok(pattern) => Ok(pattern),
                    Err(why) => wrong(node, format!("`touches` has `{}`: {why}", text.escape_debug())),
                })
                .collect()
        })?;
        let plain = |key: &str| {
            optional(self.get(key), |node| Ok(texts(node, key)?.into_iter().map(|(text, _)| text).collect()))
        };
        Ok(Step {
            title: self.text("title")?.unwrap_or_default(),
            touches,
            depends_on: plain("depends_on")?.unwrap_or_default(),
            check,
            rollback_to: self.text("rollback_to")?,
            status,
            evidence: optional(self.get("evidence"), evidence)?,
            attempts: optional(self.get("attempts"), |node| count(node, "attempts"))?.unwrap_or(0),
            last_failure: optional(self.get("last_failure"), failure)?,
            failures: optional(self.get("failures"), failures)?.unwrap_or_default(),
            place,
            id,
        })
    }

    /// The commands, under the name that the shape has for them.
    fn check(&self, shape: Shape, id: &str, may_lack: bool) -> Result<Vec<String>, Wrong> {
        let names: &[&str] =
            if shape == Shape::Progress { &["verify", "check"] } else { &["check", "verify"] };
        let found = names.iter().find_map(|name| Some((*name, self.get(name)?)));
        let hint = "a step that nothing can check cannot be certified";
        let Some((name, node)) = found.filter(|(_, node)| node.value != Value::Null) else {
            if may_lack {
                return Ok(Vec::new());
            }
            return wrong(self.node, format!("`{id}` has no `{}`; {hint}", names[0]));
        };
        let commands = texts(node, name)?;
        if may_lack {
            return Ok(commands.into_iter().map(|(text, _)| text).collect());
        }
        if commands.is_empty() {
            return wrong(node, format!("the `{name}` of `{id}` is an empty list; {hint}"));
        }
        for (text, node) in &commands {
            if text.trim().is_empty() {
                return wrong(node, format!("the `{name}` of `{id}` has an empty command; {hint}"));
            }
            if text.contains('\0') {
                return wrong(node, format!("the `{name}` of `{id}` holds a NUL byte, which no command can"));
            }
        }
        Ok(commands.into_iter().map(|(text, _)| text).collect())
    }
}

/// A field that may be missing or null.
fn optional<T>(
    node: Option<&Node>,
    read: impl FnOnce(&Node) -> Result<T, Wrong>,
) -> Result<Option<T>, Wrong> {
    node.filter(|node| node.value != Value::Null).map(read).transpose()
}

fn words(node: &Node, key: &str) -> Result<String, Wrong> {
    match &node.value {
        Value::Text(text) => Ok(text.clone()),
        other => wrong(node, format!("`{key}` is {}, not a text", other.words())),
    }
}

/// A list of texts; a single text stands for a list of one.
fn texts<'n>(node: &'n Node, key: &str) -> Result<Vec<(String, &'n Node)>, Wrong> {
    match &node.value {
        Value::Text(text) => Ok(vec![(text.clone(), node)]),
        Value::List(items) => items.iter().map(|item| Ok((words(item, key)?, item))).collect(),
        other => wrong(node, format!("`{key}` is {}, not a list of texts", other.words())),
    }
}

fn version(node: &Node, key: &str) -> Result<String, Wrong> {
    match &node.value {
        Value::Number(digits) => Ok(digits.clone()),
        Value::Text(text) => Ok(text.clone()),
        other => wrong(node, format!("`{key}` is {}, not a number or a text", other.words())),
    }
}

fn count(node: &Node, key: &str) -> Result<u64, Wrong> {
    match &node.value {
        Value::Number(digits) => {
            digits.parse().or_else(|_| wrong(node, format!("`{key}` is {digits}, not a count")))
        }
        other => wrong(node, format!("`{key}` is {}, not a count", other.words())),
    }
}

fn object<'n>(node: &'n Node, key: &str) -> Result<&'n Node, Wrong> {
    match &node.value {
        Value::Object(_) => Ok(node),
        other => wrong(node, format!("`{key}` is {}, not an object", other.words())),
    }
}

fn evidence(node: &Node) -> Result<Evidence, Wrong> {
    let node = object(node, "evidence")?;
    let text = |key: &str| optional(node.get(key), |node| words(node, key));
    if let Some(commands) = node.get("commands").filter(|node| node.value != Value::Null) {
        let Value::List(items) = &commands.value else {
            return wrong(commands, format!("`commands` is {}, not a list", commands.value.words()));
        };
        for item in items {
            let Some(cmd) = object(item, "commands")?.get("cmd") else {
                return wrong(item, "a command of the evidence has no `cmd`");
            };
            words(cmd, "cmd")?;
            for key in ["exit", "secs"] {
                if let Some(node) = item.get(key)
                    && !matches!(node.value, Value::Number(_) | Value::Null)
                {
                    return wrong(node, format!("`{key}` is {}, not a number", node.value.words()));
                }
            }
        }
    }
    // The version of the plan stands behind the definition, or in a field of its own.
    let made_for = text("definition")?;
    let (definition, behind) = match made_for.as_deref().and_then(|text| text.split_once('/')) {
        Some((definition, version)) => (Some(definition.to_owned()), Some(version.to_owned())),
        None => (made_for, None),
    };
    Ok(Evidence {
        at: text("at")?,
        tree: text("tree")?,
        definition,
        plan_version: optional(node.get("plan_version"), |node| version(node, "plan_version"))?.or(behind),
        is_boundary: node.get("boundary").is_none_or(|node| node.value != Value::Bool(false)),
    })
}

fn failure(node: &Node) -> Result<Failure, Wrong> {
    let node = object(node, "last_failure")?;
    let text = |key: &str| optional(node.get(key), |node| words(node, key));
    Ok(Failure {
        cmd: text("cmd")?.unwrap_or_default(),
        tree: text("tree")?,
        hypothesis: text("hypothesis")?,
    })
}

fn failures(node: &Node) -> Result<Vec<PastFailure>, Wrong> {
    let Value::List(items) = &node.value else {
        return wrong(node, format!("`failures` is {}, not a list", node.value.words()));
    };
    items
        .iter()
        .map(|item| {
            let item = object(item, "failures")?;
            let text = |key: &str| optional(item.get(key), |node| words(node, key));
            Ok(PastFailure {
                signature: text("signature")?.unwrap_or_default(),
                hypothesis: text("hypothesis")?,
            })
        })
        .collect()
}
