//! The order in which steps are looked at: what others depend on comes first, else as in the file.
#![forbid(unsafe_code)]

use std::collections::HashMap;

/// Why there is no order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Disorder {
    /// Step number, which of its dependencies: there is no step of that name.
    Unknown(usize, usize),
    /// Step numbers, each depending on the next and the last on the first.
    Cycle(Vec<usize>),
}

/// Orders steps, given by name and dependencies; names are unique.
pub(super) fn order(steps: &[(&str, &[String])]) -> Result<Vec<usize>, Disorder> {
    let places: HashMap<&str, usize> =
        steps.iter().enumerate().map(|(place, (name, _))| (*name, place)).collect();
    let mut needs: Vec<Vec<usize>> = Vec::with_capacity(steps.len());
    for (place, (_, dependencies)) in steps.iter().enumerate() {
        let mut of = Vec::with_capacity(dependencies.len());
        for (index, name) in dependencies.iter().enumerate() {
            of.push(*places.get(name.as_str()).ok_or(Disorder::Unknown(place, index))?);
        }
        needs.push(of);
    }
    let mut waits: Vec<usize> = needs.iter().map(Vec::len).collect();
    let mut needed_by: Vec<Vec<usize>> = vec![Vec::new(); steps.len()];
    for (place, of) in needs.iter().enumerate() {
        for need in of {
            needed_by[*need].push(place);
        }
    }
    let mut free: std::collections::BTreeSet<usize> =
        (0..steps.len()).filter(|place| waits[*place] == 0).collect();
    let mut order = Vec::with_capacity(steps.len());
    while let Some(place) = free.pop_first() {
        order.push(place);
        for next in &needed_by[place] {
            waits[*next] -= 1;
            if waits[*next] == 0 {
                free.insert(*next);
            }
        }
    }
    if order.len() == steps.len() { Ok(order) } else { Err(Disorder::Cycle(cycle(&needs, &waits))) }
}

/// Walks from a step that still waits to one that it waits for until one comes again.
fn cycle(needs: &[Vec<usize>], waits: &[usize]) -> Vec<usize> {
    let Some(mut at) = waits.iter().position(|waits| *waits > 0) else { return Vec::new() };
    let mut walked: Vec<usize> = Vec::new();
    loop {
        if let Some(start) = walked.iter().position(|place| *place == at) {
            return walked.split_off(start);
        }
        walked.push(at);
        match needs[at].iter().find(|need| waits[**need] > 0) {
            Some(next) => at = *next,
            None => return walked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(steps: &[(&str, &[&str])]) -> Result<Vec<usize>, Disorder> {
        let owned: Vec<(&str, Vec<String>)> = steps
            .iter()
            .map(|(name, needs)| (*name, needs.iter().map(|need| (*need).to_owned()).collect()))
            .collect();
        let borrowed: Vec<(&str, &[String])> =
            owned.iter().map(|(name, needs)| (*name, needs.as_slice())).collect();
        order(&borrowed)
    }

    #[test]
    fn dependencies_come_first_and_the_rest_keeps_its_order() {
        assert_eq!(ordered(&[("a", &[]), ("b", &[]), ("c", &[])]), Ok(vec![0, 1, 2]));
        assert_eq!(ordered(&[("a", &["c"]), ("b", &[]), ("c", &[])]), Ok(vec![1, 2, 0]));
        assert_eq!(ordered(&[("a", &[]), ("b", &["a", "a"])]), Ok(vec![0, 1]));
        assert_eq!(ordered(&[]), Ok(vec![]));
    }

    #[test]
    fn what_has_no_order_is_named() {
        assert_eq!(ordered(&[("a", &["x"])]), Err(Disorder::Unknown(0, 0)));
        assert_eq!(ordered(&[("a", &["a"])]), Err(Disorder::Cycle(vec![0])));
        // The cycle itself is named, not what leads to it.
        assert_eq!(
            ordered(&[("d", &["b"]), ("a", &["c"]), ("b", &["a"]), ("c", &["b"])]),
            Err(Disorder::Cycle(vec![2, 1, 3]))
        );
    }
}
