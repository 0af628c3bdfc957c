//! The path MTU of each peer.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use rustix::net::sockopt;

/// The largest UDP payload, in bytes: 65,535 minus the IPv4 and UDP headers.
pub(super) const MAX_DATAGRAM: usize = 65_507;

/// The payload assumed if the kernel knows no route: the 1280 bytes that every IPv6 path carries,
/// less the headers.
const FALLBACK: usize = 1280 - V6_HEADERS;

const V4_HEADERS: usize = 20 + 8;
const V6_HEADERS: usize = 40 + 8;

/// The largest number of peers remembered. At the limit, a further peer makes the driver forget all
/// of them, and look up each again when needed.
const MAX_ROUTES: usize = 4096;

/// The largest payload to each peer, from the kernel's routes.
#[derive(Default)]
pub(super) struct Routes {
    known: HashMap<IpAddr, usize>,
}

impl Routes {
    /// Returns the largest payload to `peer`, in bytes. The first call for a peer takes a few
    /// system calls.
    pub(super) fn mtu(&mut self, peer: SocketAddr) -> usize {
        let ip = peer.ip().to_canonical();
        if let Some(&mtu) = self.known.get(&ip) {
            return mtu;
        }
        let mtu = look_up(peer).unwrap_or(FALLBACK).min(MAX_DATAGRAM);
        if self.known.len() >= MAX_ROUTES {
            self.known.clear();
        }
        self.known.insert(ip, mtu);
        mtu
    }

    /// Forgets the MTU of `peer`, because the path turned out to have a lower MTU.
    pub(super) fn forget(&mut self, peer: SocketAddr) {
        self.known.remove(&peer.ip().to_canonical());
    }
}

/// Gets the MTU of the route to `peer` from the kernel. The connect of a UDP socket sends nothing,
/// but looks up the route.
fn look_up(peer: SocketAddr) -> io::Result<usize> {
    let own: SocketAddr = match peer {
        SocketAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let probe = UdpSocket::bind(own)?;
    probe.connect(peer)?;
    let (mtu, headers) = match peer {
        SocketAddr::V4(_) => (sockopt::ip_mtu(&probe)?, V4_HEADERS),
        SocketAddr::V6(_) => (sockopt::ipv6_mtu(&probe)?, V6_HEADERS),
    };
    let mtu = usize::try_from(mtu).map_err(io::Error::other)?;
    Ok(mtu.saturating_sub(headers))
}
