//! Restores a log from the segments on disk.
//!
//! The caller may pass segments in any order. Descending ids are best: the newest version of most
//! objects is then restored first, and older versions need not be copied. Each segment becomes a
//! segment in memory with the same id and only its live entries, as if compacted. An object counts
//! unless the log has, from any segment so far, the same or a newer version of its key, or a
//! tombstone of its version or a later one. During the restoration tombstones have a hash table of
//! their own.

use crate::config::{Config, ConfigError};
use crate::log::{Appender, Log};
use crate::segment::NoRoom;
use crate::table::Table;
use crate::transactions::is_prepared_entry;
use sprat_wire::elements::{ELEMENTS, sort_key};
use sprat_wire::entry::{Entry, Kind, Malformed, Role};
use sprat_wire::expiry::{NEVER, Time};
use sprat_wire::once::{COMPLETIONS, Completion};
use sprat_wire::tablet::table_of;
use sprat_wire::transaction::PREPARED;
use sprat_wire::value::ValueType;
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Entries processed together, so that their cache misses overlap.
const BATCH: usize = 16;

/// Number of seglets that the restoration leaves free, for the header of the head that
/// [`Restore::finish`] opens.
const HEAD_SEGLETS: usize = 1;

/// Why a segment could not be restored.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum RestoreError {
    /// The digest does not list the segment, or it was restored before. From [`Restore::finish`]:
    /// the digest lists the segment, but it was not restored.
    #[error("segment {0} is not expected")]
    Unexpected(u64),
    /// The segment contains bytes that are not an entry.
    #[error("segment {segment}: {reason}")]
    Malformed {
        /// The segment.
        segment: u64,
        /// What is wrong.
        reason: Malformed,
    },
    /// The live data does not fit in the memory of this log.
    #[error("the live data on disk needs more memory than {0} bytes")]
    Full(usize),
}

/// A log that is being restored. Pass it each [segment](Self::segment) that the newest head lists,
/// then [finish](Self::finish).
pub struct Restore {
    log: Log,
    /// Ids of the tables that exist, ascending; objects of other tables are left out. `None`: all
    /// tables exist.
    tables: Option<Vec<u32>>,
    /// Number of objects left out so far, by table.
    left_out: BTreeMap<u32, u64>,
    /// Tables of which objects were left out because they have expired.
    expired: BTreeSet<u32>,
}

impl Restore {
    /// Begins to restore a log. `digest`: the ids of the segments to restore, as the newest head on
    /// disk lists them. `tables`: the tables that exist, if known; objects of other tables, which
    /// were dropped, are left out.
    ///
    /// # Errors
    /// When the configuration is invalid, or the address space for the log or for its table of
    /// tombstones cannot be reserved.
    pub fn new(
        config: Config,
        digest: &[u64],
        tables: Option<&[u32]>,
    ) -> Result<Self, ConfigError> {
        let mut log = Log::headless(config)?;
        log.tombstone_table =
            Some(Table::new(log.config.memory / sprat_wire::entry::HEADER_BYTES)?);
        // Newer segments have higher ids. The positions are set as if each earlier segment had been
        // full.
        for (rank, &id) in (0u64..).zip(digest) {
            log.position = rank * log.config.segment_bytes as u64;
            let slot = log.memory.add(id, Role::Head, log.position);
            log.memory.segment_mut(slot).listed = true;
        }
        let tables = tables.map(|tables| {
            let mut tables = tables.to_vec();
            tables.sort_unstable();
            tables
        });
        let (left_out, expired) = (BTreeMap::new(), BTreeSet::new());
        Ok(Self { log, tables, left_out, expired })
    }

    /// States the time, before any segment is restored: objects that have expired are left out, and
    /// need no memory.
    pub fn set_time(&mut self, now: Time) {
        self.log.set_time(now);
    }

    /// Returns the number of objects left out so far because their tables do not exist, by table
    /// id.
    #[must_use]
    pub fn left_out(&self) -> &BTreeMap<u32, u64> {
        &self.left_out
    }

    /// Returns the hash of a key, to be passed with its entry. Code without the log can compute it
    /// with [`sprat_wire::tablet::hash`].
    #[must_use]
    pub fn hash(&self, table: u32, key: &[u8]) -> u64 {
        self.log.hash(table, key)
    }

