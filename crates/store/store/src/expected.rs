//! Prefetches what the log needs to look up objects of requests that are about to be executed, so
//! that cache misses overlap.

use sprat_log::Log;

/// Hashes of the last keys that will be looked up. The hash table's line for a key is prefetched as
/// soon as the key is known. The entry that the line points to is prefetched after `NEARER` more
/// keys are known.
pub(crate) struct PrefetchQueue<const NEARER: usize> {
    hashes: [u64; NEARER],
    next: usize,
}

impl<const NEARER: usize> Default for PrefetchQueue<NEARER> {
    fn default() -> Self {
        Self { hashes: [0; NEARER], next: 0 }
    }
}

impl<const NEARER: usize> PrefetchQueue<NEARER> {
    /// Prefetches the hash table's line for a key that will be looked up, and the entry for the key
    /// that was passed `NEARER` calls ago.
    #[inline]
    pub(crate) fn expect(&mut self, log: &Log, table: u32, key: &[u8]) {
        let hash = log.hash(table, key);
        log.prefetch(hash);
        self.next = (self.next + 1) % NEARER;
        log.prefetch_entry(std::mem::replace(&mut self.hashes[self.next], hash));
    }
}
