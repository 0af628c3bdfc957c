//! Every byte layout on the network and on disk, versioned.
//!
//! - [`packet`]: the header of a packet between two RPC endpoints.
//! - [`channel`]: encrypted frames between members that prove their identities; [`certificate`]:
//!   the certificates that a cluster's root issues to them.
//! - [`op`]: the requests to coordinators, masters and backups, and their answers.
//! - [`entry`]: an entry of the log, the same bytes in memory, on the network and on disk.
//! - [`elements`]: collections, and their elements in the log.
//! - [`expiry`]: after how long objects cease to exist by themselves.
//! - [`order`]: ranges of the keys of an ordered table, or of an index; [`index`]: what an index
//!   finds in values.
//! - [`group`]: entries of the log that count together or not at all.
//! - [`once`]: operations that take effect once, and their completion records.
//! - [`tablet`]: parts of tables.
//! - [`transaction`]: operations that take effect together or not at all.
//! - [`value`]: the types of values, and the arithmetic of increments.
//! - [`frame`]: how a backup frames a segment's bytes on disk.
//!
//! All integers are little-endian. This crate parses bytes from outside once, into types that
//! cannot hold invalid values; malformed bytes give a typed error or `None`, never a panic.

pub mod certificate;
pub mod channel;
pub mod elements;
pub mod entry;
pub mod expiry;
pub mod frame;
pub mod group;
pub mod index;
pub mod limits;
pub mod once;
pub mod op;
pub mod order;
pub mod packet;
pub mod tablet;
pub mod transaction;
pub mod value;

pub use limits::*;
