//! Benchmarks of Sprat beside its peers: each starts all servers that it measures, and stops them.
//!
//! - [`promises`] judges what was measured against goals: of the [`store`], of its paths past the
//!   kernel ([`bypass`]), of where its time goes ([`breakdown`]), and of what replicas cost and a
//!   death does ([`cluster`]).
//! - [`lab`] measures the network box, [`flow`] the mover, [`rack`] a real Cassandra that is tuned,
//!   [`grape`] the calculator; [`browser`] drives real browsers, for figures of the mover and for
//!   tests of the extension.
//! - [`basic`] measures a cluster that runs; [`distribution`] explains the steps in the tail of its
//!   latencies.
//! - [`system`] and [`scenarios`] start whole servers: [`ours`], the [`peers`], and the bare path
//!   below them ([`echo`]); [`cables`] join them.
//!
//! Loads, histograms and reports are those of `sprat_measure`. Nothing here prints: results render
//! to strings and files, and the caller decides where they go.

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
