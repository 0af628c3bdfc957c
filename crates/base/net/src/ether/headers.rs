//! The layouts of standard headers: Ethernet, VLAN tag, ARP, IPv4, IPv6, UDP, ICMP and neighbour
//! discovery.
//!
//! They are defined here and not in the `wire` crate, which holds our own formats.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Mac;

pub(super) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(super) const ETHERTYPE_ARP: u16 = 0x0806;
pub(super) const ETHERTYPE_VLAN: u16 = 0x8100;
pub(super) const ETHERTYPE_IPV6: u16 = 0x86dd;

pub(super) const PROTOCOL_ICMP: u8 = 1;
pub(super) const PROTOCOL_UDP: u8 = 17;
pub(super) const PROTOCOL_ICMPV6: u8 = 58;

/// The twelve bits of a VLAN tag's control field that hold the VLAN's number.
pub(super) const VLAN_MASK: u16 = 0x0fff;

/// Bytes of an Ethernet header without a tag.
pub const ETHERNET_BYTES: usize = size_of::<Ethernet>();
/// Bytes that a VLAN tag adds.
pub const VLAN_BYTES: usize = size_of::<VlanTag>();
pub(super) const IPV4_BYTES: usize = size_of::<Ipv4>();
pub(super) const IPV6_BYTES: usize = size_of::<Ipv6>();
pub(super) const UDP_BYTES: usize = size_of::<Udp>();

/// Ethernet II (IEEE 802.3).
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Ethernet {
    pub(super) destination: [u8; 6],
    pub(super) source: [u8; 6],
    pub(super) ethertype: U16,
}

/// The VLAN tag, which follows the ethertype of a tagged frame (IEEE 802.1Q).
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct VlanTag {
    pub(super) control: U16,
    pub(super) ethertype: U16,
}

/// ARP for IPv4 over Ethernet (RFC 826).
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Arp {
    pub(super) hardware: U16,
    pub(super) protocol: U16,
    pub(super) hardware_len: u8,
    pub(super) protocol_len: u8,
    pub(super) operation: U16,
    pub(super) sender_mac: [u8; 6],
    pub(super) sender_ip: [u8; 4],
    pub(super) target_mac: [u8; 6],
    pub(super) target_ip: [u8; 4],
}

pub(super) const ARP_REQUEST: u16 = 1;
pub(super) const ARP_REPLY: u16 = 2;

/// IPv4 without options (RFC 791).
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Ipv4 {
    pub(super) version_len: u8,
    pub(super) service: u8,
    pub(super) total_len: U16,
    pub(super) id: U16,
    pub(super) fragment: U16,
    pub(super) ttl: u8,
    pub(super) protocol: u8,
    pub(super) checksum: [u8; 2],
    pub(super) source: [u8; 4],
    pub(super) destination: [u8; 4],
}

/// The bit "do not fragment" of [`Ipv4::fragment`]. The lower bits are "more fragments" and the
/// offset.
pub(super) const DONT_FRAGMENT: u16 = 0x4000;

/// IPv6 (RFC 8200).
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Ipv6 {
    pub(super) version_class_flow: U32,
    pub(super) payload_len: U16,
    pub(super) next_header: u8,
    pub(super) hop_limit: u8,
    pub(super) source: [u8; 16],
    pub(super) destination: [u8; 16],
}

/// UDP (RFC 768).
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Udp {
    pub(super) source: U16,
    pub(super) destination: U16,
    pub(super) len: U16,
    pub(super) checksum: [u8; 2],
}

/// The header of every ICMP message (RFC 792, RFC 4443). `rest` holds an echo's identifier and
/// sequence number, or the path's MTU in a message about a packet that is too big.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Icmp {
    pub(super) kind: u8,
    pub(super) code: u8,
    pub(super) checksum: [u8; 2],
    pub(super) rest: U32,
}

pub(super) const ICMP_ECHO_REPLY: u8 = 0;
pub(super) const ICMP_UNREACHABLE: u8 = 3;
pub(super) const ICMP_FRAGMENTATION_NEEDED: u8 = 4;
pub(super) const ICMP_ECHO: u8 = 8;
pub(super) const ICMPV6_TOO_BIG: u8 = 2;
pub(super) const ICMPV6_ECHO: u8 = 128;
pub(super) const ICMPV6_ECHO_REPLY: u8 = 129;
pub(super) const ICMPV6_SOLICIT: u8 = 135;
pub(super) const ICMPV6_ADVERTISE: u8 = 136;

