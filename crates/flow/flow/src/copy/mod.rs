//! Transfers of files: from a server or another local disk to here, and from here to servers. A
//! transfer ends with a complete, verified file, or with none.
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
//! [`Fetch`] and [`Upload`] move one file, [`Tree`] and [`UploadTree`] a folder, [`Gather`] and
//! [`Spread`] a set of files whose pieces are on several servers. Each is made with [`Options`] and
//! then run on the caller's thread, which reports events; each stream has a thread of its own,
//! which receives, verifies, and passes groups to one [`Sink`](crate::file::Sink).

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
pub use tree::{Tree, TreeOutcome};
