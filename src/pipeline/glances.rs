//! Looks at many files of the host while something else is done: a look is a system call of some microseconds, and a run
//! of a compiler leaves thousands of them to be repeated. What is made of a look is not decided here.
#![forbid(unsafe_code)]

use crate::pipeline::contents::{Look, Looks};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Files from which on a second thread pays: to start one takes as long as some dozens of looks.
const MANY: usize = 256;
/// Files that a thread takes at a time; neighbours, so that it opens their folder once.
const SHARE: usize = 64;

/// What was seen at each place, in their order: outer `None` where nobody has looked.
pub(super) type Seen = Vec<Option<Option<Look>>>;

/// Does `work` and looks at the places meanwhile, with one more thread where they are many. Where `work` says that no look
/// is needed any more (`false`), what is left is not looked at.
pub(super) fn beside<T>(places: &[&Path], work: impl FnOnce() -> (T, bool)) -> (T, Seen) {
    let next = AtomicUsize::new(0);
    let is_over = AtomicBool::new(false);
    let look = || {
        let mut looks = Looks::default();
        let mut found = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            let from = next.fetch_add(SHARE, Ordering::Relaxed);
            let Some(share) =
                places.get(from..places.len().min(from + SHARE)).filter(|share| !share.is_empty())
            else {
                break;
            };
            found.extend(share.iter().enumerate().map(|(at, place)| (from + at, looks.at(place))));
        }
        found
    };
    let (done, found) = std::thread::scope(|scope| {
        let is_many = places.len() >= MANY;
        // Where no thread can be had, this one looks at them all.
        let other = is_many.then(|| std::thread::Builder::new().spawn_scoped(scope, look).ok()).flatten();
        let (done, goes_on) = work();
        is_over.store(!goes_on, Ordering::Relaxed);
        let mut found = look();
        found.extend(other.and_then(|other| other.join().ok()).unwrap_or_default());
        (done, found)
    });
    let mut seen = vec![None; places.len()];
    for (at, look) in found {
        seen[at] = Some(look);
    }
    (done, seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_looked_at_once_and_in_its_order() {
        for count in [0, 1, SHARE, MANY - 1, MANY, 5 * MANY + 3] {
            let names: Vec<String> =
                (0..count).map(|at| if at % 3 == 0 { "/".to_owned() } else { format!("/no/{at}") }).collect();
            let places: Vec<&Path> = names.iter().map(Path::new).collect();
            let (done, seen) = beside(&places, || (7, true));
            assert_eq!((done, seen.len()), (7, count));
            for (at, look) in seen.iter().enumerate() {
                assert_eq!(look.as_ref().expect("looked").is_some(), at % 3 == 0, "{at} of {count}");
            }
            let (_, seen) = beside(&places, || ((), false));
            assert_eq!(seen.len(), count);
        }
    }
}
