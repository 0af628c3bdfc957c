//! Copies of segments from memory: of single ones, to replace lost replicas, and of all that the
//! log has at one moment, for a backup of the store.
//!
//! A copy need not have the bytes that were first written: the cleaner may have compacted the live
//! entries and dropped the others. It has the same meaning *once the log is durable up to*
//! [`SegmentCopy::position`]. The reason: every entry that the cleaner dropped before the copy
//! began is dead because of something that was in the log by then. An object is dead because of a
//! later version or a tombstone. A tombstone is dead because a head, which was durable when the
//! tombstone was dropped, no longer lists the segments that it guards against. Later events cannot
//! change the copy: the segment is pinned until the copy ends.
//!
//! A copy begins with a header of its own; a head's copy has a header without a digest
//! ([`SegmentHeader::is_copy`]). All entries of a copy count, also a completion that is the last
//! one.

use crate::config::Durability;
use crate::log::Log;
use sprat_wire::entry::{Entry, Kind, Role, SegmentHeader};
use sprat_wire::expiry::NEVER;
use sprat_wire::value::ValueType;

/// The largest number of slices for which [`Log::cut`] continues a combination.
pub const CUT_SLICES: usize = 4;

/// A copy in progress. Return it by [`Log::end_copy`]: until then the cleaner leaves the segment
/// alone.
#[derive(Debug)]
#[must_use = "a copy holds memory until it is given back"]
pub struct SegmentCopy {
    slot: u32,
    position: u64,
    /// The next entry: index of the extent, and offset in it; `None` before the header.
    next: Option<(usize, usize)>,
}

impl SegmentCopy {
    /// Returns the position up to which the log must be durable before the copy may count.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Lets the copy begin again.
    pub fn rewind(&mut self) {
        self.next = None;
    }
}

impl Log {
    /// Begins to copy a segment. Returns `None` when the segment is unknown or not wholly durable,
    /// or when the cleaner moves, or has moved, its live entries to survivors.
    pub fn begin_copy(&mut self, segment: u64) -> Option<SegmentCopy> {
        let slot = *self.memory.by_id.get(&segment)?;
        self.is_copyable(slot).then(|| self.pin_copy(slot))
    }

    fn is_copyable(&self, slot: u32) -> bool {
        let combination = self.cleaner.combination.as_ref();
        let goes = combination.is_some_and(|combination| combination.takes_from(slot));
        let segment = self.memory.segment(slot);
        segment.wholly_durable() && !segment.cleaned && !goes
    }

    fn pin_copy(&mut self, slot: u32) -> SegmentCopy {
        self.memory.pin(slot);
        SegmentCopy { slot, position: self.position, next: None }
    }

    /// Returns the segments of which [`begin_copy`](Self::begin_copy) begins a copy now, with the
    /// bytes of their live entries, by ascending id. Segments without live entries are left out.
    pub fn copyable(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        let live = move |slot: u32| self.memory.segment(slot).live;
        let has_any = move |&(_, &slot): &(&u64, &u32)| live(slot) > 0 && self.is_copyable(slot);
        self.memory.by_id.iter().filter(has_any).map(move |(&id, &slot)| (id, live(slot)))
    }

    /// Cuts the log: seals the head, and begins a copy of each segment that has live entries. The
    /// copies together hold what the log holds now, once each [is settled](Self::is_settled).
    /// Returns them with their segments' ids and bytes of live entries, by ascending id.
    ///
    /// `None` while the cleaner moves entries to another segment, or there is no room for another
    /// head. Then each call cleans for [`CUT_SLICES`] slices, and the cleaner begins no other such
    /// work: call it again, or [`give_up_cut`](Self::give_up_cut).
    ///
    /// # Panics
    /// When the log has no disk: it has no tombstones then, and its segments do not show what was
    /// removed.
    pub fn cut(&mut self) -> Option<Vec<(u64, usize, SegmentCopy)>> {
        assert!(self.config.durability == Durability::Tracked);
        self.cleaner.holds_combinations = self.cleaner.combination.is_some();
        if self.cleaner.combination.is_some() && !self.continue_combination() {
            return None;
        }
        self.give_up_cut();
        let head = self.memory.segment(self.head);
        let is_fresh = head.appended == head.header_len;
        if !is_fresh && !self.roll_head() {
            (0..CUT_SLICES).take_while(|_| self.forced_slice()).for_each(drop);
            return None;
        }
        let memory = &self.memory;
        let holds_any = |slot: u32| {
            let segment = memory.segment(slot);
            segment.sealed && !segment.cleaned && segment.live > 0
        };
        let slots = memory.by_id.iter().filter(|&(_, &slot)| holds_any(slot));
        let slots: Vec<(u64, u32)> = slots.map(|(&id, &slot)| (id, slot)).collect();
        let copy = |(id, slot)| (id, self.memory.segment(slot).live, self.pin_copy(slot));
        Some(slots.into_iter().map(copy).collect())
    }

    /// Lets the cleaner go on as usual, although the log was not cut.
    pub fn give_up_cut(&mut self) {
        self.cleaner.holds_combinations = false;
    }

    /// Returns whether a copy that [`cut`](Self::cut) began may be continued: its segment is wholly
    /// durable.
    #[must_use]
    pub fn is_settled(&self, copy: &SegmentCopy) -> bool {
        self.memory.segment(copy.slot).wholly_durable()
    }

    /// Appends the next entries to `out`, at least `least` bytes unless the segment ends; returns
    /// whether there are more.
    pub fn continue_copy(&self, copy: &mut SegmentCopy, least: usize, out: &mut Vec<u8>) -> bool {
        let segment = self.memory.segment(copy.slot);
        let end = out.len() + least;
        let (mut extent, mut offset) = copy.next.unwrap_or_else(|| {
            let (id, role, safe_version) = (segment.id, segment.role, self.safe_version);
            let header = SegmentHeader { id, safe_version, role, digest: Vec::new() };
            push_header(out, &header);
            (0, 0)
        });
        let mut more = false;
        while let Some(&from) = segment.extents.get(extent) {
            if from.start + offset >= from.end {
                (extent, offset) = (extent + 1, 0);
                continue;
            }
            if out.len() >= end {
                more = true;
                break;
            }
            let at = from.start + offset;
            let entry = self.memory.entry(at);
            let len = entry.encoded_len();
            // Skips the header, and gaps that a compaction has left, which have no checksum.
            if entry.kind != Kind::Segment {
                out.extend_from_slice(&self.memory.bytes[at..at + len]);
            }
            offset += len;
        }
        copy.next = Some((extent, offset));
        more
    }

    /// Ends a copy, finished or not.
    #[expect(clippy::needless_pass_by_value, reason = "a copy is given back once")]
    pub fn end_copy(&mut self, copy: SegmentCopy) {
        self.memory.unpin(copy.slot);
    }

    /// Opens a new head early, so that combined segments which wait for nothing else can be freed.
    /// Returns false if there are no such segments, or no room for the head.
    pub fn release_combined(&mut self) -> bool {
        self.roll_for_batches()
    }
}

fn push_header(out: &mut Vec<u8>, header: &SegmentHeader) {
    debug_assert!(header.role == Role::Survivor || header.is_copy());
    let value = header.encode();
    let (kind, version, value_type) = (Kind::Segment, header.safe_version, ValueType::Bytes);
    let entry = Entry {
        kind,
        successor: false,
        table: 0,
        version,
        key: &[],
        value: &value,
        value_type,
        expires: NEVER,
    };
    let at = out.len();
    out.resize(at + entry.encoded_len(), 0);
    entry.encode(&mut out[at..]);
}
