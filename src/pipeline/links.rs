//! A path that is followed over symbolic links, part by part. Where a link leads, and what it is a link of, is the caller's
//! to find out.
#![forbid(unsafe_code)]

/// Links that are followed on one way, as the kernel does (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// A way that leads over links, part by part.
pub(super) struct Way {
    left: Vec<Vec<u8>>,
    /// Where it has come to.
    pub(super) at: Vec<Vec<u8>>,
    links: usize,
}

impl Way {
    pub(super) fn new(parts: &[&[u8]]) -> Self {
        Self { left: parts.iter().rev().map(|part| part.to_vec()).collect(), at: Vec::new(), links: 0 }
    }

    /// Goes on to the next place that is below the one before; false at the end.
    pub(super) fn step(&mut self) -> bool {
        while let Some(part) = self.left.pop() {
            if part != b".." {
                self.at.push(part);
                return true;
            }
            self.at.pop();
        }
        false
    }

    /// Turns into what the link at this place says; false where that are too many.
    pub(super) fn follow(&mut self, parts: &[&[u8]], is_absolute: bool) -> bool {
        self.links += 1;
        self.at.pop();
        if is_absolute {
            self.at.clear();
        }
        self.left.extend(parts.iter().rev().map(|part| part.to_vec()));
        self.links <= LINKS_MAX
    }
}
