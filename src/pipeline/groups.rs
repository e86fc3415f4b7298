//! A set of observed inputs in groups, for people and programs. What a set is and whether it holds is `inputs`'.
#![forbid(unsafe_code)]

use crate::pipeline::inputs::Fact;
use crate::pipeline::kept_set::decode;
use serde::Serialize;

/// What of the tree a check depends on; paths below its root, the root itself as `.`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct TreeInputs {
    /// Content mattered.
    pub read: Vec<String>,
    /// Folders whose names mattered.
    pub listed: Vec<String>,
    /// Only existence and kind mattered.
    pub there: Vec<String>,
    /// Looked for and not there.
    pub absent: Vec<String>,
}

/// What of the host a check depends on.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct HostInputs {
    /// Files and folders that were executed, mapped, read, listed or found.
    pub used: Vec<String>,
    /// Looked for and not there.
    pub absent: Vec<String>,
}

/// A set of inputs in groups, for people and programs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InputGroups {
    /// Paths that hold all of the tree's part.
    pub scope: Vec<String>,
    /// Of the tree.
    pub tree: TreeInputs,
    /// Of the host.
    pub host: HostInputs,
}

impl InputGroups {
    /// Reads a set as it is kept; `None` where it cannot be read.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self::of(&decode(bytes)?))
    }

    pub(crate) fn of(facts: &[Fact]) -> Self {
        let mut groups = Self::default();
        let name = |path: &[u8]| {
            if path.is_empty() { ".".to_owned() } else { String::from_utf8_lossy(path).into_owned() }
        };
        for fact in facts {
            let (group, path) = match fact {
                Fact::Absent(path) => (&mut groups.tree.absent, path),
                Fact::Entry(path, _) => (&mut groups.tree.read, path),
                Fact::Kind(path, _) => (&mut groups.tree.there, path),
                Fact::Names(path, _) => (&mut groups.tree.listed, path),
                Fact::HostAbsent(path) => (&mut groups.host.absent, path),
                Fact::HostFolder(path) | Fact::HostLink(path, _) | Fact::HostStamp(path, _) => {
                    (&mut groups.host.used, path)
                }
            };
            group.push(name(path));
        }
        // A listed folder must be there whole, or its listing would be another.
        let listed = &groups.tree.listed;
        let below = |path: &String| {
            listed.iter().any(|folder| folder == "." || path.starts_with(&format!("{folder}/")))
        };
        let mut scope: Vec<String> = listed.clone();
        scope.extend(
            groups
                .tree
                .read
                .iter()
                .filter(|path| !below(path))
                .chain(groups.tree.there.iter().filter(|path| !below(path) && *path != "."))
                .cloned(),
        );
        scope.sort();
        scope.dedup();
        groups.scope = scope;
        groups
    }
}
