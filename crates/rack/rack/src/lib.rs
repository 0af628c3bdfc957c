//! Makes the files that hosts of a planned rack need: Cassandra's configuration for each instance,
//! the arguments of etcd and Sprat's servers, systemd units, and the inventory by which Ansible's
//! roles install them.
//!
//! All of these are texts that pure functions make. [`hosts`] lists the servers with their
//! instances and services, [`Instance::files`] and [`Service::files`] give the files in their
//! folders, and [`write_instance`] and [`write_service`] write these files to a local folder. This
//! crate connects to no host.

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
pub use java::JAMM_JAR;
pub use place::{write_instance, write_service};
pub use service::Service;
pub use settings::{Collector, Settings};
