//! May an earlier record answer? Pure decisions over what the store found and what is asked; looking up and storing
//! are `store`'s.
#![forbid(unsafe_code)]

use crate::model::evidence::{Evidence, Found, Tally};
use crate::model::layer::{Layer, LayerState, Level};
use crate::model::outcome::Outcome;
use crate::model::policy::{Clock, Network, Policy};
use std::collections::BTreeMap;
use std::fmt;

/// What is asked of the cache.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Neither look nor store.
    pub no_cache: bool,
    /// Run even if something could answer.
    pub refresh: bool,
    /// The policy of the check.
    pub policy: &'a Policy,
    /// The level that is to be in force.
    pub level: Level,
    /// State word of each layer that is to be in force.
    pub layers: &'a BTreeMap<Layer, &'static str>,
}

/// The cache's answer.
#[derive(Clone, PartialEq, Debug)]
pub enum Lookup {
    /// This record answers.
    Hit(Box<Evidence>),
    /// Nothing answers, and why.
    Miss(MissReason),
}

/// Why nothing answers.
#[derive(Clone, PartialEq, Debug)]
pub enum MissReason {
    /// The caller wants no cache.
    NoCache,
    /// The caller wants a new run.
    Refresh,
    /// Results of such checks are never reused; the text says why.
    NotReusable(String),
    /// There is no record under this key.
    NeverRun,
    /// What there was is broken, a sentence each.
    Damaged(Vec<String>),
    /// The key was seen to pass and to fail.
    Flaky(Tally),
    /// It ended in a way that is history and never an answer.
    NoAnswer(Outcome),
    /// What confined it is not what is asked for; the text says in what.
    OtherSandbox(String),
}

impl fmt::Display for MissReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCache => f.write_str("the cache is not used"),
            Self::Refresh => f.write_str("a new run is asked for"),
            Self::NotReusable(why) => write!(f, "never reused: {why}"),
            Self::NeverRun => f.write_str("no record under this key"),
            Self::Damaged(damage) => write!(f, "its record is damaged: {}", damage.join("; ")),
            Self::Flaky(tally) => {
                write!(f, "flaky: passed {} times and failed {}", tally.passed, tally.failed)
            }
            Self::NoAnswer(outcome) => write!(f, "it ended as `{}`, which never answers", outcome.name()),
            Self::OtherSandbox(how) => write!(f, "another sandbox was in force: {how}"),
        }
    }
}

/// Decides whether what was found answers what is asked. The first line that applies decides:
///
/// | asked or found | lookup |
/// |---|---|
/// | `no_cache` | miss: no cache |
/// | `refresh` | miss: refresh |
/// | the policy lets the outside in (host network, named hosts, host clock) | miss: not reusable |
/// | passed and failed before | miss: flaky |
/// | no sound record, something broken | miss: damaged |
/// | no record | miss: never run |
/// | neither passed nor failed | miss: no answer |
/// | level or a layer is not as asked | miss: other sandbox |
/// | anything else | hit |
#[must_use]
pub fn judge(found: &Found, request: Request<'_>) -> Lookup {
    match refusal(found, request) {
        Err(reason) => Lookup::Miss(reason),
        Ok(evidence) => Lookup::Hit(Box::new(evidence.clone())),
    }
}

fn refusal<'a>(found: &'a Found, request: Request<'_>) -> Result<&'a Evidence, MissReason> {
    if request.no_cache {
        return Err(MissReason::NoCache);
    }
    if request.refresh {
        return Err(MissReason::Refresh);
    }
    reusable_policy(request.policy).map_err(MissReason::NotReusable)?;
    if found.tally.is_flaky() {
        return Err(MissReason::Flaky(found.tally));
    }
    let Some(stored) = &found.latest else {
        return Err(match found.damage.as_slice() {
            [] => MissReason::NeverRun,
            damage => MissReason::Damaged(damage.to_vec()),
        });
    };
    let evidence = &stored.evidence;
    if !evidence.outcome.is_answer() {
        return Err(MissReason::NoAnswer(evidence.outcome));
    }
    match same_sandbox(evidence, request.level, request.layers) {
        Ok(()) => Ok(evidence),
        Err(how) => Err(MissReason::OtherSandbox(how)),
    }
}

/// Whether a run under this policy that ended like this may ever answer; asked before storing as well.
///
/// # Errors
/// Says in a sentence what stands against it.
pub fn reusable(policy: &Policy, evidence: &Evidence) -> Result<(), String> {
    reusable_policy(policy)?;
    if evidence.outcome.is_answer() {
        return Ok(());
    }
    Err(format!("it ended as `{}`; only `passed` and `failed` are answers", evidence.outcome.name()))
}

/// Whether results under this policy may ever answer, whatever they are.
///
/// # Errors
/// Says in a sentence what stands against it.
pub fn reusable_policy(policy: &Policy) -> Result<(), String> {
    match policy.network {
        Network::Loopback => {}
        Network::Hosts => return Err(format!("policy `{}` lets the check reach other hosts", policy.name)),
        Network::Host => return Err(format!("policy `{}` gives the check the host's network", policy.name)),
    }
    if policy.clock == Clock::Host {
        return Err(format!("policy `{}` gives the check the host's clock", policy.name));
    }
    Ok(())
}

