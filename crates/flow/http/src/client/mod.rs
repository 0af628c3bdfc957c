//! The client half of HTTP/1.1. A [`Connector`] makes a [`Wire`]. The caller sends requests on the
//! wire, and receives a [`Head`] and a [`Body`] from it. [`Caller`] does all of this for requests
//! with small responses.

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
