//! Python projects of every usual form: what they need is prepared from lock files, requirements or their own
//! descriptions, and they are known to their environment as if installed to be edited. The index is a folder served on
//! loopback; what is in it comes from `.ci/tools`.

use crate::packages::{Served, json, prepare};
use crate::real::tool;
use crate::support::{EVERYBODY, Env, Who, run};

/// A project below `src` whose test asks what an installation promises: import, version, program, plug-in.
fn project(env: &Env) {
    env.write("src/own/__init__.py", "import six\n\ndef main():\n    print('own', six.__version__)\n").write(
        "test_own.py",
        "import importlib.metadata as metadata, subprocess, own\n\ndef test_own():\n    assert own.__file__.startswith('/src/src/own')\n    \
         assert metadata.version('own') == '1.2'\n    assert subprocess.check_output(['own-cli']) == b'own 1.16.0\\n'\n",
    );
}

const DESCRIPTION: &str = "[project]\nname = \"own\"\nversion = \"1.2\"\nrequires-python = \">=3.11\"\ndependencies = [\"six==1.16.0\"]\n\
    [project.optional-dependencies]\ntest = [\"pytest==8.3.4\"]\nall = [\"own[test]\"]\n[project.scripts]\nown-cli = \"own:main\"\n";

const SETTINGS: &str = "[metadata]\nname = own\nversion = 1.2\n[options]\npackage_dir =\n  =src\npackages = find:\n\
    install_requires = six==1.16.0\n[options.packages.find]\nwhere = src\n[options.extras_require]\ntest = pytest==8.3.4\n\
    [options.entry_points]\nconsole_scripts =\n  own-cli = own:main\n";

/// Prepares, checks, changes the project's own code, checks again.
fn holds(env: &Env, served: &Served, what: &str) {
    env.commit();
    let made = prepare(env, served);
    assert_eq!(made.status, 0, "{what}: {} {}", made.out(), made.err());
    let first = json(env, &["--", "pytest"]);
    assert_eq!(
        (&first["outcome"], &first["tests"]["passed"]),
        (&"passed".into(), &1.into()),
        "{what}: {first}"
    );
    env.write("src/own/__init__.py", "raise SystemExit('broken')\n").commit();
    let broken = json(env, &["--", "pytest"]);
    assert_ne!(broken["outcome"], "passed", "{what}: {broken}");
    assert_eq!(broken["deps"], first["deps"], "{what}: the same packages serve another state of the code");
}

#[test]
fn a_project_is_known_to_its_own_environment_however_it_is_described() {
    let served = Served::new(&tool("wheels"));
    for (what, files) in [
        ("pyproject.toml", &[("pyproject.toml", DESCRIPTION)][..]),
        ("-e .", &[("pyproject.toml", DESCRIPTION), ("requirements.txt", "# ours\n-e .[test]\n")]),
        ("setup.py", &[("setup.cfg", SETTINGS), ("setup.py", "from setuptools import setup\nsetup()\n")]),
        ("setup.cfg", &[("setup.cfg", SETTINGS)]),
    ] {
        // Each takes as long as several environments do; these two go the ways of the others.
        if matches!(what, "-e ." | "setup.cfg") && std::env::var_os("CHECKRUN_LONG").is_none() {
            continue;
        }
        let env = Env::of(Who::User);
        project(&env);
        for (name, text) in files {
            env.write(name, text);
        }
        holds(&env, &served, what);
    }
}

/// uv itself, for making a lock file as a user would.
fn uv_lock(env: &Env) {
    let wheels = std::fs::read_dir(tool("wheels")).expect("wheels").flatten().map(|entry| entry.path());
    let wheel = wheels
        .into_iter()
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("uv-")))
        .expect("uv's wheel; `bash .ci/tools` provides it");
    let at = env.path("uv");
    let script = "import sys, zipfile\nwith zipfile.ZipFile(sys.argv[1]) as wheel:\n    name = next(name for name in wheel.namelist() if name.endswith('scripts/uv'))\n    \
                  open(sys.argv[2], 'wb').write(wheel.read(name))\nimport os; os.chmod(sys.argv[2], 0o755)";
    let unpacked =
        std::process::Command::new("/usr/bin/python3").args(["-c", script]).arg(wheel).arg(&at).status();
    assert!(unpacked.expect("python3").success());
    let lock = run(env.as_who(&at).args(["lock", "--no-cache"]).current_dir(env.repo("")));
    drop(lock.expect(0));
}

