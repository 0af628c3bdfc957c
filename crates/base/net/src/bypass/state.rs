//! How a device fares.

use crate::Mac;

/// How a device fares.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceState {
    /// As the locator names it.
    pub name: String,
    /// Its driver: `memif`, or as DPDK calls it.
    pub driver: String,
    /// Its hardware address.
    pub mac: Mac,
    /// Whether the other end is there.
    pub up: bool,
    /// How often that has changed.
    pub changes: u64,
    /// Frames lost because nobody took those before in time.
    pub missed: u64,
    /// Frames that came broken or could not be sent; of memory interfaces, peers that broke the
    /// rules.
    pub errors: u64,
    /// Of the errors, frames that could not be sent.
    pub unsent: u64,
    /// Frames lost because the pool was empty.
    pub no_buffer: u64,
    /// Why the other end is not there, if that is known.
    pub trouble: Option<String>,
    /// Of one that several nodes share: whether it puts datagrams into the right queues by itself.
    /// If not, the nodes hand over what is another's.
    pub steers: Option<bool>,
}
