//! Reading of JSON with places, compared with what others read.

use super::*;
use proptest::prelude::*;

fn plain(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Number(digits) => serde_json::from_str(digits).unwrap(),
        Value::Text(text) => text.clone().into(),
        Value::List(items) => items.iter().map(plain).collect(),
        Value::Object(members) => serde_json::Value::Object(
            members.iter().map(|member| (member.key.clone(), plain(&member.node))).collect(),
        ),
    }
}

#[test]
fn faults_say_where_and_what() {
    for (text, at, part) in [
        ("", 0, "cut short"),
        ("{\"a\": [1, 2", 11, "`,` or `]`"),
        ("{\"a\": \"b", 8, "the end of a text"),
        ("{\"a\":1,\"a\":2}", 7, "twice"),
        ("{\"a\":1,}", 7, "a key in quotes"),
        ("[1,]", 3, "a value"),
        ("[01]", 2, "`,` or `]`"),
        ("[1.]", 3, "a digit"),
        ("[+1]", 1, "a value"),
        ("[NaN]", 1, "a value"),
        ("[nul]", 1, "a value"),
        ("[1] 2", 4, "after the end"),
        ("[\"\\x\"]", 3, "escape"),
        ("[\"\\ud800\"]", 2, "surrogate"),
        ("[\"\\ud800\\u0041\"]", 2, "surrogate"),
        ("[\"a\tb\"]", 3, "control"),
        ("{'a':1}", 1, "a key in quotes"),
        ("\u{feff}{}", 0, "a value"),
    ] {
        let fault = parse(text).unwrap_err();
        assert!(fault.at == at && fault.problem.contains(part), "{text:?}: {fault:?}");
    }
}

#[test]
fn depth_is_bounded_before_the_stack_is() {
    let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    assert!(parse(&deep(60)).is_ok());
    assert!(parse(&deep(1_000_000)).unwrap_err().problem.contains("within each other"));
}

#[test]
fn places_are_counted_in_characters() {
    assert_eq!(place("a\n\u{e9}\u{e9}x", 6), (2, 3));
    assert_eq!(place("", 9), (1, 1));
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_filter("finite", |x| x.is_finite()).prop_map(Into::into),
        ".*".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::btree_map(".*", inner, 0..6)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn what_others_write_reads_the_same(value in any_json(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        prop_assert_eq!(plain(&parse(&text).unwrap()), serde_json::from_str::<serde_json::Value>(&text).unwrap());
    }

    #[test]
    fn what_others_refuse_is_refused(text in "[\\[\\]{}\",:0-9eE.+\\-truefalsn \\\\u]{0,40}") {
        let theirs = serde_json::from_str::<serde_json::Value>(&text).is_ok();
        let ours = parse(&text);
        // Keys that are there twice are refused here and not there; numbers beyond a double are theirs to refuse.
        let twice = ours.as_ref().is_err_and(|fault| fault.problem.contains("twice"));
        prop_assert!(ours.is_ok() == theirs || twice || text.contains(['e', 'E']), "{:?} {:?}", text, ours);
    }
}
