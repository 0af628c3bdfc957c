//! Drivers: frames in, frames out, over kernel UDP, kernel TCP or memory; and service locators.
//!
//! A [`Driver`] moves opaque frames between socket addresses. It is owned by one thread, never
//! blocks, and allocates nothing once warm. Frames may be lost, repeated and reordered, unless
//! [`Transmit::reliable`] says otherwise; the `rpc` crate above makes calls of them.
//!
//! - [`Locator`] names an endpoint and its transport; [`AnyDriver::open`] opens it.
//! - [`Udp`] and [`Tcp`] are the kernel's transports, [`Mem`] is a network in memory with its own
//!   time.
//! - [`Idle`] decides, between two rounds of a node's loop, whether to spin, yield or sleep.
//!
//! - [`bypass`] is the driver that goes past the kernel: a host on [`ether`] over memory that
//!   processes share and, with the feature `dpdk`, over the devices DPDK drives.
//!
//! But for shared memory, DPDK and one instruction ([`ticks`]) the crate has no `unsafe`: system
//! calls go through `rustix`, `socket2` and, for what those two lack, `nix` (`UDP_GRO` and its
//! control message) and `perf-event2` (counters of events).

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
pub use idle::decide::{Decider, Mode, Policy, Step};
pub use idle::sources::{MAX_SOURCES, Sources};
pub use idle::{Idle, Waker};
pub use locator::{Bypass, Fault, Host, Locator, LocatorError, Locators, Transport};
pub use mac::Mac;
pub use mem::{Fate, Flight, Hub, HubOptions, Mem, MemTx, QUEUE_LIMIT};
pub use open::{OpenError, Role};
pub use stamp::{Count, Event, Laps, Scale, Stamped, ThreadAccount, counts, stamp, ticks};
pub use tcp::{MAX_CONNECTIONS, Tcp, TcpTx};
pub use time::Nanos;
pub use udp::{SMALL_FRAME, Udp, UdpTx};

/// Opened on one thread, owned by another.
const _: () = {
    const fn sendable<T: Send>() {}
    sendable::<Udp>();
    sendable::<Tcp>();
    sendable::<Idle>();
};