/// Whether a run was confined exactly as a key says.
///
/// # Errors
/// Says which layer was not as the key says, and how it was.
pub fn same_sandbox(
    evidence: &Evidence,
    level: Level,
    layers: &BTreeMap<Layer, &'static str>,
) -> Result<(), String> {
    if evidence.level != level.name() {
        return Err(format!("level `{}` instead of `{}`", evidence.level, level.name()));
    }
    for layer in Layer::ALL {
        let was = evidence.layers.get(&layer).map_or("off", |state| state.word());
        let asked = layers.get(&layer).copied().unwrap_or("off");
        if was != asked {
            let why = match evidence.layers.get(&layer) {
                Some(LayerState::Partial(why) | LayerState::Unavailable(why)) => format!(" ({why})"),
                _ => String::new(),
            };
            return Err(format!("layer `{layer}` was {was} instead of {asked}{why}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::evidence::Stored;
    use crate::model::evidence::tests::evidence;

    fn policy() -> Policy {
        crate::key::tests::action().policy
    }

    fn found(change: impl FnOnce(&mut Found)) -> Found {
        let mut found = Found {
            tally: Tally { passed: 1, failed: 0 },
            latest: Some(Stored { id: 1, evidence: evidence() }),
            damage: Vec::new(),
        };
        change(&mut found);
        found
    }

    fn reason(found: &Found, change: impl FnOnce(&mut Policy), flags: (bool, bool)) -> Option<MissReason> {
        let mut policy = policy();
        change(&mut policy);
        let layers = BTreeMap::from([(Layer::User, "enforced"), (Layer::Time, "unavailable")]);
        let request = Request {
            no_cache: flags.0,
            refresh: flags.1,
            policy: &policy,
            level: Level::Full,
            layers: &layers,
        };
        match judge(found, request) {
            Lookup::Hit(_) => None,
            Lookup::Miss(reason) => Some(reason),
        }
    }

    fn of(change: impl FnOnce(&mut Found)) -> Option<MissReason> {
        reason(&found(change), |_| (), (false, false))
    }

    fn edited(change: impl FnOnce(&mut Evidence)) -> Option<MissReason> {
        of(|found| change(&mut found.latest.as_mut().unwrap().evidence))
    }

    #[test]
    fn a_sound_record_answers_and_a_failure_too() {
        assert_eq!(of(|_| ()), None);
        assert_eq!(edited(|e| e.outcome = Outcome::Failed), None);
        // Damage in an older row does not take the newest sound answer away.
        assert_eq!(of(|found| found.damage.push("row 1".to_owned())), None);
    }

    #[test]
    fn what_the_caller_asks_comes_first() {
        assert_eq!(reason(&found(|_| ()), |_| (), (true, true)), Some(MissReason::NoCache));
        assert_eq!(reason(&found(|_| ()), |_| (), (false, true)), Some(MissReason::Refresh));
    }

    #[test]
    fn checks_that_see_the_outside_never_answer() {
        for change in [
            (|p| p.network = Network::Host) as fn(&mut Policy),
            |p| p.network = Network::Hosts,
            |p| p.clock = Clock::Host,
        ] {
            let said = reason(&found(|_| ()), change, (false, false)).unwrap();
            assert!(matches!(said, MissReason::NotReusable(ref why) if why.contains("hermetic")), "{said}");
            let mut policy = policy();
            change(&mut policy);
            assert!(reusable(&policy, &evidence()).is_err());
        }
        assert_eq!(reusable(&policy(), &evidence()), Ok(()));
    }

    #[test]
    fn flaky_absent_damaged_and_other_outcomes_never_answer() {
        let tally = Tally { passed: 1, failed: 1 };
        assert_eq!(of(|found| found.tally = tally), Some(MissReason::Flaky(tally)));
        assert_eq!(of(|found| found.latest = None), Some(MissReason::NeverRun));
        let damage = vec!["row 7".to_owned()];
        assert_eq!(
            of(|found| *found = Found { damage: damage.clone(), ..Found::default() }),
            Some(MissReason::Damaged(damage.clone()))
        );
        for outcome in [
            Outcome::TimedOut,
            Outcome::OutOfMemory,
            Outcome::PidsLimit,
            Outcome::DiskFull,
            Outcome::OutputLimit,
            Outcome::Killed,
            Outcome::Interrupted,
            Outcome::NotStarted,
        ] {
            assert_eq!(edited(|e| e.outcome = outcome), Some(MissReason::NoAnswer(outcome)));
            assert!(reusable(&policy(), &Evidence { outcome, ..evidence() }).is_err());
        }
    }

    #[test]
    fn another_sandbox_never_answers() {
        let cases: [fn(&mut Evidence); 4] = [
            |e| e.level = "landlock".to_owned(),
            |e| drop(e.layers.insert(Layer::User, LayerState::Partial("no map".to_owned()))),
            |e| drop(e.layers.remove(&Layer::Time)),
            |e| drop(e.layers.insert(Layer::Net, LayerState::Enforced)),
        ];
        for change in cases {
            assert!(matches!(edited(change), Some(MissReason::OtherSandbox(_))));
        }
        // Off said and off not said are the same.
        assert_eq!(edited(|e| drop(e.layers.insert(Layer::Net, LayerState::Off))), None);
    }
}
