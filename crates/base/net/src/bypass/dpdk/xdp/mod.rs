//! Interfaces used through AF_XDP. A node shares its interface with the kernel: the node receives
//! the frames for its address and port, and the kernel receives all other frames. A raw device
//! receives all frames.

mod attached;
mod object;
mod program;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::ifaddrs::getifaddrs;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, netdevice, socket_with,
};

use self::program::{NodeFilter, Program, RedirectedFrames};
use super::arguments::argument;

/// The file and the socket that a device needs to share its interface. They are kept as long as the
/// device may be reopened.
pub(super) struct SharedInterface {
    /// The program's object file, in memory.
    file: OwnedFd,
    /// A socket whose abstract name claims the interface for this process.
    _claim: OwnedFd,
}

impl SharedInterface {
    /// Prepares the interface that a device's arguments name. A node, given by its address and VLAN
    /// tag, shares the interface with the kernel; without a node the device receives all frames.
    /// Returns `None` for devices other than `net_af_xdp`, and for devices with a program of their
    /// own (`xdp_prog=`).
    ///
    /// # Errors
    /// If there is no such interface, or another process has claimed it. Errors of the kernel.
    pub(super) fn prepare(
        arguments: &str,
        node: Option<(SocketAddr, Option<u16>)>,
    ) -> io::Result<Option<Self>> {
        let Some(name) =
            argument(arguments, "iface=").filter(|_| arguments.starts_with("net_af_xdp"))
        else {
            return Ok(None);
        };
        if argument(arguments, "xdp_prog=").is_some() {
            return Ok(None);
        }
        let claim =
            socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let index = netdevice::name_to_index(&claim, name).map_err(|cause| {
            io::Error::new(io::Error::from(cause).kind(), format!("interface `{name}`: {cause}"))
        })?;
        // Abstract socket names, like interfaces, belong to a network namespace. A name is free
        // again when its owner is killed.
        let owner = SocketAddrUnix::new_abstract_name(format!("sprat af_xdp {index}").as_bytes())?;
        bind(&claim, &owner).map_err(|_| {
            let reason = format!(
                "another sprat process uses interface `{name}`; give this one another interface"
            );
            io::Error::new(io::ErrorKind::AddrInUse, reason)
        })?;
        attached::remove_ours(index)?;
        let redirected = match node {
            Some((address, vlan)) => RedirectedFrames::Node(NodeFilter {
                address,
                vlan,
                kernel_has_address: kernel_has_ip(address)?,
            }),
            None => RedirectedFrames::All,
        };
        let file = object::file(&Program::of(&redirected)).map_err(io::Error::other)?;
        Ok(Some(Self { file: memory_file(&file)?, _claim: claim }))
    }

    /// Returns the argument that gives DPDK the program.
    pub(super) fn argument(&self) -> String {
        format!("xdp_prog=/proc/self/fd/{}", self.file.as_raw_fd())
    }
}

fn kernel_has_ip(address: SocketAddr) -> io::Result<bool> {
    let same = |theirs: &nix::sys::socket::SockaddrStorage| match address {
        SocketAddr::V4(own) => {
            theirs.as_sockaddr_in().is_some_and(|theirs| theirs.ip() == *own.ip())
        }
        SocketAddr::V6(own) => {
            theirs.as_sockaddr_in6().is_some_and(|theirs| theirs.ip() == *own.ip())
        }
    };
    Ok(getifaddrs()?.filter_map(|interface| interface.address).any(|theirs| same(&theirs)))
}

fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = memfd_create("sprat-xdp", MemfdFlags::CLOEXEC)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = &rest[written..];
    }
    Ok(file)
}
