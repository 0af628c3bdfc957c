//! Parses received frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use zerocopy::FromBytes;

use super::headers::{
    ARP_REPLY, ARP_REQUEST, Arp, DISCOVERY_HOPS, Discovery, ETHERTYPE_ARP, ETHERTYPE_IPV4,
    ETHERTYPE_IPV6, ETHERTYPE_VLAN, Ethernet, ICMP_ECHO, ICMP_ECHO_REPLY,
    ICMP_FRAGMENTATION_NEEDED, ICMP_UNREACHABLE, ICMPV6_ADVERTISE, ICMPV6_ECHO, ICMPV6_ECHO_REPLY,
    ICMPV6_SOLICIT, ICMPV6_TOO_BIG, IPV4_BYTES, IPV6_BYTES, Icmp, Ipv4, Ipv6, OPTION_SOURCE,
    OPTION_TARGET, PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_UDP, Sum, UDP_BYTES, Udp, VLAN_MASK,
    VlanTag,
};
use crate::Mac;

/// A parsed frame. Ranges are positions in the frame.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Inbound {
    /// A UDP datagram.
    Datagram { from: SocketAddr, to: SocketAddr, mac: Mac, payload: Range<usize> },
    /// The host `from` requests the hardware address of `target`, and states its own in `mac`.
    WhoHas { target: IpAddr, from: IpAddr, mac: Mac },
    /// A host states the hardware address of `from`.
    IsAt { from: IpAddr, mac: Mac },
    /// An echo request. `body` begins after the checksum, with the identifier and sequence number.
    Echo { from: IpAddr, to: IpAddr, mac: Mac, body: Range<usize> },
    /// The reply to an echo request.
    EchoReply { from: IpAddr, to: IpAddr, body: Range<usize> },
    /// A router on the path to `peer` forwards IP packets of at most `mtu` bytes.
    TooBig { peer: IpAddr, mtu: usize },
}

/// Why a frame was not parsed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Unread {
    /// The frame is of a kind that the host does not understand, or for another host.
    Foreign,
    /// The frame is truncated or inconsistent.
    Malformed,
    /// A checksum is wrong.
    Corrupt,
}

/// Parses the frames of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader {
    /// The VLAN tag of our frames; `None` for untagged frames.
    pub(super) vlan: Option<u16>,
    /// Whether to verify checksums over data. False if the device has verified them, or if only
    /// memory lies between us and the sender.
    pub(super) verify: bool,
}

impl Reader {
    /// Parses a frame.
    #[inline]
    pub(super) fn read(self, frame: &[u8]) -> Result<Inbound, Unread> {
        let (ethernet, rest) = split::<Ethernet>(frame)?;
        let mac = Mac(ethernet.source);
        let (ethertype, packet) = match (ethernet.ethertype.get(), self.vlan) {
            (ETHERTYPE_VLAN, Some(vlan)) => {
                let (tag, rest) = split::<VlanTag>(rest)?;
                if tag.control.get() & VLAN_MASK != vlan {
                    return Err(Unread::Foreign);
                }
                (tag.ethertype.get(), rest)
            }
            (ethertype, None) => (ethertype, rest),
            (_, Some(_)) => return Err(Unread::Foreign),
        };
        match ethertype {
            ETHERTYPE_IPV4 => self.ipv4(frame, packet, mac),
            ETHERTYPE_IPV6 => self.ipv6(frame, packet, mac),
            ETHERTYPE_ARP => arp(packet),
            _ => Err(Unread::Foreign),
        }
    }

