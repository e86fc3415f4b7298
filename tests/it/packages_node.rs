//! Node projects: workspaces, install scripts, lock files out of step, and published packages with their own tests by vitest
//! and jest, those that are ignored as a rule also straight from the npm registry by npm, yarn and pnpm.

use crate::packages::{Served, json};
use crate::real::{plant, tool};
use crate::support::{EVERYBODY, Env, Who, run};
use std::process::Command;

const IGNORE: &str = "node_modules\n";

/// A package as the registry has it, with an install script that looks around, in a folder that is served.
fn packed(env: &Env) -> std::path::PathBuf {
    let served = env.path("served");
    let package = served.join("package");
    std::fs::create_dir_all(&package).unwrap();
    let manifest = "{\"name\": \"dep\", \"version\": \"1.0.0\", \"main\": \"i.js\", \"scripts\": {\"install\": \"node look.js\"}}";
    std::fs::write(package.join("package.json"), manifest).unwrap();
    std::fs::write(package.join("i.js"), "module.exports = require('./seen.json');\n").unwrap();
    let look = format!(
        "const fs = require('fs');\nlet secret = null;\ntry {{ secret = fs.readFileSync('{}', 'utf8'); }} catch {{}}\n\
         fs.writeFileSync('seen.json', JSON.stringify({{secret, home: process.env.HOME, files: fs.readdirSync(process.env.HOME), token: process.env.TOKEN}}));\n",
        env.path("home/secret").display()
    );
    std::fs::write(package.join("look.js"), look).unwrap();
    let tar = Command::new("tar").args(["-czf", "dep.tgz", "package"]).current_dir(&served).status();
    assert!(tar.expect("tar").success());
    served
}

/// A project of two packages, one of which lies in the other and has what it needs for itself.
fn project(env: &Env, served: &Served) {
    let dep = format!("{}dep.tgz", served.address());
    let entry = format!("{{\"version\": \"1.0.0\", \"resolved\": \"{dep}\", \"hasInstallScript\": true}}");
    let wants = format!("\"dependencies\": {{\"dep\": \"{dep}\"}}");
    env.write(".gitignore", IGNORE)
        .write("package.json", format!("{{\"name\": \"own\", \"version\": \"1.0.0\", \"workspaces\": [\"parts/*\"], {wants}, \"scripts\": {{\"test\": \"node test.js\", \"prepare\": \"node build.js\"}}}}"))
        .write("parts/a/package.json", format!("{{\"name\": \"a\", \"version\": \"1.0.0\", {wants}}}"))
        .write("parts/a/index.js", "module.exports = require('dep');\n")
        .write(
            "package-lock.json",
            format!(
                "{{\"name\": \"own\", \"version\": \"1.0.0\", \"lockfileVersion\": 3, \"requires\": true, \"packages\": {{\
                 \"\": {{\"name\": \"own\", \"version\": \"1.0.0\", \"workspaces\": [\"parts/*\"], {wants}}},\
                 \"node_modules/a\": {{\"resolved\": \"parts/a\", \"link\": true}}, \"parts/a\": {{\"version\": \"1.0.0\", {wants}}},\
                 \"parts/a/node_modules/dep\": {entry}, \"node_modules/dep\": {entry}}}}}"
            ),
        )
        .write("test.js", "const path = require('path');\nconsole.log(path.relative('.', require.resolve('dep', {paths: ['parts/a']})));\nconsole.log(JSON.stringify(require('a')));\n");
    env.commit();
}

#[test]
fn workspaces_are_prepared_and_install_scripts_see_nothing_of_the_caller() {
    for who in EVERYBODY {
        let env = Env::of(who).var("TOKEN", "secret");
        std::fs::write(env.path("home/secret"), "secret").unwrap();
        let served = Served::new(&packed(&env));
        project(&env, &served);
        let made = env.checkrun(&["prepare", "--runner", "node", &served.allowed()]);
        assert_eq!(made.status, 0, "{}", made.err());
        // Each package has its own, and the link to the one that lies in the tree leads to the check's.
        let told = env.checkrun(&["--", "npm", "test", "--silent"]).expect(0);
        assert_eq!(
            told.out(),
            "parts/a/node_modules/dep/i.js\n{\"secret\":null,\"home\":\"/home/check\",\"files\":[\".npm\"]}\n"
        );
        // A check's own scripts see as little, and reach nobody: the server that the packages came from is this machine's.
        let reach = format!(
            "require('net').connect({}, '127.0.0.1').on('connect', () => process.exit(0)).on('error', () => process.exit(3))",
            served.address().trim_end_matches('/').rsplit(':').next().unwrap()
        );
        assert_eq!(env.checkrun(&["--", "node", "-e", &reach]).status, 3);
    }
}

#[test]
fn a_lock_file_out_of_step_and_a_registry_out_of_reach_are_named_and_keep_nothing() {
    let env = Env::of(Who::User);
    let served = Served::new(&packed(&env));
    project(&env, &served);
    let manifest = std::fs::read_to_string(env.repo("package.json")).unwrap();
    let allowed = served.allowed();
    let failed = |part: &str| {
        env.commit();
        let told =
            env.checkrun(&["prepare", "--format", "json", "--runner", "node", &allowed]).expect(1).json();
        let told = &told["prepared"][0];
        // npm lets all its options follow its reason, more than the end of an output that is kept.
        let kept = format!("{} {}", told["tail"], told["reason"]);
        assert!(kept.contains(part), "{told}");
        assert!(!env.path("cache/packages").exists());
    };
    env.write(
        "package.json",
        manifest.replace("\"dependencies\": {", "\"dependencies\": {\"other\": \"1.0.0\", "),
    );
    failed("Missing: other@");
    env.write("package.json", manifest);
    drop(served);
    env.write(".npmrc", "fetch-retries=0\n");
    failed(&format!("could not reach {}: connection refused", &allowed["--allow-host=".len()..]));
}

