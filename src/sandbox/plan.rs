//! What is to be built for one run, decided in full before anything is started: no system call, no look at the
//! machine. A plan is made from an action and what the machine was found to offer; where the tree lies is not in it.
#![forbid(unsafe_code)]

use crate::model::check::Action;
use crate::model::guise::{CHECK_UID, Guise, Listing, Shape};
use crate::model::layer::{Layer, LayerState, Level, Need};
use crate::model::policy::{Aslr, Clock, GitView, Limits, Network, Policy};
use crate::model::runner::Bind;
use crate::sandbox::CgroupKind;
use crate::sandbox::SandboxError;
use crate::sandbox::probe::Abilities;
use crate::sandbox::proxy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where the tree is inside.
pub const TREE_PLACE: &str = "/src";
/// The check's home inside.
pub const HOME_PLACE: &str = "/home/check";

/// Who the check is on the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostUser {
    /// The host's number for the check's user; never 0.
    pub uid: u32,
    /// The host's number for the check's group.
    pub gid: u32,
    /// True where this differs from the caller, who must then be privileged.
    pub switch: bool,
}

/// How the tree gets to its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeStyle {
    /// A writable overlay over the layer.
    Overlay,
    /// Copied file by file into the run's own temporary file system.
    Copy,
}

/// Everything a run needs to know.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The level that is in force.
    pub level: Level,
    /// The state each layer will have if all goes as planned; the record is made from this.
    pub layers: BTreeMap<Layer, LayerState>,
    /// The network.
    pub network: Network,
    /// What the proxy goes by, where the policy names hosts.
    pub proxy: Option<proxy::Rules>,
    /// The folders on the host that lie beneath the tree's own, each laid over the next; often none, never written to.
    pub beneath: Vec<PathBuf>,
    /// The folders on the host that the home folder starts with, as those of the tree; often none.
    pub home: Vec<PathBuf>,
    /// How it gets to its place.
    pub style: TreeStyle,
    /// What of the host is shown read-only, sorted by place.
    pub binds: Vec<Bind>,
    /// Program and arguments.
    pub argv: Vec<CString>,
    /// The whole environment, `NAME=VALUE`.
    pub env: Vec<CString>,
    /// Folders searched for the program.
    pub path: Vec<PathBuf>,
    /// Folder below the tree that the command starts in.
    pub cwd: PathBuf,
    /// What it may use up.
    pub limits: Limits,
    /// Address randomisation.
    pub aslr: Aslr,
    /// Permissions that new files do not get.
    pub umask: u32,
    /// What it takes its surroundings for.
    pub guise: Guise,
    /// The wall clock.
    pub clock: Clock,
    /// What of git it sees.
    pub git: GitView,
    /// Who it is on the host.
    pub user: HostUser,
    /// How memory, processes and processor time are limited.
    pub cgroup: CgroupKind,
    /// Whether it is noted what the check reads, lists and looks for.
    pub observe: bool,
    /// Which files that it leaves are of interest, patterns below the folder that it starts in.
    pub results: Vec<String>,
    /// An empty folder of the run's own on the host; used at level `landlock` only.
    pub scratch: PathBuf,
}

impl Plan {
    /// True where the layer is to be used at all.
    #[must_use]
    pub fn uses(&self, layer: Layer) -> bool {
        matches!(self.layers.get(&layer), Some(LayerState::Enforced | LayerState::Partial(_)))
    }

    /// True where limits are kept by the unified hierarchy.
    #[must_use]
    pub fn cgroup_is_unified(&self) -> bool {
        matches!(self.cgroup, CgroupKind::V2 { .. })
    }

    /// Decides how `action` is run on a machine with `abilities`, wherever its tree will be laid out.
    ///
    /// # Errors
    /// Where the policy requires what the machine lacks, or a text that a program start takes has a NUL in it.
    pub fn new(action: &Action, abilities: &Abilities, scratch: &Path) -> Result<Self, SandboxError> {
        // Beneath: what the tree itself has at such a place stays.
        let in_tree = action.deps.iter().filter(|layer| layer.in_tree);
        let beneath = in_tree.map(|layer| layer.folder.join("tree")).collect();
        let in_home = action.deps.iter().filter(|layer| layer.in_home);
        let home = in_home.map(|layer| layer.folder.join("home")).collect();
        let layers = planned_layers(&action.policy, abilities)?;
        let style = if abilities.overlay.is_ok()
            && action.policy.level == Level::Full
            && action.policy.guise.listing == Listing::Host
        {
            TreeStyle::Overlay
        } else {
            TreeStyle::Copy
        };
        // The runner's folders, with the standard ones behind them.
        let path = action.runner.path.clone();
        let text = |bytes: &[u8], what: &str| {
            CString::new(bytes).map_err(|_| SandboxError::Nul { what: what.to_owned() })
        };
        let argv = action
            .command
            .argv
            .iter()
            .map(|word| text(word, "an argument"))
            .collect::<Result<Vec<_>, _>>()?;
        let mut env = Vec::new();
        for (name, value) in environment(action, &path) {
            env.push(text(&[&name[..], b"=", &value].concat(), "a variable")?);
        }
        Ok(Self {
            level: action.policy.level,
            layers,
            network: action.policy.network,
            proxy: proxy_rules(action)?,
            beneath,
            home,
            style,
            binds: binds(action),
            argv,
            env,
            path,
            cwd: PathBuf::from(OsStr::from_bytes(&action.command.cwd)),
            limits: action.policy.limits,
            aslr: action.policy.aslr,
            umask: action.policy.umask,
            guise: action.policy.guise.clone(),
            clock: action.policy.clock,
            git: action.policy.git,
            user: abilities.user,
            cgroup: abilities.cgroup.clone(),
            // Another user's home is a link, which may be to another place on the host.
            observe: action.policy.level == Level::Full
                && abilities.listener.is_ok()
                && action.policy.guise.uid == CHECK_UID,
            results: action.runner.results.clone(),
            scratch: scratch.to_path_buf(),
        })
    }
}

