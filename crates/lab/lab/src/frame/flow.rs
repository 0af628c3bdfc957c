//! Flows: which packets belong together.

use super::Network;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// A flow: addresses, protocol and ports. Fields that a packet lacks are zero. Fragments have no
/// ports, not even the first fragment, because it would otherwise overtake the others. Packets that
/// are not IP have no fields at all.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Flow {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Protocol above IP, by IANA's numbers.
    pub protocol: u8,
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
}

impl Flow {
    /// The flow of all packets that are not IP.
    pub const OTHER: Self = Self {
        source: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        destination: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        protocol: 0,
        source_port: 0,
        destination_port: 0,
    };

    /// Returns the flow in the opposite direction.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            ..*self
        }
    }

    /// Returns whether the protocol is the ICMP of its address family.
    fn is_icmp(&self) -> bool {
        let own = if self.source.is_ipv4() { 1 } else { 58 };
        self.protocol == own && (self.source_port, self.destination_port) == (0, 0)
    }

    pub(crate) fn between(
        network: Network,
        source: &[u8],
        destination: &[u8],
        protocol: u8,
    ) -> Self {
        Self {
            source: address(network, source),
            destination: address(network, destination),
            protocol,
            ..Self::OTHER
        }
    }
}

fn address(network: Network, bytes: &[u8]) -> IpAddr {
    match network {
        Network::V6 => {
            IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).expect("sixteen were sliced")))
        }
        _ => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).expect("four were sliced"))),
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |address: IpAddr, port| match address {
            IpAddr::V4(_) => format!("{address}:{port}"),
            IpAddr::V6(_) => format!("[{address}]:{port}"),
        };
        match self.protocol {
            0 if *self == Self::OTHER => return f.write_str("not IP"),
            6 => f.write_str("tcp ")?,
            17 => f.write_str("udp ")?,
            1 | 58 if self.is_icmp() => {
                return write!(f, "icmp {} > {}", self.source, self.destination);
            }
            other => write!(f, "protocol-{other} ")?,
        }
        write!(
            f,
            "{} > {}",
            end(self.source, self.source_port),
            end(self.destination, self.destination_port)
        )
    }
}

/// The text does not have the form in which [`Flow`] is displayed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0:?} is not a flow; want one such as \"tcp 10.0.0.1:1000 > 10.0.0.2:2000\"")]
pub struct ParseFlowError(String);

impl FromStr for Flow {
    type Err = ParseFlowError;

    fn from_str(text: &str) -> Result<Self, ParseFlowError> {
        let parse = || {
            if text == "not IP" {
                return Some(Self::OTHER);
            }
            let (protocol, ends) = text.split_once(' ')?;
            let (source, destination) = ends.split_once(" > ")?;
            if protocol == "icmp" {
                let (source, destination): (IpAddr, IpAddr) =
                    (source.parse().ok()?, destination.parse().ok()?);
                let protocol = if source.is_ipv4() { 1 } else { 58 };
                return Some(Self { source, destination, protocol, ..Self::OTHER });
            }
            let protocol = match protocol {
                "tcp" => 6,
                "udp" => 17,
                other => other.strip_prefix("protocol-")?.parse().ok()?,
            };
            let (source, destination): (SocketAddr, SocketAddr) =
                (source.parse().ok()?, destination.parse().ok()?);
            let (source_port, destination_port) = (source.port(), destination.port());
            Some(Self {
                source: source.ip(),
                destination: destination.ip(),
                protocol,
                source_port,
                destination_port,
            })
        };
        parse().ok_or_else(|| ParseFlowError(text.to_owned()))
    }
}
