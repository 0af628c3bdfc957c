//! The coordinator: names tables, says who serves them, keeps track of servers.
//!
//! Servers pull: each asks for the assignments that are newer than those it serves, and the
//! coordinator answers when there are any, or after [`POLL`]. That question is also the sign of
//! life. A client that makes or drops a table is answered once the server concerned has asked with
//! a version that includes the change.
//!
//! There may be several, with their metadata in etcd. One leads; the others stand by, and take its
//! place within a lease when it is silent: [`election`] says who, [`Office`] tells the service.

pub mod balance;
mod catalog;
mod copy;
pub mod election;
mod entries;
pub mod etcd;
mod loads;
mod members;
mod metadata;
mod moves;
mod office;
mod rows;
mod service;

pub use catalog::{Catalog, MAX_SERVERS, MAX_TABLES, Refusal};
pub use entries::{Known, Owned};
pub use loads::Loads;
pub use members::{ALIVE, DRIFT, FIRST_QUESTION, LEASE, RENEWAL};
pub(crate) use metadata::REMEDY;
pub use metadata::{Metadata, MetadataError, MetadataFile, MetadataMemory};
pub use office::{Envoy, Office, Reign, Valid};
pub use service::{APPLY_PATIENCE, Coordinator, MAX_WAITING, POLL};
