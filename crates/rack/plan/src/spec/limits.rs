//! Limits of a description.

/// Limit on the length of a description, in bytes.
pub const MAX_SPEC_BYTES: usize = 1 << 20;

/// Limit on the servers of a chassis.
pub const MAX_SERVERS: usize = 1_024;

/// Limit on the disks of a server, and on its ports.
pub const MAX_PARTS: usize = 64;

/// Limit on the instances of Cassandra on a server.
pub const MAX_INSTANCES: usize = 16;

/// Limit on the tokens of an instance. Cassandra has the same limit.
pub const MAX_TOKENS: usize = 256;

/// Limit on the seeds: each instance contacts all of them.
pub const MAX_SEEDS: usize = 16;

/// Limit on the replication factor.
pub const MAX_REPLICATION: usize = 9;
