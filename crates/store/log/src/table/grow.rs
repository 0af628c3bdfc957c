//! Growth by linear hashing.
//!
//! The table has `2^level + split` chains. To grow by one chain, it distributes the entries of
//! chain `split` between that chain and chain `split + 2^level`, by the next bit of the hash. When
//! `split` reaches `2^level`, it becomes zero and `level` grows by one. One insertion splits at
//! most [`SPLITS_PER_INSERT`] chains.

use super::{FILL_PER_100_LINES, SLOTS, Table, tag};

/// The largest number of chains that one insertion splits. One entry fills less than a fifth of a
/// line, so one split is enough for it. The second split makes up for an overflow line that the
/// insertion may take.
const SPLITS_PER_INSERT: usize = 2;

impl Table {
    /// Splits chains while the lines are too full.
    pub(super) fn grow(&mut self, hash_of: impl Fn(usize) -> u64, prefetch: impl Fn(usize)) {
        for _ in 0..SPLITS_PER_INSERT {
            if self.entries * 100 <= self.lines() * FILL_PER_100_LINES
                || self.buckets() == self.primary.len()
            {
                return;
            }
            self.split_one(&hash_of, &prefetch);
        }
    }

    fn split_one(&mut self, hash_of: impl Fn(usize) -> u64, prefetch: impl Fn(usize)) {
        let (low, high) = (self.split, self.split + (1 << self.level));
        let bit = 1 << self.level;
        let mut gathered = std::mem::take(&mut self.scratch);
        // Empties the lines of the chain and frees the overflow lines. The entries, which are
        // prefetched meanwhile, are distributed below.
        let mut number = Some(low);
        while let Some(at) = number {
            number = self.next(at);
            for slot in 0..SLOTS {
                let address = self.line(at).address(slot);
                if address != 0 {
                    prefetch(address);
                    gathered.push((address, self.line(at).is_used(slot)));
                    self.line_mut(at).clear(slot);
                }
            }
            self.line_mut(at).link = 0;
            if at != low {
                self.free_line(at);
            }
        }
        self.split += 1;
        if self.split == 1 << self.level {
            self.split = 0;
            self.level += 1;
        }
        for (address, used) in gathered.drain(..) {
            let hash = hash_of(address);
            let bucket = if hash & bit == 0 { low } else { high };
            debug_assert_eq!(bucket, self.bucket(hash));
            self.push(bucket, (tag(hash), used), address);
        }
        self.scratch = gathered;
    }
}