/// Neighbour solicitation and advertisement with the one option we use (RFC 4861).
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Discovery {
    pub(super) icmp: Icmp,
    pub(super) target: [u8; 16],
    pub(super) option: u8,
    pub(super) option_len: u8,
    pub(super) mac: [u8; 6],
}

/// Option of a solicitation: the sender's hardware address.
pub(super) const OPTION_SOURCE: u8 = 1;
/// Option of an advertisement: the target's hardware address.
pub(super) const OPTION_TARGET: u8 = 2;
/// Flag of an advertisement that answers a solicitation.
pub(super) const SOLICITED: u32 = 0x4000_0000;
/// Flag of an advertisement that overrides cached entries.
pub(super) const OVERRIDE: u32 = 0x2000_0000;
/// The multicast group of all nodes on a link.
pub(super) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// The hop limit that neighbour discovery demands. It proves that no router has forwarded the
/// packet.
pub(super) const DISCOVERY_HOPS: u8 = 255;

/// Hop limit of all other packets we send.
pub(super) const HOPS: u8 = 64;

/// The sum of 16-bit words for the Internet checksum (RFC 1071). The sum is 64 bits wide until
/// [`Sum::finish`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum(u64);

impl Sum {
    /// Adds bytes. All but the last part of a message must be even in length.
    pub(super) fn add(self, bytes: &[u8]) -> Self {
        let mut words = bytes.chunks_exact(4);
        // A sum of 32-bit words folds to the same 16 bits, and the compiler vectorises it. The sum
        // of a frame stays far below 64 bits.
        let mut sum: u64 = words
            .by_ref()
            .map(|word| u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]])))
            .sum();
        let rest = words.remainder();
        if !rest.is_empty() {
            let mut last = [0; 4];
            last[..rest.len()].copy_from_slice(rest);
            sum += u64::from(u32::from_ne_bytes(last));
        }
        // Both sums are folded, so that no number of parts makes the result overflow.
        Self((self.0 & 0xffff_ffff) + (self.0 >> 32) + (sum & 0xffff_ffff) + (sum >> 32))
    }

    /// Adds one 16-bit number.
    pub(super) fn add_u16(self, number: u16) -> Self {
        self.add(&number.to_be_bytes())
    }

    /// Adds the pseudo header of UDP and ICMPv6.
    pub(super) fn pseudo(
        self,
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        len: usize,
    ) -> Self {
        let sum = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                self.add(&source.octets()).add(&destination.octets())
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                self.add(&source.octets()).add(&destination.octets())
            }
            _ => unreachable!("both ends of a packet are of one family"),
        };
        sum.add_u16(u16::from(protocol))
            .add_u16(u16::try_from(len).expect("an IP packet's length has 16 bits"))
    }

    /// Returns the checksum in network byte order.
    pub(super) fn finish(self) -> [u8; 2] {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (!u16::try_from(sum).expect("folded")).to_ne_bytes()
    }
}

/// Returns the Ethernet address of an IPv6 multicast group (RFC 2464).
pub(super) fn multicast_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    Mac([0x33, 0x33, a, b, c, d])
}

/// Returns the solicited-node multicast group of `address` (RFC 4291).
pub(super) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from(b) << 8 | u16::from(c))
}

/// Returns the hardware address of the multicast group to which neighbours send requests for a
/// host's address. `None` for IPv4, where neighbours broadcast. A network card passes on frames to
/// a group only after the host has joined the group.
#[must_use]
pub fn group_mac(host: IpAddr) -> Option<Mac> {
    match host {
        IpAddr::V4(_) => None,
        IpAddr::V6(host) => Some(multicast_mac(solicited_node(host))),
    }
}

/// Returns the link-local IPv6 address derived from a hardware address (RFC 4291, modified EUI-64).
#[must_use]
pub fn link_local_v6(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    let bytes = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f];
    Ipv6Addr::from(bytes)
}

/// Returns a link-local IPv4 address (RFC 3927) derived from a hardware address. It is always the
/// same for a hardware address, and rarely equal to another host's.
#[must_use]
pub fn link_local_v4(mac: Mac) -> Ipv4Addr {
    let [a, b, c, d, e, f] = mac.0;
    // The first and last 256 addresses of 169.254/16 are reserved.
    let (high, low) = (a ^ c ^ e, b ^ d ^ f);
    Ipv4Addr::new(169, 254, high.clamp(1, 254), low)
}
