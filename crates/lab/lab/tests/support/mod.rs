//! Frames for tests.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers that become bytes")]

pub(crate) mod arrivals;
pub(crate) mod far;
pub(crate) mod hosts;
pub(crate) mod talk;

use sprat_lab::Time;
use sprat_lab::frame::{Packet, Received, VNET_BYTES, VnetHeader};
use sprat_lab::memory::Memory;

/// A TCP packet to make. If `mss` is not 0 and the payload is longer than it, the packet is a
/// super-packet, as a sender's kernel hands it over.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) v6: bool,
    /// Bytes of payload in a segment. With 0, a single frame of any length with a partial checksum.
    pub(crate) mss: u16,
    pub(crate) payload: usize,
    pub(crate) sequence: u32,
    pub(crate) id: u16,
    pub(crate) flags: u8,
    pub(crate) tags: usize,
    /// Whether the header has twelve bytes of options, as time stamps need.
    pub(crate) options: bool,
    pub(crate) source_port: u16,
}

impl Default for Sample {
    fn default() -> Self {
        Self {
            v6: false,
            mss: 1448,
            payload: 1000,
            sequence: 7,
            id: 99,
            flags: 0x18,
            tags: 0,
            options: true,
            source_port: 1000,
        }
    }
}

impl Sample {
    pub(crate) fn payload_bytes(&self) -> Vec<u8> {
        (0..self.payload).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    /// Returns the packet, from its virtio-net header on.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let tcp_bytes = 20 + if self.options { 12 } else { 0 };
        let network_at = 14 + 4 * self.tags;
        let transport_at = network_at + if self.v6 { 40 } else { 20 };
        let above = u16::try_from(tcp_bytes + self.payload).expect("64 KB at most");
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        for tag in 0..self.tags {
            frame.extend([0x81, 0, 0x20, 7 + tag as u8]);
        }
        let (source, destination): (Vec<u8>, Vec<u8>) = if self.v6 {
            let end = |last| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last].to_vec();
            (end(1), end(2))
        } else {
            (vec![10, 0, 0, 1], vec![10, 0, 0, 2])
        };
        if self.v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(above.to_be_bytes());
            frame.extend([6, 64]);
        } else {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((above + 20).to_be_bytes());
            frame.extend(self.id.to_be_bytes());
            frame.extend([0x40, 0, 64, 6, 0, 0]);
        }
        frame.extend(&source);
        frame.extend(&destination);
        if !self.v6 {
            let sum = folded(&frame[network_at..]);
            frame[network_at + 10..network_at + 12].copy_from_slice(&(!sum).to_be_bytes());
        }
        frame.extend(self.source_port.to_be_bytes());
        frame.extend(2000u16.to_be_bytes());
        frame.extend(self.sequence.to_be_bytes());
        frame.extend([0, 0, 0, 1, (tcp_bytes as u8 / 4) << 4, self.flags, 0xff, 0xff]);
        let mut pseudo = [source, destination].concat();
        pseudo.extend([0, 6]);
        pseudo.extend(above.to_be_bytes());
        frame.extend(folded(&pseudo).to_be_bytes());
        frame.extend([0, 0]);
        if self.options {
            frame.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        }
        frame.extend(self.payload_bytes());
        let gso = self.mss > 0 && self.payload > usize::from(self.mss);
        let kind = if self.v6 { 4 } else { 1 };
        let gso_type = if gso { kind | (self.flags & 0x80) } else { 0 }; // CWR: the bit is the same
        let vnet = VnetHeader {
            flags: 1,
            gso_type,
            hdr_len: u16::try_from(transport_at + tcp_bytes).expect("small"),
            gso_size: if gso { self.mss } else { 0 },
            csum_start: u16::try_from(transport_at).expect("small"),
            csum_offset: 16,
        };
        [&vnet.bytes()[..], &frame].concat()
    }
}

fn folded(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[track_caller]
pub(crate) fn packet(bytes: &[u8], memory: &mut Memory) -> Packet {
    packet_at(bytes, memory, Time::ZERO)
}

#[track_caller]
pub(crate) fn packet_at(bytes: &[u8], memory: &mut Memory, now: Time) -> Packet {
    match Packet::of(bytes, memory, now) {
        Received::Packet(packet) => packet,
        other => panic!("{other:?}"),
    }
}

/// Returns a frame of `len` Ethernet bytes that has no flow and contains a number.
pub(crate) fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; VNET_BYTES + len];
    bytes[VNET_BYTES..VNET_BYTES + 14]
        .copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    bytes[VNET_BYTES + 14..VNET_BYTES + 18].copy_from_slice(&number.to_be_bytes());
    bytes
}

pub(crate) fn number_of(packet: &Packet) -> u32 {
    let bytes = packet.to_vec();
    u32::from_be_bytes(bytes[VNET_BYTES + 14..VNET_BYTES + 18].try_into().expect("four"))
}
