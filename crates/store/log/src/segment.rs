//! Segments, and the memory that their entries lie in.

use crate::arena::Mapping;
use crate::seglets::{Run, Seglets};
use sprat_wire::SEGLET_BYTES;
use sprat_wire::entry::{Entry, Kind, Role};
use std::collections::BTreeMap;

/// Entries up to this length, bytes, may be put into extents of any size: what is lost at an
/// extent's end is little.
const SMALL_ENTRY: usize = SEGLET_BYTES / 16;

/// Seglets of an extent for longer entries, or twice what the entry takes, so that what is lost at
/// its end is little again.
const LONG_RUN: usize = 8;

/// Seglets that a segment takes at a time when memory is plentiful: a huge page.
const EXTENT_GROWTH: usize = 32;

/// A contiguous piece of a segment's memory: whole entries, then room for more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Address of the first entry.
    pub(crate) start: usize,
    /// Address behind the last entry.
    pub(crate) end: usize,
    /// Address behind the last seglet.
    pub(crate) cap: usize,
}

impl Extent {
    pub(crate) fn used(&self) -> usize {
        self.end - self.start
    }

    /// The seglets it owns.
    pub(crate) fn run(&self) -> Run {
        let first = self.start / SEGLET_BYTES;
        Run { first, count: self.cap / SEGLET_BYTES - first }
    }
}

/// A segment of the log.
pub(crate) struct Segment {
    pub(crate) id: u64,
    pub(crate) role: Role,
    /// Its memory, in log order until the segment is closed, in any order thereafter. May be
    /// empty: then only the replica on disk is left.
    pub(crate) extents: Vec<Extent>,
    /// Bytes ever appended: the length of its byte stream.
    pub(crate) appended: usize,
    /// Bytes of the stream handed out for replication.
    pub(crate) submitted: usize,
    /// Bytes of the stream that are durable.
    pub(crate) durable: usize,
    /// Nothing will be appended any more.
    pub(crate) sealed: bool,
    /// The replica was told so, and has made it durable.
    pub(crate) seal_submitted: bool,
    pub(crate) seal_durable: bool,
    /// The next head's digest lists it.
    pub(crate) listed: bool,
    /// Sealed, wholly durable and listed: the cleaner may take it.
    pub(crate) closed: bool,
    /// All live entries were moved elsewhere; waits for its replica's end.
    pub(crate) cleaned: bool,
    /// Bytes of live entries, tombstones included, the segment's header not.
    pub(crate) live: usize,
    /// Of these, bytes of tombstones.
    pub(crate) tombstones: usize,
    /// Position of the log when its entries were written, for the cleaner's idea of age.
    pub(crate) birth: u64,
    /// For a head: position of the log at its first byte.
    pub(crate) base: u64,
    /// For a head: length of its header, and the segments whose replicas may go when it is
    /// durable.
    pub(crate) header_len: usize,
    pub(crate) drops: Vec<u64>,
    /// Readers of its memory.
    pub(crate) pins: u32,
    /// Memory that is done with but pinned.
    pub(crate) limbo: Vec<Run>,
    /// Count of segments ever reclaimed when its tombstones were last looked at.
    pub(crate) looked: u64,
    /// Live bytes when compaction last freed nothing, so that it is not tried again at once.
    pub(crate) futile: usize,
}

impl Segment {
    /// Seglets it holds, limbo not included.
    pub(crate) fn seglets(&self) -> usize {
        self.extents.iter().map(|extent| extent.run().count).sum()
    }

    pub(crate) fn wholly_durable(&self) -> bool {
        self.seal_durable
    }
}

/// Why an entry found no place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NoRoom {
    /// The segment would be longer than a segment may be.
    Segment,
    /// There are as many segments on disk as there may be.
    Disk,
    /// No free seglets.
    Memory,
    /// Free seglets, but none in a run of so many.
    Fragmented { run: usize },
}

/// The arena, its map and the segments in it.
pub(crate) struct Memory {
    pub(crate) bytes: Mapping<u8>,
    pub(crate) seglets: Seglets,
    slots: Vec<Option<Segment>>,
    vacant: Vec<u32>,
    /// Every segment whose replica may still be read at a restart.
    pub(crate) by_id: BTreeMap<u64, u32>,
    pub(crate) next_id: u64,
    /// Readers of all segments.
    pub(crate) pins: usize,
}

impl Memory {
    pub(crate) fn new(seglets: usize) -> std::io::Result<Self> {
        Ok(Self {
            bytes: Mapping::reserve((seglets + 1) * SEGLET_BYTES)?,
            seglets: Seglets::new(seglets),
            slots: Vec::new(),
            vacant: Vec::new(),
            by_id: BTreeMap::new(),
            next_id: 1,
            pins: 0,
        })
    }

