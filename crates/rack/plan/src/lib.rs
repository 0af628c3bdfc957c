//! Plans racks of small servers from a description, before any hardware is bought or moved.
//!
//! ```toml
//! name = "stanford"
//!
//! [server]                        # what each server has
//! cores = 8
//! memory = "32GiB"
//! disks = ["128GiB"]
//! ports = 2
//! port-rate = "2.5Gb/s"
//!
//! [chassis]                       # a switch and its servers
//! servers = 44
//! uplinks = 4
//! uplink-rate = "40Gb/s"
//! switch = { forwarding = "cut-through", delay = "400ns", buffer = "8MB" }
//!
//! [fabric]                        # how chassis are connected
//! topology = { kind = "tree", leaves = 2 }
//! links = 2
//!
//! [cassandra]                     # optional
//! instances = 1
//! replication = 3
//!
//! [claims]                        # what others say, to be checked
//! memory = "4.1TB"
//! ```
//!
//! [`Plan::from_toml`] checks a description and computes everything that follows from it, or
//! returns the first error. A [`Plan`] then gives the layout ([`layout`]), Cassandra's ring
//! ([`ring`]), a picture ([`picture`]) and a simulation of its network ([`simulate`]). This crate
//! does no I/O, reads no clock, and draws random numbers only from seeds that are fixed. So a
//! description always gives the same plan.

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
pub use plan::{FailureEffect, Network, Plan, PlanError, Summary};
pub use spec::Spec;
