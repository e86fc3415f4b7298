//! Trees on disk: whatever a tree holds and however it came there, the check finds exactly that.

use crate::support::{EVERYBODY, Env};
use std::path::Path;

/// Hashes the folder that it runs in as git would, with nothing but the tree of files: modes, links, names, bytes.
const HASH: &str = r#"
import os, hashlib, stat
def obj(kind, data):
    return hashlib.sha1(kind.encode() + b' ' + str(len(data)).encode() + b'\0' + data).digest()
def tree(fd, path):
    entries = []
    for name in os.listdir(path):
        at = path + b'/' + os.fsencode(name) if isinstance(name, str) else path + b'/' + name
        name = os.path.basename(at)
        found = os.lstat(at)
        assert found.st_mtime == 1767222000 and found.st_uid == 1000, (at, found)
        if stat.S_ISLNK(found.st_mode): entries.append((name, b'120000', obj('blob', os.readlink(at))))
        elif stat.S_ISDIR(found.st_mode):
            assert stat.S_IMODE(found.st_mode) == 0o755, at
            entries.append((name + b'/', b'40000', tree(fd, at)))
        else:
            mode = stat.S_IMODE(found.st_mode)
            assert stat.S_ISREG(found.st_mode) and mode in (0o644, 0o755), (at, oct(found.st_mode))
            entries.append((name, b'100755' if mode == 0o755 else b'100644', obj('blob', open(at, 'rb').read())))
    entries.sort()
    return obj('tree', b''.join(m + b' ' + n.rstrip(b'/') + b'\0' + i for n, m, i in entries))
print(tree(None, b'.').hex())
"#;

/// Hashes what the check sees of the tree `revision` and compares with git's own id.
#[track_caller]
fn is_exact(env: &Env, options: &[&str], revision: &str) {
    let id = env.git(&["rev-parse", &format!("{revision}^{{tree}}")]);
    let mut all = vec!["--tree", revision, "--no-cache"];
    all.extend(options);
    let seen = env.python(&all, HASH).expect(0);
    assert_eq!(seen.out().trim(), id, "{revision} {options:?}");
}

fn layers(env: &Env) -> usize {
    let trees = std::fs::read_dir(env.path("cache/trees")).expect("layers");
    trees.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_dir())).count()
}

/// Files and whiteouts below a folder.
fn size(folder: &Path) -> usize {
    std::fs::read_dir(folder)
        .expect("a folder")
        .flatten()
        .map(|entry| if entry.file_type().is_ok_and(|kind| kind.is_dir()) { size(&entry.path()) } else { 1 })
        .sum()
}

fn layer_of(env: &Env, revision: &str) -> std::path::PathBuf {
    let id = env.git(&["rev-parse", &format!("{revision}^{{tree}}")]);
    let trees = std::fs::read_dir(env.path("cache/trees")).expect("layers").flatten();
    trees
        .map(|entry| entry.path())
        .find(|path| {
            path.is_dir() && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&id))
        })
        .expect("a layer")
}

/// A tree that is worth building upon.
fn large(env: &Env) {
    for number in 0..400 {
        env.write(&format!("d{}/e{}/f{number}", number % 4, number % 20), format!("{number}"));
    }
    env.write("swap/a/x", "1").write("swap/a/y", "1").write("swap/b", "2").write("run", "#!/bin/sh\n");
    std::os::unix::fs::symlink("swap/a", env.repo("link")).expect("symlink");
    env.commit();
}

