//! Log-structured memory: segments in an arena, a hash table that grows online, a two-level
//! cleaner.
//!
//! A [`Log`] keeps objects in a sequence of *segments*. An object has a key in a numbered table,
//! and a value. New entries go to one segment, the *head*. A hash table finds the newest entry of
//! each key. The *cleaner* frees the memory of dead entries. A log uses no network, disk, clock or
//! lock: one thread owns it, hands the log's bytes to the disk, and reports to the log which of
//! them are durable.
//!
//! # Invariants between any two calls
//!
//! *Memory.* Every seglet is free, or owned by one segment. An owned seglet is in one of the
//! segment's extents, or in limbo because a reader still uses it. An extent is a row of whole
//! entries without gaps; no entry crosses an extent's end. The bytes of a segment do not change or
//! move before all of them are durable.
//!
//! *Liveness.* An object is alive if the hash table points to it; the table points to exactly one
//! entry of each key. A tombstone is alive while a segment that may hold a deleted version is on
//! disk; the tombstone records which segments these may be (see
//! [`sprat_wire::entry::Entry::successor`]). Each segment's count of live bytes is exact, except
//! that it includes tombstones whose death the cleaner has not noticed yet.
//!
//! *Versions.* Each write of a key gets a higher version than all earlier writes of the key, also
//! across removals and restarts. An overwrite adds one. A new key begins at the *safe version*,
//! which is above the version of every object ever removed. Segments record the safe version in
//! their headers, and a tombstone is freed only after a later header was written.
//!
//! *Operations that take effect once.* The completion of such an operation ([`sprat_wire::once`])
//! is an object. The completions of operations on a table are in a second table of their own. A
//! completion is appended together with the entry that its operation wrote, directly before that
//! entry and to the same head. Completions of clients that were silent for long are dead, unless
//! one of the client's operations is prepared.
//!
//! *Groups.* Entries of a group ([`Log::begin_group`]) lie in one head, behind a mark. If replay
//! finds only a part of a group at the end of the log, it leaves the part out. So no entry of a
//! group counts as durable before all are.
//!
//! *Transactions.* A prepared entry ([`sprat_wire::transaction`]) is an object of a third table. It
//! locks an object until the log has the completion of its operation. For each prepared entry the
//! log leaves memory free for the change that the operation will write.
//!
//! *Expiry.* An object that expires is in an index by its time of expiry. It is removed only when
//! its table has a time record, in the log before everything that follows from the removal, that
//! is not before that time. Older versions of such an object either lie in its own segment, or a
//! tombstone guards against them.
//!
//! *Eviction.* When a write finds no room, objects of tablets that the owner has named are removed,
//! as [`Log::remove`] does, with tombstones. No other object is.
//!
//! *Order.* The objects of tables that the owner has named, and the elements of all
//! [collections](sprat_wire::elements), are in order, too, in ordinary memory: of their keys, or of
//! fields of their values. An order has an object if and only if the hash table has it, the object
//! has a key in this order, and the walk that follows the naming has passed its position.
//!
//! *Disk.* Replay takes the newest head on disk, reads the segments that its digest lists, and
//! keeps the highest version of each key unless a tombstone deletes it. Four rules ensure that
//! replay finds every durable write and nothing that was removed:
//! 1. On a node's own disk, a head's bytes are handed out only when its predecessor is sealed and
//!    wholly durable. On other servers, a head's replicas are open before the predecessor is sealed
//!    (decision 15).
//! 2. A head's digest lists every segment that was opened as a head, and the survivors of each
//!    combination that was durable when the head was opened. A combination is durable when its
//!    survivors are wholly durable and the log is durable up to the position at which the
//!    combination finished. The digest lists none of the segments cleaned into these survivors.
//! 3. A replica is freed only when a durable head no longer lists it.
//! 4. Only closed segments are cleaned: sealed, wholly durable, listed.
//!
//! *Progress.* Compaction works in place, so it needs neither memory nor disk. Combination has a
//! reserve of both: seglets that no writer may take, and segments on disk that no writer may open.
//! Objects may fill at most [`Log::capacity`]. So as long as the disk works, an admitted write
//! finds room.

mod arena;
mod cleaner;
mod clients;
mod completions;
mod config;
mod copy;
mod evict;
mod expiry;
mod group;
mod log;
mod order;
mod pin;
mod replicate;
mod restore;
mod scan;
mod seglets;
mod segment;
mod stats;
mod table;
mod tables;
mod transactions;

pub use cleaner::{CleanReport, CleanerStats, SLICE_BYTES, SLICE_ENTRIES};
pub use clients::MAX_CLIENTS;
pub use completions::Operation;
pub use config::{Config, ConfigError, Durability, MAX_MEMORY, MIN_MEMORY, RESERVED_SEGMENTS};
pub use copy::{CUT_SLICES, SegmentCopy};
pub use evict::EVICTED_AT_ONCE;
pub use expiry::{EXPIRED_AT_ONCE, RECORD_AHEAD};
pub use log::{Content, Full, Log, Ref, Written};
pub use order::SCAN_KEYS;
pub use pin::Pin;
pub use replicate::{OpenSegment, PENDING_SLICES, Pending};
pub use restore::{Restore, RestoreError};
pub use scan::SCAN_CHAINS;
pub use sprat_wire::entry::Role;
pub use stats::Stats;
pub use tables::TableStats;
