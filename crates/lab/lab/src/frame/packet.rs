//! A frame with its bytes.

use super::vnet::VNET_BYTES;
use super::{Frame, Malformed, Network, VnetHeader, parse};
use crate::memory::{CELL_BYTES, Cell, Memory, ReadOutcome, ReceiveBuffer, gather, parts};
use crate::time::Time;
use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

/// A frame, or a super-packet, in the cells of a [`Memory`]. Its owner must [free](Self::free) it
/// into a memory: if a packet is only dropped, the box loses its cells.
#[derive(Debug)]
#[must_use = "its cells belong to a memory: send it, or free it"]
pub struct Packet {
    pub(super) head: Box<Cell>,
    pub(super) len: u32,
    pub(super) frame: Frame,
    /// When the packet arrived.
    pub arrived: Time,
    /// How long before `arrived` the packet may have waited unread. The worker sets it.
    pub(crate) waited: Duration,
    /// When the packet is due to leave. The line sets it.
    pub due: Time,
    /// Whether the packet is held back so that others overtake it. The line sets it.
    pub(crate) held: bool,
    /// The line's slot for the packet's flow. The line sets it.
    pub(crate) slot: u16,
}

/// The result of [`Packet::receive`].
#[derive(Debug)]
pub enum Received {
    /// A packet.
    Packet(Packet),
    /// The bytes were not a valid frame, and were discarded.
    Malformed(Malformed),
    /// There was no memory for the packet, which was discarded.
    Exhausted,
}

impl Packet {
    /// Receives a packet. `read` fills the slices of `buffer` with a virtio-net header and a frame.
    /// It returns their length in bytes and, if the kernel took a VLAN tag out of the frame, the
    /// four bytes of the tag. `receive` puts the tag back.
    ///
    /// # Errors
    /// The error that `read` returned.
    pub fn receive<E>(
        buffer: &mut ReceiveBuffer,
        memory: &mut Memory,
        now: Time,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<(usize, Option<[u8; 4]>), E>,
    ) -> Result<Received, E> {
        let mut tag = None;
        let outcome = buffer.read(memory, |slices| {
            let (len, vlan_tag) = read(slices)?;
            tag = vlan_tag;
            Ok(len)
        })?;
        let (mut head, mut len) = match outcome {
            ReadOutcome::Exhausted => return Ok(Received::Exhausted),
            ReadOutcome::Packet(head, len) => (head, len),
        };
        if let Some(tag) = tag
            && len >= VNET_BYTES + 12
        {
            head.open_gap(VNET_BYTES + 12, 4, |gap| gap.copy_from_slice(&tag));
            len += 4;
            shift_partial_checksum(&mut head);
        }
        Ok(match parse(head.bytes(), len) {
            Ok(frame) => {
                let len = u32::try_from(len).expect("no landing is so long");
                Received::Packet(Self {
                    head,
                    len,
                    frame,
                    arrived: now,
                    waited: Duration::ZERO,
                    due: now,
                    held: false,
                    slot: 0,
                })
            }
            Err(malformed) => {
                memory.release(head);
                Received::Malformed(malformed)
            }
        })
    }

    /// Makes a packet of these bytes, which begin with a virtio-net header. For tests and
    /// generators.
    #[must_use]
    pub fn of(bytes: &[u8], memory: &mut Memory, now: Time) -> Received {
        let mut buffer = ReceiveBuffer::new();
        let read = |slices: &mut [IoSliceMut<'_>]| {
            let mut left = bytes;
            for slice in slices {
                let part = left.len().min(slice.len());
                slice[..part].copy_from_slice(&left[..part]);
                left = &left[part..];
            }
            Ok::<_, std::convert::Infallible>((bytes.len(), None))
        };
        let Ok(received) = Self::receive(&mut buffer, memory, now, read);
        received
    }

    /// Makes a packet of these bytes in one cell. `None` if the bytes do not fit into a cell or are
    /// not a valid frame, or if there is no memory.
    pub(super) fn in_one_cell(bytes: &[u8], memory: &mut Memory, now: Time) -> Option<Self> {
        let frame = parse(bytes, bytes.len()).ok()?;
        if bytes.len() > CELL_BYTES {
            return None;
        }
        let mut head = memory.take()?;
        head.append(bytes);
        let len = u32::try_from(bytes.len()).ok()?;
        Some(Self {
            head,
            len,
            frame,
            arrived: now,
            waited: Duration::ZERO,
            due: now,
            held: false,
            slot: 0,
        })
    }

