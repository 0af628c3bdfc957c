//! The map of the arena: the seglets that are free, and the segment that owns each other seglet.

use crate::arena::HUGE_PAGE_BYTES;
use sprat_wire::SEGLET_BYTES;

/// Seglets in a huge page.
const BLOCK_SEGLETS: usize = HUGE_PAGE_BYTES / SEGLET_BYTES;

/// Number of runs that a search examines before it accepts a run that is long enough, but shorter
/// than the wanted length.
const RUNS_SCANNED_MAX: usize = 64;

/// Owner of a seglet that no segment owns.
pub(crate) const NO_OWNER: u32 = u32::MAX;

/// A run of neighbouring seglets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Run {
    pub(crate) first: usize,
    pub(crate) count: usize,
}

/// What is known of a huge page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Page {
    /// The kernel has it: it was never used, or was given back.
    Given,
    /// It was used since the last sweep.
    Used,
    /// It was free at the last sweep, and no seglet of it was taken since.
    Unused,
}

/// The map of the arena. Seglet 0 is never used, so that no entry has address 0.
pub(crate) struct Seglets {
    /// A bit for each seglet. It is set when the seglet is taken, is seglet 0, or lies behind the
    /// arena's end.
    taken: Vec<u64>,
    /// Slot of the segment that owns the seglet.
    owner: Vec<u32>,
    /// The state of each huge page.
    pages: Vec<Page>,
    /// The huge page at which a sweep goes on.
    swept: usize,
    /// Index of the first word of `taken` that may have a free seglet. Low addresses are used
    /// first, so that memory that was never needed is never touched.
    lowest: usize,
    free: usize,
    total: usize,
}

impl Seglets {
    pub(crate) fn new(total: usize) -> Self {
        let words = (total + 1).div_ceil(64);
        let mut taken = vec![u64::MAX; words];
        for seglet in 1..=total {
            taken[seglet / 64] &= !(1 << (seglet % 64));
        }
        Self {
            taken,
            owner: vec![NO_OWNER; total + 1],
            pages: vec![Page::Given; (total + 1).div_ceil(BLOCK_SEGLETS)],
            swept: 0,
            lowest: 0,
            free: total,
            total,
        }
    }

    pub(crate) fn free(&self) -> usize {
        self.free
    }

    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// One more than the highest seglet number.
    pub(crate) fn end(&self) -> usize {
        self.total + 1
    }

    /// Slot of the segment that owns the seglet of `address`.
    #[inline]
    pub(crate) fn owner(&self, address: usize) -> u32 {
        self.owner[address / SEGLET_BYTES]
    }

    pub(crate) fn is_free(&self, seglet: usize) -> bool {
        self.taken[seglet / 64] & (1 << (seglet % 64)) == 0
    }

    /// Takes a run of `want` free seglets. If there is none among the first [`RUNS_SCANNED_MAX`]
    /// free runs, takes the longest of these runs; if the longest has fewer than `min`, takes the
    /// next run that has at least `min`. Returns `None` if no run has `min`.
    pub(crate) fn take(&mut self, min: usize, want: usize, owner: u32) -> Option<Run> {
        debug_assert!(0 < min && min <= want);
        while self.taken.get(self.lowest) == Some(&u64::MAX) {
            self.lowest += 1;
        }
        let mut best = Run { first: 0, count: 0 };
        let mut from = self.lowest * 64;
        let mut scanned = 0;
        while let Some(first) = self.next_free(from) {
            let count = self.run_at(first, want);
            if count > best.count {
                best = Run { first, count };
            }
            scanned += 1;
            if count == want || (best.count >= min && scanned >= RUNS_SCANNED_MAX) {
                break;
            }
            from = first + count;
        }
        if best.count < min {
            return None;
        }
        self.claim(best, owner);
        Some(best)
    }

    /// Takes up to `want` free seglets in a row, beginning with seglet `at`, and returns the number
    /// taken. If there are fewer than `min`, takes none and returns `None`.
    pub(crate) fn take_at(
        &mut self,
        at: usize,
        min: usize,
        want: usize,
        owner: u32,
    ) -> Option<usize> {
        let count = if at < self.end() { self.run_at(at, want) } else { 0 };
        if count < min {
            return None;
        }
        self.claim(Run { first: at, count }, owner);
        Some(count)
    }

    /// Takes a run that is free, for a segment.
    pub(crate) fn claim(&mut self, run: Run, owner: u32) {
        for seglet in run.first..run.first + run.count {
            assert!(self.is_free(seglet));
            self.taken[seglet / 64] |= 1 << (seglet % 64);
            self.owner[seglet] = owner;
            self.pages[seglet / BLOCK_SEGLETS] = Page::Used;
        }
        self.free -= run.count;
    }

    /// Frees a run.
    pub(crate) fn give(&mut self, run: Run) {
        for seglet in run.first..run.first + run.count {
            assert!(!self.is_free(seglet) && seglet != 0);
            self.taken[seglet / 64] &= !(1 << (seglet % 64));
            self.owner[seglet] = NO_OWNER;
        }
        self.free += run.count;
        self.lowest = self.lowest.min(run.first / 64);
    }

    /// Continues the sweep by up to `limit` huge pages, until one has been free since the sweep
    /// before: takes note that the kernel has it, and returns its number. `None` when there was no
    /// such page among them.
    pub(crate) fn sweep(&mut self, limit: usize) -> Option<usize> {
        for page in self.swept..(self.swept + limit).min(self.pages.len()) {
            self.swept = page + 1;
            let mut seglets = page * BLOCK_SEGLETS..((page + 1) * BLOCK_SEGLETS).min(self.end());
            match self.pages[page] {
                Page::Unused => {
                    self.pages[page] = Page::Given;
                    return Some(page);
                }
                Page::Used if seglets.all(|seglet| self.is_free(seglet)) => {
                    self.pages[page] = Page::Unused;
                }
                Page::Used | Page::Given => {}
            }
        }
        None
    }

    /// Returns whether the sweep has come to the end; if so, the next begins.
    pub(crate) fn end_sweep(&mut self) -> bool {
        let is_over = self.swept == self.pages.len();
        if is_over {
            self.swept = 0;
        }
        is_over
    }

    fn next_free(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = !*self.taken.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = !*self.taken.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// Returns the number of free seglets in a row from `first` on, up to `limit`.
    fn run_at(&self, first: usize, limit: usize) -> usize {
        let mut count = 0;
        while count < limit && first + count < self.end() && self.is_free(first + count) {
            count += 1;
        }
        count
    }
}
