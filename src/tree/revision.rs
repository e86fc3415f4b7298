//! Opening a repository and resolving a revision in it. This lies on the way of every cache hit, so nothing is read that
//! the answer does not need: no index, no listing of references, no configuration but the repository's own.
#![forbid(unsafe_code)]

use crate::tree::error::{TreeError, detail, show};
use crate::tree::objects::{Peeled, peel};
use gix::revision::plumbing::Spec;
use gix::revision::spec::parse::{Error as RevisionError, ObjectKindHint, Options};
use std::path::Path;

/// Options under which every repository is opened.
///
/// Only the repository's own configuration counts, never the user's, the machine's or the environment's. It is believed
/// whoever owns it: git refuses foreign repositories because their configuration can name programs to run, and nothing
/// is run here. Replacement references (git-replace(1)) are ignored, so that an id means its own bytes; grafts are not
/// known to the library at all, and neither is fetching what a partial clone lacks.
fn options() -> gix::open::Options {
    gix::open::Options::isolated()
        .lossy_config(true)
        .with(gix::sec::Trust::Full)
        .config_overrides(["core.useReplaceRefs=false", "gitoxide.objects.allocLimitIfReducedTrust=0"])
}

/// Opens the repository that `start` lies in. The search stops at the border of a file system, as git's does.
pub(super) fn open(start: &Path) -> Result<gix::Repository, TreeError> {
    let upwards = gix::discover::upwards::Options {
        trust: gix::discover::upwards::TrustPolicy::Assume(gix::sec::Trust::Full),
        ..Default::default()
    };
    let trust = gix::sec::trust::Mapping { full: options(), reduced: options() };
    let repository = gix::ThreadSafeRepository::discover_opts(start, upwards, trust)
        .map_err(|error| explain_open(start, &error))?
        .to_thread_local();
    let storage = repository.config_snapshot().string("extensions.refStorage");
    if storage.is_some_and(|word| !word.eq_ignore_ascii_case(b"files")) {
        let path = repository.git_dir().to_owned();
        return Err(TreeError::Unsupported { path, what: "a reference storage other than files (reftable)" });
    }
    Ok(repository)
}

/// Opens the repository at exactly `path`, if there is one.
pub(super) fn open_at(path: &Path) -> Option<gix::Repository> {
    options().open(path).ok().map(|repository| repository.to_thread_local())
}

fn explain_open(start: &Path, error: &gix::Error) -> TreeError {
    use gix::discover::upwards::Error as Search;
    let nowhere = error.iter_errors().any(|cause| {
        matches!(
            cause.downcast_ref(),
            Some(
                Search::NoGitRepository { .. }
                    | Search::NoGitRepositoryWithinCeiling { .. }
                    | Search::NoGitRepositoryWithinFs { .. }
            )
        )
    });
    if nowhere {
        // A folder that may not be searched looks like one without a repository.
        if let Err(error) = std::fs::metadata(start.join(".git/HEAD"))
            && error.kind() == std::io::ErrorKind::PermissionDenied
        {
            return TreeError::io("look for a git repository in", start, error);
        }
        return TreeError::NotARepository(start.to_owned());
    }
    if let Err(error) = std::fs::read_dir(start) {
        return TreeError::io("open the folder", start, error);
    }
    TreeError::Open { start: start.to_owned(), detail: detail(error) }
}

/// Resolves a revision down to a tree.
///
/// The commit is remembered where the tree is that of a commit, also for `REV^{tree}`; not for `REV:sub/dir`.
pub(super) fn resolve(repository: &gix::Repository, revision: &str) -> Result<Peeled, TreeError> {
    let unknown =
        |text: &str| TreeError::UnknownRevision { revision: revision.to_owned(), detail: text.to_owned() };
    if let Some((_, path)) = revision.split_once(':')
        && (path.starts_with("./") || path.starts_with("../"))
    {
        return Err(unknown(
            "write the path after the colon from the root of the tree, without `./` or `../`",
        ));
    }
    // The parser peels away the commit that a check wants to remember, so that step is left to `peel`.
    let plain =
        if revision.contains(':') { revision } else { revision.strip_suffix("^{tree}").unwrap_or(revision) };
    if plain.is_empty() {
        return Err(unknown("it is empty"));
    }
    let whole = lengthen(repository, plain)?;
    let spec = parse(repository, &whole).map_err(|error| explain_revision(revision, &error))?;
    let Spec::Include(id) = *spec else {
        return Err(unknown("it names a range, not one tree"));
    };
    let has_path = spec.path_and_mode().is_some();
    let mut peeled = peel(repository, id, revision)?;
    if has_path {
        peeled.commit = None;
        peeled.is_part = true;
        peeled.committed = None;
    }
    Ok(peeled)
}

