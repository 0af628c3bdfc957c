//! Rings of frames in shared memory, one in each direction.
//!
//! ```text
//! byte 0   cookie (32 bits), flags (16), head (16)
//! byte 64  tail (16)
//! byte 128 slots: flags (16), region (16), length (32), offset (32), metadata (32)
//! ```
//!
//! The memory belongs to the client, which moves `head`; the server moves `tail`. On the ring to
//! the server, the slots between tail and head hold frames. On the ring to the client, these slots
//! hold empty buffers, and the server fills the first of them.

use std::sync::atomic::{Ordering, fence};

use super::region::Region;

const COOKIE: u32 = 0x03e3_1f20;
const FLAGS: usize = 4;
const HEAD: usize = 6;
const TAIL: usize = 64;
const SLOTS: usize = 128;
const SLOT_BYTES: usize = 16;

/// Flag of a ring whose reader is awake and need not be woken.
const AWAKE: u16 = 1;

/// Flag of a slot whose frame continues in the next slot.
const CONTINUES: u16 = 1;

/// The sender publishes frames in groups of this many, so that the peer handles the first while the
/// next are written.
const PUBLISH: u16 = 2;

/// Number of cache lines that are prefetched at the beginning of a frame or of its buffer: enough
/// for a short frame.
const LINES: usize = 3;

/// Returns the number of bytes of a ring, in whole cache lines.
pub(super) fn ring_bytes(log2_slots: u8) -> usize {
    (SLOTS + (SLOT_BYTES << log2_slots)).next_multiple_of(64)
}

/// A slot: where its buffer lies, and how many bytes are used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Slot {
    flags: u16,
    region: u16,
    len: u32,
    offset: u32,
}

/// Where a ring lies, and which end we are.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingLayout {
    pub(super) region: u16,
    pub(super) offset: usize,
    pub(super) log2_slots: u8,
    /// Where the ring's buffers lie and how long they are, if the memory is ours.
    pub(super) buffers: Option<Buffers>,
}

/// One buffer for each slot, consecutive, in the region of their ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffers {
    pub(super) offset: u32,
    pub(super) bytes: u32,
}

impl RingLayout {
    /// Returns whether the ring is aligned and within its region.
    pub(super) fn is_in_region(&self, regions: &[Region]) -> bool {
        self.offset.is_multiple_of(8)
            && regions
                .get(usize::from(self.region))
                .is_some_and(|region| region.contains(self.offset, ring_bytes(self.log2_slots)))
    }

    #[inline]
    fn slots(&self) -> u16 {
        1 << self.log2_slots
    }

    #[inline]
    fn slot_at(&self, position: u16) -> usize {
        self.offset + SLOTS + usize::from(position & (self.slots() - 1)) * SLOT_BYTES
    }

