//! Peers to compare with. The benchmark accesses them directly over non-blocking sockets, so that
//! the costs of client libraries do not count against them.

mod connection;
mod endpoint;
pub mod memcached;
pub(crate) mod optimistic;
mod peer;
pub mod process;
pub mod redis;
pub mod stream;

pub(crate) use connection::RedisAnswer;
pub use connection::RedisConnection;
pub use endpoint::Endpoint;
pub use peer::Peer;
pub use process::Process;