/// Of several objects that a short id may mean, those that lead to a tree are meant, as with every command of git that
/// wants one.
fn parse<'a>(repository: &'a gix::Repository, text: &str) -> Result<gix::revision::Spec<'a>, gix::Error> {
    let options = Options { object_kind_hint: Some(ObjectKindHint::Treeish), ..Options::default() };
    gix::revision::Spec::from_bstr(text, repository, options)
}

/// Completes the short id that a revision of a SHA-256 repository begins with. The library takes ids of up to 40 digits
/// for SHA-1 wherever it meets them, and so finds none.
fn lengthen(repository: &gix::Repository, revision: &str) -> Result<String, TreeError> {
    let hash = repository.object_hash();
    let end = revision.find(|digit: char| !digit.is_ascii_hexdigit()).unwrap_or(revision.len());
    let (short, rest) = revision.split_at(end);
    let is_short_id = (4..hash.len_in_hex()).contains(&end)
        && (rest.is_empty() || rest.starts_with(['^', '~', ':', '@']))
        && hash != gix::hash::Kind::Sha1;
    // A reference of that name is meant first, as in git.
    if !is_short_id || matches!(repository.try_find_reference(short), Ok(Some(_))) {
        return Ok(revision.to_owned());
    }
    let unknown = |error: gix::Error| TreeError::UnknownRevision {
        revision: revision.to_owned(),
        detail: detail(&error),
    };
    let padded = format!("{short:0<width$}", width = hash.len_in_hex());
    let id = gix::ObjectId::from_hex(padded.as_bytes()).map_err(unknown)?;
    let prefix = gix::hash::Prefix::new(&id, end).map_err(unknown)?;
    let mut found = Default::default();
    repository.objects.lookup_prefix(prefix, Some(&mut found)).map_err(unknown)?;
    let mut found: Vec<gix::ObjectId> = found.into_iter().collect();
    found.sort_unstable();
    match found.as_slice() {
        [] => Ok(revision.to_owned()),
        [one] => Ok(format!("{one}{rest}")),
        several => {
            let kind = |id| {
                repository.find_header(id).map_or("unreadable".to_owned(), |header| header.kind().to_string())
            };
            let candidates = several.iter().map(|id| format!("{id} ({})", kind(*id))).collect();
            Err(TreeError::Ambiguous { revision: revision.to_owned(), candidates })
        }
    }
}

fn explain_revision(revision: &str, error: &gix::Error) -> TreeError {
    let unknown = |detail: String| TreeError::UnknownRevision { revision: revision.to_owned(), detail };
    let mut innermost = String::new();
    for cause in error.iter_errors() {
        match cause.downcast_ref() {
            Some(RevisionError::AmbiguousPrefix { candidates, .. }) => {
                let candidates = candidates.iter().map(|(id, info)| format!("{id} ({info})")).collect();
                return TreeError::Ambiguous { revision: revision.to_owned(), candidates };
            }
            Some(RevisionError::MissingReference { name }) => {
                let name = show(name);
                // HEAD leads to a branch that the first commit will make.
                let is_unborn = name.starts_with("refs/heads/") && !revision.contains(&name);
                return unknown(match is_unborn {
                    true => format!("`{name}` has no commit yet"),
                    false => format!("there is no branch, tag or object `{name}`"),
                });
            }
            _ => {}
        }
        innermost = cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    }
    // What the parser was doing is of no use to who asked; what it came upon in the end is.
    unknown(innermost)
}

/// The commit and tree that HEAD stands for; `None` before the first commit.
pub(super) fn head(repository: &gix::Repository) -> Result<Option<Peeled>, TreeError> {
    let id = repository.head().and_then(gix::Head::try_into_peeled_id).map_err(|error| {
        TreeError::UnknownRevision { revision: "HEAD".to_owned(), detail: detail(&error) }
    })?;
    id.map(|id| peel(repository, id.detach(), "HEAD")).transpose()
}
