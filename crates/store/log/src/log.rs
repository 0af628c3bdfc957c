//! The log itself: put, find, remove.

mod head;

pub(crate) use head::Appender;

use crate::cleaner::Cleaner;
use crate::clients::Clients;
use crate::completions::Operation;
use crate::config::{Config, ConfigError, Durability};
use crate::evict::Evictions;
use crate::expiry::Expiry;
use crate::group::OpenGroup;
use crate::order::{GoneCollections, Orders};
use crate::segment::Memory;
use crate::table::{Table, TableSlot};
use crate::tables::Tables;
use crate::transactions::{PreparedEntries, is_prepared_entry};
use sprat_wire::elements::{ELEMENTS, sort_key};
use sprat_wire::entry::{Entry, HEADER_BYTES, Kind, entry_len};
use sprat_wire::expiry::{NEVER, Time};
use sprat_wire::once::COMPLETIONS;
use sprat_wire::tablet::{Tablet, hash, position};
use sprat_wire::transaction::PREPARED;
use sprat_wire::value::ValueType;
use sprat_wire::{MAX_KEY, MAX_VALUE, SEGLET_BYTES};
use std::collections::VecDeque;
use thiserror::Error;

/// Cache lines of an entry to prefetch: those of a small object.
const PREFETCH_LINES: usize = 3;

/// Slot number that means no segment.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// Share of the memory, without the reserves, that objects may fill. The rest is for tombstones,
/// headers, and dead bytes that the cleaner has not freed yet.
const LIVE_SHARE: (usize, usize) = (15, 16);

/// Upper limit of the reserve: seglets that writers of objects leave to the cleaner and to
/// removals. The limit is the number of seglets of the longest entry, and a few more.
const RESERVE_MAX: usize = 24;

/// Upper limit of the low-water mark, in free seglets above the reserve: with fewer free seglets
/// than the mark, writers pay for cleaning. The mark is low so that the cleaner waits: the longer
/// it waits, the fewer entries are alive in the segments that it cleans. A low mark suffices: a
/// writer cleans about as much as it writes.
const LOW_WATER_MAX: usize = 32;

/// Number of free seglets that only removals, and headers of heads that the cleaner opens, may
/// take. They hold the tombstones and completions of some hundred removals, so that a log can be
/// emptied however full it is.
pub(crate) const REMOVALS: usize = 1;

/// Why an entry was not written.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum Full {
    /// Live data fills the memory: some objects must be removed first. Or the entry is too long for
    /// a segment, so that it can never be written.
    #[error("memory is full of live data")]
    Memory,
    /// The disk takes no more segments for now ([`Log::limit_disk`]), and nothing can be cleaned:
    /// some objects must be removed first, or the disk needs more room.
    #[error("the disk is full")]
    Disk,
    /// There is no room now, but there may be room after more of the log is durable or pins are
    /// released, because dead data can be cleaned then. Retry after either has happened, or at once
    /// if some objects [give way](Log::set_evictable): each attempt evicts a limited number.
    #[error("memory waits for the disk or for readers")]
    Replication,
}

/// A reference to an entry: its address and length. It is valid until the log is changed or
/// cleaned; a [`crate::Pin`] is valid for longer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ref {
    pub(crate) address: usize,
    pub(crate) len: usize,
}

impl Ref {
    /// Returns the number of bytes of the entry, header included.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no entry is empty")]
    pub fn len(&self) -> usize {
        self.len
    }
}

/// What an object has besides its key and version.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Content<'a> {
    /// The value.
    pub value: &'a [u8],
    /// The value's type. The value of a counter has 8 bytes.
    pub value_type: ValueType,
    /// When the object [expires](Log::expire).
    pub expires: Time,
}

impl<'a> Content<'a> {
    /// Returns the content of an object that is no counter and does not expire.
    #[must_use]
    pub fn bytes(value: &'a [u8]) -> Self {
        Self { value, value_type: ValueType::Bytes, expires: NEVER }
    }
}

/// The result of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Written {
    /// The object's version.
    pub version: u64,
    /// The entry that was written.
    pub reference: Ref,
}

