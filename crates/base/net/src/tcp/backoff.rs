//! Delays between attempts to connect to a peer.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The delay after the first failure.
const FIRST: Duration = Duration::from_millis(2);

/// The longest delay. Each failure doubles the delay up to this limit.
const MOST: Duration = Duration::from_millis(500);

/// The largest number of peers remembered. At the limit, peers whose delay is over are forgotten.
/// If none of the delays is over, all peers are forgotten.
const MAX_PEERS: usize = 1024;

/// For each peer, when to try again to connect, and the current delay. It reads the clock itself,
/// but only off the hot path.
#[derive(Default)]
pub(super) struct Backoff {
    peers: HashMap<SocketAddr, (Instant, Duration)>,
}

impl Backoff {
    /// Returns whether an attempt to connect to `peer` is allowed now.
    pub(super) fn may_try(&self, peer: SocketAddr) -> bool {
        self.peers.get(&peer).is_none_or(|(until, _)| Instant::now() >= *until)
    }

    /// Notes that an attempt to connect to `peer` failed. Each failure doubles the delay.
    pub(super) fn failed(&mut self, peer: SocketAddr) {
        let wait = self.peers.get(&peer).map_or(FIRST, |(_, wait)| (*wait * 2).min(MOST));
        self.note(peer, wait);
    }

    /// Notes that a connection that `peer` had opened is closed. Such a peer does not listen, so a
    /// reply that is sent too late must not make us connect to it.
    pub(super) fn left(&mut self, peer: SocketAddr) {
        self.note(peer, MOST);
    }

    /// Notes that a connection to or from `peer` is established.
    pub(super) fn succeeded(&mut self, peer: SocketAddr) {
        self.peers.remove(&peer);
    }

    fn note(&mut self, peer: SocketAddr, wait: Duration) {
        let now = Instant::now();
        if self.peers.len() >= MAX_PEERS && !self.peers.contains_key(&peer) {
            self.peers.retain(|_, (until, _)| *until > now);
            if self.peers.len() >= MAX_PEERS {
                self.peers.clear();
            }
        }
        self.peers.insert(peer, (now + wait, wait));
    }
}
