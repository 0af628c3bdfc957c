//! The headers of all datagrams to one peer, composed once.

use std::net::{IpAddr, SocketAddr};

use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::{U16, U32};

use super::headers::{
    DONT_FRAGMENT, ETHERNET_BYTES, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN, Ethernet, HOPS,
    IPV4_BYTES, IPV6_BYTES, Ipv4, Ipv6, PROTOCOL_UDP, Sum, UDP_BYTES, Udp, VLAN_BYTES, VlanTag,
};
use crate::Mac;

/// Length of the longest headers, in bytes: Ethernet with a VLAN tag, IPv6, UDP.
pub const MAX_HEADERS: usize = ETHERNET_BYTES + VLAN_BYTES + IPV6_BYTES + UDP_BYTES;

/// Who computes the UDP checksums of frames sent over a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Checksums {
    /// The device computes them. The host puts the sum of the pseudo header in the checksum field.
    Device,
    /// The host computes them.
    Software,
    /// Unnecessary, since only memory lies between us and the peer. IPv6 always demands them, so
    /// for IPv6 the host computes them.
    Spared,
}

/// The source of a datagram: our end of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) mac: Mac,
    pub(super) vlan: Option<u16>,
    pub(super) address: SocketAddr,
    pub(super) checksums: Checksums,
}

/// The route to a peer: the link, and the headers of datagrams to it.
///
/// Copy the payload behind [`len`](Self::len) bytes of space. Then call [`finish`](Self::finish),
/// which writes the headers before the payload.
#[derive(Clone, Debug)]
pub struct Route {
    pub(super) peer: SocketAddr,
    pub(super) mac: Mac,
    pub(super) link: usize,
    checksums: Checksums,
    len: usize,
    headers: [u8; MAX_HEADERS],
}

impl Route {
    pub(super) fn new(origin: &Origin, peer: SocketAddr, mac: Mac, link: usize) -> Self {
        let mut headers = [0; MAX_HEADERS];
        let mut len = 0;
        let mut put = |bytes: &[u8]| {
            headers[len..][..bytes.len()].copy_from_slice(bytes);
            len += bytes.len();
        };
        put_ethernet(
            &mut put,
            origin.mac,
            mac,
            origin.vlan,
            if peer.is_ipv4() { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 },
        );
        match (origin.address.ip(), peer.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                put(ipv4(source.octets(), destination.octets(), 0, PROTOCOL_UDP).as_bytes())
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                put(ipv6(source.octets(), destination.octets(), 0, PROTOCOL_UDP, HOPS).as_bytes());
            }
            _ => unreachable!("routes are within a family"),
        }
        let (source, destination) = (U16::new(origin.address.port()), U16::new(peer.port()));
        put(Udp { source, destination, len: U16::ZERO, checksum: [0; 2] }.as_bytes());
        Self { peer, mac, link, checksums: origin.checksums, len, headers }
    }

    /// Returns the length of the headers, in bytes.
    #[allow(clippy::len_without_is_empty, reason = "there is no route without headers")]
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the link to send over.
    #[inline]
    #[must_use]
    pub fn link(&self) -> usize {
        self.link
    }

    /// Returns the number of bytes before the IP header, and the length of the IP header in bytes.
    /// A device that computes checksums needs both.
    #[must_use]
    pub fn layers(&self) -> (usize, usize) {
        let ip = if self.peer.is_ipv4() { IPV4_BYTES } else { IPV6_BYTES };
        (self.len - UDP_BYTES - ip, ip)
    }

    /// Returns whether the peer's address is IPv6.
    #[must_use]
    pub fn is_v6(&self) -> bool {
        self.peer.is_ipv6()
    }

    /// Returns whether the device must fill in the UDP checksum.
    #[inline]
    #[must_use]
    pub fn device_checks(&self) -> bool {
        self.checksums == Checksums::Device
    }

    /// Returns whether the headers depend only on the length of the payload, not on its bytes. This
    /// is so for IPv4 without a UDP checksum.
    #[must_use]
    #[inline]
    pub fn is_blind(&self) -> bool {
        self.checksums == Checksums::Spared && self.peer.is_ipv4()
    }

    /// Writes the headers at the front of `frame`. Payload may follow them in `frame`, and `absent`
    /// further bytes of payload lie elsewhere.
    ///
    /// # Panics
    /// If the route is not [blind](Self::is_blind) to the payload.
    #[inline]
    pub fn finish_before(&self, frame: &mut [u8], absent: usize) {
        assert!(self.is_blind(), "a checksum needs all there is");
        self.write(frame, absent);
    }

    /// Writes the headers at the front of `frame`. The payload must already lie behind them.
    #[inline]
    pub fn finish(&self, frame: &mut [u8]) {
        self.write(frame, 0);
    }

    #[inline]
    fn write(&self, frame: &mut [u8], absent: usize) {
        let (headers, payload) = frame.split_at_mut(self.len);
        headers.copy_from_slice(&self.headers[..self.len]);
        let udp_len = u16::try_from(UDP_BYTES + payload.len() + absent)
            .expect("a datagram's length has 16 bits");
        let udp_at = self.len - UDP_BYTES;
        if self.peer.is_ipv4() {
            let ip_at = udp_at - IPV4_BYTES;
            let total = udp_len + 20;
            headers[ip_at + 2..ip_at + 4].copy_from_slice(&total.to_be_bytes());
            headers[ip_at + 10..ip_at + 12].fill(0);
            let checksum = Sum::default().add(&headers[ip_at..udp_at]).finish();
            headers[ip_at + 10..ip_at + 12].copy_from_slice(&checksum);
        } else {
            let at = udp_at - IPV6_BYTES + 4;
            headers[at..at + 2].copy_from_slice(&udp_len.to_be_bytes());
        }
        headers[udp_at + 4..udp_at + 6].copy_from_slice(&udp_len.to_be_bytes());
        let checksum = match self.checksums {
            Checksums::Spared if self.peer.is_ipv4() => return,
            Checksums::Device => not(self.pseudo(headers, udp_len).finish()),
            Checksums::Software | Checksums::Spared => {
                let sum =
                    self.pseudo(headers, udp_len).add(&headers[udp_at..]).add(payload).finish();
                // Zero would mean that there is no checksum.
                if sum == [0, 0] { [0xff, 0xff] } else { sum }
            }
        };
        headers[udp_at + 6..udp_at + 8].copy_from_slice(&checksum);
    }

    /// Returns the sum of the pseudo header: both addresses, protocol and length.
    #[inline]
    fn pseudo(&self, headers: &[u8], udp_len: u16) -> Sum {
        let addresses = if self.peer.is_ipv4() { 8 } else { 32 };
        let at = self.len - UDP_BYTES - addresses;
        Sum::default()
            .add(&headers[at..at + addresses])
            .add_u16(u16::from(PROTOCOL_UDP))
            .add_u16(udp_len)
    }
}

