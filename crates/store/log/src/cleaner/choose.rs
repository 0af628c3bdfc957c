//! Chooses the next segment to clean, and whether to clean at all.

use crate::config::{CLEANER_SEGMENTS, Durability};
use crate::log::{Appender, Log, NO_SLOT};
use crate::segment::Segment;
use sprat_wire::SEGLET_BYTES;

/// The largest number of segments examined for one choice. In a log with more segments, each choice
/// continues where the previous one ended.
pub(crate) const CHOICE_SCAN_MAX: usize = 4096;

/// The largest number of segments that one combination takes. It takes those with the best scores,
/// or the oldest ones if tombstones pile up.
const SOURCES_MAX: usize = 32;

/// Limit on the live bytes that one combination moves, as a number of survivor segments.
pub(super) const SURVIVORS_MAX: usize = 3;

/// The smallest number of free segments on disk with which a combination can begin: one for a
/// survivor, and one for the head that lists it.
pub(super) const LEAST_ROOM: usize = 2;

/// In idle time a compaction must free at least this fraction of a segment's memory: a sixteenth;
/// a half while enough memory is free.
const IDLE_GAIN: usize = 16;
const ROOMY_GAIN: usize = 2;

/// Much of the memory in use is dead if more than half of it is, and more than this number of
/// segments.
const DEAD_SEGMENTS: usize = 2;

/// The cleaner frees the segments that tombstones guard against once tombstones take more than a
/// quarter of the memory that objects leave free.
const TOMBSTONE_SHARE: usize = 4;

impl Log {
    /// Returns whether the number of segments on disk is close to the maximum.
    pub(super) fn disk_is_short(&self) -> bool {
        let most = self.most_on_disk();
        self.memory.by_id.len() + 2 * CLEANER_SEGMENTS + most / 16 >= most
    }

    /// Returns the number of segments that the disk still has room for; without a disk, unlimited.
    pub(crate) fn disk_room(&self) -> usize {
        match self.config.durability {
            Durability::Volatile => usize::MAX,
            Durability::Tracked => self.most_on_disk().saturating_sub(self.memory.by_id.len()),
        }
    }

    /// Returns the largest number of segments allowed on disk now: the smaller of the configured
    /// limit and the disk's.
    fn most_on_disk(&self) -> usize {
        self.config.max_segments_on_disk.min(self.disk_limit)
    }

    /// Returns whether tombstones take so much memory that the cleaner should free the segments
    /// that the tombstones guard against.
    pub(super) fn tombstones_pile_up(&self) -> bool {
        let left = self.memory.seglets.total() * SEGLET_BYTES - self.object_bytes;
        self.tombstone_bytes > left / TOMBSTONE_SHARE
    }

    /// Returns the segments that may be chosen, with their slots. They are in a window of all
    /// segments, which advances from one choice to the next.
    fn candidates(&mut self) -> impl Iterator<Item = (u32, &Segment)> {
        let count = self.memory.slot_count();
        let from = if count > CHOICE_SCAN_MAX { self.cleaner.cursor % count } else { 0 };
        self.cleaner.cursor = from + CHOICE_SCAN_MAX;
        let this = &*self;
        (from..count).chain(0..from).take(CHOICE_SCAN_MAX).filter_map(move |slot| {
            let slot = u32::try_from(slot).expect("slots are counted in u32");
            let segment = this.memory.get(slot)?;
            this.may_be_moved(slot, segment).then_some((slot, segment))
        })
    }

    /// Returns whether a segment's entries may be moved in memory. A combination's sources may be
    /// moved, because the combination remembers no address in them: it continues at the start of
    /// the first source's first extent.
    pub(super) fn may_be_moved(&self, slot: u32, segment: &Segment) -> bool {
        let compacted = self.cleaner.compaction.as_ref().is_some_and(|job| job.slot == slot);
        segment.closed && !segment.cleaned && segment.pins == 0 && !compacted
    }

    /// Returns whether so much of the memory in use is dead that cleaning is worthwhile although
    /// enough memory is free: objects may have expired, or a table may have been dropped.
    fn is_mostly_dead(&self) -> bool {
        let seglets = &self.memory.seglets;
        let used = (seglets.total() - seglets.free()) * SEGLET_BYTES;
        let dead = used.saturating_sub(self.object_bytes + self.tombstone_bytes);
        dead > used / 2 && dead > DEAD_SEGMENTS * self.config.segment_bytes
    }

