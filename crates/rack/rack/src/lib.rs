//! What the hosts of a planned rack are given: Cassandra's configuration for each instance, made
//! from the plan, and the inventory by which roles bring it there.
//!
//! All of it is text, made by pure functions: [`hosts`] says who is on the rack,
//! [`Instance::files`] what an instance has in its folder; [`place`] writes that down. Nothing here
//! speaks to a host.

mod hosts;
pub mod instance;
mod inventory;
mod java;
mod place;
pub mod service;
mod settings;
pub mod unit;
mod yaml;

pub use hosts::{Host, hosts};
pub use instance::{File, Instance};
pub use inventory::inventory;
pub use java::AGENT;
pub use place::{place, place_service};
pub use service::Service;
pub use settings::{Collector, Settings};
