//! The shape of the sandbox's own network beyond loopback being up. Everything stays on the loopback device of a network
//! namespace that has no other device with a way out; messages are those of rtnetlink(7).
#![forbid(unsafe_code)]

use crate::model::guise::Shape;
use crate::sandbox::sys;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use std::io;

/// The loopback device's number in every network namespace (include/linux/net_namespace.h, `LOOPBACK_IFINDEX`).
const LOOPBACK: u32 = 1;
/// The address that packets to elsewhere come from: one that is kept for documentation (RFC 5737).
const OWN: [u8; 4] = [192, 0, 2, 2];

/// linux/rtnetlink.h: kinds of messages.
const NEW_ADDRESS: u16 = 20;
const REMOVE_ADDRESS: u16 = 21;
const NEW_ROUTE: u16 = 24;
/// linux/netlink.h: flags of a request that is to be answered, and that makes something new.
const REQUEST_AND_ANSWER: u16 = 0x001 | 0x004;
const CREATE: u16 = 0x400 | 0x200;
/// linux/if_addr.h and linux/rtnetlink.h: attributes.
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const OUT_DEVICE: u16 = 4;
const PREFERRED_SOURCE: u16 = 7;

/// Brings loopback up and gives the network its shape. Needs CAP_NET_ADMIN over the network namespace it runs in.
///
/// # Errors
/// What the kernel says.
pub(super) fn shape(shape: Shape) -> io::Result<()> {
    sys::bring_loopback_up()?;
    match shape {
        Shape::Loopback => Ok(()),
        Shape::BlackHole => {
            let socket = open()?;
            let family = u8::try_from(AddressFamily::INET.as_raw()).unwrap_or(2);
            let address = [attribute(LOCAL, &OWN), attribute(ADDRESS, &OWN)].concat();
            ask(&socket, NEW_ADDRESS, CREATE, &[&of_address(family, 32), &address[..]].concat())?;
            // What is sent to this device and is not for an address of ours comes back from it with the route that it was
            // sent by, which no one here is at the end of, and is dropped without a word (`dst_discard` in net/core/dst.c).
            let way = [attribute(OUT_DEVICE, &LOOPBACK.to_ne_bytes()), attribute(PREFERRED_SOURCE, &OWN)];
            ask(&socket, NEW_ROUTE, CREATE, &[&of_route(family)[..], &way.concat()].concat())
        }
        Shape::Ipv4 => {
            let socket = open()?;
            let family = u8::try_from(AddressFamily::INET6.as_raw()).unwrap_or(10);
            let own = std::net::Ipv6Addr::LOCALHOST.octets();
            let address = [attribute(LOCAL, &own), attribute(ADDRESS, &own)].concat();
            match ask(&socket, REMOVE_ADDRESS, 0, &[&of_address(family, 128), &address[..]].concat()) {
                // A kernel without IPv6, or one where it is switched off, has nothing to take away.
                Err(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT | Errno::OPNOTSUPP) => Ok(()),
                done => done,
            }
        }
    }
    .map_err(Into::into)
}

fn open() -> rustix::io::Result<OwnedFd> {
    // Protocol 0 is NETLINK_ROUTE (netlink(7)).
    socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)
}

/// struct ifaddrmsg: family, length of the prefix, flags, scope (0 is everywhere), device.
fn of_address(family: u8, prefix: u8) -> [u8; 8] {
    let [a, b, c, d] = LOOPBACK.to_ne_bytes();
    [family, prefix, 0, 0, a, b, c, d]
}

/// struct rtmsg: family, both prefixes empty, no type of service, the main table (254), said by hand (4), on the link
/// (253), an ordinary route (1), no flags.
fn of_route(family: u8) -> [u8; 12] {
    [family, 0, 0, 0, 254, 4, 253, 1, 0, 0, 0, 0]
}

/// struct rtattr and its content, which here is a multiple of four bytes.
fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len() + 4).unwrap_or(u16::MAX);
    [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), content].concat()
}

/// Sends one request and waits for the kernel's answer, which comes before the call returns.
fn ask(socket: &OwnedFd, kind: u16, flags: u16, body: &[u8]) -> rustix::io::Result<()> {
    let length = u32::try_from(body.len() + 16).map_err(|_| Errno::INVAL)?;
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((flags | REQUEST_AND_ANSWER).to_ne_bytes());
    // A number for the answer, and the kernel's choice of a port for us.
    message.extend(1_u32.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes());
    message.extend(body);
    send(socket, &message, SendFlags::empty())?;
    let mut answer = [0_u8; 1024];
    let (read, _) = recv(socket, &mut answer[..], RecvFlags::empty())?;
    // struct nlmsghdr is followed by struct nlmsgerr, which begins with the negative errno, or 0.
    let code = answer.get(16..20).filter(|_| read >= 20).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
    match code.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(error) => Err(Errno::from_raw_os_error(error.saturating_neg())),
        None => Err(Errno::PROTO),
    }
}