/// Each step is a commit that differs from the one before in a way that layers upon layers can get wrong.
fn history(env: &Env) -> Vec<String> {
    large(env);
    let mut commits = vec![env.git(&["rev-parse", "HEAD"])];
    let steps: [&dyn Fn(); 13] = [
        &|| {
            env.write("d1/e1/f1", "changed");
        },
        &|| {
            env.executable("run");
        },
        &|| std::fs::remove_dir_all(env.repo("swap/a")).expect("rm"),
        &|| {
            env.write("swap/a/z", "again, with other content");
        },
        &|| {
            std::fs::remove_file(env.repo("swap/b")).expect("rm");
            env.write("swap/b/now/a/folder", "x");
        },
        &|| {
            std::fs::remove_dir_all(env.repo("swap/b")).expect("rm");
            env.write("swap/b", "a file again");
        },
        &|| {
            std::fs::remove_file(env.repo("link")).expect("rm");
            env.write("link/was/a/link", "x");
        },
        &|| {
            std::fs::remove_dir_all(env.repo("link")).expect("rm");
            std::os::unix::fs::symlink("../../etc/passwd", env.repo("link")).expect("symlink");
        },
        &|| std::fs::remove_dir_all(env.repo("d2")).expect("rm"),
        &|| {
            env.write("d2/e2/f2", "one of many is back");
        },
        &|| {
            std::fs::remove_file(env.repo("d3/e3/f3")).expect("rm");
            env.write("d3/e3/f3/deep", "x");
        },
        &|| std::fs::rename(env.repo("d0"), env.repo("moved")).expect("mv"),
        &|| {
            env.write("d0/e0/f0", "0");
        },
    ];
    for step in steps {
        step();
        commits.push(env.commit());
    }
    commits
}

#[test]
fn a_tree_upon_another_is_exact_whatever_changed() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let commits = history(&env);
        for commit in &commits {
            is_exact(&env, &[], commit);
        }
        // Each has a layer of its own, and all but the first hold only what differs.
        assert_eq!(layers(&env), commits.len());
        assert_eq!(size(&layer_of(&env, &commits[0])), 405);
        assert_eq!(size(&layer_of(&env, &commits[1])), 1);
    }
    // And in the other direction.
    let env = Env::new();
    for commit in history(&env).iter().rev() {
        is_exact(&env, &[], commit);
    }
}

#[test]
fn a_copied_tree_is_the_same_as_an_overlaid_one() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let commits = history(&env);
        let hash = HASH.replace("found.st_uid == 1000", "True");
        for commit in &commits {
            let id = env.git(&["rev-parse", &format!("{commit}^{{tree}}")]);
            let options = ["--tree", commit, "--no-cache", "--policy", "landlock"];
            assert_eq!(env.python(&options, &hash).expect(0).out().trim(), id, "{commit}");
        }
        assert_eq!(size(&layer_of(&env, &commits[1])), 1);
    }
}

#[test]
fn a_dirty_working_tree_is_built_upon_its_commit() {
    let env = Env::new();
    large(&env);
    env.write("d1/e1/f1", "edited").write("new/file", "untracked");
    let seen = env.checkrun(&["--", "cat", "d1/e1/f1", "new/file", "d1/e1/f21"]).expect(0);
    assert_eq!(seen.out(), "editeduntracked21");
    assert_eq!(layers(&env), 2);
    assert_eq!(size(&layer_of(&env, "HEAD")), 405);
}

