//! Limits of a description.

/// The longest description, in bytes.
pub const MAX_SPEC_BYTES: usize = 1 << 20;

/// The most servers of a chassis.
pub const MAX_SERVERS: usize = 1_024;

/// The most disks, and the most ports, of a server.
pub const MAX_PARTS: usize = 64;

/// The most instances of Cassandra on a server.
pub const MAX_INSTANCES: usize = 16;

/// The most tokens of an instance, which is Cassandra's own limit.
pub const MAX_TOKENS: usize = 256;

/// The most seeds: each instance contacts all of them.
pub const MAX_SEEDS: usize = 16;

/// The largest replication factor.
pub const MAX_REPLICATION: usize = 9;
