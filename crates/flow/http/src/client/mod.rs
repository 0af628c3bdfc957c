//! The client's half of HTTP/1.1: connections, requests, and answers up to the end of their bodies.

mod body;
mod connect;
mod exchange;
mod fault;
mod head;
mod options;
mod tls;
mod wire;

pub use body::{Body, Framing};
pub use connect::Connector;
pub use exchange::{Call, Caller, MAX_ANSWER, Reply};
pub use fault::Fault;
pub use head::Head;
pub use options::Options;
pub use wire::Wire;
