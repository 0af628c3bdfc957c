//! Whom a frame is for, at a glance: enough to put it where it is read, and no more.

use super::headers::{
    ETHERNET_BYTES, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN, IPV6_BYTES, PROTOCOL_UDP,
    VLAN_BYTES,
};

/// Where, in an IPv4 header, its length, fragment offset and protocol are; in an IPv6 header, what
/// follows it; in UDP's the port it is for.
const FRAGMENT: usize = 6;
const PROTOCOL: usize = 9;
const NEXT_HEADER: usize = 6;
const PORT: usize = 2;

/// The port that a UDP datagram is for; `None` of other frames, and of those that cannot be read
/// that far. Nothing is checked: whoever reads the frame does that.
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