    fn ipv4(self, frame: &[u8], packet: &[u8], mac: Mac) -> Result<Inbound, Unread> {
        let (header, _) = split::<Ipv4>(packet)?;
        let header_len = usize::from(header.version_len & 0xf) * 4;
        let total_len = usize::from(header.total_len.get());
        if header.version_len >> 4 != 4
            || header_len < IPV4_BYTES
            || total_len < header_len
            || total_len > packet.len()
        {
            return Err(Unread::Malformed);
        }
        if Sum::default().add(&packet[..header_len]).finish() != [0, 0] {
            return Err(Unread::Corrupt);
        }
        // The packet is a fragment. We do not reassemble fragments, and send all packets with "do
        // not fragment".
        if header.fragment.get() & !DONT_FRAGMENT_AND_RESERVED != 0 {
            return Err(Unread::Foreign);
        }
        let (from, to) =
            (Ipv4Addr::from(header.source).into(), Ipv4Addr::from(header.destination).into());
        let body = &packet[header_len..total_len];
        let at = body.as_ptr().addr() - frame.as_ptr().addr();
        match header.protocol {
            PROTOCOL_UDP => self.udp(body, at, from, to, mac),
            PROTOCOL_ICMP => self.icmp(body, at, from, to, mac),
            _ => Err(Unread::Foreign),
        }
    }

    fn ipv6(self, frame: &[u8], packet: &[u8], mac: Mac) -> Result<Inbound, Unread> {
        let (header, rest) = split::<Ipv6>(packet)?;
        let len = usize::from(header.payload_len.get());
        if header.version_class_flow.get() >> 28 != 6 || len > rest.len() {
            return Err(Unread::Malformed);
        }
        let (from, to) =
            (Ipv6Addr::from(header.source).into(), Ipv6Addr::from(header.destination).into());
        let body = &rest[..len];
        let at = body.as_ptr().addr() - frame.as_ptr().addr();
        match header.next_header {
            PROTOCOL_UDP => self.udp(body, at, from, to, mac),
            PROTOCOL_ICMPV6 => self.icmpv6(body, at, (from, to), header.hop_limit, mac),
            _ => Err(Unread::Foreign),
        }
    }

    #[inline]
    fn udp(
        self,
        body: &[u8],
        at: usize,
        from: IpAddr,
        to: IpAddr,
        mac: Mac,
    ) -> Result<Inbound, Unread> {
        let (header, _) = split::<Udp>(body)?;
        let len = usize::from(header.len.get());
        if len < UDP_BYTES || len > body.len() {
            return Err(Unread::Malformed);
        }
        // An IPv4 sender may leave the checksum out; over IPv6 the checksum is required (RFC 8200).
        let absent = header.checksum == [0, 0];
        if absent && from.is_ipv6() {
            return Err(Unread::Malformed);
        }
        if self.verify && !absent {
            let sum = Sum::default().pseudo(from, to, PROTOCOL_UDP, len).add(&body[..len]);
            if sum.finish() != [0, 0] {
                return Err(Unread::Corrupt);
            }
        }
        Ok(Inbound::Datagram {
            from: SocketAddr::new(from, header.source.get()),
            to: SocketAddr::new(to, header.destination.get()),
            mac,
            payload: at + UDP_BYTES..at + len,
        })
    }

    fn icmp(
        self,
        body: &[u8],
        at: usize,
        from: IpAddr,
        to: IpAddr,
        mac: Mac,
    ) -> Result<Inbound, Unread> {
        if Sum::default().add(body).finish() != [0, 0] {
            return Err(Unread::Corrupt);
        }
        let (icmp, quoted) = split::<Icmp>(body)?;
        let echo = at + ICMP_HEAD..at + body.len();
        match (icmp.kind, icmp.code) {
            (ICMP_ECHO, 0) => Ok(Inbound::Echo { from, to, mac, body: echo }),
            (ICMP_ECHO_REPLY, 0) => Ok(Inbound::EchoReply { from, to, body: echo }),
            (ICMP_UNREACHABLE, ICMP_FRAGMENTATION_NEEDED) => {
                let (packet, _) = split::<Ipv4>(quoted)?;
                let mtu = usize::try_from(icmp.rest.get() & 0xffff).expect("16 bits");
                // The error quotes the packet that was too big. If we did not send that packet, the
                // error is not for us.
                let peer = Ipv4Addr::from(packet.destination).into();
                (IpAddr::from(packet.source) == to)
                    .then_some(Inbound::TooBig { peer, mtu })
                    .ok_or(Unread::Foreign)
            }
            _ => Err(Unread::Foreign),
        }
    }

