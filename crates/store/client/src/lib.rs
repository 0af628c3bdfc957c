//! The Rust client of the store: blocking and asynchronous, pipelined.
//!
//! - [`Client`]: one call after another on the caller's own thread, which spins or sleeps while it
//!   waits ([`Options::waiting`]); or many calls at once with [`Client::submit`] and
//!   [`Client::wait`].
//! - [`AsyncClient`]: futures for any executor; a thread of the client does the waiting.
//! - [`Watch`]: the changes of a table, for either.
//! - [`Core`]: the basis of both, without clock or thread, for load generators and the simulator.
//!
//! ```no_run
//! # fn main() -> Result<(), sprat_client::Error> {
//! use sprat_client::{Client, Options};
//! let mut client = Client::connect(&Options::default())?;
//! let users = client.create_table("users")?;
//! let version = client.put(users, b"alice", b"likes tea")?;
//! let object = client.get(users, b"alice")?.expect("just stored");
//! assert_eq!((object.version, &object.value[..]), (version, &b"likes tea"[..]));
//! # Ok(())
//! # }
//! ```

mod asynchronous;
mod batch;
mod blocking;
mod calls;
mod core;
mod error;
mod keys;
mod member;
mod operations;
mod places;
mod port;
mod session;
mod target;
mod transaction;
mod types;
mod watch;

pub use asynchronous::{AsyncClient, Call, thread_waker};
pub use batch::{BATCH_WINDOW, Batch, BatchResult};
pub use blocking::{Client, Options, Ticket};
pub use calls::{ATTEMPT_TIMEOUT, AnswerSink, MAX_PENDING};
pub use core::{Core, MAX_COORDINATORS, MAX_PORTS, TransactionOperation};
pub use error::Error;
pub use keys::{Index, Keys};
pub use member::credentials;
pub use places::MAX_KNOWN_TABLES;
pub use port::RequestTimes;
pub use sprat_key::{FileError, Identity};
pub use sprat_net::Mode;
pub use sprat_wire::expiry::{Ttl, TtlError};
pub use sprat_wire::index::{
    Field, FieldSource, IndexDefinition, IndexError, OrderStats, split_index_keys, with_index_keys,
};
pub use sprat_wire::op::{
    Condition, CopyStep, ServerRecord, TableOptions, TableRecord, WATCH_WAIT, WatchCursor, WhenFull,
};
pub use sprat_wire::tablet::Range;
pub use sprat_wire::transaction::TransactionAction;
pub use sprat_wire::value::{IncrementError, Number, ValueType};
pub use target::ServerHandle;
pub use transaction::{AsyncTransaction, TRANSACTION_ATTEMPTS, Transaction};
pub use types::{
    CopiedPiece, Counter, KeyPage, Object, Page, Row, Table, TableStats, TabletChanges,
};
pub use watch::{Change, Watch, WatchFrom, WatchQuestion, WatchReply, Watcher};
