//! The one integration test binary: everything here looks at the built program from outside.
#![expect(unreachable_pub, reason = "a test binary has no outside")]

mod support;

/// Guard `inputs`: observed inputs.
mod inputs;

/// One check from question to answer.
mod flow;
/// Nothing gets out by files, mounts or links.
mod jail_files;
/// A loopback of its own and nothing else.
mod jail_network;
