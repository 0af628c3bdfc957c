//! Objects that expire: the log's time, the time records of tables, and the index of what expires.
//!
//! The log has no clock; its owner [states the time](Log::set_time). An object that has expired is
//! still found until [`Log::expire`] or [`Log::expire_due`] removes it. Either first ensures that
//! the object's table has a [time record](sprat_wire::expiry) that is not before the object's
//! expiry, so that no log restored from this one, or that takes over the table, has the object
//! again. So most objects need no tombstone. An object needs one if older versions of it may lie in
//! other segments ([`Entry::successor`]): these may not expire, and would count once the object's
//! own segment is gone.

use crate::Durability;
use crate::log::{Appender, Content, Full, Log, Ref, hash_at};
use sprat_wire::entry::Entry;
use sprat_wire::expiry::{MAX_TIME, NEVER, Time, time_record};
use sprat_wire::once::{COMPLETIONS, Completion, MAX_COMPLETION};
use std::collections::BTreeSet;

/// A time record is this number of milliseconds ahead of the log's time, so that a table gets ten
/// records a second at most, however many objects expire. After a restart or a move, objects may
/// expire earlier by this time.
pub const RECORD_AHEAD: Time = 100;

/// The largest number of objects that an owner should remove in a row with [`Log::expire_due`]:
/// about as much work as half a slice of the cleaner.
pub const EXPIRED_AT_ONCE: usize = 16;

/// The log's time, and the objects that expire.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    /// The log's time; never decreases.
    now: Time,
    /// For each object that expires: when it does, and the hash of its key.
    due: BTreeSet<(Time, u64)>,
}

impl Expiry {
    /// Raises the time to one that another log has recorded.
    pub(crate) fn raise(&mut self, time: Time) {
        self.now = self.now.max(time);
    }

    /// Adds an object that has been added to the hash table.
    #[inline]
    pub(crate) fn add(&mut self, expires: Time, hash: u64) {
        if expires != NEVER {
            self.due.insert((expires, hash));
        }
    }

    /// Removes an object that is being removed from the hash table.
    #[inline]
    pub(crate) fn remove(&mut self, expires: Time, hash: u64) {
        if expires != NEVER {
            self.due.remove(&(expires, hash));
        }
    }

    /// The objects that expire, each with the hash of its key.
    pub(crate) fn all(&self) -> &BTreeSet<(Time, u64)> {
        &self.due
    }
}

impl Log {
    /// Returns the log's time: the latest that its owner has stated, or that a restored or adopted
    /// time record states.
    #[must_use]
    pub fn time(&self) -> Time {
        self.expiry.now
    }

    /// States the time. Earlier times than the log's are ignored.
    pub fn set_time(&mut self, now: Time) {
        self.expiry.raise(now.min(MAX_TIME));
    }

    /// Returns whether any object expires at some time.
    #[inline]
    #[must_use]
    pub fn has_expiring(&self) -> bool {
        !self.expiry.due.is_empty()
    }