    #[inline]
    fn region<'a>(&self, regions: &'a [Region]) -> &'a Region {
        &regions[usize::from(self.region)]
    }

    #[inline]
    fn slot(&self, regions: &[Region], position: u16) -> Slot {
        let mut bytes = [0; 12];
        self.region(regions).read(self.slot_at(position), &mut bytes);
        let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
        Slot {
            flags: u16::from_ne_bytes([a, b]),
            region: u16::from_ne_bytes([c, d]),
            len: u32::from_ne_bytes([e, f, g, h]),
            offset: u32::from_ne_bytes([i, j, k, l]),
        }
    }

    #[inline]
    fn set_slot(&self, regions: &[Region], position: u16, slot: Slot) {
        let mut bytes = [0; SLOT_BYTES];
        bytes[0..2].copy_from_slice(&slot.flags.to_ne_bytes());
        bytes[2..4].copy_from_slice(&slot.region.to_ne_bytes());
        bytes[4..8].copy_from_slice(&slot.len.to_ne_bytes());
        bytes[8..12].copy_from_slice(&slot.offset.to_ne_bytes());
        self.region(regions).write(self.slot_at(position), &bytes);
    }

    /// Returns the empty buffer of a slot in our memory.
    #[inline]
    fn empty(&self, buffers: Buffers, position: u16) -> Slot {
        let offset = buffers.offset + u32::from(position & (self.slots() - 1)) * buffers.bytes;
        Slot { flags: 0, region: self.region, len: buffers.bytes, offset }
    }

    /// Initialises a ring in zeroed memory, with an empty buffer in every slot.
    pub(super) fn init(&self, regions: &[Region]) {
        let buffers = self.buffers.expect("the memory is ours");
        for position in 0..self.slots() {
            self.set_slot(regions, position, self.empty(buffers, position));
        }
        let region = self.region(regions);
        region.write(self.offset, &COOKIE.to_ne_bytes());
        region.store(self.offset + FLAGS, AWAKE);
    }

    /// Returns the number of bytes of the first slot's buffer.
    pub(super) fn buffer(&self, regions: &[Region]) -> usize {
        self.slot(regions, 0).len as usize
    }

    /// Returns whether the ring has the magic cookie.
    pub(super) fn has_cookie(&self, regions: &[Region]) -> bool {
        let mut cookie = [0; 4];
        self.region(regions).read(self.offset, &mut cookie);
        u32::from_ne_bytes(cookie) == COOKIE
    }
}

/// A violation of the protocol by the peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ProtocolError(pub(super) &'static str);

/// The sending end of a ring.
pub(super) struct Sender {
    layout: RingLayout,
    /// Three positions: the next slot to fill, the first slot that is not published, and the first
    /// slot that we may not fill.
    next: u16,
    published: u16,
    end: u16,
    /// The position up to which a sleeping peer has been woken.
    woken_for: u16,
}

impl Sender {
    pub(super) fn new(layout: RingLayout) -> Self {
        Self { layout, next: 0, published: 0, end: 0, woken_for: 0 }
    }

    /// Reserves the next slot for a frame of `len` bytes. Returns the region of the slot's buffer
    /// and the offset in it; `None` while the ring is full.
    ///
    /// # Errors
    /// [`ProtocolError`] when the peer's position is beyond the ring's end, or the peer supplied a
    /// buffer that is too short or outside its region.
    #[inline]
    pub(super) fn room(
        &mut self,
        regions: &[Region],
        len: usize,
    ) -> Result<Option<(u16, usize)>, ProtocolError> {
        if self.next == self.end {
            self.read_end(regions)?;
            if self.next == self.end {
                return Ok(None);
            }
        }
        let mut slot = match self.layout.buffers {
            Some(buffers) => self.layout.empty(buffers, self.next),
            None => self.layout.slot(regions, self.next),
        };
        let sound = regions
            .get(usize::from(slot.region))
            .is_some_and(|region| region.contains(slot.offset as usize, slot.len as usize));
        if !sound || (slot.len as usize) < len {
            return Err(ProtocolError("a buffer that is too short, or outside its region"));
        }
        slot.len = u32::try_from(len).expect("no more than there was");
        slot.flags = 0;
        self.layout.set_slot(regions, self.next, slot);
        Ok(Some((slot.region, slot.offset as usize)))
    }

    /// Marks the reserved slot as filled.
    #[inline]
    pub(super) fn commit(&mut self, regions: &[Region]) {
        self.next = self.next.wrapping_add(1);
        if self.next.wrapping_sub(self.published) >= PUBLISH {
            self.publish(regions);
        }
    }

    /// Publishes the filled slots to the peer. Returns whether there were any.
    #[inline]
    pub(super) fn publish(&mut self, regions: &[Region]) -> bool {
        if self.published == self.next {
            return false;
        }
        self.published = self.next;
        let at = if self.layout.buffers.is_some() { HEAD } else { TAIL };
        self.layout.region(regions).store(self.layout.offset + at, self.next);
        self.prefetch_slot(regions);
        true
    }

