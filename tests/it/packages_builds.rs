//! Builds from clean with the programs of the system: Maven against Debian's own repository of artifacts, CMake with
//! ctest, and autotools, whose steps depend on file times. Sources are Debian's, by way of `.ci/tools`.

use crate::packages::{Served, json};
use crate::real::tool;
use crate::support::{EVERYBODY, Env, Who, run};
use std::path::Path;

/// Puts the sources of a package into the repository, as its author would have them.
fn sources(env: &Env, from: &Path) {
    let copied = run(std::process::Command::new("cp").arg("-r").arg(from.join(".")).arg(env.repo("")));
    drop(copied.expect(0));
    if env.who() == Who::User && crate::support::is_root() {
        let owner = format!("{0}:{0}", crate::support::USER);
        drop(run(std::process::Command::new("chown").args(["-R", &owner]).arg(env.repo(""))).expect(0));
    }
    // Debian's own part is none of the author's.
    drop(std::fs::remove_dir_all(env.repo("debian")));
    drop(std::fs::remove_file(env.repo(".gitignore")));
    env.commit();
}

const POM: &str = "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion><groupId>x</groupId>\
    <artifactId>x</artifactId><version>1</version><properties><maven.compiler.source>11</maven.compiler.source>\
    <maven.compiler.target>11</maven.compiler.target><project.build.sourceEncoding>UTF-8</project.build.sourceEncoding></properties>\
    <dependencies><dependency><groupId>junit</groupId><artifactId>junit</artifactId><version>4.x</version><scope>test</scope></dependency></dependencies>\
    <build><plugins><plugin><artifactId>maven-resources-plugin</artifactId><version>3.3.0</version></plugin>\
    <plugin><artifactId>maven-compiler-plugin</artifactId><version>3.10.1</version></plugin>\
    <plugin><artifactId>maven-surefire-plugin</artifactId><version>2.22.3</version></plugin></plugins></build></project>\n";

// Maven says nothing of tests that pass when it is told to be quiet; surefire's files do.
#[test]
fn a_maven_project_is_built_from_the_systems_artifacts_and_its_tests_are_counted() {
    assert!(
        Path::new("/usr/share/maven-repo/org/apache/maven/plugins/maven-surefire-plugin").is_dir(),
        "`bash .ci/tools`"
    );
    let env = Env::of(Who::User);
    let test = |two: u8| {
        env.write(
            "src/test/java/x/ATest.java",
            format!("package x; import org.junit.*; public class ATest {{ @Test public void two() {{ Assert.assertEquals({two}, A.two()); }} @Ignore @Test public void later() {{}} }}\n"),
        );
    };
    env.write("pom.xml", POM).write(
        "src/main/java/x/A.java",
        "package x; public class A { public static int two() { return 2; } }\n",
    );
    test(2);
    env.commit();
    let mvn = ["--", "mvn", "-q", "-o", "-Dmaven.repo.local=/usr/share/maven-repo", "test"];
    let good = json(&env, &mvn);
    assert_eq!(good["outcome"], "passed", "{good}");
    assert_eq!(good["tests"], serde_json::json!({"passed": 1, "failed": 0, "skipped": 1}), "{good}");
    test(3);
    env.commit();
    let bad = json(&env, &mvn);
    assert_eq!((&bad["outcome"], &bad["tests"]["failed"]), (&"failed".into(), &1.into()), "{bad}");
}

#[test]
fn a_published_maven_project_passes_its_own_suite_against_debians_repository() {
    for who in EVERYBODY {
        // A minute of a JVM for each.
        if who == Who::Root && std::env::var_os("CHECKRUN_LONG").is_none() {
            continue;
        }
        let env = Env::of(who);
        sources(&env, &tool("json-simple"));
        let mvn = ["--require-tests", "--", "mvn", "-o", "-Dmaven.repo.local=/usr/share/maven-repo", "test"];
        let good = json(&env, &mvn);
        assert_eq!(good["outcome"], "passed", "{good}");
        assert_eq!(good["tests"], serde_json::json!({"passed": 73, "failed": 0, "skipped": 0}), "{good}");
        assert_eq!(json(&env, &mvn)["cache"], "hit");
    }
}

