//! A host on Ethernet, sans-IO: frames in, what they mean out. UDP over IPv4 and IPv6 with what
//! keeps it alive below: ARP and neighbour discovery, echoes, path MTU, VLAN tags, a gateway,
//! several links.
//!
//! For drivers that bypass the kernel, and with it the kernel's IP. It knows one address, one UDP
//! port, and nothing about devices; time comes from the caller.

mod headers;
mod host;
mod messages;
mod neighbours;
mod parse;
mod paths;
mod port_of;
mod route;

pub use headers::{ETHERNET_BYTES, VLAN_BYTES, group_mac, link_local_v4, link_local_v6};
pub use host::{Heard, Host, LinkSettings, Settings, Unroutable};
pub use port_of::port_of;
pub use route::{Checksums, MAX_HEADERS, Route};

/// Most links that one host has.
pub const MAX_LINKS: usize = 8;

/// Least IP packet that every path must carry: IPv6's (RFC 8200), and far beyond IPv4's.
pub const MIN_MTU: usize = 1280;

/// Largest IP packet of a link: what jumbo frames of today's devices carry, and more.
pub const MAX_MTU: usize = 65_535;
