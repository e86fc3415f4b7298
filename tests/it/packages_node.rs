//! Node projects: workspaces, install scripts, lock files out of step, and with `CHECKRUN_LONG=1` real ones from the npm
//! registry by npm, yarn and pnpm.

use crate::packages::{Served, json};
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

/// A project as its author has it on disk; the test script of each is the package's own tool.
fn real(env: &Env, test: &str, tools: &str) {
    env.write(".gitignore", IGNORE).write(
        "package.json",
        format!("{{\"name\": \"own\", \"version\": \"1.0.0\", \"private\": true, \"type\": \"module\", \"scripts\": {{\"test\": \"{test}\"}}, \"dependencies\": {{\"ms\": \"2.1.3\"}}, \"devDependencies\": {{{tools}}}}}"),
    );
}

/// Runs a program of Node's as the project's author.
fn author(env: &Env, args: &[&str]) {
    let bundle = "/etc/ssl/certs/ca-certificates.crt";
    let mut npx = env.as_who("npx");
    npx.args(["--yes"]).args(args).env("NODE_EXTRA_CA_CERTS", bundle).current_dir(env.repo(""));
    drop(run(&mut npx).expect(0));
}

#[test]
fn real_projects_of_each_package_manager_are_prepared_and_checked() {
    if std::env::var_os("CHECKRUN_LONG").is_none() {
        return;
    }
    let mocha = (
        "mocha",
        "\"mocha\": \"10.8.2\"",
        "test/a.js",
        "import ms from 'ms';\nimport assert from 'assert';\nit('one', () => assert.equal(ms('1s'), 1000));\nit.skip('two');\n",
    );
    let vitest = (
        "vitest run",
        "\"vitest\": \"2.1.8\"",
        "a.test.js",
        "import ms from 'ms';\nimport { expect, it } from 'vitest';\nit('one', () => expect(ms('1s')).toBe(1000));\nit.skip('two', () => {});\n",
    );
    for (lock, command, (test, tools, file, text)) in [
        (&["npm", "install", "--package-lock-only"][..], &["npm", "test"][..], mocha),
        (&["npm", "install", "--package-lock-only"], &["npm", "test"], vitest),
        (&["yarn@1.22.22", "install", "--ignore-scripts"], &["yarn", "test"], mocha),
        (&["pnpm@9.15.4", "install", "--lockfile-only"], &["pnpm", "test"], mocha),
    ] {
        let env = Env::of(Who::User);
        real(&env, test, tools);
        author(&env, lock);
        env.write(file, text).commit();
        let made = env.checkrun(&["prepare", "--runner", "node"]);
        assert_eq!(made.status, 0, "{lock:?}: {}", made.err());
        let result = json(&env, &[&["--"], command].concat());
        assert_eq!(
            result["tests"],
            serde_json::json!({"passed": 1, "failed": 0, "skipped": 1}),
            "{lock:?}: {result}"
        );
    }
}
