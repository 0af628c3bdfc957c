//! The ways to peers: over which links, and whose turn it is.

use std::net::{IpAddr, SocketAddr};

use super::MAX_LINKS;
use super::route::Route;
use crate::Mac;

/// Peers at hand, one a place; whoever shares a place takes turns at a small cost.
const PLACES: usize = 512;

/// Datagrams of at least this many bytes go over all links in turn: they are parts of something
/// long. Shorter ones go over one, which is the peer's own and keeps them in order.
const LONG: usize = 1024;

/// The ways to one peer.
pub(super) struct Ways {
    peer: SocketAddr,
    generation: u32,
    /// One a link that works, the peer's own first; never empty.
    routes: Vec<Route>,
    turn: usize,
    /// Links over which something was sent, and over which something came, since the last
    /// [`Paths::take_marks`].
    used: u8,
    heard: u8,
}

/// The ways to all of them.
pub(super) struct Paths(Box<[Option<Ways>]>);

impl Default for Paths {
    fn default() -> Self {
        Self((0..PLACES).map(|_| None).collect())
    }
}

impl Paths {
    /// Whether there are ways to a peer, of that generation; `place` is the peer's.
    #[inline]
    pub(super) fn has(&self, place: usize, peer: SocketAddr, generation: u32) -> bool {
        self.0[place]
            .as_ref()
            .is_some_and(|ways| ways.peer == peer && ways.generation == generation)
    }

    /// The way of a datagram of `len` bytes to the peer of a place, to which there [is](Self::has)
    /// one.
    #[inline]
    pub(super) fn pick(&mut self, place: usize, len: usize) -> &Route {
        let ways = self.0[place].as_mut().expect("there are ways");
        let mut at = 0;
        if len >= LONG && ways.routes.len() > 1 {
            ways.turn = (ways.turn + 1) % ways.routes.len();
            at = ways.turn;
        }
        let route = &ways.routes[at];
        ways.used |= 1 << route.link;
        route
    }

    /// Takes note of the ways to a peer; `place` is the peer's.
    pub(super) fn put(
        &mut self,
        place: usize,
        peer: SocketAddr,
        generation: u32,
        routes: Vec<Route>,
    ) {
        assert!(!routes.is_empty(), "a way at least");
        self.0[place] = Some(Ways { peer, generation, routes, turn: 0, used: 0, heard: 0 });
    }

    /// A datagram came from a peer over a link. Whether that is one of the ways we know.
    #[inline]
    pub(super) fn hear(&mut self, from: SocketAddr, link: usize, mac: Mac) -> bool {
        let Some(ways) = self.0[place(from)].as_mut().filter(|ways| ways.peer == from) else {
            return false;
        };
        ways.heard |= 1 << link;
        ways.routes.iter().any(|route| route.link == link && route.mac == mac)
    }

    /// For each peer and link that is in use: whether something came over it since the last call.
    pub(super) fn take_marks(&mut self, mut each: impl FnMut(IpAddr, usize, bool)) {
        for ways in self.0.iter_mut().flatten() {
            let (used, heard) = (std::mem::take(&mut ways.used), std::mem::take(&mut ways.heard));
            for route in &ways.routes {
                let (used, heard) = (used >> route.link & 1 == 1, heard >> route.link & 1 == 1);
                if used || heard {
                    each(ways.peer.ip(), route.link, heard);
                }
            }
        }
    }
}

/// Where the ways to a peer have their place.
#[inline]
pub(super) fn place(peer: SocketAddr) -> usize {
    let ip = match peer.ip() {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            #[allow(clippy::cast_possible_truncation, reason = "both halves are used")]
            let folded = (bits >> 64) as u64 ^ bits as u64;
            folded
        }
    };
    // Fibonacci hashing: ports and addresses that follow one another spread.
    let mixed = (ip ^ u64::from(peer.port()) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::try_from(mixed >> 55).expect("9 bits")
}

const _: () = assert!(PLACES == 1 << (64 - 55) && MAX_LINKS <= 8);
