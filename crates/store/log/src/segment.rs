//! Segments and their memory.

use crate::arena::Mapping;
use crate::seglets::{Run, Seglets};
use sprat_wire::SEGLET_BYTES;
use sprat_wire::entry::{Entry, Kind, Role};
use std::collections::BTreeMap;

/// Entries of up to this length, in bytes, may go into extents of any size, because they leave few
/// bytes unused at an extent's end.
const SMALL_ENTRY: usize = SEGLET_BYTES / 16;

/// A new extent for a long entry gets at least this number of seglets, and at least twice the
/// seglets of the entry, so that little of the extent's end is unused. If there is no such run, it
/// gets as few as the entry needs.
const LONG_RUN: usize = 8;

/// Seglets that a segment takes at a time when memory is plentiful and the entry needs no more: the
/// number in a huge page.
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

    /// Returns the seglets of the extent.
    pub(crate) fn run(&self) -> Run {
        let first = self.start / SEGLET_BYTES;
        Run { first, count: self.cap / SEGLET_BYTES - first }
    }
}

/// A segment of the log.
pub(crate) struct Segment {
    pub(crate) id: u64,
    pub(crate) role: Role,
    /// The segment's memory: in log order until the segment is closed, in any order afterwards. If
    /// there is none, only the replica on disk is left.
    pub(crate) extents: Vec<Extent>,
    /// Bytes ever appended: the length of the segment's byte stream.
    pub(crate) appended: usize,
    /// Bytes of the stream handed out for replication.
    pub(crate) submitted: usize,
    /// Bytes of the stream that are durable.
    pub(crate) durable: usize,
    /// Whether nothing will be appended any more.
    pub(crate) sealed: bool,
    /// Whether the seal was handed to the replica, and whether it is durable.
    pub(crate) seal_submitted: bool,
    pub(crate) seal_durable: bool,
    /// Whether the next head's digest lists the segment.
    pub(crate) listed: bool,
    /// Whether the segment is sealed, wholly durable and listed, so that the cleaner may take it.
    pub(crate) closed: bool,
    /// Whether all live entries were moved elsewhere; the segment then waits until its replica may
    /// be freed.
    pub(crate) cleaned: bool,
    /// Bytes of live entries, including tombstones but not the segment's header.
    pub(crate) live: usize,
    /// Bytes of the tombstones in `live`.
    pub(crate) tombstones: usize,
    /// Position of the log when the segment was opened. For a survivor: the mean of its sources'
    /// positions, weighted by their live bytes. The cleaner computes the segment's age from this
    /// position.
    pub(crate) written_at: u64,
    /// For a head: position of the log at the head's first byte.
    pub(crate) base: u64,
    /// For a head: length of its header, and the ids of the segments whose replicas may be freed
    /// when that header is durable.
    pub(crate) header_len: usize,
    pub(crate) freed_segments: Vec<u64>,
    /// Number of readers of the segment's memory.
    pub(crate) pins: u32,
    /// Memory that the segment no longer needs, but that is pinned.
    pub(crate) limbo: Vec<Run>,
    /// The log's count of reclaimed segments when the tombstones here were last checked.
    pub(crate) checked_at: u64,
    /// Live bytes when the last compaction of the segment ended without freeing anything;
    /// `usize::MAX` if it freed something. The segment is not compacted again until a quarter of a
    /// seglet of these bytes is dead.
    pub(crate) futile_live: usize,
}

impl Segment {
    /// Returns the number of the segment's seglets, not counting those in `limbo`.
    pub(crate) fn seglets(&self) -> usize {
        self.extents.iter().map(|extent| extent.run().count).sum()
    }

    pub(crate) fn wholly_durable(&self) -> bool {
        self.seal_durable
    }
}

/// Why an entry did not get room.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NoRoom {
    /// The segment would be longer than a segment may be.
    Segment,
    /// There are as many segments on disk as allowed.
    Disk,
    /// There are too few free seglets.
    Memory,
    /// There are enough free seglets, but no run of this length.
    Fragmented { run: usize },
}

/// The arena, the map of its seglets, and all segments.
pub(crate) struct Memory {
    pub(crate) bytes: Mapping<u8>,
    pub(crate) seglets: Seglets,
    slots: Vec<Option<Segment>>,
    vacant: Vec<u32>,
    /// Every segment whose replica may still be read at a restart, by id.
    pub(crate) by_id: BTreeMap<u64, u32>,
    pub(crate) next_id: u64,
    /// Number of readers of all segments.
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

    /// Returns the segment in `slot`, if there is one.
    pub(crate) fn get(&self, slot: u32) -> Option<&Segment> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// Returns the segment that owns the memory at `address`.
    #[inline]
    pub(crate) fn owner_mut(&mut self, address: usize) -> &mut Segment {
        let slot = self.seglets.owner(address);
        self.segment_mut(slot)
    }