/// A log-structured memory: objects by table and key, in segments.
///
/// One thread owns a log, and no call blocks. Writes ([`put`](Self::put), [`remove`](Self::remove))
/// append to the head and clean as much as they need; call [`clean`](Self::clean) when idle. With
/// [`Durability::Tracked`] the owner does the following:
/// - It takes bytes from [`next_pending`](Self::next_pending), replicates them, and reports them
///   with [`mark_submitted`](Self::mark_submitted) and [`mark_durable`](Self::mark_durable).
/// - It acknowledges a write once [`durable_position`](Self::durable_position) has reached the
///   [`position`](Self::position) behind the write.
/// - It frees the replicas that [`take_reclaimable`](Self::take_reclaimable) returns.
///
/// A log is [restored](crate::Restore) from the segments that its newest head lists. The crate's
/// documentation states the invariants.
pub struct Log {
    pub(crate) config: Config,
    pub(crate) memory: Memory,
    pub(crate) table: Table,
    pub(crate) tables: Tables,
    pub(crate) cleaner: Cleaner,
    /// Clients whose completions are kept.
    pub(crate) clients: Clients,
    pub(crate) prepared: PreparedEntries,
    pub(crate) expiry: Expiry,
    pub(crate) orders: Orders,
    pub(crate) gone_collections: GoneCollections,
    /// See [`Log::fields_changed_at`].
    pub(crate) fields_changed_at: u64,
    pub(crate) evictions: Evictions,
    /// Tombstones by key, while the log is restored.
    pub(crate) tombstone_table: Option<Table>,
    /// Segment that writers append to.
    pub(crate) head: u32,
    /// Heads that are not yet sealed and wholly durable, oldest first; the last is `head`. Empty if
    /// there is no disk.
    pub(crate) heads: VecDeque<u32>,
    /// Survivors that are not yet sealed and wholly durable. Empty if there is no disk.
    pub(crate) survivors: Vec<u32>,
    /// Segments whose replicas may be freed.
    pub(crate) reclaimable: Vec<u64>,
    /// Number of segments ever made reclaimable.
    pub(crate) reclaimed: u64,
    /// The safe version: above every version ever removed.
    pub(crate) safe_version: u64,
    /// The safe version in the newest head.
    head_version: u64,
    /// Bytes ever appended to heads.
    pub(crate) position: u64,
    /// The group that is being written.
    pub(crate) group: Option<OpenGroup>,
    /// The groups that are not wholly durable: the positions where each begins and ends.
    pub(crate) groups: VecDeque<(u64, u64)>,
    /// Bytes of the entries of objects and completions, and bytes of tombstones.
    pub(crate) object_bytes: usize,
    pub(crate) tombstone_bytes: usize,
    /// Seglets that only the cleaner and removals may take.
    pub(crate) reserve: usize,
    /// Free seglets below which writers pay for cleaning.
    pub(crate) low_water: usize,
    /// Free seglets below which idle time is used for cleaning.
    pub(crate) idle_water: usize,
    /// The largest number of segments that the disk has room for now. It counts only if it is below
    /// the configured limit.
    pub(crate) disk_limit: usize,
    /// The largest length of the head, in bytes. It counts only if it is below that of a segment.
    pub(crate) head_limit: usize,
}

