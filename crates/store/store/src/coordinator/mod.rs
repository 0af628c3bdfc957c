//! The coordinator: names tables, assigns their tablets to servers, and detects dead servers.
//!
//! Servers pull with a long poll: each sends the version of the assignments that it serves. The
//! coordinator replies as soon as there are newer assignments, or after [`POLL`]. To a server with
//! a lease it replies after `RENEWAL` at the latest, and sooner while the server recovers or moves
//! tablets. The poll doubles as the server's heartbeat. A client that creates or drops a table gets
//! its reply once the servers concerned have polled with a version that includes the change, or
//! after [`APPLY_TIMEOUT`].
//!
//! There may be several coordinators, which share their metadata in etcd. One leads and the others
//! stand by. Usually one of them takes over within a lease after the leader falls silent.
//! [`election`] decides who leads; a [`LeaderMailbox`] passes that decision to the coordinator's
//! service.

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

pub use catalog::{Catalog, MAX_ALL_INDEXES, MAX_SERVERS, MAX_TABLES, Refusal};
pub use entries::{OwnedTablet, ServerEntry};
pub use loads::LoadReports;
pub use members::{ALIVE_TIMEOUT, DRIFT, FIRST_POLL_TIMEOUT, LEASE, RENEWAL};
pub(crate) use metadata::REMEDY;
pub use metadata::{Metadata, MetadataError, MetadataFile, MetadataMemory};
pub use office::{ElectionBridge, LeaderLease, LeaderMailbox, LeaderTerm};
pub use service::{APPLY_TIMEOUT, Coordinator, MAX_WAITING, POLL};
