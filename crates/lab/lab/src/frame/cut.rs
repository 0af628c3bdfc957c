//! Splits a super-packet between two of its segments, so that each part is what a sender with a
//! smaller offload would have sent. Also completes the partial checksums of single frames.

use super::checksum::Sum;
use super::vnet::{GSO_ECN, GSO_NONE, GSO_UDP_L4, NEEDS_CSUM, VNET_BYTES};
use super::{Network, Packet, Segments, VnetHeader};
use crate::memory::{CELL_BYTES, Memory, parts};
use sprat_chance::Chance;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// Offset of the flags in TCP's header.
const TCP_FLAGS: usize = 13;

/// Offset of the checksum in UDP's header.
const UDP_CHECKSUM_AT: u16 = 6;

impl Packet {
    /// Splits the packet behind the first `segments`. Returns the first part and the rest. Takes at
    /// most two cells.
    ///
    /// # Errors
    /// Returns the packet unchanged if fewer than two cells of memory are free.
    ///
    /// # Panics
    /// `segments` is zero, or not less than the number of segments.
    pub fn split(self, segments: u32, memory: &mut Memory) -> Result<(Self, Self), Self> {
        assert!((1..self.count()).contains(&segments), "{segments} of {} segments", self.count());
        if memory.free() < 2 {
            return Err(self);
        }
        let mut front = self;
        let (headers, at) = (front.header_bytes(), front.offset_of(segments));
        let mut rest_head = memory.take().expect("two are free");
        rest_head.append(&front.head.bytes()[..headers]);
        let mut cell = &mut *front.head;
        let mut left = at;
        while left > cell.bytes().len() {
            left -= cell.bytes().len();
            cell = cell.next.as_deref_mut().expect("the cut lies within the packet");
        }
        let mut behind = cell.next.take();
        let tail = &cell.bytes()[left..];
        if tail.len() <= rest_head.room() {
            rest_head.append(tail);
        } else {
            let mut second = memory.take().expect("two are free");
            second.append(tail);
            second.next = behind;
            behind = Some(second);
        }
        cell.keep(left);
        rest_head.next = behind;
        let rest_len = front.bytes() - at + headers;
        let mut rest = Self { head: rest_head, len: length(rest_len), ..front };
        let (size, all) = (front.gso_size(), front.frame.segments);
        front.rewrite_headers(
            at,
            Segments { count: segments, full: all.full, last: all.full },
            Part::Front,
        );
        let count = all.count - segments;
        let full = if count == 1 { all.last } else { all.full };
        rest.rewrite_headers(
            rest_len,
            Segments { count, full, last: all.last },
            Part::Rest { segments, size },
        );
        Ok((front, rest))
    }

    /// Keeps the first `segments`, and frees the cells of the others.
    ///
    /// # Panics
    /// `segments` is zero, or not less than the number of segments.
    pub fn truncate(&mut self, segments: u32, memory: &mut Memory) {
        assert!((1..self.count()).contains(&segments), "{segments} of {} segments", self.count());
        let at = self.offset_of(segments);
        let mut cell = &mut *self.head;
        let mut left = at;
        while left > cell.bytes().len() {
            left -= cell.bytes().len();
            cell = cell.next.as_deref_mut().expect("the cut lies within the packet");
        }
        cell.keep(left);
        if let Some(behind) = cell.next.take() {
            memory.release(behind);
        }
        let full = self.frame.segments.full;
        self.rewrite_headers(at, Segments { count: segments, full, last: full }, Part::Front);
    }

    /// Splits the packet into the frames that a wire would carry, each with complete checksums, and
    /// passes them to `each` in order.
    ///
    /// # Errors
    /// The rest of the packet, if memory is exhausted. The frames before it were passed to `each`.
    pub fn into_frames(
        self,
        memory: &mut Memory,
        mut each: impl FnMut(Self, &mut Memory),
    ) -> Result<(), Self> {
        let mut left = self;
        while left.count() > 1 {
            let (mut first, rest) = left.split(1, memory)?;
            first.complete_checksum();
            each(first, memory);
            left = rest;
        }
        left.complete_checksum();
        each(left, memory);
        Ok(())
    }

