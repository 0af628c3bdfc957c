//! The address that a driver is opened for.

use std::net::SocketAddr;

/// Whom a driver is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Address {
    /// A host with this address and port; port 0 lets the driver choose.
    Own(SocketAddr),
    /// Nobody in particular: an address of the link's own is made of the hardware address, of IPv6
    /// if true.
    LinkLocal(bool),
}
