//! Finds the UDP port to which a frame is addressed, without validating the frame. That is enough
//! to choose the node that reads the frame.

use super::headers::{
    ETHERNET_BYTES, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN, IPV6_BYTES, PROTOCOL_UDP,
    VLAN_BYTES,
};

/// Offsets of the fragment field and the protocol in an IPv4 header, of the next header in an IPv6
/// header, and of the destination port in a UDP header.
const FRAGMENT: usize = 6;
const PROTOCOL: usize = 9;
const NEXT_HEADER: usize = 6;
const PORT: usize = 2;

/// Returns the destination port of a UDP datagram; `None` for other frames and for truncated
/// frames. Verifies nothing else: the host that reads the frame does.
#[inline]
#[must_use]
pub fn port_of(frame: &[u8]) -> Option<u16> {
    let number = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let mut packet = ETHERNET_BYTES;
    let mut ethertype = number(packet - 2)?;
    if ethertype == ETHERTYPE_VLAN {
        packet += VLAN_BYTES;
        ethertype = number(packet - 2)?;
    }
    let udp = match ethertype {
        ETHERTYPE_IPV4 => {
            let later_fragment = number(packet + FRAGMENT)? & 0x1fff != 0;
            let is_udp = *frame.get(packet + PROTOCOL)? == PROTOCOL_UDP && !later_fragment;
            is_udp.then_some(packet + usize::from(frame[packet] & 0xf) * 4)?
        }
        ETHERTYPE_IPV6 => {
            (*frame.get(packet + NEXT_HEADER)? == PROTOCOL_UDP).then_some(packet + IPV6_BYTES)?
        }
        _ => return None,
    };
    number(udp + PORT)
}
