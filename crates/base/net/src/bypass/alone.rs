//! In place of the exchange, in builds without devices that nodes could share.

use std::io;

/// A node's part: there is none.
pub enum Share {}

/// Parts for `nodes` nodes.
///
/// # Errors
/// Always: this build has no such devices.
pub fn shares(_nodes: usize) -> io::Result<Vec<Share>> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "this sprat was built without DPDK, whose devices alone can be shared",
    ))
}
