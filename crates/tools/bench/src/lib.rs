//! Benchmarks of Sprat and its peers. Most start the servers that they measure, and stop them.
//!
//! - [`promises`] runs lists of chapters and judges their results against goals. The lists cover
//!   the [`store`], its kernel-bypass paths ([`bypass`]), the [`breakdown`] of its latency, and a
//!   [`cluster`] with replicas and failures.
//! - [`lab`] measures the network box, [`flow`] the file mover, [`rack`] the tuning of a real
//!   Cassandra, and [`grape`] the particle kernels. [`browser`] drives real browsers, for
//!   measurements of the mover and for tests of the extension.
//! - [`basic`] and [`ping`] measure a running cluster. [`distribution`] explains the steps in the
//!   tail of the latencies.
//! - [`system`] and [`scenarios`] start and compare whole systems: [`ours`], the [`peers`], and the
//!   bare path below them ([`echo`]). [`cables`] connect them.
//!
//! Load generators, histograms and reports are those of `sprat_measure`. Nothing here prints:
//! results render to strings and files, and the caller decides where they go.

pub mod basic;
pub mod breakdown;
pub mod browser;
pub mod bypass;
pub mod cables;
pub mod cluster;
mod counts;
pub mod distribution;
pub mod echo;
pub mod flow;
pub mod grape;
pub mod lab;
pub mod ours;
pub mod peers;
pub mod ping;
pub mod promises;
pub mod rack;
pub mod scenarios;
mod single;
pub mod store;
pub mod system;
