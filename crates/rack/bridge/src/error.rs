//! What can go wrong, and what to do about it.

use std::net::SocketAddr;
use std::time::Duration;
use thiserror::Error;

/// Why something could not be done.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The store refused, or does not answer.
    #[error("the store: {0}")]
    Store(#[from] sprat_client::Error),
    /// Cassandra refused, or does not answer.
    #[error("Cassandra, {doing}: {error}")]
    Home {
        /// What was being done.
        doing: String,
        /// What its driver says.
        error: String,
    },
    /// An object that no bridge wrote.
    #[error(
        "an object of this table was not written by a bridge; give the bridge a table of its own"
    )]
    NotACell,
    /// Somebody else writes to the home.
    #[error(
        "the row has write timestamp {found}, and the bridge's are below {ours}: somebody else writes to it; write through the bridge alone"
    )]
    Foreign {
        /// The row's write timestamp.
        found: i64,
        /// What it would have to be below.
        ours: i64,
    },
    /// The table belongs to another home.
    #[error("this table's home is {there}, not {wanted}; name that one, or another table")]
    OtherHome {
        /// Whose it is.
        there: String,
        /// What was named.
        wanted: String,
    },
    /// Where write timestamps begin makes no sense.
    #[error("write timestamps cannot begin at {0}; is the clock right?")]
    Base(u64),
    /// Not a name in Cassandra.
    #[error("{0:?} cannot name a keyspace or table: 1 to 48 of a-z, 0-9 and _, a letter first")]
    Name(String),
    /// Nobody to ask.
    #[error("no address of Cassandra; name at least one, as HOST:PORT")]
    NoContacts,
    /// The value is too long.
    #[error("value of {0} bytes; the longest is {max} bytes", max = crate::MAX_BRIDGED_VALUE)]
    ValueTooLarge(usize),
    /// No home has it.
    #[error("an empty key: Cassandra has none, so it would never come home; nothing was changed")]
    EmptyKey,
    /// The home takes no row as long as this.
    #[error(
        "key and value of {bytes} bytes; Cassandra takes {most} in one row as it is set (max_mutation_size, or half of commitlog_segment_size); nothing was changed"
    )]
    TooLargeForHome {
        /// Bytes of key and value.
        bytes: usize,
        /// The most there may be.
        most: usize,
    },
    /// Too much waits for its way home.
    #[error(
        "{max} writes wait for Cassandra, the most there may be, and none went in {0:?}; nothing was changed. Does Cassandra answer?",
        max = crate::MAX_DIRTY
    )]
    Behind(Duration),
    /// The bridge is being closed.
    #[error("the bridge is being closed; nothing was changed")]
    Closed,
    /// Nobody can be let in.
    #[error(
        "cannot listen at {listen}: {error}; is somebody else there? --listen names another address"
    )]
    Listen {
        /// Where.
        listen: SocketAddr,
        /// What the system says.
        error: std::io::Error,
    },
    /// No thread, no socket.
    #[error("{0}")]
    System(#[from] std::io::Error),
}
