//! The driver that bypasses the kernel: a host on Ethernet (see [`ether`](crate::ether)) over
//! ports, each of which is a memory interface or a device that DPDK drives.
//!
//! ```text
//! node -> send: headers and payload written once, into a frame of the port's -> flush: the port is told
//! port -> receive: a burst -> the host reads each frame -> datagrams to the node where they lie -> frames go back
//! ```
//!
//! Everything happens on the thread that opened the driver; nothing is allocated and the kernel is
//! not called, but to look for neighbours, to see whether links are up, and to wake a peer that
//! sleeps.

mod address;
#[cfg(feature = "dpdk")]
mod dpdk;
mod driver;
#[cfg_attr(not(feature = "dpdk"), path = "alone.rs")]
mod exchange;
mod figures;
#[cfg(feature = "dpdk")]
mod held;
pub mod memif;
mod open;
mod port;
mod raw;
mod sizes;
mod state;

pub use self::address::Address;
pub(crate) use self::driver::BypassRx;
pub use self::driver::{BypassDriver, BypassTx};
pub use self::exchange::{Share, shares};
#[cfg(feature = "dpdk")]
pub use self::held::Held;
pub use self::raw::{RawDevice, start_devices};
pub use self::state::DeviceState;
