//! A repository's own settings and the limits of the command line: what they are and how they change a policy. A
//! repository may only tighten, the command line may do either.
#![forbid(unsafe_code)]

use crate::catalogue::CatalogueError;
use crate::catalogue::clock;
use crate::catalogue::document::{Section, Source};
use crate::catalogue::policy::{built_in, count, cpus, size};
use crate::catalogue::strictness::widening;
use crate::model::layer::{Layer, Need};
use crate::model::policy::{Clock, ClockWish, Limits, Network, Overrides, Policy};
use crate::model::units::{parse_duration, show_duration};

/// The file at the root of a tree that holds the repository's settings.
pub const SETTINGS_FILE: &str = ".checkrun.toml";

/// What a repository asks for beyond the policy that is in force.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RepositorySettings {
    /// A built-in policy that is stricter.
    policy: Option<String>,
    /// Lower limits.
    limits: Overrides,
    /// When the fixed clock starts and whether it runs.
    clock: ClockWish,
    /// The host's network is closed whatever the policy says.
    loopback_only: bool,
}

impl RepositorySettings {
    /// Reads the bytes of `.checkrun.toml`.
    ///
    /// # Errors
    /// The text does not parse, or has a key or value that a repository may not set.
    pub fn parse(bytes: &[u8]) -> Result<Self, CatalogueError> {
        let source = Source::of_bytes(SETTINGS_FILE, bytes)?;
        let table = source.parse()?;
        let root = Section::root(source, &table, &["format", "policy", "network", "limits", "clock"])?;
        let limits = match root.section("limits", &["timeout", "memory", "pids", "cpus", "disk", "output"])? {
            Some(section) => lower_limits(&section)?,
            None => Overrides::default(),
        };
        let clock = match root.section("clock", &["start", "mode"])? {
            Some(section) => {
                ClockWish { start: clock::start(&section)?, mode: section.word("mode", &clock::MODES)? }
            }
            None => ClockWish::default(),
        };
        Ok(Self {
            policy: root.text("policy")?.map(str::to_owned),
            limits,
            clock,
            // There is one word to choose from: a repository cannot open the network, only close it.
            loopback_only: root.word("network", &[("loopback", true)])?.unwrap_or(false),
        })
    }
}

fn lower_limits(section: &Section<'_, '_>) -> Result<Overrides, CatalogueError> {
    Ok(Overrides {
        timeout: section.parsed("timeout", parse_duration)?,
        memory: size(section, "memory")?,
        pids: count(section, "pids")?,
        cpus_milli: cpus(section, "cpus")?,
        disk: size(section, "disk")?,
        output: size(section, "output")?,
        ..Overrides::default()
    })
}

fn refusal(key: &str, problem: String) -> CatalogueError {
    CatalogueError::Widens { file: SETTINGS_FILE.to_owned(), key: key.to_owned(), problem }
}

/// Applies what a repository asks for to the policy in force.
///
/// # Errors
/// A setting that would widen the policy, or an unknown policy name.
pub fn tighten(policy: &Policy, settings: &RepositorySettings) -> Result<Policy, CatalogueError> {
    let mut tightened = match &settings.policy {
        None => policy.clone(),
        Some(name) => stricter(policy, name)?,
    };
    refuse_higher(&tightened.limits, &settings.limits)?;
    override_limits(&mut tightened.limits, &settings.limits);
    for layer in limited(&settings.limits) {
        // A limit on a layer that was off would mean nothing; a preferred one stays as lenient as the policy is.
        let need = tightened.layers.entry(layer).or_insert(Need::Off);
        if *need == Need::Off {
            *need = Need::Require;
        }
    }
    if settings.loopback_only && tightened.network != Network::Loopback {
        tightened.network = Network::Loopback;
        tightened.hosts.clear();
        tightened.layers.insert(Layer::Net, Need::Require);
    }
    // With the host's clock asked for by the caller there is no start to set; that is the caller's choice.
    if tightened.clock != Clock::Host {
        tightened.clock = clock::changed(tightened.clock, settings.clock).unwrap_or(tightened.clock);
    }
    Ok(tightened)
}

