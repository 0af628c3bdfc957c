//! Rings of frames in shared memory, one each way.
//!
//! ```text
//! byte 0   cookie (32 bits), flags (16), head (16)
//! byte 64  tail (16)
//! byte 128 slots: flags (16), region (16), length (32), offset (32), metadata (32)
//! ```
//!
//! The memory is the client's, and the client moves `head`, the server `tail`. On the ring to the
//! server slots between tail and head hold frames. On the ring to the client they hold empty
//! buffers, of which the server fills the first.

use std::sync::atomic::{Ordering, fence};

use super::region::Region;

const COOKIE: u32 = 0x03e3_1f20;
const FLAGS: usize = 4;
const HEAD: usize = 6;
const TAIL: usize = 64;
const SLOTS: usize = 128;
const SLOT_BYTES: usize = 16;

/// "Do not wake me": whoever reads from a ring is awake.
const AWAKE: u16 = 1;

/// The frame goes on in the next slot.
const CONTINUES: u16 = 1;

/// Frames that are published at once, at the latest: the peer works on the first while the next are
/// written.
const PUBLISH: u16 = 2;

/// Lines of a frame that are fetched ahead: those of a short one.
const LINES: usize = 3;

/// Bytes of a ring, in whole cache lines.
pub(super) fn ring_bytes(log2_slots: u8) -> usize {
    (SLOTS + (SLOT_BYTES << log2_slots)).next_multiple_of(64)
}

/// A slot: where a buffer lies, and how much of it counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Slot {
    flags: u16,
    region: u16,
    len: u32,
    offset: u32,
}

/// Where a ring lies, and who we are to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) region: u16,
    pub(super) offset: usize,
    pub(super) log2_slots: u8,
    /// Where its buffers lie and how long they are, if the memory is ours.
    pub(super) buffers: Option<Buffers>,
}

/// One buffer a slot, one behind the other, in the region of their ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffers {
    pub(super) offset: u32,
    pub(super) bytes: u32,
}

impl Place {
    /// Whether the ring lies where it may.
    pub(super) fn is_sound(&self, regions: &[Region]) -> bool {
        self.offset.is_multiple_of(8)
            && regions
                .get(usize::from(self.region))
                .is_some_and(|region| region.holds(self.offset, ring_bytes(self.log2_slots)))
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

    /// The empty buffer that a slot of ours has.
    #[inline]
    fn empty(&self, buffers: Buffers, position: u16) -> Slot {
        let offset = buffers.offset + u32::from(position & (self.slots() - 1)) * buffers.bytes;
        Slot { flags: 0, region: self.region, len: buffers.bytes, offset }
    }

    /// Makes a ring of zeros one, all slots of which have empty buffers.
    pub(super) fn lay(&self, regions: &[Region]) {
        let buffers = self.buffers.expect("the memory is ours");
        for position in 0..self.slots() {
            self.set_slot(regions, position, self.empty(buffers, position));
        }
        let region = self.region(regions);
        region.write(self.offset, &COOKIE.to_ne_bytes());
        region.store(self.offset + FLAGS, AWAKE);
    }

    /// Bytes of the first slot's buffer.
    pub(super) fn buffer(&self, regions: &[Region]) -> usize {
        self.slot(regions, 0).len as usize
    }

    /// Whether it says that it is a ring.
    pub(super) fn has_cookie(&self, regions: &[Region]) -> bool {
        let mut cookie = [0; 4];
        self.region(regions).read(self.offset, &mut cookie);
        u32::from_ne_bytes(cookie) == COOKIE
    }
}

/// The peer has broken the protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Broken(pub(super) &'static str);

/// The ring over which we send.
pub(super) struct Sender {
    place: Place,
    /// The next slot to fill, what the peer has been told of, and the first that we may not fill.
    next: u16,
    published: u16,
    end: u16,
    /// What the peer has been woken for, if it slept.
    rung: u16,
}

impl Sender {
    pub(super) fn new(place: Place) -> Self {
        Self { place, next: 0, published: 0, end: 0, rung: 0 }
    }

    /// Room for a frame of `len` bytes in the next slot: its region and offset. `None` while the
    /// ring is full.
    ///
    /// # Errors
    /// [`Broken`].
    #[inline]
    pub(super) fn room(
        &mut self,
        regions: &[Region],
        len: usize,
    ) -> Result<Option<(u16, usize)>, Broken> {
        if self.next == self.end {
            self.look(regions)?;
            if self.next == self.end {
                return Ok(None);
            }
        }
        let mut slot = match self.place.buffers {
            Some(buffers) => self.place.empty(buffers, self.next),
            None => self.place.slot(regions, self.next),
        };
        let sound = regions
            .get(usize::from(slot.region))
            .is_some_and(|region| region.holds(slot.offset as usize, slot.len as usize));
        if !sound || (slot.len as usize) < len {
            return Err(Broken("a buffer that is too short, or outside its region"));
        }
        slot.len = u32::try_from(len).expect("no more than there was");
        slot.flags = 0;
        self.place.set_slot(regions, self.next, slot);
        Ok(Some((slot.region, slot.offset as usize)))
    }

