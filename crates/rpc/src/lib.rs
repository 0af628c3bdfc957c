//! Remote procedure calls without I/O: sessions, fragments, grants, retransmission, at most once.

mod client;
mod config;
mod counters;
mod endpoint;
mod grants;
mod handler;
mod link;
mod message;
mod random;
mod rtt;
mod server;
mod slab;
mod timer;

pub use config::*;
pub use counters::Counters;
pub use endpoint::Endpoint;
pub use handler::{
    CallError, CallFailure, CallId, ConnectError, Handler, NoHandler, Outcome, Repeat, Reply, RequestId, Response,
    SessionId,
};
pub use sprat_wire::packet::Refusal;