    /// Returns the segment whose compaction frees the most for its cost, see [`score`]. `None` if
    /// no compaction is worthwhile.
    pub(super) fn choose_compaction(&mut self, forced: bool) -> Option<u32> {
        let free = self.memory.seglets.free();
        let enough = !forced && free >= self.idle_water;
        if enough {
            self.cleaner.rest = self.cleaner.rest.saturating_sub(1);
            if self.cleaner.rest > 0 || !self.is_mostly_dead() {
                return None;
            }
        }
        let idle = free >= self.low_water && !forced;
        let least_gain = if enough { ROOMY_GAIN } else { IDLE_GAIN };
        let (position, reclaimed, memory) = (self.position, self.reclaimed, self.config.memory);
        let mut best = (0.0, NO_SLOT);
        for (slot, segment) in self.candidates() {
            let live = live_estimate(segment, reclaimed);
            let seglets = segment.seglets();
            let gain = seglets.saturating_sub(live.div_ceil(SEGLET_BYTES));
            let futile = live.saturating_add(SEGLET_BYTES / 4) > segment.futile_live;
            if gain == 0 || futile || (idle && gain < seglets.div_ceil(least_gain)) {
                continue;
            }
            let score = score(live, seglets * SEGLET_BYTES, position - segment.written_at, memory);
            if score > best.0 {
                best = (score, slot);
            }
        }
        if enough && best.1 == NO_SLOT {
            self.cleaner.rest = self.memory.slot_count().min(CHOICE_SCAN_MAX);
        }
        (best.1 != NO_SLOT).then_some(best.1)
    }

    /// Returns the segments to combine, which together have at most `most` live bytes. Returns no
    /// segment if combining is not needed or would not help.
    pub(super) fn choose_combination(&mut self, forced: bool, most: usize) -> Vec<u32> {
        let short = self.disk_is_short();
        let pile = self.tombstones_pile_up() || (forced && self.tombstone_bytes > 0);
        if !short && !pile && !forced {
            return Vec::new();
        }
        let (position, reclaimed, memory) = (self.position, self.reclaimed, self.config.memory);
        let segment_bytes = self.config.segment_bytes;
        // Freeing the oldest segments lets tombstones die. Freeing the segments with the fewest
        // live bytes gains the most disk space.
        let oldest_first = pile && !short;
        let mut order: Vec<(f64, u64, u32)> = self
            .candidates()
            .map(|(slot, segment)| {
                let live = live_estimate(segment, reclaimed);
                let score = if oldest_first {
                    0.0
                } else {
                    score(live, segment_bytes, position - segment.written_at, memory)
                };
                (-score, segment.id, slot)
            })
            .collect();
        let by_score =
            |a: &(f64, u64, u32), b: &(f64, u64, u32)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        if order.len() > SOURCES_MAX {
            order.select_nth_unstable_by(SOURCES_MAX, by_score);
            order.truncate(SOURCES_MAX);
        }
        order.sort_unstable_by(by_score);
        let mut chosen = Vec::new();
        let (mut live, mut seglets) = (0, 0);
        for (_, _, slot) in order {
            let segment = self.memory.segment(slot);
            if live + segment.live > most {
                break;
            }
            live += segment.live;
            seglets += segment.seglets();
            chosen.push(slot);
        }
        // Adds a sixteenth for headers, and for the ends of survivors where no entry fits.
        let survivors = (live + live / 16).div_ceil(segment_bytes);
        let wins_disk = chosen.len() > survivors;
        let wins_memory = seglets > live.div_ceil(SEGLET_BYTES) + survivors;
        let tracked = self.config.durability == Durability::Tracked;
        let helps = if short { wins_disk } else { pile || wins_memory };
        if !helps || (tracked && chosen.len() < survivors) {
            chosen.clear();
        }
        chosen
    }

    /// Seals the head if more than two seglets of its entries are dead, so that it can be cleaned.
    /// Returns whether it did.
    pub(super) fn roll_dead_head(&mut self) -> bool {
        if self.head == NO_SLOT || self.disk_room() <= LEAST_ROOM {
            return false;
        }
        let head = self.memory.segment(self.head);
        let dead = head.appended - head.header_len - head.live;
        dead > 2 * SEGLET_BYTES && self.open_head(Appender::Cleaner).is_ok()
    }
}

/// Estimates the live bytes of a segment. The cleaner does not notice a tombstone's death at once,
/// so half of the tombstones count as dead if any segment was reclaimed since they were checked.
fn live_estimate(segment: &Segment, reclaimed: u64) -> usize {
    if segment.checked_at == reclaimed {
        segment.live
    } else {
        segment.live - segment.tombstones / 2
    }
}

/// Benefit over cost of cleaning a segment whose share of live bytes is u: (1 - u) / (1 + u), times
/// a weight of its age between a half and three halves. Old entries tend to stay alive, so the room
/// gained from old segments lasts. The weight is bounded, unlike the weight that cleaners of disks
/// usually use, because otherwise, when writes are spread evenly, old segments would be cleaned
/// again and again for next to nothing.
#[expect(clippy::cast_precision_loss, reason = "a heuristic")]
fn score(live: usize, bytes: usize, age: u64, memory: usize) -> f64 {
    let used = live as f64 / bytes.max(1) as f64;
    let age = age as f64 / (age as f64 + memory as f64);
    (1.0 - used).max(1e-6) / (1.0 + used) * (0.5 + age)
}
