//! Tables in the store's memory whose large, slow home is Apache Cassandra.
//!
//! A write is acknowledged when the store has it durably. Afterwards the bridge delivers it to
//! Cassandra, several times if necessary, but with the effect of a single write: its write
//! timestamp is derived from the version that the store gave it ([`Stamps`]). Keys that memory
//! lacks are read from Cassandra. `docs/decisions/0025-bridge.md` explains why no write is lost and
//! no old value comes back.
//!
//! Begin with [`BridgedTable`]; [`RunningBridge`] runs a table on threads of its own. The decisions
//! are in [`KeyOperations`], with [`Cell`] and [`Stamps`]. It uses no clock, and reaches memory and
//! home only through [`MemoryTable`] and [`HomeTable`]. [`Backlog`] is the queue of deliveries.
//! [`serve`] answers Redis clients.

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
pub use bridged::{BridgedTable, DELIVERY_WORKERS};
pub use cell::{Cell, Delivery, MAX_BRIDGED_VALUE, Stamps, after_delivery};
pub use error::Error;
pub use figures::BridgeStats;
pub use home::{Home, HomeRow};
pub use keeper::{Delivered, HomeTable, KeyOperations, MemoryTable, ReadResult};
pub use options::{HomeOptions, Options};
pub use resp::{COMMAND_LIMITS, MAX_ARGUMENTS, RedisCommand};
pub use running::RunningBridge;
pub use scylla::statement::Consistency;
pub use serve::{MAX_CONNECTIONS, MAX_REPLY, serve};
