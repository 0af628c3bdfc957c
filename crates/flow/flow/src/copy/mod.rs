//! Transfers of files from a server or another local disk, and to servers. When the transfer of a
//! file ends, the destination is the complete file, or is unchanged.
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
//! [`Fetch`] and [`Upload`] move one file, and [`FetchTree`] and [`UploadTree`] a folder.
//! [`Gather`] and [`Spread`] move a set of files whose pieces are on several servers. Create one of
//! them with [`Options`], and call its `run`, which reports events on the caller's thread. Each
//! stream has a thread of its own. A stream of a fetch receives and verifies groups, and passes
//! them to one [`Sink`](crate::file::Sink).

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
pub use look::{FileInfo, probe};
pub use options::{MAX_HOSTS, MAX_STREAMS, Options};
pub use send::{Upload, UploadTree};
pub use spread::{Gather, Spread, SpreadOutcome};
pub use sums::{FileHasher, FileSums, Sums};
pub use tree::{FetchTree, TreeOutcome};
