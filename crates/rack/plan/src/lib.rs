//! Racks of small servers on paper: from a description to a checked plan, before anything is bought
//! or moved.
//!
//! ```toml
//! name = "stanford"
//!
//! [server]                        # each of them
//! cores = 8
//! memory = "32GiB"
//! disks = ["128GiB"]
//! ports = 2
//! port-rate = "2.5Gb/s"
//!
//! [chassis]                       # servers around a switch
//! servers = 44
//! uplinks = 4
//! uplink-rate = "40Gb/s"
//! switch = { forwarding = "cut-through", delay = "400ns", buffer = "8MB" }
//!
//! [fabric]                        # how chassis are joined
//! topology = { kind = "tree", leaves = 2 }
//! links = 2
//!
//! [cassandra]                     # if it is to be there
//! instances = 1
//! replication = 3
//!
//! [claims]                        # what others say it has
//! memory = "4.1TB"
//! ```
//!
//! [`Plan::from_toml`] gives all that follows, or names the first thing that cannot be. Nothing
//! here reads a file, knows the time or leaves anything to chance.

mod addresses;
pub mod capacity;
pub mod cassandra;
pub mod claims;
pub mod fabric;
mod fit;
pub mod host;
pub mod jobs;
pub mod layout;
pub mod picture;
mod plan;
pub mod power;
pub mod quantity;
pub mod racks;
pub mod ring;
pub mod simulate;
pub mod spec;
pub mod store;
pub mod topology;

pub use addresses::AddressList;
pub use plan::{Network, Plan, PlanError, Summary, Told};
pub use spec::Spec;