fn not([a, b]: [u8; 2]) -> [u8; 2] {
    [!a, !b]
}

/// Passes the bytes of an Ethernet header to `put`, with a VLAN tag if there is one.
pub(super) fn put_ethernet(
    put: &mut impl FnMut(&[u8]),
    from: Mac,
    to: Mac,
    vlan: Option<u16>,
    ethertype: u16,
) {
    let first = if vlan.is_some() { ETHERTYPE_VLAN } else { ethertype };
    put(Ethernet { destination: to.0, source: from.0, ethertype: U16::new(first) }.as_bytes());
    if let Some(vlan) = vlan {
        put(VlanTag { control: U16::new(vlan), ethertype: U16::new(ethertype) }.as_bytes());
    }
}

/// Composes an IPv4 header. `len` is the length of the payload, in bytes.
pub(super) fn ipv4(source: [u8; 4], destination: [u8; 4], len: usize, protocol: u8) -> Ipv4 {
    let total = u16::try_from(IPV4_BYTES + len).expect("an IP packet's length has 16 bits");
    let mut header = Ipv4 {
        version_len: 0x45,
        service: 0,
        total_len: U16::new(total),
        id: U16::ZERO, // our packets are never fragmented
        fragment: U16::new(DONT_FRAGMENT),
        ttl: HOPS,
        protocol,
        checksum: [0; 2],
        source,
        destination,
    };
    header.checksum = Sum::default().add(header.as_bytes()).finish();
    header
}

/// Composes an IPv6 header. `len` is the length of the payload, in bytes.
pub(super) fn ipv6(
    source: [u8; 16],
    destination: [u8; 16],
    len: usize,
    next_header: u8,
    hop_limit: u8,
) -> Ipv6 {
    let payload_len = U16::new(u16::try_from(len).expect("an IP packet's length has 16 bits"));
    Ipv6 {
        version_class_flow: U32::new(6 << 28),
        payload_len,
        next_header,
        hop_limit,
        source,
        destination,
    }
}
