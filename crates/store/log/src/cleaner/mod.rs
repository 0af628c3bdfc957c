//! The cleaner: frees the memory of dead entries, a slice at a time.
//!
//! It has two levels. **Compaction** ([`compact`]) moves the live entries of one segment together
//! in place and frees the seglets behind them. It needs no memory and no disk, so it can always
//! run; the segment's replica stays as it was. **Combination** ([`combine`]) moves the live entries
//! of several segments to survivors, which are new segments that are replicated. Then the replicas
//! of the old segments can be freed, and the tombstones that guarded against them. Compaction is
//! the normal case; combination is for when the disk is nearly full of segments, or tombstones pile
//! up.
//!
//! A slice examines at most [`SLICE_ENTRIES`] entries and ends once it has examined or moved
//! [`SLICE_BYTES`], so it delays a concurrent read by about 10 microseconds: 32 lookups whose cache
//! misses overlap, and a copy of 16 KB. A single entry larger than that is moved in one go (1 MB:
//! about 100 microseconds). A combination that finds no contiguous room for an entry also runs
//! [`defragment`], which may take milliseconds. Choosing the next segment reads at most
//! [`choose::CHOICE_SCAN_MAX`] segments' counters, a few microseconds more.
//!
//! Between slices all invariants hold: every extent is a row of entries, every object is found,
//! every count is right.

pub(crate) mod choose;
mod combine;
mod compact;
mod defragment;
mod purge;

use crate::copy::CUT_SLICES;
use crate::log::Log;
use crate::table::TableSlot;
use sprat_wire::entry::{Entry, Kind};
use sprat_wire::tablet::hash;

/// The largest number of entries that a slice examines.
pub const SLICE_ENTRIES: usize = 32;

/// A slice ends once it has examined or moved this number of bytes.
pub const SLICE_BYTES: usize = 16 << 10;

/// The largest number of cleaning slices that one write runs while there is room for the write.
const SLICES_PER_WRITE: usize = 8;

/// A write that cleans runs one slice, and one more for each full 4 KB of the entry, up to
/// [`SLICES_PER_WRITE`].
const BYTES_PER_SLICE: usize = 4 << 10;

/// Counters of the cleaner since the log was made.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CleanerStats {
    /// Slices that did something.
    pub slices: u64,
    /// Bytes of entries examined.
    pub scanned_bytes: u64,
    /// Bytes of live entries in compacted segments, whether they had to be moved or not, and bytes
    /// of extents that were moved to defragment memory.
    pub compacted_bytes: u64,
    /// Bytes of live entries moved to survivors, which are replicated again.
    pub combined_bytes: u64,
    /// Segments that were compacted.
    pub compacted_segments: u64,
    /// Segments that were combined into survivors.
    pub combined_segments: u64,
    /// Spans of memory defragmented for entries of several seglets.
    pub defragmented: u64,
    /// Compactions abandoned because a reader pinned the segment.
    pub interrupted: u64,
}

/// The result of a call of [`Log::clean`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CleanReport {
    /// Slices that did something.
    pub slices: usize,
    /// Whether cleaning ended because nothing worthwhile can be done now. Work that waits for the
    /// disk or for readers may be left.
    pub idle: bool,
}

/// State of the cleaner between slices.
#[derive(Default)]
pub(crate) struct Cleaner {
    pub(super) compaction: Option<compact::Compaction>,
    pub(super) combination: Option<combine::Combination>,
    /// Finished combinations that no digest lists yet, oldest first.
    pub(super) batches: std::collections::VecDeque<combine::FinishedCombination>,
    /// Progress of the purge of dropped tables and tablets, and of clients that are gone; `None`
    /// when there is nothing to purge. Objects whose reversed hash is at least this number are
    /// still to be examined.
    pub(super) purge: Option<u64>,
    pub(super) cursor: usize,
    /// Number of choices to leave out while enough memory is free: as many as the segments that the
    /// last one looked at in vain, so that idle time costs no more than a step for each.
    pub(super) rest: usize,
    /// Whether no combination may begin, because a [cut](Log::cut) waits for the end of one.
    pub(crate) holds_combinations: bool,
    pub(super) stats: CleanerStats,
}

