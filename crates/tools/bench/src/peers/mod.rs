//! Systems to compare with, spoken to directly over non-blocking sockets, so that no client
//! library's cost is counted against them.

mod endpoint;
pub mod memcached;
mod peer;
pub mod process;
pub mod redis;
pub mod stream;

pub use endpoint::Endpoint;
pub use peer::Peer;
pub use process::Process;
