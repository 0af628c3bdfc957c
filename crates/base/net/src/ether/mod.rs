//! A host on Ethernet, sans-IO. It implements UDP over IPv4 and IPv6, and what UDP needs: ARP and
//! neighbour discovery, echoes, path MTU, VLAN tags, a gateway, and several links.
//!
//! It is for drivers that bypass the kernel and therefore cannot use the kernel's IP. A host has
//! one address and one UDP port, and knows nothing about devices. The caller supplies the time.

mod headers;
mod host;
mod messages;
mod neighbours;
mod parse;
mod paths;
mod port_of;
mod route;

pub use headers::{ETHERNET_BYTES, VLAN_BYTES, group_mac, link_local_v4, link_local_v6};
pub use host::{EtherHost, FrameEvent, HostSettings, LinkSettings, Unroutable};
pub use port_of::port_of;
pub use route::{Checksums, MAX_HEADERS, Route};

/// The largest number of links of one host.
pub const MAX_LINKS: usize = 8;

/// The smallest MTU allowed, in bytes. Every IPv6 path must carry packets of this size (RFC 8200);
/// IPv4's minimum is far lower.
pub const MIN_MTU: usize = 1280;

/// The largest MTU allowed, in bytes: more than the jumbo frames of today's devices.
pub const MAX_MTU: usize = 65_535;
