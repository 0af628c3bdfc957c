//! How much of something a description may have.

/// Longest description, bytes.
pub const MAX_SPEC_BYTES: usize = 1 << 20;

/// Most servers of a chassis.
pub const MAX_SERVERS: usize = 1_024;

/// Most disks and ports of a server.
pub const MAX_PARTS: usize = 64;

/// Most instances of Cassandra on a server.
pub const MAX_INSTANCES: usize = 16;

/// Most tokens of an instance, as Cassandra has it.
pub const MAX_TOKENS: usize = 256;

/// Most seeds: each of them is asked by all others.
pub const MAX_SEEDS: usize = 16;

/// Most replicas of data.
pub const MAX_REPLICATION: usize = 9;