#[test]
fn a_uv_lock_file_is_followed_and_one_that_is_out_of_step_is_refused() {
    let served = Served::new(&tool("wheels"));
    for who in EVERYBODY {
        if who == Who::Root && std::env::var_os("CHECKRUN_LONG").is_none() {
            continue;
        }
        let env = Env::of(who);
        project(&env);
        let description = |six: &str| {
            let index = format!(
                "\n[tool.uv]\nenvironments = [\"sys_platform == 'linux'\"]\nno-index = true\nfind-links = [\"{}\"]\n",
                served.address()
            );
            env.write("pyproject.toml", DESCRIPTION.replace("six==1.16.0", six) + &index);
        };
        description("six==1.16.0");
        uv_lock(&env);
        holds(&env, &served, "uv.lock");
        // With `--frozen` a manifest that has moved on is passed over.
        description("six>=1.16.0,<2");
        env.commit();
        let refused = prepare(&env, &served).expect(1);
        let tail = refused.json()["prepared"][0]["tail"].as_str().unwrap_or_default().to_owned();
        assert!(tail.contains("uv.lock") && tail.contains("needs to be updated"), "{tail}");
    }
}

#[test]
fn digests_of_requirements_are_insisted_on() {
    let served = Served::new(&tool("wheels"));
    let env = Env::of(Who::User);
    let six = std::fs::read(tool("wheels").join("six-1.16.0-py2.py3-none-any.whl")).expect("six's wheel");
    let path = env.path("six");
    std::fs::write(&path, six).unwrap();
    let sum = run(std::process::Command::new("sha256sum").arg(&path)).expect(0).out();
    let digest = sum.split(' ').next().unwrap();
    env.write("requirements.txt", format!("six==1.16.0 --hash=sha256:{digest}\n"))
        .write("requirements-dev.txt", "iniconfig\n");
    env.commit();
    drop(prepare(&env, &served).expect(0));
    drop(env.checkrun(&["--", "python3", "-c", "import six, iniconfig"]).expect(0));
    env.write("requirements.txt", format!("six==1.16.0 --hash=sha256:{}\n", "0".repeat(64))).commit();
    let refused = prepare(&env, &served).expect(1);
    let tail = refused.json()["prepared"][0]["tail"].as_str().unwrap_or_default().to_owned();
    assert!(tail.contains("DO NOT MATCH THE HASHES"), "{tail}");
    // So has a Pipfile.lock.
    env.git(&["rm", "-q", "requirements.txt", "requirements-dev.txt"]);
    let lock = format!(
        "{{\"default\": {{\"six\": {{\"version\": \"==1.16.0\", \"hashes\": [\"sha256:{digest}\"], \"markers\": \"python_version >= '3'\"}}}}, \"develop\": {{}}}}"
    );
    env.write("Pipfile", "[packages]\nsix = \"*\"\n").write("Pipfile.lock", lock).commit();
    drop(prepare(&env, &served).expect(0));
    drop(env.checkrun(&["--", "python3", "-c", "import six"]).expect(0));
}

