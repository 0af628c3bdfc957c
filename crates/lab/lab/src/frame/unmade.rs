//! Frames whose checksum was left to be made, of which nobody says so: a virtual cable carries them
//! to whoever reads it past the kernel.

use super::checksum::Sum;
use super::vnet::{NEEDS_CSUM, VnetHeader};
use super::{Network, Packet};

impl Packet {
    /// Marks a single frame as one whose checksum is yet to be made, if there is what a kernel
    /// leaves for a card in the place of TCP's or UDP's: the sum of the pseudo header. A frame
    /// whose checksum is right, and by chance the same, comes to no harm: it is given the same
    /// again.
    pub fn mark_unmade_checksum(&mut self) {
        let frame = self.frame;
        let (network, transport) = (usize::from(frame.network_at), usize::from(frame.transport_at));
        let (header, at) = match frame.flow.protocol {
            6 => (20, 16),
            17 => (8, 6),
            _ => return,
        };
        // Fragments have no header of theirs.
        if usize::from(frame.headers) < transport + header || self.vnet() != VnetHeader::default() {
            return;
        }
        let bytes = self.ethernet_mut();
        let ip = &bytes[network..];
        let word = |at: usize| usize::from(u16::from_be_bytes([ip[at], ip[at + 1]]));
        let (addresses, told) = match frame.network {
            Network::V4 => (12..20, word(2)),
            Network::V6 => (8..40, word(4) + 40),
            Network::Other => return,
        };
        let Some(above) =
            (network + told).checked_sub(transport).and_then(|above| u16::try_from(above).ok())
        else {
            return;
        };
        let mut pseudo = Sum::default();
        pseudo.add(&ip[addresses]);
        pseudo.add(&above.to_be_bytes());
        pseudo.add(&[0, frame.flow.protocol]);
        let unmade = bytes[transport + at..transport + at + 2] == pseudo.folded().to_be_bytes();
        // What pads a short frame is no part of the sum.
        if unmade && self.ethernet_bytes() as usize == network + told {
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