    #[inline]
    pub(crate) fn segment(&self, slot: u32) -> &Segment {
        self.slots[slot as usize].as_ref().expect("slot is in use")
    }

    #[inline]
    pub(crate) fn segment_mut(&mut self, slot: u32) -> &mut Segment {
        self.slots[slot as usize].as_mut().expect("slot is in use")
    }

    /// The segment in `slot`, if there is one.
    pub(crate) fn get(&self, slot: u32) -> Option<&Segment> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// The segment that owns the memory at `address`.
    #[inline]
    pub(crate) fn owner_mut(&mut self, address: usize) -> &mut Segment {
        let slot = self.seglets.owner(address);
        self.segment_mut(slot)
    }

    /// All segments with their slots.
    pub(crate) fn segments(&self) -> impl Iterator<Item = (u32, &Segment)> {
        (0u32..).zip(&self.slots).filter_map(|(slot, segment)| Some((slot, segment.as_ref()?)))
    }

    /// Slots, used and vacant.
    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// The entry at `address`.
    #[inline]
    pub(crate) fn entry(&self, address: usize) -> Entry<'_> {
        Entry::parse(&self.bytes[address..])
            .expect("memory holds what was checked when it was written")
    }

    /// Adds a segment with no memory.
    pub(crate) fn add(&mut self, id: u64, role: Role, birth: u64) -> u32 {
        let segment = Segment {
            id,
            role,
            extents: Vec::new(),
            appended: 0,
            submitted: 0,
            durable: 0,
            sealed: false,
            listed: false,
            closed: false,
            cleaned: false,
            live: 0,
            tombstones: 0,
            birth,
            base: birth,
            header_len: 0,
            drops: Vec::new(),
            pins: 0,
            limbo: Vec::new(),
            seal_submitted: false,
            seal_durable: false,
            looked: 0,
            futile: usize::MAX,
        };
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("fewer segments than seglets")
        });
        assert!(self.slots[slot as usize].is_none());
        self.slots[slot as usize] = Some(segment);
        let before = self.by_id.insert(id, slot);
        assert!(before.is_none(), "segment ids are used once");
        self.next_id = self.next_id.max(id + 1);
        slot
    }

    /// Forgets a segment that is cleaned. One that is still pinned lives on, nameless, until it is
    /// unpinned.
    pub(crate) fn forget(&mut self, id: u64) {
        let slot = self.by_id.remove(&id).expect("segment is known");
        let segment = self.segment(slot);
        assert!(segment.cleaned && segment.live == 0 && segment.extents.is_empty());
        if segment.pins == 0 {
            self.vacate(slot);
        }
    }

    /// Takes back a segment that never got an entry.
    pub(crate) fn abandon(&mut self, slot: u32) {
        let id = self.segment(slot).id;
        self.by_id.remove(&id);
        self.vacate(slot);
    }

    fn vacate(&mut self, slot: u32) {
        let segment = self.slots[slot as usize].take().expect("slot is in use");
        assert!(segment.pins == 0 && segment.limbo.is_empty() && segment.extents.is_empty());
        self.vacant.push(slot);
    }

    /// Takes `len` contiguous bytes at the end of a segment that may be `limit` bytes long, leaving
    /// at least `floor` seglets of the arena free. A new extent has at least `run` seglets (as far
    /// as the arena is not so full that less must do), and as many as the entry needs anyway.
    pub(crate) fn append(
        &mut self,
        slot: u32,
        len: usize,
        run: usize,
        limit: usize,
        floor: usize,
    ) -> Result<usize, NoRoom> {
        let segment = self.slots[slot as usize].as_mut().expect("slot is in use");
        if segment.appended + len > limit {
            return Err(NoRoom::Segment);
        }
        let spare = self.seglets.free().saturating_sub(floor);
        if let Some(last) = segment.extents.last_mut() {
            if last.end + len > last.cap {
                let need = (last.end + len - last.cap).div_ceil(SEGLET_BYTES);
                let want = growth(need, self.seglets.free()).min(spare);
                if need <= spare
                    && let Some(count) =
                        self.seglets.take_at(last.cap / SEGLET_BYTES, need, want, slot)
                {
                    last.cap += count * SEGLET_BYTES;
                }
            }
            if last.end + len <= last.cap {
                let address = last.end;
                last.end += len;
                segment.appended += len;
                return Ok(address);
            }
        }
        let need = len.div_ceil(SEGLET_BYTES).max(run);
        if need > spare {
            return Err(NoRoom::Memory);
        }
        let want = growth(need, self.seglets.free()).min(spare);
        let run = self.seglets.take(need, want, slot).ok_or(NoRoom::Fragmented { run: need })?;
        if let Some(last) = segment.extents.last_mut() {
            trim(last, &mut self.seglets);
        }
        let start = run.first * SEGLET_BYTES;
        segment.extents.push(Extent {
            start,
            end: start + len,
            cap: start + run.count * SEGLET_BYTES,
        });
        segment.appended += len;
        Ok(start)
    }

    /// Says that nothing will be appended to a segment any more, and returns its unused seglets.
    pub(crate) fn seal(&mut self, slot: u32) {
        let segment = self.slots[slot as usize].as_mut().expect("slot is in use");
        assert!(!segment.sealed);
        segment.sealed = true;
        if let Some(last) = segment.extents.last_mut() {
            trim(last, &mut self.seglets);
        }
        segment.extents.shrink_to_fit();
    }

    /// Cuts an extent off behind `end`, and returns the seglets behind.
    pub(crate) fn truncate(&mut self, slot: u32, extent: usize, end: usize) {
        let segment = self.slots[slot as usize].as_mut().expect("slot is in use");
        let extent = &mut segment.extents[extent];
        assert!(extent.start < end && end <= extent.end && segment.pins == 0);
        extent.end = end;
        trim(extent, &mut self.seglets);
    }

    /// Takes an extent out of a segment and frees it, at once or when the last pin goes.
    pub(crate) fn drop_extent(&mut self, slot: u32, extent: usize) {
        let run = self.segment_mut(slot).extents.remove(extent).run();
        self.free_run(slot, run);
    }

    /// Frees seglets that a segment has done with, at once or when its last pin goes.
    pub(crate) fn free_run(&mut self, slot: u32, run: Run) {
        let segment = self.slots[slot as usize].as_mut().expect("slot is in use");
        if run.count == 0 {
        } else if segment.pins == 0 {
            self.seglets.give(run);
        } else {
            segment.limbo.push(run);
        }
    }

    /// Moves the beginning of a segment's first extent up to `address`: what lies before is done
    /// with.
    pub(crate) fn advance(&mut self, slot: u32, address: usize) {
        let extent = &mut self.segment_mut(slot).extents[0];
        assert!(extent.start <= address && address <= extent.end);
        if address == extent.end {
            return self.drop_extent(slot, 0);
        }
        let first = extent.start / SEGLET_BYTES;
        extent.start = address;
        self.free_run(slot, Run { first, count: address / SEGLET_BYTES - first });
    }

    /// Adds a reader of a segment.
    pub(crate) fn pin(&mut self, slot: u32) {
        self.segment_mut(slot).pins += 1;
        self.pins += 1;
    }

    /// Drops one reader of a segment.
    pub(crate) fn unpin(&mut self, slot: u32) {
        self.pins -= 1;
        let segment = self.slots[slot as usize].as_mut().expect("slot is in use");
        segment.pins -= 1;
        if segment.pins > 0 {
            return;
        }
        for run in std::mem::take(&mut segment.limbo) {
            self.seglets.give(run);
        }
        let (id, cleaned) = (segment.id, segment.cleaned);
        if cleaned && self.by_id.get(&id) != Some(&slot) {
            self.vacate(slot);
        }
    }

    /// Whether a tombstone still guards against something on disk.
    pub(crate) fn tombstone_lives(&self, tombstone: &Entry<'_>) -> bool {
        debug_assert_eq!(tombstone.kind, Kind::Tombstone);
        let Ok(id) = tombstone.value.try_into().map(u64::from_le_bytes) else { return false };
        if tombstone.successor {
            self.by_id.first_key_value().is_some_and(|(&oldest, _)| oldest <= id)
        } else {
            self.by_id.contains_key(&id)
        }
    }
}

/// Seglets that an extent for an entry should at least have.
pub(crate) fn wanted_run(len: usize) -> usize {
    if len <= SMALL_ENTRY { 1 } else { LONG_RUN.max(2 * len.div_ceil(SEGLET_BYTES)) }
}

/// Seglets to take where `need` are needed and `free` are left.
fn growth(need: usize, free: usize) -> usize {
    (free / 16).clamp(1, EXTENT_GROWTH).max(need)
}

/// Returns the seglets behind an extent's last entry.
fn trim(extent: &mut Extent, seglets: &mut Seglets) {
    let cap = extent.end.next_multiple_of(SEGLET_BYTES);
    if cap < extent.cap {
        seglets.give(Run { first: cap / SEGLET_BYTES, count: (extent.cap - cap) / SEGLET_BYTES });
        extent.cap = cap;
    }
}
