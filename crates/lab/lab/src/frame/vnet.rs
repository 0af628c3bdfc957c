//! The virtio-net header that ports with offloads put before a frame (virtio 1.2, section 5.1.6;
//! `linux/virtio_net.h`).
//!
//! The header has ten bytes in the machine's byte order: flags (1), kind of segmentation (1),
//! length of the headers (2), bytes of payload per segment (2), offset at which a partial checksum
//! begins (2), and offset of the checksum field from there (2).

/// Bytes of the header.
pub const VNET_BYTES: usize = 10;

/// The checksum is partial: its field contains the sum of the pseudo header.
pub(crate) const NEEDS_CSUM: u8 = 1;

/// No segmentation: one frame.
pub(crate) const GSO_NONE: u8 = 0;
/// TCP over IPv4.
pub(crate) const GSO_TCPV4: u8 = 1;
/// TCP over IPv6.
pub(crate) const GSO_TCPV6: u8 = 4;
/// UDP, where each segment is a datagram.
pub(crate) const GSO_UDP_L4: u8 = 5;
/// A flag in addition to the kind: only the first segment has TCP's CWR.
pub(crate) const GSO_ECN: u8 = 0x80;

/// The fields of the header.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct VnetHeader {
    /// Bit 0: the checksum is partial. Bit 1: the checksum was verified.
    pub flags: u8,
    /// Kind of segmentation, 0 for a single frame.
    pub gso_type: u8,
    /// Length of the headers, counted from the Ethernet header. Only a hint.
    pub hdr_len: u16,
    /// Bytes of payload in each segment except the last.
    pub gso_size: u16,
    /// Offset at which the checksum's coverage begins, counted from the Ethernet header.
    pub csum_start: u16,
    /// Offset of the checksum field, counted from `csum_start`.
    pub csum_offset: u16,
}

impl VnetHeader {
    /// Reads the header from the first bytes of a packet; `None` if there are too few bytes.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; VNET_BYTES] = bytes.first_chunk()?;
        let word = |at| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Some(Self {
            flags: bytes[0],
            gso_type: bytes[1],
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
        })
    }

    /// Returns the header as bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; VNET_BYTES] {
        let mut bytes = [0; VNET_BYTES];
        (bytes[0], bytes[1]) = (self.flags, self.gso_type);
        for (at, word) in
            [(2, self.hdr_len), (4, self.gso_size), (6, self.csum_start), (8, self.csum_offset)]
        {
            bytes[at..at + 2].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Returns whether the checksum is partial.
    #[must_use]
    pub fn needs_checksum(&self) -> bool {
        self.flags & NEEDS_CSUM != 0
    }

    /// Returns whether the packet is a super-packet.
    #[must_use]
    pub fn is_super(&self) -> bool {
        self.gso_type != GSO_NONE
    }
}
