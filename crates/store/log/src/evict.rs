//! Eviction: objects of some tablets give way when a write finds no room.
//!
//! The owner names [the tablets](Log::set_evictable). When an object has no room in memory or on
//! disk, the log removes objects of these tablets that were not [used](Log::note_used) lately. Each
//! is removed with a tombstone, as by [`Log::remove`]: an evicted object that came back after a
//! restart would be outdated, since a client that changes the source of a cached object finds
//! nothing to remove.
//!
//! Which object is used least lately is approximated by CLOCK (Corbató, *A Paging Experiment with
//! the Multics System*, 1968): a hand goes round the hash table, clears the *used* bit of each
//! object that it passes, and takes the first object whose bit is clear. If it passes
//! [`PASSED_AT_ONCE`] objects without finding one, it takes the last of them, so that no write
//! waits for a whole round.

use crate::log::{Appender, Full, Log, Ref, hash_at};
use sprat_wire::tablet::Tablet;

/// The largest number of objects that one write evicts. A write that needs more room asks for a
/// retry.
pub const EVICTED_AT_ONCE: usize = 64;

/// The largest number of objects of evictable tablets that the hand passes for one eviction.
const PASSED_AT_ONCE: usize = 64;

/// The largest number of chains that the hand visits for one eviction, if few of their objects are
/// of evictable tablets.
const CHAINS_AT_ONCE: usize = 256;

/// What is evicted, and what was.
#[derive(Debug, Default)]
pub(crate) struct Evictions {
    /// The tablets whose objects give way.
    tablets: Vec<Tablet>,
    /// The chain of the hash table that the hand visits next.
    hand: usize,
    /// Number of chains that the hand has visited since it found an object that gives way.
    fruitless: usize,
    /// The evicted objects that the owner has not taken yet, by table and key.
    evicted: Vec<(u32, Box<[u8]>)>,
}

impl Log {
    /// Names the tablets whose objects give way to others when memory or the disk is full. A tablet
    /// that is being recovered must not be among them: an older version of an object would be
    /// [adopted](Self::adopt) after a newer one was evicted.
    pub fn set_evictable(&mut self, tablets: Vec<Tablet>) {
        self.evictions.tablets = tablets;
        self.evictions.fruitless = 0;
    }

    /// Records that an object was used, if it is of a tablet that gives way.
    #[inline]
    pub fn note_used(&mut self, table: u32, found: Ref) {
        if self.evictions.tablets.iter().any(|tablet| tablet.table == table) {
            let hash = hash_at(&self.memory, self.config.seed, found.address);
            if let Some((place, _)) = self.table.find(hash, |address| address == found.address) {
                self.table.note_used(place);
            }
        }
    }

    /// Returns whether any object was evicted that [`take_evicted`](Self::take_evicted) has not
    /// returned.
    #[inline]
    #[must_use]
    pub fn has_evicted(&self) -> bool {
        !self.evictions.evicted.is_empty()
    }

    /// Returns the objects that writes have evicted since the last call, by table and key. They
    /// count as missing once everything that is in the log now is durable.
    pub fn take_evicted(&mut self) -> Vec<(u32, Box<[u8]>)> {
        std::mem::take(&mut self.evictions.evicted)
    }

    /// Takes room for an object and its completion in the head, and evicts other objects as needed.
    pub(crate) fn make_room_for_object(
        &mut self,
        (hash, table, key): (u64, u32, &[u8]),
        len: usize,
    ) -> Result<usize, Full> {
        if self.group.is_some() {
            return self.room_in_group(len);
        }
        for _ in 0..EVICTED_AT_ONCE {
            let room = self.admit(hash, table, key, len);
            match room.and_then(|()| self.make_room(len, Appender::Writer)) {
                Err(full @ (Full::Memory | Full::Disk)) => {
                    if self.evictions.tablets.is_empty() || !self.fits_segment(len) {
                        return Err(full);
                    }
                    if !self.evict_one(hash)? {
                        let visited_all = self.evictions.fruitless >= self.table.buckets();
                        return Err(if visited_all { full } else { Full::Replication });
                    }
                }
                room => return room,
            }
        }
        Err(Full::Replication)
    }

    /// Evicts an object, but not one with the hash `spared`. Returns false if the hand has found
    /// none; it goes on from there the next time.
    fn evict_one(&mut self, spared: u64) -> Result<bool, Full> {
        let (mut passed, mut victim, mut chain) = (0, None, Vec::new());
        for _ in 0..CHAINS_AT_ONCE {
            let bucket = self.evictions.hand % self.table.buckets();
            self.evictions.hand = bucket + 1;
            self.evictions.fruitless += 1;
            let bytes = &self.memory.bytes;
            let prefetch = |at| crate::arena::prefetch(&bytes[at]);
            self.table.visit_used(bucket, prefetch, |at, used| chain.push((at, used)));
            for (address, used) in chain.drain(..) {
                if !self.is_evictable(address, spared) {
                    continue;
                }
                passed += 1;
                victim = Some(address);
                if !used || passed == PASSED_AT_ONCE {
                    return self.evict_at(address).map(|()| true);
                }
            }
        }
        victim.map_or(Ok(false), |address| self.evict_at(address).map(|()| true))
    }

    fn is_evictable(&self, address: usize, spared: u64) -> bool {
        let entry = self.memory.entry(address);
        let tablets = &self.evictions.tablets;
        let mut tablets = tablets.iter().filter(|tablet| tablet.table == entry.table).peekable();
        if tablets.peek().is_none() {
            return false;
        }
        let hash = hash_at(&self.memory, self.config.seed, address);
        let position = hash.reverse_bits();
        hash != spared
            && tablets.any(|tablet| tablet.range.contains(position))
            && !self.tables.is_dropped(entry.table)
            && !self.tables.is_dropped_at(entry.table, position)
            && !self.is_locked(entry.table, entry.key, true)
    }

    fn evict_at(&mut self, address: usize) -> Result<(), Full> {
        let entry = self.memory.entry(address);
        let (table, key) = (entry.table, Box::from(entry.key));
        self.evictions.fruitless = 0;
        self.remove(table, &key)?;
        self.evictions.evicted.push((table, key));
        Ok(())
    }
}
