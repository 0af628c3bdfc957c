//! The store: coordinator, master, backup and the node loop they live on.
//!
//! - [`node`]: one thread, one network port, one service: the loop that everything else is fed by.
//! - [`master`]: keeps objects, over a [`sprat_log::Log`], and answers for them.
//! - [`backup`]: makes the log durable on a local disk, and replays it.
//! - [`restart`]: log and backup opened together.
//! - [`coordinator`]: names tables and says who serves them.
//! - [`server`]: the threads of a real process around all this.

mod answers;
pub mod backup;
mod bodies;
pub mod coordinator;
pub mod data_dir;
pub mod master;
pub mod node;
pub mod restart;
pub mod server;
