//! Service locators: `tcp:host=192.168.1.7,port=12246`.
//!
//! A locator names an endpoint and chooses its transport: a transport, a colon, then `key=value`
//! parts with commas between. Which keys there are depends on the transport; none is ignored.
//! Shorter, where there is nothing else to say: `192.168.1.7:12246`, `localhost:11100`,
//! `[::1]:11100`, `tcp://192.168.1.7:12246`.

mod fault;
mod list;
mod parse;

use std::fmt::{self, Display};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use crate::Mac;

pub use fault::{Fault, LocatorError};
pub use list::Locators;
pub(crate) use parse::mac;

/// Where a service is reached, and over which transport.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Locator {
    /// How frames travel.
    pub transport: Transport,
    /// The machine.
    pub host: Host,
    /// The port; 0 lets the system choose one, which only makes sense to listen on.
    pub port: u16,
}

/// How frames travel.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Transport {
    /// `tcp`: the kernel's TCP.
    Tcp,
    /// `fast+udp`: our own reliability over the kernel's UDP.
    FastUdp,
    /// `fast+dpdk`: the same past the kernel.
    FastDpdk(Bypass),
}

/// How a host that bypasses the kernel is attached to its network. All but the hardware address
/// matters only to the host itself: what a kernel's interface is configured with elsewhere.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Bypass {
    /// Hardware address of the first device; the device's own when absent.
    pub mac: Option<Mac>,
    /// Leading bits of the host's address that its neighbours share; without it everybody counts
    /// as a neighbour.
    pub prefix: Option<u8>,
    /// Who passes on what is for others.
    pub gateway: Option<IpAddr>,
    /// VLAN tag of its frames.
    pub vlan: Option<u16>,
    /// Largest IP packet, bytes.
    pub mtu: Option<u16>,
    /// Devices to open, in DPDK's words and with its arguments; the first there is when empty.
    pub devices: Vec<String>,
}

/// The machine of a locator.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Host {
    /// An address, IPv4 or IPv6.
    Ip(IpAddr),
    /// A name, looked up each time the locator is resolved.
    Name(String),
}

impl Locator {
    /// The addresses that the host has now, in the system's order of preference. Looks names up,
    /// which can take seconds: not for a node's loop.
    ///
    /// # Errors
    /// Those of the system's resolver; never an empty list.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let addresses: Vec<_> = match &self.host {
            Host::Ip(ip) => vec![SocketAddr::new(*ip, self.port)],
            Host::Name(name) => (name.as_str(), self.port).to_socket_addrs()?.collect(),
        };
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        Ok(addresses)
    }

    /// The same endpoint with another host and port, as when the system has chosen the port; as
    /// others are to know it, without what matters only to the host itself.
    #[must_use]
    pub fn at(&self, address: SocketAddr) -> Self {
        let transport = match &self.transport {
            Transport::FastDpdk(Bypass { mac, .. }) => {
                Transport::FastDpdk(Bypass { mac: *mac, ..Bypass::default() })
            }
            other => other.clone(),
        };
        Self { transport, host: Host::Ip(address.ip()), port: address.port() }
    }
}

impl Transport {
    /// The word before the colon.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::FastUdp => "fast+udp",
            Self::FastDpdk(_) => "fast+dpdk",
        }
    }
}

impl Display for Locator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:host={}", self.transport.name(), self.host)?;
        let Transport::FastDpdk(bypass) = &self.transport else {
            return write!(f, ",port={}", self.port);
        };
        let Bypass { mac, prefix, gateway, vlan, mtu, devices } = bypass;
        let mut part = |key: &str, value: Option<&dyn Display>| match value {
            Some(value) => write!(f, ",{key}={value}"),
            None => Ok(()),
        };
        part("mac", mac.as_ref().map(|value| value as _))?;
        part("port", Some(&self.port))?;
        part("prefix", prefix.as_ref().map(|value| value as _))?;
        part("gateway", gateway.as_ref().map(|value| value as _))?;
        part("vlan", vlan.as_ref().map(|value| value as _))?;
        part("mtu", mtu.as_ref().map(|value| value as _))?;
        devices.iter().try_for_each(|device| part("dev", Some(device)))
    }
}

impl Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}
