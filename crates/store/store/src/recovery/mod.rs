//! Bringing back what a server had that is gone, from the replicas that other servers keep of its
//! log.

mod completions;
mod plan;
mod segment;
mod task;

pub use completions::Named;
pub use plan::{Held, Inventory, Lost, Plan, Source};
pub use segment::BadReplica;
pub use task::{Failure, Recovery, Report};
