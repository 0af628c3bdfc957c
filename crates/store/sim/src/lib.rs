//! The deterministic simulator: virtual time, a hostile network, a disk that tears, and the check
//! of what was acknowledged.
//!
//! One thread runs a server and its clients, the code of `sprat-store` and `sprat-client` as it
//! runs on a machine, on a network and a disk in memory. Time is a number that [`World`] moves on
//! to the next thing due. Everything that chance decides comes from one seed: the work, the
//! network's whims, what breaks and when, and what a power cut leaves on the disk. So a seed is a
//! history, and the same seed the same history.
//!
//! - [`world`]: the loop: time, network, server, clients, faults, in a fixed order.
//! - [`server`]: a server's lives: starting, serving, stopping, crashing.
//! - [`client`]: the work that clients do, and what they are told.
//! - [`faults`]: what goes wrong, and when.
//! - [`history`]: what was asked and what was told.
//! - [`check`]: whether that can be: linearizable key by key, versions and scans included.
//! - [`cluster`]: all of that for coordinators, with their elections, and servers that keep
//!   replicas for each other.
//! - [`seeds`]: many histories, on several threads.

pub mod check;
pub mod client;
pub mod cluster;
pub mod faults;
pub mod history;
pub mod random;
mod report;
pub mod seeds;
pub mod server;
mod settings;
mod trace;
pub mod world;

pub use random::Random;
pub use report::{Failure, Summary};
pub use seeds::{Run, run_seeds};
pub use settings::Settings;
pub use trace::Trace;
pub use world::{World, run};
