//! A box that is watched and changed from outside while it runs.
//!
//! Each box listens on a Unix socket of its own, in a folder that only its owner may enter
//! ([`Place`]). Requests and answers are one JSON object a line:
//!
//! ```text
//! {"version":1,"request":"set","port":"b0","line":{"delay":"50ms"}}
//! {"version":1,"answer":{"lines":[{"port":"b0","line":{..}}],"warnings":[]}}
//! {"version":1,"error":"no port \"c0\"; the ports are a0, b0"}
//! ```
//!
//! The [`Server`] is one thread, which does one request after the other; lanes are asked between
//! their turns, and wait for nobody. A [`Client`] asks.

mod client;
mod connection;
mod error;
mod place;
mod serve;
mod server;
mod words;

pub use client::Client;
pub use error::ControlError;
pub use place::{Live, MAX_BOXES, Place};
pub use server::{MAX_CONNECTIONS, STALL, Server};
pub use words::{
    BoxState, MAX_ANSWER_BYTES, MAX_REQUEST_BYTES, PortState, Request, RequestError, RuleList,
    RuleState, Set, VERSION,
};
