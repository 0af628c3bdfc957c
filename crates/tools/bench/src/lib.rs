//! What is measured and how it is printed: latency tables, load, peers, reports.
//!
//! - [`target`]: what a system under load looks like to the generator.
//! - [`load`]: closed and open loads, keys, what a run found; interleaved rounds over several targets.
//! - [`peers`] and [`echo`]: systems to compare with, and the bare path below them all.
//! - [`ours`]: Sprat itself, as a system like the others.
//! - [`system`] and [`scenarios`]: whole servers started, measured and stopped; [`cables`] between them.
//! - [`promises`]: goals, measured and judged; of the [`store`], of its way past the kernel, [`bypass`], and of
//!   where its time goes, [`breakdown`].
//! - [`cluster`]: what replicas cost, and what a death does.
//! - [`lab`]: what the network box promises; [`flow`]: the mover; [`rack`]: a real Cassandra, tuned; [`grape`]: the calculator.
//! - [`browser`]: real browsers, for the mover's figures and the extension's tests.
//! - [`distribution`]: the whole of a latency's distribution, the steps in its tail explained; [`jitter`]: the machine without any store.
//! - [`basic`], [`goals`], [`table`], [`report`]: how figures are printed.
//! - [`machine`], [`usage`], [`cpu`]: where they were measured, what ran beside them.
//!
//! Nothing here prints: results render to strings and files, and the caller decides where they go.

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
