//! Drivers: frames in, frames out, over kernel UDP, kernel TCP or memory; and service locators.
//!
//! A [`Driver`] moves opaque frames between socket addresses. It is owned by one thread, never
//! blocks but in [`Driver::wait`], and allocates nothing once warm. Frames may be lost, repeated
//! and reordered, unless [`Transmit::reliable`] says otherwise; the `rpc` crate above makes calls of them.

mod driver;
mod time;

pub use driver::{Driver, Transmit};
pub use time::Nanos;
