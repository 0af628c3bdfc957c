//! Recovers tablets of a dead server from the replicas of its log that other servers keep.
//!
//! A live server runs a [`Recovery`]: it fences the dead master at all backups, which reply with
//! their replicas (an [`Inventory`]), finds the segments that make up the log (a [`RecoveryPlan`]),
//! reads them, and writes the live entries into its own log.

mod completions;
mod plan;
mod segment;
mod task;

pub use completions::WrittenCompletion;
pub use plan::{HeldReplica, Inventory, Lost, RecoveryPlan, SegmentSource};
pub use segment::BadReplica;
pub use task::{Recovery, RecoveryFailure, RecoveryProgress, RecoveryReport};
