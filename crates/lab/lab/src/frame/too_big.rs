//! The replies of a router to a packet that is too long for the next network: "fragmentation
//! needed" (RFC 792, RFC 1191) and "packet too big" (RFC 4443). A box is not a router and has no
//! address, so it replies in the name of the packet's destination.

use super::checksum::Sum;
use super::{Network, Packet, VNET_BYTES};
use crate::memory::Memory;
use crate::time::Time;
use std::net::IpAddr;

const ICMP: u8 = 1;
const ICMP6: u8 = 58;

/// Bytes of the packet that a reply quotes: a whole reply has at most 576 bytes over IPv4 and 1,280
/// over IPv6.
const QUOTE_V4: usize = 576 - 28;
const QUOTE_V6: usize = 1_280 - 48;

const TTL: u8 = 64;

impl Packet {
    /// Returns the length of the longest frame that the packet would be on a wire, in bytes above
    /// Ethernet.
    pub(crate) fn network_bytes(&self) -> u32 {
        let segments = self.frame.segments;
        segments.full.max(segments.last).saturating_sub(u32::from(self.frame.network_at))
    }

    /// Returns the reply by which the sender learns to send at most `mtu` bytes above Ethernet.
    /// `None` if a router would not reply to this packet, or if there is no memory.
    pub(crate) fn too_big(&self, mtu: u32, memory: &mut Memory, now: Time) -> Option<Self> {
        let (to, from) = self.addresses();
        let at = usize::from(self.frame.network_at);
        let ethernet = &self.head.bytes()[VNET_BYTES..];
        let ip = &ethernet[at..];
        let flow = self.frame.flow;
        let kind =
            self.head.bytes().get(VNET_BYTES + usize::from(self.frame.transport_at)).copied();
        // A router replies neither to multicasts nor to error messages.
        if to[0] & 1 == 1 || flow.destination.is_multicast() || flow.source.is_unspecified() {
            return None;
        }
        let mut frame = vec![0; VNET_BYTES];
        frame.extend([from, to].concat());
        frame.extend(&ethernet[12..at]);
        match (self.frame.network, flow.source, flow.destination) {
            (Network::V4, IpAddr::V4(source), IpAddr::V4(destination)) => {
                let later = u16::from_be_bytes([ip[6], ip[7]]) & 0x1fff != 0;
                if later || (flow.protocol == ICMP && !matches!(kind, Some(0 | 8))) {
                    return None;
                }
                let quote = &ip[..ip.len().min(QUOTE_V4)];
                let [high, low] = u16::try_from(mtu).unwrap_or(u16::MAX).to_be_bytes();
                let message = checked(&[&[3, 4, 0, 0, 0, 0, high, low], quote], &[]);
                let [long, short] = u16::try_from(20 + message.len()).ok()?.to_be_bytes();
                let header = [0x45, 0, long, short, 0, 0, 0, 0, TTL, ICMP, 0, 0];
                let mut header = [&header[..], &destination.octets(), &source.octets()].concat();
                let mut sum = Sum::default();
                sum.add(&header);
                header[10..12].copy_from_slice(&sum.checksum().to_be_bytes());
                frame.extend(header);
                frame.extend(message);
            }
            (Network::V6, IpAddr::V6(source), IpAddr::V6(destination)) => {
                if flow.protocol == ICMP6 && kind.is_none_or(|kind| kind < 128) {
                    return None;
                }
                let quote = &ip[..ip.len().min(QUOTE_V6)];
                let length = u16::try_from(8 + quote.len()).ok()?.to_be_bytes();
                let ends = [destination.octets(), source.octets()].concat();
                let pseudo = [&ends[..], &[0, 0], &length, &[0, 0, 0, ICMP6]].concat();
                let [a, b, c, d] = mtu.to_be_bytes();
                let message = checked(&[&[2, 0, 0, 0, a, b, c, d], quote], &pseudo);
                frame.extend([0x60, 0, 0, 0, length[0], length[1], ICMP6, TTL]);
                frame.extend(ends);
                frame.extend(message);
            }
            _ => return None,
        }
        Self::in_one_cell(&frame, memory, now)
    }
}

/// Returns an ICMP message with its checksum, which also covers `pseudo`.
fn checked(parts: &[&[u8]], pseudo: &[u8]) -> Vec<u8> {
    let mut message = parts.concat();
    let mut sum = Sum::default();
    sum.add(pseudo);
    sum.add(&message);
    message[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
    message
}