/// A plain folder has no repository to be compared in; each state of it costs what differs all the same, and is exact.
#[test]
fn a_plain_folder_that_changed_a_little_costs_that_little() {
    let env = Env::new();
    let commits = history(&env);
    let plain = env.path("home/plain");
    for (at, commit) in commits.iter().enumerate() {
        // Laid out by git, in a folder that keeps nothing of the state before.
        let place = plain.to_str().unwrap();
        if at > 0 {
            env.git(&["worktree", "remove", "--force", place]);
        }
        env.git(&["worktree", "add", "--detach", place, commit]);
        let id = env.git(&["rev-parse", &format!("{commit}^{{tree}}")]);
        let folder = ["--dir", plain.to_str().unwrap(), "--no-cache"];
        assert_eq!(env.python(&folder, HASH).expect(0).out().trim(), id, "step {at}");
    }
    let trees = std::fs::read_dir(env.path("cache/trees")).expect("layers").flatten();
    let mut sizes: Vec<usize> =
        trees.filter(|entry| entry.path().is_dir()).map(|entry| size(&entry.path())).collect();
    sizes.sort_unstable();
    assert_eq!(sizes.pop(), Some(405), "{sizes:?}");
    assert!(sizes.len() > 10, "{sizes:?}");
    // The step that moves a quarter of the tree is worth a new whole one.
    assert!(sizes.iter().filter(|size| **size > 40).count() <= 1, "{sizes:?}");
    // A list that says something else is not believed.
    for entry in std::fs::read_dir(env.path("cache/trees")).expect("layers").flatten() {
        if entry.file_name().to_string_lossy().ends_with(".list") {
            let mut list = std::fs::read(entry.path()).unwrap();
            let at = list.len() - 3;
            list[at] ^= 1;
            std::fs::write(entry.path(), list).unwrap();
        }
    }
    std::fs::write(plain.join("d1/e1/f1"), "another").unwrap();
    let folder = ["--dir", plain.to_str().unwrap(), "--no-cache"];
    let seen =
        env.checkrun(&[&folder[..], &["--", "sh", "-c", "cat d1/e1/f1; find . -type f | wc -l"]].concat());
    let count = env
        .git(&["ls-tree", "-r", commits.last().unwrap()])
        .lines()
        .filter(|line| !line.starts_with("120000"))
        .count();
    assert_eq!(seen.expect(0).out(), format!("another{count}\n"));
    drop(env.checkrun(&["gc", "--max-size", "1B"]).expect(0));
    assert_eq!(std::fs::read_dir(env.path("cache/trees")).expect("layers").count(), 0);
}

#[test]
fn a_scope_that_changed_a_little_costs_that_little() {
    let env = Env::new();
    let commits = history(&env);
    for commit in &commits[..4] {
        let scope = ["--no-cache", "--tree", commit, "--scope", ":(exclude)d2"];
        let seen = env.checkrun(&[&scope[..], &["--", "sh", "-c", "find . -type f | wc -l; ls d2"]].concat());
        let files = env.git(&["ls-tree", "-r", commit]);
        let count =
            files.lines().filter(|line| !line.contains("\td2/") && !line.starts_with("120000")).count();
        assert_eq!(seen.expect(2).out(), format!("{count}\n"), "{commit}");
    }
    let trees = std::fs::read_dir(env.path("cache/trees")).expect("layers").flatten();
    let mut sizes: Vec<usize> =
        trees.filter(|entry| entry.path().is_dir()).map(|entry| size(&entry.path())).collect();
    sizes.sort_unstable();
    assert_eq!(sizes.pop(), Some(305), "{sizes:?}");
    assert!(sizes.len() == 3 && sizes.iter().all(|size| *size <= 3), "{sizes:?}");
}

#[test]
fn making_room_never_takes_what_another_layer_lies_upon() {
    let env = Env::new();
    let commits = history(&env);
    for commit in &commits[..4] {
        is_exact(&env, &[], commit);
    }
    // The lowest holds nearly all bytes and carries the rest.
    drop(env.checkrun(&["gc", "--max-size", "100KiB"]).expect(0));
    assert_eq!(layers(&env), 4);
    let gone = env.checkrun(&["gc", "--max-size", "1B", "--format", "json"]).expect(0).json();
    assert_eq!(gone["layers"], 4);
    assert_eq!(std::fs::read_dir(env.path("cache/trees")).expect("layers").count(), 0);
    is_exact(&env, &[], &commits[3]);
}

#[test]
fn a_layer_whose_base_is_gone_is_made_anew() {
    let env = Env::new();
    let commits = history(&env);
    is_exact(&env, &[], &commits[0]);
    is_exact(&env, &[], &commits[1]);
    let base = layer_of(&env, &commits[0]);
    let meta = format!("{}.meta", base.display());
    std::fs::remove_file(meta).expect("rm");
    is_exact(&env, &[], &commits[1]);
    std::fs::remove_dir_all(&base).expect("rm");
    is_exact(&env, &[], &commits[2]);
    is_exact(&env, &[], &commits[0]);
}

