//! The store: coordinator, master, backup, and the node loop that drives them.
//!
//! - [`node`]: one thread, one network port, one service: the loop that drives everything else.
//! - [`master`]: keeps objects in a [`sprat_log::Log`], and executes clients' requests.
//! - [`member`]: a master, and the replicas that its node keeps for other masters, behind one port.
//! - [`backup`]: makes the log durable on a local disk, and replays it.
//! - [`replicas`]: keeps segments for other masters, over a backup, and returns them for a
//!   recovery.
//! - [`restart`]: opens a log and its backup together.
//! - [`salvage`]: reads what is whole in the files of a stopped server that cannot start.
//! - [`replication`]: makes the log durable on other servers.
//! - `moving`: moves a tablet to another server while both serve.
//! - [`recovery`]: recovers tablets of a crashed server from the replicas of its log.
//! - [`agent`]: a node's session with its coordinator.
//! - [`coordinator`]: names tables and decides which server serves them.
//! - [`data_dir`]: which server a data directory belongs to, and which files are in it.
//! - [`server`]: the threads that run all this in a real process.

pub mod agent;
mod answers;
pub mod backup;
mod bodies;
pub mod coordinator;
pub mod data_dir;
mod expected;
mod guests;
pub mod master;
pub mod member;
mod moving;
pub mod node;
pub mod recovery;
pub mod replicas;
pub mod replication;
pub mod restart;
pub mod salvage;
pub mod server;
mod shares;