impl Cleaner {
    pub(crate) fn purge_from_start(&mut self) {
        self.purge = Some(0);
    }

    /// Returns whether cleaned segments wait for the disk.
    pub(crate) fn waits(&self) -> bool {
        !self.batches.is_empty()
    }
}

/// The number of entries and bytes that the current slice may still examine or move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    entries: usize,
    bytes: usize,
}

impl Budget {
    fn slice() -> Self {
        Self { entries: SLICE_ENTRIES, bytes: SLICE_BYTES }
    }

    fn take(&mut self, bytes: usize) {
        self.entries = self.entries.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    fn is_spent(self) -> bool {
        self.entries == 0 || self.bytes == 0
    }
}

/// An entry that the cleaner examines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visit {
    address: usize,
    len: usize,
    kind: Kind,
    hash: u64,
}

/// A live entry.
#[derive(Clone, Copy, Debug)]
pub(super) enum Live {
    Object(TableSlot),
    Tombstone,
}

impl Log {
    /// Runs at most `slices` slices of cleaning, as long as cleaning is worthwhile now. Call it
    /// when idle.
    pub fn clean(&mut self, slices: usize) -> CleanReport {
        for done in 0..slices {
            if !self.slice(false) {
                return CleanReport { slices: done, idle: true };
            }
        }
        CleanReport { slices, idle: false }
    }

    /// Returns whether memory or disk are so scarce that [`Log::clean`] should run before more is
    /// written.
    #[must_use]
    pub fn needs_cleaning(&self) -> bool {
        self.memory.seglets.free() < self.low_water || self.disk_is_short()
    }

    /// Cleans on behalf of a write of `len` bytes: runs one slice, and one more for each
    /// [`BYTES_PER_SLICE`] bytes, up to [`SLICES_PER_WRITE`]. Stops when nothing can be cleaned.
    pub(crate) fn clean_for_write(&mut self, len: usize) {
        for _ in 0..(1 + len / BYTES_PER_SLICE).min(SLICES_PER_WRITE) {
            if !self.slice(false) {
                return;
            }
        }
    }

    /// Continues the combination in progress for [`CUT_SLICES`] slices; returns whether it has
    /// ended.
    pub(crate) fn continue_combination(&mut self) -> bool {
        for _ in 0..CUT_SLICES {
            if self.cleaner.combination.is_none() {
                break;
            }
            let mut worked = self.combine_step(&mut Budget::slice(), true);
            // It waits if the next segment is being compacted.
            if !worked && self.cleaner.compaction.is_some() {
                worked = self.compact_step(&mut Budget::slice(), false);
            }
            if !worked {
                break;
            }
        }
        self.cleaner.combination.is_none()
    }

    /// Cleans because a write cannot continue otherwise; returns false when nothing can be done.
    pub(crate) fn forced_slice(&mut self) -> bool {
        self.slice(true)
    }

    /// Runs one slice of the most useful work; returns false when nothing worthwhile can be done
    /// now.
    fn slice(&mut self, forced: bool) -> bool {
        let mut budget = Budget::slice();
        let mut worked = self.purge_step(&mut budget);
        let combine_first = self.disk_is_short() || self.tombstones_pile_up();
        if combine_first && !budget.is_spent() {
            worked |= self.combine_step(&mut budget, forced) || self.roll_for_batches();
        }
        if !budget.is_spent() && (!worked || !combine_first) {
            worked |= self.compact_step(&mut budget, forced);
        }
        if !worked && !combine_first {
            worked = self.combine_step(&mut budget, forced) || (forced && self.roll_for_batches());
        }
        if !worked && forced {
            worked = self.roll_dead_head();
        }
        self.cleaner.stats.slices += u64::from(worked);
        worked
    }

