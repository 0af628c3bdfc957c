//! The copy: a file from a server, or another disk, to here, whole and verified or not at all.
//!
//! ```no_run
//! use sprat_flow::copy::{Event, Fetch, Options};
//! let fetch = Fetch::new("sprat://left.example/big.iso", "big.iso".as_ref(), Options::default())?;
//! let outcome = fetch.run(&mut |event| {
//!     if let Event::Progress(progress) = event {
//!         eprintln!("{} B are here", progress.done);
//!     }
//! })?;
//! assert!(outcome.verified);
//! # Ok::<(), sprat_flow::copy::Error>(())
//! ```
//!
//! The caller's thread waits and tells; each stream has a thread of its own, which receives,
//! checks, and hands groups to one [`Sink`](crate::file::Sink).

pub mod answer;
mod client;
mod error;
mod event;
mod fetch;
mod finish;
mod host;
mod job;
mod lane;
mod local;
mod look;
mod options;
pub mod plan;
mod resume;
mod send;
mod shared;
mod sources;
pub mod spread;
mod sums;
mod tree;
mod unchanged;
mod unknown;
mod vouch;

pub use error::Error;
pub use event::{Event, Outcome, Progress, Served};
pub use fetch::Fetch;
pub use look::{Look, look};
pub use options::{MAX_HOSTS, MAX_STREAMS, Options};
pub use send::{Upload, UploadTree};
pub use spread::{Gather, Spread, SpreadOutcome};
pub use sums::{Summed, Summer, Sums};
pub use tree::{Tree, TreeOutcome};
