//! Looking after the machine and the cache: what the kernel offers, and making room.
#![forbid(unsafe_code)]

use crate::cli::Gc;
use crate::commands::{Failure, Session, clock_check};
use crate::flight;
use crate::logs;
use crate::model::layer::{Layer, LayerState, Level};
use crate::pipeline;
use crate::sandbox::probe::Abilities;
use crate::stage;
use crate::store::{Bounds, Store};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Serialize)]
struct Findings<'a> {
    /// The strongest level that the default policy's needs allow.
    level: Option<&'static str>,
    layers: BTreeMap<Layer, &'a LayerState>,
    overlay: LayerState,
    landlock_abi: u32,
    /// What a program in a real sandbox reads, where the clock can be fixed.
    clock_check: Option<clock_check::Findings>,
    host_uid: u32,
    host_gid: u32,
    kernel: String,
}

/// Tries each layer and tells what there is, what is missing and how to get it.
pub(super) fn doctor(session: &mut Session) -> Result<u8, Failure> {
    let found = session.around.probe()?;
    let level = level_of(&found);
    let has_clock =
        level == Some(Level::Full) && found.layers.get(&Layer::Clock).is_some_and(LayerState::is_enforced);
    let clock_check = has_clock.then(|| clock_check::check(session));
    let wrong = match &clock_check {
        Some(Ok(findings)) => findings.values().any(|finding| finding != "ok"),
        Some(Err(_)) => true,
        None => false,
    };
    if session.reporter.is_json() {
        session.reporter.object(&Findings {
            level: level.map(Level::name),
            layers: found.layers.iter().map(|(layer, state)| (*layer, state)).collect(),
            overlay: found.overlay.clone().map_or_else(LayerState::Unavailable, |()| LayerState::Enforced),
            landlock_abi: found.landlock_abi,
            clock_check: clock_check
                .map(|check| check.unwrap_or_else(|why| [("error".to_owned(), why)].into())),
            host_uid: found.user.uid,
            host_gid: found.user.gid,
            kernel: kernel(),
        });
    } else {
        let mut rows = rows(&found, level);
        rows.push(("clock check".to_owned(), clock_text(clock_check)));
        session.reporter.rows(&rows);
    }
    Ok(u8::from(level.is_none() || wrong))
}

/// The level that checks can be run at here.
fn level_of(found: &Abilities) -> Option<Level> {
    let has = |layer: &Layer| !matches!(found.layers.get(layer), Some(LayerState::Unavailable(_)) | None);
    let namespaces = [Layer::User, Layer::Mount, Layer::Pid, Layer::Net, Layer::Ipc, Layer::Uts];
    let bare = [Layer::Landlock, Layer::Seccomp];
    if !bare.iter().all(has) {
        None
    } else if namespaces.iter().all(has) {
        Some(Level::Full)
    } else {
        Some(Level::Landlock)
    }
}

fn rows(found: &Abilities, level: Option<Level>) -> Vec<(String, String)> {
    let level = match level {
        Some(Level::Full) => "full: checks run under every policy whose limits can be kept",
        Some(Level::Landlock) => "landlock: namespaces are missing; `--policy landlock` works, weaker",
        None => "none: nothing can be confined here",
    };
    let user = if found.user.switch {
        format!("checks run as host uid {}, which owns nothing, and never as root", found.user.uid)
    } else {
        format!("checks run as host uid {}", found.user.uid)
    };
    let mut rows = vec![
        ("level".to_owned(), level.to_owned()),
        ("kernel".to_owned(), kernel()),
        ("user".to_owned(), user),
    ];
    for layer in Layer::ALL {
        let text = match found.layers.get(&layer) {
            Some(LayerState::Enforced) => "ok".to_owned(),
            Some(LayerState::Partial(why)) => format!("partly: {why}"),
            Some(LayerState::Unavailable(why)) => format!("missing: {why}"),
            Some(LayerState::Off) | None => "off".to_owned(),
        };
        let text =
            if layer == Layer::Landlock { format!("{text} (ABI {})", found.landlock_abi) } else { text };
        rows.push((layer.name().to_owned(), text));
    }
    let overlay = found
        .overlay
        .as_ref()
        .map_or_else(|why| format!("missing, trees are copied: {why}"), |()| "ok".to_owned());
    rows.push(("overlay".to_owned(), overlay));
    rows
}

/// The self-check on one line.
fn clock_text(check: Option<Result<clock_check::Findings, String>>) -> String {
    match check {
        None => "not made: there is no fixed clock here".to_owned(),
        Some(Err(why)) => format!("failed: {why}"),
        Some(Ok(findings)) => {
            let name = |name: &str| if name == "vdso" { "vDSO".to_owned() } else { name.replace('_', " ") };
            let each: Vec<String> =
                findings.iter().map(|(it, finding)| format!("{} {finding}", name(it))).collect();
            each.join(", ")
        }
    }
}

fn kernel() -> String {
    let name = rustix::system::uname();
    format!("{} {}", name.release().to_string_lossy(), name.machine().to_string_lossy())
}

#[derive(Serialize)]
struct Removed {
    records: u64,
    logs: u64,
    log_bytes: u64,
    layers: u64,
    leftovers: u64,
}

/// Makes room.
pub(super) fn gc(wanted: Gc, session: &mut Session) -> Result<u8, Failure> {
    let paths = &session.around.store;
    if Store::open_reader(paths)?.is_none() && !paths.cache.exists() {
        return Ok(0);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let age = wanted.max_age.map(|age| i64::try_from(age.as_secs()).unwrap_or(i64::MAX));
    let bounds = Bounds {
        log_bytes: wanted.max_size.map_or(Bounds::LOG_BYTES, |size| size.0),
        age_secs: age,
        ..Bounds::default()
    };
    let trees = paths.cache.join("trees");
    let mut leftovers = stage::sweep_stale(&trees).map_err(|error| Failure::new(error.to_string(), None))?;
    leftovers += logs::sweep(&paths.logs()).map_err(|error| Failure::new(error.to_string(), None))?;
    leftovers += flight::sweep(&paths.locks()).map_err(|error| Failure::new(error.to_string(), None))?;
    leftovers += pipeline::sweep_leftovers(&session.around);
    let keep = wanted.max_size.map_or(stage::LAYER_BYTES, |size| size.0);
    let layers = stage::remove_unused(&trees, keep).map_err(|error| Failure::new(error.to_string(), None))?;
    // Last: on a full disk the records can only be opened once something else has gone.
    let mut writer = Store::open_writer(paths)?;
    let swept = writer.gc(bounds, i64::try_from(now).unwrap_or(0))?;
    let removed =
        Removed { records: swept.records, logs: swept.logs, log_bytes: swept.log_bytes, layers, leftovers };
    if session.reporter.is_json() {
        session.reporter.object(&removed);
    } else {
        let text = format!(
            "removed {} records, {} logs ({} bytes), {} trees, {} leftovers\n",
            removed.records, removed.logs, removed.log_bytes, removed.layers, removed.leftovers
        );
        session.reporter.data(text.as_bytes());
    }
    Ok(0)
}
