//! The driver that bypasses the kernel: a host on Ethernet (see [`ether`](crate::ether)) over
//! ports, each of which is a memory interface or a device that DPDK drives.
//!
//! ```text
//! node -> send: headers and payload are written once, into a frame of the port's
//!      -> flush: the port sends the frames
//! port -> receive: a burst -> the host parses each frame -> datagrams go to the node from where
//!         they lie -> frames return to the port
//! ```
//!
//! Everything happens on the thread that opened the driver. To send and receive datagrams the
//! driver allocates nothing while ports have room. It calls the kernel only for maintenance, to
//! wake a peer that sleeps, and over those devices of DPDK's that are interfaces of the kernel.

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
pub use self::exchange::{DeviceShare, shares};
#[cfg(feature = "dpdk")]
pub use self::held::HeldFrames;
pub use self::raw::{RawDevice, start_devices};
pub use self::state::DeviceState;
