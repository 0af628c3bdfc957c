//! Peers not to connect to just now.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// After the first failure.
const FIRST: Duration = Duration::from_millis(2);

/// After many: doubled each time up to this.
const MOST: Duration = Duration::from_millis(500);

/// Peers remembered; beyond that the oldest news are dropped.
const MAX_PEERS: usize = 1024;

/// When to try again, by peer. Reads the clock itself, but only off the hot path.
#[derive(Default)]
pub(super) struct Backoff {
    peers: HashMap<SocketAddr, (Instant, Duration)>,
}

impl Backoff {
    /// Whether connecting to `peer` may be tried.
    pub(super) fn may_try(&self, peer: SocketAddr) -> bool {
        self.peers.get(&peer).is_none_or(|(until, _)| Instant::now() >= *until)
    }

    /// Connecting to `peer` failed: wait, each time twice as long.
    pub(super) fn failed(&mut self, peer: SocketAddr) {
        let wait = self.peers.get(&peer).map_or(FIRST, |(_, wait)| (*wait * 2).min(MOST));
        self.note(peer, wait);
    }

    /// The connection that `peer` had opened to us is gone. It is not a listener:
    /// an answer that comes too late must not have us call back.
    pub(super) fn left(&mut self, peer: SocketAddr) {
        self.note(peer, MOST);
    }

    /// A connection to or from `peer` stands.
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
