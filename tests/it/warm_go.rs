//! Compiled packages for Go modules: the standard library and what the module imports, made once by `prepare`. The cache of
//! a check is its own, and no result of a test comes from it. A module with dependencies is `real_warm`'s.

use crate::real::open_tool;
use crate::support::{Env, Who};
use crate::warm_rust::{digest, prepare};

fn place() -> Env {
    Env::of(Who::User).var("PATH", format!("{}/bin:/usr/bin:/bin", open_tool("go").display()))
}

/// A module with a test, and one in its vendor folder.
fn module(env: &Env, number: u32) {
    env.write("go.mod", "module example.org/m\n\ngo 1.20\n\nrequire example.org/dep v1.0.0\n");
    env.write("vendor/modules.txt", "# example.org/dep v1.0.0\n## explicit; go 1.20\nexample.org/dep\n");
    env.write("vendor/example.org/dep/dep.go", "package dep\n\nfunc Ten() int { return 10 }\n");
    env.write("inner/inner.go", format!("package inner\n\nfunc Number() int {{ return {number} }}\n"));
    env.write(
        "m_test.go",
        "package m\n\nimport (\n\t\"fmt\"\n\t\"testing\"\n\n\t\"example.org/dep\"\n\t\"example.org/m/inner\"\n)\n\n\
         func TestIt(t *testing.T) {\n\tfmt.Println(\"says\", dep.Ten()+inner.Number())\n}\n",
    );
    env.commit();
}

// golang/go#58571, golang/go#71333: by times, Go's cache can take what is there for too new, or for left over.
#[test]
fn go_packages_are_compiled_once_and_what_a_check_does_to_them_reaches_no_other() {
    let env = place();
    module(&env, 1);
    let layer = prepare(&env, "go");
    let before = digest(&layer);
    // With -x the compiler's calls are told: only those for the module's own packages are left.
    let first = env.checkrun(&["--", "go", "test", "-v", "-x", "./..."]).expect(0);
    assert!(first.out().contains("says 11\n") && !first.out().contains("(cached)"), "{}", first.out());
    let compiles = first.err().lines().filter(|line| line.contains("/compile -o ")).count();
    assert!((1..=4).contains(&compiles), "{compiles} compilations:\n{}", first.err());
    // Nothing is taken for old and removed, and nothing copied to be marked as used.
    let entries = "go vet ./... && find ~/.cache/go-build -name '*-[ad]' -newermt 2099-01-01 | wc -l";
    let told = env.checkrun(&["--runner", "go", "--", "sh", "-ec", entries]).expect(0).out();
    let kept = crate::warm_rust::sh(
        &layer.join("home/.cache/go-build"),
        "find . -name '*-[ad]' -newermt 2099-01-01 | wc -l",
    );
    assert_eq!(told.trim(), kept);
    let poison = "cd ~ && chmod -R u+w .cache && for file in .cache/go-build/*/*; do echo bogus >$file; done
            rm -r .cache/go-build/00; head -c 5 $(ls ~/.cache/go-build/*/*-d | head -1)";
    let poisoned = env.checkrun(&["--runner", "go", "--", "sh", "-c", poison]).expect(0);
    assert!(poisoned.out().ends_with("bogus"), "{}{}", poisoned.out(), poisoned.err());
    assert_eq!(digest(&layer), before);
    for number in [1, 2] {
        module(&env, number);
        let clean = env.checkrun(&["--refresh", "--", "go", "test", "-v", "./..."]).expect(0);
        assert!(clean.out().contains(&format!("says {}\n", 10 + number)), "{}", clean.out());
        assert!(!clean.out().contains("(cached)"), "{}", clean.out());
    }
    assert_eq!(prepare(&env, "go"), layer);
}
