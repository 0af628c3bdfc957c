//! Sizes of packets and frames, bytes.

use crate::ether::{ETHERNET_BYTES, VLAN_BYTES};

/// Longest packet of memory interfaces unless the locator says otherwise, and of others:
/// Ethernet's.
pub(super) const JUMBO: u16 = 9000;
pub(super) const ETHERNET: u16 = 1500;

/// Bytes of a frame besides the packet, and some to spare for what devices put around it.
pub(super) const FRAME_ROOM: usize = ETHERNET_BYTES + VLAN_BYTES + 14;
