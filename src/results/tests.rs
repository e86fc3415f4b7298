//! What each runner prints, and the tests that are read from it.

use super::*;
use proptest::strategy::Strategy as _;

/// The fates of all tests, by name, from output that comes in small pieces.
fn read(text: &str) -> Vec<(String, Fate)> {
    let mut results = Results::default();
    for piece in text.as_bytes().chunks(7) {
        results.push(false, piece);
    }
    results.finish().into_iter().map(|case| (case.id.clone(), case.fate())).collect()
}

#[track_caller]
fn expect(text: &str, tests: &[(&str, Fate)]) {
    let tests: Vec<(String, Fate)> = tests.iter().map(|(id, fate)| ((*id).to_owned(), *fate)).collect();
    assert_eq!(read(text), tests);
}

// golang/go#38382: a panic in a goroutine leaves a test without an end.
#[test]
fn go_events_without_an_end_are_aborted() {
    expect(
        "{\"Action\":\"run\",\"Package\":\"m\",\"Test\":\"TestA\"}\n\
         {\"Action\":\"pass\",\"Package\":\"m\",\"Test\":\"TestA\"}\n\
         {\"Action\":\"run\",\"Package\":\"m\",\"Test\":\"TestB\"}\n\
         {\"Action\":\"run\",\"Package\":\"m\",\"Test\":\"TestC\"}\n\
         {\"Action\":\"fail\",\"Package\":\"m\",\"Test\":\"TestC\"}\n",
        &[("m.TestA", Fate::Passed), ("m.TestB", Fate::Aborted), ("m.TestC", Fate::Failed)],
    );
    expect(
        "=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n    --- SKIP: TestB/x (0.00s)\npanic: no\n",
        &[("TestA", Fate::Passed), ("TestB", Fate::Aborted), ("TestB/x", Fate::Skipped)],
    );
}

// rust-lang/cargo#9326: prints of the code under test land inside lines.
#[test]
fn libtest_lines_may_be_broken_by_output() {
    expect(
        "running 4 tests\ntest a::one ... ok\ntest a::two - should panic ... ok\ntest three ... some output\nmore FAILED\n\
         test four ... ignored, slow\ntest five ... \n",
        &[
            ("a::one", Fate::Passed),
            ("a::two", Fate::Passed),
            ("three", Fate::Failed),
            ("four", Fate::Skipped),
            ("five", Fate::Aborted),
        ],
    );
}

#[test]
fn nextest_lines_are_read_once_and_attempts_are_one_test() {
    expect(
        "        PASS [   0.005s] (1/3) krate a::one\n  TRY 1 FAIL [   0.004s] krate a::two\n  TRY 2 PASS [   0.004s] krate a::two\n\
         \x20    SIGABRT [   0.1s] krate three\n------------\n     Summary [   0.1s] 3 tests run\n        FAIL [   0.004s] krate a::one\n",
        &[("krate a::one", Fate::Passed), ("krate a::two", Fate::Failed), ("krate three", Fate::Failed)],
    );
}

#[test]
fn pytest_is_read_from_lines_and_from_the_summary() {
    expect(
        "tests/test_a.py::test_one PASSED            [ 33%]\ntests/test_a.py::test_two[x y] FAILED  [ 66%]\n\
         tests/test_a.py::test_three SKIPPED (no)     [100%]\n=== short test summary info ===\n\
         FAILED tests/test_a.py::test_two[x y] - assert 1 == 2\nERROR tests/test_a.py::test_one - teardown\n",
        &[
            ("tests/test_a.py::test_one", Fate::Failed),
            ("tests/test_a.py::test_two[x y]", Fate::Failed),
            ("tests/test_a.py::test_three", Fate::Skipped),
        ],
    );
    expect(
        "FAILED t.py::a - AssertionError\nPASSED t.py::b\n",
        &[("t.py::a", Fate::Failed), ("t.py::b", Fate::Passed)],
    );
}

#[test]
fn tap_that_ends_before_its_plan_has_failed() {
    expect(
        "TAP version 13\n1..3\nok 1 - adds\nnot ok 2 - takes # TODO later\n    ok 1 - inner\n",
        &[
            ("adds", Fate::Passed),
            ("takes", Fate::Skipped),
            ("inner", Fate::Passed),
            ("TAP plan 1..3", Fate::Failed),
        ],
    );
}

