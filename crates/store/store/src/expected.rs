//! Objects that will be asked for in a moment: where the log will look for them is brought near, so
//! that cache misses overlap.

use sprat_log::Log;

/// Hashes of the keys expected last. Of each the line of the hash table is brought near at once,
/// and what that points to `NEARER` keys later.
pub(crate) struct Expected<const NEARER: usize> {
    hashes: [u64; NEARER],
    next: usize,
}

impl<const NEARER: usize> Default for Expected<NEARER> {
    fn default() -> Self {
        Self { hashes: [0; NEARER], next: 0 }
    }
}

impl<const NEARER: usize> Expected<NEARER> {
    /// A key will be looked for.
    #[inline]
    pub(crate) fn expect(&mut self, log: &Log, table: u32, key: &[u8]) {
        let hash = log.hash(table, key);
        log.prefetch(hash);
        self.next = (self.next + 1) % NEARER;
        log.prefetch_entry(std::mem::replace(&mut self.hashes[self.next], hash));
    }
}
