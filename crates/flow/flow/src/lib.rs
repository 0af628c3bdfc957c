//! The file mover. It copies files over long, fast networks as fast as the network and the disks
//! allow, and verifies them on the way.
//!
//! Both ends use HTTP/1.1, so that either end may be another program. Between two `sprat` programs
//! a body is in *verified form*: each [`group`] of the file's bytes is followed by the group's
//! value in the file's BLAKE3 tree.
//!
//! [`copy`] fetches and sends files; [`share`] is the server. A received [`mod@file`] gets its name
//! only when it is complete, and a [`journal`] in the same directory lets an interrupted transfer
//! resume.

pub mod copy;
pub mod file;
pub mod group;
pub mod journal;
mod partial;
mod plain;
mod recent;
pub mod share;

pub use plain::{escape_controls, is_unprintable};
pub use recent::RecentRate;