#[test]
fn what_keeps_a_project_from_being_prepared_or_run_is_said() {
    let served = Served::new(&tool("wheels"));
    let env = Env::of(Who::User);
    // Another version than the one asked for is not quietly taken.
    env.write("requirements.txt", "six==1.16.0\n").write(".python-version", "# pinned\n2.7.18\n").commit();
    let refused = prepare(&env, &served).expect(1);
    let tail = refused.json()["prepared"][0]["tail"].as_str().unwrap_or_default().to_owned();
    assert!(tail.contains(".python-version asks for 2.7.18"), "{tail}");
    let here =
        run(env.as_who("/usr/bin/python3").args(["-c", "import sys; print('%d.%d' % sys.version_info[:2])"]));
    env.write(".python-version", here.out()).commit();
    drop(prepare(&env, &served).expect(0));
    // A program that the requirements forgot.
    let lacking = json(&env, &["--runner", "python", "--", "no-such-test-program"]);
    let reason = lacking["reason"].as_str().unwrap_or_default();
    assert!(
        reason.starts_with("not_found")
            && reason
                .contains("`no-such-test-program` is not on your PATH, and it is not among the prepared"),
        "{reason}"
    );
    // A lock file that is elsewhere.
    env.git(&["rm", "-q", "requirements.txt"]);
    env.write(
        "pyproject.toml",
        "[tool.poetry]\nname = \"own\"\nversion = \"1\"\n[tool.poetry.dependencies]\nsix = \"^1\"\n",
    )
    .commit();
    let refused = prepare(&env, &served).expect(1);
    assert!(refused.out().contains("poetry lock"), "{}", refused.out());
}

#[test]
fn an_index_that_cannot_be_reached_is_named_and_nothing_is_kept() {
    let env = Env::of(Who::User);
    env.write("requirements.txt", "six==1.16.0\n").commit();
    let options = [
        "--env",
        "PIP_INDEX_URL=http://127.0.0.1:9/simple",
        "--env",
        "PIP_RETRIES=1",
        "--allow-host=127.0.0.1:9",
    ];
    let failed = env
        .checkrun(&[&["prepare", "--format", "json", "--runner", "python"][..], &options].concat())
        .expect(1);
    let told = failed.json()["prepared"][0]["reason"].as_str().unwrap_or_default().to_owned();
    assert!(told.contains("could not reach 127.0.0.1:9: connection refused"), "{told}");
    assert!(!env.path("cache/packages").exists());
}

/// The reason of a check that fails.
fn why(env: &Env, command: &[&str]) -> String {
    let result = json(env, &[&["--"], command].concat());
    assert_eq!(result["outcome"], "failed", "{result}");
    result["reason"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn what_was_not_prepared_is_said_where_something_is_missing_and_not_where_a_test_is_wrong() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("setup.py", "from setuptools import setup\nsetup(name='own', version='1')\n")
            .write("test_wrong.py", "import unittest\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(1, 2)\n")
            // More than is kept of an output comes after it.
            .write("test_lacks.py", "try:\n    import no_such_package\nexcept ImportError as error:\n    print(error)\nprint('later\\n' * 1000)\nraise SystemExit(1)\n")
            .write("test_plain.py", "print('a module of that name')\nraise SystemExit(1)\n")
            .commit();
        assert_eq!(why(&env, &["python3", "-m", "unittest", "test_wrong"]), "");
        assert_eq!(why(&env, &["python3", "test_plain.py"]), "");
        for told in [
            why(&env, &["python3", "test_lacks.py"]),
            why(&env, &["python3", "-m", "no_such_program"]),
            why(&env, &["sh", "-c", "python3 -c pass && no-such-program"]),
        ] {
            assert!(told.contains("not_prepared: "), "{told}");
        }
    }
}

#[test]
fn a_python_named_in_full_is_taken_as_it_is_and_told_whose_packages_it_lacks() {
    let served = Served::new(&tool("wheels"));
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("requirements.txt", "iniconfig\n").write("wrong.py", "raise SystemExit(1)\n").commit();
        drop(prepare(&env, &served).expect(0));
        drop(env.checkrun(&["--", "python3", "-c", "import iniconfig"]).expect(0));
        let told = why(&env, &["/usr/bin/python3", "-I", "-S", "-c", "import iniconfig"]);
        assert!(told.starts_with("by_path: `/usr/bin/python3` is run as it is named"), "{told}");
        assert!(told.contains("`python3`"), "{told}");
        // What is wrong otherwise is not for that, and a name that is missing in the environment too is not either.
        assert_eq!(why(&env, &["/usr/bin/python3", "wrong.py"]), "");
        assert_eq!(why(&env, &["python3", "-c", "import no_such_package"]), "");
    }
}
