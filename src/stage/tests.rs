//! A layer holds what git says the tree holds, is made once, and a failure leaves nothing behind.
#![forbid(unsafe_code)]

use crate::model::event::{Event, Sink};
use crate::stage::{Layer, LayerOptions, StageError, layer};
use crate::tree::tests::Repo;
use crate::tree::{Source, open_folder, open_root};
use rustix::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::path::Path;

/// Remembers the last count of files.
#[derive(Default)]
struct Progress {
    last: Option<(u64, u64)>,
}

impl Sink for Progress {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Staging { done, total } = event {
            assert!(self.last.is_none_or(|(before, _)| done >= before));
            self.last = Some((done, total));
        }
    }
}

fn options(root: &Path) -> LayerOptions {
    LayerOptions { root: root.join("trees"), mtime: 1_700_000_000, owner: None, boot_id: "boot".to_owned() }
}

fn lay(repo: &Repo, options: &LayerOptions) -> Result<Layer, StageError> {
    let snapshot = repo.resolve(&Source::Revision("HEAD".to_owned()))?;
    layer(&snapshot, options, &mut Progress::default())
}

/// Names in the folder of all layers, sorted.
fn names(options: &LayerOptions) -> Vec<String> {
    let Ok(listing) = std::fs::read_dir(&options.root) else { return Vec::new() };
    let mut names: Vec<_> = listing.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A repository with enough files for several threads, and one of every kind of entry.
fn varied() -> Repo {
    let repo = Repo::new(&[]);
    for number in 0..500 {
        repo.write(&format!("many/{}/{number}", number % 7), format!("content of {number}"));
    }
    repo.write("run", "#!/bin/sh\n");
    std::fs::set_permissions(repo.path().join("run"), PermissionsExt::from_mode(0o755)).unwrap();
    repo.write("large", vec![7; 3_000_000]);
    repo.write("empty", "");
    repo.write(".gitattributes", "*.txt text eol=crlf export-ignore\n* ident export-subst\n");
    // A checkout would give this file other bytes than its blob has, and an archive would leave it out.
    repo.write("as-is.txt", "$Id$\n$Format:%H$\n");
    symlink("../../outside", repo.path().join("many/link")).unwrap();
    symlink("many", repo.path().join("inner")).unwrap();
    let commit = repo.commit();
    repo.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{commit},modules/one")]);
    repo.git(&["commit", "-q", "-m", "x"]);
    repo
}

#[test]
fn a_layer_is_the_tree_byte_for_byte() {
    let repo = varied();
    let cache = tempfile::tempdir().unwrap();
    let options = options(cache.path());
    let snapshot = repo.resolve(&Source::Revision("HEAD".to_owned())).unwrap();
    let mut progress = Progress::default();
    let made = layer(&snapshot, &options, &mut progress).unwrap();

    // The folder has the tree's id again when git is asked what it holds, but for the submodule, which is empty.
    let again = Repo::new(&[]);
    let work_tree = format!("--work-tree={}", made.path.display());
    again.git(&[&work_tree, "add", "-A", "--force"]);
    let entry = repo.git(&["ls-tree", "HEAD", "modules/one"]);
    let commit = entry.split([' ', '\t']).nth(2).unwrap();
    again.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{commit},modules/one")]);
    assert_eq!(again.git(&["write-tree", "--missing-ok"]), snapshot.identity().tree.hex());
    assert_eq!(std::fs::read(made.path.join("as-is.txt")).unwrap(), *b"$Id$\n$Format:%H$\n");

    let entries = snapshot.entries().unwrap();
    let kinds = |wanted: &[crate::tree::EntryKind]| {
        u64::try_from(entries.iter().filter(|entry| wanted.contains(&entry.kind)).count()).unwrap()
    };
    use crate::tree::EntryKind::{Executable, File, Folder, Submodule, Symlink};
    assert_eq!(made.files, kinds(&[File, Executable, Symlink]));
    assert_eq!(progress.last, Some((made.files, made.files)));
    for entry in &entries {
        let path = made.path.join(std::str::from_utf8(&entry.path).unwrap());
        let found = path.symlink_metadata().unwrap();
        assert_eq!((found.mtime(), found.mtime_nsec()), (options.mtime, 0), "{}", path.display());
        let mode = match entry.kind {
            File => 0o100_644,
            Executable => 0o100_755,
            Symlink => 0o120_777,
            Folder | Submodule => 0o040_755,
        };
        assert_eq!(found.mode(), mode, "{}", path.display());
    }
    assert_eq!(made.path.metadata().unwrap().mtime(), options.mtime);
    assert_eq!(made.path.metadata().unwrap().mode(), 0o040_755);
    assert_eq!(std::fs::read_dir(made.path.join("modules/one")).unwrap().count(), 0);
    assert_eq!(std::fs::read_link(made.path.join("many/link")).unwrap(), Path::new("../../outside"));
}

#[test]
fn a_layer_is_made_once_per_boot_time_and_owner() {
    let repo = Repo::new(&[]);
    repo.write("file", "12345");
    repo.commit();
    let cache = tempfile::tempdir().unwrap();
    let first = options(cache.path());
    let made = lay(&repo, &first).unwrap();
    assert_eq!((made.files, made.bytes), (1, 5));
    // A second call makes nothing: the folder is the same one.
    let inode = made.path.metadata().unwrap().ino();
    assert_eq!(lay(&repo, &first).unwrap(), made);
    assert_eq!(made.path.metadata().unwrap().ino(), inode);
    // After a restart it is made anew in the same place, and so it is if the file beside it is not whole.
    let second = LayerOptions { boot_id: "other".to_owned(), ..first.clone() };
    std::fs::write(made.path.join("mark"), "").unwrap();
    assert_eq!(lay(&repo, &second).unwrap(), made);
    assert!(!made.path.join("mark").exists());
    std::fs::write(made.path.join("mark"), "").unwrap();
    std::fs::write(cache.path().join("trees").join(&names(&first)[1]), "checkrun.layer/2\n").unwrap();
    assert_eq!(lay(&repo, &second).unwrap(), made);
    assert!(!made.path.join("mark").exists());
    assert_eq!(names(&first).len(), 2, "{:?}", names(&first));

    let later = LayerOptions { mtime: first.mtime + 1, ..first.clone() };
    assert_ne!(lay(&repo, &later).unwrap().path, made.path);
    if rustix::process::geteuid().is_root() {
        let owned = LayerOptions { owner: Some((1234, 4321)), ..first.clone() };
        let owned = lay(&repo, &owned).unwrap();
        for path in [owned.path.clone(), owned.path.join("file")] {
            let found = path.symlink_metadata().unwrap();
            assert_eq!((found.uid(), found.gid()), (1234, 4321));
        }
    }
}

#[test]
fn several_builders_at_once_agree() {
    let repo = varied();
    let cache = tempfile::tempdir().unwrap();
    let options = options(cache.path());
    let layers: Vec<Layer> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..4).map(|_| scope.spawn(|| lay(&repo, &options).unwrap())).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(layers.iter().all(|layer| *layer == layers[0]));
    assert_eq!(names(&options).len(), 2, "{:?}", names(&options));
}

