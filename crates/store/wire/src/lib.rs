//! Every byte layout on the network and on disk, in one place, versioned.
//!
//! - [`packet`]: the header of a packet between two RPC endpoints.
//! - [`channel`]: frames of ends that prove who they are; [`certificate`]: what a cluster's root
//!   says of them.
//! - [`op`]: what a client asks of a coordinator or master, and what it answers.
//! - [`entry`]: an entry of the log, the same bytes in memory, on the network and on disk.
//! - [`once`]: operations that take effect once, and what is kept of them.
//! - [`tablet`]: tables in parts.
//! - [`value`]: the types of values, and what increments add.
//! - [`frame`]: how a backup frames a segment's bytes on disk.
//!
//! All integers are little-endian. Bytes from outside are parsed here once, into types that cannot
//! be wrong; a malformed byte gives a typed error, never a panic.

pub mod certificate;
pub mod channel;
pub mod entry;
pub mod frame;
pub mod limits;
pub mod once;
pub mod op;
pub mod packet;
pub mod tablet;
pub mod value;

pub use limits::*;