/// A published package: its name, how many tests it has, and the place in its code that is changed.
struct Suite {
    name: &'static str,
    tests: u64,
    file: &'static str,
    change: (&'static str, &'static str),
}

const CSS_WHAT: Suite = Suite {
    name: "css-what",
    tests: 936,
    file: "src/stringify.ts",
    change: ("return \"*\"", "return \"+\""),
};

const CSS_TO_REACT_NATIVE: Suite = Suite {
    name: "css-to-react-native",
    tests: 269,
    file: "src/transforms/flex.js",
    change: ("const defaultFlexGrow = 1", "const defaultFlexGrow = 2"),
};

/// Checks it by its own script, changes its code, checks again.
fn suite_is_checked(env: &Env, suite: &Suite, command: &[&str]) {
    let args = [&["--require-tests", "--"], command].concat();
    let first = json(env, &args);
    let tests = serde_json::json!({"passed": suite.tests, "failed": 0, "skipped": 0});
    assert_eq!(first["tests"], tests, "{first}");
    assert_eq!((&first["outcome"], &first["deps"][0]["from"]), (&"passed".into(), &"prepared".into()));
    assert_eq!(json(env, &args)["cache"], "hit");
    let text = std::fs::read_to_string(env.repo(suite.file)).unwrap();
    assert!(text.contains(suite.change.0), "{text}");
    env.write(suite.file, text.replacen(suite.change.0, suite.change.1, 1)).commit();
    let broken = json(env, &args);
    assert_eq!((&broken["outcome"], &broken["cache"]), (&"failed".into(), &"miss".into()), "{broken}");
    assert!(broken["tests"]["failed"].as_u64() > Some(0), "{broken}");
    assert_eq!(broken["deps"], first["deps"]);
    assert_eq!(broken["reason"], serde_json::Value::Null, "{broken}");
}

/// Prepares it from the packages that lie beside it, and checks it when they are gone.
fn passes_without_network(suite: &Suite, command: &[&str]) {
    for who in EVERYBODY {
        // Each of them starts a large program twice.
        if who == Who::Root && std::env::var_os("CHECKRUN_LONG").is_none() {
            continue;
        }
        let env = Env::of(who);
        let served = Served::new(&tool(suite.name).join("packages"));
        plant(&env, &tool(suite.name).join("project"));
        let lock = std::fs::read_to_string(env.repo("package-lock.json")).unwrap();
        assert!(lock.matches("\"resolved\"").count() > 50);
        env.write("package-lock.json", lock.replace("http://127.0.0.1/", &served.address())).commit();
        // Before that a check fails, and says what there is to do.
        let before = json(&env, &[&["--"], command].concat());
        assert_ne!(before["outcome"], "passed", "{before}");
        let reason = before["reason"].as_str().unwrap_or_default();
        assert!(
            reason.contains("not_prepared: ") && reason.contains("`checkrun prepare --runner node`"),
            "{before}"
        );
        let made = env.checkrun(&["prepare", "--runner", "node", &served.allowed()]);
        assert_eq!(made.status, 0, "{}", made.err());
        drop(served);
        suite_is_checked(&env, suite, command);
    }
}

#[test]
fn a_published_package_passes_its_own_vitest_suite_without_network() {
    passes_without_network(&CSS_WHAT, &["npm", "run", "test:vi"]);
}

#[test]
#[ignore = "installs more than 250 packages and takes half a minute of two processors for each kind of caller"]
fn a_published_package_passes_its_own_jest_suite_without_network() {
    passes_without_network(&CSS_TO_REACT_NATIVE, &["npm", "test"]);
}

/// Runs a program of Node's as the project's author.
fn author(env: &Env, args: &[&str]) {
    let bundle = "/etc/ssl/certs/ca-certificates.crt";
    let mut npx = env.as_who("npx");
    npx.args(["--yes"]).args(args).env("NODE_EXTRA_CA_CERTS", bundle).current_dir(env.repo(""));
    drop(run(&mut npx).expect(0));
}

/// With network for the lock file and for `prepare`, which fetches the package manager too where it is not npm.
fn from_the_registry(lock: &[&str], manager: &str) {
    for who in EVERYBODY {
        let env = Env::of(who);
        plant(&env, &tool("css-what").join("project"));
        std::fs::remove_file(env.repo("package-lock.json")).unwrap();
        author(&env, lock);
        env.commit();
        let made = env.checkrun(&["prepare", "--runner", "node"]);
        assert_eq!(made.status, 0, "{who:?}: {}", made.err());
        suite_is_checked(&env, &CSS_WHAT, &[manager, "run", "test:vi"]);
    }
}

#[test]
#[ignore = "takes minutes"]
fn npm_prepares_a_published_package_from_the_registry() {
    from_the_registry(&["npm", "install", "--package-lock-only"], "npm");
}

#[test]
#[ignore = "takes minutes"]
fn yarn_prepares_a_published_package_from_the_registry() {
    from_the_registry(&["yarn@1.22.22", "install", "--ignore-scripts"], "yarn");
}

#[test]
#[ignore = "takes minutes"]
fn yarn_of_today_prepares_a_published_package_from_the_registry() {
    from_the_registry(&["-p", "@yarnpkg/cli-dist@4.9.2", "yarn", "install", "--mode=skip-build"], "yarn");
}

#[test]
#[ignore = "takes minutes"]
fn pnpm_prepares_a_published_package_from_the_registry() {
    from_the_registry(&["pnpm@9.15.4", "install", "--lockfile-only"], "pnpm");
}
