//! Systems to compare with, spoken to directly over non-blocking sockets, so that no client
//! library's cost is counted against them.

mod endpoint;
pub mod memcached;
pub mod process;
pub mod redis;
pub mod stream;

pub use endpoint::{Endpoint, Peer};
pub use process::Process;