impl Log {
    /// Makes an empty log.
    ///
    /// # Errors
    /// When the configuration is invalid, or the address space cannot be reserved.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        let mut log = Self::headless(config)?;
        log.open_head(Appender::Cleaner).expect("an empty arena has room for a header");
        Ok(log)
    }

    /// Makes an empty log without a head, which cannot be written to.
    pub(crate) fn headless(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let seglets = config.seglets();
        let reserve = (seglets / 128).clamp(2 + REMOVALS, RESERVE_MAX);
        Ok(Self {
            memory: Memory::new(seglets)?,
            table: Table::new(config.memory / HEADER_BYTES)?,
            tables: Tables::default(),
            cleaner: Cleaner::default(),
            clients: Clients::default(),
            prepared: PreparedEntries::default(),
            expiry: Expiry::default(),
            orders: Orders::default(),
            gone_collections: GoneCollections::default(),
            fields_changed_at: 0,
            evictions: Evictions::default(),
            tombstone_table: None,
            head: NO_SLOT,
            heads: VecDeque::new(),
            survivors: Vec::new(),
            reclaimable: Vec::new(),
            reclaimed: 0,
            safe_version: 1,
            head_version: 0,
            position: 0,
            group: None,
            groups: VecDeque::new(),
            object_bytes: 0,
            tombstone_bytes: 0,
            reserve,
            low_water: reserve + (seglets / 64).clamp(2, LOW_WATER_MAX),
            idle_water: seglets / 8,
            disk_limit: usize::MAX,
            head_limit: usize::MAX,
            config,
        })
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the hash of a key, in one pass and without allocation.
    #[inline]
    #[must_use]
    pub fn hash(&self, table: u32, key: &[u8]) -> u64 {
        hash(self.config.seed, table, key)
    }

    /// Returns the [position] of a key in its table, under the seed of this log.
    #[must_use]
    pub fn position_of(&self, table: u32, key: &[u8]) -> u64 {
        position(self.config.seed, table, key)
    }

    /// Prefetches the memory that [`Log::find`] looks at first: call it as soon as the hash is
    /// known.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.table.prefetch(hash);
    }

    /// Prefetches the entry that [`Log::find`] will probably find: call it once the memory that
    /// [`Log::prefetch`] requested has arrived, some 100 ns later.
    #[inline]
    pub fn prefetch_entry(&self, hash: u64) {
        if let Some(address) = self.table.peek(hash) {
            for line in 0..PREFETCH_LINES {
                if let Some(byte) = self.memory.bytes.get(address + line * 64) {
                    crate::arena::prefetch(byte);
                }
            }
        }
    }

    /// Finds an object. Returns `None` if there is no such object or its table was dropped.
    #[inline]
    #[must_use]
    pub fn find(&self, table: u32, key: &[u8]) -> Option<Ref> {
        self.find_hashed(self.hash(table, key), table, key)
    }

    /// Finds an object like [`find`](Self::find), given the hash of its key.
    #[inline]
    #[must_use]
    pub fn find_hashed(&self, hash: u64, table: u32, key: &[u8]) -> Option<Ref> {
        let (_, reference) = self.lookup(hash, table, key)?;
        (!self.tables.is_dropped(table)).then_some(reference)
    }

    /// Returns the entry at a reference. Its checksum is not verified: memory is trusted.
    ///
    /// # Panics
    /// Possibly, when the reference is out of date.
    #[inline]
    #[must_use]
    pub fn entry(&self, reference: Ref) -> Entry<'_> {
        self.memory.entry(reference.address)
    }

    /// Writes an object, replacing the one with the same key if there is one.
    ///
    /// The object's version is one more than that of the object it replaces. For a new key it is
    /// above the version of every object ever removed.
    ///
    /// # Errors
    /// [`Full`] when memory or the disk has no room for the entry, perhaps only until more of the
    /// log is durable or until pins are released. The log is unchanged then.
    ///
    /// # Panics
    /// When the key or value is over its limit ([`MAX_KEY`], [`MAX_VALUE`]): callers check input
    /// from outside.
    pub fn put(&mut self, table: u32, key: &[u8], value: &[u8]) -> Result<Written, Full> {
        self.put_content(table, key, Content::bytes(value), None)
    }

    /// Writes an object like [`put`](Self::put), for an operation that takes effect once: writes
    /// the object and the operation's completion, or neither.
    ///
    /// # Errors
    /// [`Full`] when memory or the disk has no room for the object and its completion, perhaps only
    /// until more of the log is durable or until pins are released. The log is unchanged then.
    ///
    /// # Panics
    /// As [`put`](Self::put); also when the operation, or a later one of its slot, was done before:
    /// see [`Log::completion`].
    pub fn put_once(
        &mut self,
        table: u32,
        key: &[u8],
        value: &[u8],
        operation: &Operation<'_>,
    ) -> Result<Written, Full> {
        self.put_content(table, key, Content::bytes(value), Some(operation))
    }

    /// Writes an object with all that it has, like [`put`](Self::put), or like
    /// [`put_once`](Self::put_once) if there is an `operation`.
    ///
    /// # Errors
    /// [`Full`] when memory or the disk has no room for the entries, perhaps only until more of the
    /// log is durable or until pins are released. The log is unchanged then.
    ///
    /// # Panics
    /// As [`put_once`](Self::put_once); also when the value of a counter is not 8 bytes long.
    pub fn put_content(
        &mut self,
        table: u32,
        key: &[u8],
        content: Content<'_>,
        operation: Option<&Operation<'_>>,
    ) -> Result<Written, Full> {
        self.write(table, key, content, None, operation, Appender::Writer)
    }

    /// Writes an object of another log, given by its entry there, with its version. Writes nothing
    /// if this log has the same or a later version of the key, or if the object is in a table of
    /// prepared entries or of elements and is none. Returns whether the object was written. Later
    /// writes of the key get higher versions.
    ///
    /// # Errors
    /// [`Full`] when memory or the disk has no room for the entry, perhaps only until more of the
    /// log is durable or until pins are released. The log is unchanged then.
    ///
    /// # Panics
    /// As [`put`](Self::put); also when the value of a counter is not 8 bytes long.
    pub fn adopt(&mut self, entry: &Entry<'_>) -> Result<bool, Full> {
        let Entry { table, key, value, value_type, version, expires, .. } = *entry;
        let known = self.find(table, key).map(|known| self.entry(known).version);
        let is_nothing = table & PREPARED != 0 && !is_prepared_entry(table, key, value)
            || table & ELEMENTS != 0 && sort_key(key, value).is_none();
        if is_nothing || known.is_some_and(|known| known >= version) {
            return Ok(false);
        }
        let content = Content { value, value_type, expires };
        self.write(table, key, content, Some(version), None, Appender::Writer).map(|_| true)
    }

    /// Raises the version at which new keys begin to at least `version`, the safe version of
    /// another log whose objects are [adopted](Self::adopt). Returns whether the newest head's
    /// header already records `version` or a higher one, so that a recovery of this log finds it. A
    /// safe version above `version` in memory does not suffice, because it may result from removals
    /// in a part of the log that another server recovers.
    pub fn raise_version(&mut self, version: u64) -> bool {
        self.safe_version = self.safe_version.max(version);
        version <= self.head_version
    }

    /// Returns the version that the next object of a new key gets. It is above the version of every
    /// object ever removed.
    #[must_use]
    pub fn least_version(&self) -> u64 {
        self.safe_version
    }

    pub(crate) fn write(
        &mut self,
        table: u32,
        key: &[u8],
        content: Content<'_>,
        version: Option<u64>,
        operation: Option<&Operation<'_>>,
        appender: Appender,
    ) -> Result<Written, Full> {
        let Content { value, value_type, expires } = content;
        assert!(key.len() <= MAX_KEY && value.len() <= MAX_VALUE);
        let hash = self.hash(table, key);
        self.table.prefetch(hash);
        let len = entry_len(key.len(), value.len(), expires);
        let before = operation.map_or(0, Operation::len);
        let completion = match appender {
            Appender::Writer => self.make_room_for_object((hash, table, key), before + len),
            _ => self.make_room(before + len, appender),
        }?;
        let address = completion + before;
        // From here on nothing fails. The lookup comes after the cleaning, which may move the
        // object.
        let known = self.lookup(hash, table, key);
        let (next, successor) = match known {
            Some((_, old)) => {
                let entry = self.memory.entry(old.address);
                let contained =
                    !entry.successor && self.memory.seglets.owner(old.address) == self.head;
                (entry.version + 1, !contained)
            }
            None => (self.safe_version, false),
        };
        let version = version.unwrap_or(next);
        let entry = Entry {
            kind: Kind::Object,
            successor,
            table,
            version,
            key,
            value,
            value_type,
            expires,
        };
        entry.encode(&mut self.memory.bytes[address..address + len]);
        match known {
            Some((place, old)) => {
                self.note_gone(old.address, Some(&entry));
                self.expiry.remove(self.memory.entry(old.address).expires, hash);
                let moved = self.order_replacing(hash, old.address, address);
                self.table.set(place, hash, address);
                self.order_replaced(hash, address, moved);
                self.table.note_used(place);
                self.memory.owner_mut(old.address).live -= old.len;
                self.account_removed(table, old.len);
            }
            None => {
                self.table_insert(hash, address);
                self.index_prepared(table, key, hash, len);
                self.order_added(table, hash, address);
            }
        }
        self.expiry.add(expires, hash);
        self.memory.owner_mut(address).live += len;
        self.account_added(table, len);
        if let Some(operation) = operation {
            self.complete(completion, table, version, operation);
        }
        Ok(Written { version, reference: Ref { address, len } })
    }

    /// Removes an object; returns its version, or `None` when there was no such object.
    ///
    /// # Errors
    /// [`Full`] when there is no room for the tombstone. The log is unchanged then.
    pub fn remove(&mut self, table: u32, key: &[u8]) -> Result<Option<u64>, Full> {
        self.remove_inner(table, key, None)
    }

    /// Removes an object like [`remove`](Self::remove), for an operation that takes effect once:
    /// writes the tombstone and the operation's completion, or neither. When there was no such
    /// object, writes nothing.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    ///
    /// # Panics
    /// As [`put_once`](Self::put_once).
    pub fn remove_once(
        &mut self,
        table: u32,
        key: &[u8],
        operation: &Operation<'_>,
    ) -> Result<Option<u64>, Full> {
        self.remove_inner(table, key, Some(operation))
    }

    fn remove_inner(
        &mut self,
        table: u32,
        key: &[u8],
        operation: Option<&Operation<'_>>,
    ) -> Result<Option<u64>, Full> {
        let hash = self.hash(table, key);
        if self.find_hashed(hash, table, key).is_none() {
            return Ok(None);
        }
        let before = operation.map_or(0, Operation::len);
        let len = match self.config.durability {
            Durability::Volatile => 0,
            Durability::Tracked => HEADER_BYTES + key.len() + size_of::<u64>(),
        };
        let room =
            if before + len > 0 { self.make_room(before + len, Appender::Remover)? } else { 0 };
        let tombstone = (len > 0).then_some((room + before, len));
        let (place, old) = self.lookup(hash, table, key).expect("cleaning loses no object");
        let entry = self.memory.entry(old.address);
        let (version, expires) = (entry.version, entry.expires);
        if let Some((address, len)) = tombstone {
            // After a crash a survivor that no digest lists yet possibly does not count, and the
            // object is then found in its source segment.
            let holder = self.memory.segment(self.memory.seglets.owner(old.address));
            let successor = entry.successor || !holder.listed;
            let segment = if successor { self.memory.next_id - 1 } else { holder.id };
            let value = segment.to_le_bytes();
            let value_type = ValueType::Bytes;
            let entry = Entry {
                kind: Kind::Tombstone,
                successor,
                table,
                version,
                key,
                value: &value,
                value_type,
                expires: NEVER,
            };
            entry.encode(&mut self.memory.bytes[address..address + len]);
            let head = self.memory.segment_mut(self.head);
            head.live += len;
            head.tombstones += len;
            self.tombstone_bytes += len;
        }
        self.order_removed(hash, old.address);
        self.table.remove(hash, place);
        self.expiry.remove(expires, hash);
        self.unindex_prepared(table, key);
        self.memory.owner_mut(old.address).live -= old.len;
        self.account_removed(table, old.len);
        if let Some(operation) = operation {
            self.complete(room, table, version, operation);
        }
        self.safe_version = self.safe_version.max(version + 1);
        Ok(Some(version))
    }

    /// Drops a table: its objects are no longer found, and [`Log::clean`] frees them over time.
    ///
    /// The log does not record the drop: at a restart the caller states which tables exist. The id
    /// must not be used again while [`Log::is_dropped`] returns true. In a log that may be restored
    /// from disk it must never be used again.
    pub fn drop_table(&mut self, table: u32) {
        for id in ids_of(table) {
            self.tables.drop_table(id);
            self.orders.forget(id);
        }
        self.prepared.drop_tablet(Tablet::whole(table));
        self.cleaner.purge_from_start();
    }

    /// Returns whether a table was dropped here and some of it is not freed yet: until then nothing
    /// may be written with this id.
    #[must_use]
    pub fn is_dropped(&self, table: u32) -> bool {
        ids_of(table).into_iter().any(|id| self.tables.is_dropped(id))
    }

    /// Drops the objects, prepared entries and elements of a tablet, as
    /// [`drop_table`](Self::drop_table) drops those of a whole table. Completions stay unless the
    /// tablet is the whole table, because the log does not know to which tablet they belong.
    /// Objects that are not freed yet are still found: callers must not look for them.
    pub fn drop_tablet(&mut self, tablet: Tablet) {
        if tablet.range.is_all() {
            return self.drop_table(tablet.table);
        }
        self.tables.drop_tablet(tablet);
        self.tables.drop_tablet(Tablet { table: tablet.table | PREPARED, ..tablet });
        self.tables.drop_tablet(Tablet { table: tablet.table | ELEMENTS, ..tablet });
        self.prepared.drop_tablet(tablet);
        self.cleaner.purge_from_start();
    }

    /// Returns whether a tablet, or a part of it, was dropped here and is not freed yet.
    #[must_use]
    pub fn is_dropping(&self, tablet: Tablet) -> bool {
        self.is_dropped(tablet.table) || self.tables.is_dropping(tablet)
    }

    /// Looks a key up in the hash table, also in dropped tables.
    #[inline]
    pub(crate) fn lookup(&self, hash: u64, table: u32, key: &[u8]) -> Option<(TableSlot, Ref)> {
        let mut len = 0;
        let (place, address) = self.table.find(hash, |address| {
            let entry = self.memory.entry(address);
            len = entry.encoded_len();
            entry.table == table && entry.key == key
        })?;
        Some((place, Ref { address, len }))
    }

    pub(crate) fn table_insert(&mut self, hash: u64, address: usize) {
        let (memory, seed) = (&self.memory, self.config.seed);
        self.table.insert(
            hash,
            address,
            |at| hash_at(memory, seed, at),
            |at| crate::arena::prefetch(&memory.bytes[at]),
        );
    }

    pub(crate) fn account_added(&mut self, table: u32, len: usize) {
        self.object_bytes += len;
        self.tables.add(table, len);
    }

    pub(crate) fn account_removed(&mut self, table: u32, len: usize) {
        self.object_bytes -= len;
        self.tables.subtract(table, len);
    }

    /// Returns the largest number of bytes of objects that the log accepts.
    ///
    /// Objects much shorter than a seglet can fill it. Longer objects lose up to a seglet at the
    /// end of each run of memory, depending on the order in which they are written. An object of 1
    /// MB with its header takes 17 seglets, and may lose nearly one of them.
    #[must_use]
    pub fn capacity(&self) -> usize {
        (self.config.seglets() - self.reserve - self.config.seglets_lost()) * SEGLET_BYTES
            / LIVE_SHARE.1
            * LIVE_SHARE.0
    }

    /// Refuses an entry that would exceed the capacity, because with more live data the cleaner
    /// would find less and less to clean. A prepared entry also needs room for its decision.
    pub(crate) fn admit(&self, hash: u64, table: u32, key: &[u8], len: usize) -> Result<(), Full> {
        let len = if table & PREPARED == 0 { len } else { 2 * len };
        let taken = self.object_bytes + self.prepared.promised;
        if taken + len <= self.capacity() {
            return Ok(());
        }
        let old = self.lookup(hash, table, key).map_or(0, |(_, old)| old.len);
        if len <= old || taken + len - old <= self.capacity() { Ok(()) } else { Err(Full::Memory) }
    }
}

/// Returns the ids that a table's entries have in the log.
fn ids_of(table: u32) -> [u32; 4] {
    [table, table | COMPLETIONS, table | PREPARED, table | ELEMENTS]
}

/// Hash of the entry at `address`.
#[inline]
pub(crate) fn hash_at(memory: &Memory, seed: u64, address: usize) -> u64 {
    let entry = memory.entry(address);
    hash(seed, entry.table, entry.key)
}
