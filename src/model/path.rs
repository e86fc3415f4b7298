//! Paths of a tree as git has them: bytes, with `/` between names. Nothing is looked up here.
#![forbid(unsafe_code)]

/// A path below a folder, whose own is empty where it is the tree's root.
pub(crate) fn below(folder: &[u8], path: &[u8]) -> Vec<u8> {
    if folder.is_empty() { path.to_vec() } else { [folder, b"/", path].concat() }
}
