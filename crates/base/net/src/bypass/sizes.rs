//! Sizes of packets and frames, in bytes.

use crate::ether::{ETHERNET_BYTES, VLAN_BYTES};

/// Default MTU of memory interfaces; then that of other devices, which is Ethernet's.
pub(super) const JUMBO: u16 = 9000;
pub(super) const ETHERNET: u16 = 1500;

/// Bytes of a frame in addition to its packet: the headers, and some room for what devices add.
pub(super) const FRAME_ROOM: usize = ETHERNET_BYTES + VLAN_BYTES + 14;