    fn icmpv6(
        self,
        body: &[u8],
        at: usize,
        ends: (IpAddr, IpAddr),
        hops: u8,
        mac: Mac,
    ) -> Result<Inbound, Unread> {
        let (from, to) = ends;
        if Sum::default().pseudo(from, to, PROTOCOL_ICMPV6, body.len()).add(body).finish() != [0, 0]
        {
            return Err(Unread::Corrupt);
        }
        let (icmp, quoted) = split::<Icmp>(body)?;
        let echo = at + ICMP_HEAD..at + body.len();
        match icmp.kind {
            ICMPV6_ECHO => Ok(Inbound::Echo { from, to, mac, body: echo }),
            ICMPV6_ECHO_REPLY => Ok(Inbound::EchoReply { from, to, body: echo }),
            ICMPV6_TOO_BIG => {
                let (packet, _) = split::<Ipv6>(quoted)?;
                let mtu = usize::try_from(icmp.rest.get()).map_err(|_| Unread::Malformed)?;
                let peer = Ipv6Addr::from(packet.destination).into();
                (IpAddr::from(packet.source) == to)
                    .then_some(Inbound::TooBig { peer, mtu })
                    .ok_or(Unread::Foreign)
            }
            ICMPV6_SOLICIT | ICMPV6_ADVERTISE => discovery(body, from, hops, mac),
            _ => Err(Unread::Foreign),
        }
    }
}

/// The reserved bit says nothing about fragments.
const DONT_FRAGMENT_AND_RESERVED: u16 = super::headers::DONT_FRAGMENT | 0x8000;

/// Bytes of an ICMP message before the part that an echo reply repeats.
const ICMP_HEAD: usize = 4;

fn split<T: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned>(
    bytes: &[u8],
) -> Result<(&T, &[u8]), Unread> {
    T::ref_from_prefix(bytes).map_err(|_| Unread::Malformed)
}

fn arp(packet: &[u8]) -> Result<Inbound, Unread> {
    let (arp, _) = split::<Arp>(packet)?;
    let ethernet = arp.hardware.get() == 1 && arp.hardware_len == 6;
    let ipv4 = arp.protocol.get() == ETHERTYPE_IPV4 && arp.protocol_len == 4;
    if !ethernet || !ipv4 {
        return Err(Unread::Foreign);
    }
    let (from, mac) = (IpAddr::from(arp.sender_ip), unicast(arp.sender_mac)?);
    match arp.operation.get() {
        ARP_REQUEST => Ok(Inbound::WhoHas { target: arp.target_ip.into(), from, mac }),
        ARP_REPLY => Ok(Inbound::IsAt { from, mac }),
        _ => Err(Unread::Foreign),
    }
}

fn discovery(body: &[u8], from: IpAddr, hops: u8, mac: Mac) -> Result<Inbound, Unread> {
    if hops != DISCOVERY_HOPS {
        return Err(Unread::Foreign);
    }
    let (message, _) = Discovery::ref_from_prefix(body)
        .map(|(message, _)| (Some(message), ()))
        .unwrap_or((None, ()));
    let target = match message {
        Some(message) => message.target,
        // Without the option the message ends after the target.
        None => {
            let (_, rest) = split::<Icmp>(body)?;
            *rest.first_chunk::<16>().ok_or(Unread::Malformed)?
        }
    };
    let sender_mac = |option| match message {
        Some(message) if message.option == option && message.option_len == 1 => {
            unicast(message.mac)
        }
        _ => unicast(mac.0), // without the option, take the frame's source
    };
    if body[0] == ICMPV6_SOLICIT {
        Ok(Inbound::WhoHas { target: target.into(), from, mac: sender_mac(OPTION_SOURCE)? })
    } else {
        Ok(Inbound::IsAt { from: target.into(), mac: sender_mac(OPTION_TARGET)? })
    }
}

/// Returns the hardware address if it is unicast. Group addresses and zero are malformed.
fn unicast(mac: [u8; 6]) -> Result<Mac, Unread> {
    if mac[0] & 1 != 0 || mac == [0; 6] { Err(Unread::Malformed) } else { Ok(Mac(mac)) }
}

const _: () = assert!(
    IPV6_BYTES == 40 && IPV4_BYTES == 20 && size_of::<Discovery>() == 32 && size_of::<Arp>() == 28
);
