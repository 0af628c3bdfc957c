//! The client's half of HTTP/1.1: connections, requests, and answers that are held to what was asked.

mod body;
mod connect;
pub mod exchange;
pub mod head;
mod tls;
mod wire;

pub use body::Framing;
pub(crate) use body::{Body, fault};
pub(crate) use connect::connect;
pub(crate) use tls::Trust;
pub(crate) use wire::{Fault, Wire};