#[test]
fn a_failure_leaves_nothing_behind() {
    let repo = varied();
    let cache = tempfile::tempdir().unwrap();
    let options = options(cache.path());
    let blob = repo.git(&["rev-parse", "HEAD:many/3/402"]);
    std::fs::remove_file(repo.path().join(".git/objects").join(&blob[..2]).join(&blob[2..])).unwrap();
    let error = lay(&repo, &options).unwrap_err();
    assert!(error.to_string().contains("`many/3/402`"), "{error}");
    assert!(error.to_string().contains(&blob), "{error}");
    assert_eq!(names(&options), Vec::<String>::new());
    std::fs::write(cache.path().join("file"), "").unwrap();
    let error = lay(&repo, &LayerOptions { root: cache.path().join("file/trees"), ..options }).unwrap_err();
    assert!(error.to_string().contains("file/trees"), "{error}");
}

#[test]
fn paths_longer_than_the_kernel_takes_are_laid_out() {
    let repo = Repo::new(&[]);
    let blob = crate::tree::tests::git_in(repo.path(), &["hash-object", "-w", "--stdin"], b"deep");
    let mut line = format!("100644 blob {blob}\tfile\n");
    let mut tree = String::new();
    let part = "x".repeat(200);
    for _ in 0..40 {
        tree = crate::tree::tests::git_in(repo.path(), &["mktree"], line.as_bytes());
        line = format!("040000 tree {tree}\t{part}\n");
    }
    let cache = tempfile::tempdir().unwrap();
    let options = options(cache.path());
    let snapshot = repo.resolve(&Source::Revision(tree)).unwrap();
    let made = layer(&snapshot, &options, &mut Progress::default()).unwrap();
    let root = open_root(&made.path).unwrap();
    let folder = open_folder(root.as_fd(), vec![part.as_str(); 39].join("/").as_bytes()).unwrap();
    let found = rustix::fs::statat(&folder, "file", rustix::fs::AtFlags::empty()).unwrap();
    assert_eq!((found.st_size, found.st_mtime), (4, options.mtime));
}