fn stricter(policy: &Policy, name: &str) -> Result<Policy, CatalogueError> {
    let named = built_in(name).ok_or_else(|| {
        refusal(
            "policy",
            format!("`{name}` is not a built-in policy; accepted here: `hermetic`, `strict`, `landlock`"),
        )
    })??;
    match widening(policy, &named.policy) {
        None => Ok(named.policy),
        Some(how) => Err(refusal(
            "policy",
            format!("`{name}` is not at least as strict as `{}`, which is in force: {how}", policy.name),
        )),
    }
}

fn refuse_higher(current: &Limits, asked: &Overrides) -> Result<(), CatalogueError> {
    let higher = |key: &str, asked: String, current: String| {
        Err(refusal(&format!("limits.{key}"), format!("{asked} is higher than the policy's {current}")))
    };
    if let Some(timeout) = asked.timeout.filter(|timeout| *timeout > current.timeout) {
        return higher("timeout", show_duration(timeout), show_duration(current.timeout));
    }
    for (key, asked, current) in [
        ("memory", asked.memory, current.memory),
        ("disk", asked.disk, Some(current.disk)),
        ("output", asked.output, Some(current.output)),
    ] {
        if let (Some(asked), Some(current)) = (asked, current)
            && asked > current
        {
            return higher(key, asked.to_string(), current.to_string());
        }
    }
    if let (Some(asked), Some(current)) = (asked.pids, current.pids)
        && asked > current
    {
        return higher("pids", asked.to_string(), current.to_string());
    }
    match (asked.cpus_milli, current.cpus_milli) {
        (Some(asked), Some(current)) if asked > current => {
            let show = crate::model::units::show_cpus;
            higher("cpus", show(asked), show(current))
        }
        _ => Ok(()),
    }
}

fn override_limits(limits: &mut Limits, asked: &Overrides) {
    limits.timeout = asked.timeout.unwrap_or(limits.timeout);
    limits.memory = asked.memory.or(limits.memory);
    limits.pids = asked.pids.or(limits.pids);
    limits.cpus_milli = asked.cpus_milli.or(limits.cpus_milli);
    limits.disk = asked.disk.unwrap_or(limits.disk);
    limits.output = asked.output.unwrap_or(limits.output);
}

/// The layers whose limits are set.
fn limited(asked: &Overrides) -> impl Iterator<Item = Layer> {
    [
        (Layer::Memory, asked.memory.is_some()),
        (Layer::Pids, asked.pids.is_some()),
        (Layer::Cpus, asked.cpus_milli.is_some()),
        (Layer::Disk, asked.disk.is_some()),
    ]
    .into_iter()
    .filter_map(|(layer, set)| set.then_some(layer))
}

