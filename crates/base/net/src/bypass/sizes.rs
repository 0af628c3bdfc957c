//! Sizes of packets and frames, in bytes.

use crate::ether::{ETHERNET_BYTES, VLAN_BYTES};

/// Default MTUs: [`JUMBO`] of memory interfaces, and `ETHERNET` of other devices.
pub(super) const JUMBO: u16 = 9000;
pub(super) const ETHERNET: u16 = 1500;

/// Bytes of a frame in addition to its packet: the headers, and some room for what devices add.
pub(super) const FRAME_ROOM: usize = ETHERNET_BYTES + VLAN_BYTES + 14;
