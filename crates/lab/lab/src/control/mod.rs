//! Watches and changes a running box from outside.
//!
//! Each box listens on a Unix socket of its own, in a directory that only its owner may enter
//! ([`ControlDir`]). Requests and answers are one JSON object per line:
//!
//! ```text
//! {"version":1,"request":"set","port":"b0","line":{"delay":"50ms"}}
//! {"version":1,"answer":{"lines":[{"port":"b0","line":{..}}],"warnings":[]}}
//! {"version":1,"error":"no port \"c0\"; the ports are a0, b0"}
//! ```
//!
//! The [`Server`] is one thread that handles one request after the other. It sends commands to the
//! box's workers, which never wait for it. A [`Client`] sends requests.

mod client;
mod connection;
mod error;
mod place;
mod serve;
mod server;
mod words;

pub use client::Client;
pub use error::ControlError;
pub use place::{ControlDir, MAX_BOXES, RunningBox};
pub use server::{MAX_CONNECTIONS, STALL, Server};
pub use words::{
    BoxState, MAX_ANSWER_BYTES, MAX_REQUEST_BYTES, PortState, Request, RequestError, RuleList,
    RuleState, SetReply, VERSION,
};
