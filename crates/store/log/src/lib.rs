//! Log-structured memory: segments in an arena, a hash table that grows online, a two-level
//! cleaner.
//!
//! A [`Log`] keeps objects, each a key in a numbered table and a value, in a sequence of
//! *segments*. New entries go to the last one, the *head*; a hash table finds the newest entry of
//! each key; the *cleaner* frees the memory of dead entries. No network, no disk, no clock, no
//! lock: one thread owns a log, hands its bytes to the disk, and reports to it what is durable.
//!
//! # Invariants between any two calls
//!
//! *Memory.* Every seglet is free, or owned by one segment: in one of its extents, or in limbo
//! because a reader still uses it. An extent is a row of whole entries without gaps; no entry
//! crosses an extent's end. The bytes of a segment do not change or move before all of them are
//! durable.
//!
//! *Liveness.* An object is alive if the hash table points to it: exactly one entry of each key. A
//! tombstone is alive while a segment that may hold a deleted version is on disk; the tombstone
//! records which segments these may be (see [`sprat_wire::entry::Entry::successor`]). Each
//! segment's count of live bytes is exact, except that it includes tombstones whose death the
//! cleaner has not noticed yet.
//!
//! *Versions.* Each write of a key has a higher version than all before, also across removals and
//! restarts: an overwrite adds one, and a new key begins at the *safe version*, which is above the
//! version of every object ever removed. Segments record it in their headers, and a tombstone is
//! freed only after a later header was written.
//!
//! *Once.* The completion of an operation ([`sprat_wire::once`]) is an object of the table of
//! completions that belongs to each table. It is appended together with the entry that the
//! operation wrote, directly before it, to the same head. Completions of clients not heard of for
//! long are dead.
//!
//! *Disk.* Replay is: take the newest head on disk, read the segments that its digest lists, keep
//! the highest version of each key unless a tombstone deletes it. Four rules ensure that this gives
//! every durable write and nothing removed:
//! 1. A head is handed out only when its predecessor is sealed and wholly durable; if replicas are
//!    on other servers, it is open there before the old one is sealed (decision 15).
//! 2. A head's digest lists every segment that was opened as a head, and every survivor that was
//!    wholly durable when the head was opened, provided that the log up to the time when the
//!    survivor was filled was durable too; but none of those cleaned into such survivors.
//! 3. A replica is freed only when a durable head no longer lists it.
//! 4. Only closed segments are cleaned: sealed, wholly durable, listed.
//!
//! *Progress.* Compaction works in place, so it needs neither memory nor disk. Combination has a
//! reserve of both: seglets that no writer may take, and segments on disk that no writer may open.
//! Objects may fill only [`Log::capacity`]. So as long as the disk works, an admitted write finds
//! room.

mod arena;
mod cleaner;
mod clients;
mod completions;
mod config;
mod copy;
mod log;
mod pin;
mod replicate;
mod restore;
mod scan;
mod seglets;
mod segment;
mod stats;
mod table;
mod tables;

pub use cleaner::{CleanReport, CleanerStats, SLICE_BYTES, SLICE_ENTRIES};
pub use clients::MAX_CLIENTS;
pub use completions::Operation;
pub use config::{Config, ConfigError, Durability, MAX_MEMORY, MIN_MEMORY, RESERVED_SEGMENTS};
pub use copy::SegmentCopy;
pub use log::{Full, Log, Ref, Written};
pub use pin::Pin;
pub use replicate::{OpenSegment, PENDING_SLICES, Pending};
pub use restore::{Restore, RestoreError};
pub use scan::SCAN_CHAINS;
pub use sprat_wire::entry::Role;
pub use stats::Stats;
pub use tables::TableStats;