    /// Prefetches the next slot and the first lines of its buffer for writing, because they are in
    /// the peer's cache.
    #[inline]
    fn prefetch_slot(&self, regions: &[Region]) {
        if self.next == self.end {
            return;
        }
        let slot = match self.layout.buffers {
            Some(buffers) => self.layout.empty(buffers, self.next),
            None => self.layout.slot(regions, self.next),
        };
        self.layout.region(regions).prefetch_to_write(self.layout.slot_at(self.next));
        if let Some(region) = regions.get(usize::from(slot.region)) {
            for line in 0..LINES {
                region.prefetch_to_write(slot.offset as usize + 64 * line);
            }
        }
    }

    /// Returns whether the peer must be woken: it sleeps, and frames were published since the last
    /// call.
    #[inline]
    pub(super) fn must_wake(&mut self, regions: &[Region]) -> bool {
        if self.woken_for == self.published {
            return false;
        }
        self.woken_for = self.published;
        // The published position must be visible to a peer that goes to sleep before we read its
        // flags; otherwise the peer could miss the frame, and we could miss that the peer sleeps.
        fence(Ordering::SeqCst);
        self.layout.region(regions).load(self.layout.offset + FLAGS) & AWAKE == 0
    }

    /// Reads the peer's position, which limits the slots that we may fill.
    #[cold]
    fn read_end(&mut self, regions: &[Region]) -> Result<(), ProtocolError> {
        let (region, slots) = (self.layout.region(regions), self.layout.slots());
        self.end = match self.layout.buffers {
            Some(_) => region.load(self.layout.offset + TAIL).wrapping_add(slots),
            None => region.load(self.layout.offset + HEAD),
        };
        match self.end.wrapping_sub(self.next) <= slots {
            true => Ok(()),
            false => Err(ProtocolError("a position beyond the ring's end")),
        }
    }
}

/// The receiving end of a ring.
pub(super) struct Receiver {
    layout: RingLayout,
    /// Three positions: the next slot to read, the first slot not returned to the peer, and the
    /// first slot without a frame.
    next: u16,
    released: u16,
    end: u16,
    /// Where the next frame probably lies: its region, its offset, and the distance between
    /// consecutive buffers.
    guess: (u16, u32, u32),
}

impl Receiver {
    /// Creates the receiving end, and offers our buffers to the peer. They must not be offered
    /// earlier, because DPDK's server sets all positions to 0 during the handshake.
    pub(super) fn new(layout: RingLayout, regions: &[Region]) -> Self {
        if layout.buffers.is_some() {
            layout.region(regions).store(layout.offset + HEAD, layout.slots());
        }
        Self { layout, next: 0, released: 0, end: 0, guess: (0, 0, 0) }
    }

    /// Returns the peer's position.
    #[inline]
    fn peer_position(&self, regions: &[Region]) -> u16 {
        let at = if self.layout.buffers.is_some() { TAIL } else { HEAD };
        self.layout.region(regions).load(self.layout.offset + at)
    }

    /// Returns whether a frame has arrived.
    #[inline]
    pub(super) fn has_frame(&self, regions: &[Region]) -> bool {
        self.next != self.end || self.next != self.peer_position(regions)
    }

