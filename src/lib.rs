//! Whether a command passes on an exact git tree.
//!
//! (The architecture page is written with the code; see the module list, which is in the order of the flow.)

pub mod model;
