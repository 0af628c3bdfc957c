//! The state of a device.

use crate::Mac;

/// A device's identity, its current state and its counters.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceState {
    /// The device's name in the locator.
    pub name: String,
    /// The device's driver: `memif`, or DPDK's name of the driver.
    pub driver: String,
    /// The device's hardware address.
    pub mac: Mac,
    /// Whether the link is up, which means that the peer is there.
    pub up: bool,
    /// How often the link has gone up or down.
    pub changes: u64,
    /// Frames lost because earlier ones were not read in time.
    pub missed: u64,
    /// Frames received with errors, and frames that could not be sent. For memory interfaces, the
    /// number of violations of the protocol by peers.
    pub errors: u64,
    /// How many of the errors are frames that could not be sent.
    pub unsent: u64,
    /// Frames lost because the pool was empty.
    pub no_buffer: u64,
    /// Why the link is down, if that is known.
    pub trouble: Option<String>,
    /// Whether a shared device itself steers datagrams to the right queues. If false, the nodes
    /// hand frames over to one another. `None` if only one node uses the device.
    pub steers: Option<bool>,
}
