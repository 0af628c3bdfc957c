//! Makes room for an entry of several seglets when free memory lies about in shorter runs.

use super::{Budget, NO_VISITS};
use crate::log::Log;
use crate::seglets::{NOBODY, Run};
use crate::segment::{Extent, trim};
use sprat_wire::SEGLET_BYTES;
use sprat_wire::entry::fill_gap;

impl Log {
    /// Clears a window of `count` seglets by moving the entries there elsewhere. The work is
    /// like that of writing the entry which needs the window: it copies no more than the window holds.
    pub(crate) fn make_run(&mut self, count: usize) -> bool {
        let Some(window) = self.choose_window(count) else { return false };
        // The free part is taken away first, and what becomes free is kept away, so that nothing is moved into it.
        for seglet in window.first..window.first + window.count {
            if self.memory.seglets.is_free(seglet) {
                self.memory.seglets.claim(Run { first: seglet, count: 1 }, NOBODY);
            }
        }
        let mut cleared = true;
        for seglet in window.first..window.first + window.count {
            while cleared && self.memory.seglets.owner(seglet * SEGLET_BYTES) != NOBODY {
                cleared = self.clear_extent(seglet, window);
            }
        }
        for seglet in window.first..window.first + window.count {
            if self.memory.seglets.owner(seglet * SEGLET_BYTES) == NOBODY {
                self.memory.seglets.give(Run { first: seglet, count: 1 });
            }
        }
        self.cleaner.stats.defragmented += u64::from(cleared);
        cleared
    }

    /// The window with the fewest seglets to clear, of those that can be cleared.
    fn choose_window(&self, count: usize) -> Option<Run> {
        let seglets = &self.memory.seglets;
        let cost = |seglet: usize| -> (usize, usize) {
            if seglets.is_free(seglet) {
                return (0, 0);
            }
            let slot = seglets.owner(seglet * SEGLET_BYTES);
            let movable = self.memory.get(slot).is_some_and(|segment| self.may_be_moved(slot, segment));
            (1, usize::from(!movable))
        };
        let (mut taken, mut stuck) = (0, 0);
        let mut best: Option<(usize, usize)> = None;
        for seglet in 1..seglets.end() {
            let (is_taken, is_stuck) = cost(seglet);
            taken += is_taken;
            stuck += is_stuck;
            if seglet > count {
                let (was_taken, was_stuck) = cost(seglet - count);
                taken -= was_taken;
                stuck -= was_stuck;
            }
            if seglet >= count && stuck == 0 && best.is_none_or(|(least, _)| taken < least) {
                best = Some((taken, seglet + 1 - count));
            }
        }
        let (taken, first) = best?;
        // What lies in the window must fit elsewhere: entries at both edges may be cut loose too.
        (seglets.free() - (count - taken) > taken + 2).then_some(Run { first, count })
    }

    /// Moves the entries of one extent that reach into the window; `seglet`, in the window, is the extent's.
    fn clear_extent(&mut self, seglet: usize, window: Run) -> bool {
        let slot = self.memory.seglets.owner(seglet * SEGLET_BYTES);
        let (begin, end) = (window.first * SEGLET_BYTES, (window.first + window.count) * SEGLET_BYTES);
        let extents = &mut self.memory.segment_mut(slot).extents;
        let holds = |extent: &Extent| extent.run().first <= seglet && seglet < extent.cap / SEGLET_BYTES;
        let at = extents.iter().position(holds).expect("an owner has an extent there");
        let extent = extents.remove(at);
        // Entries that end before the window stay.
        let mut address = extent.start;
        while address < extent.end {
            let next = address + self.memory.entry(address).encoded_len();
            if next > begin {
                break;
            }
            address = next;
        }
        let left_end = address;
        let mut moved: Vec<Extent> = Vec::new();
        let mut fits = true;
        'all: while address < extent.end && address < end {
            let mut visits = NO_VISITS;
            let count = self.gather(address, extent.end.min(end), Budget::slice(), &mut visits);
            for visit in &visits[..count] {
                if let Some(live) = self.judge(visit, slot) {
                    let Some(to) = self.place(&mut moved, visit.len, extent.end.min(end) - visit.address, slot) else {
                        fits = false;
                        break 'all;
                    };
                    self.relocate(visit, live, to);
                    self.cleaner.stats.compacted_bytes += visit.len as u64;
                }
                address = visit.address + visit.len;
            }
        }
        self.split_extent(slot, extent, left_end, address, window);
        for extent in &mut moved {
            trim(extent, &mut self.memory.seglets);
        }
        self.memory.segment_mut(slot).extents.append(&mut moved);
        fits
    }

    /// Takes room for an entry behind those moved before, or in new seglets, with `rest` bytes to come at most.
    fn place(&mut self, moved: &mut Vec<Extent>, len: usize, rest: usize, slot: u32) -> Option<usize> {
        if let Some(last) = moved.last_mut()
            && last.end + len <= last.cap
        {
            last.end += len;
            return Some(last.end - len);
        }
        let need = len.div_ceil(SEGLET_BYTES);
        let want = rest.div_ceil(SEGLET_BYTES).max(need);
        let run = self.memory.seglets.take(need, want, slot)?;
        let start = run.first * SEGLET_BYTES;
        moved.push(Extent { start, end: start + len, cap: start + run.count * SEGLET_BYTES });
        Some(start)
    }

    /// Puts back what stays of an extent whose entries from `left_end` to `right` are gone; its seglets
    /// in between are kept away from all others when in the window, and else free.
    fn split_extent(&mut self, slot: u32, extent: Extent, left_end: usize, right: usize, window: Run) {
        let left_cap = left_end.next_multiple_of(SEGLET_BYTES);
        let (has_left, has_right) = (left_end > extent.start, right < extent.end);
        let between_first = if has_left { left_cap / SEGLET_BYTES } else { extent.start / SEGLET_BYTES };
        let between_end = if has_right { right / SEGLET_BYTES } else { extent.cap / SEGLET_BYTES };
        if has_left && has_right && between_first > between_end {
            // Both parts end up in one seglet: they stay one extent.
            fill_gap(&mut self.memory.bytes[left_end..right]);
            self.memory.segment_mut(slot).extents.push(extent);
            return;
        }
        let extents = &mut self.memory.segment_mut(slot).extents;
        if has_left {
            extents.push(Extent { start: extent.start, end: left_end, cap: left_cap });
        }
        if has_right {
            extents.push(Extent { start: right, end: extent.end, cap: extent.cap });
        }
        for seglet in between_first..between_end {
            let run = Run { first: seglet, count: 1 };
            self.memory.seglets.give(run);
            if (window.first..window.first + window.count).contains(&seglet) {
                self.memory.seglets.claim(run, NOBODY);
            }
        }
    }
}