    /// Returns when the next object expires; `None` when none does.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Time> {
        self.expiry.due.first().map(|&(expires, _)| expires)
    }

    /// Returns whether an entry is an object that has expired.
    #[inline]
    #[must_use]
    pub fn is_expired(&self, entry: &Entry<'_>) -> bool {
        entry.expires != NEVER && entry.expires <= self.expiry.now
    }

    /// Removes an object if it has expired. Returns whether it did: then the object counts as
    /// missing once everything that is in the log now is durable.
    ///
    /// # Errors
    /// [`Full`] when there is no room for the time record or the tombstone. The object is still
    /// there then.
    pub fn expire(&mut self, table: u32, key: &[u8]) -> Result<bool, Full> {
        let hash = self.hash(table, key);
        match self.lookup(hash, table, key) {
            Some((_, found)) if self.is_expired(&self.entry(found)) => {}
            _ => return Ok(false),
        }
        self.record_time(table)?;
        // The record may have moved the object.
        let (_, found) = self.lookup(hash, table, key).expect("cleaning loses no object");
        self.remove_expired(hash, found)?;
        Ok(true)
    }

    /// Returns an object that has expired; `None` when there is none.
    #[must_use]
    pub fn due(&self) -> Option<Entry<'_>> {
        let &(expires, hash) = self.expiry.due.first()?;
        (expires <= self.expiry.now).then(|| self.entry(self.due_object(expires, hash)))
    }

    /// Removes the object that [`due`](Self::due) returns. Returns whether there was one.
    ///
    /// # Errors
    /// [`Full`] when there is no room for a time record or a tombstone. The object is still there
    /// then.
    pub fn expire_due(&mut self) -> Result<bool, Full> {
        let Some(&(expires, hash)) = self.expiry.due.first() else { return Ok(false) };
        if expires > self.expiry.now {
            return Ok(false);
        }
        let table = self.entry(self.due_object(expires, hash)).table;
        if !self.tables.is_dropped(table) {
            self.record_time(table)?;
        }
        // The record may have moved the object.
        self.remove_expired(hash, self.due_object(expires, hash))?;
        Ok(true)
    }

    /// Prefetches the memory that the next [`EXPIRED_AT_ONCE`] calls of
    /// [`expire_due`](Self::expire_due) look at.
    pub fn prefetch_due(&self) {
        let due = self.expiry.due.range(..=(self.expiry.now, u64::MAX)).take(EXPIRED_AT_ONCE);
        due.clone().for_each(|&(_, hash)| self.table.prefetch(hash));
        due.for_each(|&(_, hash)| self.prefetch_entry(hash));
    }

    /// Returns an object that is in the index of what expires.
    fn due_object(&self, expires: Time, hash: u64) -> Ref {
        let found = self.table.find(hash, |address| {
            self.memory.entry(address).expires == expires
                && hash_at(&self.memory, self.config.seed, address) == hash
        });
        let (_, address) = found.expect("what the index has is in the hash table");
        Ref { address, len: self.memory.entry(address).encoded_len() }
    }

    /// Ensures that a table has a time record that is not before the log's time. Until it is
    /// durable, no client may learn that an object of the table has expired. Returns whether a
    /// record was written.
    ///
    /// # Errors
    /// [`Full`] when there is no room for the record.
    pub fn record_time(&mut self, table: u32) -> Result<bool, Full> {
        let recorded = self.completion(table, &time_record(0)).map(|found| self.entry(found));
        let now = self.expiry.now;
        if recorded.is_some_and(|recorded| recorded.version >= now) {
            return Ok(false);
        }
        let time = (now + RECORD_AHEAD).min(MAX_TIME);
        let mut value = [0; MAX_COMPLETION];
        let len = Completion::BEGUN.encode(&mut value);
        let content = Content::bytes(&value[..len]);
        let key = time_record(time).key();
        self.write(table | COMPLETIONS, &key, content, Some(time), None, Appender::Remover)?;
        Ok(true)
    }

    /// Returns whether an object of a table may have expired already.
    pub(crate) fn has_time_record(&self, table: u32) -> bool {
        self.completion(table, &time_record(0)).is_some()
    }

    /// Removes an object that has expired, with a tombstone if it needs one.
    fn remove_expired(&mut self, hash: u64, found: Ref) -> Result<(), Full> {
        let Entry { table, key, version, successor, .. } = self.memory.entry(found.address);
        if successor
            && self.config.durability == Durability::Tracked
            && !self.tables.is_dropped(table)
        {
            let key = key.to_vec();
            return self.remove(table, &key).map(drop);
        }
        let (place, _) = self
            .table
            .find(hash, |address| address == found.address)
            .expect("it was there a moment ago");
        self.remove_dead(hash, place, found, table);
        self.safe_version = self.safe_version.max(version + 1);
        Ok(())
    }
}
