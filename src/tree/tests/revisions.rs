//! Revisions: where they lead, and what is said of those that lead nowhere.
#![forbid(unsafe_code)]

use super::{Repo, git_in, listing, ls_tree, tree};
use crate::tree::{Source, TreeError, resolve};
use std::os::unix::fs::{PermissionsExt, symlink};

#[test]
fn revisions_lead_where_git_says() {
    for format in ["sha1", "sha256"] {
        let repo = Repo::new(&["--object-format", format]);
        repo.write("sub/dir/file", "1");
        repo.write("run", "#!/bin/sh\n");
        std::fs::set_permissions(repo.path().join("run"), PermissionsExt::from_mode(0o755)).unwrap();
        symlink("sub", repo.path().join("link")).unwrap();
        repo.commit();
        repo.write("sub/dir/file", "2");
        let head = repo.commit();
        repo.git(&["tag", "-a", "-m", "x", "inner"]);
        repo.git(&["tag", "-a", "-m", "x", "outer", "inner"]);
        repo.git(&["branch", "feature/x", "HEAD~1"]);
        let short = &head[..10];
        let shorter = format!("{short}~1");
        let names = [
            &shorter,
            "HEAD",
            "@",
            "main",
            "refs/heads/main",
            "feature/x",
            "HEAD~1",
            "HEAD^",
            "inner",
            "outer",
        ];
        for name in names.into_iter().chain([short, &head]) {
            for revision in [name.to_owned(), format!("{name}^{{tree}}")] {
                let found = repo.revision(&revision).unwrap();
                assert_eq!(tree(&found), repo.git(&["rev-parse", &format!("{name}^{{tree}}")]), "{revision}");
                let commit = repo.git(&["rev-parse", &format!("{name}^{{commit}}")]);
                assert_eq!(found.identity().commit.as_ref().unwrap().hex(), commit, "{revision}");
                assert!(!found.identity().dirty);
                assert_eq!(found.identity().format.name(), format);
                assert_eq!(listing(&found), ls_tree(repo.path(), name));
            }
        }
        let root = repo.git(&["rev-parse", "HEAD^{tree}"]);
        for name in ["HEAD:", "HEAD:sub", "HEAD:sub/dir", "main~1:sub", &root] {
            let found = repo.revision(name).unwrap();
            assert_eq!(tree(&found), repo.git(&["rev-parse", name]), "{name}");
            assert_eq!(found.identity().commit, None, "{name}");
        }
        // Objects in a pack are read as loose ones are, and so are packed references.
        repo.git(&["gc", "-q"]);
        assert_eq!(tree(&repo.revision("outer").unwrap()), root);
        assert_eq!(listing(&repo.revision("HEAD").unwrap()), ls_tree(repo.path(), "HEAD"));
    }
}

#[test]
fn what_is_no_tree_is_said_to_be_none() {
    let repo = Repo::new(&[]);
    let error = repo.revision("HEAD").unwrap_err();
    assert!(matches!(error, TreeError::UnknownRevision { .. }), "{error}");
    assert!(error.to_string().contains("no commit yet"), "{error}");
    repo.write("sub/file", "1");
    let head = repo.commit();
    for name in [
        "nothing",
        "HEAD~7",
        "HEAD:none",
        "",
        "^{tree}",
        "HEAD..HEAD",
        "HEAD:./sub",
        "@{upstream}",
        ":",
        "--",
        "\0",
    ] {
        let error = repo.revision(name).unwrap_err();
        assert!(matches!(error, TreeError::UnknownRevision { .. }), "{name:?}: {error:?}");
        assert!(error.hint().is_some());
    }
    let none = head.replace(|_| true, "1");
    let error = repo.revision(&none).unwrap_err();
    assert!(error.to_string().contains(&none), "{error}");
    for name in ["HEAD:sub/file", ":sub/file"] {
        let error = repo.revision(name).unwrap_err();
        assert!(matches!(error, TreeError::NotATree { .. }), "{name}: {error}");
    }
    let elsewhere = tempfile::tempdir().unwrap();
    for source in [Source::Revision("HEAD".to_owned()), Source::WorkingTree, Source::Index] {
        let error = resolve(elsewhere.path(), &source, elsewhere.path()).unwrap_err();
        assert!(matches!(error, TreeError::NotARepository(_)), "{error}");
    }
}

