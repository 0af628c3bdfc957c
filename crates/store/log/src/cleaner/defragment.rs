//! Makes room for an entry of several seglets when free memory is fragmented into shorter runs.
//!
//! It slides whole extents down over the holes between them, until the holes have merged into one.
//! Like compaction this needs no free memory, so it works however full the log is. It chooses the
//! span with the fewest seglets to move.

use super::{Budget, NO_VISITS};
use crate::log::Log;
use crate::seglets::Run;
use sprat_wire::SEGLET_BYTES;

/// The largest number of seglets moved for one entry: 16 MB, which takes some milliseconds. The
/// writer of a long entry waits for the move. The number is reached only when memory is so full and
/// fragmented that no cheaper span has enough free seglets.
const MOVED_MAX: usize = 256;

/// Whether the seglets of a row are free, in use and movable, or in use and fixed in their place.
#[derive(Clone, Copy, Eq, PartialEq)]
enum RunKind {
    Free,
    Movable,
    Stuck,
}

impl Log {
    /// Makes a run of `count` free seglets. Returns false if more than [`MOVED_MAX`] seglets would
    /// have to move, or if too few seglets are free between those that are fixed in their place.
    pub(crate) fn make_run(&mut self, count: usize) -> bool {
        let Some(span) = self.choose_span(count) else { return false };
        let (mut from, mut to) = (span.first, span.first);
        while from < span.first + span.count {
            if self.memory.seglets.is_free(from) {
                from += 1;
                continue;
            }
            let moved = self.slide_extent(from, to);
            from += moved;
            to += moved;
        }
        self.cleaner.stats.defragmented += 1;
        true
    }

    /// Chooses the span, from hole to hole, that has at least `count` free seglets in all, the
    /// fewest seglets in use, at most [`MOVED_MAX`] of them, and no seglet that is fixed in its
    /// place.
    fn choose_span(&self, count: usize) -> Option<Run> {
        let rows = self.rows();
        let mut best: Option<(usize, Run)> = None;
        let (mut left, mut free, mut used) = (0, 0, 0);
        for (right, &(row, kind)) in rows.iter().enumerate() {
            match kind {
                RunKind::Stuck => {
                    (left, free, used) = (right + 1, 0, 0);
                    continue;
                }
                RunKind::Movable if left == right => {
                    left += 1;
                    continue;
                }
                RunKind::Movable => used += row.count,
                RunKind::Free => free += row.count,
            }
            // Drops a hole at the left that is not needed, and the extents up to the next hole.
            while rows[left].1 == RunKind::Movable || free >= count + rows[left].0.count {
                let (row, kind) = rows[left];
                *if kind == RunKind::Free { &mut free } else { &mut used } -= row.count;
                left += 1;
            }
            if free >= count && used <= MOVED_MAX && best.is_none_or(|(least, _)| used < least) {
                let first = rows[left].0.first;
                best = Some((used, Run { first, count: row.first + row.count - first }));
            }
        }
        best.map(|(_, span)| span)
    }

    /// Returns the arena as rows of seglets of the same kind.
    fn rows(&self) -> Vec<(Run, RunKind)> {
        let seglets = &self.memory.seglets;
        let mut rows: Vec<(Run, RunKind)> = Vec::new();
        for seglet in 1..seglets.end() {
            let kind = if seglets.is_free(seglet) {
                RunKind::Free
            } else {
                let slot = seglets.owner(seglet * SEGLET_BYTES);
                let movable =
                    self.memory.get(slot).is_some_and(|segment| self.may_be_moved(slot, segment));
                if movable { RunKind::Movable } else { RunKind::Stuck }
            };
            match rows.last_mut() {
                Some((row, last)) if *last == kind => row.count += 1,
                _ => rows.push((Run { first: seglet, count: 1 }, kind)),
            }
        }
        rows
    }

    /// Moves the extent that begins at seglet `from` down to seglet `to`; returns its length in
    /// seglets.
    fn slide_extent(&mut self, from: usize, to: usize) -> usize {
        let slot = self.memory.seglets.owner(from * SEGLET_BYTES);
        let extents = &self.memory.segment(slot).extents;
        let at = extents
            .iter()
            .position(|extent| extent.run().first == from)
            .expect("an extent begins after a hole");
        let extent = extents[at];
        let count = extent.run().count;
        let shift = (from - to) * SEGLET_BYTES;
        if shift == 0 {
            return count;
        }
        // Entries are moved in ascending order, so that no entry gets an address at which a later
        // entry is still looked up.
        let mut address = extent.start;
        while address < extent.end {
            let mut visits = NO_VISITS;
            let gathered = self.gather(address, extent.end, Budget::slice(), &mut visits);
            for visit in &visits[..gathered] {
                self.repoint(visit, visit.address - shift);
                address = visit.address + visit.len;
            }
        }
        self.memory.bytes.copy_within(extent.start..extent.end, extent.start - shift);
        let moved = &mut self.memory.segment_mut(slot).extents[at];
        moved.start -= shift;
        moved.end -= shift;
        moved.cap -= shift;
        self.memory.seglets.give(Run { first: from, count });
        self.memory.seglets.claim(Run { first: to, count }, slot);
        self.cleaner.stats.compacted_bytes += extent.used() as u64;
        count
    }
}
