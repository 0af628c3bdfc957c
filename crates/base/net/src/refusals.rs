//! Peers whose hosts report that no process listens at the peer's port.

use std::net::SocketAddr;

/// The largest number of peers that wait to be taken by [`Refusals::take`]. Further peers are
/// dropped.
const MAX_REFUSALS: usize = 64;

/// Peers whose hosts have refused a connection or a datagram. Each is kept once, until it is taken.
#[derive(Default)]
pub(crate) struct Refusals {
    peers: Vec<SocketAddr>,
}

impl Refusals {
    pub(crate) fn note(&mut self, peer: SocketAddr) {
        if self.peers.len() < MAX_REFUSALS && !self.peers.contains(&peer) {
            self.peers.push(peer);
        }
    }

    pub(crate) fn take(&mut self) -> Option<SocketAddr> {
        self.peers.pop()
    }
}
