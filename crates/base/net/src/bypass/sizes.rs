//! Sizes of packets and frames, in bytes.

use crate::ether::{ETHERNET_BYTES, VLAN_BYTES};

/// The default MTU of memory interfaces.
pub(super) const JUMBO: u16 = 9000;
/// The default MTU of all other devices, which is Ethernet's.
pub(super) const ETHERNET: u16 = 1500;

/// Bytes of a frame in addition to its packet: the headers, and some room for what devices add.
pub(super) const FRAME_ROOM: usize = ETHERNET_BYTES + VLAN_BYTES + 14;
