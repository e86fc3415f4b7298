//! Says whether one policy allows anything that another does not. A comparison of values only.
#![forbid(unsafe_code)]

use crate::model::hosts::NamedHost;
use crate::model::layer::{Layer, Need};
use crate::model::policy::{Aslr, Clock, GitView, Limits, Network, Policy};

/// The first thing that `to` allows and `from` does not, as a sentence; `None` where `to` is at least as strict.
pub(super) fn widening(from: &Policy, to: &Policy) -> Option<String> {
    if to.level < from.level {
        return Some(format!("its level is `{}`, weaker than `{}`", to.level.name(), from.level.name()));
    }
    match (from.network, to.network) {
        (Network::Host, _) | (_, Network::Loopback) => {}
        (_, Network::Host) => return Some("it opens the host's network".to_owned()),
        (from_network, Network::Hosts) => {
            let known = |named: &NamedHost| {
                from_network == Network::Hosts && from.hosts.iter().any(|host| host.rule == named.rule)
            };
            if let Some(more) = to.hosts.iter().find(|named| !known(named)) {
                return Some(format!("it lets {} be reached", more.rule));
            }
        }
    }
    if from.aslr == Aslr::Off && to.aslr == Aslr::On {
        return Some("it randomises addresses".to_owned());
    }
    if matches!(to.clock, Clock::Host) && !matches!(from.clock, Clock::Host) {
        return Some("it shows the host's clock".to_owned());
    }
    if from.git == GitView::None && to.git == GitView::Synthetic {
        return Some("it shows a git repository".to_owned());
    }
    Layer::ALL
        .into_iter()
        .find(|layer| need(to, *layer) < need(from, *layer))
        .map(|layer| format!("it insists less on layer `{layer}`"))
        .or_else(|| {
            wider_limit(&from.limits, &to.limits).map(|limit| format!("its limit `{limit}` is higher"))
        })
        .or_else(|| more_visible(from, to))
}

/// How much a policy insists on a layer, as a number that grows with it.
fn need(policy: &Policy, layer: Layer) -> u8 {
    match policy.layers.get(&layer) {
        None | Some(Need::Off) => 0,
        Some(Need::Prefer) => 1,
        Some(Need::Require) => 2,
    }
}

/// The name of the first limit that is higher in `to`, or unset there alone.
fn wider_limit(from: &Limits, to: &Limits) -> Option<&'static str> {
    // An unset limit is higher than any that is set.
    let bytes = |limit: Option<crate::model::units::Bytes>| limit.map_or(u64::MAX, |bytes| bytes.0);
    [
        ("timeout", to.timeout > from.timeout),
        ("memory", bytes(to.memory) > bytes(from.memory)),
        ("pids", to.pids.unwrap_or(u64::MAX) > from.pids.unwrap_or(u64::MAX)),
        ("cpus", to.cpus_milli.unwrap_or(u32::MAX) > from.cpus_milli.unwrap_or(u32::MAX)),
        ("disk", to.disk > from.disk),
        ("output", to.output > from.output),
    ]
    .into_iter()
    .find_map(|(name, wider)| wider.then_some(name))
}

fn more_visible(from: &Policy, to: &Policy) -> Option<String> {
    let shown = |path: &std::path::Path| from.visible.iter().any(|known| path.starts_with(&known.path));
    let more = to.visible.iter().find(|entry| !shown(&entry.path))?;
    Some(format!("it shows `{}` of the host", more.path.display()))
}