    /// Restores a segment's entries, each given with the hash of its key. The caller has checked
    /// headers and checksums, and leaves out a last entry that [does not
    /// count](Completion::is_cut). `safe_version` is from the segment's header.
    ///
    /// # Errors
    /// [`RestoreError`] when the segment is not expected, is malformed or does not fit in memory;
    /// the restoration cannot continue then.
    pub fn segment<'a>(
        &mut self,
        id: u64,
        safe_version: u64,
        entries: impl IntoIterator<Item = (u64, &'a [u8])>,
    ) -> Result<(), RestoreError> {
        let unexpected = RestoreError::Unexpected(id);
        let slot = *self.log.memory.by_id.get(&id).ok_or(unexpected)?;
        if self.log.memory.segment(slot).sealed {
            return Err(unexpected);
        }
        self.log.safe_version = self.log.safe_version.max(safe_version);
        let mut entries = entries.into_iter();
        let mut batch: [(u64, &[u8]); BATCH] = [(0, &[]); BATCH];
        loop {
            let mut count = 0;
            for (place, entry) in batch.iter_mut().zip(&mut entries) {
                *place = entry;
                self.log.table.prefetch(entry.0);
                count += 1;
            }
            if count == 0 {
                break;
            }
            // A second pass prefetches the entries that the lines point to.
            for &(hash, _) in &batch[..count] {
                if let Some(address) = self.log.table.peek(hash) {
                    crate::arena::prefetch(&self.log.memory.bytes[address]);
                }
            }
            for &(hash, bytes) in &batch[..count] {
                let entry = Entry::parse(bytes)
                    .map_err(|reason| RestoreError::Malformed { segment: id, reason })?;
                let bytes = &bytes[..entry.encoded_len()];
                match entry.kind {
                    Kind::Segment => {}
                    Kind::Object => self.object(slot, hash, &entry, bytes)?,
                    Kind::Tombstone => self.tombstone(slot, hash, &entry, bytes)?,
                }
            }
        }
        self.log.memory.seal(slot);
        let segment = self.log.memory.segment_mut(slot);
        (segment.submitted, segment.durable) = (segment.appended, segment.appended);
        (segment.seal_submitted, segment.seal_durable, segment.closed) = (true, true, true);
        Ok(())
    }

    /// Ends the restoration: opens a new head. The head's id is above all ids in the digest, and
    /// above `highest_id`, which is the highest id of any segment found on disk, whether the digest
    /// lists that segment or not. Records the time in tables of which objects have expired: no
    /// client may learn that they have before everything in the log is durable.
    ///
    /// # Errors
    /// [`RestoreError::Unexpected`] for a segment of the digest that was not restored,
    /// [`RestoreError::Full`] if memory or the disk has no room for the new head.
    pub fn finish(self, highest_id: u64) -> Result<Log, RestoreError> {
        let mut log = self.log;
        if let Some((_, missing)) = log.memory.segments().find(|(_, segment)| !segment.closed) {
            return Err(RestoreError::Unexpected(missing.id));
        }
        log.tombstone_table = None;
        let tables: Vec<u32> = log.tables.all().map(|(table, _)| table).collect();
        tables.into_iter().for_each(|table| log.order_elements(table));
        log.position += log.config.segment_bytes as u64;
        log.memory.next_id = log.memory.next_id.max(highest_id + 1);
        let opened = log.open_head(Appender::Cleaner).is_ok()
            && self.expired.into_iter().all(|table| log.record_time(table).is_ok());
        if opened { Ok(log) } else { Err(RestoreError::Full(log.config.memory)) }
    }

    fn object(
        &mut self,
        slot: u32,
        hash: u64,
        entry: &Entry<'_>,
        bytes: &[u8],
    ) -> Result<(), RestoreError> {
        let exists = self
            .tables
            .as_ref()
            .is_none_or(|tables| tables.binary_search(&table_of(entry.table)).is_ok());
        let is_completion = Completion::of(entry).is_some();
        let is_nothing = entry.table & COMPLETIONS != 0 && !is_completion
            || entry.table & PREPARED != 0
                && !is_prepared_entry(entry.table, entry.key, entry.value)
            || entry.table & ELEMENTS != 0 && sort_key(entry.key, entry.value).is_none();
        if !exists && table_of(entry.table) == entry.table {
            // Bounded by the number of table ids that the coordinator assigned.
            *self.left_out.entry(entry.table).or_default() += 1;
        }
        if !exists || is_nothing || self.is_tombstoned(hash, entry) {
            return Ok(());
        }
        if self.log.is_expired(entry) {
            return self.expired(slot, hash, entry);
        }
        let known = self.log.lookup(hash, entry.table, entry.key);
        if known.is_some_and(|(_, known)| self.log.entry(known).version >= entry.version) {
            return Ok(());
        }
        let address = self.room(slot, bytes.len())?;
        let log = &mut self.log;
        if is_completion {
            log.note_completion(entry.key, entry.version);
        }
        log.memory.bytes[address..address + bytes.len()].copy_from_slice(bytes);
        log.memory.segment_mut(slot).live += bytes.len();
        log.account_added(entry.table, bytes.len());
        // Looks the object up again, as the cleaner may have moved it to make room.
        match known.and_then(|_| log.lookup(hash, entry.table, entry.key)) {
            Some((place, old)) => {
                log.expiry.remove(log.memory.entry(old.address).expires, hash);
                log.table.set(place, hash, address);
                log.memory.owner_mut(old.address).live -= old.len;
                log.account_removed(entry.table, old.len);
            }
            None => {
                log.table_insert(hash, address);
                log.index_prepared(entry.table, entry.key, hash, bytes.len());
            }
        }
        log.expiry.add(entry.expires, hash);
        Ok(())
    }