/// The state each layer will have, from what the policy asks and the machine offers.
///
/// # Errors
/// Names every layer that the policy requires and the machine lacks, with its remedy.
pub fn planned_layers(
    policy: &Policy,
    abilities: &Abilities,
) -> Result<BTreeMap<Layer, LayerState>, SandboxError> {
    refuse_guise(policy)?;
    let mut states = BTreeMap::new();
    let mut missing = Vec::new();
    for layer in Layer::ALL {
        let need = policy.layers.get(&layer).copied().unwrap_or(Need::Off);
        let wanted = need != Need::Off && applies(policy, layer);
        let state = if wanted { abilities.state(layer, policy.level) } else { LayerState::Off };
        if let (Need::Require, LayerState::Unavailable(why)) = (need, &state) {
            missing.push((layer, why.clone()));
        }
        states.insert(layer, state);
    }
    if missing.is_empty() {
        Ok(states)
    } else {
        Err(SandboxError::Missing { policy: policy.name.clone(), missing })
    }
}

/// What a check takes its surroundings for is made of namespaces; the host's own are not ours to change.
fn refuse_guise(policy: &Policy) -> Result<(), SandboxError> {
    let varied = policy.guise.varied();
    let refused = |input: &str, why| SandboxError::Guise { input: input.to_owned(), why };
    match varied.keys().next() {
        Some(input) if policy.level == Level::Landlock => {
            Err(refused(input, "level `landlock` has no namespaces"))
        }
        _ if policy.network == Network::Host && policy.guise.network != Shape::Loopback => {
            Err(refused("network", "the policy opens the host's own"))
        }
        _ => Ok(()),
    }
}

/// Whether a layer has any work to do under a policy: a limit that is not set is not enforced, a clock that is the
/// host's is not fixed, and level `landlock` has no namespaces.
fn applies(policy: &Policy, layer: Layer) -> bool {
    let namespaces = policy.level == Level::Full;
    match layer {
        Layer::User | Layer::Mount | Layer::Pid | Layer::Ipc | Layer::Uts | Layer::Cgroup | Layer::Time => {
            namespaces
        }
        Layer::Net => policy.network != Network::Host,
        Layer::Landlock | Layer::Seccomp | Layer::Disk => true,
        Layer::Clock => policy.clock != Clock::Host,
        Layer::Memory => policy.limits.memory.is_some(),
        Layer::Pids => policy.limits.pids.is_some(),
        Layer::Cpus => policy.limits.cpus_milli.is_some(),
    }
}

/// Host paths to show: the policy's at their own places, then the runner's.
fn binds(action: &Action) -> Vec<Bind> {
    let own = action.policy.visible.iter().map(|it| Bind { host: it.path.clone(), inside: it.path.clone() });
    let mut all: Vec<Bind> = own.chain(action.runner.binds.iter().cloned()).collect();
    all.sort_by(|a, b| a.inside.cmp(&b.inside).then_with(|| a.host.cmp(&b.host)));
    all.dedup();
    all
}

/// The environment: fixed words, then the runner's, then what the caller passes in.
fn environment(action: &Action, path: &[PathBuf]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let full = action.policy.level == Level::Full;
    let mut env: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut set = |name: &str, value: &[u8]| drop(env.insert(name.as_bytes().to_vec(), value.to_vec()));
    let guise = &action.policy.guise;
    set("USER", guise.user_name().as_bytes());
    set("LOGNAME", guise.user_name().as_bytes());
    set("SHELL", b"/bin/sh");
    set("LANG", b"C.UTF-8");
    set("LC_ALL", b"C.UTF-8");
    set("TZ", b"UTC");
    set("TERM", b"dumb");
    set("NO_COLOR", b"1");
    set("CI", b"1");
    if full {
        // At level `landlock` these lie in the run's own folder, whose name is not known yet.
        set("HOME", guise.home().as_bytes());
        set("TMPDIR", b"/tmp");
    }
    if let Clock::Fixed { start, .. } = action.policy.clock {
        set("SOURCE_DATE_EPOCH", start.to_string().as_bytes());
    }
    let search: Vec<&[u8]> = path.iter().map(|folder| folder.as_os_str().as_bytes()).collect();
    set("PATH", &search.join(&b':'));
    for (name, value) in &action.runner.env {
        set(name, value.as_bytes());
    }
    env.extend(action.command.env.iter().map(|(name, value)| (name.clone(), value.clone())));
    if action.policy.network == Network::Hosts {
        proxy::put(&mut env, action.policy.hosts.iter().map(|named| &named.rule));
    }
    env
}

/// What the proxy is to go by, where there is to be one.
fn proxy_rules(action: &Action) -> Result<Option<proxy::Rules>, SandboxError> {
    if action.policy.network != Network::Hosts {
        return Ok(None);
    }
    Ok(Some(proxy::Rules {
        policy: action.policy.name.clone(),
        hosts: action.policy.hosts.iter().map(|named| named.rule.clone()).collect(),
        upstream: proxy::upstream(&action.command.env)?,
    }))
}
