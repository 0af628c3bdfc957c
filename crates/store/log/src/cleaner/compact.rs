//! Level 1: moves the live entries of a segment together in place.

use super::{Budget, NO_VISITS};
use crate::Durability;
use crate::log::Log;
use sprat_wire::entry::fill_gap;

/// A compaction in progress. It moves entries from `source` to `target`, and `target` never
/// overtakes `source`. The target's extent is either the source's extent or the one directly before
/// it, because the extents in between have been emptied and freed.
#[derive(Debug)]
pub(crate) struct Compaction {
    pub(super) slot: u32,
    id: u64,
    target_extent: usize,
    target: usize,
    source_extent: usize,
    source: usize,
    seglets_before: usize,
}

impl Log {
    /// Continues the compaction in progress, or begins one if that is worthwhile. Returns whether
    /// it did something.
    pub(super) fn compact_step(&mut self, budget: &mut Budget, forced: bool) -> bool {
        let job = self.cleaner.compaction.take().filter(|job| {
            // The slot may have another segment by now, and a pinned segment must stay as it is.
            let segment = self.memory.get(job.slot).filter(|segment| segment.id == job.id);
            let goes_on = segment
                .is_some_and(|segment| segment.pins == 0 && segment.closed && !segment.cleaned);
            self.cleaner.stats.interrupted += u64::from(!goes_on);
            goes_on
        });
        let Some(mut job) = job.or_else(|| self.begin_compaction(forced)) else { return false };
        while !budget.is_spent() {
            let segment = self.memory.segment(job.slot);
            let Some(extent) = segment.extents.get(job.source_extent) else {
                self.finish_compaction(&job);
                return true;
            };
            if job.source == extent.end {
                self.leave_extent(&mut job);
                continue;
            }
            let mut visits = NO_VISITS;
            let count = self.gather(job.source, extent.end, *budget, &mut visits);
            for visit in &visits[..count] {
                if let Some(live) = self.check_live(visit, job.slot) {
                    let to = self.slide(&mut job, visit.len);
                    self.relocate(visit, live, to);
                    self.cleaner.stats.compacted_bytes += visit.len as u64;
                }
                job.source = visit.address + visit.len;
                budget.take(visit.len);
            }
        }
        self.close_gap(&job);
        self.cleaner.compaction = Some(job);
        true
    }

    fn begin_compaction(&mut self, forced: bool) -> Option<Compaction> {
        let slot = self.choose_compaction(forced)?;
        let segment = self.memory.segment(slot);
        let start = segment.extents[0].start;
        Some(Compaction {
            slot,
            id: segment.id,
            target_extent: 0,
            target: start,
            source_extent: 0,
            source: start,
            seglets_before: segment.seglets(),
        })
    }

    /// Returns the address to which to move the next live entry. It is at or before the entry's
    /// present address.
    fn slide(&mut self, job: &mut Compaction, len: usize) -> usize {
        let extents = &mut self.memory.segment_mut(job.slot).extents;
        if job.target_extent < job.source_extent {
            let extent = &mut extents[job.target_extent];
            if job.target + len <= extent.cap {
                let to = job.target;
                job.target += len;
                extent.end = job.target;
                return to;
            }
            job.target_extent = job.source_extent;
            job.target = extents[job.source_extent].start;
        }
        let to = job.target;
        job.target += len;
        to
    }

    /// Leaves the source's extent, whose entries have all been moved: frees the memory behind them,
    /// and continues with the next extent.
    fn leave_extent(&mut self, job: &mut Compaction) {
        let start = self.memory.segment(job.slot).extents[job.source_extent].start;
        if job.target_extent == job.source_extent && job.target > start {
            self.memory.truncate(job.slot, job.source_extent, job.target);
            job.source_extent += 1;
        } else {
            self.memory.drop_extent(job.slot, job.source_extent);
            if job.target_extent == job.source_extent && job.target_extent > 0 {
                job.target_extent -= 1;
                job.target = self.memory.segment(job.slot).extents[job.target_extent].end;
            }
        }
        if let Some(next) = self.memory.segment(job.slot).extents.get(job.source_extent) {
            job.source = next.start;
            if job.target_extent == job.source_extent {
                job.target = next.start;
            }
        }
    }

    /// Fills the bytes between the last entry that was moved and the first that is still to be
    /// moved, so that a walk can skip these bytes.
    fn close_gap(&mut self, job: &Compaction) {
        let extent = self.memory.segment(job.slot).extents[job.source_extent];
        let from = if job.target_extent == job.source_extent { job.target } else { extent.start };
        fill_gap(&mut self.memory.bytes[from..job.source]);
    }

    fn finish_compaction(&mut self, job: &Compaction) {
        self.cleaner.stats.compacted_segments += 1;
        let reclaimed = self.reclaimed;
        let segment = self.memory.segment_mut(job.slot);
        segment.checked_at = reclaimed;
        let freed = job.seglets_before - segment.seglets();
        segment.futile_live = if freed == 0 { segment.live } else { usize::MAX };
        let combined = self
            .cleaner
            .combination
            .as_ref()
            .is_some_and(|combination| combination.takes_from(job.slot));
        if segment.extents.is_empty() && !combined && self.config.durability == Durability::Volatile
        {
            // On a disk the segment's replica would remain until a combination takes the segment.
            // Without a disk nothing of the segment is left.
            segment.cleaned = true;
            self.memory.forget(job.id);
        }
    }
}
