//! Replaces `exchange` in builds without devices that nodes can share.

use std::io;

/// A node's share of a device, which cannot exist in this build.
pub enum DeviceShare {}

/// Creates shares for `nodes` nodes.
///
/// # Errors
/// Always: this build has no such devices.
pub fn shares(_nodes: usize) -> io::Result<Vec<DeviceShare>> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "only devices of DPDK can be shared, and this sprat was built without DPDK",
    ))
}
