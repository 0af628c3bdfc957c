//! Measurement and reporting, shared by the benchmarks, the load for Cassandra and the reports of
//! commands.
//!
//! - [`target`]: the interface of a system under load.
//! - [`load`]: closed and open loads, keys, results; interleaved rounds over several targets.
//! - [`hist`]: latency histograms; [`jitter`]: how often a spinning thread is interrupted.
//! - [`machine`], [`usage`], [`cpu`]: the machine of a measurement, and the other processes on it.
//! - [`goals`], [`table`], [`report`]: judging and rendering figures.
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
