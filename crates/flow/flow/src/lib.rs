//! The mover: a file over a long fat pipe, disk to disk, in one TCP stream, verified on the way.
//!
//! What both ends agree on is HTTP/1.1, so that either end may be somebody else's. Between two of
//! ours a body is in *verified* form: after every [`group`] of the file's bytes comes its value in
//! the file's BLAKE3 tree.
//!
//! [`copy`] fetches, into a [`mod@file`] that gets its name when it is whole, with a [`journal`] to
//! go on from.

pub mod copy;
pub mod file;
pub mod group;
pub mod journal;
mod partial;
mod plain;
mod recent;
pub mod share;

pub use plain::{is_tricky, plain};
pub use recent::Recent;