// jenkinsci/junit-plugin#580: characters that XML forbids. box/flaky#136: several records of one test.
#[test]
fn junit_reports_are_repaired_and_attempts_are_one_test() {
    let mut results = Results::default();
    results.push(false, b"noise\n<testsuites><testsuite name=\"s\"><testcase classname=\"a.B\" name=\"x &lt; y\"/>\n\
        <testcase classname=\"a.B\" name=\"two\"><failure message=\"\x01bad\">\x1b[31m</failure></testcase>\n\
        <testcase classname=\"a.B\" name=\"two\"></testcase><testcase name=\"three\"><flakyFailure/></testcase>\n\
        <testcase name=\"four\"><skipped/></testcase></testsuite></testsuites>\nmore noise < & >\n");
    let cases = results.finish();
    let told: Vec<(&str, Fate)> = cases.iter().map(|case| (case.id.as_str(), case.fate())).collect();
    assert_eq!(
        told,
        [
            ("a.B::x < y", Fate::Passed),
            ("a.B::two", Fate::Failed),
            ("three", Fate::Failed),
            ("four", Fate::Skipped)
        ]
    );
    assert_eq!((cases[1].passed, cases[1].failed), (1, 1));
}

#[test]
fn what_is_no_test_is_not_taken_for_one() {
    for text in [
        "ok, all is well\n",
        "test this ... and that\nnothing\n",
        "PASS\n",
        "--- a/file\n+++ b/file\n",
        "FAILED to connect to ::1\n",
        "not ok\n",
        "[ok] 1\n",
        "{\"Action\":1}\n",
        "\u{fffd}::\n",
        "ok\tm\t0.1s\n",
    ] {
        let tests = read(text);
        assert!(tests.iter().all(|(_, fate)| *fate == Fate::Aborted), "{text}: {tests:?}");
    }
}

#[test]
fn files_tell_of_tests_that_were_not_printed() {
    let first = b"<?xml version='1.0'?><testsuites><testsuite><testcase classname='A' name='one'/><testcase classname='A' \
                  name='two'><failure/></testcase></testsuite></testsuites>";
    let second = b"<testsuite><testcase classname='B' name='one'><flakyFailure/></testcase><testcase name='s'><skipped/></testcase>";
    let files = || [&first[..], &second[..], b"none", b"<testsuite"].into_iter();
    let counts = TestCounts { passed: 2, failed: 1, skipped: 1 };
    assert_eq!(super::counts(files()), Some(counts));
    assert_eq!(super::counts([&b"<testsuite/>"[..]].into_iter()), None);
    let read = |printed: &str| {
        let mut results = Results::default();
        results.push(false, printed.as_bytes());
        files().for_each(|file| results.file(file));
        results.finish().into_iter().map(|case| (case.id.clone(), case.fate())).collect::<Vec<_>>()
    };
    let filed = read("test a ... ok\n");
    assert_eq!(filed.len(), 4, "{filed:?}");
    assert!(filed.contains(&("A::two".to_owned(), Fate::Failed)));
    // Tried again, so it is as flaky as it says.
    assert!(filed.contains(&("B::one".to_owned(), Fate::Failed)));
    let many: String = (0..5).map(|number| format!("test t{number} ... ok\n")).collect();
    assert!(read(&many).iter().all(|(id, _)| id.starts_with('t')));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(400))]
    /// Foreign bytes: no panic, and no more tests than lines or tags could tell of.
    #[test]
    fn any_output_is_read_without_a_panic(
        parts in proptest::collection::vec(
            proptest::prop_oneof![
                proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40),
                proptest::sample::select(vec![
                    "{\"Action\":\"run\",\"Package\":\"m\",\"Test\":\"T\"}\n", "{\"Action\":\"fail\"", "--- FAIL: T (0.00s)\n", "=== RUN   T\n",
                    "test a ... ok\n", "running 1 test\n", "TAP version 13\n1..99999999999999999999\n", "ok 1 - a # SKIP\n", "not ok 18446744073709551616\n",
                    "    not ok", "<?xml version=\"1.0\"?>", "<testsuites>", "<testcase name=\"a\" classname=\"&#0;&b;\">", "<failure", "<!DOCTYPE a [", "<![CDATA[", "]]>", "</testcase>", "\n", "\0", "\u{feff}",
                ]).prop_map(|text| text.as_bytes().to_vec()),
            ],
            0..30,
        ),
        piece in 1_usize..64,
    ) {
        let bytes = parts.concat();
        let mut results = Results::default();
        for (number, piece) in bytes.chunks(piece).enumerate() {
            results.push(number % 5 == 4, piece);
        }
        proptest::prop_assert!(results.finish().len() <= bytes.len());
    }
}