    /// Reads the entries from `from` on into `visits`, up to `end` or as many as `budget` permits.
    /// Prefetches the lines of the hash table that show whether these entries are alive. Returns
    /// their number.
    pub(super) fn gather(
        &self,
        from: usize,
        end: usize,
        budget: Budget,
        visits: &mut [Visit; SLICE_ENTRIES],
    ) -> usize {
        let (mut address, mut count) = (from, 0);
        let mut bytes = 0;
        while address < end && count < budget.entries.min(SLICE_ENTRIES) && bytes < budget.bytes {
            let entry = self.memory.entry(address);
            let len = entry.encoded_len();
            let sought = entry.kind == Kind::Object
                || (entry.kind == Kind::Tombstone && self.tombstone_table.is_some());
            let hash = if sought { hash(self.config.seed, entry.table, entry.key) } else { 0 };
            if sought {
                self.table.prefetch(hash);
            }
            visits[count] = Visit { address, len, kind: entry.kind, hash };
            count += 1;
            bytes += len;
            address += len;
        }
        count
    }

    /// Returns what an entry is if it is alive. If it is dead, returns `None`, and subtracts it
    /// from the counters if they still include it.
    pub(super) fn check_live(&mut self, visit: &Visit, slot: u32) -> Option<Live> {
        self.cleaner.stats.scanned_bytes += visit.len as u64;
        match visit.kind {
            Kind::Segment => None,
            Kind::Object => {
                let (place, _) = self.table.find(visit.hash, |address| address == visit.address)?;
                let Entry { table, key, .. } = self.memory.entry(visit.address);
                if !self.is_gone(table, key, visit.hash) {
                    return Some(Live::Object(place));
                }
                self.remove_dead(visit.hash, place, Visit::reference(visit), table);
                None
            }
            Kind::Tombstone => {
                if self.memory.tombstone_lives(&self.memory.entry(visit.address)) {
                    return Some(Live::Tombstone);
                }
                let segment = self.memory.segment_mut(slot);
                segment.live -= visit.len;
                segment.tombstones -= visit.len;
                self.tombstone_bytes -= visit.len;
                self.forget_tombstone(visit);
                None
            }
        }
    }

    /// Copies a live entry to `to` and updates the hash table.
    pub(super) fn relocate(&mut self, visit: &Visit, live: Live, to: usize) {
        if to == visit.address {
            return;
        }
        self.memory.bytes.copy_within(visit.address..visit.address + visit.len, to);
        match live {
            Live::Object(place) => self.table.set(place, visit.hash, to),
            Live::Tombstone => self.repoint(visit, to),
        }
    }

    /// Makes the hash table point to `to` instead of to the entry's address, if it points there.
    pub(super) fn repoint(&mut self, visit: &Visit, to: usize) {
        let table = match visit.kind {
            Kind::Segment => return,
            Kind::Object => &mut self.table,
            Kind::Tombstone => match &mut self.tombstone_table {
                Some(tombstone_table) => tombstone_table,
                None => return,
            },
        };
        if let Some((place, _)) = table.find(visit.hash, |address| address == visit.address) {
            table.set(place, visit.hash, to);
        }
    }

    fn forget_tombstone(&mut self, visit: &Visit) {
        let Some(tombstone_table) = &mut self.tombstone_table else { return };
        if let Some((place, _)) =
            tombstone_table.find(visit.hash, |address| address == visit.address)
        {
            tombstone_table.remove(visit.hash, place);
        }
    }
}

impl Visit {
    const NONE: Self = Self { address: 0, len: 0, kind: Kind::Segment, hash: 0 };

    fn reference(&self) -> crate::Ref {
        crate::Ref { address: self.address, len: self.len }
    }
}

/// An empty batch of visits.
pub(super) const NO_VISITS: [Visit; SLICE_ENTRIES] = [Visit::NONE; SLICE_ENTRIES];
