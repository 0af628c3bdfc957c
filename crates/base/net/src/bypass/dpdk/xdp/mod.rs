//! An interface by AF_XDP. A node shares it with the kernel: it gets what is for its address and
//! port, and the kernel keeps the interface with all else that goes over it. Whoever wants whole
//! frames gets all of them.

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

use self::program::{Program, Taken, Wanted};
use super::arguments::argument;

/// What a device needs to share its interface, for as long as it may be opened.
pub(super) struct Shared {
    /// The program, as a file without a name.
    file: OwnedFd,
    /// Says that the interface is ours.
    _claim: OwnedFd,
}

impl Shared {
    /// Prepares to share the interface that a device's arguments name with a node of that address
    /// and tag, or to take all of it; `None` for other devices, and for those that bring a
    /// program of their own (`xdp_prog=`).
    ///
    /// # Errors
    /// No such interface; one that another node has; what the kernel says.
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
        // A name of sockets belongs to a network namespace, as interfaces do, and is free again
        // when its owner is killed.
        let owner = SocketAddrUnix::new_abstract_name(format!("sprat af_xdp {index}").as_bytes())?;
        bind(&claim, &owner).map_err(|_| {
            let reason = format!(
                "another program of Sprat's has interface `{name}` already; give this one an interface of its own"
            );
            io::Error::new(io::ErrorKind::AddrInUse, reason)
        })?;
        attached::remove_ours(index)?;
        let taken = match node {
            Some((address, vlan)) => {
                Taken::Node(Wanted { address, vlan, kernel_has_it: kernel_has(address)? })
            }
            None => Taken::All,
        };
        let file = object::file(&Program::of(&taken)).map_err(io::Error::other)?;
        Ok(Some(Self { file: memory_file(&file)?, _claim: claim }))
    }

    /// The argument by which DPDK finds the program.
    pub(super) fn argument(&self) -> String {
        format!("xdp_prog=/proc/self/fd/{}", self.file.as_raw_fd())
    }
}

fn kernel_has(address: SocketAddr) -> io::Result<bool> {
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
