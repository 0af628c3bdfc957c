//! Parses bytes into a [`Frame`]. Only this module checks what a port delivers.
//!
//! A frame of an unknown kind is valid, but has no flow. A frame is invalid if no port may deliver
//! it: the frame is too short for an Ethernet header or longer than [`MAX_PACKET`], or its
//! virtio-net header contradicts it. To split a super-packet with such a header, or to complete its
//! checksum, would write outside of its headers.

use super::vnet::{GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, VNET_BYTES, VnetHeader};
use super::{ETHERNET_BYTES, Flow, Frame, Network, Segments};

/// Limit on the VLAN tags that are skipped. Headers behind further tags are not parsed.
const MAX_TAGS: usize = 2;

/// Limit on the IPv6 extension headers that are skipped. The type of the header after them then
/// counts as the protocol.
const MAX_EXTENSIONS: usize = 8;

/// Limit on the length of a packet, in bytes: 64 KB of IP, two tags, the Ethernet header and the
/// virtio-net header. A longer packet is [`Malformed::Long`].
pub(crate) const MAX_PACKET: usize = VNET_BYTES + ETHERNET_BYTES + 4 * MAX_TAGS + 65_535;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Why bytes are not a valid packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Malformed {
    /// The packet is shorter than a virtio-net header and an Ethernet header.
    #[error("shorter than its headers")]
    Short,
    /// The packet is longer than any port carries.
    #[error("longer than {MAX_PACKET} bytes")]
    Long,
    /// The partial checksum lies outside the cell of the headers.
    #[error("a checksum outside the frame")]
    Checksum,
    /// The virtio-net header states an unknown kind of segmentation.
    #[error("segmentation of an unknown kind")]
    Kind,
    /// The virtio-net header of a super-packet contradicts its frame.
    #[error("segmentation that does not fit the frame")]
    Segmentation,
}

/// Parses a packet of `len` bytes. `head` is its beginning, which must contain all headers. Both
/// `len` and `head` include the virtio-net header.
///
/// # Errors
/// [`Malformed`] if the packet is shorter than a virtio-net header and an Ethernet header, or
/// longer than `MAX_PACKET`, or if its virtio-net header contradicts the frame or states an unknown
/// kind of segmentation.
pub fn parse(head: &[u8], len: usize) -> Result<Frame, Malformed> {
    let vnet = VnetHeader::read(head).ok_or(Malformed::Short)?;
    let head = &head[VNET_BYTES..];
    if head.len() < ETHERNET_BYTES {
        return Err(Malformed::Short);
    }
    if len > MAX_PACKET {
        return Err(Malformed::Long);
    }
    let len = offset(len) - offset(VNET_BYTES);
    let found = find(head);
    if vnet.needs_checksum() {
        let end = u32::from(vnet.csum_start) + u32::from(vnet.csum_offset) + 2;
        // The checksum must be in the same cell as the headers. It could not be written elsewhere.
        if usize::try_from(end).is_ok_and(|end| end > head.len()) {
            return Err(Malformed::Checksum);
        }
    }
    let segments = match vnet.is_super() {
        false => Segments::one(len),
        true => super_packet(head, len, &vnet, &found)?,
    };
    let Found { flow, vlan, network, network_at, transport_at, .. } = found;
    let headers = small(found.headers);
    Ok(Frame {
        flow,
        vlan,
        network,
        network_at: small(network_at),
        transport_at: small(transport_at),
        headers,
        segments,
    })
}

/// What was found in a frame before its segmentation is checked.
struct Found {
    flow: Flow,
    vlan: Option<u16>,
    network: Network,
    protocol: u8,
    network_at: usize,
    transport_at: usize,
    headers: usize,
    fragment: bool,
}

/// Returns whether an ethertype says that a VLAN tag follows. These are the ethertypes of 802.1Q
/// and 802.1ad, and 0x9100, which was used before 802.1ad. libpcap and switches also know 0x9100.
pub(crate) fn is_tag(kind: u16) -> bool {
    matches!(kind, 0x8100 | 0x88a8 | 0x9100)
}

