//! Sets that are whole, older, cut, altered, and no sets at all.
#![forbid(unsafe_code)]

use super::*;

fn unplaced(facts: &BTreeSet<Fact>) -> Vec<u8> {
    encode_unplaced(facts).expect("nothing is asked that could fail")
}

fn some_facts() -> BTreeSet<Fact> {
    let mut facts: BTreeSet<Fact> = [
        Fact::Absent(b"a/b".to_vec()),
        Fact::Absent(b"a.c".to_vec()),
        Fact::Absent(b"a/b/c".to_vec()),
        Fact::Entry(b"c".to_vec(), vec![b'f', 1, 2]),
        Fact::Kind(Vec::new(), b'd'),
        Fact::Kind(b"d".to_vec(), b'd'),
        Fact::Names(b"d".to_vec(), vec![9; 32]),
        Fact::HostAbsent(b"/usr/x".to_vec()),
        Fact::HostFolder(b"/usr".to_vec()),
        Fact::HostFolder(b"/".to_vec()),
        Fact::HostStamp(b"/usr/y".to_vec(), vec![7; 64]),
        Fact::HostStamp(b"/usr/z".to_vec(), vec![7; 96]),
        Fact::HostLink(b"/bin".to_vec(), vec![b'l'; 4000]),
    ]
    .into();
    facts.extend((0..300).map(|at| Fact::Entry(format!("many/{at}").into_bytes(), vec![b'x'; 21])));
    facts
}

/// As versions 1 and 2 were written.
fn flat(version: u8, facts: &BTreeSet<Fact>) -> Vec<u8> {
    let mut bytes = vec![version];
    for fact in facts {
        let value = match fact {
            Fact::Entry(_, value)
            | Fact::Names(_, value)
            | Fact::HostLink(_, value)
            | Fact::HostStamp(_, value) => value.clone(),
            Fact::Kind(_, kind) => vec![*kind],
            _ => Vec::new(),
        };
        bytes.push(Sort::of(fact).letter());
        for field in [fact.path(), &value] {
            bytes.extend(u32::try_from(field.len()).expect("short").to_le_bytes());
            bytes.extend(field);
        }
    }
    bytes
}

#[test]
fn sets_read_back_and_cut_ones_are_none() {
    let facts = some_facts();
    let bytes = unplaced(&facts);
    assert_eq!(decode(&bytes).map(|read| read.into_iter().collect()), Some(facts.clone()));
    let set = KeptSet::read(&bytes).expect("whole");
    let (tree, host) = set.parts();
    assert!(tree.iter().all(|group| !group.sort.is_of_host()));
    assert!(host.iter().all(|group| group.sort.is_of_host() && group.folder.ends_with(b"/")));
    assert_eq!(tree.iter().filter(|group| group.folder == b"many/").count(), 300_usize.div_ceil(GROUP));
    assert!(set.groups.iter().all(|group| group.tree.is_empty()));
    let id = |folder: &[u8]| Ok::<_, ()>(folder.is_empty().then(|| ObjectId::new(&[3; 20])));
    let placed = encode(&facts, id).expect("nothing fails");
    assert_eq!(decode(&placed), decode(&bytes));
    let placed = KeptSet::read(&placed).expect("whole");
    let is_right = |group: &Group<'_>| group.tree.len() == if group.folder.is_empty() { 20 } else { 0 };
    assert!(
        placed.parts().0.iter().all(is_right) && placed.parts().1.iter().all(|group| group.tree.is_empty())
    );
    for end in 1..bytes.len() {
        // Cut between two groups it is a smaller set, which its tag tells from the whole.
        let read = decode(&bytes[..end]);
        assert!(read.is_none_or(|read| read.len() < facts.len()), "{end}");
    }
    assert_eq!(decode(&[]), None);
    assert_eq!(decode(&[0]), None);
    assert_eq!(decode(&[VERSION + 1]), None);
    assert_eq!(decode(&[VERSION]), Some(Vec::new()));
}

#[test]
fn older_sets_are_read_and_answer_where_they_mean_the_same() {
    let facts = some_facts();
    for version in [1, 2] {
        let bytes = flat(version, &facts);
        assert_eq!(decode(&bytes).map(|read| read.into_iter().collect()), Some(facts.clone()));
        assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
    }
    assert_eq!(current(flat(1, &facts)), None);
    assert_eq!(current(flat(2, &facts)), Some(unplaced(&facts)));
    assert_eq!(current(unplaced(&facts)), Some(unplaced(&facts)));
    assert_eq!(current(vec![VERSION + 1]), None);
    assert_eq!(current(Vec::new()), None);
}

proptest::proptest! {
    /// A set is foreign bytes until its tag is known to be right, and a tag says nothing of another program's layout.
    #[test]
    fn any_bytes_are_read_without_a_panic(version in 0_u8..5, bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        let bytes = [&[version][..], &bytes].concat();
        drop(decode(&bytes));
        drop(current(bytes));
    }

    #[test]
    fn sets_with_one_byte_changed_are_read_without_a_panic(at in 0_usize..8000, to in proptest::num::u8::ANY) {
        let mut bytes = unplaced(&some_facts());
        let length = bytes.len();
        bytes[at % length] = to;
        drop(decode(&bytes));
        drop(current(bytes));
    }

    #[test]
    fn paths_read_back_whatever_they_are(paths in proptest::collection::vec("/{0,2}[ab/]{0,6}", 0..20)) {
        let facts: BTreeSet<Fact> = paths
            .iter()
            .flat_map(|path| [Fact::HostAbsent(path.clone().into()), Fact::Entry(path.clone().into(), vec![b'f'])])
            .collect();
        proptest::prop_assert_eq!(decode(&unplaced(&facts)).map(|read| read.into_iter().collect()), Some(facts));
    }
}
