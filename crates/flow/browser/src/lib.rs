//! The native messaging host of the browser extension: the messages that the extension and `sprat
//! browser host` exchange, and the host.
//!
//! The browser starts the host and communicates with it over standard input and output. The host
//! ends when the browser closes its standard input, or when its caller stops it. The parts and
//! journals of unfinished downloads stay on disk, so that a download resumes when the extension
//! requests it again.

mod copies;
pub mod host;
pub mod protocol;

pub use host::{MAX_RUNNING, MAX_WAITING, serve};
