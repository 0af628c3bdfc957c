//! The store: coordinator, master, backup and the node loop they live on.
//!
//! - [`node`]: one thread, one network port, one service: the loop that everything else is fed by.
//! - [`master`]: keeps objects, over a [`sprat_log::Log`], and answers for them.
//! - [`member`]: a master, and what it keeps for others, behind one port.
//! - [`backup`]: makes the log durable on a local disk, and replays it.
//! - [`replicas`]: keeps segments for masters elsewhere, over a backup, and gives them to who
//!   recovers them.
//! - [`restart`]: log and backup opened together.
//! - [`salvage`]: what is whole in the files of a stopped server that will not open.
//! - [`replication`]: makes the log durable on other servers.
//! - `moving`: has a tablet go to another server while both serve.
//! - [`recovery`]: brings back the log of a server that is gone.
//! - [`agent`]: speaks to the coordinator for a node.
//! - [`coordinator`]: names tables and says who serves them.
//! - [`server`]: the threads of a real process around all this.

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
