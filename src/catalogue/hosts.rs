//! Hosts that a check may reach: those that a policy's file names, and those that the command line adds to them.
#![forbid(unsafe_code)]

use crate::catalogue::CatalogueError;
use crate::catalogue::document::Section;
use crate::model::hosts::{HostRule, NamedHost};
use crate::model::layer::{Layer, Level, Need};
use crate::model::policy::{Network, Policy};

/// The tables `[[network.host]]`, each with its reason.
pub(super) fn named(network: &Section<'_, '_>, mode: Network) -> Result<Vec<NamedHost>, CatalogueError> {
    let mut hosts: Vec<NamedHost> = Vec::new();
    for section in network.sections("host", &["name", "private", "why"])? {
        let name = section.needed_text(
            "name",
            "a host such as \"example.org\", \"*.example.org\" or \"example.org:8443\"",
        )?;
        let private = section.flag("private")?;
        let rule = HostRule::parse(name, private).map_err(|problem| section.fail("name", problem))?;
        if hosts.iter().any(|known| known.rule.to_string() == rule.to_string()) {
            return Err(section.fail("name", format!("`{rule}` is named twice")));
        }
        let why = section.needed_text("why", "the reason why this host may be reached, as a sentence")?;
        hosts.push(NamedHost { rule, why: why.to_owned() });
    }
    if mode != Network::Hosts && !hosts.is_empty() {
        return Err(network.fail("host", "has no effect unless `mode` is `hosts`"));
    }
    Ok(hosts)
}

/// What the mode `hosts` rests on: without a network of its own a check could go anywhere.
pub(super) fn insist_on_own_network(root: &Section<'_, '_>, policy: &Policy) -> Result<(), CatalogueError> {
    if policy.network != Network::Hosts {
        return Ok(());
    }
    if policy.level != Level::Full {
        return Err(root
            .fail("level", "must be `full` where hosts are named: no other level can keep a check to them"));
    }
    if policy.layers.get(&Layer::Net) != Some(&Need::Require) {
        return Err(root.fail("layers", "layer `net` must be required where hosts are named"));
    }
    Ok(())
}

/// Adds hosts that the command line names.
///
/// # Errors
/// The policy names no hosts: all can be reached under it, or none.
pub fn allow_hosts(policy: &Policy, hosts: &[HostRule]) -> Result<Policy, CatalogueError> {
    let mut changed = policy.clone();
    if hosts.is_empty() {
        return Ok(changed);
    }
    if policy.network != Network::Hosts {
        return Err(CatalogueError::HostsHaveNoEffect {
            policy: policy.name.clone(),
            network: policy.network.name(),
        });
    }
    let why = "Asked for on the command line.".to_owned();
    changed.hosts.extend(hosts.iter().map(|rule| NamedHost { rule: rule.clone(), why: why.clone() }));
    Ok(changed)
}