    /// Completes the partial checksum of a single frame, and empties its virtio-net header.
    /// Receivers trust a frame that is marked as having a partial checksum, so the checksum must be
    /// completed before the frame is corrupted.
    ///
    /// # Panics
    /// The packet has several segments.
    pub fn complete_checksum(&mut self) {
        assert_eq!(self.count(), 1, "segments have a checksum each");
        let vnet = self.vnet();
        if vnet.needs_checksum() {
            let (start, at) =
                (usize::from(vnet.csum_start), usize::from(vnet.csum_start + vnet.csum_offset));
            let mut sum = Sum::default();
            let mut skip = VNET_BYTES + start;
            for part in parts(&self.head) {
                sum.add(part.get(skip..).unwrap_or_default());
                skip = skip.saturating_sub(part.len());
            }
            // In UDP, a checksum of zero means that there is no checksum. For a real sum of zero,
            // UDP uses 0xffff.
            let udp = vnet.csum_offset == UDP_CHECKSUM_AT;
            let checksum = if udp && sum.checksum() == 0 { 0xffff } else { sum.checksum() };
            self.ethernet_mut()[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        }
        self.set_vnet(VnetHeader::default());
    }

    /// Completes the checksum of a single frame, then flips one bit behind the Ethernet header and
    /// its tags.
    ///
    /// # Panics
    /// The packet has several segments.
    pub fn corrupt(&mut self, chance: &mut Chance) {
        self.complete_checksum();
        let from = VNET_BYTES + usize::from(self.frame.network_at);
        let bits = (self.bytes().saturating_sub(from) * 8) as u64;
        // A frame that ends there has no bit to flip. A random number is drawn for it nevertheless,
        // as for every frame.
        let bit = usize::try_from(chance.below(bits.max(1))).expect("fewer bits than that");
        let mut at = from + bit / 8;
        let mut cell = Some(&mut *self.head);
        while let Some(part) = cell {
            if let Some(byte) = part.bytes_mut().get_mut(at) {
                *byte ^= 1 << (bit % 8);
                return;
            }
            at -= part.bytes().len();
            cell = part.next.as_deref_mut();
        }
    }

    /// Returns the bytes before the payload, including the virtio-net header.
    fn header_bytes(&self) -> usize {
        VNET_BYTES + usize::from(self.frame.headers)
    }

    fn offset_of(&self, segments: u32) -> usize {
        self.header_bytes() + segments as usize * self.gso_size()
    }

    fn gso_size(&self) -> usize {
        usize::from(self.vnet().gso_size)
    }

    fn bytes(&self) -> usize {
        self.len as usize
    }

    pub(super) fn ethernet_mut(&mut self) -> &mut [u8] {
        &mut self.head.bytes_mut()[VNET_BYTES..]
    }

    pub(super) fn set_vnet(&mut self, vnet: VnetHeader) {
        self.head.bytes_mut()[..VNET_BYTES].copy_from_slice(&vnet.bytes());
    }

    /// Rewrites the headers for a packet of `len` bytes that consists of `segments`.
    fn rewrite_headers(&mut self, len: usize, segments: Segments, part: Part) {
        self.len = length(len);
        self.frame.segments = segments;
        let mut vnet = self.vnet();
        vnet.hdr_len = self.frame.headers;
        let udp = vnet.gso_type & !GSO_ECN == GSO_UDP_L4;
        if matches!(part, Part::Rest { .. }) {
            vnet.gso_type &= !GSO_ECN; // only the first segment has CWR
        }
        if segments.count == 1 {
            (vnet.gso_type, vnet.gso_size) = (GSO_NONE, 0);
        }
        vnet.flags = NEEDS_CSUM;
        self.set_vnet(vnet);
        let (network, transport) =
            (usize::from(self.frame.network_at), usize::from(self.frame.transport_at));
        let (v4, ip_bytes) = (self.frame.network == Network::V4, len - VNET_BYTES - network);
        let ip = &mut self.ethernet_mut()[network..];
        fix_network(ip, v4, word(ip_bytes), transport - network, part);
        let above = &mut ip[transport - network..];
        if udp {
            above[4..6].copy_from_slice(&word(ip_bytes + network - transport).to_be_bytes());
        } else {
            fix_tcp(above, part);
        }
        let addresses = if v4 { 12..20 } else { 8..40 };
        let mut pseudo = Sum::default();
        pseudo.add(&ip[addresses]);
        pseudo.add(&u32::from(word(ip_bytes + network - transport)).to_be_bytes());
        pseudo.add(&[0, if udp { 17 } else { 6 }]);
        let at = transport - network + if udp { 6 } else { 16 };
        ip[at..at + 2].copy_from_slice(&pseudo.folded().to_be_bytes());
    }
}

/// A part of a split packet.
#[derive(Clone, Copy)]
enum Part {
    Front,
    /// The part behind the first `segments` segments, which have `size` bytes of payload each.
    Rest {
        segments: u32,
        size: usize,
    },
}

fn fix_network(ip: &mut [u8], v4: bool, bytes: u16, header: usize, part: Part) {
    if !v4 {
        ip[4..6].copy_from_slice(&(bytes - 40).to_be_bytes());
        return;
    }
    ip[2..4].copy_from_slice(&bytes.to_be_bytes());
    if let Part::Rest { segments, .. } = part {
        // The IP identification of each segment is one more than that of the segment before it.
        let id = u16::from_be_bytes([ip[4], ip[5]])
            .wrapping_add(u16::try_from(segments).expect("few in 64 KB"));
        ip[4..6].copy_from_slice(&id.to_be_bytes());
    }
    ip[10..12].fill(0);
    let mut sum = Sum::default();
    sum.add(&ip[..header]);
    ip[10..12].copy_from_slice(&sum.checksum().to_be_bytes());
}

fn fix_tcp(tcp: &mut [u8], part: Part) {
    match part {
        Part::Front => tcp[TCP_FLAGS] &= !(FIN | PSH),
        Part::Rest { segments, size } => {
            tcp[TCP_FLAGS] &= !CWR;
            let before = segments.wrapping_mul(length(size));
            let sequence =
                u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(before);
            tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
        }
    }
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a packet is 64 KB at most")
}

fn word(bytes: usize) -> u16 {
    u16::try_from(bytes).expect("its length was stated in 16 bits")
}

const _: () = assert!(CELL_BYTES > 1024, "a cell must hold all headers of a frame");
