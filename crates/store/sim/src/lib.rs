//! The deterministic simulator: the store's real code under virtual time, a network that loses and
//! delays frames, a disk that tears writes, and crashes, with a check of everything that was
//! acknowledged.
//!
//! One thread runs a server and its clients, the code of `sprat-store` and `sprat-client` as it
//! runs on a machine, on a network and a disk in memory. Time is a number that [`World`] advances
//! to the next event. One seed decides everything that chance decides: the work, what the network
//! does to each frame, what breaks and when, and what a power failure leaves on the disk. So a seed
//! determines a history.
//!
//! - [`world`]: the loop: time, network, server, clients, faults, in a fixed order.
//! - [`server`]: a server that starts, serves, stops and crashes.
//! - [`client`]: the calls that clients make, and the responses they get.
//! - [`faults`]: what goes wrong, and when.
//! - [`history`]: calls and responses.
//! - [`check`]: checks a history: is it linearizable key by key, versions and scans included?
//! - [`cluster`]: the same for several coordinators, with their elections, and servers that keep
//!   replicas for each other.
//! - [`seeds`]: runs many histories, on several threads.

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
pub use seeds::{SeedResult, run_seeds};
pub use settings::Settings;
pub use trace::Trace;
pub use world::{World, run};
