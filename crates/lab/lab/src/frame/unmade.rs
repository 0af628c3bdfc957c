//! Detects frames whose checksums are partial but not marked as partial. A virtual cable delivers
//! such frames to programs that bypass the kernel to read from it.

use super::checksum::Sum;
use super::vnet::{NEEDS_CSUM, VnetHeader};
use super::{Network, Packet};

impl Packet {
    /// Marks a single frame's checksum as partial if the checksum field of TCP or UDP contains the
    /// sum of the pseudo header. A kernel leaves that sum there for a card to complete. If the sum
    /// is by chance the complete checksum, no harm is done: completing it gives the same value.
    pub fn mark_partial_checksum(&mut self) {
        let frame = self.frame;
        let (network, transport) = (usize::from(frame.network_at), usize::from(frame.transport_at));
        let (header, at) = match frame.flow.protocol {
            6 => (20, 16),
            17 => (8, 6),
            _ => return,
        };
        // Fragments have no transport header of their own.
        if usize::from(frame.headers) < transport + header || self.vnet() != VnetHeader::default() {
            return;
        }
        let bytes = self.ethernet_mut();
        let ip = &bytes[network..];
        let word = |at: usize| usize::from(u16::from_be_bytes([ip[at], ip[at + 1]]));
        let (addresses, stated) = match frame.network {
            Network::V4 => (12..20, word(2)),
            Network::V6 => (8..40, word(4) + 40),
            Network::Other => return,
        };
        let Some(above) =
            (network + stated).checked_sub(transport).and_then(|above| u16::try_from(above).ok())
        else {
            return;
        };
        let mut pseudo = Sum::default();
        pseudo.add(&ip[addresses]);
        pseudo.add(&above.to_be_bytes());
        pseudo.add(&[0, frame.flow.protocol]);
        let partial = bytes[transport + at..transport + at + 2] == pseudo.folded().to_be_bytes();
        // The padding of a short frame is not part of the sum.
        if partial && self.ethernet_bytes() as usize == network + stated {
            self.set_vnet(VnetHeader {
                flags: NEEDS_CSUM,
                hdr_len: frame.headers,
                csum_start: frame.transport_at,
                csum_offset: if frame.flow.protocol == 6 { 16 } else { 6 },
                ..VnetHeader::default()
            });
        }
    }
}
