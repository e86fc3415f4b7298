//! Making room in the cache.
#![forbid(unsafe_code)]

use crate::cli::Gc;
use crate::commands::{Failure, Session};
use crate::flight;
use crate::logs;
use crate::pipeline;
use crate::stage;
use crate::store::{Bounds, Store};
use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};

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
