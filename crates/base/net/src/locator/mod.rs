//! Service locators: `tcp:host=192.168.1.7,port=12246`.
//!
//! A locator names an endpoint and its transport. It consists of the transport, a colon, and
//! `key=value` parts separated by commas. Each transport has its own keys; an unknown key is an
//! error. There are shorter forms: `192.168.1.7:12246`, `localhost:11100`, `[::1]:11100`,
//! `tcp://192.168.1.7:12246`.

mod fault;
mod list;
mod parse;

use std::fmt::{self, Display};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use crate::Mac;

pub use fault::{LocatorError, LocatorFault};
pub use list::Locators;
pub(crate) use parse::mac;

/// The address of a service and the transport to reach it.
///
/// Parse a locator from text with `FromStr`, open a driver for it by
/// [`AnyDriver::open`](crate::AnyDriver::open), and get the locator that peers should use by
/// [`AnyDriver::advertised`](crate::AnyDriver::advertised). `Display` writes the long form, which
/// parses back to an equal locator.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Locator {
    /// How frames travel.
    pub transport: Transport,
    /// The machine, by its address or name.
    pub host: Host,
    /// The port. 0 lets the system choose a port, which is useful only to listen.
    pub port: u16,
}

/// How frames travel.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Transport {
    /// `tcp`: the kernel's TCP.
    Tcp,
    /// `fast+udp`: the kernel's UDP; the `rpc` crate makes calls over it reliable.
    FastUdp,
    /// `fast+dpdk`: UDP like `fast+udp`, but without the kernel.
    FastDpdk(Bypass),
}

/// How a host that bypasses the kernel is attached to its network. Only the hardware address
/// matters to peers. The other settings are those that one would configure on an interface of the
/// kernel.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Bypass {
    /// Hardware address of the first device; `None` keeps the device's own.
    pub mac: Option<Mac>,
    /// Number of leading bits of the host's address that its neighbours share; if `None`, every
    /// peer counts as a neighbour.
    pub prefix: Option<u8>,
    /// The router to all hosts that are not neighbours; `None` if there is no router.
    pub gateway: Option<IpAddr>,
    /// VLAN tag of the host's frames; `None` for untagged frames.
    pub vlan: Option<u16>,
    /// The largest IP packet, in bytes. `None` stands for 9,000 if all devices are memory
    /// interfaces, otherwise for 1,500.
    pub mtu: Option<u16>,
    /// Devices to open, with DPDK's names and arguments. If the list is empty, the first device
    /// that DPDK finds is opened.
    pub devices: Vec<String>,
}

/// The host of a locator.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Host {
    /// An address, IPv4 or IPv6.
    Ip(IpAddr),
    /// A name, looked up each time the locator is resolved.
    Name(String),
}

impl Locator {
    /// Returns the host's current addresses, in the system's order of preference. The lookup of a
    /// name can take seconds, so do not call this in a node's loop.
    ///
    /// # Errors
    /// The errors of the system's resolver, and `NotFound` if the name has no address. The list is
    /// never empty.
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

    /// Returns the locator that peers should use to reach this endpoint at `address`, which may
    /// have a port that the system has chosen. Leaves out the settings that matter only to the host
    /// itself.
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
    /// Returns the transport's name, as it is written before a locator's colon.
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
