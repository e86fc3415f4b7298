//! How the layers of the tree come to a supervisor that is at work already: what of a sandbox does not depend on the tree
//! is built while the tree is laid out. Whoever can open them before the supervisor gives up its rights does so.
#![forbid(unsafe_code)]

use crate::model::layer::Level;
use crate::sandbox::plan::Plan;
use crate::sandbox::wire::{At, Failure, Step};
use crate::sandbox::{channel, sources};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Leads each message that names a layer.
const LAYER: u8 = 1;
/// The message after the last layer.
const END: u8 = 0;

/// A layer as it arrives: its folder and, where the supervisor could not open that itself, a copy of its mount.
pub(super) type Delivered = (PathBuf, Option<OwnedFd>);

/// Sends the layers, uppermost first.
///
/// # Errors
/// One of them cannot be opened. That the supervisor is gone is none: its last word says why.
pub(super) fn send(plan: &Plan, layers: &[PathBuf], supervisor: &OwnedFd) -> Result<(), Failure> {
    let opens_here = plan.level == Level::Full && plan.user.switch;
    let gone = |sent| match sent {
        Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
        sent => sent,
    };
    for layer in layers {
        let mount = if opens_here { Some(sources::open_layer(layer)?) } else { None };
        let message = [&[LAYER], layer.as_os_str().as_bytes()].concat();
        gone(channel::send(supervisor, &message, mount.as_ref().map(AsFd::as_fd)))
            .at(Step::Channel, "a layer")?;
    }
    gone(channel::send(supervisor, &[END], None)).at(Step::Channel, "layers")
}

/// Waits for all layers.
///
/// # Errors
/// The launcher is gone, or has changed its mind.
pub(super) fn receive(launcher: &OwnedFd) -> Result<Vec<Delivered>, Failure> {
    let mut layers = Vec::new();
    loop {
        let message = channel::receive(launcher.as_fd()).at(Step::Channel, "a layer")?;
        match message.as_ref().and_then(|(bytes, _)| bytes.split_first()) {
            Some((&LAYER, path)) => {
                let path = PathBuf::from(OsStr::from_bytes(path));
                layers.push((path, message.and_then(|(_, mount)| mount)));
            }
            Some((&END, _)) => return Ok(layers),
            _ => return Err(Failure::new(Step::Channel, "launcher gone", &Errno::PIPE.into())),
        }
    }
}
