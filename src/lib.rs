//! Whether a command passes on an exact git tree.

pub mod model;
pub mod sandbox;