// Surefire fetches what runs the tests only where there are classes to look at.
#[test]
#[ignore = "takes several minutes of JVMs"]
fn a_maven_project_is_prepared_from_a_repository_and_tested_without_network() {
    for who in EVERYBODY {
        let env = Env::of(who);
        let served = Served::new(Path::new("/usr/share/maven-repo"));
        let place = format!("<id>central</id><url>{}</url>", served.address());
        let places = format!(
            "<repositories><repository>{place}</repository></repositories>\
             <pluginRepositories><pluginRepository>{place}</pluginRepository></pluginRepositories><dependencies>"
        );
        env.write("pom.xml", POM.replacen("<dependencies>", &places, 1))
            .write("src/main/java/x/A.java", "package x; public class A { public static int two() { return 2; } }\n")
            .write(
                "src/test/java/x/ATest.java",
                "package x; import org.junit.*; public class ATest { @Test public void two() { Assert.assertEquals(2, A.two()); } }\n",
            )
            .commit();
        let mvn = ["--require-tests", "--", "mvn", "-o", "test"];
        let before = json(&env, &mvn);
        assert_eq!(before["outcome"], "failed", "{before}");
        let reason = before["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("`checkrun prepare --runner java`"), "{before}");
        let made = env.checkrun(&["prepare", "--runner", "java", &served.allowed()]);
        assert_eq!(made.status, 0, "{}", made.err());
        drop(served);
        let good = json(&env, &mvn);
        assert_eq!(good["tests"], serde_json::json!({"passed": 1, "failed": 0, "skipped": 0}), "{good}");
        assert_eq!(json(&env, &mvn)["cache"], "hit");
        // Another pom is another preparation.
        let pom = std::fs::read_to_string(env.repo("pom.xml")).expect("the pom");
        env.write("pom.xml", pom.replacen("<version>1<", "<version>2<", 1)).commit();
        let stale = json(&env, &mvn);
        assert_eq!(
            (&stale["outcome"], &stale["deps"]),
            (&"failed".into(), &serde_json::json!([])),
            "{stale}"
        );
    }
}

#[test]
fn a_cmake_project_is_built_from_clean_and_ctest_is_counted() {
    let env = Env::of(Who::User);
    sources(&env, &tool("zlib"));
    // Listed, used on Windows only, and not among what Debian distributes.
    env.write("win32/zlib1.rc", "").commit();
    let build = "cmake -S . -B build >/dev/null && cmake --build build && ctest --test-dir build";
    let result = json(&env, &["--runner", "cc", "--require-tests", "--", "sh", "-c", build]);
    assert_eq!(result["outcome"], "passed", "{result}");
    assert!(result["tests"]["passed"].as_u64() >= Some(1), "{result}");
    let tail = result["tail"].as_str().unwrap_or_default();
    assert!(!tail.contains("odification time") && !tail.contains("lock skew"), "{tail}");
}

// Automake's rules would make configure and its kin anew where a file seems older than what it is made from, and configure
// refuses a clock that stands behind its files ("newly created file is older than distributed files").
#[test]
#[ignore = "looks for a minute and more for what every machine has"]
fn an_autotools_project_is_configured_built_and_checked_from_clean() {
    let env = Env::of(Who::User);
    sources(&env, &tool("hello"));
    let build = "./configure --disable-nls --quiet && make check";
    let result = json(&env, &["--runner", "cc", "--require-tests", "--", "sh", "-c", build]);
    assert_eq!(result["outcome"], "passed", "{result}");
    assert!(result["tests"]["passed"].as_u64() >= Some(1), "{result}");
    let tail = result["tail"].as_str().unwrap_or_default();
    assert!(!tail.contains("odification time") && !tail.contains("is missing on your system"), "{tail}");
}
