//! Moves a tablet to another server while it is served ([decision
//! 22](../../../../../docs/decisions/0022-moving-tablets.md)).
//!
//! The target pulls: it asks the source for the whole tablet, then again and again for the changes
//! made meanwhile, until few changes are left. Before it sends the last of them, the source freezes
//! the tablet: it asks clients to retry. When everything is durable at the target, the target
//! reports that to the coordinator, which makes the target the tablet's owner.

mod arriving;
mod leaving;

pub(crate) use arriving::MigrationTargets;
pub(crate) use leaving::{CollectedBatch, MigrationSources};
