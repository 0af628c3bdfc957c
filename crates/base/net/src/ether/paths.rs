//! A cache of routes to peers, over every link that reaches them.

use std::net::{IpAddr, SocketAddr};

use super::MAX_LINKS;
use super::route::Route;
use crate::Mac;

/// Number of entries in the cache, each for one peer. Peers with the same index evict each other,
/// at a small cost.
const ENTRIES: usize = 512;

/// Datagrams of at least this many bytes take turns on all links, because they are parts of long
/// messages. Shorter datagrams stay on the first of the peer's links, which keeps them in order.
const LONG: usize = 1024;

/// The routes to one peer.
pub(super) struct PeerPaths {
    peer: SocketAddr,
    generation: u32,
    /// One for each usable link, beginning with the link that a hash selects for this peer; never
    /// empty.
    routes: Vec<Route>,
    turn: usize,
    /// Two sets of links, with one bit for each link: over which frames were sent, and over which
    /// datagrams were received, since the last [`Paths::take_marks`].
    used: u8,
    heard: u8,
}

/// The cache of all peers' routes.
pub(super) struct Paths(Box<[Option<PeerPaths>]>);

impl Default for Paths {
    fn default() -> Self {
        Self((0..ENTRIES).map(|_| None).collect())
    }
}

impl Paths {
    /// Returns whether the entry `index`, which this peer uses, holds routes to this peer that are
    /// of that generation.
    #[inline]
    pub(super) fn has(&self, index: usize, peer: SocketAddr, generation: u32) -> bool {
        self.0[index]
            .as_ref()
            .is_some_and(|paths| paths.peer == peer && paths.generation == generation)
    }

    /// Returns the route of a datagram of `len` bytes to the peer of entry `index`. The caller must
    /// have checked with [`has`](Self::has) that the entry holds routes.
    #[inline]
    pub(super) fn pick(&mut self, index: usize, len: usize) -> &Route {
        let paths = self.0[index].as_mut().expect("there are ways");
        let mut at = 0;
        if len >= LONG && paths.routes.len() > 1 {
            paths.turn = (paths.turn + 1) % paths.routes.len();
            at = paths.turn;
        }
        let route = &paths.routes[at];
        paths.used |= 1 << route.link;
        route
    }

    /// Stores the routes to a peer in the entry `index`, which this peer uses.
    pub(super) fn put(
        &mut self,
        index: usize,
        peer: SocketAddr,
        generation: u32,
        routes: Vec<Route>,
    ) {
        assert!(!routes.is_empty(), "a way at least");
        self.0[index] = Some(PeerPaths { peer, generation, routes, turn: 0, used: 0, heard: 0 });
    }

    /// Notes a datagram from a peer over a link. Returns whether the cache has a route to the peer
    /// over this link and hardware address.
    #[inline]
    pub(super) fn note_received(&mut self, from: SocketAddr, link: usize, mac: Mac) -> bool {
        let Some(paths) = self.0[index_of(from)].as_mut().filter(|paths| paths.peer == from) else {
            return false;
        };
        paths.heard |= 1 << link;
        paths.routes.iter().any(|route| route.link == link && route.mac == mac)
    }

    /// Calls `each` for every peer in the cache, and every link of its routes over which a frame
    /// was sent or a datagram received since the last call. The third argument says whether a
    /// datagram was received over the link.
    pub(super) fn take_marks(&mut self, mut each: impl FnMut(IpAddr, usize, bool)) {
        for paths in self.0.iter_mut().flatten() {
            let (used, heard) = (std::mem::take(&mut paths.used), std::mem::take(&mut paths.heard));
            for route in &paths.routes {
                let (used, heard) = (used >> route.link & 1 == 1, heard >> route.link & 1 == 1);
                if used || heard {
                    each(paths.peer.ip(), route.link, heard);
                }
            }
        }
    }
}

/// Returns the index of a peer's entry.
#[inline]
pub(super) fn index_of(peer: SocketAddr) -> usize {
    let ip = match peer.ip() {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            #[allow(clippy::cast_possible_truncation, reason = "both halves are used")]
            let folded = (bits >> 64) as u64 ^ bits as u64;
            folded
        }
    };
    // Fibonacci hashing spreads consecutive ports and addresses.
    let mixed = (ip ^ u64::from(peer.port()) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::try_from(mixed >> 55).expect("9 bits")
}

const _: () = assert!(ENTRIES == 1 << (64 - 55) && MAX_LINKS <= 8);
