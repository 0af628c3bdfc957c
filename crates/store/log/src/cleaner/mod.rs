//! The cleaner: makes room out of dead entries, a slice at a time.
//!
//! Two levels. **Compaction** ([`compact`]) slides the live entries of one segment together in
//! place and frees the seglets behind them. It needs no memory and no disk, so it can always run;
//! the segment's replica stays as it was. **Combination** ([`combine`]) moves the live entries of
//! several segments to survivors, new segments that are replicated; then the replicas of the old
//! ones may go, and with them the tombstones that guarded against them. Compaction is the daily
//! work; combination is for when the disk holds enough segments, or tombstones pile up.
//!
//! A slice looks at no more than [`SLICE_ENTRIES`] entries and ends once [`SLICE_BYTES`] were
//! looked at or moved, so that it costs a concurrent read about 10 microseconds: 32 lookups whose
//! cache misses overlap, and a copy of 16 KB. A single entry larger than that is moved in one go (1
//! MB: about 100 microseconds). Choosing what to clean reads at most [`choose::CHOICE_SCAN_MAX`]
//! segments' counters, a few microseconds more.
//!
//! Between slices everything is whole: every extent is a row of entries, every object is found,
//! every count is right.

pub(crate) mod choose;
mod combine;
mod compact;
mod defragment;
mod purge;

use crate::log::Log;
use crate::table::Place;
use sprat_wire::entry::{Entry, Kind};
use sprat_wire::tablet::hash;

/// Most entries looked at in a slice.
pub const SLICE_ENTRIES: usize = 32;

/// Bytes looked at in a slice, after which it ends.
pub const SLICE_BYTES: usize = 16 << 10;

/// Slices that one write pays for at most while there is room for it.
const SLICES_PER_WRITE: usize = 8;

/// Bytes that a slice is paid for by: a write of so many bytes pays one more.
const BYTES_PER_SLICE: usize = 4 << 10;

/// What the cleaner has done since the log was made.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CleanerStats {
    /// Slices that did something.
    pub slices: u64,
    /// Bytes of entries looked at.
    pub scanned_bytes: u64,
    /// Bytes of live entries moved within their segments.
    pub compacted_bytes: u64,
    /// Bytes of live entries moved to survivors: written to disk again.
    pub combined_bytes: u64,
    /// Segments that compaction went through.
    pub compacted_segments: u64,
    /// Segments that were combined into survivors.
    pub combined_segments: u64,
    /// Stretches of memory tidied for entries of several seglets.
    pub defragmented: u64,
    /// Compactions dropped as a reader came to hold the segment.
    pub interrupted: u64,
}

/// What a call of [`Log::clean`] did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CleanReport {
    /// Slices that did something.
    pub slices: usize,
    /// Whether there is nothing worth doing any more for now.
    pub idle: bool,
}

/// State of the cleaner between slices.
#[derive(Default)]
pub(crate) struct Cleaner {
    pub(super) compaction: Option<compact::Compaction>,
    pub(super) combination: Option<combine::Combination>,
    /// Finished combinations that no digest tells of yet, oldest first.
    pub(super) batches: std::collections::VecDeque<combine::Batch>,
    /// How far the purge of dropped tables is: hashes, bits reversed, from here on are to be done.
    pub(super) purge: Option<u64>,
    pub(super) cursor: usize,
    pub(super) stats: CleanerStats,
}

impl Cleaner {
    pub(crate) fn purge_from_start(&mut self) {
        self.purge = Some(0);
    }

    /// Whether there are cleaned segments that wait for the disk.
    pub(crate) fn waits(&self) -> bool {
        !self.batches.is_empty()
    }
}

/// What is left of a slice.
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

/// An entry that the cleaner comes by.
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
    Object(Place),
    Tombstone,
}

impl Log {
    /// Cleans for at most `slices` slices if that is worthwhile now: call it when idle.
    pub fn clean(&mut self, slices: usize) -> CleanReport {
        for done in 0..slices {
            if !self.slice(false) {
                return CleanReport { slices: done, idle: true };
            }
        }
        CleanReport { slices, idle: false }
    }

    /// Whether memory or disk are so scarce that [`Log::clean`] should run before more is written.
    #[must_use]
    pub fn needs_cleaning(&self) -> bool {
        self.memory.seglets.free() < self.low_water || self.disk_is_short()
    }

    /// Cleans on behalf of a write of `len` bytes.
    pub(crate) fn pay(&mut self, len: usize) {
        for _ in 0..(1 + len / BYTES_PER_SLICE).min(SLICES_PER_WRITE) {
            if !self.slice(false) {
                return;
            }
        }
    }

    /// Cleans because a write cannot go on otherwise; false when nothing can be done.
    pub(crate) fn forced_slice(&mut self) -> bool {
        self.slice(true)
    }

    /// One slice of whatever is most useful; false when there is nothing to do.
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

    /// Reads the entries from `from` on into `visits` and brings near what tells whether they are
    /// alive; returns how many.
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
                || (entry.kind == Kind::Tombstone && self.graves.is_some());
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

    /// Tells whether an entry is alive. The dead ones leave the books here.
    pub(super) fn judge(&mut self, visit: &Visit, slot: u32) -> Option<Live> {
        self.cleaner.stats.scanned_bytes += visit.len as u64;
        match visit.kind {
            Kind::Segment => None,
            Kind::Object => {
                let (place, _) = self.table.find(visit.hash, |address| address == visit.address)?;
                let Entry { table, key, .. } = self.memory.entry(visit.address);
                if !self.is_gone(table, key, visit.hash) {
                    return Some(Live::Object(place));
                }
                self.bury_gone(visit.hash, place, Visit::reference(visit), table);
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
                self.forget_grave(visit);
                None
            }
        }
    }

    /// Copies a live entry to `to` and has it found there.
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

    /// Lets whatever points to an entry, if anything does, point to `to`.
    pub(super) fn repoint(&mut self, visit: &Visit, to: usize) {
        let table = match visit.kind {
            Kind::Segment => return,
            Kind::Object => &mut self.table,
            Kind::Tombstone => match &mut self.graves {
                Some(graves) => graves,
                None => return,
            },
        };
        if let Some((place, _)) = table.find(visit.hash, |address| address == visit.address) {
            table.set(place, visit.hash, to);
        }
    }

    fn forget_grave(&mut self, visit: &Visit) {
        let Some(graves) = &mut self.graves else { return };
        if let Some((place, _)) = graves.find(visit.hash, |address| address == visit.address) {
            graves.remove(visit.hash, place);
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
