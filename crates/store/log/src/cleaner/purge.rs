//! Frees the objects of dropped tables and tablets, and the completions of clients that are gone.

use super::Budget;
use crate::log::{Log, Ref, hash_at};
use crate::table::TableSlot;

impl Log {
    /// Continues the walk through the hash table if there are objects to free; returns whether it
    /// did something.
    pub(super) fn purge_step(&mut self, budget: &mut Budget) -> bool {
        let Some(mut from) = self.cleaner.purge else { return false };
        let mut dropped = Vec::new();
        while !budget.is_spent() {
            // A chain holds the hashes with the same low bits: a range of the reversed hashes.
            let hash = from.reverse_bits();
            let memory = &self.memory;
            let prefetch = |address: usize| crate::arena::prefetch(&memory.bytes[address]);
            self.table.visit(hash, prefetch, |address| {
                let entry = memory.entry(address);
                let len = entry.encoded_len();
                budget.take(0);
                if self.is_gone(entry.table, entry.key, hash_at(memory, self.config.seed, address))
                {
                    dropped.push((Ref { address, len }, entry.table));
                }
            });
            budget.take(0);
            for (reference, table) in dropped.drain(..) {
                let hash = hash_at(&self.memory, self.config.seed, reference.address);
                let place = self.table.find(hash, |address| address == reference.address);
                let (place, _) = place.expect("it was there a moment ago");
                self.remove_dead(hash, place, reference, table);
            }
            let depth = self.table.depth(hash);
            let Some(next) = (from | u64::MAX >> depth).checked_add(1) else {
                self.tables.forget_purged();
                self.cleaner.purge = None;
                return true;
            };
            from = next;
        }
        self.cleaner.purge = Some(from);
        true
    }

    /// Removes a dead object from the hash table and the counters.
    pub(crate) fn remove_dead(&mut self, hash: u64, place: TableSlot, reference: Ref, table: u32) {
        self.expiry.remove(self.memory.entry(reference.address).expires, hash);
        self.order_removed(hash, reference.address);
        self.table.remove(hash, place);
        self.memory.owner_mut(reference.address).live -= reference.len;
        self.account_removed(table, reference.len);
    }
}