    /// The frame is in its place.
    #[inline]
    pub(super) fn commit(&mut self, regions: &[Region]) {
        self.next = self.next.wrapping_add(1);
        if self.next.wrapping_sub(self.published) >= PUBLISH {
            self.publish(regions);
        }
    }

    /// Tells the peer of what is committed; whether there was anything.
    #[inline]
    pub(super) fn publish(&mut self, regions: &[Region]) -> bool {
        if self.published == self.next {
            return false;
        }
        self.published = self.next;
        let at = if self.place.buffers.is_some() { HEAD } else { TAIL };
        self.place.region(regions).store(self.place.offset + at, self.next);
        self.prepare(regions);
        true
    }

    /// Has the next slot, and the first lines of its buffer, fetched to be written: they are the
    /// peer's as yet.
    #[inline]
    fn prepare(&self, regions: &[Region]) {
        if self.next == self.end {
            return;
        }
        let slot = match self.place.buffers {
            Some(buffers) => self.place.empty(buffers, self.next),
            None => self.place.slot(regions, self.next),
        };
        self.place.region(regions).prefetch_to_write(self.place.slot_at(self.next));
        if let Some(region) = regions.get(usize::from(slot.region)) {
            for line in 0..LINES {
                region.prefetch_to_write(slot.offset as usize + 64 * line);
            }
        }
    }

    /// Whether the peer sleeps, and has not been woken for what was published since.
    #[inline]
    pub(super) fn is_news(&mut self, regions: &[Region]) -> bool {
        if self.rung == self.published {
            return false;
        }
        self.rung = self.published;
        // What was published is to be seen by a peer that goes to sleep before its flags are read,
        // or both miss each other.
        fence(Ordering::SeqCst);
        self.place.region(regions).load(self.place.offset + FLAGS) & AWAKE == 0
    }

    /// How far the peer has come.
    #[cold]
    fn look(&mut self, regions: &[Region]) -> Result<(), Broken> {
        let (region, slots) = (self.place.region(regions), self.place.slots());
        self.end = match self.place.buffers {
            Some(_) => region.load(self.place.offset + TAIL).wrapping_add(slots),
            None => region.load(self.place.offset + HEAD),
        };
        match self.end.wrapping_sub(self.next) <= slots {
            true => Ok(()),
            false => Err(Broken("a position beyond the ring's end")),
        }
    }
}

/// The ring from which we receive.
pub(super) struct Receiver {
    place: Place,
    /// The next slot to read, what the peer has had back, and the first that has nothing for us.
    next: u16,
    released: u16,
    end: u16,
    /// Where the next frame probably lies: region, offset, and how far buffers are apart.
    guess: (u16, u32, u32),
}

impl Receiver {
    /// Begins. The buffers that are ours are the peer's to fill from now on, and not before: DPDK's
    /// server sets all positions to 0 while it comes to terms.
    pub(super) fn new(place: Place, regions: &[Region]) -> Self {
        if place.buffers.is_some() {
            place.region(regions).store(place.offset + HEAD, place.slots());
        }
        Self { place, next: 0, released: 0, end: 0, guess: (0, 0, 0) }
    }

    /// How far the peer has come.
    #[inline]
    fn told(&self, regions: &[Region]) -> u16 {
        let at = if self.place.buffers.is_some() { TAIL } else { HEAD };
        self.place.region(regions).load(self.place.offset + at)
    }

    /// Whether there is a frame.
    #[inline]
    pub(super) fn has_news(&self, regions: &[Region]) -> bool {
        self.next != self.end || self.next != self.told(regions)
    }

