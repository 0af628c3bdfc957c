//! The deterministic simulator. It runs the store's real code under virtual time, with a network
//! that loses and delays frames, a disk that tears writes, and crashes, and checks every response.
//!
//! One thread runs a server and its clients, on a network and a disk in memory. Their code is that
//! of `sprat-store` and `sprat-client`, as it runs on a machine. Time is a number that [`World`]
//! advances to the next event. One seed decides everything that is random: the work, what the
//! network does to each frame, what fails and when, and what a power failure leaves on the disk. So
//! the same seed always gives the same history.
//!
//! - [`world`]: the loop over time, network, server, clients and faults, in a fixed order.
//! - [`server`]: a server that starts, serves, stops and crashes.
//! - [`client`]: the calls that clients make, and the responses to them.
//! - [`faults`]: which faults happen, and when.
//! - [`history`]: calls and responses.
//! - [`check`]: checks whether a history is linearizable for each key, versions and scans included.
//! - [`cluster`]: simulates clusters: several coordinators, with their elections, and servers that
//!   keep replicas for each other.
//! - [`seeds`]: runs many histories on several threads.

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
