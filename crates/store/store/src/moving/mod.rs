//! A tablet that moves to another server while it is served ([decision
//! 22](../../../../../docs/decisions/0022-moving-tablets.md)).
//!
//! Who is to have it asks who has it for all of it, then for what has changed meanwhile, again and
//! again, until that is little. For the last of it the tablet stands still; when everything is
//! durable where it went, the coordinator is told, and hands it over.

mod arriving;
mod leaving;

pub(crate) use arriving::Arrivals;
pub(crate) use leaving::{Given, Leaving};
