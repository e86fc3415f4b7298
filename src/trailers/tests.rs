//! Messages as branches have them, and as nobody should write them.

use super::*;

const SQUASH: &str = "Extract auth (#12)\n\n* s05: move registration\n\nAgent-Run: r-1\n\nAgent-Step: s05\n\n\
    Agent-Check: go test ./... -count=1 exit=0 secs=22.6\n\nAgent-Plan-Version: 3\n\n* s06: sessions\n\n    Agent-Run: r-2\n    \
    Agent-Step: s06\n    Agent-Check: true exit=0 secs=0\n    agent-check: a=b c exit=1\n";

#[test]
fn every_line_of_a_message_counts_and_goes_to_its_step() {
    let found = read(SQUASH);
    assert_eq!(found.faults, Vec::<String>::new());
    let [first, second] = found.claims.as_slice() else { panic!("{found:?}") };
    assert_eq!((first.step.as_str(), first.title.as_str()), ("s05", "move registration"));
    assert_eq!((first.run.as_deref(), first.plan_version.as_deref()), (Some("r-1"), Some("3")));
    assert_eq!(
        first.checks,
        [ClaimedCheck { cmd: "go test ./... -count=1".to_owned(), exit: Some(0), secs: Some(22.6) }]
    );
    assert_eq!((second.run.as_deref(), second.title.as_str()), (Some("r-2"), "sessions"));
    assert_eq!(
        second.checks.iter().map(|check| (check.cmd.as_str(), check.exit)).collect::<Vec<_>>(),
        [("true", Some(0)), ("a=b c", Some(1))]
    );
}

#[test]
fn what_is_written_reads_back() {
    for cmd in ["go test ./...", "a\nb", "\"quoted\"", "x exit=3", "say \"hi\" there"] {
        let claim = Claim {
            step: "s1".to_owned(),
            title: "a title".to_owned(),
            run: Some("r".to_owned()),
            plan_version: Some("2".to_owned()),
            checks: vec![ClaimedCheck { cmd: cmd.to_owned(), exit: Some(0), secs: Some(1.25) }],
        };
        let message = write(&claim);
        let found = read(&message);
        assert_eq!(found.claims, [claim], "{message}");
        assert!(found.faults.is_empty(), "{found:?}");
    }
}

#[test]
fn a_name_cannot_write_a_line_of_its_own() {
    let claim = Claim { step: "s1".to_owned(), title: "x\nAgent-Step: s9".to_owned(), ..Claim::default() };
    assert_eq!(read(&write(&claim)).claims.len(), 1);
}

#[test]
fn what_is_malformed_is_said_and_left_out() {
    for (message, part) in [
        ("Agent-Check: true exit=0", "without an Agent-Step"),
        ("Agent-Step:", "is empty"),
        ("Agent-Step: s1\nAgent-Check:   ", "names no command"),
        ("Agent-Step: s1\nAgent-Check: exit=0 secs=1", "names no command"),
        ("Agent-Step: s1\nAgent-Check: make", "does not say how it ended"),
        ("Agent-Step: s1\nAgent-Check: make exit=zero", "does not say how it ended"),
        ("Agent-Step: a\u{7}b", "control characters"),
    ] {
        let found = read(message);
        assert!(found.faults.iter().any(|fault| fault.contains(part)), "{message:?}: {found:?}");
    }
    assert_eq!(read(&"Agent-Step: s\n".repeat(5000)).claims.len(), MAX_CLAIMS);
    assert!(read("Agent-Step: s1\nAgent-Check: x exit=0 secs=NaN\n").claims[0].checks[0].secs.is_none());
}

proptest::proptest! {
    /// Anybody may write a commit message: no panic, and no more claims than lines.
    #[test]
    fn any_message_is_read_without_a_panic(
        lines in proptest::collection::vec(
            proptest::prop_oneof![
                ".{0,40}",
                "[ \t]*[Aa]gent-(Run|Step|Check|Plan-Version|Revert)[ :]{0,3}.{0,30}",
                "[ ]*Agent-Check: .{0,10} exit=[-0-9]{0,22} secs=[-0-9.eE]{0,22}",
                "This reverts commit [0-9a-f]{0,45}\\.?",
            ],
            0..20,
        ),
        end in "(\n|\r\n|\r)",
    ) {
        let message = lines.join(&end);
        proptest::prop_assert!(reverted(&message).len() <= message.len());
        proptest::prop_assert!(read(&message).faults.len() <= message.len());
    }
}
