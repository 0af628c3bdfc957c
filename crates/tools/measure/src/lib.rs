//! How Sprat measures and prints: what the benchmarks, the load for Cassandra and the reports of
//! commands share.
//!
//! - [`target`]: what a system under load looks like to the generator.
//! - [`load`]: closed and open loads, keys, what a run found; interleaved rounds over several
//!   targets.
//! - [`hist`]: latencies, counted; [`jitter`]: how often a thread that only spins is held up.
//! - [`machine`], [`usage`], [`cpu`]: where something was measured, and what ran beside it.
//! - [`goals`], [`table`], [`report`]: how figures are judged and printed.
//!
//! Nothing here prints: results render to strings and files, and the caller decides where they go.

pub mod cpu;
pub mod goals;
pub mod hist;
pub mod jitter;
pub mod load;
pub mod machine;
pub mod report;
pub mod table;
pub mod target;
pub mod usage;
