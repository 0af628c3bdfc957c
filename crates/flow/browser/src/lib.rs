//! The native messaging host of the browser extension: the messages that the extension and `sprat
//! browser host` exchange, and the host.
//!
//! The browser starts the host and communicates with it over standard input and output. The host
//! ends when the browser closes them. It keeps the parts and journals of downloads in progress,
//! which resume when the extension requests them again.

mod copies;
pub mod host;
pub mod protocol;

pub use host::{MAX_RUNNING, MAX_WAITING, serve};