// moby/buildkit, nrwl/nx#8921: what lies in a cache is believed, whatever became of it meanwhile.
#[test]
fn a_layer_altered_on_disk_is_noticed_before_it_is_used() {
    for who in crate::support::EVERYBODY {
        let env = Env::of(who);
        env.write("d/f", "true\n").write("g", "true\n").commit();
        let args = ["--no-cache", "--", "sh", "-c", "cat d/f g; ls"];
        let truth = env.checkrun(&args).expect(0).out();
        type Change = fn(&Path);
        let changes: [(&str, Change); 5] = [
            ("content of the same length and time", |layer| {
                let at = layer.join("d/f");
                let time = std::fs::metadata(&at).expect("a file").modified().expect("a time");
                std::fs::write(&at, "lies\n").expect("write");
                std::fs::File::options()
                    .write(true)
                    .open(&at)
                    .expect("open")
                    .set_modified(time)
                    .expect("time");
            }),
            ("cut short", |layer| std::fs::write(layer.join("g"), "").expect("write")),
            ("one file more", |layer| std::fs::write(layer.join("d/more"), "").expect("write")),
            ("one file less", |layer| std::fs::remove_file(layer.join("g")).expect("rm")),
            ("a mode", |layer| {
                use std::os::unix::fs::PermissionsExt;
                std::fs::set_permissions(layer.join("g"), PermissionsExt::from_mode(0o600)).expect("chmod");
            }),
        ];
        for (what, change) in changes {
            change(&layer_of(&env, "HEAD"));
            let first = env.checkrun(&args).expect(0);
            assert_eq!(first.out(), truth, "{what}");
            assert!(first.err().contains("altered and is made anew"), "{what}: {}", first.err());
            let second = env.checkrun(&args).expect(0);
            assert!(second.out() == truth && !second.err().contains("altered"), "{what}: said once");
        }
        let names: Vec<_> = std::fs::read_dir(env.path("cache/trees")).expect("layers").flatten().collect();
        assert_eq!(names.len(), 2, "what was altered is gone: {names:?}");
    }
    // The same where it carries another one.
    let env = Env::new();
    let commits = history(&env);
    is_exact(&env, &[], &commits[0]);
    is_exact(&env, &[], &commits[1]);
    let base = layer_of(&env, &commits[0]);
    std::fs::write(base.join("planted"), "x").expect("write");
    is_exact(&env, &[], &commits[1]);
    let base = layer_of(&env, &commits[1]);
    std::fs::write(base.join("planted"), "x").expect("write");
    is_exact(&env, &[], &commits[2]);
}

#[test]
fn the_clock_of_a_check_does_not_run_while_its_tree_is_laid_out() {
    let env = Env::new();
    for folder in 0..400 {
        for file in 0..100 {
            env.write(&format!("{folder}/{file}"), format!("{folder} {file}\n"));
        }
    }
    env.commit();
    // When its uptime began, by the machine's clock; a machine that is busy may take long to start it.
    let script = "read up rest </proc/uptime; date +\"%s.%N $up\"";
    let told = env.checkrun(&["--no-cache", "--clock", "host", "--", "sh", "-c", script]).expect(0).out();
    let words: Vec<f64> = told.split_whitespace().map(|word| word.parse().expect("seconds")).collect();
    let began = words[0] - (words[1] - 100.0);
    let layer = layer_of(&env, "HEAD");
    let since_epoch = |path: &Path| {
        let time = std::fs::symlink_metadata(path).and_then(|it| it.modified()).expect("its time");
        time.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs_f64()
    };
    // Written when all of it is there, and touched at each use, before the sandbox is begun. Time namespaces are set to whole
    // seconds, so up to one of them has passed at the start.
    let meta = layer.with_file_name(format!("{}.meta", layer.file_name().expect("a name").to_string_lossy()));
    assert!(began > since_epoch(&meta) - 1.05, "{told} {}", since_epoch(&meta));
    assert!(words[1] >= 100.0, "{told}");
}
