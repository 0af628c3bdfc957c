//! Whole clusters: one or several coordinators, servers that keep replicas for each other, and
//! clients. Servers crash, pause or are cut off, and clocks drift.

mod backup;
mod clock;
mod coordinator;
mod etcd;
mod faults;
mod server;
mod settings;
mod watch;
mod world;

/// Number of replicas of each log.
pub const COPIES: u8 = 2;

pub use faults::Fault;
pub use settings::Settings;
pub use world::{World, run, run_long};
