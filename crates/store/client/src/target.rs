//! A server as the client reaches it.

use std::net::SocketAddr;

/// A server as the client reaches it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Target {
    pub(crate) port: usize,
    pub(crate) peer: SocketAddr,
}