    /// Copies the next frame into `into` and returns its length; `None` if there is none.
    ///
    /// # Errors
    /// [`ProtocolError`] when the peer's position is beyond the ring's end, a buffer is outside its
    /// region, or a frame is longer than `into` or has no end.
    #[inline]
    pub(super) fn take(
        &mut self,
        regions: &[Region],
        into: &mut [u8],
    ) -> Result<Option<usize>, ProtocolError> {
        if self.next == self.end {
            self.end = self.peer_position(regions);
            if self.next == self.end {
                return Ok(None);
            }
            self.prefetch_next(regions);
            if self.end.wrapping_sub(self.next) > self.layout.slots() {
                return Err(ProtocolError("a position beyond the ring's end"));
            }
        }
        let mut len = 0;
        loop {
            let slot = self.layout.slot(regions, self.next);
            self.next = self.next.wrapping_add(1);
            let (_, guessed, apart) = self.guess;
            let apart = slot.offset.wrapping_sub(guessed.wrapping_sub(apart));
            self.guess = (slot.region, slot.offset.wrapping_add(apart), apart);
            if self.next != self.end {
                self.prefetch_next(regions);
            }
            let region = regions
                .get(usize::from(slot.region))
                .ok_or(ProtocolError("a buffer in a region that does not exist"))?;
            if !region.contains(slot.offset as usize, slot.len as usize) {
                return Err(ProtocolError("a buffer outside its region"));
            }
            let part = into
                .get_mut(len..len + slot.len as usize)
                .ok_or(ProtocolError("a frame longer than any"))?;
            region.read(slot.offset as usize, part);
            len += part.len();
            if slot.flags & CONTINUES == 0 {
                return Ok(Some(len));
            }
            if self.next == self.end {
                return Err(ProtocolError("a frame without an end"));
            }
        }
    }

    /// Prefetches the next slot, and the first lines of its frame from where the frame probably
    /// lies. If we read the frame's place from the slot first, one cache miss would follow the
    /// other.
    #[inline]
    fn prefetch_next(&self, regions: &[Region]) {
        self.layout.region(regions).prefetch(self.layout.slot_at(self.next));
        let (region, offset, _) = self.guess;
        if let Some(region) = regions.get(usize::from(region)) {
            for line in 0..LINES {
                region.prefetch(offset as usize + 64 * line);
            }
        }
    }

    /// Gives the slots of the taken frames back to the peer, once they are a quarter of the ring.
    /// The reason is that each access to a cache line that the other end has written moves the line
    /// between two cores, and a peer that still has three quarters of the ring can wait.
    #[inline]
    pub(super) fn release(&mut self, regions: &[Region]) {
        if self.next.wrapping_sub(self.released) >= self.layout.slots() / 4 {
            self.return_slots(regions);
        }
    }

    #[cold]
    fn return_slots(&mut self, regions: &[Region]) {
        let region = self.layout.region(regions);
        match self.layout.buffers {
            Some(buffers) => {
                while self.released != self.next {
                    self.layout.set_slot(
                        regions,
                        self.released,
                        self.layout.empty(buffers, self.released),
                    );
                    self.released = self.released.wrapping_add(1);
                }
                region.store(
                    self.layout.offset + HEAD,
                    self.released.wrapping_add(self.layout.slots()),
                );
            }
            None => {
                self.released = self.next;
                region.store(self.layout.offset + TAIL, self.next);
            }
        }
    }

