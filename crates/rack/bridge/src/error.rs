//! Errors of a bridge, with what to do about them.

use std::net::SocketAddr;
use std::time::Duration;
use thiserror::Error;

/// Why an operation failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The store refused a request, or did not answer.
    #[error("the store: {0}")]
    Store(#[from] sprat_client::Error),
    /// Cassandra refused a request, or did not answer.
    #[error("Cassandra, {doing}: {error}")]
    Home {
        /// The operation that failed.
        doing: String,
        /// The driver's error.
        error: String,
    },
    /// The object is not a cell of a bridge, so another program has written it.
    #[error(
        "an object of this table was not written by a bridge; give the bridge a table of its own"
    )]
    NotACell,
    /// Another program writes to the home table.
    #[error(
        "the row has write timestamp {found}, and the bridge's are below {ours}: another program \
         writes to it; write only through the bridge"
    )]
    Foreign {
        /// The row's write timestamp.
        found: i64,
        /// The bridge's write timestamp, which is below the row's.
        ours: i64,
    },
    /// The table in the store has another home.
    #[error("this table is bridged to {there}, not {wanted}; name that one, or use another table")]
    OtherHome {
        /// The table's home.
        there: String,
        /// The home in the options.
        wanted: String,
    },
    /// The base of the table's write timestamps is implausible.
    #[error("write timestamps cannot start at {0}; is the clock right?")]
    Base(u64),
    /// Cassandra does not allow the name.
    #[error("{0:?} cannot name a keyspace or table: 1 to 48 of a-z, 0-9 and _, a letter first")]
    Name(String),
    /// The options have no address of Cassandra.
    #[error("no address of Cassandra; give at least one, as HOST:PORT")]
    NoContacts,
    /// The value is longer than [`MAX_BRIDGED_VALUE`](crate::MAX_BRIDGED_VALUE).
    #[error("value of {0} bytes; the longest is {max} bytes", max = crate::MAX_BRIDGED_VALUE)]
    ValueTooLarge(usize),
    /// The key is empty.
    #[error("an empty key, which Cassandra does not allow; nothing was changed")]
    EmptyKey,
    /// Key and value are longer than a row of Cassandra may be.
    #[error(
        "key and value of {bytes} bytes; Cassandra takes {most} in one row as it is set \
         (max_mutation_size, or half of commitlog_segment_size); nothing was changed"
    )]
    TooLargeForHome {
        /// Bytes of key and value.
        bytes: usize,
        /// The limit of the home.
        most: usize,
    },
    /// The backlog was full, and had no room for the write within this time.
    #[error(
        "{max} writes wait for Cassandra, the limit, and it took none for {0:?}; nothing was \
         changed. Does Cassandra answer?",
        max = crate::MAX_DIRTY
    )]
    Behind(Duration),
    /// The bridge is closing or closed, and refuses writes.
    #[error("the bridge is being closed; nothing was changed")]
    Closed,
    /// The bridge cannot listen at the address.
    #[error(
        "cannot listen at {listen}: {error}; if another process uses it, choose another address \
         with --listen"
    )]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// The system's error.
        error: std::io::Error,
    },
    /// A thread or socket could not be created.
    #[error("{0}")]
    System(#[from] std::io::Error),
}
