//! The coordinator: names tables, says who serves them, keeps track of servers.
//!
//! Servers pull: each asks for the assignments that are newer than those it serves, and the coordinator answers
//! when there are any, or after [`POLL`]. That question is also the sign of life. A client that makes or drops a
//! table is answered once the server concerned has asked with a version that includes the change.

mod catalog;
mod members;
mod metadata;
mod service;

pub use catalog::{Catalog, Known, MAX_SERVERS, MAX_TABLES, Owned, Refusal};
pub use members::{ALIVE, DRIFT, FIRST_QUESTION, LEASE, RENEWAL};
pub use metadata::{Metadata, MetadataError, MetadataFile, MetadataMemory};
pub use service::{APPLY_PATIENCE, Coordinator, MAX_WAITING, POLL};
