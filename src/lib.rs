//! Whether a command passes on an exact git tree.

pub mod cache;
pub mod catalogue;
pub mod cli;
pub mod commands;
pub mod flight;
pub mod key;
pub mod logs;
pub mod model;
pub mod pipeline;
pub mod report;
pub mod sandbox;
pub mod stage;
pub mod store;
pub mod summary;
pub mod toolchain;
pub mod tree;