    /// Copies the next frame out; its length, or `None` when there is none.
    ///
    /// # Errors
    /// [`Broken`].
    #[inline]
    pub(super) fn take(
        &mut self,
        regions: &[Region],
        into: &mut [u8],
    ) -> Result<Option<usize>, Broken> {
        if self.next == self.end {
            self.end = self.told(regions);
            if self.next == self.end {
                return Ok(None);
            }
            self.foresee(regions);
            if self.end.wrapping_sub(self.next) > self.place.slots() {
                return Err(Broken("a position beyond the ring's end"));
            }
        }
        let mut len = 0;
        loop {
            let slot = self.place.slot(regions, self.next);
            self.next = self.next.wrapping_add(1);
            let (_, guessed, apart) = self.guess;
            let apart = slot.offset.wrapping_sub(guessed.wrapping_sub(apart));
            self.guess = (slot.region, slot.offset.wrapping_add(apart), apart);
            if self.next != self.end {
                self.foresee(regions);
            }
            let region = regions
                .get(usize::from(slot.region))
                .ok_or(Broken("a buffer in a region that is not there"))?;
            if !region.holds(slot.offset as usize, slot.len as usize) {
                return Err(Broken("a buffer outside its region"));
            }
            let part = into
                .get_mut(len..len + slot.len as usize)
                .ok_or(Broken("a frame longer than any"))?;
            region.read(slot.offset as usize, part);
            len += part.len();
            if slot.flags & CONTINUES == 0 {
                return Ok(Some(len));
            }
            if self.next == self.end {
                return Err(Broken("a frame without an end"));
            }
        }
    }

    /// Has the next slot and the first lines of its frame fetched at once, the frame from where it
    /// probably lies: to read first where it does would be one wait behind the other.
    #[inline]
    fn foresee(&self, regions: &[Region]) {
        self.place.region(regions).prefetch(self.place.slot_at(self.next));
        let (region, offset, _) = self.guess;
        if let Some(region) = regions.get(usize::from(region)) {
            for line in 0..LINES {
                region.prefetch(offset as usize + 64 * line);
            }
        }
    }

    /// Gives the peer back the slots of what was taken, many at once: each look at what the other
    /// has written costs both a line's way between two cores, and a peer that has three
    /// quarters of the ring is in no hurry.
    #[inline]
    pub(super) fn release(&mut self, regions: &[Region]) {
        if self.next.wrapping_sub(self.released) >= self.place.slots() / 4 {
            self.give_back(regions);
        }
    }

    #[cold]
    fn give_back(&mut self, regions: &[Region]) {
        let region = self.place.region(regions);
        match self.place.buffers {
            Some(buffers) => {
                while self.released != self.next {
                    self.place.set_slot(
                        regions,
                        self.released,
                        self.place.empty(buffers, self.released),
                    );
                    self.released = self.released.wrapping_add(1);
                }
                region.store(
                    self.place.offset + HEAD,
                    self.released.wrapping_add(self.place.slots()),
                );
            }
            None => {
                self.released = self.next;
                region.store(self.place.offset + TAIL, self.next);
            }
        }
    }

    /// Says whether the peer is to wake us when it sends.
    pub(super) fn sleep(&self, regions: &[Region], sleeps: bool) {
        self.place.region(regions).store(self.place.offset + FLAGS, if sleeps { 0 } else { AWAKE });
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

    /// A ring of four slots in memory of its own: as its maker sees it, and as the other end does.
    fn ring() -> (Vec<Region>, Place, Place) {
        let log2_slots = 2;
        let buffers = Buffers { offset: 256, bytes: BUFFER };
        let ours = Place { region: 0, offset: 0, log2_slots, buffers: Some(buffers) };
        let regions = vec![Region::create("test", 256 + 4 * BUFFER as usize).expect("memory")];
        ours.lay(&regions);
        assert!(ours.is_sound(&regions) && ours.has_cookie(&regions));
        (regions, ours, Place { buffers: None, ..ours })
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
        /// Whoever made the ring, and in whatever order both work: frames come out as they went in, and none is lost.
        #[test]
        fn a_ring_is_a_queue(to_server in any::<bool>(), steps in prop::collection::vec((0_u8..4, 1_usize..64), 1..400)) {
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

        /// Whatever the peer writes into the memory: no panic, and nothing is read or written outside it.
        #[test]
        fn a_peer_may_write_anything(garbage in prop::collection::vec(any::<u8>(), 192), len in 1_usize..64) {
            for receives in [true, false] {
                let (regions, ours, theirs) = ring();
                for place in [ours, theirs] {
                    let (mut sender, mut receiver) = (Sender::new(place), Receiver::new(place, &regions));
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
                                Ok(Some((region, at))) => regions[usize::from(region)].write(at, &into[..len]),
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
        assert_eq!(receiver.take(&regions, &mut into), Err(Broken("a frame without an end")));
        let mut receiver = Receiver::new(theirs, &regions);
        regions[0].store(HEAD, 3);
        assert_eq!(receiver.take(&regions, &mut into), Ok(Some(15)));
        assert_eq!(&into[..15], b"likes green tea");
        assert_eq!(receiver.take(&regions, &mut into), Ok(None));
    }
}
