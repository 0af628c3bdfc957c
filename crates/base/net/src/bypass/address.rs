//! The address that a driver is opened for.

use std::net::SocketAddr;

/// The address of the host that a driver serves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Address {
    /// This address and port; with port 0 the driver chooses a port.
    Own(SocketAddr),
    /// A link-local address derived from the hardware address (IPv6 if true, otherwise IPv4), and a
    /// port that the driver chooses.
    LinkLocal(bool),
}
