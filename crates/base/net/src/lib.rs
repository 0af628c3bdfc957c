//! Network drivers and service locators. Drivers send and receive frames over kernel UDP, kernel
//! TCP, shared memory, DPDK or a network in memory. Locators name endpoints.
//!
//! A [`Driver`] moves opaque frames between socket addresses. One thread owns the driver. It never
//! blocks, and allocates nothing once its buffers have grown. The network may lose, repeat and
//! reorder frames, unless [`Transmit::reliable`] returns true. The `rpc` crate builds remote calls
//! on drivers.
//!
//! - [`Locator`] names an endpoint and its transport; [`AnyDriver::open`] opens it.
//! - [`Udp`] and [`Tcp`] use the kernel's transports; [`Mem`] is a network in memory with its own
//!   time.
//! - [`Idle`] decides, between two iterations of a node's loop, whether to spin, yield or sleep.
//!
//! - [`bypass`] is the driver that bypasses the kernel: a host on [`ether`] over memory that
//!   processes share or, with the feature `dpdk`, over devices that DPDK drives.
//!
//! Only shared memory, DPDK and one instruction ([`ticks`]) need `unsafe`. System calls go through
//! `rustix` and `socket2`. Two further crates supply what `rustix` and `socket2` lack: `nix`
//! (`UDP_GRO` and its control message) and `perf-event2` (event counters).

mod any;
pub mod bypass;
mod counters;
mod driver;
pub mod ether;
mod figures;
mod idle;
mod locator;
mod mac;
mod mem;
mod open;
mod refusals;
mod stamp;
mod tcp;
mod time;
mod udp;

pub use any::{AnyDriver, AnyTx};
pub use counters::Counters;
pub use driver::{Driver, MAX_FRAME, Sink, Transmit};
pub use figures::{Figure, MAX_NAME};
pub use idle::decide::{Decider, IdleStep, Mode, Policy};
pub use idle::sources::{MAX_SOURCES, Sources};
pub use idle::{Idle, Waker};
pub use locator::{Bypass, Host, Locator, LocatorError, LocatorFault, Locators, Transport};
pub use mac::Mac;
pub use mem::{Delivery, Flight, Hub, HubOptions, Mem, MemTx, QUEUE_LIMIT};
pub use open::{DriverRole, OpenError};
pub use stamp::{
    EventCounter, PerfEvent, RecentSamples, Scale, StampedTx, ThreadAccount, counts_events, stamp,
    ticks,
};
pub use tcp::{MAX_CONNECTIONS, Tcp, TcpTx};
pub use time::Nanos;
pub use udp::{SMALL_FRAME, Udp, UdpTx};

/// These types are opened on one thread and moved to the thread that owns them.
const _: () = {
    const fn sendable<T: Send>() {}
    sendable::<Udp>();
    sendable::<Tcp>();
    sendable::<Idle>();
};
