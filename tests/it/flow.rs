//! One check from question to answer: run, recorded, answered.

use crate::support::{EVERYBODY, Env};

#[test]
fn a_check_runs_once_and_is_then_answered() {
    for who in EVERYBODY {
        let env = Env::of(who);
        env.write("f", "hello\n").commit();
        let args = ["--", "sh", "-c", "cat f; echo problem >&2; exit 3"];
        let first = env.checkrun(&args).expect(3);
        assert_eq!(first.out(), "hello\n");
        assert!(first.err().starts_with("problem\n"), "{}", first.err());
        assert!(first.err().contains("failed, exit 3 (ran)"), "{}", first.err());
        let second = env.checkrun(&args).expect(3);
        assert_eq!(second.out(), "hello\n");
        assert!(second.err().starts_with("problem\n"), "{}", second.err());
        assert!(second.err().contains("failed, exit 3 (cached, exact)"), "{}", second.err());
    }
}
