//! Tables in the store's memory whose large, slow home is Apache Cassandra.
//!
//! A write is acknowledged when the store has it durably; it reaches Cassandra afterwards, as often
//! as need be, and in effect once: its write timestamp follows from the version that the store gave
//! it ([`Stamps`]). What is not in memory is read from there. `docs/decisions/0025-bridge.md` says
//! why nothing is lost and nothing comes back.
//!
//! [`Bridged`] does it. The parts that decide anything are without time and network: [`Keeper`]
//! with [`Cell`] and [`Stamps`], and [`Backlog`]. [`serve`] lets programs in that speak to Redis.

mod backlog;
mod bridged;
mod cell;
mod error;
mod figures;
mod home;
mod keeper;
mod options;
mod resp;
mod running;
mod serve;
mod sweep;

pub use backlog::{Backlog, MAX_DIRTY};
pub use bridged::{Bridged, CARRIERS};
pub use cell::{Cell, Delivery, MAX_BRIDGED_VALUE, Stamps, after_delivery};
pub use error::Error;
pub use figures::Figures;
pub use home::{Home, Stored};
pub use keeper::{Carried, Far, Keeper, Near, Read};
pub use options::{HomeOptions, Options};
pub use resp::{Answer, MAX_ARGUMENTS, MAX_QUESTION, Parts, Question, parse};
pub use running::Running;
pub use scylla::statement::Consistency;
pub use serve::{MAX_ANSWER, MAX_CONNECTIONS, serve};
