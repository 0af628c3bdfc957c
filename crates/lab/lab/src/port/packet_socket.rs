//! An interface that is there already, by a packet socket: one end of a veth, or a card. Frames
//! come and go with virtio-net headers, so that super-packets pass whole.
//!
//! The box takes the interface over: what else uses it would hear every frame a second time. So an
//! interface with addresses is refused unless that is meant.

use super::netns::within;
use super::sys::{self, PacketOption};
use super::{Kind, Port, PortError};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{setsockopt, sockopt};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::sync::atomic::AtomicU64;

/// Bytes that the kernel keeps of what has not been read, and of what has not been sent: 13 ms at
/// 10 Gb/s.
const SOCKET_BYTES: usize = 16 << 20;

/// The kernel's table of IPv4 routes in this thread's namespace.
const ROUTES: &str = "/proc/thread-self/net/route";

/// Which interface.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PacketSpec {
    /// Its name.
    pub name: String,
    /// The network namespace that it is in; none: ours.
    pub netns: Option<String>,
    /// Take it even if somebody uses it.
    pub force: bool,
}

/// Takes an interface over and switches it on. It is left as it was, but on, when the port is
/// closed.
///
/// # Errors
/// Somebody uses it, or what the kernel refused.
pub fn open_packet(spec: &PacketSpec) -> Result<Port, PortError> {
    let name = &spec.name;
    within(name, spec.netns.as_deref(), |_| {
        let refused =
            |step| move |error: Errno| PortError::Refused { port: name.clone(), step, error };
        let by_nix =
            |step| move |error: nix::Error| refused(step)(Errno::from_raw_os_error(error as i32));
        let interface = if_nametoindex(name.as_str()).map_err(by_nix("finding the interface"))?;
        if !spec.force
            && let Some(why) = used(name)
        {
            return Err(PortError::InUse { port: name.clone(), why });
        }
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
            .map_err(refused("a packet socket"))?;
        for option in
            [PacketOption::VnetHeader, PacketOption::AuxData, PacketOption::IgnoreOutgoing]
        {
            sys::switch_on(fd.as_fd(), option).map_err(refused("setting up a packet socket"))?;
        }
        setsockopt(&fd, sockopt::ReceiveTimestampns, &true)
            .map_err(by_nix("having it say when frames came"))?;
        buffers(&fd).map_err(by_nix("giving it a buffer"))?;
        let control =
            socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let control = control.map_err(refused("a socket to set it up with"))?;
        sys::bring_up(&control, name).map_err(refused("switching it on"))?;
        sys::bind_packet(fd.as_fd(), interface).map_err(refused("binding to it"))?;
        sys::hear_everything(fd.as_fd(), interface)
            .map_err(refused("having it hear everything"))?;
        Ok(Port::new(name, Kind::Packet(fd, AtomicU64::new(0))).with_interface(control))
    })
}

/// Gives a socket buffers as long as they should be; in a user's own namespaces, as long as the
/// machine lets everybody have.
fn buffers(fd: &OwnedFd) -> nix::Result<()> {
    let forced = setsockopt(fd, sockopt::RcvBufForce, &SOCKET_BYTES)
        .and_then(|()| setsockopt(fd, sockopt::SndBufForce, &SOCKET_BYTES));
    match forced {
        Err(nix::Error::EPERM) => setsockopt(fd, sockopt::RcvBuf, &SOCKET_BYTES)
            .and_then(|()| setsockopt(fd, sockopt::SndBuf, &SOCKET_BYTES)),
        forced => forced,
    }
}

/// By what it can be seen that somebody uses an interface of this thread's namespace.
pub(super) fn used(name: &str) -> Option<String> {
    let mut addresses = getifaddrs()
        .ok()?
        .filter(|entry| entry.interface_name == name)
        .filter_map(|entry| entry.address);
    // Every IPv6 interface that is on gives itself a link-local address.
    let address = addresses.find_map(|address| {
        let v6 =
            address.as_sockaddr_in6().map(|v6| v6.ip()).filter(|ip| !ip.is_unicast_link_local());
        address.as_sockaddr_in().map(|v4| v4.ip().to_string()).or(v6.map(|ip| ip.to_string()))
    });
    if let Some(address) = address {
        return Some(format!("has the address {address}"));
    }
    let routes = std::fs::read_to_string(ROUTES).ok()?;
    let default = routes.lines().skip(1).any(|route| {
        let mut fields = route.split_whitespace();
        fields.next() == Some(name) && fields.next() == Some("00000000")
    });
    default.then(|| "has the default route".to_owned())
}
