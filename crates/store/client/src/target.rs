//! A server as the client reaches it.

use std::net::SocketAddr;

/// A server as a client reaches it: the index of a port, and the server's address. Valid only for
/// the [`Core`](crate::Core) that made it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ServerHandle {
    pub(crate) port: usize,
    pub(crate) peer: SocketAddr,
}