    /// Leaves out an object that has expired. If older versions of it may be in other segments,
    /// puts a tombstone in its place.
    fn expired(&mut self, slot: u32, hash: u64, entry: &Entry<'_>) -> Result<(), RestoreError> {
        self.expired.insert(entry.table);
        let newest = self.log.memory.next_id - 1;
        let tombstone = Entry {
            kind: Kind::Tombstone,
            value: &newest.to_le_bytes(),
            value_type: ValueType::Bytes,
            expires: NEVER,
            ..*entry
        };
        if entry.successor {
            let mut bytes = vec![0; tombstone.encoded_len()];
            tombstone.encode(&mut bytes);
            return self.tombstone(slot, hash, &tombstone, &bytes);
        }
        self.remove_older(hash, &tombstone);
        Ok(())
    }

    /// Removes the version of an object that a tombstone deletes, if it was restored.
    fn remove_older(&mut self, hash: u64, tombstone: &Entry<'_>) {
        let Entry { table, key, version, .. } = *tombstone;
        let log = &mut self.log;
        log.safe_version = log.safe_version.max(version + 1);
        if let Some((place, old)) = log.lookup(hash, table, key)
            && log.entry(old).version <= version
        {
            log.remove_dead(hash, place, old, table);
            log.unindex_prepared(table, key);
        }
    }

    /// Returns whether a tombstone for this object has been restored.
    fn is_tombstoned(&self, hash: u64, entry: &Entry<'_>) -> bool {
        let memory = &self.log.memory;
        let Some(tombstone_table) =
            self.log.tombstone_table.as_ref().filter(|tombstone_table| tombstone_table.len() > 0)
        else {
            return false;
        };
        let tombstone = tombstone_table.find(hash, |address| {
            let tombstone = memory.entry(address);
            tombstone.table == entry.table && tombstone.key == entry.key
        });
        tombstone.is_some_and(|(_, address)| memory.entry(address).version >= entry.version)
    }

    fn tombstone(
        &mut self,
        slot: u32,
        hash: u64,
        entry: &Entry<'_>,
        bytes: &[u8],
    ) -> Result<(), RestoreError> {
        self.log.safe_version = self.log.safe_version.max(entry.version + 1);
        if !self.log.memory.tombstone_lives(entry) {
            return Ok(());
        }
        let address = self.room(slot, bytes.len())?;
        let log = &mut self.log;
        log.memory.bytes[address..address + bytes.len()].copy_from_slice(bytes);
        let segment = log.memory.segment_mut(slot);
        segment.live += bytes.len();
        segment.tombstones += bytes.len();
        log.tombstone_bytes += bytes.len();
        self.remove_older(hash, entry);
        let log = &mut self.log;
        let (memory, seed) = (&log.memory, log.config.seed);
        let tombstone_table =
            log.tombstone_table.as_mut().expect("graves are kept while restoring");
        let known = tombstone_table.find(hash, |address| {
            let tombstone = memory.entry(address);
            tombstone.table == entry.table && tombstone.key == entry.key
        });
        match known {
            Some((place, known)) if memory.entry(known).version < entry.version => {
                tombstone_table.set(place, hash, address)
            }
            Some(_) => {}
            None => tombstone_table.insert(
                hash,
                address,
                |at| crate::log::hash_at(memory, seed, at),
                |_| {},
            ),
        }
        Ok(())
    }

    /// Takes room in a restored segment, compacting others as needed.
    fn room(&mut self, slot: u32, len: usize) -> Result<usize, RestoreError> {
        let log = &mut self.log;
        loop {
            let made = match log.memory.append(slot, len, 1, usize::MAX, HEAD_SEGLETS) {
                Ok(address) => return Ok(address),
                Err(NoRoom::Fragmented { run }) => log.make_run(run),
                Err(NoRoom::Memory) => false,
                Err(NoRoom::Segment | NoRoom::Disk) => unreachable!("an image has no limit"),
            };
            if !made && !log.forced_slice() {
                return Err(RestoreError::Full(log.config.memory));
            }
        }
    }
}
