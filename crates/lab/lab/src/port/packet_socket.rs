//! Opens an interface that already exists, such as one end of a veth or a network card, by a packet
//! socket. Frames have virtio-net headers, so that super-packets pass whole.
//!
//! The box takes the interface over: other users of the interface would receive every frame a
//! second time. So an interface that has an address or the IPv4 default route is refused, unless
//! `force` is set. IPv6 link-local addresses do not count.

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

/// Bytes that the kernel may buffer in each direction: 13 ms at 10 Gb/s.
const SOCKET_BYTES: usize = 16 << 20;

/// The IPv4 routes of the calling thread's namespace.
const ROUTES: &str = "/proc/thread-self/net/route";

/// Describes an interface to open by a packet socket.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PacketSpec {
    /// The interface's name.
    pub name: String,
    /// The interface's network namespace. With `None`, that of this process.
    pub netns: Option<String>,
    /// Opens the interface even if it is in use.
    pub force: bool,
}

/// Takes an interface over and switches it on. When the port is closed, the interface is as it was
/// before, except that it stays on.
///
/// # Errors
/// There is no such interface or namespace, the interface is in use and `force` is not set, or the
/// kernel refuses a packet socket or one of its options.
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
            .map_err(by_nix("turning on timestamps of frames"))?;
        buffers(&fd).map_err(by_nix("setting its buffer"))?;
        let control =
            socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let control = control.map_err(refused("a socket to set it up with"))?;
        sys::bring_up(&control, name).map_err(refused("switching it on"))?;
        sys::bind_packet(fd.as_fd(), interface).map_err(refused("binding to it"))?;
        sys::set_promiscuous(fd.as_fd(), interface)
            .map_err(refused("turning on promiscuous mode"))?;
        Ok(Port::new(name, Kind::Packet(fd, AtomicU64::new(0))).with_interface(control))
    })
}

/// Sets the sizes of the socket's buffers. Without privileges, the machine's limit for all users
/// applies.
fn buffers(fd: &OwnedFd) -> nix::Result<()> {
    let forced = setsockopt(fd, sockopt::RcvBufForce, &SOCKET_BYTES)
        .and_then(|()| setsockopt(fd, sockopt::SndBufForce, &SOCKET_BYTES));
    match forced {
        Err(nix::Error::EPERM) => setsockopt(fd, sockopt::RcvBuf, &SOCKET_BYTES)
            .and_then(|()| setsockopt(fd, sockopt::SndBuf, &SOCKET_BYTES)),
        forced => forced,
    }
}

/// Returns what shows that an interface of the calling thread's namespace is in use; `None` if
/// nothing shows it, or if the kernel does not list addresses and routes.
pub(super) fn used(name: &str) -> Option<String> {
    let mut addresses = getifaddrs()
        .ok()?
        .filter(|entry| entry.interface_name == name)
        .filter_map(|entry| entry.address);
    // Link-local addresses do not count, because every IPv6 interface that is on has one.
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
