//! Working trees, the index and plain folders, against what git makes of them.
#![forbid(unsafe_code)]

use super::{Repo, git_in, git_state, listing, ls_tree, make_fifo, tree};
use crate::tree::{EntryKind, Source, TreeError, resolve};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// A repository with one of everything, committed.
fn varied() -> Repo {
    let repo = Repo::new(&[]);
    repo.write(".gitignore", "*.log\n/ignored/\n!keep.log\n");
    for path in ["edited", "deleted", "mode", "to-link", "to-folder", "folder/a", "folder/b", "gone/x/y"] {
        repo.write(path, path);
    }
    repo.write("linked/a", "1");
    repo.write("same-size", "12345");
    symlink("edited", repo.path().join("to-file")).unwrap();
    symlink("nowhere", repo.path().join("retargeted")).unwrap();
    repo.write("ignored/tracked", "1");
    repo.git(&["add", "-f", "ignored/tracked"]);
    repo.commit();
    repo
}

fn disturb(repo: &Repo) {
    let path = |name: &str| repo.path().join(name);
    repo.write("edited", "something else");
    repo.write("same-size", "54321");
    std::fs::remove_file(path("deleted")).unwrap();
    std::fs::remove_dir_all(path("gone")).unwrap();
    std::fs::set_permissions(path("mode"), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::remove_file(path("to-link")).unwrap();
    symlink("/etc/passwd", path("to-link")).unwrap();
    std::fs::remove_file(path("to-file")).unwrap();
    repo.write("to-file", "now a file");
    std::fs::remove_file(path("retargeted")).unwrap();
    symlink("edited", path("retargeted")).unwrap();
    std::fs::remove_file(path("to-folder")).unwrap();
    repo.write("to-folder/inside/x", "1");
    std::fs::remove_dir_all(path("folder")).unwrap();
    repo.write("folder", "now a file");
    std::fs::rename(path("linked"), path("elsewhere")).unwrap();
    symlink("elsewhere", path("linked")).unwrap();
    repo.write("ignored/tracked", "2");
    repo.write("ignored/untracked", "1");
    repo.write("new/.gitignore", "secret*\n");
    repo.write("new/secret", "1");
    repo.write("new/deep/er/file", "1");
    repo.write("new/keep.log", "1");
    repo.write("x.log", "1");
    repo.write("excluded/file", "1");
    repo.write(".git/info/exclude", "excluded\n");
    repo.write("announced", "1");
    repo.git(&["add", "-N", "announced"]);
    std::fs::create_dir(path("empty")).unwrap();
    make_fifo(&path("pipe"));
    std::fs::write(repo.path().join(OsStr::from_bytes(b"odd \xff\n\"name")), "1").unwrap();
    repo.write("not-a-repository/.git/rubbish", "1");
    repo.write("not-a-repository/file", "1");
    git_in(repo.path(), &["init", "-q", "nested"], b"");
    git_in(&path("nested"), &["commit", "-q", "--allow-empty", "-m", "x"], b"");
}

#[test]
fn the_working_tree_is_what_git_would_add_and_nothing_is_written() {
    let repo = varied();
    let clean = repo.resolve(&Source::WorkingTree).unwrap();
    assert_eq!(tree(&clean), repo.git(&["rev-parse", "HEAD^{tree}"]));
    assert!(!clean.identity().dirty);
    assert_eq!(clean.identity().commit.as_ref().unwrap().hex(), repo.git(&["rev-parse", "HEAD"]));

    disturb(&repo);
    // Who asks must not matter, nor what git would run.
    let canary = format!("touch {}", repo.path().join("canary").display());
    for key in ["core.fsmonitor", "filter.x.clean", "core.hooksPath"] {
        repo.git(&["config", key, &canary]);
    }
    repo.git(&["config", "core.excludesFile", "/dev/null"]);
    let before = git_state(repo.path());
    let found = repo.resolve(&Source::WorkingTree).unwrap();
    assert_eq!(git_state(repo.path()), before);
    assert!(!repo.path().join("canary").exists());
    repo.git(&["config", "--unset", "core.fsmonitor"]);
    assert_eq!(tree(&found), repo.added());
    assert!(found.identity().dirty);
    assert_eq!(found.identity().commit, None);

    // What was read stays what it was, whatever happens to the files.
    repo.write("edited", "changed again");
    let entries = found.entries().unwrap();
    let edited = entries.iter().find(|entry| entry.path == b"edited").unwrap();
    let mut buffer = Vec::new();
    found.reader().read(&edited.id, &mut buffer).unwrap();
    assert_eq!(buffer, b"something else");
    assert_ne!(tree(&repo.resolve(&Source::WorkingTree).unwrap()), tree(&found));
}

#[test]
fn the_index_is_what_git_writes() {
    let repo = varied();
    let head = repo.resolve(&Source::Index).unwrap();
    assert!(!head.identity().dirty);
    repo.write("staged/file", "1");
    repo.git(&["add", "staged"]);
    repo.git(&["rm", "-q", "--cached", "edited"]);
    disturb(&repo);
    let found = repo.resolve(&Source::Index).unwrap();
    let written = repo.git(&["write-tree"]);
    assert_eq!(tree(&found), written);
    assert_eq!(listing(&found), ls_tree(repo.path(), &written));
    assert!(found.identity().dirty);
}

#[test]
fn before_the_first_commit_there_is_a_tree_all_the_same() {
    let repo = Repo::new(&[]);
    let empty = repo.resolve(&Source::WorkingTree).unwrap();
    assert_eq!(tree(&empty), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
    repo.write("a/b", "1");
    let found = repo.resolve(&Source::WorkingTree).unwrap();
    assert_eq!(tree(&found), repo.added());
    assert!(found.identity().dirty && found.identity().commit.is_none());
}

#[test]
fn a_conflict_is_named() {
    let repo = Repo::new(&[]);
    repo.write("file", "1");
    repo.commit();
    let blob = repo.git(&["rev-parse", "HEAD:file"]);
    let entries = format!("0 {blob}\tfile\n100644 {blob} 2\tsub/file\n100644 {blob} 3\tsub/file\n");
    git_in(repo.path(), &["update-index", "--index-info"], entries.as_bytes());
    for source in [Source::WorkingTree, Source::Index] {
        let error = repo.resolve(&source).unwrap_err();
        assert!(matches!(&error, TreeError::Conflict(path) if path == "sub/file"), "{error}");
    }
}

#[test]
fn what_the_index_says_not_to_look_at_stands() {
    let repo = Repo::new(&[]);
    for path in ["a/file", "b/file", "c/file", "b/deep/file", "top"] {
        repo.write(path, path);
    }
    let commit = repo.commit();
    let whole = repo.git(&["rev-parse", "HEAD^{tree}"]);
    repo.git(&["update-index", "--assume-unchanged", "top"]);
    repo.write("top", "edited");
    assert_eq!(tree(&repo.resolve(&Source::WorkingTree).unwrap()), whole);
    repo.git(&["update-index", "--no-assume-unchanged", "top"]);
    repo.git(&["checkout", "-q", "top"]);
    for options in [&["--cone"][..], &["--cone", "--sparse-index"], &["--no-cone", "--no-sparse-index"]] {
        repo.git(&[&["sparse-checkout", "set"], options, &["a"]].concat());
        assert!(!repo.path().join("b").exists());
        for source in [Source::WorkingTree, Source::Index] {
            let found = repo.resolve(&source).unwrap();
            assert_eq!(tree(&found), whole, "{options:?}");
            assert_eq!(found.identity().commit.as_ref().unwrap().hex(), commit);
        }
    }
    // A file that is there although it should not be is looked at.
    repo.write("b/file", "edited");
    let found = repo.resolve(&Source::WorkingTree).unwrap();
    repo.git(&["add", "--sparse", "-A"]);
    assert_eq!(tree(&found), repo.git(&["write-tree"]));
    assert_ne!(tree(&found), whole);
}

#[test]
fn submodules_stay_at_the_commit_of_the_index() {
    let repo = Repo::new(&[]);
    repo.write("file", "1");
    let commit = repo.commit();
    for name in ["there", "missing"] {
        repo.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{commit},sub/{name}")]);
    }
    repo.write("sub/there/anything", "1");
    let found = repo.resolve(&Source::WorkingTree).unwrap();
    assert_eq!(tree(&repo.resolve(&Source::Index).unwrap()), repo.git(&["write-tree"]));
    let paths: Vec<_> = found.entries().unwrap().into_iter().map(|entry| (entry.path, entry.kind)).collect();
    assert!(paths.contains(&(b"sub/there".to_vec(), EntryKind::Submodule)));
    assert!(
        !paths.iter().any(|(path, _)| path.starts_with(b"sub/missing") || path.starts_with(b"sub/there/"))
    );
    assert!(found.folder_exists(b"sub/there"));

    git_in(repo.path(), &["init", "-q", "unborn"], b"");
    let error = repo.resolve(&Source::WorkingTree).unwrap_err();
    assert!(matches!(&error, TreeError::NestedWithoutCommit(path) if path.ends_with("unborn")), "{error}");
}

#[test]
fn linked_worktrees_and_bare_repositories_are_understood() {
    let repo = Repo::new(&[]);
    repo.write("sub/file", "1");
    repo.commit();
    let other = tempfile::tempdir().unwrap();
    let linked = other.path().join("linked");
    repo.git(&["worktree", "add", "-q", "-b", "side", linked.to_str().unwrap()]);
    std::fs::write(linked.join("sub/file"), "2").unwrap();
    repo.write("sub/file", "3");
    let scratch = other.path().join("scratch");
    let found = resolve(&linked.join("sub"), &Source::WorkingTree, &scratch).unwrap();
    assert_eq!(found.repository_root(), Some(linked.as_path()));
    git_in(&linked, &["add", "-A"], b"");
    assert_eq!(tree(&found), git_in(&linked, &["write-tree"], b""));
    git_in(&linked, &["commit", "-q", "-m", "x"], b"");
    let head = resolve(&linked, &Source::Revision("HEAD".to_owned()), &scratch).unwrap();
    assert_eq!(tree(&head), tree(&found));

    let bare = other.path().join("bare.git");
    git_in(other.path(), &["clone", "-q", "--bare", repo.path().to_str().unwrap(), "bare.git"], b"");
    let found = resolve(&bare, &Source::Revision("main:sub".to_owned()), &scratch).unwrap();
    assert_eq!(tree(&found), repo.git(&["rev-parse", "main:sub"]));
    for source in [Source::WorkingTree, Source::Index] {
        let error = resolve(&bare, &source, &scratch).unwrap_err();
        assert!(matches!(error, TreeError::Bare(_)), "{error}");
    }
}

#[test]
fn a_plain_folder_has_the_id_that_git_would_give_it() {
    let repo = varied();
    repo.write("x.log", "1");
    repo.git(&["add", "-f", "x.log"]);
    let expected = repo.git(&["write-tree"]);
    let scratch = tempfile::tempdir().unwrap();
    let find = || {
        resolve(
            Path::new("/"),
            &Source::Folder { path: repo.path().to_owned(), ignored: true },
            scratch.path(),
        )
    };
    let found = find().unwrap();
    assert_eq!(tree(&found), expected);
    assert_eq!(found.repository_root(), None);
    assert_eq!(listing(&found), ls_tree(repo.path(), &expected));
    make_fifo(&repo.path().join("sub-pipe"));
    let error = find().unwrap_err();
    assert!(matches!(&error, TreeError::Special { path, .. } if path.ends_with("sub-pipe")), "{error}");
    let error = resolve(repo.path(), &Source::Folder { path: "none".into(), ignored: true }, scratch.path())
        .unwrap_err();
    assert!(error.to_string().contains("none"), "{error}");
}

#[test]
fn files_and_folders_of_a_tree_are_found() {
    let repo = Repo::new(&[]);
    repo.write("sub/dir/file", "12345");
    symlink("sub", repo.path().join("link")).unwrap();
    repo.commit();
    for source in [Source::Revision("HEAD".to_owned()), Source::WorkingTree, Source::Index] {
        let found = repo.resolve(&source).unwrap();
        for (path, there) in [("", true), ("sub", true), ("sub/dir", true), ("sub/", true), ("link", false)] {
            assert_eq!(found.folder_exists(path.as_bytes()), there, "{path}");
        }
        for path in ["sub/dir/file", "none", "link/dir", "sub/..", "..", "sub//dir", "/sub"] {
            assert!(!found.folder_exists(path.as_bytes()), "{path}");
        }
        assert_eq!(found.read_file(b"sub/dir/file", 5).unwrap().unwrap(), b"12345");
        assert_eq!(found.read_file(b"sub/dir/none", 5).unwrap(), None);
        assert!(matches!(found.read_file(b"sub/dir/file", 4), Err(TreeError::TooLarge { .. })));
        for path in ["sub", "link"] {
            assert!(matches!(found.read_file(path.as_bytes(), 4), Err(TreeError::NotAFile { .. })), "{path}");
        }
    }
}

#[test]
fn a_tree_large_enough_for_several_threads_is_the_same() {
    fn moves_between_threads<T: Send>() {}
    moves_between_threads::<crate::tree::Snapshot>();
    moves_between_threads::<crate::tree::BlobReader>();
    let repo = Repo::new(&[]);
    for number in 0..2500 {
        repo.write(&format!("d{}/{number}", number % 50), number.to_string());
    }
    repo.commit();
    assert!(!repo.resolve(&Source::WorkingTree).unwrap().identity().dirty);
    for number in (0..2500).step_by(100) {
        repo.write(&format!("d{}/{number}", number % 50), "edited");
    }
    std::fs::remove_dir_all(repo.path().join("d7")).unwrap();
    assert_eq!(tree(&repo.resolve(&Source::WorkingTree).unwrap()), repo.added());
}

#[test]
fn what_cannot_be_read_or_stored_is_named() {
    let repo = Repo::new(&[]);
    repo.write("tracked", "1");
    repo.commit();
    std::fs::remove_file(repo.path().join("tracked")).unwrap();
    make_fifo(&repo.path().join("tracked"));
    let error = repo.resolve(&Source::WorkingTree).unwrap_err();
    assert!(matches!(&error, TreeError::Special { path, .. } if path.ends_with("tracked")), "{error}");
    std::fs::remove_file(repo.path().join("tracked")).unwrap();
    repo.write(".GIT/config", "x");
    let error = repo.resolve(&Source::WorkingTree).unwrap_err();
    assert!(matches!(error, TreeError::Hostile { .. }), "{error}");
    std::fs::remove_dir_all(repo.path().join(".GIT")).unwrap();
    repo.write("locked/file", "x");
    std::fs::set_permissions(repo.path().join("locked"), PermissionsExt::from_mode(0o000)).unwrap();
    // Root may read everything.
    if !rustix::process::geteuid().is_root() {
        let error = repo.resolve(&Source::WorkingTree).unwrap_err();
        assert!(error.to_string().contains("locked"), "{error}");
    }
    std::fs::set_permissions(repo.path().join("locked"), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(repo.path().join(".git/index"), "rubbish").unwrap();
    let error = repo.resolve(&Source::Index).unwrap_err();
    assert!(matches!(&error, TreeError::Index { path, .. } if path.ends_with("index")), "{error}");
}