    /// All segments with their slots.
    pub(crate) fn segments(&self) -> impl Iterator<Item = (u32, &Segment)> {
        (0u32..).zip(&self.slots).filter_map(|(slot, segment)| Some((slot, segment.as_ref()?)))
    }

    /// Returns the number of slots, used and vacant.
    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// Returns the entry at `address`.
    #[inline]
    pub(crate) fn entry(&self, address: usize) -> Entry<'_> {
        Entry::parse(&self.bytes[address..])
            .expect("memory holds what was checked when it was written")
    }

    /// Adds a segment without memory.
    pub(crate) fn add(&mut self, id: u64, role: Role, written_at: u64) -> u32 {
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
            written_at,
            base: written_at,
            header_len: 0,
            freed_segments: Vec::new(),
            pins: 0,
            limbo: Vec::new(),
            seal_submitted: false,
            seal_durable: false,
            checked_at: 0,
            futile_live: usize::MAX,
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

    /// Forgets a cleaned segment. If it is still pinned, its slot stays in use until it is
    /// unpinned.
    pub(crate) fn forget(&mut self, id: u64) {
        let slot = self.by_id.remove(&id).expect("segment is known");
        let segment = self.segment(slot);
        assert!(segment.cleaned && segment.live == 0 && segment.extents.is_empty());
        if segment.pins == 0 {
            self.vacate(slot);
        }
    }

    /// Removes a segment that never got an entry.
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

    /// Takes `len` contiguous bytes at the end of a segment of at most `limit` bytes, and leaves at
    /// least `floor` seglets of the arena free. A new extent has at least `run` seglets, and at
    /// least as many as the entry needs.
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

    /// Gives back the last `len` bytes of a segment, which were taken and hold no entries.
    pub(crate) fn shorten(&mut self, slot: u32, len: usize) {
        let segment = self.segment_mut(slot);
        segment.appended -= len;
        let last = segment.extents.last_mut().expect("bytes were taken");
        last.end -= len;
        assert!(last.start <= last.end && !segment.sealed);
        if last.start == last.end {
            let extent = segment.extents.len() - 1;
            self.drop_extent(slot, extent);
        }
    }

    /// Seals a segment: nothing will be appended any more. Frees its unused seglets.
    pub(crate) fn seal(&mut self, slot: u32) {
        let segment = self.slots[slot as usize].as_mut().expect("slot is in use");
        assert!(!segment.sealed);
        segment.sealed = true;
        if let Some(last) = segment.extents.last_mut() {
            trim(last, &mut self.seglets);
        }
        segment.extents.shrink_to_fit();
    }

    /// Truncates an extent at `end`, and frees the seglets behind.
    pub(crate) fn truncate(&mut self, slot: u32, extent: usize, end: usize) {
        let segment = self.slots[slot as usize].as_mut().expect("slot is in use");
        let extent = &mut segment.extents[extent];
        assert!(extent.start < end && end <= extent.end && segment.pins == 0);
        extent.end = end;
        trim(extent, &mut self.seglets);
    }

    /// Removes an extent from a segment and frees it, at once or when the last pin ends.
    pub(crate) fn drop_extent(&mut self, slot: u32, extent: usize) {
        let run = self.segment_mut(slot).extents.remove(extent).run();
        self.free_run(slot, run);
    }

    /// Frees seglets that a segment no longer needs, at once or when its last pin ends.
    pub(crate) fn free_run(&mut self, slot: u32, run: Run) {
        let segment = self.slots[slot as usize].as_mut().expect("slot is in use");
        if run.count == 0 {
        } else if segment.pins == 0 {
            self.seglets.give(run);
        } else {
            segment.limbo.push(run);
        }
    }

    /// Moves the beginning of a segment's first extent up to `address`, and frees the memory before
    /// it.
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

    /// Removes a reader of a segment.
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

    /// Returns whether a tombstone still guards against a segment on disk.
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

/// Returns the smallest number of seglets that an extent for an entry of `len` bytes should have.
pub(crate) fn wanted_run(len: usize) -> usize {
    if len <= SMALL_ENTRY { 1 } else { LONG_RUN.max(2 * len.div_ceil(SEGLET_BYTES)) }
}

/// Returns the number of seglets to take when the entry needs `need` seglets and `free` are free.
fn growth(need: usize, free: usize) -> usize {
    (free / 16).clamp(1, EXTENT_GROWTH).max(need)
}

/// Frees the seglets behind an extent's last entry.
fn trim(extent: &mut Extent, seglets: &mut Seglets) {
    let cap = extent.end.next_multiple_of(SEGLET_BYTES);
    if cap < extent.cap {
        seglets.give(Run { first: cap / SEGLET_BYTES, count: (extent.cap - cap) / SEGLET_BYTES });
        extent.cap = cap;
    }
}
