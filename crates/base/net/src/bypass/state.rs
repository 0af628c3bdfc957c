//! The state of a device.

use crate::Mac;

/// What a device is and the state it is in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceState {
    /// Its name in the locator.
    pub name: String,
    /// Its driver: `memif`, or DPDK's name for it.
    pub driver: String,
    /// Its hardware address.
    pub mac: Mac,
    /// Whether the link is up, which means that the peer is there.
    pub up: bool,
    /// How often the link has changed.
    pub changes: u64,
    /// Frames lost because earlier ones were not read in time.
    pub missed: u64,
    /// Frames received with errors or not sent; for memory interfaces, violations of the protocol
    /// by peers.
    pub errors: u64,
    /// How many of the errors are frames that could not be sent.
    pub unsent: u64,
    /// Frames lost because the pool was empty.
    pub no_buffer: u64,
    /// Why the link is down, if that is known.
    pub trouble: Option<String>,
    /// For a device that several nodes share: whether it steers datagrams to the right queues
    /// itself. If not, the nodes hand frames over to one another.
    pub steers: Option<bool>,
}