    /// Returns where the headers are.
    #[must_use]
    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    /// Returns the number of frames that the packet would be on a wire.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.frame.segments.count
    }

    /// Returns the packet's virtio-net header.
    #[must_use]
    pub fn vnet(&self) -> VnetHeader {
        VnetHeader::read(self.head.bytes()).expect("was parsed")
    }

    /// Returns the Ethernet destination and source addresses.
    #[must_use]
    pub fn addresses(&self) -> ([u8; 6], [u8; 6]) {
        let ethernet = &self.head.bytes()[VNET_BYTES..];
        let address = |at| <[u8; 6]>::try_from(&ethernet[at..at + 6]).expect("six were sliced");
        (address(0), address(6))
    }

    /// Passes all bytes of the packet to `write`, in parts.
    pub fn gather<R>(&self, write: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
        gather(&self.head, 0, write)
    }

    /// Returns the length of the packet's Ethernet frame. A super-packet counts as it is, not as
    /// segments.
    #[must_use]
    pub fn ethernet_bytes(&self) -> u32 {
        self.len.saturating_sub(u32::try_from(VNET_BYTES).expect("ten"))
    }

    /// Returns the packet's Ethernet frame, in parts.
    pub fn ethernet(&self) -> impl Iterator<Item = &[u8]> {
        let mut header = VNET_BYTES;
        parts(&self.head).map(move |part| &part[std::mem::take(&mut header)..])
    }

    /// Lets `change` edit the headers, from the Ethernet header on, and parses the headers again.
    ///
    /// # Errors
    /// [`Malformed`] if the headers are invalid after the change. The change is not undone.
    pub fn edit<R>(&mut self, change: impl FnOnce(&mut [u8]) -> R) -> Result<R, Malformed> {
        let result = change(&mut self.head.bytes_mut()[VNET_BYTES..]);
        self.frame = parse(self.head.bytes(), usize::try_from(self.len).expect("32 bits fit"))?;
        Ok(result)
    }

    /// Passes the packet's Ethernet frame to `write`, in parts.
    pub fn gather_ethernet<R>(&self, write: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
        gather(&self.head, VNET_BYTES, write)
    }

    /// Returns whether the network header states a greater length than the packet has. Always false
    /// for a super-packet.
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        let at = usize::from(self.frame.network_at);
        let ip = &self.head.bytes()[VNET_BYTES + at..];
        let word = |at: usize| u64::from(u16::from_be_bytes([ip[at], ip[at + 1]]));
        let stated = match self.frame.network {
            Network::V4 => word(2),
            Network::V6 => word(4) + 40,
            Network::Other => return false,
        };
        self.frame.segments.count == 1 && at as u64 + stated > u64::from(self.ethernet_bytes())
    }

    /// Returns the ethertype behind the Ethernet addresses and tags; 0x0806 is ARP.
    pub(crate) fn ethertype(&self) -> u16 {
        let behind = VNET_BYTES + usize::from(self.frame.network_at);
        let word = self.head.bytes().get(behind - 2..behind).and_then(<[u8]>::first_chunk);
        word.map_or(0, |word| u16::from_be_bytes(*word))
    }

    /// Returns whether the packet is of a kind that kernels send on their own, between the packets
    /// of programs: ARP, IGMP, neighbour discovery (RFC 4861) and multicast listener discovery (RFC
    /// 3810).
    pub(crate) fn is_housekeeping(&self) -> bool {
        const IGMP: u8 = 2;
        const ICMP6: u8 = 58;
        let icmp = || self.head.bytes().get(VNET_BYTES + usize::from(self.frame.transport_at));
        match self.frame.network {
            Network::Other => self.ethertype() == 0x0806,
            Network::V4 => self.frame.flow.protocol == IGMP,
            Network::V6 => {
                self.frame.flow.protocol == ICMP6
                    && icmp().is_some_and(|kind| matches!(kind, 130..=137 | 143))
            }
        }
    }

    /// Returns the bytes of the packet in one piece.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        parts(&self.head).flatten().copied().collect()
    }

    /// Returns the cells of the packet to `memory`.
    pub fn free(self, memory: &mut Memory) {
        memory.release(self.head);
    }

    /// Copies the packet; `None` if memory is exhausted.
    #[must_use]
    pub fn copy(&self, memory: &mut Memory) -> Option<Self> {
        let (mut head, mut complete) = (None, true);
        let mut end = &mut head;
        for part in parts(&self.head) {
            let Some(mut cell) = memory.take() else {
                complete = false;
                break;
            };
            cell.append(part);
            end = &mut end.insert(cell).next;
        }
        let head: Box<Cell> = head?;
        if !complete {
            memory.release(head);
            return None;
        }
        Some(Self { head, ..*self })
    }
}

/// Moves the offset of a partial checksum by the length of a tag that was inserted in front of it.
fn shift_partial_checksum(head: &mut Cell) {
    let mut vnet = VnetHeader::read(head.bytes()).expect("longer than that");
    if vnet.needs_checksum() {
        vnet.csum_start = vnet.csum_start.saturating_add(4);
        vnet.hdr_len = vnet.hdr_len.saturating_add(4);
    }
    head.bytes_mut()[..VNET_BYTES].copy_from_slice(&vnet.bytes());
}
