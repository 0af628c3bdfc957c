//! Scans: all objects of a table, in an order that neither growth nor a restart changes.
//!
//! Objects are returned in the order of their hashes with the bits reversed. A chain of the hash
//! table holds the hashes with the same low bits. At any size of the table these are one range of
//! that order: a split only halves the range.

use crate::log::{Log, Ref, hash_at};

/// The largest number of chains of the hash table that one call visits. Visiting them takes about
/// 20 us, so a small table in a large log does not delay other requests.
pub const SCAN_CHAINS: usize = 128;

impl Log {
    /// Appends to `found`, in order, the objects of `table` whose reversed hash is above `after`
    /// (all, for `None`) and not above `until`. Returns the cursor from which the next call
    /// continues, or `None` at the end.
    ///
    /// A call ends after about `limit_bytes` bytes of entries, `limit_objects` objects, or
    /// [`SCAN_CHAINS`] chains, so it may return a cursor without any object. Objects with equal
    /// hashes are returned together, even beyond the limits. An object that exists from the first
    /// call to the last is returned exactly once.
    pub fn scan(
        &self,
        table: u32,
        (after, until): (Option<u64>, u64),
        limit_bytes: usize,
        limit_objects: usize,
        found: &mut Vec<Ref>,
    ) -> Option<u64> {
        let mut from = match after {
            None => 0,
            Some(after) => after.checked_add(1)?,
        };
        if self.tables.is_dropped(table) || from > until {
            return None;
        }
        let (mut bytes, mut objects) = (0, 0);
        let mut chain: Vec<(u64, Ref)> = Vec::new();
        for _ in 0..SCAN_CHAINS {
            let hash = from.reverse_bits();
            let end = (from | u64::MAX >> self.table.depth(hash)).min(until);
            self.table.prefetch(end.wrapping_add(1).reverse_bits());
            let prefetch = |address: usize| crate::arena::prefetch(&self.memory.bytes[address]);
            chain.clear();
            self.table.visit(hash, prefetch, |address| {
                let entry = self.memory.entry(address);
                if entry.table == table {
                    let reversed = hash_at(&self.memory, self.config.seed, address).reverse_bits();
                    if (from..=end).contains(&reversed) {
                        chain.push((reversed, Ref { address, len: entry.encoded_len() }));
                    }
                }
            });
            chain.sort_unstable_by_key(|&(reversed, _)| reversed);
            let mut last = None;
            for &(reversed, reference) in &chain {
                if (bytes >= limit_bytes || objects >= limit_objects)
                    && last.is_some_and(|last| last != reversed)
                {
                    return last;
                }
                found.push(reference);
                bytes += reference.len;
                objects += 1;
                last = Some(reversed);
            }
            if end == until {
                return None;
            }
            from = end + 1;
            if bytes >= limit_bytes || objects >= limit_objects {
                return Some(end);
            }
        }
        Some(from - 1)
    }
}