#[test]
fn an_ambiguous_short_id_names_what_it_may_mean() {
    let repo = Repo::new(&[]);
    let mut seen = std::collections::HashMap::new();
    let clash = (0..5000).find_map(|number: u32| {
        let id = gix::objs::compute_hash(
            gix::hash::Kind::Sha1,
            gix::objs::Kind::Blob,
            number.to_string().as_bytes(),
        );
        let prefix = id.unwrap().to_string()[..4].to_owned();
        seen.insert(prefix.clone(), number).map(|other| (prefix, other, number))
    });
    let (prefix, one, two) = clash.unwrap();
    for number in [one, two] {
        git_in(repo.path(), &["hash-object", "-w", "--stdin"], number.to_string().as_bytes());
    }
    let error = repo.revision(&prefix).unwrap_err();
    let TreeError::Ambiguous { candidates, .. } = &error else { unreachable!("{error:?}") };
    assert_eq!(candidates.len(), 2, "{error}");
}

#[test]
fn replaced_and_missing_and_damaged_objects_do_not_pass() {
    let repo = Repo::new(&[]);
    repo.write("sub/file", "1");
    let first = repo.commit();
    repo.write("sub/file", "2");
    let second = repo.commit();
    let real = repo.git(&["rev-parse", "HEAD^{tree}"]);
    repo.git(&["replace", &second, &first]);
    assert_eq!(tree(&repo.revision("HEAD").unwrap()), real);

    let loose = |id: &str| repo.path().join(".git/objects").join(&id[..2]).join(&id[2..]);
    let sub = repo.git(&["rev-parse", &format!("{real}:sub")]);
    let file = repo.git(&["rev-parse", &format!("{real}:sub/file")]);
    let other = repo.git(&["rev-parse", &format!("{first}:sub/file")]);

    std::fs::remove_file(loose(&file)).unwrap();
    std::fs::copy(loose(&other), loose(&file)).unwrap();
    let snapshot = repo.revision("HEAD").unwrap();
    let id = crate::model::digest::ObjectId::parse(&file).unwrap();
    let error = snapshot.reader().read(&id, &mut Vec::new()).unwrap_err();
    assert!(matches!(&error, TreeError::Damaged { id, .. } if *id == file), "{error}");

    std::fs::remove_file(loose(&file)).unwrap();
    let error = snapshot.reader().read(&id, &mut Vec::new()).unwrap_err();
    assert!(matches!(&error, TreeError::Missing { id, .. } if *id == file), "{error}");

    std::fs::remove_file(loose(&sub)).unwrap();
    let error = repo.revision("HEAD").unwrap().entries().unwrap_err();
    assert!(matches!(&error, TreeError::Missing { id, .. } if *id == sub), "{error}");
    assert!(error.to_string().contains("`sub`"), "{error}");

    std::fs::remove_file(loose(&real)).unwrap();
    let error = repo.revision("HEAD").unwrap_err();
    assert!(matches!(&error, TreeError::Missing { id, .. } if *id == real), "{error}");
}

#[test]
fn hostile_trees_are_refused_by_name() {
    let repo = Repo::new(&[]);
    let blob = git_in(repo.path(), &["hash-object", "-w", "--stdin"], b"x");
    let blob = crate::model::digest::ObjectId::parse(&blob).unwrap();
    let entry = |mode: &str, name: &[u8], id: &crate::model::digest::ObjectId| {
        [mode.as_bytes(), b" ", name, b"\0", id.as_bytes()].concat()
    };
    let make = |bytes: &[u8]| {
        git_in(repo.path(), &["hash-object", "-t", "tree", "-w", "--stdin", "--literally"], bytes)
    };
    let harmless = make(&entry("100644", b"x", &blob));
    let harmless = crate::model::digest::ObjectId::parse(&harmless).unwrap();
    for name in [&b".."[..], b".", b".git", b".GiT", b"a/b", b""] {
        for (mode, id) in [("100644", &blob), ("40000", &harmless)] {
            let made = make(&entry(mode, name, id));
            let made = make(&entry("40000", b"sub", &crate::model::digest::ObjectId::parse(&made).unwrap()));
            let error = repo.revision(&made).unwrap().entries().unwrap_err();
            assert!(
                matches!(error, TreeError::Hostile { .. } | TreeError::Damaged { .. }),
                "{name:?}: {error}"
            );
        }
    }
    let twice =
        [entry("100644", b"a", &blob), entry("100644", b"a-b", &blob), entry("40000", b"a", &harmless)];
    let error = repo.revision(&make(&twice.concat())).unwrap().entries().unwrap_err();
    assert!(matches!(error, TreeError::Hostile { .. }), "{error}");
}