    /// Sets the flag by which the peer knows whether to wake us when it sends.
    pub(super) fn sleep(&self, regions: &[Region], sleeps: bool) {
        self.layout
            .region(regions)
            .store(self.layout.offset + FLAGS, if sleeps { 0 } else { AWAKE });
        if sleeps {
            fence(Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const BUFFER: u32 = 64;

    /// A ring of four slots in memory of its own, as seen by the end that created it and by the
    /// other end.
    fn ring() -> (Vec<Region>, RingLayout, RingLayout) {
        let log2_slots = 2;
        let buffers = Buffers { offset: 256, bytes: BUFFER };
        let ours = RingLayout { region: 0, offset: 0, log2_slots, buffers: Some(buffers) };
        let regions = vec![Region::create("test", 256 + 4 * BUFFER as usize).expect("memory")];
        ours.init(&regions);
        assert!(ours.is_in_region(&regions) && ours.has_cookie(&regions));
        (regions, ours, RingLayout { buffers: None, ..ours })
    }

    fn put(sender: &mut Sender, regions: &[Region], frame: &[u8]) -> bool {
        let Some((region, at)) = sender.room(regions, frame.len()).expect("sound") else {
            return false;
        };
        regions[usize::from(region)].write(at, frame);
        sender.commit(regions);
        true
    }

    proptest! {
        /// Frames come out as they went in, and none is lost, whichever end created the ring, and
        /// in whatever order both ends work.
        #[test]
        fn a_ring_is_a_queue(
            to_server in any::<bool>(),
            steps in prop::collection::vec((0_u8..4, 1_usize..64), 1..400),
        ) {
            let (regions, ours, theirs) = ring();
            let (mut sender, mut receiver) = match to_server {
                true => (Sender::new(ours), Receiver::new(theirs, &regions)),
                false => {
                    let receiver = Receiver::new(ours, &regions);
                    (Sender::new(theirs), receiver)
                }
            };
            let (mut queue, mut shown, mut held, mut unseen) = (VecDeque::new(), 0, 0, 0);
            let mut into = [0; 64];
            for (number, (step, len)) in steps.into_iter().enumerate() {
                match step {
                    0 | 1 => {
                        let frame = vec![number.to_le_bytes()[0]; len];
                        let there_is_room = queue.len() + held < 4;
                        prop_assert_eq!(put(&mut sender, &regions, &frame), there_is_room);
                        if there_is_room {
                            queue.push_back(frame);
                            unseen += 1;
                        }
                        if step == 1 || unseen >= PUBLISH {
                            sender.publish(&regions);
                            (shown, unseen) = (queue.len(), 0);
                        }
                    }
                    2 => {
                        let got = receiver.take(&regions, &mut into).expect("sound");
                        prop_assert_eq!(got.is_some(), shown > 0);
                        if let Some(len) = got {
                            prop_assert_eq!(&into[..len], &queue.pop_front().expect("sent")[..]);
                            (shown, held) = (shown - 1, held + 1);
                        }
                    }
                    _ => {
                        receiver.release(&regions);
                        held = 0;
                    }
                }
            }
        }

        /// Whatever the peer writes into the shared memory, nothing panics, and nothing outside
        /// that memory is read or written.
        #[test]
        fn a_peer_may_write_anything(
            garbage in prop::collection::vec(any::<u8>(), 192),
            len in 1_usize..64,
        ) {
            for receives in [true, false] {
                let (regions, ours, theirs) = ring();
                for layout in [ours, theirs] {
                    let mut sender = Sender::new(layout);
                    let mut receiver = Receiver::new(layout, &regions);
                    regions[0].write(0, &garbage);
                    let mut into = [0; 200];
                    for _ in 0..8 {
                        if receives {
                            if receiver.take(&regions, &mut into).is_err() {
                                break;
                            }
                            receiver.release(&regions);
                        } else {
                            match sender.room(&regions, len) {
                                Ok(Some((region, at))) => {
                                    regions[usize::from(region)].write(at, &into[..len]);
                                }
                                Ok(None) | Err(_) => break,
                            }
                            sender.commit(&regions);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn frames_in_pieces_are_put_together() {
        let (regions, ours, theirs) = ring();
        let mut receiver = Receiver::new(theirs, &regions);
        for (position, text) in ["likes ", "green ", "tea"].into_iter().enumerate() {
            let position = u16::try_from(position).expect("few");
            let slot = ours.empty(ours.buffers.expect("ours"), position);
            regions[0].write(slot.offset as usize, text.as_bytes());
            let flags = if text == "tea" { 0 } else { CONTINUES };
            let len = u32::try_from(text.len()).expect("short");
            ours.set_slot(&regions, position, Slot { flags, len, ..slot });
        }
        let mut into = [0; 100];
        regions[0].store(HEAD, 2);
        assert_eq!(
            receiver.take(&regions, &mut into),
            Err(ProtocolError("a frame without an end"))
        );
        let mut receiver = Receiver::new(theirs, &regions);
        regions[0].store(HEAD, 3);
        assert_eq!(receiver.take(&regions, &mut into), Ok(Some(15)));
        assert_eq!(&into[..15], b"likes green tea");
        assert_eq!(receiver.take(&regions, &mut into), Ok(None));
    }
}