/// Applies the limits of the command line. Memory, processes, processors and disk given there must be enforced, so their
/// layers become required.
#[must_use]
pub fn apply(policy: &Policy, overrides: &Overrides) -> Policy {
    let mut changed = policy.clone();
    override_limits(&mut changed.limits, overrides);
    changed.aslr = overrides.aslr.unwrap_or(changed.aslr);
    changed.umask = overrides.umask.unwrap_or(changed.umask);
    overrides.varied.iter().for_each(|variation| changed.guise.vary(variation));
    for layer in limited(overrides) {
        changed.layers.insert(layer, Need::Require);
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::policy::ClockMode;
    use crate::model::units::Bytes;

    fn policy(name: &str) -> Policy {
        crate::catalogue::policy(name, None).unwrap().policy
    }

    fn tightened(name: &str, text: &str) -> Result<Policy, String> {
        let settings = RepositorySettings::parse(text.as_bytes()).map_err(|error| error.to_string())?;
        tighten(&policy(name), &settings).map_err(|error| error.to_string())
    }

    #[test]
    fn a_repository_tightens() {
        let text =
            "format = 1\n[limits]\ntimeout = \"5m\"\ncpus = 1.5\n[clock]\nstart = \"2020-02-02T00:00:00Z\"\n";
        let got = tightened("hermetic", text).unwrap();
        assert_eq!(got.limits.timeout.as_secs(), 300);
        assert_eq!(got.limits.cpus_milli, Some(1500));
        assert_eq!(got.layers.get(&Layer::Cpus), Some(&Need::Require));
        assert_eq!(got.layers.get(&Layer::Memory), Some(&Need::Prefer));
        assert_eq!(got.clock, Clock::Fixed { start: 1_580_601_600, mode: ClockMode::Ticking });
        let frozen = tightened("hermetic", "format = 1\n[clock]\nmode = \"frozen\"\n").unwrap();
        assert_eq!(frozen.clock, Clock::Fixed { start: 1_767_225_600, mode: ClockMode::Frozen });
        let commit = tightened("hermetic", "format = 1\n[clock]\nstart = \"commit\"\n").unwrap();
        assert_eq!(commit.clock, Clock::Commit { mode: ClockMode::Ticking });
        assert_eq!(tightened("hermetic", "format = 1\npolicy = \"strict\"").unwrap().name, "strict");
        let closed = tightened("networked", "format = 1\nnetwork = \"loopback\"").unwrap();
        assert_eq!(closed.network, Network::Loopback);
        assert_eq!(closed.layers.get(&Layer::Net), Some(&Need::Require));
    }

    #[test]
    fn a_repository_never_widens() {
        for (base, text, expected) in [
            ("hermetic", "format = 1\n[limits]\ntimeout = \"1h\"", "key `limits.timeout`: 1h is higher than"),
            ("hermetic", "format = 1\n[limits]\nmemory = \"64GiB\"", "key `limits.memory`"),
            ("hermetic", "format = 1\n[limits]\npids = 100000", "key `limits.pids`"),
            ("strict", "format = 1\n[limits]\ncpus = 2", "key `limits.cpus`"),
            ("hermetic", "format = 1\n[limits]\ndisk = \"1TiB\"", "key `limits.disk`"),
            ("hermetic", "format = 1\n[limits]\noutput = \"1TiB\"", "key `limits.output`"),
            (
                "hermetic",
                "format = 1\npolicy = \"networked\"",
                "key `policy`: `networked` is not at least as strict",
            ),
            ("strict", "format = 1\npolicy = \"hermetic\"", "key `policy`"),
            ("hermetic", "format = 1\npolicy = \"mine\"", "is not a built-in policy"),
            ("hermetic", "format = 1\nnetwork = \"host\"", ".checkrun.toml:2:11: key `network`"),
            (
                "hermetic",
                "format = 1\n[[visible]]\npath = \"/x\"",
                ".checkrun.toml:2:3: key `visible`: no such key",
            ),
        ] {
            let error = tightened(base, text).unwrap_err();
            assert!(error.contains(expected) && error.contains(SETTINGS_FILE), "{text:?}: {error}");
        }
    }

    #[test]
    fn the_command_line_may_do_either_and_insists() {
        let overrides = Overrides {
            memory: Some(Bytes(64 << 30)),
            pids: Some(1),
            output: Some(Bytes(7)),
            ..Overrides::default()
        };
        let got = apply(&policy("hermetic"), &overrides);
        assert_eq!(
            (got.limits.memory, got.limits.pids, got.limits.output),
            (Some(Bytes(64 << 30)), Some(1), Bytes(7))
        );
        assert_eq!(got.layers.get(&Layer::Memory), Some(&Need::Require));
        assert_eq!(got.layers.get(&Layer::Cpus), Some(&Need::Off));
    }

    #[test]
    fn strictness_orders_the_built_in_policies() {
        assert_eq!(widening(&policy("hermetic"), &policy("strict")), None);
        assert_eq!(widening(&policy("landlock"), &policy("hermetic")), None);
        for (from, to) in [("strict", "hermetic"), ("hermetic", "landlock"), ("hermetic", "networked")] {
            assert!(widening(&policy(from), &policy(to)).is_some(), "{from} {to}");
        }
    }
}