fn find(head: &[u8]) -> Found {
    let (mut at, mut vlan) = (12, None);
    for _ in 0..MAX_TAGS {
        if !word(head, at).is_some_and(is_tag) {
            break;
        }
        let Some(tag) = word(head, at + 2) else { break };
        vlan.get_or_insert(tag & 0xfff);
        at += 4;
    }
    let kind = word(head, at);
    at = (at + 2).min(head.len());
    let nothing = Found {
        flow: Flow::OTHER,
        vlan,
        network: Network::Other,
        protocol: 0,
        network_at: at,
        transport_at: at,
        headers: at,
        fragment: false,
    };
    let ip = &head[at..];
    let found = match kind {
        Some(0x0800) => find_v4(ip),
        Some(0x86dd) => find_v6(ip),
        _ => None,
    };
    let Some((network, flow, transport, fragment)) = found else { return nothing };
    let transport_at = at + transport;
    let mut found =
        Found { flow, network, protocol: flow.protocol, transport_at, fragment, ..nothing };
    found.headers = transport_at;
    if fragment {
        return found;
    }
    let above = head.get(transport_at..).unwrap_or_default();
    // TCP, UDP, DCCP, SCTP and UDP-Lite all begin with two ports.
    if matches!(flow.protocol, TCP | UDP | 33 | 132 | 136)
        && let (Some(source), Some(destination)) = (word(above, 0), word(above, 2))
    {
        (found.flow.source_port, found.flow.destination_port) = (source, destination);
    }
    let length = match flow.protocol {
        TCP => above.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4),
        UDP => 8,
        _ => 0,
    };
    if length <= above.len() {
        found.headers = transport_at + length;
    }
    found
}

fn find_v4(ip: &[u8]) -> Option<(Network, Flow, usize, bool)> {
    let fixed: &[u8; 20] = ip.first_chunk()?;
    let length = usize::from(fixed[0] & 15) * 4;
    if fixed[0] >> 4 != 4 || length < fixed.len() || ip.len() < length {
        return None;
    }
    // More fragments follow, or this one is not the first.
    let fragment = word(fixed, 6)? & 0x3fff != 0;
    Some((
        Network::V4,
        Flow::between(Network::V4, &fixed[12..16], &fixed[16..20], fixed[9]),
        length,
        fragment,
    ))
}

fn find_v6(ip: &[u8]) -> Option<(Network, Flow, usize, bool)> {
    let fixed: &[u8; 40] = ip.first_chunk()?;
    if fixed[0] >> 4 != 6 {
        return None;
    }
    let (mut protocol, mut at, mut fragment) = (fixed[6], fixed.len(), false);
    for _ in 0..MAX_EXTENSIONS {
        let Some(&[next, length]) = ip.get(at..at + 2).and_then(<[u8]>::first_chunk) else { break };
        let length = match protocol {
            0 | 43 | 60 => (usize::from(length) + 1) * 8,
            44 => 8,
            51 => (usize::from(length) + 2) * 4,
            _ => break,
        };
        if ip.len() < at + length {
            break;
        }
        fragment |= protocol == 44;
        (protocol, at) = (next, at + length);
    }
    Some((
        Network::V6,
        Flow::between(Network::V6, &fixed[8..24], &fixed[24..40], protocol),
        at,
        fragment,
    ))
}

/// Checks that the frame agrees with the virtio-net header, and counts its segments.
fn super_packet(
    head: &[u8],
    len: u32,
    vnet: &VnetHeader,
    found: &Found,
) -> Result<Segments, Malformed> {
    let (network, protocol, header, checksum) = match vnet.gso_type & !GSO_ECN {
        GSO_TCPV4 => (Network::V4, TCP, 20, 16),
        GSO_TCPV6 => (Network::V6, TCP, 20, 16),
        GSO_UDP_L4 => (found.network, UDP, 8, 6),
        GSO_NONE => return Err(Malformed::Segmentation),
        _ => return Err(Malformed::Kind),
    };
    let fits = found.network == network
        && network != Network::Other
        && found.protocol == protocol
        && !found.fragment
        && found.headers >= found.transport_at + header
        && vnet.needs_checksum()
        && usize::from(vnet.csum_start) == found.transport_at
        && vnet.csum_offset == checksum
        && vnet.gso_size > 0;
    let headers = offset(found.headers);
    if !fits || headers >= len {
        return Err(Malformed::Segmentation);
    }
    // A wrong length field would be wrong in each segment too.
    let ip = &head[found.network_at..];
    let stated = match network {
        Network::V4 => word(ip, 2).map(u32::from),
        _ => word(ip, 4).map(|length| u32::from(length) + 40),
    };
    if stated != Some(len - offset(found.network_at)) {
        return Err(Malformed::Segmentation);
    }
    let (payload, size) = (len - headers, u32::from(vnet.gso_size));
    let count = payload.div_ceil(size);
    let last = payload - (count - 1) * size;
    let full = if count == 1 { last } else { size };
    Ok(Segments { count, full: headers + full, last: headers + last })
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

fn offset(length: usize) -> u32 {
    u32::try_from(length).expect("lengths of packets were limited above")
}

fn small(at: usize) -> u16 {
    u16::try_from(at).expect("headers lie in one cell")
}
