//! The browser's side door: what the extension and `sprat browser host` say to each other, and the
//! host.
//!
//! The browser starts the host, and talks to it over standard input and output. The host ends when
//! the browser closes that; what was under way then lies beside its destination, with its journal,
//! and goes on when the extension asks for it again.

mod copies;
pub mod host;
pub mod protocol;

pub use host::{MAX_RUNNING, MAX_WAITING, serve};
